package bench

import (
	"fmt"
	"time"

	"tranche/inference/enginesim"
)

// machine is one replica of a simulated fleet. It is stepped lazily: only when it is sent something, looked at, or could by then
// have something to tell. Between those moments nothing outside can see a difference, and many steps cost one event. A step that
// begins at a moment is run only after that moment: what is sent at the end of a step takes part in the next.
type machine struct {
	config enginesim.Config
	model  *enginesim.Model
	clock  time.Duration // end of the last step
	short  time.Duration // the least a step can take
	past   enginesim.Counters
	state  machineState
	calls  map[uint64]*flight // sent and not answered, by attempt
	firsts int64              // first tokens that came,
	waited time.Duration      // and the time to them in sum
	dirty  bool               // finishes() may have changed since the fleet asked
}

type machineState int8

const (
	up machineState = iota
	draining
	dead
)

func newMachine(c enginesim.Config) *machine {
	return &machine{
		config: c, model: enginesim.NewModel(c), calls: map[uint64]*flight{},
		short: time.Duration((c.Step.Base + c.Step.Floor) * float64(time.Second)),
	}
}

// send offers an attempt to the engine at now; the machine has been brought there.
func (m *machine) send(f *flight, r enginesim.Request, now time.Duration) {
	if m.model.Idle() {
		m.clock = max(m.clock, now)
	}
	m.calls[f.attempt] = f
	f.sent = now
	m.model.Offer(r, now)
	m.dirty = true
}

// abort takes an attempt off the engine.
func (m *machine) abort(f *flight) {
	m.model.Abort(f.attempt)
	delete(m.calls, f.attempt)
	m.dirty = true
}

// ended is a call that is done and when.
type ended struct {
	at     time.Duration
	flight *flight
}

// bring runs all steps that begin before now and appends what they finished, in order.
func (m *machine) bring(now time.Duration, done []ended) ([]ended, error) {
	for nothing := 0; m.clock < now && !m.model.Idle(); m.dirty = true {
		events, d := m.model.Advance(m.clock, now)
		m.clock += d
		done = m.read(events, done)
		if nothing++; d > 0 {
			nothing = 0
		}
		if nothing > 1000 {
			return done, fmt.Errorf("the simulated engine is stuck at %v with %+v", m.clock, m.model.Counters())
		}
	}
	if m.model.Idle() {
		m.clock = max(m.clock, now)
	}
	return done, nil
}

func (m *machine) read(events []enginesim.Event, done []ended) []ended {
	for _, e := range events {
		switch e.Kind {
		case enginesim.Admitted:
			m.calls[e.ID].cached = e.Tokens
		case enginesim.Sampled:
			if e.Tokens == 1 {
				m.firsts++
				m.waited += m.clock - m.calls[e.ID].sent
			}
		case enginesim.Done:
			f := m.calls[e.ID]
			f.finished = true // it stays among the calls until the step is over: the machine may die before
			done = append(done, ended{m.clock, f})
		}
	}
	return done
}

// finishes is a time before which no call can be done; false when there are no calls.
func (m *machine) finishes() (time.Duration, bool) {
	if m.model.Idle() {
		return 0, false
	}
	return m.clock + m.model.Quiet() + m.short, true
}

// crash loses everything the engine held and returns the attempts that were on it, in the order of sending.
func (m *machine) crash() []*flight {
	m.past = m.counters()
	m.model = enginesim.NewModel(m.config)
	lost := flights(m.calls)
	clear(m.calls)
	return lost
}

// counters sums over crashes.
func (m *machine) counters() enginesim.Counters {
	c, p := m.model.Counters(), m.past
	c.Offered, c.Done, c.Aborted = c.Offered+p.Offered, c.Done+p.Done, c.Aborted+p.Aborted
	c.Preemptions += p.Preemptions
	c.PrefixQueries, c.PrefixHits = c.PrefixQueries+p.PrefixQueries, c.PrefixHits+p.PrefixHits
	c.PromptTokens, c.ComputedTokens = c.PromptTokens+p.PromptTokens, c.ComputedTokens+p.ComputedTokens
	c.GeneratedTokens, c.Steps, c.Busy = c.GeneratedTokens+p.GeneratedTokens, c.Steps+p.Steps, c.Busy+p.Busy
	return c
}
