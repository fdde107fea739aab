package enginesim

import (
	"errors"
	"fmt"
	"slices"
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
	// NullBlock takes one block of KVTokens out of use, as vLLM reserves one. Default false: KVTokens is what can be used.
	NullBlock bool
	// NoPrefixCache makes every sequence compute and hold all of its prompt: nothing is found, nothing is shared. Default false.
	NoPrefixCache bool
	// Priority lets requests of lower priority value go first and be preempted last. Default false: strictly in order of arrival.
	Priority bool
	// Batching is how sequences are put together. Default Continuous; see there for the kinds that pad, which have no prefix cache.
	Batching Batching
	// Shapes are the context lengths, tokens, rising, that a Shaped engine pads to. Default 128, 256 … up to ContextTokens.
	Shapes []int
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
	// Strict refuses requests with fields that OpenAI's own interface does not know, as servers with extra="forbid" do. Default false:
	// unknown fields are ignored.
	Strict bool
	// DevRoutes adds /pause, /resume, /is_paused, /update_weight_version and /weight_info. Default false, as on vLLM.
	DevRoutes bool
	// WeightVersion names the weights; answers then carry it as SGLang's do, in metadata.weight_version. Default "": they say nothing, as
	// vLLM's, until /update_weight_version names some.
	WeightVersion string
	// Speaks is whose own token routes the engine has beside OpenAI's. Default SpeaksVLLM.
	Speaks Speaks
	// NoScaleOut makes vLLM's generate, render and derender routes answer 403, as vLLM does without --enable-scale-out. Default false.
	NoScaleOut bool
	// OddTokens samples some words in smaller pieces than the tokenizer would cut them into, as models do: the ids of the answer are then
	// not those of its text. Default false.
	OddTokens bool
	// Calls is the form in which tool calls are written as text where a system message tells of tools. Default WritesNone.
	Calls WrittenCalls
	// HideCached leaves prompt_tokens_details out of usage, as vLLM does unless told otherwise. Default false: it is told.
	HideCached bool
}

// StepTime is the duration of one engine step:
//
//	t = Base + max(Floor, PerToken·n) + PerSeq·s + PerRead·K + PerPair·Σ u·x
//
// n = tokens computed in the step, s = sequences that take part, K = KV tokens read by those that decode, u and x = length of each
// prompt chunk and its mean context. Every figure in seconds.
type StepTime struct {
	Base     float64 // launch and scheduling, each step
	Floor    float64 // reading the weights once: a step with few tokens takes no less
	PerToken float64 // compute of one token
	PerSeq   float64 // handling one sequence
	PerRead  float64 // reading one token of KV
	PerPair  float64 // attention of one prompt token to one context token
}

// DefaultStep is that of Preset "llama-3.1-8b-h100".
func DefaultStep() StepTime { return machines()[0].Step }

// work is what one step computes.
type work struct {
	tokens, seqs, reads int
	pairs               float64 // prompt tokens times their context
	growth              int     // by which reads grow in the next step when all only decode
}

func (s StepTime) duration(w work) time.Duration {
	t := s.Base + max(s.Floor, s.PerToken*float64(w.tokens)) + s.PerSeq*float64(w.seqs) + s.PerRead*float64(w.reads) + s.PerPair*w.pairs
	return time.Duration(t * float64(time.Second))
}

// PadsTo is Shapes or, where they are not given, their default.
func (c Config) PadsTo() []int {
	if c.Shapes != nil {
		return c.Shapes
	}
	var shapes []int
	for n := 128; n < c.ContextTokens; n *= 2 {
		shapes = append(shapes, n)
	}
	return append(shapes, max(1, c.ContextTokens))
}

func (c Config) withDefaults() Config {
	pick(&c.Model, "sim")
	pick(&c.ContextTokens, 8192)
	pick(&c.KVTokens, 65536)
	pick(&c.BlockTokens, 16)
	pick(&c.MaxSeqs, 64)
	pick(&c.StepBudget, 8192)
	pick(&c.Step, DefaultStep())
	pick(&c.Batching, Continuous)
	pick(&c.Speaks, SpeaksVLLM)
	c.Shapes = c.PadsTo()
	pick(&c.LengthMean, 120)
	pick(&c.LengthSigma, 0.6)
	pick(&c.KeepAlive, 5*time.Second)
	pick(&c.Faults.RetryAfter, time.Second)
	pick(&c.Faults.DripPause, 20*time.Millisecond)
	pick(&c.Faults.Linger, 100*time.Millisecond)
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

// allBlocks is the number of KV blocks there are.
func (c Config) allBlocks() int { return c.KVTokens / c.BlockTokens }

// blocks is the number of KV blocks that sequences can hold.
func (c Config) blocks() int {
	n := c.allBlocks()
	if c.NullBlock {
		n--
	}
	return n
}

func rising(lengths []int) bool {
	for i, n := range lengths {
		if n < 1 || i > 0 && n <= lengths[i-1] {
			return false
		}
	}
	return len(lengths) > 0
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
		usable := c.blocks() * c.BlockTokens
		want(usable >= c.ContextTokens, "KVTokens is %d (%d in usable blocks), must hold one full context of %d tokens", c.KVTokens, usable, c.ContextTokens)
	}
	want(c.KVTokens/max(c.BlockTokens, 1) < 1<<30, "KVTokens is %d, more than 2^30 blocks", c.KVTokens)
	want(slices.Contains([]Speaks{SpeaksVLLM, SpeaksSGLang, SpeaksLlama}, c.Speaks), "Speaks is %q, must be %s, %s or %s", c.Speaks, SpeaksVLLM, SpeaksSGLang, SpeaksLlama)
	want(slices.Contains(writtenForms(), c.Calls), "Calls is %q, must be one of %q", c.Calls, writtenForms())
	want(slices.Contains([]Batching{Continuous, Static, Shaped}, c.Batching), "Batching is %q, must be %s, %s or %s", c.Batching, Continuous, Static, Shaped)
	want(rising(c.Shapes), "Shapes is %v, must be at least one length of at least 1 token, rising", c.Shapes)
	want(c.Speed >= 0, "Speed is %g, must not be negative (0 = no waiting)", c.Speed)
	want(*c.SolveRate >= 0 && *c.SolveRate <= 1, "SolveRate is %g, must be within 0 … 1", *c.SolveRate)
	want(c.LengthMean >= 1, "LengthMean is %g tokens, must be at least 1", c.LengthMean)
	want(c.LengthSigma >= 0 && c.LengthSigma <= 4, "LengthSigma is %g, must be within 0 … 4", c.LengthSigma)
	want(c.KeepAlive > 0, "KeepAlive is %v, must be positive", c.KeepAlive)
	for _, p := range []struct {
		name  string
		value float64
	}{{"Base", c.Step.Base}, {"Floor", c.Step.Floor}, {"PerToken", c.Step.PerToken}, {"PerSeq", c.Step.PerSeq}, {"PerRead", c.Step.PerRead}, {"PerPair", c.Step.PerPair}} {
		want(p.value >= 0, "Step.%s is %g s, must not be negative", p.name, p.value)
	}
	return errors.Join(append(errs, c.Faults.validate())...)
}
