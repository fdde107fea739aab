package scheduler

import (
	"math/rand/v2"
	"time"

	"tranche/episode"
)

// This file is what the core makes of an endpoint's failures: waits, a gate when it asks for one, and a circuit that opens when it is taken
// for dead. What says that it lives is an answer, never a health check.

// jittered is the n-th wait of a row, which doubles from base up to most: the first is anywhere up to base, each later one anywhere in what the
// doubling adds. So what failed together does not come back together, and the waits of one call grow for certain.
func jittered(n int, base, most time.Duration, rnd *rand.Rand) time.Duration {
	step := base << min(n-1, 20)
	if step > most || step <= 0 {
		step = most
	}
	least := step / 2
	if n <= 1 {
		least = 0
	}
	return least + time.Duration(rnd.Int64N(int64(step-least)+1))
}

// backoff is the wait before try number failures+1.
func (r Rules) backoff(failures int, rnd *rand.Rand) time.Duration {
	return jittered(failures, r.BackoffBase, r.BackoffMax, rnd)
}

// wait is how long a call waits after a failure. One that was broken off waits at least a while: whether others were too is known only then.
func (c *Core) wait(w *call, f *episode.Fault) time.Duration {
	d := c.rules.backoff(w.failures, c.rnd)
	if lethal(f) {
		d = max(d, c.rules.BackoffBase/2)
	}
	return d
}

func (c *Core) healthy(w *call, r *replica, now Time) {
	if r.open && r.parked && w.launched < r.openedAt {
		return
	}
	if r.open {
		r.open, r.parked, r.cooldown = false, false, c.rules.Cooldown
		r.ramp, r.rampAt = c.rules.RampCalls, now
	}
	r.streak, r.refusals, r.gates = 0, 0, 0
	r.pulse.at = now
}

// Many clients are told the same time to come back; each adds some of its own, up to this share of it and this much.
const (
	skewShare = 10
	skewMost  = time.Second
)

// closeGate leaves r alone for as long as it asked, or for a time that grows with each time in a row, whichever is longer; a little more, so that not all who were told the
// same come at once.
func (c *Core) closeGate(w *call, r *replica, f *episode.Fault, now Time) {
	if w.launched >= r.gateUntil { // else it was on its way when the gate closed: it says nothing new
		r.gates++
	}
	after := f.After + time.Duration(c.rnd.Int64N(int64(min(f.After/skewShare, skewMost))+1))
	if r.gates > 1 || f.After <= 0 {
		after = max(after, min(c.rules.Cooldown<<min(max(r.gates-1, 0), 20), c.rules.CooldownMax))
	}
	if after > c.rules.Patience { // parked: as good as dead for this run, and the run may end for it
		c.lose(r, now+after, now)
		r.parked = true
		return
	}
	r.gateUntil = max(r.gateUntil, now+after)
	r.ramp, r.rampAt = c.rules.RampCalls, r.gateUntil
	if r.gateUntil-now > c.rules.MoveAfter {
		c.moveAway(r, now)
	}
}

// strike counts a failure of the endpoint and opens its circuit when that is enough.
func (c *Core) strike(w *call, r *replica, f *episode.Fault, now Time) {
	if f.Refused {
		r.refusals++
	} else {
		r.streak++
	}
	if r.open && w.launched < r.openedAt {
		return // it was in flight when the circuit opened: nothing new
	}
	if r.open {
		r.cooldown = min(2*r.cooldown, c.rules.CooldownMax)
		r.retryAt = max(r.retryAt, now+r.cooldown)
		return
	}
	if c.enough(r, f) {
		c.lose(r, now+r.cooldown, now)
	}
}

// refusalStreak is how many refusals in a row are those of the endpoint where it served others before: moderation refuses single prompts in the words of a
// wrong key.
const refusalStreak = 20

// enough says whether a failure opens the circuit: one of a streak, the death of the engine, or the refusal of the first that was ever asked, for of a
// wrong key or model one answer says all.
func (c *Core) enough(r *replica, f *episode.Fault) bool {
	if f.Refused {
		return r.served == 0 || r.refusals >= refusalStreak
	}
	return r.streak >= c.rules.FailStreak || r.ward.death != nil
}

// lose opens r's circuit: one call tries it at retryAt, nothing else is sent.
func (c *Core) lose(r *replica, retryAt, now Time) {
	if !r.open {
		r.open, r.openedAt = true, now
	}
	r.retryAt = max(r.retryAt, retryAt)
	c.moveAway(r, now)
	c.wipe(r)
}

// pulse is how far an engine has come by its own counters.
type pulse struct {
	work int64   // steps and tokens computed, as last told: any change is life
	used float64 // share of its memory: a long prompt shows there first
	at   Time    // since when both stand still
}

// rouse is called before a call is sent: how long r stood still while it had nothing to do says nothing of that call.
func (r *replica) rouse(now Time) {
	if r.running == 0 {
		r.pulse.at = now
	}
}

// feel looks whether r's engine goes on with the calls it has: one whose counters stand still for StallAfter while calls run, none of which
// ends, hangs, whatever its health check says. Its circuit opens then. Only where one of them goes on with the engine's steps: those that count
// an answer when it has ended stand still for as long as the answers last. Else the calls' own deadlines have to do.
func (c *Core) feel(r *replica, l episode.Load, now Time) {
	if l.Steps == nil {
		return
	}
	work := *l.Steps
	for _, more := range []*int64{l.PromptTokens, l.Computed} {
		if more != nil {
			work += *more
		}
	}
	used := 0.0
	if l.KVUsed != nil {
		used = *l.KVUsed
	}
	if work != r.pulse.work || used != r.pulse.used || r.running == 0 {
		r.pulse = pulse{work, used, now}
		return
	}
	if now-r.pulse.at >= c.rules.StallAfter && !r.open {
		c.lose(r, now+r.cooldown, now)
	}
}

// down is how long replica i is lost from now at least; 0 = it is not.
func (c *Core) down(i int, now Time) Time {
	if r := c.replicas[i]; r.open {
		return max(r.retryAt-now, 1)
	}
	return 0
}
