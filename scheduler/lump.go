package scheduler

import (
	"math"
	"slices"
)

// A small cache holds few episodes, and few do not average out: what is projected of ten is off by more than what is projected of a
// hundred, a block that is half empty is a larger part of each, and one that gives up its place costs more of what all do. This file is
// what is done about it.

// lumpiness is the margin for one episode alone, as a share of its memory.
const lumpiness = 0.3

// lumpy is the factor by which the memory that n episodes are projected to need is taken to be larger: the error of a sum of n
// falls with the root of n, relative to it.
func lumpy(n int) float64 { return 1 + lumpiness/math.Sqrt(float64(max(n, 1))) }

// halfBlock is what an open episode wastes at the end of its context, on the replica with the largest blocks; 0 = none tells.
func halfBlock(replicas []ReplicaConfig) float64 {
	most := 0
	for _, r := range replicas {
		most = max(most, r.Capacity.BlockTokens)
	}
	return float64(most) / 2
}

// patientTimes is how many times the mean of its kind an action may take before it counts as one that will not end soon: of
// exponential times one in fifty is longer.
const patientTimes = 4

// usual is how long an action of a kind may take and still be an ordinary one. Giving a place up before that gains nothing: the
// episode is about to come back for it.
func (c *Core) usual(kind string) Time {
	return Time(patientTimes * c.actions.Mean(kind) * float64(timeUnit))
}

// remains is the contexts of episodes that ended on a replica or gave up their place. A server keeps them until it needs the room, and then
// takes what was used longest ago first. So each is in the way of the episodes that were in an action already when it was last used: theirs
// go before it does. It is in nobody's way once they are back.
type remains struct {
	list   []remain // by time
	tokens float64  // of the list
	idle   []pause  // of episodes inside, by time; what is over is taken out at the front only
}

// remain is one such context and when it was last used.
type remain struct {
	at     Time
	tokens float64
	life   *life
}

// pause is the time from one call of an episode to its next.
type pause struct {
	at    Time
	life  *life
	turns int // calls made before
}

// pauses notes that a call of an episode inside has ended.
func (r *replica) pauses(l *life) {
	r.inTheWay() // takes out what is over
	r.remains.idle = append(r.remains.idle, pause{l.used, l, l.turns})
}

// keep notes that an episode is not inside any more.
func (m *remains) keep(l *life) {
	tokens := float64(l.context - l.shared)
	if tokens <= 0 || len(m.idle) == 0 {
		return
	}
	i := len(m.list)
	for i > 0 && m.list[i-1].at > l.used {
		i--
	}
	m.list = slices.Insert(m.list, i, remain{l.used, tokens, l})
	m.tokens += tokens
}

// reuse notes that an episode is back where it was: its context remains in use, not in the way.
func (m *remains) reuse(l *life) {
	for i, x := range m.list {
		if x.life == l {
			m.list = slices.Delete(m.list, i, i+1)
			m.tokens -= x.tokens
			return
		}
	}
}

// inTheWay is how many tokens of remains r's server keeps longer than a context whose place is held.
func (r *replica) inTheWay() float64 {
	m := &r.remains
	for len(m.idle) > 0 && !m.idle[0].lasts(r.index) {
		m.idle[0] = pause{}
		m.idle = m.idle[1:]
	}
	for len(m.list) > 0 && (len(m.idle) == 0 || m.list[0].at <= m.idle[0].at) {
		m.tokens -= m.list[0].tokens
		m.list[0] = remain{}
		m.list = m.list[1:]
	}
	if len(m.list) == 0 {
		m.tokens = 0 // no rounding is carried on
	}
	return m.tokens
}

// lasts says whether the episode holds its place on a replica and makes no call yet.
func (p *pause) lasts(replica int) bool {
	l := p.life
	return l.inside && l.replica == replica && l.turns == p.turns && l.call == nil
}
