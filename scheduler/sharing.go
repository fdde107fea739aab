package scheduler

import (
	"slices"

	"tranche/episode"
)

// settleIn makes the episode a user of its prefixes at replica i, and counts for it only what is not counted there yet.
func (c *Core) settleIn(l *life, i int) {
	if len(l.chain) == 0 {
		return
	}
	c.join(l, i)
	if l.single {
		l.prompt = max(l.call.Prompt-l.shared, 0)
		return
	}
	l.plan = c.planFor(l.call)
}

// planAt is the plan of the call's episode with what episodes on r already count left out.
func (c *Core) planAt(r *replica, w *call) plan {
	shared := c.sharedAt(r, w)
	if shared == 0 || w.life.single {
		return w.life.plan
	}
	p := w.life.plan
	p.add(c.view.kept, -float64(shared))
	return p
}

// sharedAt is how much of the prompt is counted for episodes on r already, tokens. Right for the call last looked at.
func (c *Core) sharedAt(r *replica, w *call) int {
	if len(w.life.chain) == 0 {
		return 0
	}
	return c.view.shared[r.index]
}

// sent counts a launched call where it goes.
func (c *Core) sent(w *call, r *replica) {
	if r.Rows > 0 {
		w.reads, w.cached = 0, 0
		return // what pads keeps no prefixes
	}
	w.reads = w.Prompt + c.expected(w)/2
	r.reads += w.reads
	w.cached = 0
	switch {
	case w.life.inside:
		w.cached = w.life.context
	case len(w.life.chain) > 0:
		w.cached = c.view.cached[r.index]
	}
	r.cache.flow += int64(max(w.Prompt-w.cached, 0))
	r.pass(w.life.chain)
	c.evict(r)
}

// answered counts what an attempt left in r's cache.
func (r *replica) answered(w *call, fault *episode.Fault, u Usage) {
	r.reads -= w.reads
	r.cache.stirred = true
	if fault != nil {
		return
	}
	r.cache.flow += int64(u.Generated)
	if u.Cached >= 0 {
		r.cache.flow += int64(w.cached - u.Cached)
	}
}

// near picks a replica for a call whose prompt's beginning others have too; known is false when there is none such. A replica that
// has it cached saves its prefill; a replica that has much to read for others makes it wait. So the call goes where
// prefill and reading cost least, and a prefix comes to have a second home when the first has too many callers. When the one that
// costs least is full for now, the call waits for it, but not while another has nothing to do: c.view.awaits says so.
func (c *Core) near(w *call, now Time, reserved int) (replica int, known bool) {
	l := w.life
	c.view.awaits = -1
	if len(l.chain) == 0 || l.inside {
		return -1, false
	}
	most := c.look(w)
	if most == 0 && (l.chain[0].open < 2 || !l.single) || !l.single && slices.Min(c.view.cached) == most {
		return -1, false // no replica is better for what it has
	}
	best, full, idle := -1, -1, -1
	var least, lower float64
	members, out := w.reach().members, float64(int(w.likely))
	for k := range members {
		i := members[(k+c.turn)%len(members)]
		r := c.replicas[i]
		switch {
		case c.takes(i, w, now, reserved):
			if x := c.price(r, w, out); best < 0 || x < least {
				best, least = i, x
			}
			if r.running == 0 && r.inside == 0 {
				idle = i
			}
		case c.view.cached[i] > 0 && r.ready(now):
			if x := c.price(r, w, out); full < 0 || x < lower {
				full, lower = i, x
			}
		}
	}
	if best < 0 || full < 0 || least <= lower || w.moved || now-w.since > c.rules.StartLimit || c.view.moves == mostMoves {
		return best, true
	}
	if c.view.cached[full] <= c.view.cached[best] { // it has only less to do, and will not for long
		return best, true
	}
	if idle >= 0 {
		return idle, true
	}
	c.view.awaits = full
	return -1, true
}

// mostMoves is how many calls one decision may set aside to wait for a full replica: it must stay short with any number waiting.
const mostMoves = 4

// reach is the replicas that may take the call.
func (w *call) reach() *pool {
	if w.pool.wide != nil {
		return w.pool.wide
	}
	return w.pool
}

// await lets a call wait for the replica that near found to be worth it, for a while, out of the way of others. It reports whether the call was
// moved for that.
func (c *Core) await(p *pool, w *call, level int) bool {
	i := c.view.awaits
	if i < 0 || p.ward || len(p.members) == 1 && p.members[0] == i {
		return false
	}
	if p.wide == nil {
		c.alarm(alarm{at: c.now + c.rules.MoveAfter, call: w})
	}
	c.view.moves++
	w.place.Remove()
	w.pool = c.poolAt(i, w.reach())
	w.place = w.pool.queue.Push(level, w)
	return true
}

