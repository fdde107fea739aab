package reward

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"tranche/episode"
	"tranche/internal/workpool"
)

// ErrClosed is what Score returns after Close.
var ErrClosed = errors.New("the scorer is closed")

// Scorer scores episodes. It is an episode.Scorer; all its methods may be called at once.
type Scorer struct {
	cfg     Config
	graders []Grader // one for each of cfg.Graders
	pool    *workpool.Pool
}

var _ episode.Scorer = (*Scorer)(nil)

// New makes a Scorer. Graders of one's own are chosen by the Spec.Kind that their ID begins with; such a Spec takes no
// options but name, weight and from.
func New(cfg Config, own ...Grader) (*Scorer, error) {
	kinds := options()
	mine := make(map[string]Grader, len(own))
	for _, g := range own {
		kind, version, ok := strings.Cut(g.ID(), "/")
		if _, taken := kinds[kind]; taken || !ok || kind == "" || version == "" {
			return nil, fmt.Errorf("grader id %q: expected a kind of its own, /, and a version", g.ID())
		}
		kinds[kind], mine[kind] = nil, g
	}
	if err := cfg.validate(kinds); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Scorer{cfg: cfg, pool: workpool.New(cfg.Workers, cfg.Queue)}
	for _, spec := range cfg.Graders {
		g := mine[spec.Kind]
		if g == nil {
			g = build(spec)
		}
		s.graders = append(s.graders, g)
	}
	return s, nil
}

// Score judges a closed episode. It returns an error only when ctx or the scorer ended first: there is no verdict at all
// then, and the episode can be scored again.
func (s *Scorer) Score(ctx context.Context, e *episode.Episode) (episode.Verdict, error) {
	if reason := notGradable(e); reason != "" {
		return s.verdict(func(i int) episode.Reward { return s.unscored(i, reason, "") }), nil
	}
	jobs := make([]*workpool.Job[Finding], len(s.graders))
	for i, g := range s.graders {
		in := input(e, s.cfg.Graders[i].From)
		jobs[i] = workpool.Start(ctx, s.pool, s.cfg.Timeout, nil, func(ctx context.Context) (Finding, error) { return g.Grade(ctx, in) })
	}
	ends := make([]workpool.End[Finding], len(jobs))
	stopped := false
	for i, j := range jobs {
		ends[i] = j.Wait()
		stopped = stopped || ends[i].How == workpool.Cancelled
	}
	if stopped {
		cause := ctx.Err()
		if cause == nil {
			cause = ErrClosed
		}
		return episode.Verdict{}, fmt.Errorf("scoring episode %s: %w", e.ID, cause)
	}
	return s.verdict(func(i int) episode.Reward { return s.component(i, ends[i]) }), nil
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
		Task: e.Task, Text: text, Said: said,
		Messages: slices.Clone(e.Messages), NumPrompt: e.NumPrompt, Stop: e.Stop,
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

// component makes the stored form of how a grading ended.
func (s *Scorer) component(i int, e workpool.End[Finding]) episode.Reward {
	var nothing *Unjudged
	switch {
	case e.How == workpool.TimedOut:
		return s.unscored(i, string(episode.ClassScoreTimeout), fmt.Sprintf("no judgement within %s", s.cfg.Timeout))
	case e.How == workpool.Panicked:
		return s.unscored(i, string(episode.ClassVerifier), "panic: "+e.Panicked)
	case errors.As(e.Err, &nothing):
		return s.unscored(i, nothing.Reason, nothing.Detail)
	case e.Err != nil:
		return s.unscored(i, string(episode.ClassVerifier), e.Err.Error())
	case !(e.Value.Score >= 0 && e.Value.Score <= 1): // also NaN
		return s.unscored(i, string(episode.ClassVerifier), fmt.Sprintf("score %v is not from 0 to 1", e.Value.Score))
	}
	r := s.blank(i)
	r.Score, r.Outcome, r.Evidence = episode.Ptr(e.Value.Score), episode.Scored, clip(e.Value.Evidence)
	if e.Value.Grader != "" {
		r.Grader = e.Value.Grader
	}
	return r
}

func (s *Scorer) blank(i int) episode.Reward {
	spec := s.cfg.Graders[i]
	return episode.Reward{Name: spec.Name, Weight: *spec.Weight, Grader: s.graders[i].ID()}
}

func (s *Scorer) unscored(i int, reason, detail string) episode.Reward {
	r := s.blank(i)
	r.Outcome, r.Evidence = episode.NoVerdict+": "+reason, clip(detail)
	return r
}

func (s *Scorer) verdict(component func(i int) episode.Reward) episode.Verdict {
	rs := make([]episode.Reward, len(s.graders))
	for i := range rs {
		rs[i] = component(i)
	}
	return episode.Verdict{Total: weightedSum(rs), Rewards: rs}
}

// weightedSum is the mean of the scores by weight; nil when one that counts is missing.
func weightedSum(rs []episode.Reward) *float64 {
	sum, weight := 0.0, 0.0
	for _, r := range rs {
		if r.Weight == 0 {
			continue
		}
		if r.Score == nil {
			return nil
		}
		sum += r.Weight * *r.Score
		weight += r.Weight
	}
	if weight == 0 || math.IsInf(weight, 0) {
		return nil
	}
	return episode.Ptr(sum / weight)
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

// Close tells what runs to stop and waits for it, a quarter of a second at most. The error says how many gradings never
// returned; their goroutines last as long as the process.
func (s *Scorer) Close() error {
	if n := s.pool.Close(); n > 0 {
		return fmt.Errorf("closing the scorer: %d abandoned gradings have not returned (each got %s to stop)", n, workpool.Grace)
	}
	return nil
}
