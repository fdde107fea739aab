package bench

import (
	"tranche/episode"
	"tranche/scheduler"
)

// flood sends every call at once: what a plain asyncio.gather over all tasks does. Sticky, an episode stays on the replica that
// had the fewest episodes when it came (verl's and most gateways' session affinity); otherwise calls go round robin (the
// default router of AReaL and of a Kubernetes service).
type flood struct {
	sticky bool
	next   int
}

// NewFlood returns the policy that holds nothing back.
func NewFlood(told Told, sticky bool) Policy { return newLodge(told, &flood{sticky: sticky}) }

func (f *flood) decide(l *lodge, now scheduler.Time) scheduler.Time {
	if !f.sticky {
		for _, g := range l.calling {
			l.moveOut(g)
		}
		l.calling = l.calling[:0]
	}
	l.sendCalling(now)
	l.admit(func(g *guest) int {
		if f.sticky {
			return l.emptiest(g.call, now, func(int) bool { return true })
		}
		for range l.replicas {
			i := f.next % len(l.replicas)
			f.next++
			if l.takes(i, g.call, now) {
				return i
			}
		}
		return -1
	})
	return -1
}

func (*flood) observe(*lodge, int, episode.Load, scheduler.Time) {}
func (*flood) ended(*lodge, *guest, scheduler.Time)              {}