// poolAt is the calls that wait for replica i but may go to all of a pool's.
func (c *Core) poolAt(i int, wide *pool) *pool {
	if wide.at == nil {
		wide.at = make([]*pool, len(c.replicas))
	}
	p := wide.at[i]
	if p == nil {
		p = &pool{members: []int{i}, wide: wide}
		wide.at[i] = p
		c.addPool(p)
	}
	return p
}

// price is the seconds that a call costs at r: its prefill there, and r's reading for others while it generates out tokens.
func (c *Core) price(r *replica, w *call, out float64) float64 {
	prompt, cached := float64(w.Prompt), float64(min(c.view.cached[r.index], w.Prompt))
	prefill := (prompt-cached)*c.rules.PrefillToken.Seconds() + (prompt*prompt-cached*cached)/2*c.rules.PrefillPair.Seconds()
	load := float64(r.reads)
	if !w.life.single { // those in an action will come back
		load = max(load, r.peak())
	}
	return lean*prefill + out*c.rules.ReadToken.Seconds()*load
}

// lean is how much more a second of prefill counts than a second of waiting for others. Prefill is work that the whole fleet could have
// done without; a wait is one call's, and busy replicas catch up. In the simulation 5 to 8 are equally good, 3 loses 2 to 5 %, 1 loses 10 to 30 %.
const lean = 6

// lineUp enters a call that waits for a first place in the lines of its prefixes.
func (c *Core) lineUp(w *call) {
	if w.lined || w.life.inside || w.life.warm || w.pool.ward {
		return
	}
	w.lined = true
	for _, n := range w.life.chain {
		n.waits++
		if len(n.line) >= 2*n.waits+8 { // most of it waits no more
			n.line = slices.DeleteFunc(n.line, func(w *call) bool { return !w.lined })
		}
		n.line = append(n.line, w)
	}
}

func (w *call) stepOut() {
	if !w.lined {
		return
	}
	w.lined = false
	for _, n := range w.life.chain {
		if n.waits--; n.waits == 0 {
			n.line = nil
		}
	}
}

// first is the call that has waited longest of those that begin with n; nil when none waits.
func (n *prefix) first() *call {
	for len(n.line) > 0 && !n.line[0].lined {
		n.line = n.line[1:]
	}
	if len(n.line) == 0 {
		return nil
	}
	return n.line[0]
}

// trailLength is of how many prefixes, those of the calls sent last, sharers are looked for.
const trailLength = 8

// pass notes that a call with these prefixes was sent to r.
func (r *replica) pass(chain []*prefix) {
	r.cache.stirred = true
	if len(chain) == 0 {
		return
	}
	t := r.cache.trail
	leaf := func(c []*prefix) *prefix { return c[len(c)-1] }
	t = slices.DeleteFunc(t, func(c []*prefix) bool { return leaf(c) == leaf(chain) })
	if len(t) == trailLength {
		t = slices.Delete(t, 0, 1)
	}
	r.cache.trail = append(t, chain)
}

// follow sends the sharers of what was sent last to the same replica: back to back, while their prefix is surely still cached.
func (c *Core) follow(reserved int, now Time, launches []Launch) []Launch {
	for i, r := range c.replicas {
		for r.cache.stirred && r.cache.run < c.rules.SharersInRow {
			w := c.sharer(r, now, reserved)
			if w == nil {
				r.cache.stirred = false
				break
			}
			launches = append(launches, c.launch(w, i, now))
			r.cache.run++
		}
	}
	return launches
}

// sharer is a waiting call that begins as one of the last calls sent to r did, and belongs there; those that share most first. Nil when
// there is none, or r is full.
func (c *Core) sharer(r *replica, now Time, reserved int) *call {
	if r.index == reserved || !r.ready(now) || r.MaxCalls > 0 && r.running >= r.MaxCalls {
		return nil
	}
	t := r.cache.trail
	for k := len(t) - 1; k >= 0; k-- {
		waits := 0
		for d := len(t[k]) - 1; d >= 0; d-- {
			n := t[k][d]
			waits += n.waits
			w := n.first()
			if w == nil || c.unknown(w) || 2*n.Tokens < w.Prompt || 2*n.waits > c.byAge.Len()+8 { // what most have in common is no order
				continue
			}
			switch i := c.choose(w, now, reserved); i {
			case r.index:
				return w
			case -1:
				return nil
			}
		}
		if waits == 0 {
			r.cache.trail = slices.Delete(r.cache.trail, k, k+1)
			t = r.cache.trail
		}
	}
	return nil
}
