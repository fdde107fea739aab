package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"tranche/episode"
)

// An engine that dies takes all its calls with it, and one of them may be why: sent on to the next engine it kills that too. Which one it
// was nobody says, so all that were in flight are suspects, until one of them is answered. Where suspects may go, and how many at once:
//
//   - the server said that its engine is dead: only back to it, when it lives again;
//   - it broke off without a word, as a machine that is lost does: anywhere, one at first, and one more at once for each that was answered;
//   - the suspect was in flight at two deaths: only to where the second was, and no other suspect beside it.
//
// When an engine says that it died again, and one suspect alone was in flight both times, that is the poison: it is never sent again, and those
// beside it are not blamed. Of engines that say nothing it takes three deaths. Calls with one prompt, the first calls of a group's episodes, are one suspect: while one of
// them runs, no other is sent. See docs/decisions/0024.

// suspicion is what is held against a prompt. It ends with an answer, or a part of one.
type suspicion struct {
	deaths int    // of engines, with such a call in flight and nothing else to blame
	last   *death // the last of them
	proven bool
}

// death is that of a replica's engine.
type death struct {
	replica int
	at      Time
	said    bool // by the server itself
	buried  bool // it was seen to be gone since: what breaks later was broken by something new
}

// bound says that the suspect may only go where it was last.
func (s *suspicion) bound() bool { return s.last.said || s.deaths > 1 }

// ward is what a replica knows of suspects.
type ward struct {
	broken   []*call // sent, and broken off in the present streak of failures
	torn     []*call // broken off since the last reading of its gauges, whatever was answered since
	tornAt   Time    // the last of them
	mourned  Time    // the last death since that reading, whatever was answered since; 0 = none
	death    *death  // nil = not taken for dead
	suspects int     // running
	primes   int     // of them, in flight at two deaths
	trust    int     // how many may run beside each other, above one
}

// suspect is what a call knows of it.
type suspect struct {
	suspicion      *suspicion // nil = none of its own: see Core.suspected
	watched, prime bool       // it runs, and is counted in its replica's ward
	first          bool       // it runs, and is counted in its group's firsts
	broke          *death     // the last that it was broken off by
}

// suspectAge is the level of suspects among the waiting by age: no room is kept for them.
const suspectAge = 2

// suspected is what is held against a call that is to be sent, nil = nothing: one that goes on with its answer has been answered.
func (c *Core) suspected(w *call) *suspicion {
	if w.got > 0 {
		return nil
	}
	return w.accused()
}

// accused is what is held against a call's prompt, nil = nothing.
func (w *call) accused() *suspicion {
	if w.suspicion == nil && w.life.turns == 0 {
		return w.life.siblings.suspicion
	}
	return w.suspicion
}

// accuse holds s against a call, and against all with its prompt; nil = nothing any more.
func (c *Core) accuse(w *call, s *suspicion) {
	if w.life.turns == 0 {
		w.life.siblings.suspicion = s
		return
	}
	w.suspicion = s
}

// lethal says whether a fault may be the end of an engine that a call was at.
func lethal(f *episode.Fault) bool {
	return f.Died || f.Class == episode.ClassReset || f.Class == episode.ClassTruncatedStream
}

// witness takes down a failure of r before its circuit is touched: it may be a death, or tell more of one.
func (c *Core) witness(w *call, r *replica, f *episode.Fault, now Time) {
	d := r.ward.death
	if lethal(f) && r.Rows == 0 && !r.died(w) && w.launched >= r.ward.mourned { // what was in flight at a known death is held against it already
		r.tear(w, now)
	}
	switch {
	case r.Rows > 0: // a batch is one call as far as blame goes, and a batch is not tried alone
	case d == nil:
		if lethal(f) && !slices.Contains(r.ward.broken, w) {
			r.ward.broken = append(r.ward.broken, w)
		}
		all := r.running == 0 && len(r.ward.broken) > 1 // that it had
		gone := all || f.Class == episode.ClassConnect || r.streak+1 >= c.rules.FailStreak
		if f.Died || gone && len(r.ward.broken) > 0 {
			c.mourn(r, c.present(r), f, now)
		}
	case w.launched < d.at: // it was in flight
		if f.Died && !d.said {
			d.said = true
			c.resort(now, func(p *pool) bool { return p.ward })
		}
	case !lethal(f):
		d.buried = true
	case d.buried:
		c.mourn(r, []*call{w}, f, now)
		c.reconsider(now)
	}
}

