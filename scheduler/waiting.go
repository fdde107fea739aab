package scheduler

import (
	"container/heap"
	"fmt"
	"slices"

	"tranche/bucketing"
	"tranche/episode"
)

// pool is the waiting calls that the same replicas can take.
type pool struct {
	members []int
	wide    *pool   // nil, or the pool that its calls came from, to wait for one replica of it
	at      []*pool // those of its calls that wait for one replica, by replica; nil = never any
	queue   bucketing.Queues[*call]
	rack    rack
	padded  bool // some members pad
	ward    bool // of suspects

	continues bool // all members pad and go on from ids
}

// enqueue puts a call where the replicas that can take it look for work.
func (c *Core) enqueue(w *call, now Time) {
	if c.refused(w) {
		return
	}
	w.state = waiting
	w.class = c.rules.Ladder.Class(w.Prompt + c.expected(w))
	w.pool = c.poolFor(w, now)
	if l := w.life; l.inside && !slices.Equal(w.pool.members, []int{l.replica}) {
		c.exit(l)
	}
	level, age := c.level(w), 0
	if w.life.inside {
		level += bucketing.MaxClasses + 1 // what is begun and in place goes before what must be admitted
	}
	if w.life.warm {
		age = 1
	}
	if w.pool.ward {
		age = suspectAge
	}
	g := w.life.siblings
	if fresh := !w.life.inside && !w.life.warm; fresh && w.Turns == 1 && w.GroupSize > 1 {
		g.waiting[w] = true
		if g.replica < 0 && (g.probe == nil || g.probe == w) {
			g.probe = w
			level = bucketing.MaxClasses // the first of a group goes before all: it tells how long its siblings get
		}
		c.revisit(g, now)
	}
	w.place = w.pool.queue.Push(level, w)
	c.shelve(w, now)
	c.lineUp(w)
	if w.age == nil {
		w.since, w.age = now, c.byAge.Push(age, w)
	}
}

// poolFor picks the set of replicas that may take the call: its home alone while that lives and has room for it, else every
// replica whose limits allow it and the longest answer it can get. An empty set means that no replica's limits do.
func (c *Core) poolFor(w *call, now Time) *pool {
	if s := c.suspected(w); s != nil {
		return c.pool(c.asylum(w, s), true)
	}
	room := c.room(w)
	if l := w.life; l.warm && (l.inside || !w.moved) && l.replica != w.avoid {
		r := c.replicas[l.replica]
		if !r.open && r.gateUntil-now <= c.rules.MoveAfter && c.feasible(r, w) && r.maxTokens(w) >= room {
			if !l.inside {
				c.alarm(alarm{at: now + c.rules.MoveAfter, call: w})
			}
			return c.pool([]int{l.replica}, false)
		}
	}
	set := make([]int, 0, 64)
	for i, r := range c.replicas {
		if i != w.avoid && c.feasible(r, w) && r.maxTokens(w) >= room {
			set = append(set, i)
		}
	}
	if w.avoid >= 0 && !c.anyAlive(set) && c.feasible(c.replicas[w.avoid], w) {
		set = append(set, w.avoid) // the one that failed it is better than none
		slices.Sort(set)
	}
	return c.pool(set, false)
}

// room is the most tokens an answer can get on a live replica, up to those wanted; 0 = no number is wanted. A replica that would cut the
// answer shorter than another must is no place for the call: what an answer may be does not depend on where it is made.
func (c *Core) room(w *call) int {
	most := 0
	for _, r := range c.replicas {
		if !r.open && w.Want > 0 && c.feasible(r, w) {
			most = max(most, r.maxTokens(w))
		}
	}
	return most
}

func (c *Core) pool(members []int, ward bool) *pool {
	key := make([]byte, 64)[:(len(c.replicas)+7)/8+1] // one bit a replica
	if ward {
		key[len(key)-1] = 1
	}
	for _, i := range members {
		key[i/8] |= 1 << (i % 8)
	}
	p := c.pools[string(key)]
	if p == nil {
		p = &pool{members: slices.Clone(members), ward: ward, padded: slices.ContainsFunc(members, func(i int) bool { return c.replicas[i].Rows > 0 })}
		p.continues = !c.rules.Uncut && !slices.ContainsFunc(members, func(i int) bool { return !c.replicas[i].Continues })
		c.pools[string(key)] = p
		c.addPool(p)
	}
	return p
}

func (c *Core) addPool(p *pool) {
	c.order = append(c.order, p)
	slices.SortStableFunc(c.order, func(a, b *pool) int { return len(a.members) - len(b.members) })
}

func (c *Core) anyAlive(set []int) bool {
	return slices.ContainsFunc(set, func(i int) bool { return !c.replicas[i].open })
}

func (c *Core) unqueue(w *call) {
	w.stepOut()
	g := w.life.siblings
	delete(g.waiting, w)
	if g.probe == w {
		g.probe = nil
	}
	if w.place != nil {
		w.place.Remove()
		w.place = nil
	}
	c.unshelve(w)
	if w.age != nil {
		w.age.Remove()
		w.age = nil
	}
}

