package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"tranche/bench"
	"tranche/episode"
	"tranche/inference"
	"tranche/inference/enginesim"
)

// serverFlags say which one server a measurement is of.
type serverFlags struct {
	Endpoint  string `required:"" placeholder:"URL" help:"The server, such as http://127.0.0.1:8000/v1. Nothing else may run on it meanwhile."`
	Model     string `placeholder:"NAME" help:"Model to ask for. Default: the only one the server lists."`
	APIKeyEnv string `name:"api-key-env" placeholder:"NAME" help:"NAME of the environment variable that holds the server's key. Default: none is sent."`
}

// open connects to the server and checks that it tells what a measurement needs.
func (s serverFlags) open(ctx context.Context, calls int) (*inference.Endpoint, error) {
	f := &faults{}
	checkKeyName(f, "--api-key-env", s.APIKeyEnv)
	if err := f.err(); err != nil {
		return nil, withCode(codeUsage, err)
	}
	cfg := inference.Config{BaseURL: s.Endpoint, Model: s.Model, Concurrency: calls}
	if s.APIKeyEnv != "" {
		cfg.APIKey = os.Getenv(s.APIKeyEnv)
	}
	if err := cfg.Validate(); err != nil {
		return nil, withCode(codeUsage, err)
	}
	e, err := inference.Open(ctx, cfg)
	if err != nil {
		return nil, withCode(codeEndpoint, err)
	}
	if err := fit(ctx, e); err != nil {
		e.Close()
		return nil, withCode(codeEndpoint, fmt.Errorf("endpoint %s cannot be measured: %w", e.Name(), err))
	}
	return e, nil
}

// fit says what the server lacks: metrics that tell its KV cache, counters, or a completions route that takes and gives token ids.
func fit(ctx context.Context, e *inference.Endpoint) error {
	c := e.Capacity()
	if c.KVTokens == 0 || c.BlockTokens == 0 || c.ContextTokens == 0 {
		return fmt.Errorf("it does not tell its KV cache (%d tokens in blocks of %d, contexts up to %d): GET /metrics with vllm:cache_config_info is needed, as vLLM has it", c.KVTokens, c.BlockTokens, c.ContextTokens)
	}
	l, err := e.Load(ctx)
	if err != nil {
		return err
	}
	if l.PrefixQueries == nil || l.Hits == nil || l.Preemptions == nil {
		return bench.ErrNoCounters
	}
	_, err = e.Continue(ctx, episode.Continuation{ID: "fit", Prompt: []int32{300, 301}, Tokens: 1, Salt: runName()})
	return err
}

// runName is a name that no other measurement has: prefixes that one left in a server must not help another.
func runName() string { return "tranche-" + strconv.FormatInt(time.Now().UnixNano(), 36) }

type calibrateCmd struct {
	serverFlags
	StepBudget int    `default:"2048" placeholder:"TOKENS" help:"Tokens the server computes in a step at most (max_num_batched_tokens); no server tells. Default: ${default}."`
	MaxSeqs    int    `default:"256" placeholder:"N" help:"Sequences the server runs at once (max_num_seqs); no server tells. Default: ${default}."`
	Repeats    int    `default:"3" placeholder:"N" help:"Times each measurement is made; the median counts. Default: ${default}."`
	Out        string `short:"o" placeholder:"FILE" help:"Write the preset there too."`
	JSON       bool   `name:"json" help:"Print one JSON document: the preset, and how far the fit is off each measurement."`
}

// Help is kong's long text of the command.
func (calibrateCmd) Help() string {
	return "Measures how long the steps of a real server take, by decodes of several widths and contexts and by prompts short and long, with and without a cached beginning, and fits the step-time model of the simulated engine to it. Prints the preset, a YAML file that `engine --preset`, `bench sched --preset` and `bench real --simulate` read, and how well it explains each measurement. The server must be idle, give token ids and count cached tokens: vLLM with --enable-prompt-tokens-details. Takes a few minutes."
}

