package bench

import (
	"tranche/episode"
	"tranche/scheduler"
)

// Policy is what decides in a simulated fleet: the scheduler's core, or a baseline. It is called by one goroutine, and learns
// only what a client can see. Next is called after any other method and when the wait it asked for is over.
type Policy interface {
	// Offer hands over a call. An episode has one call at a time.
	Offer(r scheduler.Request, now scheduler.Time)
	// Next returns what to send, what will never be sent, and how long nothing changes by time alone (negative = for ever).
	Next(now scheduler.Time) ([]scheduler.Launch, []scheduler.Reject, scheduler.Time)
	// Settle reports the end of a launched attempt.
	Settle(t scheduler.Ticket, o Outcome, now scheduler.Time) scheduler.Decision
	// Act says that an episode went into an action of a kind after its last call.
	Act(episodeID, kind string, now scheduler.Time)
	// Observe brings a reading of a replica's own gauges, where there are metrics.
	Observe(replica int, l episode.Load, now scheduler.Time)
	// Withdraw takes a waiting call back; false when it is running.
	Withdraw(t scheduler.Ticket) bool
	// Leave says that an episode makes no more calls.
	Leave(episodeID string, now scheduler.Time)
}

// Explainer is a Policy that knows what bounded its run.
type Explainer interface {
	// NoMore says that no episode will come that has not come yet.
	NoMore()
	// Accounts says what kept more work from each replica until now.
	Accounts(now scheduler.Time) []scheduler.Account
}

// Outcome is how an attempt ended.
type Outcome struct {
	Fault     *episode.Fault // nil = success
	Generated int            // tokens of the answer
	Prompt    int            // tokens of the prompt, as the server counted
	Cached    int            // tokens of it that the server found in its prefix cache
	Cut       bool           // the answer got to the launch's MaxTokens, where the policy has it cut, and has not ended: the policy holds the call
}

// Told is what a policy is told before a run: no more than a client can know.
type Told struct {
	Replicas []scheduler.ReplicaConfig
	Seed     uint64
	// Wall is the context, tokens, up to which calls do as much of the workload's decoding (tokens times context) as their half of the
	// replicas should. Only the hard length buckets use it: they are given what the others do without.
	Wall int
	// Played is the workload itself. Only the oracles look at it: they show what there is to gain, no client can know it.
	Played Workload
}
