package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tranche/episode"
)

// endingActor counts the ends it is told of, and notes what came too early.
type endingActor struct {
	echoActor
	mu    sync.Mutex
	ended map[string]int
	early []string
	fails bool // panics in Do
}

func (a *endingActor) Do(ctx context.Context, e *episode.Episode, acts []episode.Action) []episode.Observation {
	if a.fails {
		panic("the actor is broken")
	}
	return a.echoActor.Do(ctx, e, acts)
}

func (a *endingActor) End(e *episode.Episode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended[e.ID]++
	if e.Fault == nil && e.Verdict.Total == nil {
		a.early = append(a.early, e.ID) // not graded yet
	}
}

// However an episode ends, its actor is told, once, and before the row is written.
func TestTheActorIsToldOfEveryEnd(t *testing.T) {
	again := func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
		return says("", 20, calls("search")), time.Second, nil
	}
	cases := map[string]struct {
		think   func(*episode.Call, int, int) (*episode.Reply, time.Duration, error)
		fails   bool
		timeout time.Duration
		stop    bool
	}{
		"done": {think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return says("", 20, calls("submit")), time.Second, nil
		}},
		"a failed call": {think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return nil, time.Second, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest, Cause: errors.New("no")}
		}},
		"a tool that crashed": {think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return says("", 20, calls("panic")), time.Second, nil
		}},
		"an actor that panicked": {think: again, fails: true},
		"the total deadline":     {think: again, timeout: 5 * time.Second},
		"stopped":                {think: again, stop: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sched, err := New(Config{Endpoints: fleet(&scripted{think: c.think}), Concurrency: 2})
				if err != nil {
					t.Fatal(err)
				}
				actor := &endingActor{ended: map[string]int{}, fails: c.fails}
				sink := &endSink{actor: actor}
				stop := make(chan struct{})
				if c.stop {
					time.AfterFunc(7*time.Second, func() { close(stop) })
				}
				var n atomic.Int64 // played
				_, err = Run(t.Context(), RunConfig{
					Source: &list{n: 6, samples: 1}, Sink: sink, MaxOpen: 3,
					Open: func(d episode.Draw, sample int) *episode.Episode {
						return episode.New("run", d, sample, episode.Sampling{}, episode.Budget{TurnTokens: 50, Turns: 100}, time.Now())
					},
					Rollout: &Rollout{Sched: sched, Actor: actor, Scorer: oneScorer{}, EpisodeTimeout: c.timeout}, Stop: stop, Drain: time.Second,
					Trace: Trace{Opened: func(*episode.Episode) { n.Add(1) }},
				})
				sched.Close()
				if (err != nil) != c.stop {
					t.Fatalf("the run ended with %v", err)
				}
				for id, times := range actor.ended {
					if times != 1 {
						t.Errorf("%s ended %d times", id, times)
					}
				}
				if len(actor.ended) != int(n.Load()) || len(actor.early) > 0 || len(sink.early) > 0 || n.Load() == 0 {
					t.Errorf("%d of %d episodes were ended, %v before they were graded, %v written before", len(actor.ended), n.Load(), actor.early, sink.early)
				}
			})
		})
	}
}

// endSink notes the rows of episodes that have not been ended.
type endSink struct {
	actor *endingActor
	early []string
}

func (s *endSink) Write(_ context.Context, e *episode.Episode) error {
	s.actor.mu.Lock()
	defer s.actor.mu.Unlock()
	if s.actor.ended[e.ID] != 1 {
		s.early = append(s.early, fmt.Sprint(e.ID, " ", e.Status))
	}
	return nil
}
