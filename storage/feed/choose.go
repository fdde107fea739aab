package feed

import (
	"math"

	"tranche/storage"
)

// choice says which rows of a group are sent. The conditions on the whole group are asked first, of all its rows.
type choice struct {
	filter storage.Filter
	// minStd is the least standard deviation (of the population) of the rewards in a group; useful asks for more than none. Rows without a
	// verdict do not count; a group with less than two verdicts has none.
	minStd *float64
	useful bool
	// stale asks that no sampled token of a row is of a version before oldest.
	stale  bool
	oldest int64
}

func choiceOf(r *reader) choice {
	c := choice{
		filter: storage.Filter{
			DataSources: r.values["domain"], Splits: r.values["split"], Tasks: r.values["task"], Status: r.list("status"), Stops: r.list("stop"),
			MinReward: r.number("min_reward"), MaxReward: r.number("max_reward"), Scored: r.flag("scored"),
			Flags: r.list("flag"), NotFlags: r.list("without_flag"), Failures: r.flag("failures"),
		},
		minStd: r.deviation("min_reward_std"), useful: r.flag("useful"),
	}
	most, bounded := r.whole("max_staleness", 0)
	version, given := r.whole("version", 0)
	if c.stale = bounded; bounded != given && r.err == nil {
		r.err = badQuery("max_staleness and version go together: the rows are held to the trainer's version less max_staleness")
	}
	c.oldest = version - most
	return c
}

// Names of what does not take a row, besides those of storage.Filter.
const (
	droppedStd       = "reward_std"
	droppedStale     = "staleness"
	droppedNoVersion = "no_version"
)

// of returns the rows of a group that are sent, and of each other one what did not take it.
func (c choice) of(group []*storage.Row) (taken []*storage.Row, dropped []string) {
	equal := c.equal(group)
	for _, r := range group {
		if why := c.refusal(r, equal); why != "" {
			dropped = append(dropped, why)
			continue
		}
		taken = append(taken, r)
	}
	return taken, dropped
}

func (c choice) refusal(r *storage.Row, equal bool) string {
	switch why := c.filter.Refusal(r); {
	case why != "":
		return why
	case equal:
		return droppedStd
	case c.stale:
		return c.staleness(r)
	}
	return ""
}

// equal reports whether the rewards of a group vary less than is asked for.
func (c choice) equal(group []*storage.Row) bool {
	if c.minStd == nil && !c.useful {
		return false
	}
	std, ok := deviation(group)
	return !ok || c.useful && std == 0 || c.minStd != nil && std < *c.minStd
}

// deviation is the standard deviation of the rewards of a group; not ok = there are no two.
func deviation(group []*storage.Row) (std float64, ok bool) {
	var n, sum float64
	least, most := math.Inf(1), math.Inf(-1)
	for _, r := range group {
		if r.Reward != nil {
			n, sum = n+1, sum+*r.Reward
			least, most = min(least, *r.Reward), max(most, *r.Reward)
		}
	}
	if n < 2 {
		return 0, false
	}
	if least == most { // exactly: a mean of equal numbers may be another one
		return 0, true
	}
	mean, squares := sum/n, 0.0
	for _, r := range group {
		if r.Reward != nil {
			squares += (*r.Reward - mean) * (*r.Reward - mean)
		}
	}
	return math.Sqrt(squares / n), true
}

// staleness says why a row is not fresh enough; "" = it is. A row of which the server told no version, or that has no sampled ids, cannot be
// shown to be.
func (c choice) staleness(r *storage.Row) string {
	sampled := false
	for i, v := range r.Versions {
		switch {
		case r.LossMask[i] == 0:
		case v < 0:
			return droppedNoVersion
		case int64(v) < c.oldest:
			return droppedStale
		default:
			sampled = true
		}
	}
	if !sampled {
		return droppedNoVersion
	}
	return ""
}
