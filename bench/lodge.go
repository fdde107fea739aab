package bench

import (
	"errors"
	"slices"
	"time"

	"tranche/episode"
	"tranche/scheduler"
)

// lodge is what every baseline needs and none is about: who the episodes are, where they live, which replicas answer, and
// sending again what failed. The rule that makes a baseline says only who may move in where. An episode's calls go to the
// replica where it lives.
//
// A replica that failed a call is left alone for a second, then twice as long each time, up to half a minute; its guests move
// out when they next call.
type lodge struct {
	rule     rule
	replicas []scheduler.ReplicaConfig
	guests   map[string]*guest
	tickets  map[scheduler.Ticket]*guest
	living   []int // guests per replica
	down     []scheduler.Time
	cooldown []scheduler.Time
	// Guests that live nowhere and have a call to make. Those that lived somewhere before come first, each list in order of arrival.
	returned, fresh []*guest
	calling         []*guest // guests with a home and a call to make
	launches        []scheduler.Launch
	rejects         []scheduler.Reject
	arrivals        int
	loads           []episode.Load
}

// rule is a baseline's own part.
type rule interface {
	// decide moves guests in and out; wait is when it wants to be asked again (negative = when something happened).
	decide(l *lodge, now scheduler.Time) (wait scheduler.Time)
	// observe takes a replica's gauges; the lodge keeps the last reading in loads.
	observe(l *lodge, replica int, load episode.Load, now scheduler.Time)
	// ended is told of each episode that is through, before it is forgotten.
	ended(l *lodge, g *guest, now scheduler.Time)
}

// guest is an open episode.
type guest struct {
	id      string
	group   string
	age     int // order of arrival
	home    int // replica; -1 = none
	origin  int // where it lived last; -1 = nowhere
	context int // tokens: the prompt while it calls, prompt and answer after
	calls   int
	call    *scheduler.Request // not yet sent
	sent    *scheduler.Request // running
	since   scheduler.Time     // when its present action began
}

// acting says whether the guest is in an action.
func (g *guest) acting() bool { return g.call == nil && g.sent == nil }

func newLodge(told Told, r rule) *lodge {
	n := len(told.Replicas)
	return &lodge{
		rule: r, replicas: told.Replicas, guests: map[string]*guest{}, tickets: map[scheduler.Ticket]*guest{}, living: make([]int, n),
		down: make([]scheduler.Time, n), cooldown: make([]scheduler.Time, n), loads: make([]episode.Load, n),
	}
}

func (l *lodge) Offer(r scheduler.Request, now scheduler.Time) {
	g := l.guests[r.Episode]
	if g == nil {
		l.arrivals++
		g = &guest{id: r.Episode, group: r.Group, age: l.arrivals, home: -1, origin: -1}
		l.guests[r.Episode] = g
	}
	g.call, g.context = &r, r.Prompt
	g.calls++
	l.tickets[r.Ticket] = g
	l.wait(g)
}

// wait puts a guest with a call where the rule finds it.
func (l *lodge) wait(g *guest) {
	switch {
	case g.home >= 0:
		l.calling = append(l.calling, g)
	case g.origin >= 0:
		l.returned = append(l.returned, g)
	default:
		l.fresh = append(l.fresh, g)
	}
}

func (l *lodge) Next(now scheduler.Time) ([]scheduler.Launch, []scheduler.Reject, scheduler.Time) {
	l.launches, l.rejects = l.launches[:0], l.rejects[:0]
	for _, g := range l.calling { // their home may be down
		if g.call != nil && g.home >= 0 && !l.alive(g.home, now) {
			l.moveOut(g)
		}
	}
	l.calling = slices.DeleteFunc(l.calling, func(g *guest) bool { return g.call == nil || g.home < 0 })
	wait := l.rule.decide(l, now)
	if len(l.returned)+len(l.fresh) > 0 {
		wait = sooner(wait, l.revival(now))
	}
	return l.launches, l.rejects, wait
}

// revival is when the next replica that is down may be tried again; negative when none is.
func (l *lodge) revival(now scheduler.Time) scheduler.Time {
	wait := scheduler.Time(-1)
	for _, t := range l.down {
		if t > now {
			wait = sooner(wait, t-now)
		}
	}
	return wait
}

// sooner is the shorter of two waits; negative means for ever.
func sooner(a, b scheduler.Time) scheduler.Time {
	if a < 0 || (b >= 0 && b < a) {
		return b
	}
	return a
}

func (l *lodge) alive(i int, now scheduler.Time) bool { return now >= l.down[i] }

// room is the answer that fits the replica's context after a call's prompt, tokens.
func (l *lodge) room(i int, r *scheduler.Request) int {
	if limit := l.replicas[i].Capacity.ContextTokens; limit > 0 {
		return min(limit-r.Prompt, r.Want)
	}
	return r.Want
}

