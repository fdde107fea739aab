package bench

import (
	"slices"
	"time"

	"tranche/scheduler"
)

// Result is what a run came to.
type Result struct {
	Makespan time.Duration // until the last episode ended
	T90      time.Duration // until nine in ten of the workload's episodes were complete; 0 = never

	// Completed + Aborted + Rejected = episodes of the workload.
	Completed int // played to their end
	Aborted   int // cut off by a quorum
	Rejected  int // given up by the policy: no replica can take them, or none answered
	Calls     int // answered
	Attempts  int // sent
	Failures  int // attempts that failed
	Cuts      int // attempts whose answer was cut and gone on with
	Truncated int // answers cut short by the policy's max_tokens: less work than was asked for

	Useful    int64 // tokens generated for completed episodes
	Generated int64 // tokens generated in all

	Preemptions int64
	Computed    int64 // prompt tokens prefilled, recomputed ones included
	Unique      int64 // prompt tokens that had to be prefilled once
	Queried     int64 // prompt tokens of admitted calls
	Hits        int64 // of them found in prefix caches
	Steps       int64

	LatencyP50, LatencyP99 time.Duration // of answered calls, from offer to answer

	Replicas []ReplicaUse
	// Accounts says what kept more work from each replica; nil where the policy is no Explainer.
	Accounts []scheduler.Account

	latency []time.Duration
}

// ReplicaUse is one replica's part in a run.
type ReplicaUse struct {
	Attempts    int
	Generated   int64
	Computed    int64
	Preemptions int64
	Busy        float64 // share of the makespan that it was stepping
	HitRate     float64
}

// Ended is how many episodes are through, one way or another.
func (r *Result) Ended() int { return r.Completed + r.Aborted + r.Rejected }

// TokensPerSecond is the rate of useful tokens.
func (r *Result) TokensPerSecond() float64 { return ratio(float64(r.Useful), r.Makespan.Seconds()) }

// HitRate is the share of prompt tokens found in prefix caches.
func (r *Result) HitRate() float64 { return ratio(float64(r.Hits), float64(r.Queried)) }

// Recomputed is prefilled tokens over those that had to be: 1 = nothing was computed twice.
func (r *Result) Recomputed() float64 { return ratio(float64(r.Computed), float64(r.Unique)) }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// sum closes the books.
func (s *play) sum() {
	r := &s.res
	r.Unique = int64(s.w.Load().Prompt)
	for i, m := range s.machines {
		c := m.counters()
		r.Preemptions += c.Preemptions
		r.Computed += c.ComputedTokens
		r.Queried += c.PrefixQueries
		r.Hits += c.PrefixHits
		r.Generated += c.GeneratedTokens
		r.Steps += c.Steps
		u := &r.Replicas[i]
		u.Generated, u.Computed, u.Preemptions = c.GeneratedTokens, c.ComputedTokens, c.Preemptions
		u.Busy, u.HitRate = ratio(c.Busy.Seconds(), r.Makespan.Seconds()), ratio(float64(c.PrefixHits), float64(c.PrefixQueries))
	}
	slices.Sort(r.latency)
	if x, ok := s.p.(Explainer); ok {
		r.Accounts = x.Accounts(s.now)
	}
	r.LatencyP50, r.LatencyP99 = quantile(r.latency, 0.5), quantile(r.latency, 0.99)
}

// quantile of a sorted list: the least value that a share of the values does not exceed; 0 of an empty one.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(share(q, len(sorted))-1, 0)]
}
