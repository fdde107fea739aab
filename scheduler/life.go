package scheduler

import (
	"container/heap"
	"math"

	"tranche/bucketing"
)

// life is an episode as the core knows it, from its first launch to Leave. While it is inside a replica the memory it is
// expected to need is counted there; outside it waits for admission.
type life struct {
	id, group, domain string
	replica           int  // where it was last sent, its origin
	warm              bool // a call succeeded there: its prefix may be cached
	inside            bool
	seq               int // order of admission
	turns             int // calls that succeeded
	context           int // tokens of its context after the last one
	bound             int // calls it may still make, the pending one included; 0 = not known
	plan              plan
	ahead             drain // of its one call, when it was last looked at
	siblings          *groupHome
	call              *call  // the call it waits for or runs, nil between calls
	kind              string // of the action it is in
	acting            bool
	since             Time      // acting since
	entered           Time      // inside since
	used              Time      // its last call ended
	single            bool      // one call is all it makes: counted in replica.singles and flow, its plan is nought
	prompt            int       // of that call, tokens
	holds             int       // counts its actions, so that an old alarm is known as one
	chain             []*prefix // what its first prompt begins with, the shortest first
	spots             []int     // its place among the users of each, where it is inside
	shared            int       // tokens of them that are counted for others inside
}

// horizons are the points, in calls from now, at which the memory of open episodes is projected.
var horizons = [...]int{0, 1, 2, 4, 8, 16, 32, 64, 128}

// plan is the expected memory of one episode at each horizon: its context then times the chance that it is still open, tokens.
type plan [len(horizons)]float64

// foresight learns how episodes of a domain grow and end: per number of calls made, how many got there and how many ended
// there (so the episodes still open count too, and the short ones that end first do not make all look short), and the growth
// of the context per call. All are shrunk towards the whole, the whole towards a prior.
type foresight struct {
	domains map[string]*habits
	growth  bucketing.Lengths[growthCell]
}

type growthCell struct {
	domain string
	stage  int // bits of the turn number: early and late turns grow differently
}

type habits struct {
	reached, ended   [maxTurns]float64
	reachedN, endedN float64
	table            *ahead
	news             int // observations since the table was made
}

// ahead is what the habits come to, made anew now and then: of an episode that has made k calls, how likely the first k calls
// were survived (relative to the start) and how much context they added.
type ahead struct {
	survival, context [maxTurns + 129]float64
}

const (
	maxTurns     = 256
	priorTurns   = 8   // calls an episode makes when nothing is known
	priorWeight  = 4   // episodes' worth of that belief
	shrinkWeight = 12  // calls' worth of the domain's mean hazard in one turn's
	priorGrowth  = 512 // tokens a call adds when nothing is known
)

func newForesight() *foresight {
	f := &foresight{domains: map[string]*habits{}}
	f.growth.Prior = priorGrowth
	return f
}

func (f *foresight) of(domain string) *habits {
	h := f.domains[domain]
	if h == nil {
		h = &habits{}
		f.domains[domain] = h
	}
	return h
}

// reach records that an episode made one more call, now turns in all.
func (f *foresight) reach(domain string, turns, grown int) {
	h := f.of(domain)
	h.reached[min(turns, maxTurns-1)]++
	h.reachedN++
	h.news++
	if turns > 1 {
		f.growth.Add(growthCell{domain, stage(turns)}, max(grown, 0))
	}
}

// end records that an episode ended after so many calls.
func (f *foresight) end(domain string, turns int) {
	if turns == 0 {
		return
	}
	h := f.of(domain)
	h.ended[min(turns, maxTurns-1)]++
	h.endedN++
	h.news++
}

func stage(turns int) int {
	n := 0
	for ; turns > 0; turns >>= 1 {
		n++
	}
	return n
}

// hazard is the chance that an episode that has made so many calls ends with that one.
func (h *habits) hazard(turns int) float64 {
	mean := (h.endedN + priorWeight) / (h.reachedN + priorWeight*priorTurns)
	i := min(turns, maxTurns-1)
	return (h.ended[i] + shrinkWeight*mean) / (h.reached[i] + shrinkWeight)
}

