package sampler

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"tranche/episode"
)

// Order names the order in which tasks are drawn.
type Order string

// Orders.
const (
	OrderFile    Order = "file"    // as the input states them
	OrderShuffle Order = "shuffle" // shuffled inside a moving window, by the seed
)

// DefaultWindow is the shuffle window when Config.Window is 0, tasks.
const DefaultWindow = 4096

// Config says what to draw and how. The zero value draws every task once, in file order, one sample each, and sends no sampling
// parameters.
type Config struct {
	// Samples is the number of samples of one draw: the group size. Default 0 = 1.
	Samples int
	// Order of the tasks. Default "" = file.
	Order Order
	// Seed fixes the shuffled order and, with SendSeed, the seeds that are sent. Default 0, a seed like any other.
	Seed int64
	// Window is how many tasks are held to draw from when the order is shuffle: each draw takes one of the held tasks by chance
	// and the next of the input takes its place. It is a windowed shuffle: a task can come any time later than its place in the
	// file, but at most Window-1 places earlier; with a window of at least the number of tasks it is a full shuffle. Memory: the
	// tasks held. Default 0 = 4096 tasks.
	Window int
	// Rounds is how often the whole input is gone through, one round after the other; a task's draws differ by Draw.Round. Default
	// 0 = 1.
	Rounds int
	// Tasks is the number of tasks of one round, where known (taskfile's Report); Count needs it. Default 0 = unknown.
	Tasks int64
	// Sampling is what every episode gets unless its task says otherwise (Task.Params). Its Seed is not sent unless set.
	Sampling episode.Sampling
	// SendSeed gives every sample a seed of its own, derived from Seed, task, round and sample. Default false: per-request seeds
	// slow some engines and crash one.
	SendSeed bool
	// TemperatureSchedule and TopPSchedule change these parameters with the draws (Draw.Number); they win over Sampling and not over what a
	// task sets itself. Default: none.
	TemperatureSchedule, TopPSchedule Schedule
	// Variants are prompts to explore with. Default: none, the prompt as the task states it.
	Variants []Variant
	// HeldOut is the sampling of evaluations, over Sampling. Only what it sets counts.
	HeldOut HeldOutSampling
	// PriorityColumn names a column of the tasks that holds a whole number: the larger, the sooner among the tasks that are held, and the
	// more urgent at the server (added to Sampling.Priority). Default "": none.
	PriorityColumn string
	// DeadlineColumn names a column that says by when a task is wanted: a time (RFC 3339), or how long after Began ("90m", or seconds). What has
	// not ended by then fails with deadline. Default "": none.
	DeadlineColumn string
	// Began is the run's beginning, for deadlines.
	Began time.Time
}

// HeldOutSampling is what an evaluation sends in the place of the run's own parameters; nil = the same.
type HeldOutSampling struct{ Temperature, TopP *float64 }

// Validate reports every fault at once.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Samples >= 0, "samples %d: expected 1 or more", c.Samples)
	check(slices.Contains([]Order{"", OrderFile, OrderShuffle}, c.Order), "order %q: expected file or shuffle", c.Order)
	check(c.Window >= 0, "window %d: expected 1 or more tasks", c.Window)
	check(c.Rounds >= 0, "rounds %d: expected 1 or more", c.Rounds)
	check(c.Tasks >= 0, "tasks %d: expected 0 (unknown) or more", c.Tasks)
	check(!c.SendSeed || c.Sampling.Seed == nil, "send-seed: a fixed seed is set as well; expected one of the two")
	held := episode.Sampling{Temperature: c.HeldOut.Temperature, TopP: c.HeldOut.TopP}
	if err := sampling(held); err != nil {
		errs = append(errs, fmt.Errorf("held-out: %w", err))
	}
	errs = append(errs, c.TemperatureSchedule.within("temperature schedule", func(v float64) bool { return v >= 0 }, "0 or more"),
		c.TopPSchedule.within("top_p schedule", func(v float64) bool { return v > 0 && v <= 1 }, "over 0 to 1"), checkVariants(c.Variants))
	return errors.Join(append(errs, sampling(c.Sampling))...)
}

// sampling checks the ranges that every server agrees on.
func sampling(s episode.Sampling) error {
	var errs []error
	inside := func(name string, v *float64, low, high float64, expected string) {
		if v != nil && !(*v >= low && *v <= high) { // written so that NaN fails
			errs = append(errs, fmt.Errorf("%s %v: expected %s", name, *v, expected))
		}
	}
	inside("temperature", s.Temperature, 0, math.MaxFloat64, "0 or more")
	inside("top_p", s.TopP, math.SmallestNonzeroFloat64, 1, "over 0 to 1")
	inside("min_p", s.MinP, 0, 1, "0 to 1")
	if s.TopK != nil && *s.TopK < -1 {
		errs = append(errs, fmt.Errorf("top_k %d: expected -1 (all tokens) or more", *s.TopK))
	}
	for _, name := range []string{"messages", "model", "tools", "n", "max_tokens", "max_completion_tokens", "stream"} {
		if _, ok := s.Extra[name]; ok {
			errs = append(errs, fmt.Errorf("extra body field %q: is not free to set; the run decides it", name))
		}
	}
	if slices.Contains(s.Stop, "") {
		errs = append(errs, errors.New("stop: an empty stop string"))
	}
	return errors.Join(errs...)
}

// filled puts the defaults in place.
func (c Config) filled() Config {
	if c.Samples == 0 {
		c.Samples = 1
	}
	if c.Order == "" {
		c.Order = OrderFile
	}
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.Rounds == 0 {
		c.Rounds = 1
	}
	c.Sampling = clone(c.Sampling)
	return c
}
