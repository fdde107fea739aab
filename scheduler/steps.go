package scheduler

import (
	"math"
	"sort"
)

// steps are the lengths at which answers to prompts of one class are cut, and what they cost still. Cutting often wastes prefill: all of
// the context is computed again. Cutting seldom wastes rows: a batch computes on for those of its answers that have ended. Dynamic
// programming finds the lengths between which the sum is least, over how long answers were seen to last and what batches cost.
type steps struct {
	edges []int     // tokens, rising, from nought to the most that an answer may have: where an answer may be cut
	next  []int     // where one that has that many is cut next, as a place in edges
	rest  []float64 // what a row that has that many costs still, in full batches, seconds
}

// yard is what steps are measured with: a replica that pads, in the mean of those that there are.
type yard struct {
	cost   pace
	rows   int     // of a batch at most
	memory float64 // tokens; 0 = not known
	pads   *replica
}

// leastCut is the least that an answer is asked for before it is cut, tokens: a call has costs of its own.
const leastCut = 16

// stepsFor finds the steps for prompts of so many tokens and answers of at most `most` (0 = no bound).
func stepsFor(prompt, most int, l *lasting, y yard) steps {
	s := steps{edges: cutEdges(most)}
	n := len(s.edges)
	s.next, s.rest = make([]int, n), make([]float64, n)
	s.next[n-1] = n - 1
	for i := n - 2; i >= 0; i-- {
		s.rest[i] = math.Inf(1)
		y.from(prompt, s.edges[i:], l, func(j int, cost, left float64) {
			if t := cost + left*s.rest[i+j]; t < s.rest[i] {
				s.rest[i], s.next[i] = t, i+j
			}
		})
	}
	return s
}

// cutEdges are the lengths that are considered, up to the most.
func cutEdges(most int) []int {
	edges := []int{0}
	for b := range lastBins {
		if e := lastEdge(b); e >= leastCut && (most == 0 || e < most) {
			edges = append(edges, e)
		}
	}
	if most > 0 {
		edges = append(edges, most)
	}
	return edges
}

// from tells, for each later edge j, what a row costs in a batch that goes from edges[0] to it, seconds, and the share of rows that get
// beyond it.
func (y yard) from(prompt int, edges []int, l *lasting, tell func(j int, cost, left float64)) {
	context := prompt + edges[0]
	var wait reach
	for j := 1; j < len(edges); j++ {
		left := l.share(edges[0], edges[j])
		n := y.fit(prompt + edges[j])
		wait.until(edges[j]-edges[0], n*math.Log1p(-min(left, 1-1e-9)))
		tell(j, y.cost.of(float64(y.pads.rows(int(n))), float64(y.pads.shape(context)), wait.t1, wait.t2)/n, left)
	}
}

// fit is how many rows of so long contexts a batch can have.
func (y yard) fit(context int) float64 {
	n := float64(y.rows)
	if y.memory > 0 {
		n = min(n, math.Floor(y.memory/float64(max(context, 1))))
	}
	return max(n, 1)
}

// place is where an answer of so many tokens lies among the edges: the last that it reached.
func (s *steps) place(got int) int {
	return max(sort.SearchInts(s.edges, got+1)-1, 0)
}

// cut is the length at which an answer that has `got` tokens is cut next; not more than `got` where it is not cut any more.
func (s *steps) cut(got int) int {
	i := s.place(got)
	for s.next[i] > i && s.edges[s.next[i]]-got < leastCut {
		i = s.next[i]
	}
	return s.edges[s.next[i]]
}

// left is what an answer that has `got` tokens costs still, seconds.
func (s *steps) left(got int) float64 {
	i := s.place(got)
	if i == len(s.edges)-1 {
		return s.rest[i]
	}
	part := float64(got-s.edges[i]) / float64(s.edges[i+1]-s.edges[i])
	return s.rest[i] + part*(s.rest[i+1]-s.rest[i])
}

// reach is how long a batch is expected to go on, added up from one time to the next, tokens, and the square of that.
type reach struct {
	t1, t2 float64
	at     float64
	before float64 // the chance that by then all had ended
}

// until goes on to a time, at which the logarithm of the chance that all have ended is `none`.
func (r *reach) until(tokens int, none float64) {
	t, ended := float64(tokens), math.Exp(none)
	goes := 1 - (ended+r.before)/2
	r.t1 += goes * (t - r.at)
	r.t2 += goes * (t*t - r.at*r.at)
	r.at, r.before = t, ended
}
