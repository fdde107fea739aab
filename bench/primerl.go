package bench

import (
	"math"

	"tranche/episode"
	"tranche/scheduler"
)

// primeRL is the control law of prime-rl's orchestrator (concurrency.py, in the form that polls every 5 s): one cap on the
// episodes in flight in the whole fleet. It begins at KV tokens / context limit; grows by a quarter once per turnover of the
// pipeline while KV use is under 0.6, nothing queues and the cap binds; above 0.8 it falls to in-flight · 0.7 / use; a
// preemption cuts it to 0.8, a queue of more than half of what runs during six polls to 0.9, and to 0.5 when that happens again
// within six polls; six polls lie between two cuts, and nothing grows on polls older than 15 s.
//
// Two mildnesses: above 0.9 the original also cancels the youngest episodes, which here pause at the end of their turn instead
// (cancelled work would have to be done again), and episodes stay on their replica, the one with the fewest.
type primeRL struct {
	limit     float64
	polled    scheduler.Time
	seen      map[int]episode.Load // readings of the present poll, by replica
	preempted []int64
	polls     int
	lastCut   int // poll
	lastQueue int // poll of the last queue cut
	queued    int // polls in a row with a long queue
	turnover  int // episodes ended since the cap last grew
}

const (
	primeRLEvery = 5 * scheduler.Time(1e9)
	primeRLStale = 15 * scheduler.Time(1e9)
	primeRLPolls = 6
)

// NewPrimeRL returns prime-rl's adaptive cap. It needs to be told the KV capacity and context limit.
func NewPrimeRL(told Told) (Policy, error) {
	p := &primeRL{seen: map[int]episode.Load{}, preempted: make([]int64, len(told.Replicas)), lastCut: -primeRLPolls, lastQueue: -2 * primeRLPolls}
	for _, r := range told.Replicas {
		if r.Capacity.KVTokens == 0 || r.Capacity.ContextTokens == 0 {
			return nil, errNeeds
		}
		p.limit += float64(r.Capacity.KVTokens) / float64(r.Capacity.ContextTokens)
	}
	p.limit = max(p.limit, 1)
	return newLodge(told, p), nil
}

func (p *primeRL) decide(l *lodge, now scheduler.Time) scheduler.Time {
	inside := 0
	for _, n := range l.living {
		inside += n
	}
	for inside > int(p.limit) {
		out := youngestCalling(l)
		if out == nil {
			break
		}
		l.moveOut(out)
		inside--
	}
	l.sendCalling(now)
	l.admit(func(g *guest) int {
		if inside >= int(p.limit) {
			return -1
		}
		i := g.origin
		if i < 0 || !l.takes(i, g.call, now) {
			i = l.emptiest(g.call, now, func(int) bool { return true })
		}
		if i >= 0 {
			inside++
		}
		return i
	})
	return -1
}

// youngestCalling takes the youngest guest about to call out of the list; nil when there is none.
func youngestCalling(l *lodge) *guest {
	at := -1
	for k, g := range l.calling {
		if at < 0 || g.age > l.calling[at].age {
			at = k
		}
	}
	if at < 0 {
		return nil
	}
	g := l.calling[at]
	l.calling = append(l.calling[:at], l.calling[at+1:]...)
	return g
}

func (p *primeRL) observe(l *lodge, i int, load episode.Load, now scheduler.Time) {
	if load.KVUsed == nil || load.Waiting == nil || load.Running == nil || load.Preemptions == nil {
		return
	}
	p.seen[i] = load
	if now-p.polled < primeRLEvery || i != len(l.replicas)-1 && len(p.seen) < len(l.replicas) {
		return
	}
	fresh := now-p.polled <= primeRLStale
	p.polled = now
	p.polls++
	p.apply(l, p.read(), fresh)
	clear(p.seen)
}

// primeRLSignals is what one poll says of the fleet.
type primeRLSignals struct {
	use              float64 // of the fullest replica
	waiting, running int
	preempted        bool
}

func (p *primeRL) read() primeRLSignals {
	var s primeRLSignals
	for i, load := range p.seen {
		s.use = max(s.use, *load.KVUsed)
		s.waiting += *load.Waiting
		s.running += *load.Running
		s.preempted = s.preempted || *load.Preemptions > p.preempted[i]
		p.preempted[i] = *load.Preemptions
	}
	return s
}

// apply moves the cap by one poll.
func (p *primeRL) apply(l *lodge, s primeRLSignals, fresh bool) {
	inside := 0
	for _, n := range l.living {
		inside += n
	}
	p.queued++
	if float64(s.waiting) <= 0.5*float64(s.running) {
		p.queued = 0
	}
	rested := p.polls-p.lastCut >= primeRLPolls
	switch {
	case s.preempted && rested:
		p.cut(0.8 * math.Min(p.limit, float64(inside)))
	case p.queued >= primeRLPolls && rested:
		factor := 0.9
		if p.polls-p.lastQueue <= 2*primeRLPolls { // again within six polls of the end of the last one's rest
			factor = 0.5
		}
		p.lastQueue, p.queued = p.polls, 0
		p.cut(factor * p.limit)
	case s.use > 0.8 && rested:
		p.cut(float64(inside) * 0.7 / s.use)
	case fresh && s.use < 0.6 && s.waiting == 0 && float64(inside) >= 0.9*math.Floor(p.limit) && float64(p.turnover) >= p.limit:
		p.limit, p.turnover = p.limit*1.25, 0
	}
}

func (p *primeRL) cut(to float64) { p.limit, p.lastCut = max(to, 1), p.polls }

func (p *primeRL) ended(*lodge, *guest, scheduler.Time) { p.turnover++ }