// present lists the calls that are in flight at r or were when its streak of failures began.
func (c *Core) present(r *replica) []*call {
	all := slices.DeleteFunc(slices.Clone(r.ward.broken), func(w *call) bool { return c.calls[w.Ticket] != w })
	for _, w := range c.calls {
		if w.state == running && w.on == r.index && !w.lost && !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *call) int { return cmp.Compare(a.Ticket, b.Ticket) })
	return all
}

// mourn holds a death against the suspects that were present or, where there was none, against all; against all too where the server said
// nothing, for then an earlier death may have passed for a broken connection.
func (c *Core) mourn(r *replica, present []*call, f *episode.Fault, now Time) {
	d := &death{replica: r.index, at: now, said: f.Died, buried: f.Class == episode.ClassConnect}
	for _, w := range r.ward.broken {
		w.broke = d
	}
	r.ward.death, r.ward.broken, r.ward.torn, r.ward.mourned = d, nil, nil, now
	r.openedAt = now // where its circuit was open: it lived in between
	for _, x := range c.replicas {
		x.ward.trust = 0
	}
	var known []*suspicion
	for _, w := range present {
		if s := c.suspected(w); s != nil && !slices.Contains(known, s) {
			known = append(known, s)
		}
	}
	for _, s := range known {
		s.deaths++
		s.last, s.proven = d, len(known) == 1 && (d.said || s.deaths > 2)
		if s.proven {
			c.condemn(s)
		}
	}
	for _, w := range present {
		if (len(known) == 0 || !d.said) && c.suspected(w) == nil {
			c.accuse(w, &suspicion{deaths: 1, last: d})
		}
	}
}

// condemn ends the calls that wait under a proven suspicion; those that run end when they fail.
func (c *Core) condemn(s *suspicion) {
	var all []*call
	for _, w := range c.calls {
		if w.state != running && c.suspected(w) == s {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *call) int { return cmp.Compare(a.Ticket, b.Ticket) })
	for _, w := range all {
		c.sentence(w, s)
	}
}

// sentence rejects a waiting call.
func (c *Core) sentence(w *call, s *suspicion) {
	c.drop(w)
	c.sentenced = append(c.sentenced, Reject{Ticket: w.Ticket, Fault: &episode.Fault{Stage: episode.StageAdmission, Class: episode.ClassPoison, Cause: c.verdict(s)}})
}

func (c *Core) verdict(s *suspicion) error {
	return fmt.Errorf("its prompt alone was in flight each of the %d times that an engine died, the last at %s: it is not sent again", s.deaths, c.replicas[s.last.replica].Name)
}

// refused tells of a call about to wait whether it was sentenced instead.
func (c *Core) refused(w *call) bool {
	s := c.suspected(w)
	if s == nil || !s.proven {
		return false
	}
	c.sentence(w, s)
	return true
}

// convict turns the fault of a proven suspect into the last one; false = the call is none.
func (c *Core) convict(w *call, f *episode.Fault) bool {
	s := c.suspected(w)
	if s == nil || !s.proven {
		return false
	}
	if f.Class == episode.ClassConnect && w.broke != s.last { // it never got there
		s.proven = false
		s.deaths--
		return false
	}
	f.Class, f.Retry, f.Cause = episode.ClassPoison, false, fmt.Errorf("%w: %w", c.verdict(s), f.Cause)
	delete(c.calls, w.Ticket)
	return true
}

