package bench

import (
	"tranche/episode"
	"tranche/scheduler"
)

// caps admits at most so many episodes per replica, first come first served, each to the replica with the fewest, where it stays:
// the semaphore of slime and of nearly every rollout script, with affinity added. The best number has to be found by hand, for
// each model, GPU and workload.
type caps struct {
	most int
}

// NewCap returns the policy with at most that many episodes on a replica at once.
func NewCap(told Told, most int) Policy { return newLodge(told, &caps{most}) }

func (c *caps) decide(l *lodge, now scheduler.Time) scheduler.Time {
	l.sendCalling(now)
	l.admit(func(g *guest) int {
		return l.emptiest(g.call, now, func(i int) bool { return l.living[i] < c.most })
	})
	return -1
}

func (*caps) observe(*lodge, int, episode.Load, scheduler.Time) {}
func (*caps) ended(*lodge, *guest, scheduler.Time)              {}