// plan projects an episode that has made `turns` calls, whose next call ends with a context of x tokens and which may make
// `bound` calls more, that one included (0 = not known). overhead is what each open episode wastes.
func (f *foresight) plan(domain string, turns, x, bound int, overhead float64) plan {
	t := f.ahead(domain)
	k := min(turns+1, maxTurns) // the call that is to come is certain
	var p plan
	for i, at := range horizons {
		if bound > 0 && at >= bound {
			break
		}
		alive := t.survival[k+at] / t.survival[k]
		p[i] = alive * (float64(x) + t.context[k+at] - t.context[k] + overhead)
	}
	return p
}

// ahead returns the domain's table, made anew when a fiftieth of what it rests on is newer.
func (f *foresight) ahead(domain string) *ahead {
	h := f.of(domain)
	if h.table != nil && float64(h.news) < 1+h.reachedN/50 {
		return h.table
	}
	t := &ahead{}
	t.survival[0] = 1
	for k := 1; k < len(t.survival); k++ {
		t.survival[k] = t.survival[k-1]
		if k > 1 {
			t.survival[k] *= 1 - h.hazard(k-1)
			t.context[k] = t.context[k-1] + f.growth.Mean(growthCell{domain, stage(k)})
		}
		t.survival[k] = max(t.survival[k], 1e-12)
	}
	h.table, h.news = t, 0
	return t
}

func (p *plan) add(q plan, sign float64) {
	for i := range p {
		p[i] += sign * q[i]
	}
}

// peakWith is the greatest of the projections when q is added.
func (p *plan) peakWith(q plan) float64 {
	most := 0.0
	for i := range p {
		most = max(most, p[i]+q[i])
	}
	return most
}

// count adds a plan to those of the episodes inside.
func (r *replica) count(p plan, sign float64) {
	r.sum.add(p, sign)
	r.top = -1
}

// peak is the most memory that the episodes inside are projected to need, without those of one call.
func (r *replica) peak() float64 {
	if r.top < 0 {
		r.top = r.sum.peakWith(plan{})
	}
	return r.top
}

// singles is the memory of episodes of one call on a replica. Their contexts grow while they run, and the short ones leave first,
// so what they need is projected from how far they have come.
type singles struct {
	n       int
	prompts int  // tokens
	entered Time // sum of their launch times
}

func (s *singles) add(l *life, entered Time, sign int) {
	if l.single {
		s.n += sign
		s.prompts += sign * l.prompt
		s.entered += Time(sign) * entered
	}
}

// peak is the most memory the singles are expected to need from now on, one more with such a prompt among them (negative = none
// more). With answers of mean e tokens that end at random, after h more tokens each exp(-h/e) of them still run and hold what
// they hold now and h more.
func (s singles) peak(prompt int, e, rate float64, now Time) float64 {
	n, held := float64(s.n), float64(s.prompts)+rate*(Time(s.n)*now-s.entered).Seconds()
	if prompt >= 0 {
		n, held = n+1, held+float64(prompt)
	}
	most := held
	for _, h := range [...]float64{0.25, 0.5, 0.75, 1, 1.5} {
		most = max(most, math.Exp(-h)*(held+n*h*e))
	}
	return most
}

// enter counts the life at replica i by its plan.
func (c *Core) enter(l *life, i int) {
	if l.inside && l.replica == i {
		return
	}
	c.exit(l)
	l.warm = l.warm && l.replica == i
	l.replica, l.inside, l.entered = i, true, c.now
	c.admissions++
	l.seq = c.admissions
	r := c.replicas[i]
	r.inside++
	r.remains.reuse(l)
	c.settleIn(l, i)
	r.count(l.plan, 1)
	r.singles.add(l, c.now, 1)
	r.members = append(r.members, l)
}

// exit takes the life's memory out of its replica's count.
func (c *Core) exit(l *life) {
	if !l.inside {
		return
	}
	r := c.replicas[l.replica]
	l.inside = false
	r.inside--
	r.remains.keep(l)
	r.count(l.plan, -1)
	r.singles.add(l, l.entered, -1)
	c.part(l)
	if r.inside == 0 {
		r.sum, r.top = plan{}, 0 // no rounding is carried on
	}
	for k, m := range r.members {
		if m == l {
			r.members[k] = r.members[len(r.members)-1]
			r.members = r.members[:len(r.members)-1]
			break
		}
	}
}