// acquit ends the suspicion against a call that r has answered, or a part of it.
func (c *Core) acquit(w *call, r *replica, now Time) {
	if !r.posthumous(w) {
		r.ward.death, r.ward.broken = nil, nil
	}
	if w.accused() != nil {
		c.accuse(w, nil)
		r.ward.trust++
		c.resort(now, func(p *pool) bool { return p.ward })
	}
}

// died says that w's failure is part of the death of r's engine: it is not held against the call as an attempt.
func (r *replica) died(w *call) bool {
	return r.ward.death != nil && w.launched < r.ward.death.at
}

// posthumous says that an answer was under way when r's server said that its engine is dead: no sign of life.
func (r *replica) posthumous(w *call) bool {
	return r.died(w) && r.ward.death.said
}

// unheard is the fault of a suspect whose replica did not come back.
func (c *Core) unheard(s *suspicion) *episode.Fault {
	return &episode.Fault{
		Stage: episode.StageAdmission, Class: episode.ClassSuspect, Retry: true,
		Cause: fmt.Errorf("the engine of %s died with it in flight and did not come back in %v; it was not tried elsewhere, since it may be why", c.replicas[s.last.replica].Name, c.rules.Patience),
	}
}

// shut is the fault of a suspect that only replicas have room for where it may not go.
func (c *Core) shut(s *suspicion) *episode.Fault {
	return &episode.Fault{
		Stage: episode.StageAdmission, Class: episode.ClassSuspect, Retry: true,
		Cause: fmt.Errorf("the engine of %s died with its prompt in flight, and where it might be tried there is no room for its answer; it was not tried elsewhere, since it may be why", c.replicas[s.last.replica].Name),
	}
}

// asylum is the set of replicas that may take a suspect. As for any call, those that would cut its answer shorter than another must are none.
func (c *Core) asylum(w *call, s *suspicion) []int {
	var set []int
	room := c.room(w)
	roomy := func(r *replica) bool { return c.feasible(r, w) && r.maxTokens(w) >= room }
	if s.bound() {
		if roomy(c.replicas[s.last.replica]) {
			set = append(set, s.last.replica)
		}
		return set
	}
	for i, r := range c.replicas {
		if i != w.avoid && r.Rows == 0 && roomy(r) {
			set = append(set, i)
		}
	}
	if origin := s.last.replica; !slices.Contains(set, origin) && !c.anyAlive(set) && roomy(c.replicas[origin]) {
		set = append(set, origin)
		slices.Sort(set)
	}
	return set
}

// barred says that r takes no such call now, because of suspects that run there.
func (c *Core) barred(r *replica, w *call) bool {
	s := c.suspected(w)
	switch {
	case s == nil:
		return false
	case w.life.turns == 0 && w.life.siblings.firsts > 0:
		return true // the same prompt runs: what becomes of it is soon known
	case r.ward.suspects == 0:
		return false
	case s.deaths > 1 || r.ward.primes > 0:
		return true
	}
	return r.ward.suspects > r.ward.trust
}

// ride counts a call that is launched on r among its group's first, and in r's ward where it is a suspect.
func (r *replica) ride(w *call, s *suspicion) {
	if w.first = w.life.turns == 0 && w.got == 0; w.first {
		w.life.siblings.firsts++
	}
	if s == nil {
		return
	}
	r.ward.suspects++
	w.watched, w.prime = true, s.deaths > 1
	if w.prime {
		r.ward.primes++
	}
}

// alight takes a call that ended on r out of those counts.
func (r *replica) alight(w *call) {
	if w.first {
		w.life.siblings.firsts--
		w.first = false
	}
	if !w.watched {
		return
	}
	r.ward.suspects--
	if w.prime {
		r.ward.primes--
	}
	w.watched, w.prime = false, false
}
