package scheduler

import (
	"slices"
	"time"
)

// A hedge is a second attempt of a call that has run for far longer than such calls do, sent to another replica while the first goes
// on. The first answer stands, the other attempt is given up. A model call has no side effect, so this is safe; an action is never
// hedged. It is worth something against a replica that is slow or hangs. A call that is merely long takes as long again elsewhere,
// and where answers are sampled the shorter of two wins: that is a bias, so it is opt-in and counted.
//
// To the core the second attempt is a call of its own whose ticket is the first one's, negated. It never waits: it is launched at once
// or not at all.

// call is the ticket of the call that an attempt belongs to.
func (t Ticket) call() Ticket { return max(t, -t) }

// mark sets the time at which a call just launched will be a straggler.
func (c *Core) mark(w *call) {
	if c.rules.Hedge > 0 && w.Ticket > 0 { // what became of a second attempt is not doubled again
		c.alarm(alarm{at: c.now + c.nextLook(w, c.straggles(w)), straggler: w, holds: w.attempts})
	}
}

// nextLook is when a call that has so long left is looked at: where no call has ended yet, soon again, for the first one that does tells how long they take.
func (c *Core) nextLook(w *call, left Time) Time {
	if c.answers.pace() <= 0 {
		return min(left, c.rules.HedgeAfter)
	}
	return left
}

// straggles is how long a call may run before it is a straggler.
func (c *Core) straggles(w *call) Time {
	e := c.answers.mean(w.Cell, w.Want, c.now)
	pace := c.answers.pace()
	if pace <= 0 {
		return max(c.rules.HedgeAfter, noRate)
	}
	prefill := c.rules.PrefillToken * Time(w.Prompt)
	return max(hedgeTimes*(Time(e/pace*1e9)+prefill), c.rules.HedgeAfter)
}

const (
	hedgeTimes = 3                // times what such a call is expected to take, after which it is a straggler
	noRate     = 30 * time.Second // after which it is one while no call has ended yet
)

// hedge launches the second attempt of a straggler where there is room and nothing waits for it, within the budget: so many for each
// call launched. When it may not be launched now it is looked at again later.
func (c *Core) hedge(a alarm, now Time) (Launch, bool) {
	w := a.straggler
	if w.state != running || w.lost || w.twin != nil || w.attempts != a.holds || c.calls[w.Ticket] != w {
		return Launch{}, false
	}
	if left := w.launched + c.straggles(w) - now; left > 0 { // what is known of such calls has grown
		c.alarm(alarm{at: now + c.nextLook(w, left), straggler: w, holds: w.attempts})
		return Launch{}, false
	}
	i := -1
	if c.byAge.Len() == 0 && len(c.delayed) == 0 && float64(c.hedges+1) <= c.rules.Hedge*float64(c.launches) {
		i = c.hedgeAt(w, now)
	}
	if i < 0 {
		c.alarm(alarm{at: now + max(now-w.launched, c.rules.HedgeAfter)/2, straggler: w, holds: w.attempts})
		return Launch{}, false
	}
	return c.double(w, i, now), true
}

// hedgeAt is the least filled replica with room for the call other than its own, -1 when there is none. One whose circuit is open
// is not tried with it.
func (c *Core) hedgeAt(w *call, now Time) int {
	if c.suspected(w) != nil {
		return -1
	}
	best := -1
	c.size(w)
	w.life.ahead = still(w.Prompt, 0, w.likely, w.Want)
	c.look(w)
	for i, r := range c.replicas {
		if i == w.on || r.open || r.Rows > 0 || !c.fits(r, w, now) {
			continue
		}
		if best < 0 || r.fill() < c.replicas[best].fill() {
			best = i
		}
	}
	return best
}

// double makes the second attempt.
func (c *Core) double(w *call, i int, now Time) Launch {
	r := c.replicas[i]
	most := r.maxTokens(w)
	h := &call{
		Request: w.Request, state: running, class: w.class, launched: now, heapPos: -1, on: i, cost: w.Prompt + most,
		attempts: w.attempts + 1, counted: w.counted, failures: w.failures, avoid: w.avoid, refused: slices.Clone(w.refused), learned: w.learned, life: w.life, twin: w,
	}
	h.Ticket = -w.Ticket
	w.twin = h
	c.calls[h.Ticket] = h
	c.hedges++
	r.rouse(now)
	r.running++
	r.promised += h.cost
	c.answers.launched(h.Cell, now)
	r.ride(h, nil) // of suspects there is no second attempt
	c.begin(h, r)
	return Launch{Ticket: h.Ticket, Replica: i, MaxTokens: most, Class: h.class, Attempt: h.attempts, Hedge: true}
}

// won settles the rivalry in favour of w: the other attempt is lost, and the episode is where w ran.
func (c *Core) won(w *call) {
	t := w.twin
	if t == nil {
		return
	}
	t.lost, t.twin, w.twin = true, nil, nil
	if w.life.inside {
		c.enter(w.life, w.on)
	}
}

// outlived leaves the call to the attempt that still runs, when w's has failed; counts says whether that counts against the call.
func (c *Core) outlived(w *call, counts bool) {
	t := w.twin
	t.twin, w.twin = nil, nil
	t.attempts = max(t.attempts, w.attempts)
	t.failures++
	if w.suspicion != nil {
		t.suspicion = w.suspicion
	}
	if counts {
		t.counted++
	}
	if w.life.call == w {
		w.life.call = t
	}
	if w.life.inside {
		c.enter(w.life, t.on)
	}
	delete(c.calls, w.Ticket)
}
