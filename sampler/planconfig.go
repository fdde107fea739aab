package sampler

import (
	"errors"
	"fmt"
	"math"
)

// PlanConfig says how a Plan chooses. The zero value draws as a Source does.
type PlanConfig struct {
	Config
	// Mix is the shares of the domains. Default: they are not told apart.
	Mix Mix
	// Band is the range of pass rates to draw from. Default: every task.
	Band Band
	// Draws is how many training groups there are in all; tasks come again as often as needed. Default 0 = every task once a round.
	Draws int64
	// Useful draws on until so many groups have rewards that differ; groups without are kept and do not count. Default 0: all groups count.
	Useful int64
	// MaxDraws bounds the groups of a Useful that is not reached. Default 0 = 8 times Useful.
	MaxDraws int64
	// Grow begins groups small. Default: all samples at once.
	Grow Grow
	// Held is the tasks that are only evaluated on. Default: none.
	Held HeldOut
}

// Band is a range of pass rates. A task whose rate is most likely outside is drawn less, the surer the less; one that nobody has tried is
// drawn. Its pass rate is a Beta distribution over the rewards it got.
type Band struct {
	// Low and High bound the pass rates to draw, 0 to 1. Default 0 and 0: no band.
	Low, High float64
	// Keep is how much of what was known of a task still counts after each of its groups, over 0 to 1: the model changes. Default 0 = 0.8.
	Keep float64
	// Memory is the most trials that history counts as, at the start. Default 0 = 8.
	Memory float64
	// Revisit is the least chance of a task to take part in a lap however sure it is outside. Default 0 = 0.05.
	Revisit float64
}

func (b Band) on() bool { return b.High > 0 }

// keep is 1 without a band: all that was learned counts alike.
func (b Band) keep() float64 {
	if b.on() {
		return b.Keep
	}
	return 1
}

// Grow begins a group with few samples and stops there when the others would be like them.
type Grow struct {
	// From is the samples to begin with. Default 0: all at once.
	From int
	// Error is the most chance that a group is stopped though one of its other samples would have been different: all passed and one would have
	// failed, or the other way round. It is by a Beta distribution over the tasks of this run and what is known of this one. Default 0 = 0.05.
	Error float64
}

// HeldOut is tasks that are never trained on. They are played at the start, after every so many training groups, and at the end.
type HeldOut struct {
	// Split is the split of those tasks. With Share it is what the rows are labelled. Default "" = none, with Share "held_out".
	Split string
	// Share takes so many of all tasks, 0 to 1, by a hash of their ids. Default 0: those of Split.
	Share float64
	// Every is how many training groups are between two evaluations. Default 0 = 100.
	Every int64
	// Samples of each task at each evaluation. Default 0 = 1.
	Samples int
}

// On says whether there is such a set.
func (h HeldOut) On() bool { return h.Split != "" || h.Share > 0 }

// Label is the split of the rows of evaluations.
func (h HeldOut) Label() string {
	if h.Split == "" {
		return "held_out"
	}
	return h.Split
}

// holds says whether a task belongs to the set.
func (h HeldOut) holds(id, split string) bool {
	return h.On() && split == h.Label() || h.Share > 0 && chance("held-out", id) < h.Share
}

// Decides says whether what is drawn depends on results, so that it has to be written down.
func (c PlanConfig) Decides() bool {
	return c.Band.on() || c.Useful > 0 || c.Grow.From > 0 || c.Mix.By == MixProgress
}

// Holds says whether all tasks are held in memory.
func (c PlanConfig) Holds() bool {
	return c.Mix.on() || c.Band.on() || c.Held.On() || c.Draws > 0 || c.PriorityColumn != ""
}

// Planned says whether a Plan is needed at all.
func (c PlanConfig) Planned() bool { return c.Decides() || c.Holds() }

// Validate reports every fault at once.
func (c PlanConfig) Validate() error {
	errs := []error{c.Config.Validate(), c.Mix.validate()}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	share := func(v float64) bool { return v >= 0 && v <= 1 }
	b := c.Band
	check(!b.on() && b == Band{} || b.Low >= 0 && b.Low < b.High && b.High <= 1, "band %v to %v: expected pass rates from 0 to 1, the lower one first", b.Low, b.High)
	check(share(b.Keep), "band: keep %v: expected over 0 to 1 (0 = 0.8)", b.Keep)
	check(b.Memory >= 0 && !math.IsInf(b.Memory, 0), "band: memory %v: expected more than 0 trials (0 = 8)", b.Memory)
	check(share(b.Revisit), "band: revisit %v: expected over 0 to 1 (0 = 0.05)", b.Revisit)
	check(c.Draws >= 0, "draws %d: expected 1 or more groups", c.Draws)
	check(c.Useful >= 0, "useful %d: expected 1 or more groups", c.Useful)
	check(c.MaxDraws >= 0, "max-draws %d: expected 1 or more groups", c.MaxDraws)
	check(c.MaxDraws == 0 || c.Useful > 0, "max-draws: bounds useful, which is not set")
	check(c.MaxDraws == 0 || c.MaxDraws >= c.Useful, "max-draws %d: fewer than the %d useful groups", c.MaxDraws, c.Useful)
	check(c.Useful == 0 || c.Draws == 0, "draws and useful: expected one of the two; max-draws bounds useful")
	check(c.Useful == 0 || c.Samples > 1, "useful: groups of one sample have no rewards that differ; expected 2 samples or more")
	check(c.Grow.From >= 0 && (c.Grow.From == 0 || c.Grow.From < max(c.Samples, 1)), "grow: %d samples to begin with, expected fewer than the %d of a group", c.Grow.From, c.Samples)
	check(c.Grow.Error >= 0 && c.Grow.Error < 1, "grow: error %v: expected over 0, below 1", c.Grow.Error)
	check(c.Grow.Error == 0 || c.Grow.From > 0, "grow: error stands with the samples to begin with")
	h := c.Held
	check(h.Share >= 0 && h.Share < 1, "held-out: share %v: expected 0 to 1", h.Share)
	check(h.Every >= 0 && h.Samples >= 0, "held-out: every %d, samples %d: expected 1 or more", h.Every, h.Samples)
	check(h.On() || h == HeldOut{} && c.HeldOut == HeldOutSampling{}, "held-out: neither a split nor a share says which tasks")
	return errors.Join(errs...)
}

func (c PlanConfig) filled() PlanConfig {
	c.Config = c.Config.filled()
	fill := func(v *float64, standard float64) {
		if *v == 0 {
			*v = standard
		}
	}
	fill(&c.Band.Keep, 0.8)
	fill(&c.Band.Memory, 8)
	fill(&c.Band.Revisit, 0.05)
	fill(&c.Grow.Error, 0.05)
	if c.MaxDraws == 0 {
		c.MaxDraws = 8 * c.Useful
	}
	if c.Held.Every == 0 {
		c.Held.Every = 100
	}
	if c.Held.Samples == 0 {
		c.Held.Samples = 1
	}
	return c
}
