package bench

import (
	"slices"
	"time"

	"tranche/episode"
	"tranche/scheduler"
)

// thunder is ThunderAgent (arXiv 2602.13692), by the rules of its router: a replica's load is the sum of its episodes' tokens,
// those in an action included, plus 100 for each. A new episode goes at once to the replica with the fewest tokens that has room,
// while nothing is queued. Every 5 s: queued episodes resume: those with a call before new ones, each group by ascending tokens,
// as many as fit the free room of all replicas, for which the tokens of acting episodes count half less each second; the largest of
// them first to the replica with the most room. Then, where a replica is over its capacity, acting episodes pause, smallest
// first, and after them calling ones, smallest first, at the end of their call. After half an hour a queued episode is let in.
//
// The token counts are exact here, where the original estimates them from characters. origin is the variant that an independent
// measurement found better: a paused episode resumes only on the replica where it was.
type thunder struct {
	origin bool
	ticked scheduler.Time
	began  bool
	marked map[*guest]bool // pause when their call is over
	paused map[*guest]scheduler.Time
}

const (
	thunderEvery  = 5 * time.Second
	thunderBuffer = 100 // tokens an episode
	thunderForce  = 30 * time.Minute
)

// NewThunder returns ThunderAgent's rules. It needs to be told the KV capacity.
func NewThunder(told Told, origin bool) (Policy, error) {
	for _, r := range told.Replicas {
		if r.Capacity.KVTokens == 0 {
			return nil, errNeeds
		}
	}
	return newLodge(told, &thunder{origin: origin, marked: map[*guest]bool{}, paused: map[*guest]scheduler.Time{}}), nil
}

func (t *thunder) decide(l *lodge, now scheduler.Time) scheduler.Time {
	for _, g := range l.calling { // marked while its last call ran: it pauses now
		if t.marked[g] {
			l.moveOut(g)
		}
	}
	l.calling = slices.DeleteFunc(l.calling, func(g *guest) bool { return g.home < 0 })
	l.sendCalling(now)
	for g := range t.marked {
		if g.home < 0 || g.acting() {
			delete(t.marked, g)
			if g.home >= 0 {
				l.moveOut(g)
			}
		}
	}
	if !t.began {
		t.began, t.ticked = true, now
	}
	t.arrivals(l, now)
	if now-t.ticked >= thunderEvery {
		t.ticked = now
		t.resume(l, now)
		for i := range l.replicas {
			t.relieve(l, i)
		}
	}
	return t.ticked + thunderEvery - now
}

// arrivals lets new episodes in directly while none is queued, and those in that queued for too long.
func (t *thunder) arrivals(l *lodge, now scheduler.Time) {
	free := t.free(l, now, false)
	queued := slices.ContainsFunc(l.fresh, func(g *guest) bool { _, old := t.paused[g]; return old && g.call != nil })
	keep := func(line []*guest) []*guest {
		return slices.DeleteFunc(line, func(g *guest) bool {
			if g.call == nil || g.home >= 0 || !l.possible(g) {
				delete(t.paused, g)
				return true
			}
			since, old := t.paused[g]
			if !old {
				t.paused[g], since = now, now
			}
			i := -1
			switch {
			case now-since >= thunderForce:
				i = l.emptiest(g.call, now, func(int) bool { return true })
			case g.calls == 1 && !old && !queued && len(l.returned) == 0:
				i = t.lightest(l, g, free, now)
			}
			queued = queued || i < 0
			if i >= 0 {
				free[i] -= g.context + thunderBuffer
				t.enter(l, g, i)
			}
			return i >= 0
		})
	}
	l.returned = keep(l.returned)
	l.fresh = keep(l.fresh)
}

func (t *thunder) enter(l *lodge, g *guest, i int) {
	delete(t.paused, g)
	l.moveIn(g, i)
}

// lightest is the replica with the most free room that has enough for the guest; -1 when none has.
func (t *thunder) lightest(l *lodge, g *guest, free []int, now scheduler.Time) int {
	best := -1
	for i := range l.replicas {
		if l.takes(i, g.call, now) && free[i] >= g.context+thunderBuffer && (best < 0 || free[i] > free[best]) {
			best = i
		}
	}
	return best
}

// free is the room of each replica, tokens; decayed counts acting episodes half less each second.
func (t *thunder) free(l *lodge, now scheduler.Time, decayed bool) []int {
	free := make([]int, len(l.replicas))
	for i, r := range l.replicas {
		free[i] = r.Capacity.KVTokens
	}
	for _, g := range l.guests {
		if g.home < 0 {
			continue
		}
		tokens := g.context
		if decayed && g.acting() {
			tokens >>= min(int((now-g.since)/time.Second), 62)
		}
		free[g.home] -= tokens + thunderBuffer
	}
	return free
}

// resume lets queued episodes in.
func (t *thunder) resume(l *lodge, now scheduler.Time) {
	free, total := t.free(l, now, true), 0
	for _, n := range free {
		if n > thunderBuffer {
			total += n
		}
	}
	var chosen []*guest
	for _, g := range t.byPriority(l) {
		if need := g.context + thunderBuffer; need <= total {
			total -= need
			chosen = append(chosen, g)
		}
	}
	slices.SortStableFunc(chosen, func(a, b *guest) int { return b.context - a.context })
	for _, g := range chosen {
		i := t.lightest(l, g, free, now)
		if t.origin && g.origin >= 0 && l.alive(g.origin, now) {
			if i = g.origin; free[i] < g.context+thunderBuffer || !l.takes(i, g.call, now) {
				continue
			}
		}
		if i >= 0 {
			free[i] -= g.context + thunderBuffer
			t.enter(l, g, i)
		}
	}
	gone := func(g *guest) bool { return g.home >= 0 || g.call == nil }
	l.returned, l.fresh = slices.DeleteFunc(l.returned, gone), slices.DeleteFunc(l.fresh, gone)
}

// byPriority is the queue in the order in which it may resume.
func (t *thunder) byPriority(l *lodge) []*guest {
	var old, fresh []*guest
	for _, line := range [][]*guest{l.returned, l.fresh} {
		for _, g := range line {
			switch {
			case g.call == nil || g.home >= 0:
			case g.calls == 1:
				fresh = append(fresh, g)
			default:
				old = append(old, g)
			}
		}
	}
	small := func(a, b *guest) int { return a.context - b.context }
	slices.SortStableFunc(old, small)
	slices.SortStableFunc(fresh, small)
	return append(old, fresh...)
}

// relieve pauses episodes of a replica until what is left fits.
func (t *thunder) relieve(l *lodge, i int) {
	over := -l.replicas[i].Capacity.KVTokens
	var acting, busy []*guest
	for _, g := range l.guests {
		if g.home != i || t.marked[g] {
			continue
		}
		over += g.context + thunderBuffer
		if g.acting() {
			acting = append(acting, g)
		} else {
			busy = append(busy, g)
		}
	}
	small := func(a, b *guest) int {
		if a.context != b.context {
			return a.context - b.context
		}
		return a.age - b.age
	}
	slices.SortFunc(acting, small)
	slices.SortFunc(busy, small)
	for _, g := range append(acting, busy...) {
		if over <= 0 {
			return
		}
		over -= g.context + thunderBuffer
		if g.acting() {
			l.moveOut(g)
		} else {
			t.marked[g] = true
		}
	}
}

func (*thunder) observe(*lodge, int, episode.Load, scheduler.Time) {}

func (t *thunder) ended(_ *lodge, g *guest, _ scheduler.Time) {
	delete(t.marked, g)
	delete(t.paused, g)
}