// moveAway gives up what is held on r and gives the calls that wait for it back to all replicas that can take them.
func (c *Core) moveAway(r *replica, now Time) {
	for r.open && len(r.members) > 0 {
		l := r.members[0]
		c.exit(l)
		l.warm = false
	}
	c.reconsider(now)
}

// reconsider sorts all waiting calls anew, after a replica was lost or a limit turned out smaller than was thought.
func (c *Core) reconsider(now Time) { c.resort(now, func(*pool) bool { return true }) }

// resort sorts the calls of some pools anew.
func (c *Core) resort(now Time, which func(*pool) bool) {
	var moved []*call
	for _, p := range c.order {
		if !which(p) {
			continue
		}
		for level := p.queue.Below(64); level >= 0; level = p.queue.Below(64) {
			w := p.queue.Head(level).Value
			w.place.Remove()
			w.place = nil
			moved = append(moved, w)
		}
	}
	for _, w := range moved {
		c.enqueue(w, now)
	}
}

func (c *Core) drop(w *call) {
	c.unqueue(w)
	if w.state == postponed && w.heapPos >= 0 {
		heap.Remove(&c.delayed, w.heapPos)
	}
	if w.life.call == w {
		w.life.call = nil
	}
	delete(c.calls, w.Ticket)
}

// rejects ends the calls that no replica can ever take, and those whose replicas have been dead for too long.
func (c *Core) rejects(now Time) []Reject {
	out := c.sentenced
	c.sentenced = nil
	for _, p := range c.order {
		if p.queue.Len() == 0 || (len(p.members) > 0 && c.deadFor(p, now) < c.rules.Patience) {
			continue
		}
		tail := c.onlyFailuresLeft()
		for level := p.queue.Below(64); level >= 0; level = p.queue.Below(64) {
			w := p.queue.Head(level).Value
			c.drop(w)
			out = append(out, c.rejectFor(w, p, tail))
		}
	}
	return out
}

func (c *Core) rejectFor(w *call, p *pool, tail bool) Reject {
	if len(p.members) == 0 && len(c.replicas) > 0 {
		if s := c.suspected(w); p.ward && slices.ContainsFunc(c.replicas, func(r *replica) bool { return c.feasible(r, w) }) {
			return Reject{Ticket: w.Ticket, Fault: c.shut(s)}
		}
		return Reject{Ticket: w.Ticket, ContextFull: true}
	}
	if s := c.suspected(w); p.ward && s.bound() {
		return Reject{Ticket: w.Ticket, Fault: c.unheard(s)}
	}
	if tail {
		f := *w.last
		f.Retry, f.Cause = false, fmt.Errorf("%w (and %v later no endpoint had answered anything else: only calls that had failed were left)", f.Cause, c.rules.Patience)
		return Reject{Ticket: w.Ticket, Fault: &f}
	}
	return Reject{Ticket: w.Ticket, Fault: &episode.Fault{
		Stage: episode.StageAdmission, Class: episode.ClassNoEndpoint, Retry: true,
		Cause: fmt.Errorf("no endpoint that can take this call answered for %v", c.rules.Patience),
	}}
}

// onlyFailuresLeft says that nothing is to be played any more but calls that a server which answers has failed, after it had answered others well: then it is they that
// fail, and not the endpoint that is lost. Else a run would end without them, and so would every run that goes on with it.
func (c *Core) onlyFailuresLeft() bool {
	if !c.noMore || !slices.ContainsFunc(c.replicas, func(r *replica) bool { return r.served > 0 }) {
		return false
	}
	for _, w := range c.calls {
		if w.state != running && w.last == nil {
			return false
		}
	}
	return true
}

// answeredFault says whether a fault is what a server answered that lives.
func answeredFault(f *episode.Fault) bool {
	return !f.Died && !f.Refused && (f.Class == episode.ClassServerError || f.Class == episode.ClassMalformed || f.Class == episode.ClassAborted)
}

// deadFor is how long no member of the pool has been alive; negative while one is. The time of a call that tries one does not count while it runs: a server that
// is back says so with its answer, and an answer may take longer than the patience for dead ones. One that never comes is ended by the call's own deadlines.
func (c *Core) deadFor(p *pool, now Time) Time {
	least := now
	for _, i := range p.members {
		r := c.replicas[i]
		if !r.open {
			return -1
		}
		dead := now - r.openedAt
		if w := c.calls[r.trial]; r.trial != 0 && w != nil {
			dead = max(w.launched-r.openedAt, 0)
		}
		least = min(least, dead)
	}
	return least
}

// delayed is a heap of postponed calls by due time, then ticket.
type delayed []*call

func (d delayed) Len() int { return len(d) }

func (d delayed) Less(i, j int) bool {
	if d[i].due != d[j].due {
		return d[i].due < d[j].due
	}
	return d[i].Ticket < d[j].Ticket
}

func (d delayed) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].heapPos, d[j].heapPos = i, j
}

func (d *delayed) Push(x any) {
	w := x.(*call)
	w.heapPos = len(*d)
	*d = append(*d, w)
}

func (d *delayed) Pop() any {
	old := *d
	w := old[len(old)-1]
	w.heapPos = -1
	*d = old[:len(old)-1]
	return w
}
