package bench

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
)

// metronome is a simulated engine that takes its time: its steps last as long as the model says, by the clock of the test's bubble.
type metronome struct {
	steps   sync.WaitGroup
	mu      sync.Mutex // guards all below
	model   *enginesim.Model
	waiting map[uint64]*listener
	next    uint64
	running bool
	latency time.Duration // of a request, beside its steps
	salts   map[string]uint64
}

type listener struct {
	sent   time.Time
	stamps []time.Duration
	cached int
	done   chan struct{}
}

func (m *metronome) Continue(_ context.Context, c episode.Continuation) (episode.Continued, error) {
	sent := time.Now()
	time.Sleep(m.latency)
	m.mu.Lock()
	m.next++
	l := &listener{sent: sent, done: make(chan struct{})}
	m.waiting[m.next] = l
	if m.salts[c.Salt] == 0 {
		m.salts[c.Salt] = uint64(len(m.salts) + 1)
	}
	output := make([]int32, c.Tokens)
	m.model.Offer(enginesim.Request{ID: m.next, Prompt: c.Prompt, Output: output, Salt: m.salts[c.Salt], EachToken: true}, 0)
	if !m.running {
		m.running = true
		m.steps.Go(m.step) // ends when the engine is idle
	}
	m.mu.Unlock()
	<-l.done
	return episode.Continued{IDs: output, Prompt: len(c.Prompt), Cached: l.cached, Stamps: l.stamps, Took: time.Since(l.sent)}, nil
}

// step runs steps until there is nothing to do.
func (m *metronome) step() {
	for {
		time.Sleep(time.Nanosecond) // what is sent at the same moment shares the step
		m.mu.Lock()
		if m.model.Idle() {
			m.running = false
			m.mu.Unlock()
			return
		}
		events, d := m.model.Step(0)
		happened := append([]enginesim.Event(nil), events...)
		m.mu.Unlock()
		time.Sleep(d)
		m.mu.Lock()
		for _, e := range happened {
			switch l := m.waiting[e.ID]; e.Kind {
			case enginesim.Admitted:
				l.cached = e.Tokens
			case enginesim.Sampled:
				l.stamps = append(l.stamps, time.Since(l.sent))
			case enginesim.Done:
				close(l.done)
			}
		}
		m.mu.Unlock()
	}
}

// TestMeasureAndFitFindTheEngine measures an engine as calibrate does, in a bubble's time, and finds what it was made of.
func TestMeasureAndFitFindTheEngine(t *testing.T) {
	for name, cfg := range map[string]enginesim.Config{"two cores": VLLMA().Engine(), "a GPU": Reference()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &metronome{model: enginesim.NewModel(cfg), waiting: map[uint64]*listener{}, latency: 3 * time.Millisecond, salts: map[string]uint64{}}
				defer server.steps.Wait()
				m := Measure{
					Server:     server,
					Capacity:   episode.Capacity{ContextTokens: cfg.ContextTokens, KVTokens: cfg.KVTokens, BlockTokens: cfg.BlockTokens},
					StepBudget: cfg.StepBudget, Repeats: 1, Run: "test",
				}
				samples, err := m.Samples(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				fit, err := enginesim.Calibrate(samples)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range samples {
					s.Requests = 0
					want, is := cfg.Step.Of(s), fit.Step.Of(s)
					if off := is.Seconds()/want.Seconds() - 1; math.Abs(off) > 0.03 {
						t.Errorf("%+v takes %v, fitted %v", s, want, is)
					}
				}
				if off := fit.Request - 3*time.Millisecond; off.Abs() > time.Millisecond {
					t.Errorf("a request costs 3 ms beside its steps, fitted %v", fit.Request)
				}
			})
		})
	}
}
