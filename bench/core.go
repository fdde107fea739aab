package bench

import (
	"tranche/episode"
	"tranche/scheduler"
)

// corePolicy is the scheduler's own core, the same that drives real servers.
type corePolicy struct {
	core *scheduler.Core
}

// NewCore returns the scheduler's core as a policy. Zero rules mean its defaults.
func NewCore(rules scheduler.Rules, told Told) (Policy, error) {
	rules.Seed = told.Seed
	c, err := scheduler.NewCore(rules, told.Replicas)
	if err != nil {
		return nil, err
	}
	return &corePolicy{c}, nil
}

func (p *corePolicy) Offer(r scheduler.Request, now scheduler.Time) { p.core.Offer(r, now) }

func (p *corePolicy) Next(now scheduler.Time) ([]scheduler.Launch, []scheduler.Reject, scheduler.Time) {
	return p.core.Next(now)
}

func (p *corePolicy) Settle(t scheduler.Ticket, o Outcome, now scheduler.Time) scheduler.Decision {
	if o.Cut {
		return p.core.Cut(t, o.Prompt, scheduler.Usage{Generated: o.Generated, Cached: o.Cached}, now)
	}
	return p.core.Settle(t, o.Fault, scheduler.Usage{Generated: o.Generated, Cached: o.Cached}, now)
}

func (p *corePolicy) Act(episodeID, kind string, now scheduler.Time) {
	p.core.Act(episodeID, kind, now)
}

func (p *corePolicy) Observe(replica int, l episode.Load, now scheduler.Time) {
	p.core.Observe(replica, l, now)
}

func (p *corePolicy) NoMore() { p.core.NoMore() }

func (p *corePolicy) Accounts(now scheduler.Time) []scheduler.Account { return p.core.Accounts(now) }

func (p *corePolicy) Withdraw(t scheduler.Ticket) bool { return p.core.Withdraw(t) }

func (p *corePolicy) Leave(episodeID string, _ scheduler.Time) { p.core.Leave(episodeID) }
