package scheduler

import "tranche/episode"

// gauge is what the core makes of a server's own readings.
type gauge struct {
	taken    bool    // at least once
	at       Time    // last
	measured float64 // what the server holds, relative to what we were told, by its own reading; 0 = not known
	queued   bool    // at the last reading calls waited in the server for memory, or had waited since the one before
	firsts   firsts
}

// fresh says whether the gauges were read lately.
func (r *replica) fresh(now, stale Time) bool { return r.gauge.taken && now-r.gauge.at <= stale }

// Observe takes a reading of a replica's own gauges. When the server preempted since the last reading, it is taken to hold a
// twentieth less; when calls wait in it for memory, or did by the time to their first tokens, a hundredth less, and it is not taken to hold
// more; a clean reading gives a two-hundredth back, up to what we were told.
//
// anew says that the engine began anew since the last reading: what broke off meanwhile was in flight when it died.
func (c *Core) Observe(i int, l episode.Load, now Time) (anew bool) {
	r := c.replicas[i]
	if anew = beganAnew(r.load, l); anew {
		c.bury(r, now)
	}
	r.ward.torn, r.ward.mourned = nil, 0
	r.gauge.taken, r.gauge.at = true, now
	c.measure(r, l, now)
	r.gauge.queued = r.short(l) || r.gauge.firsts.late(l) && r.full(l)
	switch was, is := r.load.Preemptions, l.Preemptions; {
	case was != nil && is != nil && *is > *was:
		r.shrink(0.95)
	case r.gauge.queued:
		r.shrink(0.99)
	case was != nil && is != nil:
		r.scale = max(r.scale, min(r.scale*1.005, 1))
	}
	r.load = l
	c.feel(r, l, now)
	return anew
}

// short says whether calls wait in the server because its memory is full. Where as many run as it runs at most, they wait for that.
func (r *replica) short(l episode.Load) bool {
	return l.Waiting != nil && *l.Waiting > 0 && l.KVUsed != nil && *l.KVUsed >= fullUsed && !r.allRun(l)
}

// full says whether nothing but its memory can have let calls wait in the server: it does not run all it can, and its cache is, for all we
// know, about full.
func (r *replica) full(l episode.Load) bool {
	return (l.KVUsed == nil || *l.KVUsed >= nearlyFull) && !r.allRun(l)
}

// allRun says whether the server runs as many calls as it can.
func (r *replica) allRun(l episode.Load) bool {
	return l.Running != nil && r.Capacity.Sequences > 0 && *l.Running >= r.Capacity.Sequences
}

// Bounds of what a reading is believed.
const (
	fullUsed      = 0.95 // share of the cache in use from which it counts as full
	nearlyFull    = 0.8  // share from which it may have been full since the last reading
	leastUsed     = 0.2  // share of the cache in use below which a reading is too coarse
	believed      = 0.25 // weight of one reading that is lower than those before
	doubted       = 0.05 // weight of one that is higher
	leastMeasured = 0.5  // share of what we were told that is believed at least
	mostMeasured  = 0.9  // a reading above it says no more than that we were told about right
)

// measure compares what the running calls hold with the share of the cache that the server says is in use. What is uncertain
// (prompts not computed yet, prefixes that calls share) makes the result too great, never too small.
func (c *Core) measure(r *replica, l episode.Load, now Time) {
	told := float64(r.Capacity.KVTokens)
	if told == 0 || l.KVUsed == nil || *l.KVUsed < leastUsed || l.Waiting != nil && *l.Waiting > 0 {
		return
	}
	n := Time(r.running)
	held := float64(r.prompts) + c.answers.rate*(n*now-r.began).Seconds() + c.rules.Overhead*float64(n)
	m := held / *l.KVUsed / told
	if was := r.gauge.measured; was > 0 {
		weight := believed
		if m > was { // what is uncertain makes it too great
			weight = doubted
		}
		m = was + weight*(m-was)
	}
	r.gauge.measured = m
}

// shrink takes the replica to hold less, after it lost something: by the factor, or at once by as much as its own readings say
// that we were told too much. Readings alone change nothing: some servers count idle prefixes as used.
func (r *replica) shrink(factor float64) {
	r.scale, r.probed, r.kept = max(r.scale*factor, 0.25), true, 0
	if m := r.gauge.measured; m > 0 && m < mostMeasured {
		r.scale = min(r.scale, max(m, leastMeasured))
	}
}

// confirmed says whether r's own readings say that it holds no more than it is taken to. They are readings of what running calls hold:
// where most episodes are between calls they say little.
func (r *replica) confirmed() bool {
	return r.gauge.measured > 0 && r.scale >= max(r.gauge.measured, 1) && 2*r.running >= r.inside
}

// grow takes the replica to hold more, by a share of what it is taken to hold: where nobody looks at its gauges, no more than we were told, and
// nothing while calls wait in it for memory.
func (r *replica) grow(share float64, fresh bool) {
	most := 3.0
	switch {
	case !fresh:
		most = 1
	case r.gauge.queued:
		return
	}
	r.scale, r.kept = max(r.scale, min(r.scale*(1+share), most)), 0
}
