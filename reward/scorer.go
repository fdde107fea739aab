package reward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"tranche/episode"
	"tranche/internal/workpool"
)

// ErrClosed is what Score returns after Close.
var ErrClosed = errors.New("the scorer is closed")

// Scorer scores episodes. It is an episode.Scorer; all its methods may be called at once.
type Scorer struct {
	cfg        Config
	desks      []*desk // one for each of cfg.Graders
	thresholds map[string]float64
	pool       *workpool.Pool
	waiting    *workpool.Pool  // of the kinds that only wait
	base       context.Context // ends at Close
	stop       context.CancelFunc
}

var _ episode.Scorer = (*Scorer)(nil)

// desk is one grader of the run with what is kept of it.
type desk struct {
	Spec
	grader Grader        // nil where it judges groups
	group  GroupGrader   // nil where it judges episodes
	config string        // digest
	limit  time.Duration // of one grading
	waits  bool          // Kind.Waits
	strays strays
}

// New makes a Scorer. Kinds are those that Spec.Kind may name besides the built-in ones. It reports every fault at once.
func New(cfg Config, kinds ...Kind) (*Scorer, error) {
	takes, offered := options(), make(map[string]Kind, len(kinds))
	for _, k := range append(groupKinds(), kinds...) {
		if _, taken := takes[k.Name]; taken || k.Name == "" || strings.Contains(k.Name, "/") || (k.Make == nil) == (k.MakeGroup == nil) {
			return nil, fmt.Errorf("kind %q: expected a name of its own without a /, and one of Make and MakeGroup", k.Name)
		}
		takes[k.Name], offered[k.Name] = []string{"with"}, k
	}
	s := &Scorer{cfg: cfg.withDefaults()}
	s.thresholds = s.cfg.thresholds()
	if err := errors.Join(cfg.validate(takes), s.open(offered)); err != nil {
		return nil, errors.Join(err, s.closeGraders())
	}
	for _, d := range s.desks {
		if d.grader == nil && d.group == nil {
			d.Spec = d.filled()
			d.grader = build(d.Spec)
		}
		d.config = d.digest(d.id(), d.judge())
		if t, ok := d.judge().(Timed); ok && t.Timeout() > 0 {
			d.limit = t.Timeout()
		}
	}
	s.pool, s.waiting = workpool.New(s.cfg.Workers, s.cfg.Queue), workpool.New(s.cfg.Waiters, 16*s.cfg.Waiters)
	s.base, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// open makes the graders of kinds that are offered; the built-in ones are made when all settings are known to be right.
func (s *Scorer) open(offered map[string]Kind) error {
	var errs []error
	for i, spec := range s.cfg.Graders {
		d := &desk{Spec: spec, limit: s.cfg.Timeout}
		s.desks = append(s.desks, d)
		if k, ok := offered[spec.Kind]; ok {
			if err := d.make(k); err != nil {
				errs = append(errs, fmt.Errorf("graders[%d] (%s): %w", i, spec.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Score judges a closed episode. It returns an error only when ctx or the scorer ended first: there is no verdict at all
// then, and the episode can be scored again.
func (s *Scorer) Score(ctx context.Context, e *episode.Episode) (episode.Verdict, error) {
	v, _, err := s.ScoreAgain(ctx, e, true)
	return v, err
}

func asked(sheets []*sheet) []*sheet {
	return slices.DeleteFunc(slices.Clone(sheets), func(sh *sheet) bool { return sh == nil })
}

// verdict makes the total. What a grader could not judge for want of a ground truth, or by the user's wish, is no failure.
func (s *Scorer) verdict(rs []episode.Reward) episode.Verdict {
	v := episode.Verdict{Total: total(s.cfg.Total, rs, s.thresholds), Rewards: rs, Credit: credit(rs)}
	for _, r := range rs {
		if _, gates := s.thresholds[r.Name]; r.Score != nil || r.Weight == 0 && !gates {
			continue
		}
		v.Failed = v.Failed || r.Outcome != noVerdict(MissingTruth) && r.Outcome != noVerdict(NotGraded) && r.Outcome != episode.GroupOpen
	}
	return v
}

func noVerdict(reason string) string { return episode.NoVerdict + ": " + reason }

func (d *desk) make(k Kind) (err error) {
	d.waits = k.Waits
	if k.MakeGroup != nil {
		d.group, err = k.makeGroup(d.Spec)
		return err
	}
	d.grader, err = k.make(d.Spec)
	return err
}

// judge is the grader, of whichever sort.
func (d *desk) judge() interface{ ID() string } {
	if d.group != nil {
		return d.group
	}
	return d.grader
}

func (d *desk) id() string { return d.judge().ID() }

// closer is nil for a grader that has nothing to close.
func (d *desk) closer() io.Closer {
	c, _ := d.judge().(io.Closer)
	return c
}

// poolOf is where a desk's gradings go on.
func (s *Scorer) poolOf(d *desk) *workpool.Pool {
	if d.waits {
		return s.waiting
	}
	return s.pool
}

// longestPause is between two tries: the episode stays open, and holds its place, while one waits.
const longestPause = 10 * time.Second

// grade asks every grader, all at once, and asks those again that say it may help. What waits in between holds no worker.
func (s *Scorer) grade(ctx context.Context, sheets []*sheet) error {
	for pause := s.cfg.Pause; ; pause = min(2*pause, max(s.cfg.Pause, longestPause)) {
		for _, sh := range sheets {
			sh.start(ctx, s)
		}
		var again []*sheet
		stopped := false
		for _, sh := range sheets {
			sh.wait()
			stopped = stopped || sh.end.How == workpool.Cancelled
			if sh.retry() && sh.tries <= s.cfg.Retries {
				again = append(again, sh)
			}
		}
		if stopped {
			return s.why(ctx)
		}
		if sheets = again; len(sheets) == 0 {
			return nil
		}
		if !s.sleep(ctx, pause) {
			return s.why(ctx)
		}
	}
}

func (s *Scorer) why(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return ErrClosed
}

// sleep returns false when ctx or the scorer ended first.
func (s *Scorer) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.base.Done():
	}
	return false
}

// notGradable is the reason why an episode is not graded at all, "" when it is, and what more there is to say of it. What a failed episode says is no answer.
func (s *Scorer) notGradable(e *episode.Episode) (reason, detail string) {
	switch {
	case e.Fault != nil:
		return string(e.Fault.Class), ""
	case e.Status == episode.StatusFailed:
		return string(episode.ClassInternal), ""
	case e.Status == episode.StatusCancelled:
		return string(episode.ClassCancelled), ""
	case s.leavesOut(e):
		return NotGraded, "it ended as " + string(e.Stop) + ", which is not to be scored"
	}
	return "", ""
}

// leavesOut says that an episode ended for a reason for which none is judged.
func (s *Scorer) leavesOut(e *episode.Episode) bool { return slices.Contains(s.cfg.Unscored, e.Stop) }

// input copies what a grader sees: an abandoned one may read on when the episode is long gone.
func input(e *episode.Episode, from string) Input {
	text, said := e.Final()
	if from == FromContent {
		text, said = lastContent(e)
	}
	return Input{
		Task: e.Task, Text: text, Said: said, Episode: e.ID,
		Messages: slices.Clone(e.Messages), NumPrompt: e.NumPrompt, Stop: e.Stop,
		Turns: slices.Clone(e.Turns), Actions: slices.Clone(e.Actions),
	}
}

func lastContent(e *episode.Episode) (string, bool) {
	for i := len(e.Messages) - 1; i >= e.NumPrompt; i-- {
		if m := e.Messages[i]; m.Role == episode.RoleAssistant && m.Content != nil {
			return *m.Content, true
		}
	}
	return "", false
}

// Stats says what the pool is doing.
type Stats struct {
	Workers   int   // gradings that can go on at once
	Running   int64 // gradings watched by a worker
	Abandoned int64 // gradings given up that still go on; they hold no worker
}

// Stats returns the present load.
func (s *Scorer) Stats() Stats {
	return Stats{Workers: s.cfg.Workers, Running: s.pool.Running() + s.waiting.Running(), Abandoned: s.pool.Abandoned() + s.waiting.Abandoned()}
}

// Trouble tells of a grader that did not stop when it was told to.
type Trouble struct {
	Component string
	Abandoned int64 // gradings given up so far
	Going     int64 // of them, still going on
	Refused   int64 // gradings it was not asked for because too many were going on
}

// Troubles lists the graders that had any.
func (s *Scorer) Troubles() (list []Trouble) {
	for _, d := range s.desks {
		t := Trouble{d.Name, d.strays.ever.Load(), d.strays.now.Load(), d.strays.refused.Load()}
		if t.Abandoned > 0 {
			list = append(list, t)
		}
	}
	return list
}

// Close tells what runs to stop and waits for it, a quarter of a second at most, and closes the graders that can be. The error says
// how many gradings never returned; their goroutines last as long as the process.
func (s *Scorer) Close() error {
	s.stop()
	var err error
	if n := s.pool.Close() + s.waiting.Close(); n > 0 {
		err = fmt.Errorf("closing the scorer: %d abandoned gradings have not returned (each got %s to stop)", n, workpool.Grace)
	}
	return errors.Join(err, s.closeGraders())
}

// closeGraders closes each once, however often Close is called.
func (s *Scorer) closeGraders() error {
	var errs []error
	for _, d := range s.desks {
		if c := d.closer(); c != nil && !d.strays.closed.Swap(true) {
			if err := c.Close(); err != nil {
				errs = append(errs, fmt.Errorf("closing grader %s: %w", d.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}
