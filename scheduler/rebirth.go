package scheduler

import (
	"cmp"
	"slices"

	"tranche/episode"
)

// An engine that dies and is back before anybody has tried it leaves nothing but a few broken connections, or one, which does not look like a
// death. Its gauges tell: the process began later, or counters that only grow went back.

// bornSlack is how far two readings of one process's beginning may be apart, seconds: some work it out from a clock that is put right.
const bornSlack = 0.1

// beganAnew says whether an engine is another process than at the reading before. Where both tell when it began, that decides.
func beganAnew(was, is episode.Load) bool {
	if was.Born != nil && is.Born != nil {
		return *is.Born > *was.Born+bornSlack
	}
	for _, c := range [...][2]*int64{
		{was.GeneratedTokens, is.GeneratedTokens}, {was.PromptTokens, is.PromptTokens}, {was.Steps, is.Steps}, {was.Preemptions, is.Preemptions}, {was.Firsts, is.Firsts},
	} {
		if c[0] != nil && c[1] != nil && *c[1] < *c[0] {
			return true
		}
	}
	return false
}

// tear notes a call that broke off. Should the next reading show another process, it was in flight when this one died.
func (r *replica) tear(w *call, now Time) {
	r.ward.tornAt = now
	if !slices.Contains(r.ward.torn, w) {
		r.ward.torn = append(r.ward.torn, w)
	}
}

// bury takes r's engine for dead at the time when the last call broke off there, and for another one since. What has been answered meanwhile
// is no suspect. A death that is known is not counted again.
func (c *Core) bury(r *replica, now Time) {
	if d := r.ward.death; d != nil {
		d.buried = true
		return
	}
	torn := slices.DeleteFunc(slices.Clone(r.ward.torn), func(w *call) bool { return c.calls[w.Ticket] != w })
	if len(torn) == 0 {
		return
	}
	slices.SortFunc(torn, func(a, b *call) int { return cmp.Compare(a.Ticket, b.Ticket) })
	for _, w := range torn {
		if w.twin == nil && w.counted > 0 {
			w.counted-- // a death uses up no attempt
		}
	}
	c.mourn(r, torn, &episode.Fault{Class: episode.ClassConnect}, r.ward.tornAt)
	c.reconsider(now)
}
