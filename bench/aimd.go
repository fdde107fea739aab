package bench

import (
	"tranche/episode"
	"tranche/scheduler"
)

// aimd is congestion control on the cache, after CONCUR (arXiv 2601.22705): each replica has a window of active episodes. While
// its KV use is low the window grows by a step; when use is high and the hit rate of the last interval is low it shrinks by a
// factor; else it holds. Episodes over the window pause at the end of their turn, the latest arrivals first, and come back before
// new ones. The thresholds are the ones that did best in a sweep: use 0.6 rather than the paper's 0.2 and 0.5, steps of one and a
// tenth rather than halving. Without metrics the window stays where it began.
type aimd struct {
	window   []float64
	last     []episode.Load
	adjusted []scheduler.Time
}

const (
	aimdStart    = 8.0 // episodes a replica
	aimdInterval = 5 * scheduler.Time(1e9)
	aimdHigh     = 0.6  // KV use above which a low hit rate means thrashing
	aimdHits     = 0.9  // hit rate below which the cache does not hold what it should
	aimdShrink   = 0.9  // factor
	aimdLeast    = 1.0  // episode
	aimdBinding  = 0.85 // of the window in use: else there is no reason to grow it
)

// NewAIMD returns the policy with an additive-increase, multiplicative-decrease window on each replica.
func NewAIMD(told Told) Policy {
	n := len(told.Replicas)
	a := &aimd{window: make([]float64, n), last: make([]episode.Load, n), adjusted: make([]scheduler.Time, n)}
	for i := range a.window {
		a.window[i] = aimdStart
	}
	return newLodge(told, a)
}

func (a *aimd) decide(l *lodge, now scheduler.Time) scheduler.Time {
	pauseYoungest(l, func(i int) int { return int(a.window[i]) })
	l.sendCalling(now)
	l.admit(func(g *guest) int {
		if i := g.origin; i >= 0 && l.takes(i, g.call, now) && l.living[i] < int(a.window[i]) {
			return i
		}
		return l.emptiest(g.call, now, func(i int) bool { return l.living[i] < int(a.window[i]) })
	})
	return -1
}

// pauseYoungest moves out guests that are about to call, youngest first, while their replica has more guests than it may.
func pauseYoungest(l *lodge, most func(replica int) int) {
	for {
		var out *guest
		for _, g := range l.calling {
			if g.home >= 0 && l.living[g.home] > most(g.home) && (out == nil || g.age > out.age) {
				out = g
			}
		}
		if out == nil {
			break
		}
		l.moveOut(out)
	}
	kept := l.calling[:0]
	for _, g := range l.calling {
		if g.home >= 0 {
			kept = append(kept, g)
		}
	}
	l.calling = kept
}

func (a *aimd) observe(l *lodge, i int, load episode.Load, now scheduler.Time) {
	if now-a.adjusted[i] < aimdInterval || load.KVUsed == nil || load.Hits == nil || load.PrefixQueries == nil {
		return
	}
	a.adjusted[i] = now
	hits, asked := hitsSince(a.last[i], load)
	a.last[i] = load
	switch {
	case *load.KVUsed > aimdHigh && asked > 0 && hits < aimdHits*asked:
		a.window[i] = max(a.window[i]*aimdShrink, aimdLeast)
	case *load.KVUsed <= aimdHigh && float64(l.living[i]) >= aimdBinding*a.window[i]:
		a.window[i]++
	}
}

// hitsSince is the prefix-cache hits and queries between two readings, tokens. A counter that fell was reset by a restart.
func hitsSince(was, is episode.Load) (hits, asked float64) {
	if was.Hits == nil || was.PrefixQueries == nil || *is.PrefixQueries < *was.PrefixQueries {
		return float64(*is.Hits), float64(*is.PrefixQueries)
	}
	return float64(*is.Hits - *was.Hits), float64(*is.PrefixQueries - *was.PrefixQueries)
}

func (*aimd) ended(*lodge, *guest, scheduler.Time) {}
