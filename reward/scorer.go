package reward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
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
	base       context.Context // ends at Close
	stop       context.CancelFunc
}

var _ episode.Scorer = (*Scorer)(nil)

// desk is one grader of the run with what is kept of it.
type desk struct {
	Spec
	grader Grader
	config string        // digest
	limit  time.Duration // of one grading
	strays strays
}

// New makes a Scorer. Kinds are those that Spec.Kind may name besides the built-in ones. It reports every fault at once.
func New(cfg Config, kinds ...Kind) (*Scorer, error) {
	takes, offered := options(), make(map[string]Kind, len(kinds))
	for _, k := range kinds {
		if _, taken := takes[k.Name]; taken || k.Name == "" || strings.Contains(k.Name, "/") || k.Make == nil {
			return nil, fmt.Errorf("kind %q: expected a name of its own without a /, and a Make", k.Name)
		}
		takes[k.Name], offered[k.Name] = []string{"with"}, k
	}
	errs := []error{cfg.validate(takes)}
	cfg = cfg.withDefaults()
	s := &Scorer{cfg: cfg, thresholds: map[string]float64{}}
	for i, spec := range cfg.Graders {
		d := &desk{Spec: spec, limit: cfg.Timeout}
		s.desks = append(s.desks, d)
		if spec.Threshold != nil {
			s.thresholds[spec.Name] = *spec.Threshold
		}
		if k, ok := offered[spec.Kind]; ok {
			var err error
			if d.grader, err = k.make(spec); err != nil {
				errs = append(errs, fmt.Errorf("graders[%d] (%s): %w", i, spec.Name, err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, s.closeGraders())
	}
	for _, d := range s.desks {
		if d.grader == nil {
			d.Spec = d.filled()
			d.grader = build(d.Spec)
		}
		d.config = d.digest(d.grader.ID())
	}
	s.pool = workpool.New(cfg.Workers, cfg.Queue)
	s.base, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Score judges a closed episode. It returns an error only when ctx or the scorer ended first: there is no verdict at all
// then, and the episode can be scored again.
func (s *Scorer) Score(ctx context.Context, e *episode.Episode) (episode.Verdict, error) {
	var rs []episode.Reward
	if reason := notGradable(e); reason != "" {
		for _, d := range s.desks {
			rs = append(rs, d.unscored(reason, ""))
		}
		return episode.Verdict{Rewards: rs}, nil
	}
	sheets := make([]*sheet, len(s.desks))
	for i, d := range s.desks {
		sheets[i] = &sheet{desk: d, in: input(e, d.From)}
	}
	if err := s.grade(ctx, sheets); err != nil {
		return episode.Verdict{}, fmt.Errorf("scoring episode %s: %w", e.ID, err)
	}
	for _, sh := range sheets {
		rs = append(rs, sh.components()...)
	}
	return s.verdict(rs), nil
}

// verdict makes the total. What a grader could not judge for want of a ground truth, or by the user's wish, is no failure.
func (s *Scorer) verdict(rs []episode.Reward) episode.Verdict {
	v := episode.Verdict{Total: total(s.cfg.Total, rs, s.thresholds), Rewards: rs, Credit: credit(rs)}
	for _, r := range rs {
		if _, gates := s.thresholds[r.Name]; r.Score != nil || r.Weight == 0 && !gates {
			continue
		}
		v.Failed = v.Failed || r.Outcome != noVerdict(MissingTruth) && r.Outcome != noVerdict(NotGraded)
	}
	return v
}

func noVerdict(reason string) string { return episode.NoVerdict + ": " + reason }

// grade asks every grader, all at once, and asks those again that say it may help. What waits in between holds no worker.
func (s *Scorer) grade(ctx context.Context, sheets []*sheet) error {
	for pause := s.cfg.Pause; ; pause *= 2 {
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

// notGradable is the reason why an episode is not graded at all, "" when it is. What a failed episode says is no answer.
func notGradable(e *episode.Episode) string {
	switch {
	case e.Fault != nil:
		return string(e.Fault.Class)
	case e.Status == episode.StatusFailed:
		return string(episode.ClassInternal)
	case e.Status == episode.StatusCancelled:
		return string(episode.ClassCancelled)
	}
	return ""
}

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
	return Stats{Workers: s.cfg.Workers, Running: s.pool.Running(), Abandoned: s.pool.Abandoned()}
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
	if n := s.pool.Close(); n > 0 {
		err = fmt.Errorf("closing the scorer: %d abandoned gradings have not returned (each got %s to stop)", n, workpool.Grace)
	}
	return errors.Join(err, s.closeGraders())
}

// closeGraders closes each once, however often Close is called.
func (s *Scorer) closeGraders() error {
	var errs []error
	for _, d := range s.desks {
		if c, ok := d.grader.(io.Closer); ok && !d.strays.closed.Swap(true) {
			if err := c.Close(); err != nil {
				errs = append(errs, fmt.Errorf("closing grader %s: %w", d.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// strays counts the gradings of one grader that were abandoned. They hold no worker, but each may hold a core.
type strays struct {
	now, ever, refused atomic.Int64
	closed             atomic.Bool // the grader is
}

// States of one grading, so that one that ends just when it is given up is counted right.
const (
	stateGoing int32 = iota
	stateEnded
	stateAbandoned
)

// sheet is one grader's work on one episode.
type sheet struct {
	desk  *desk
	in    Input
	job   *workpool.Job[Finding]
	state *atomic.Int32
	end   workpool.End[Finding]
	full  bool // it was not asked: too many of its gradings never ended
	tries int
	cost  Cost
}

func (sh *sheet) start(ctx context.Context, s *Scorer) {
	d := sh.desk
	if sh.full = d.strays.now.Load() >= int64(s.cfg.MaxAbandoned); sh.full {
		d.strays.refused.Add(1)
		return
	}
	state := &atomic.Int32{}
	ended := func() {
		if !state.CompareAndSwap(stateGoing, stateEnded) {
			d.strays.now.Add(-1)
		}
	}
	in := sh.in
	sh.state, sh.tries = state, sh.tries+1
	sh.job = workpool.Start(ctx, s.pool, s.cfg.Timeout, ended, func(ctx context.Context) (Finding, error) { return d.grader.Grade(ctx, in) })
}

func (sh *sheet) wait() {
	if sh.full {
		sh.end = workpool.End[Finding]{}
		return
	}
	sh.end = sh.job.Wait()
	if sh.end.Abandoned {
		strays := &sh.desk.strays
		strays.ever.Add(1)
		strays.now.Add(1)
		if !sh.state.CompareAndSwap(stateGoing, stateAbandoned) {
			strays.now.Add(-1)
		}
	}
	cost := sh.end.Value.Cost
	if cost.Wall == 0 {
		cost.Wall = sh.end.Wall
	}
	sh.cost = sh.cost.Plus(cost)
}

func (sh *sheet) retry() bool {
	var u *Unjudged
	return !sh.full && sh.end.How == workpool.Finished && errors.As(sh.end.Err, &u) && u.Retry
}

// outcome is "" where the grader gave a valid finding, else the reason of there being none, and what it says for people.
func (sh *sheet) outcome() (reason, detail string) {
	var nothing *Unjudged
	switch e := sh.end; {
	case sh.full:
		return string(episode.ClassScoreTimeout), fmt.Sprintf("not asked: %d gradings of this grader never ended and still go on", sh.desk.strays.now.Load())
	case e.How == workpool.TimedOut:
		return string(episode.ClassScoreTimeout), fmt.Sprintf("no judgement within %s", sh.desk.limit)
	case e.How == workpool.Panicked:
		return string(episode.ClassVerifier), "panic: " + e.Panicked
	case errors.As(e.Err, &nothing):
		return nothing.Reason, nothing.Detail
	case e.Err != nil:
		return string(episode.ClassVerifier), e.Err.Error()
	}
	if fault := sh.end.Value.fault(len(sh.in.Turns)); fault != "" {
		return string(episode.ClassVerifier), fault
	}
	return "", ""
}

// components makes the stored form of how a grading ended: the main one and its parts.
func (sh *sheet) components() []episode.Reward {
	if reason, detail := sh.outcome(); reason != "" {
		r := sh.desk.unscored(reason, detail)
		r.Tries, r.Cost, r.Tier = sh.tries, sh.cost, sh.end.Value.Tier
		return []episode.Reward{r}
	}
	f := sh.end.Value
	r := sh.desk.blank()
	r.Score, r.Raw, r.Outcome, r.Evidence = episode.Ptr(f.Score), f.Raw, episode.Scored, clip(f.Evidence)
	r.Tier, r.Tries, r.Cost, r.Credit = f.Tier, sh.tries, sh.cost, f.Turns
	if f.Grader != "" {
		r.Grader = f.Grader
	}
	list := []episode.Reward{r}
	for _, p := range f.Parts {
		list = append(list, p.component(r))
	}
	return list
}

// component is a part as it is stored beside its main component. Tries and cost stand there alone.
func (p Part) component(main episode.Reward) episode.Reward {
	r := episode.Reward{
		Name: main.Name + "." + p.Name, Score: p.Score, Weight: main.Weight * p.Weight, Raw: p.Raw, Outcome: episode.Scored,
		Grader: main.Grader, Config: main.Config, Evidence: clip(p.Evidence), Tier: main.Tier,
	}
	if p.Score == nil {
		r.Outcome = noVerdict(NotJudged)
	}
	return r
}

// fault is what a finding breaks of its rules, "" for nothing.
func (f Finding) fault(turns int) string {
	if !isScore(f.Score) {
		return fmt.Sprintf("score %v is not from 0 to 1", f.Score)
	}
	names := map[string]bool{}
	for _, p := range f.Parts {
		switch {
		case p.Name == "" || names[p.Name]:
			return fmt.Sprintf("part %q: expected a name of its own", p.Name)
		case p.Score != nil && !isScore(*p.Score):
			return fmt.Sprintf("part %s: score %v is not from 0 to 1", p.Name, *p.Score)
		case !(p.Weight >= 0) || math.IsInf(p.Weight, 0):
			return fmt.Sprintf("part %s: weight %v, expected 0 or more", p.Name, p.Weight)
		}
		names[p.Name] = true
	}
	if f.Turns != nil && len(f.Turns) != turns {
		return fmt.Sprintf("credit for %d turns, the episode has %d", len(f.Turns), turns)
	}
	for i, c := range f.Turns {
		if math.IsInf(c, 0) {
			return fmt.Sprintf("credit %v of turn %d is not finite", c, i)
		}
	}
	return ""
}

// isScore is false for NaN too.
func isScore(score float64) bool { return score >= 0 && score <= 1 }

func (d *desk) blank() episode.Reward {
	return episode.Reward{Name: d.Name, Weight: *d.Weight, Grader: d.grader.ID(), Config: d.config}
}

func (d *desk) unscored(reason, detail string) episode.Reward {
	r := d.blank()
	r.Outcome, r.Evidence = noVerdict(reason), clip(detail)
	return r
}
