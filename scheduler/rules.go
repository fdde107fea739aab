package scheduler

import (
	"errors"
	"fmt"
	"time"

	"tranche/bucketing"
	"tranche/episode"
)

// Time is the time since the run began. The core is told it; it never looks at a clock.
type Time = time.Duration

// Rules are the settings of the core. The zero value of a field means its default.
type Rules struct {
	Ladder                    bucketing.Ladder // classes of expected call length; zero = bucketing.DefaultBounds
	MaxAttempts               int              // attempts of one call that count against it; default 3. 429 and "no connection" do not count: they are the endpoint's
	BackoffBase               time.Duration    // wait after the first failure, at most; default 500 ms, doubles with each failure
	BackoffMax                time.Duration    // default 30 s
	Patience                  time.Duration    // how long a call waits while no endpoint that could take it is alive; default 2 min
	MoveAfter                 time.Duration    // an episode leaves its endpoint rather than wait longer than this for a gate; default 8 s
	AgeLimit                  time.Duration    // a call that waited longer goes first, and room is kept for it; default 30 s
	StartLimit                time.Duration    // the same for an episode that has not begun; default 15 min
	Theta                     float64          // share of a replica's KV memory that open episodes may be projected to need; default 0.9
	ThetaSingle               float64          // the same where every episode is one call: a long answer ends sooner beside fewer others; default 0.7
	ThetaAnswer               float64          // the same where its answer is far longer than its prompt; default 0.6
	ThetaLong                 float64          // the same for such an answer expected to be twice as long as usual or more: what is above is left for these; default 0.85
	EarlyYield                bool             // single calls: the shortest expected go first. Default: the longest, so that the last is done sooner
	StepReads                 float64          // tokens of context whose reading takes as long as a step with nothing to read; default 90,000
	PauseAt                   float64          // share of it at which episodes are paused at the end of a turn; default 0.97
	Overhead                  float64          // tokens an open episode wastes in partly filled blocks; default half a block of the replica with the largest, 8 where none tells
	MinHold                   time.Duration    // least time an episode in an action keeps its memory; default 4 s
	PrefillToken, PrefillPair time.Duration    // prefill cost of one token, and of one token for one token before it; default 25 µs, 1 ns
	ReadToken                 time.Duration    // cost of reading one token of context in one step of decoding; default 65 ns
	MinPrefix                 int              // least length of a prefix that prompts are brought together for, tokens; default 256; negative = none is
	SharersInRow              int              // calls that go to a replica out of turn, because what they begin with is there, before one in turn goes; default 64
	Hedge                     float64          // second attempts of stragglers, for each call launched, at most; 0 (default) = none
	HedgeAfter                time.Duration    // least time a call runs before it is a straggler; default 2 s
	FailStreak                int              // failures in a row that open an endpoint's circuit; default 5
	Cooldown                  time.Duration    // first time an open circuit lets one call try; default 1 s, doubles up to CooldownMax
	CooldownMax               time.Duration    // default 8 s
	Ramp                      time.Duration    // spacing of the first calls after a gate or circuit opens again; default 20 ms
	StallAfter                time.Duration    // an engine whose count of steps stands still for so long under its calls hangs; default 2 min
	RampCalls                 int              // how many calls are spaced so; default 16
	StaleAfter                time.Duration    // a reading of an endpoint's gauges older than this is none; default 15 s, three of the shell's readings
	Linger                    time.Duration    // a replica that pads waits so long for a batch to fill; default 10 ms
	Uncut                     bool             // answers are made at one go also by replicas that could go on with them
	Seed                      uint64           // seed of the jitter: one of its own for each process, or they knock together
}

func (r Rules) withDefaults() Rules {
	if r.Ladder.Classes() == 1 {
		r.Ladder, _ = bucketing.NewLadder(nil)
	}
	def(&r.MaxAttempts, 3)
	def(&r.BackoffBase, 500*time.Millisecond)
	def(&r.BackoffMax, 30*time.Second)
	def(&r.Patience, 2*time.Minute)
	def(&r.MoveAfter, 8*time.Second)
	def(&r.AgeLimit, 30*time.Second)
	def(&r.StartLimit, 15*time.Minute)
	def(&r.Theta, 0.9)
	def(&r.ThetaSingle, 0.7)
	def(&r.ThetaAnswer, 0.6)
	def(&r.HedgeAfter, 2*time.Second)
	def(&r.ThetaLong, 0.85)
	def(&r.StepReads, 90_000)
	def(&r.PauseAt, 0.97)
	def(&r.Overhead, 8)
	def(&r.MinHold, 4*time.Second)
	def(&r.PrefillToken, 25*time.Microsecond)
	def(&r.PrefillPair, time.Nanosecond)
	def(&r.ReadToken, 65*time.Nanosecond)
	def(&r.MinPrefix, 256)
	def(&r.SharersInRow, 64)
	def(&r.FailStreak, 5)
	def(&r.Cooldown, time.Second)
	def(&r.CooldownMax, 8*time.Second)
	def(&r.Ramp, 20*time.Millisecond)
	def(&r.RampCalls, 16)
	def(&r.StallAfter, 2*time.Minute)
	def(&r.StaleAfter, 15*time.Second)
	def(&r.Linger, 10*time.Millisecond)
	return r
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Validate reports every setting that makes no sense.
func (r Rules) Validate() error {
	var errs []error
	if r.MaxAttempts < 0 {
		errs = append(errs, fmt.Errorf("max attempts: %d, expected at least 1", r.MaxAttempts))
	}
	if !(r.Hedge >= 0 && r.Hedge <= 1) {
		errs = append(errs, fmt.Errorf("hedge: %g, expected a share from 0 to 1", r.Hedge))
	}
	if r.SharersInRow < 0 {
		errs = append(errs, fmt.Errorf("sharers in a row: %d, expected at least 1", r.SharersInRow))
	}
	for name, d := range map[string]time.Duration{
		"backoff base": r.BackoffBase, "backoff max": r.BackoffMax, "patience": r.Patience, "move after": r.MoveAfter,
		"age limit": r.AgeLimit, "cooldown": r.Cooldown, "cooldown max": r.CooldownMax, "ramp": r.Ramp, "stall after": r.StallAfter, "stale after": r.StaleAfter, "linger": r.Linger, "read token": r.ReadToken, "hedge after": r.HedgeAfter,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s: %v, expected a time that is not negative", name, d))
		}
	}
	return errors.Join(errs...)
}

// blame says what a failed attempt tells about the endpoint and whether it counts against the call.
type blame struct {
	endpoint bool // part of the endpoint's streak of failures
	call     bool // uses up one of the call's attempts
	gate     bool // the endpoint asked to be left alone for a while
	sample   bool // the model's own: sampled again at once, and nowhere is avoided for it
}

func blameFor(f *episode.Fault) blame {
	if f.Died || f.Refused {
		return blame{endpoint: true} // who killed it is another matter
	}
	switch f.Class {
	case episode.ClassConnect:
		return blame{endpoint: true}
	case episode.ClassRateLimited:
		return blame{gate: true}
	case episode.ClassUnavailable:
		return blame{endpoint: true, call: true, gate: f.After > 0}
	case episode.ClassReset, episode.ClassServerError, episode.ClassTimeout, episode.ClassIdle, episode.ClassTruncatedStream, episode.ClassMalformed, episode.ClassAborted:
		return blame{endpoint: true, call: true}
	}
	return blame{call: true, sample: f.Class == episode.ClassToolUse}
}