// replan replaces the life's plan, also where it is counted.
func (c *Core) replan(l *life, p plan) {
	if l.inside {
		r := c.replicas[l.replica]
		r.count(l.plan, -1)
		r.count(p, 1)
	}
	l.plan = p
}

// Act tells that the episode went into an action of that kind after its last call. It keeps its place for as long as its
// memory is worth holding: not at all when actions of that kind take longer than that anyway.
func (c *Core) Act(episodeID, kind string, now Time) {
	l := c.lives[episodeID]
	if l == nil {
		return
	}
	c.rest(l)
	c.acting++
	l.acting, l.kind, l.since = true, kind, now
	l.holds++
	if !l.inside {
		return
	}
	ttl := c.hold(c.replicas[l.replica])
	if c.actions.Seen(kind) >= 4 && Time(c.actions.Mean(kind)*float64(timeUnit)) > ttl {
		c.exit(l)
		return
	}
	c.alarm(alarm{at: now + max(ttl, c.usual(kind)), life: l, holds: l.holds})
}

// acted learns how long the action took, when the next call is offered.
func (c *Core) acted(l *life, now Time) {
	if l.acting {
		c.actions.Add(l.kind, int((now-l.since)/timeUnit))
		c.rest(l)
	}
}

// rest counts the life out of those in an action.
func (c *Core) rest(l *life) {
	if l.acting {
		l.acting = false
		c.acting--
	}
}

// hold is how long an idle prefix is worth its memory on r: the time in which prefill could fill all of it (scheduling §3b).
func (c *Core) hold(r *replica) Time {
	x := 0.0
	if r.inside > 0 {
		x = r.sum[0] / float64(r.inside)
	}
	s := float64(r.Capacity.KVTokens) * (c.rules.PrefillToken.Seconds() + c.rules.PrefillPair.Seconds()*x/2)
	return max(Time(s*1e9), c.rules.MinHold)
}

// crowded pauses episodes between calls, the one with the least to compute again first, while what r holds now nears all it has. It reports whether l
// itself, at the end of its turn, is one of them.
func (c *Core) crowded(l *life) bool {
	r := c.replicas[l.replica]
	for r.Capacity.KVTokens > 0 && r.inside > 1 && r.sum[0] > c.rules.PauseAt*r.holds() {
		victim := l
		for _, m := range r.members {
			if m.call == nil && m.context < victim.context {
				victim = m
			}
		}
		c.exit(victim)
		if victim == l {
			return true
		}
	}
	return false
}

// alarm is something the core does when time has come: give up the memory of an episode in an action, or let a waiting call go
// elsewhere than to its origin.
type alarm struct {
	at    Time
	life  *life
	holds int // of the life, when set
	call  *call
	group *groupHome // its waiting members are to be ranked anew

	straggler *call // running since its attempt number `holds`
}

type alarms []alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at < a[j].at }
func (a alarms) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *alarms) Push(x any)        { *a = append(*a, x.(alarm)) }
func (a *alarms) Pop() any {
	old := *a
	x := old[len(old)-1]
	*a = old[:len(old)-1]
	return x
}

func (c *Core) alarm(a alarm) { heap.Push(&c.alarms, a) }

// ring acts on the alarms whose time has come.
func (c *Core) ring(now Time) {
	for len(c.alarms) > 0 && c.alarms[0].at <= now {
		a := heap.Pop(&c.alarms).(alarm)
		switch {
		case a.straggler != nil:
			if l, ok := c.hedge(a, now); ok {
				c.doubled = append(c.doubled, l)
			}
		case a.group != nil:
			a.group.looking = false
			c.teach(a.group, now)
		case a.call != nil:
			if w := a.call; w.state == waiting && w.place != nil && !w.moved {
				w.moved = true
				w.place.Remove()
				c.enqueue(w, now)
			}
		case a.life.acting && a.life.holds == a.holds:
			c.exit(a.life)
		}
	}
}