func (c *calibrateCmd) do(ctx context.Context, a *app) error {
	f := &faults{}
	atLeast(f, "--step-budget", c.StepBudget, 1)
	atLeast(f, "--max-seqs", c.MaxSeqs, 1)
	atLeast(f, "--repeats", c.Repeats, 1)
	if err := f.err(); err != nil {
		return withCode(codeUsage, err)
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	e, err := c.open(ctx, 16)
	if err != nil {
		return err
	}
	defer e.Close()
	m := bench.Measure{
		Server: e, Capacity: e.Capacity(), StepBudget: c.StepBudget, Repeats: c.Repeats, Run: runName(),
		Done: func(what string, s enginesim.StepSample) {
			a.notice("%s: %d steps in %v", what, s.Steps, s.Duration.Round(100*time.Microsecond))
		},
	}
	samples, err := m.Samples(ctx)
	switch {
	case ctx.Err() != nil:
		a.notice("stopped: a fit needs all measurements, so there is none")
		return outcome(stopped())
	case err != nil:
		return withCode(codeEndpoint, err)
	}
	fit, err := enginesim.Calibrate(samples)
	if err != nil {
		return withCode(codeEndpoint, err)
	}
	if fit.Step.Base+fit.Step.Floor < leastStep {
		return withCode(codeEndpoint, errors.New("the measurements say that a step takes no time at all: something else ran on the server or on this machine; try again when both are idle, with more --repeats"))
	}
	found := c.preset(e, fit)
	text, err := found.text(aboutFit(e, samples, fit))
	if err != nil {
		return err
	}
	if c.Out != "" {
		if err := os.WriteFile(c.Out, []byte(text), 0o644); err != nil {
			return withCode(codeDisk, fmt.Errorf("write the preset: %w", err))
		}
	}
	if c.JSON {
		return a.printJSON(fitDocument{found, fit.Residuals})
	}
	return a.print(text)
}

// fitDocument is what --json prints.
type fitDocument struct {
	Preset    preset    `json:"preset"`
	Residuals []float64 `json:"residuals"` // fitted over measured, less one, of each measurement
}

// leastStep is shorter than any engine's step, seconds.
const leastStep = 10e-6

func (c *calibrateCmd) preset(e *inference.Endpoint, fit enginesim.Fit) preset {
	has := e.Capacity()
	return preset{
		Model: e.Model(), ContextTokens: has.ContextTokens, KVTokens: has.KVTokens, BlockTokens: has.BlockTokens,
		NullBlock: e.Kind() == inference.KindVLLM, MaxSeqs: c.MaxSeqs, StepBudget: max(c.StepBudget, c.MaxSeqs),
		Step: stepPreset(fit.Step), Request: fit.Request.Seconds(),
	}
}

// aboutFit is the comment above a preset: where it comes from, and measured beside fitted.
func aboutFit(e *inference.Endpoint, samples []enginesim.StepSample, fit enginesim.Fit) string {
	var b, table strings.Builder
	fmt.Fprintf(&b, "Fitted by tranche calibrate on %s from model %s, %s %s. Seconds; max_seqs and step_budget were told.\n", time.Now().Format(time.DateOnly), e.Model(), e.Kind(), e.Version())
	fmt.Fprintf(&b, "Use: tranche engine --preset FILE; tranche bench sched --preset FILE; tranche bench real --simulate FILE\n\n")
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "steps\ttokens a step\tcontext\tmeasured ms a step\tfitted\toff\t")
	squares := 0.0
	for i, s := range samples {
		ms := s.Duration.Seconds() * 1e3 / float64(s.Steps)
		context := float64(s.Reads) / float64(s.Seqs)
		if s.Pairs > 0 {
			context = s.Pairs / float64(s.Tokens)
		}
		fmt.Fprintf(t, "%d\t%d\t%.0f\t%.2f\t%.2f\t%+.0f %%\t\n", s.Steps, s.Tokens/s.Steps, context, ms, ms*(1+fit.Residuals[i]), 100*fit.Residuals[i])
		squares += fit.Residuals[i] * fit.Residuals[i]
	}
	_ = t.Flush() // a strings.Builder takes everything
	fmt.Fprintf(&b, "%sroot mean square of the last column: %.1f %%\n", table.String(), 100*math.Sqrt(squares/float64(len(samples))))
	return "# " + strings.ReplaceAll(strings.TrimRight(b.String(), "\n"), "\n", "\n# ") + "\n"
}

// cancelOnSignal returns a context that ends with the first signal; a second one ends the program.
func cancelOnSignal(parent context.Context, a *app) (ctx context.Context, stopped func() code, release func()) {
	stop, stopped, freed := stopOnSignal(parent, a)
	ctx, cancel := context.WithCancelCause(parent)
	unhook := make(chan struct{})
	go func() { // ends with release
		defer close(unhook)
		select {
		case <-stop:
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, stopped, func() { cancel(nil); <-unhook; freed() }
}
