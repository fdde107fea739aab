package bench

import (
	"container/heap"
	"fmt"
	"time"

	"tranche/inference/enginesim"
)

// machine is one replica of a simulated fleet. It is stepped lazily: only when it is sent something, looked at, or could by then
// have finished a call. Between those moments nothing outside can tell the difference, and many steps cost one event.
//
// finishes() is the promise that makes this exact: no call can be done before it. A sequence gets at most one token a step and
// a step takes at least Base + Floor, so the bound follows from what was sent alone.
type machine struct {
	config  enginesim.Config
	model   *enginesim.Model
	clock   time.Duration // end of the last step
	short   time.Duration // the least a step can take
	past    enginesim.Counters
	state   machineState
	calls   map[uint64]*flight // sent and not answered, by attempt
	running needs              // admitted: the step count at which each can be done at the earliest
	waiting needs              // sent, not yet admitted: steps each needs at least
	started int64              // steps of the present model
	dirty   bool               // finishes() may have changed since the fleet asked
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

// need is a call and the step count that it needs; calls that are gone stay in the heaps until they come to the top.
type need struct {
	steps   int64
	attempt uint64
}

type needs []need

func (n needs) Len() int { return len(n) }
func (n needs) Less(i, j int) bool {
	if n[i].steps != n[j].steps {
		return n[i].steps < n[j].steps
	}
	return n[i].attempt < n[j].attempt
}
func (n needs) Swap(i, j int) { n[i], n[j] = n[j], n[i] }
func (n *needs) Push(x any)   { *n = append(*n, x.(need)) }
func (n *needs) Pop() any {
	old := *n
	x := old[len(old)-1]
	*n = old[:len(old)-1]
	return x
}

// top drops what no longer counts and returns the least need; false when there is none.
func (n *needs) top(counts func(need) bool) (int64, bool) {
	for len(*n) > 0 {
		if counts((*n)[0]) {
			return (*n)[0].steps, true
		}
		heap.Pop(n)
	}
	return 0, false
}

// send offers an attempt to the engine at now; the machine has been brought there.
func (m *machine) send(f *flight, r enginesim.Request, now time.Duration) {
	if m.model.Idle() {
		m.clock = max(m.clock, now)
	}
	m.calls[f.attempt] = f
	heap.Push(&m.waiting, need{int64(len(r.Output)), f.attempt})
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
	idle := 0 // steps in a row that did nothing
	for m.clock < now && !m.model.Idle() {
		events, d := m.model.Step(m.clock)
		m.clock += d
		m.started++
		m.dirty = true
		if idle++; d > 0 {
			idle = 0
		}
		if idle > 1000 {
			return done, fmt.Errorf("the simulated engine makes no step at %v with %+v", now, m.model.Counters())
		}
		done = m.read(events, done)
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
			f := m.calls[e.ID]
			f.cached, f.admitted = e.Tokens, true
			// The step that admits may be the one that samples the first token.
			heap.Push(&m.running, need{m.started - 1 + int64(f.out), f.attempt})
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
	left, any := m.running.top(func(n need) bool { f := m.calls[n.attempt]; return f != nil && !f.finished })
	left -= m.started
	if w, ok := m.waiting.top(func(n need) bool { f := m.calls[n.attempt]; return f != nil && !f.admitted }); ok && (!any || w < left) {
		left, any = w, true
	}
	if !any {
		return 0, false
	}
	return m.clock + time.Duration(max(left, 1))*m.short, true
}

// crash loses everything the engine held and returns the attempts that were on it, in the order of sending.
func (m *machine) crash() []*flight {
	m.past = m.counters()
	m.model, m.started = enginesim.NewModel(m.config), 0
	lost := flights(m.calls)
	clear(m.calls)
	m.running, m.waiting = nil, nil
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
