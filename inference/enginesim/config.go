package enginesim

import (
	"errors"
	"fmt"
	"time"
)

// Config says what kind of server to be. The zero value is a valid one: every zero field takes its default.
type Config struct {
	// Model is the name served and checked in requests. Default "sim".
	Model string
	// Seed decides every text, logprob and injected fault. Default 0, a seed like any other.
	Seed int64
	// ContextTokens is the longest prompt + answer of one sequence (max_model_len). Default 8,192.
	ContextTokens int
	// KVTokens is the KV memory, tokens of all running sequences together. At least ContextTokens. Default 65,536.
	KVTokens int
	// BlockTokens is the size of a KV block and the grain of the prefix cache. Default 16.
	BlockTokens int
	// MaxSeqs is how many sequences run at once; the others wait, without bound. Default 64.
	MaxSeqs int
	// StepBudget is how many tokens one step may compute, prompts and decodes together. At least MaxSeqs. Default 8,192.
	StepBudget int
	// Step says how long a step takes. The zero value means DefaultStep.
	Step StepTime
	// Speed is how much faster than the modelled engine time passes: 1 = real time, 10 = ten times faster. 0, the default,
	// means that nothing is waited for: steps follow one another as fast as the machine allows.
	Speed float64

	// SolveRate is the share of solvable questions that are answered right, 0 … 1. nil means 0.7.
	SolveRate *float64
	// Answer tells the right answer to a question, given the last thing a user said (for completions: the whole prompt), so that the engine
	// can play a task file it knows nothing about; false = unknown. It must be pure and safe for concurrent use. nil = none known;
	// arithmetic expressions are understood without it. AnswerTable makes one from pairs.
	Answer func(lastUserText string) (string, bool)
	// LengthMean is the mean length of free text, tokens. Default 120.
	LengthMean float64
	// LengthSigma is the spread of free text: the standard deviation of the logarithm of its length. Default 0.6.
	LengthSigma float64

	// Faults are injected into the generate routes. Default: none. A request can also ask for one itself: header X-Sim-Fault.
	Faults Faults
	// APIKey, when set, must come as "Authorization: Bearer KEY" on every /v1 route. Default: none wanted.
	APIKey string
	// KeepAlive is how long an idle connection stays open; real servers close after 5 s, the default.
	KeepAlive time.Duration
	// HideCached leaves prompt_tokens_details out of usage, as vLLM does unless told otherwise. Default false: it is told.
	HideCached bool
}

// StepTime is the duration of one engine step:
//
//	t = Base + max(Floor, PerToken·n) + PerRead·K + PerPair·Σ u·x
//
// n = tokens computed in the step, K = KV tokens read by sequences that decode, u and x = length of each prompt chunk and its mean
// context. Every figure in seconds.
type StepTime struct {
	Base     float64 // launch and scheduling, each step
	Floor    float64 // reading the weights once: a step with few tokens takes no less
	PerToken float64 // compute of one token
	PerRead  float64 // reading one token of KV
	PerPair  float64 // attention of one prompt token to one context token
}

// DefaultStep is Llama-3.1-8B on one H100: floor Base+Floor 6.8 ms (BLIS), 22 µs a token (Vidur kernels, scaled), 76 ns a KV token
// (BLIS), 1.05 ns a pair (4·L·d FLOP at half of peak). How the 6.8 ms divide is BLIS's 32 µs a layer + 126 µs, rounded.
func DefaultStep() StepTime {
	return StepTime{Base: 1.2e-3, Floor: 5.6e-3, PerToken: 22e-6, PerRead: 76e-9, PerPair: 1.05e-9}
}

func (s StepTime) duration(tokens, reads int, pairs float64) time.Duration {
	t := s.Base + max(s.Floor, s.PerToken*float64(tokens)) + s.PerRead*float64(reads) + s.PerPair*pairs
	return time.Duration(t * float64(time.Second))
}

func (c Config) withDefaults() Config {
	pick(&c.Model, "sim")
	pick(&c.ContextTokens, 8192)
	pick(&c.KVTokens, 65536)
	pick(&c.BlockTokens, 16)
	pick(&c.MaxSeqs, 64)
	pick(&c.StepBudget, 8192)
	pick(&c.Step, DefaultStep())
	pick(&c.LengthMean, 120)
	pick(&c.LengthSigma, 0.6)
	pick(&c.KeepAlive, 5*time.Second)
	pick(&c.Faults.RetryAfter, time.Second)
	pick(&c.Faults.DripPause, 20*time.Millisecond)
	if c.SolveRate == nil {
		rate := 0.7
		c.SolveRate = &rate
	}
	return c
}

func pick[T comparable](field *T, def T) {
	var zero T
	if *field == zero {
		*field = def
	}
}

// Validate reports every fault of the configuration at once.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("enginesim: "+format, args...))
		}
	}
	want(c.ContextTokens >= 2, "ContextTokens is %d, must be at least 2: a prompt token and an answer token", c.ContextTokens)
	want(c.BlockTokens >= 1, "BlockTokens is %d, must be at least 1", c.BlockTokens)
	want(c.MaxSeqs >= 1, "MaxSeqs is %d, must be at least 1", c.MaxSeqs)
	want(c.StepBudget >= c.MaxSeqs, "StepBudget is %d, must be at least MaxSeqs (%d): every running sequence decodes one token a step", c.StepBudget, c.MaxSeqs)
	if c.BlockTokens >= 1 {
		whole := c.KVTokens / c.BlockTokens * c.BlockTokens
		want(whole >= c.ContextTokens, "KVTokens is %d (%d in whole blocks), must hold one full context of %d tokens", c.KVTokens, whole, c.ContextTokens)
	}
	want(c.KVTokens/max(c.BlockTokens, 1) < 1<<30, "KVTokens is %d, more than 2^30 blocks", c.KVTokens)
	want(c.Speed >= 0, "Speed is %g, must not be negative (0 = no waiting)", c.Speed)
	want(*c.SolveRate >= 0 && *c.SolveRate <= 1, "SolveRate is %g, must be within 0 … 1", *c.SolveRate)
	want(c.LengthMean >= 1, "LengthMean is %g tokens, must be at least 1", c.LengthMean)
	want(c.LengthSigma >= 0 && c.LengthSigma <= 4, "LengthSigma is %g, must be within 0 … 4", c.LengthSigma)
	want(c.KeepAlive > 0, "KeepAlive is %v, must be positive", c.KeepAlive)
	for _, p := range []struct {
		name  string
		value float64
	}{{"Base", c.Step.Base}, {"Floor", c.Step.Floor}, {"PerToken", c.Step.PerToken}, {"PerRead", c.Step.PerRead}, {"PerPair", c.Step.PerPair}} {
		want(p.value >= 0, "Step.%s is %g s, must not be negative", p.name, p.value)
	}
	return errors.Join(append(errs, c.Faults.validate())...)
}
