package bench

import (
	"tranche/episode"
	"tranche/scheduler"
)

// flood sends every call at once: what a plain asyncio.gather over all tasks does. Sticky, an episode stays on the replica that
// had the fewest episodes when it came (verl's and most gateways' session affinity); grouped, all samples of a task go where the first
// of them went (prefix-aware routing, where the client knows the prefix); otherwise calls go round robin (the default router of
// AReaL and of a Kubernetes service).
type flood struct {
	sticky bool
	groups map[string]*groupHome // nil = not grouped
	next   int
}

// groupHome is where a group's first episode went, and how many of it are open.
type groupHome struct{ replica, open int }

// NewFlood returns the policy that holds nothing back.
func NewFlood(told Told, sticky bool) Policy { return newLodge(told, &flood{sticky: sticky}) }

// NewGroupFlood returns the policy that holds nothing back and keeps groups together.
func NewGroupFlood(told Told) Policy {
	return newLodge(told, &flood{sticky: true, groups: map[string]*groupHome{}})
}

func (f *flood) decide(l *lodge, now scheduler.Time) scheduler.Time {
	if !f.sticky {
		for _, g := range l.calling {
			l.moveOut(g)
		}
		l.calling = l.calling[:0]
	}
	l.sendCalling(now)
	l.admit(func(g *guest) int {
		if f.groups != nil {
			return f.withGroup(l, g, now)
		}
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

func (f *flood) ended(_ *lodge, g *guest, _ scheduler.Time) {
	if h := f.groups[g.group]; h != nil && g.origin >= 0 {
		if h.open--; h.open == 0 {
			delete(f.groups, g.group)
		}
	}
}

// withGroup is the replica of the guest's group, or the emptiest, which becomes it.
func (f *flood) withGroup(l *lodge, g *guest, now scheduler.Time) int {
	h := f.groups[g.group]
	if h != nil && l.takes(h.replica, g.call, now) {
		if g.origin < 0 {
			h.open++
		}
		return h.replica
	}
	i := l.emptiest(g.call, now, func(int) bool { return true })
	switch {
	case i < 0:
	case h == nil:
		f.groups[g.group] = &groupHome{i, 1}
	default: // its replica is dead or too small: the group moves
		h.replica = i
		if g.origin < 0 {
			h.open++
		}
	}
	return i
}
