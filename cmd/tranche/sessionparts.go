package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"tranche/action"
	"tranche/bucketing"
	"tranche/episode"
	"tranche/reward"
	"tranche/sampler"
	"tranche/scheduler"
)

// This file makes the parts between source and sink out of the settings.

func (s *session) newActor() (*action.Set, error) {
	return action.New(s.actionConfig(), slices.Concat(action.Builtins(), s.a.tools, s.kit.tools)...)
}

func (s *session) newScorer() (*reward.Scorer, error) {
	scorer, err := reward.New(s.rewardConfig(), s.graderKinds()...)
	if err != nil {
		return nil, fmt.Errorf("reward: %w", err)
	}
	return scorer, nil
}

func (s *session) actionConfig() action.Config {
	calls, _ := s.set.Calls.format() // the settings were checked
	return action.Config{
		Calls: calls, Tools: s.kit.offered, Workers: s.set.ActionWorkers, Timeout: s.set.ActionTimeout, MaxObservationBytes: int(s.set.MaxObservation),
	}
}

// pipeline is the parts between source and sink, with what has to be closed afterwards.
type pipeline struct {
	run    scheduler.RunConfig
	closes []func() error
}

func (p *pipeline) onClose(f func() error) { p.closes = append(p.closes, f) }

// close ends the parts, the last one built first.
func (p *pipeline) close() error {
	var errs []error
	for _, f := range slices.Backward(p.closes) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// openEpisode makes the episode of one sample. A task whose own parameters are faulty was refused by the source already.
func (s *session) openEpisode(knobs *sampler.Knobs, d episode.Draw, sample int) *episode.Episode {
	params, err := knobs.Params(d, sample)
	budget, berr := sampler.Budget(d.Task, s.budget())
	e := episode.New(s.file.RunID, d, sample, params, budget, time.Now())
	e.Due = knobs.Due(d.Task)
	if name, prompt := knobs.Vary(d); name != "" {
		e.Variant, e.Messages, e.NumPrompt = name, prompt, len(prompt)
	}
	if err = errors.Join(err, berr); err != nil {
		e.Fail(&episode.Fault{Stage: episode.StageInput, Class: episode.ClassInternal, Cause: err})
	}
	return e
}

func (s *session) build(ctx context.Context) (*pipeline, error) {
	p := &pipeline{}
	order, knobs, err := s.draws.source(ctx, s)
	if err != nil {
		return nil, err
	}
	p.onClose(order.Close)
	actor, err := s.newActor()
	if err != nil {
		return nil, errors.Join(withCode(codeUsage, err), p.close())
	}
	p.onClose(actor.Close)
	s.actor = actor
	scorer, err := s.newScorer()
	if err != nil {
		return nil, errors.Join(withCode(codeUsage, err), p.close())
	}
	p.onClose(scorer.Close)
	s.scorer = scorer
	sched, err := scheduler.New(s.schedulerConfig())
	if err != nil {
		return nil, errors.Join(withCode(codeUsage, err), p.close())
	}
	s.judges.lend(sched)
	p.onClose(func() error { s.judges.lend(nil); sched.Close(); return nil })
	p.run = scheduler.RunConfig{
		Source: order, Done: s.writer.Done, Good: s.writer.Good, Quorum: s.quorum(), Sink: &countingSink{Sink: s.writer, tally: &s.tally, stats: &s.draws.stats}, MaxOpen: s.openEpisodes(),
		Open: func(d episode.Draw, sample int) *episode.Episode {
			e := s.openEpisode(knobs, d, sample)
			e.Begun = s.writer.Begun(e.ID)
			return e
		},
		Rollout:        &scheduler.Rollout{Sched: sched, Actor: actor, Scorer: scorer, Turns: s.writer, EpisodeTimeout: s.set.EpisodeTimeout},
		Stop:           s.stopped.stop,
		Drain:          s.set.DrainTimeout,
		MaxFailedShare: s.set.StopOnFailedShare, MaxUnscoredShare: s.set.StopOnUnscoredShare, Unscored: s.groupsUnscored, MinSettled: 100,
		Trace: scheduler.Trace{
			Opened: func(*episode.Episode) { s.open.Add(1) },
			Closed: func(*episode.Episode) { s.open.Add(-1) },
		},
	}
	return p, nil
}

func (s *session) budget() episode.Budget {
	return episode.Budget{
		TurnTokens: s.set.MaxTokens, EpisodeTokens: s.set.MaxEpisodeTokens, ContextTokens: s.set.MaxContext, Turns: s.set.MaxTurns, MinUseful: s.set.MinUseful,
	}
}

// openEpisodes is how many episodes are open at once: more than calls, because an episode in a tool holds no call, and far more where
// batches are padded: like calls for one are found only among many.
func (s *session) openEpisodes() int {
	if s.set.OpenEpisodes > 0 {
		return s.set.OpenEpisodes
	}
	return max(64, 2*s.fleet.calls(), 16*s.fleet.rows())
}

func (s *session) samplerConfig() sampler.PlanConfig {
	c, _ := s.set.plan() // the settings were checked
	c.Samples, c.Order, c.Seed, c.Window, c.Rounds = s.set.drawn(), sampler.Order(s.set.Order), s.set.Seed, s.set.Window, s.set.Rounds
	c.SendSeed, c.Tasks, c.Sampling, c.Began = s.set.SendSeed, s.tasks.Tasks, s.sampling(), s.file.Created
	return c
}

func (s *session) sampling() episode.Sampling {
	return episode.Sampling{
		Temperature: s.set.Temperature, TopP: s.set.TopP, TopK: s.set.TopK, MinP: s.set.MinP, Stop: s.set.Stop,
		Priority: s.set.Priority, Logprobs: s.set.Logprobs, TokenIDs: s.set.TokenIDs, Extra: s.set.ExtraBody,
	}
}

func (s *session) schedulerConfig() scheduler.Config {
	meters := s.fleet.meters()
	return scheduler.Config{
		Endpoints: s.fleet.endpoints(), Rules: s.rules(),
		Trace: scheduler.Trace{
			Launched: func(endpoint string, l scheduler.Launch) {
				meters[endpoint].launched()
				if l.Hedge {
					s.hedges.launched.Add(1)
				}
			},
			Won:       func(string) { s.hedges.won.Add(1) },
			Lost:      func(_ string, took time.Duration) { s.hedges.lose(took) },
			Wasted:    func(_ string, tokens int) { s.hedges.wasted.Add(int64(tokens)) },
			Continued: s.cutting.continued,
			Remade:    func(_ string, tokens int) { s.cutting.remade.Add(int64(tokens)) },
			Settled:   func(endpoint string, d time.Duration, f *episode.Fault) { meters[endpoint].settled(d, f) },
			Retrying:  func(endpoint string, f *episode.Fault) { s.tellLimited(meters[endpoint], f) },
			Down:      s.tellDown,
			Up:        s.tellUp,
			Began:     s.tellBegan,
			Resumed:   s.goneOn.tell,
		},
	}
}

func (s *session) rules() scheduler.Rules {
	ladder, _ := ladderOf(&s.set) // the settings were checked
	return scheduler.Rules{
		Ladder: ladder, MaxAttempts: s.set.MaxAttempts, Patience: patience, Seed: rand.Uint64(), EarlyYield: s.set.EarlyYield || s.set.cuts(),
		Hedge: s.set.Hedge,
	}
}

// patience is how long a call waits while no endpoint that could take it is alive; then the run ends and can be resumed.
const patience = 2 * time.Minute

// tellDown says what became of an endpoint and what comes next. The scheduler calls it once for each change.
func (s *session) tellDown(endpoint string, why *episode.Fault, again time.Duration) {
	cause := "no answer"
	if why != nil {
		cause = string(why.Class)
		if why.Cause != nil {
			cause += ": " + short(visibleLine(why.Cause.Error()), 300)
		}
	}
	s.a.notice("endpoint %s is taken for down: %s; it is tried again in %s; with no endpoint left the run ends after %s and can be resumed",
		endpoint, cause, max(again.Round(100*time.Millisecond), 100*time.Millisecond), patience)
}

// tellLimited says, once an endpoint, that it refuses calls for their rate: such attempts do not count, so nothing else would tell.
func (s *session) tellLimited(m *meter, why *episode.Fault) {
	if why == nil || why.Class != episode.ClassRateLimited {
		return
	}
	m.limited.Do(func() {
		asks := "names no time to wait (no Retry-After)"
		if why.After > 0 {
			asks = fmt.Sprintf("asks for %s (Retry-After)", why.After)
		}
		s.a.notice("endpoint %s refuses calls with HTTP 429 and %s; they are sent again until --episode-timeout (%s) and do not count as --max-attempts; fewer at once (--concurrency) may help",
			m.name, asks, s.set.EpisodeTimeout)
	})
}

// ladderOf makes the length classes; none given means the default ones.
func ladderOf(s *Settings) (bucketing.Ladder, error) {
	if len(s.Classes) == 0 {
		return bucketing.NewLadder(nil)
	}
	return bucketing.NewLadder(s.Classes)
}
