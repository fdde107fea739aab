package bench

import (
	"slices"

	"tranche/episode"
	"tranche/scheduler"
)

// walls is hard length buckets: the replicas are divided, one part for calls up to some length, the other for longer
// ones, and an episode that grows over the wall moves. This is the placement of length-bucketed gateways (sglang's
// "bucket" policy, llm-d's context-length ranges). It is given what it would have to learn, the wall that divides the decoding of the
// whole workload like the replicas, and inside each part it is a careful semaphore: an episode is admitted while what all that live on
// the replica will hold fits nine tenths of its KV memory. Below the wall that is half way from the context to the wall, where it
// moves out; above it, a quarter more than the context. On one replica there are no walls, and all count as above.
type walls struct {
	wall  int // tokens
	short int // replicas 0 … short-1 are for short calls
}

// NewWalls returns the policy with the told wall. It needs to be told the KV capacity.
func NewWalls(told Told) (Policy, error) {
	for _, r := range told.Replicas {
		if r.Capacity.KVTokens == 0 {
			return nil, errNeeds
		}
	}
	return newLodge(told, &walls{told.Wall, shortReplicas(len(told.Replicas))}), nil
}

// shortReplicas is how many of so many replicas are for short calls.
func shortReplicas(n int) int { return n / 2 }

// wallOf is the least context up to which calls do a share of a workload's decoding.
func wallOf(w Workload, share float64) int {
	type weight struct {
		context int
		work    float64
	}
	var all []weight
	sum := 0.0
	for _, e := range w.Episodes {
		e.calls(func(c span) {
			x := weight{c.prompt, float64(c.out) * float64(c.prompt+c.out/2)}
			all = append(all, x)
			sum += x.work
		})
	}
	slices.SortFunc(all, func(a, b weight) int { return a.context - b.context })
	done := 0.0
	for _, x := range all {
		if done += x.work; done >= share*sum {
			return x.context
		}
	}
	return 0
}

// serves says whether a replica is on the guest's side of the wall.
func (w *walls) serves(i int, g *guest) bool {
	return w.short == 0 || (g.context <= w.wall) == (i < w.short)
}

func (w *walls) decide(l *lodge, now scheduler.Time) scheduler.Time {
	kept := l.calling[:0]
	for _, g := range l.calling {
		if w.serves(g.home, g) {
			kept = append(kept, g)
		} else {
			l.moveOut(g)
		}
	}
	l.calling = kept
	l.sendCalling(now)
	held := w.held(l)
	// Two lines, one on each side: the side that is full must not block the other.
	full := [2]bool{}
	w.line(l, &l.returned, held, &full, now)
	w.line(l, &l.fresh, held, &full, now)
	return -1
}

// line moves waiting guests in, in order on each side of the wall.
func (w *walls) line(l *lodge, line *[]*guest, held []int, full *[2]bool, now scheduler.Time) {
	rest := (*line)[:0:0]
	for k, g := range *line {
		if full[0] && full[1] {
			rest = append(rest, (*line)[k:]...)
			break
		}
		if g.call == nil || g.home >= 0 || !l.possible(g) {
			continue
		}
		side := 0
		if g.context > w.wall {
			side = 1
		}
		i := -1
		if !full[side] {
			i = w.pick(l, g, held, now)
		}
		if i < 0 {
			full[side] = true
			rest = append(rest, g)
			continue
		}
		held[i] += w.expects(g)
		l.moveIn(g, i)
	}
	*line = rest
}

// pick is the replica on the guest's side with the fewest tokens that has room; an empty one always has. A call whose side is
// all dead, or too small for it, goes to the other.
func (w *walls) pick(l *lodge, g *guest, held []int, now scheduler.Time) int {
	best, any := -1, false
	for _, strict := range []bool{true, false} {
		for i := range l.replicas {
			if !l.takes(i, g.call, now) || strict && !w.serves(i, g) {
				continue
			}
			any = true
			fits := l.living[i] == 0 || held[i]+w.expects(g) <= l.replicas[i].Capacity.KVTokens*9/10
			if fits && (best < 0 || held[i] < held[best]) {
				best = i
			}
		}
		if any {
			break
		}
	}
	return best
}

// expects is what a guest will hold on its side of the wall, in the mean, tokens.
func (w *walls) expects(g *guest) int {
	if w.short > 0 && g.context < w.wall {
		return (g.context + w.wall) / 2
	}
	return g.context + g.context/4
}

func (w *walls) held(l *lodge) []int {
	held := make([]int, len(l.replicas))
	for _, g := range l.guests {
		if g.home >= 0 {
			held[g.home] += w.expects(g)
		}
	}
	return held
}

func (*walls) observe(*lodge, int, episode.Load, scheduler.Time) {}
func (*walls) ended(*lodge, *guest, scheduler.Time)              {}