// takes says whether a replica is alive and its limits allow the call.
func (l *lodge) takes(i int, r *scheduler.Request, now scheduler.Time) bool {
	return l.alive(i, now) && l.room(i, r) >= min(max(r.MinUseful, 1), r.Want)
}

// possible says whether any replica could take the call, were it alive; if not, the call is turned down.
func (l *lodge) possible(g *guest) bool {
	for i := range l.replicas {
		if l.room(i, g.call) >= min(max(g.call.MinUseful, 1), g.call.Want) {
			return true
		}
	}
	l.rejects = append(l.rejects, scheduler.Reject{Ticket: g.call.Ticket, ContextFull: true})
	delete(l.tickets, g.call.Ticket)
	g.call = nil
	return false
}

// moveIn gives a guest a home and sends its call if it has one.
func (l *lodge) moveIn(g *guest, i int) {
	g.home, g.origin = i, i
	l.living[i]++
	if g.call != nil {
		l.send(g)
	}
}

// moveOut takes a guest's home; a call of it waits again.
func (l *lodge) moveOut(g *guest) {
	l.living[g.home]--
	g.home = -1
	if g.call != nil {
		l.returned = append(l.returned, g)
	}
}

// send sends a guest's call to its home.
func (l *lodge) send(g *guest) {
	r := g.call
	g.call, g.sent = nil, r
	l.launches = append(l.launches, scheduler.Launch{Ticket: r.Ticket, Replica: g.home, MaxTokens: l.room(g.home, r), Attempt: 1})
}

// sendCalling sends what guests with a home have to send and may.
func (l *lodge) sendCalling(now scheduler.Time) {
	for _, g := range l.calling {
		if l.takes(g.home, g.call, now) {
			l.send(g)
		} else { // outgrew this replica's context
			l.moveOut(g)
		}
	}
	l.calling = l.calling[:0]
}

// admit moves waiting guests in, in order, while pick finds them a home (-1 = none: those behind wait too).
func (l *lodge) admit(pick func(*guest) int) {
	for _, line := range []*[]*guest{&l.returned, &l.fresh} {
		n := 0
		for ; n < len(*line); n++ {
			g := (*line)[n]
			if g.call == nil || g.home >= 0 || !l.possible(g) { // withdrawn, or turned down
				continue
			}
			i := pick(g)
			if i < 0 {
				break
			}
			l.moveIn(g, i)
		}
		*line = (*line)[n:]
		if len(*line) > 0 {
			return
		}
	}
}

// emptiest is the replica with the fewest guests among those that take the call and fit; -1 when there is none.
func (l *lodge) emptiest(r *scheduler.Request, now scheduler.Time, fits func(int) bool) int {
	best := -1
	for i := range l.replicas {
		if l.takes(i, r, now) && fits(i) && (best < 0 || l.living[i] < l.living[best]) {
			best = i
		}
	}
	return best
}

func (l *lodge) Settle(t scheduler.Ticket, o Outcome, now scheduler.Time) scheduler.Decision {
	g := l.tickets[t]
	r := g.sent
	g.sent = nil
	if f := o.Fault; f != nil {
		return l.failed(g, r, f, now)
	}
	delete(l.tickets, t)
	g.context, g.since = r.Prompt+o.Generated, now
	l.cooldown[g.home] = 0
	return scheduler.Finished
}

func (l *lodge) failed(g *guest, r *scheduler.Request, f *episode.Fault, now scheduler.Time) scheduler.Decision {
	if f.Retry {
		c := min(max(2*l.cooldown[g.home], time.Second), 30*time.Second)
		if l.alive(g.home, now) { // of calls that fail together one counts
			l.cooldown[g.home], l.down[g.home] = c, now+c
		}
		g.call = r
		l.moveOut(g)
		return scheduler.Retrying
	}
	delete(l.tickets, r.Ticket)
	if f.Class == episode.ClassOverflow {
		return scheduler.Full
	}
	return scheduler.Finished
}

func (l *lodge) Act(string, string, scheduler.Time) {}

func (l *lodge) Observe(replica int, load episode.Load, now scheduler.Time) {
	l.rule.observe(l, replica, load, now)
	l.loads[replica] = load
}

func (l *lodge) Withdraw(t scheduler.Ticket) bool {
	g := l.tickets[t]
	if g == nil || g.call == nil {
		return false
	}
	g.call = nil
	delete(l.tickets, t)
	return true
}

func (l *lodge) Leave(id string, now scheduler.Time) {
	g := l.guests[id]
	if g == nil {
		return
	}
	l.rule.ended(l, g, now)
	if g.home >= 0 {
		l.living[g.home]--
		g.home = -1
	}
	g.call = nil
	delete(l.guests, id)
}

// errNeeds is the error of a baseline that lacks what it works from.
var errNeeds = errors.New("the policy needs a replica's KV capacity and is not told it")
