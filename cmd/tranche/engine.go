package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"tranche/action"
	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/sampler/taskfile"
	"tranche/storage"
)

// engineCmd is everything that the simulated engine can be switched to. Sizes and times that are not given (nil, "") are the machine's, else
// the engine's own defaults.
type engineCmd struct {
	Listen    string `default:"127.0.0.1:8000" placeholder:"ADDR" group:"serve" help:"Address to serve; port 0 takes a free one. Default: ${default}."`
	Drain     string `default:"5s" placeholder:"TIME" group:"serve" help:"After ctrl-c: how long running answers may still finish. Default: ${default}."`
	KeepAlive string `default:"5s" placeholder:"TIME" group:"serve" help:"How long an idle connection stays open, as real servers do. Default: ${default}."`
	JSON      bool   `name:"json" group:"serve" help:"Print the address and what is served as one JSON document, not the address alone."`
	APIKeyEnv string `name:"api-key-env" placeholder:"NAME" group:"serve" help:"NAME of the environment variable that holds the key clients must send. Default: none is asked for."`

	Model       string   `placeholder:"NAME" group:"answers" help:"Name of the model. Default: sim, or the preset's."`
	Seed        int64    `default:"1" placeholder:"N" group:"answers" help:"Seed of every answer and injected fault. Default: ${default}."`
	SolveRate   float64  `default:"0.7" placeholder:"SHARE" group:"answers" help:"Share of solvable questions that are answered right, 0 to 1. Default: ${default}."`
	LengthMean  float64  `default:"120" placeholder:"TOKENS" group:"answers" help:"Mean length of free text. Default: ${default} tokens."`
	LengthSigma float64  `default:"0.6" placeholder:"X" group:"answers" help:"Spread of free text: standard deviation of the logarithm of its length, over 0 to 4. Default: ${default}."`
	Calls       string   `enum:"api,tool-call,fenced,python,tags" default:"api" placeholder:"FORM" group:"answers" help:"How it calls tools: api (those of a request, as tool calls); tool-call, fenced, python, tags (also those that stand between <tools> and </tools> in a system message, written as text: what run has for --calls). Default: ${default}."`
	Answers     []string `sep:"none" placeholder:"FILE" group:"answers" help:"Task file whose questions the engine then knows the answers of; may be repeated."`
	Prompt      string   `placeholder:"TEMPLATE" group:"answers" help:"Template for the question in --answers, as for run."`
	Answer      string   `placeholder:"TEMPLATE" group:"answers" help:"Template for the answer in --answers, as for run."`

	Machine       string `placeholder:"NAME" group:"memory" help:"Model and GPU whose published step times, memory and limits to take; the flags below change single ones. 'list' tells the names. Default: none."`
	Preset        string `placeholder:"FILE" group:"memory" help:"The same from a file that calibrate wrote: the engine is like the server that was measured."`
	Context       *int   `placeholder:"TOKENS" group:"memory" help:"Longest prompt and answer of one sequence. Default: 8192 tokens, with --machine 32768."`
	KVTokens      *int   `name:"kv-tokens" placeholder:"TOKENS" group:"memory" help:"KV-cache size, at least the context. Default: 65536 tokens, or the machine's."`
	BlockTokens   *int   `placeholder:"TOKENS" group:"memory" help:"Size of a KV block, and the grain of the prefix cache. Default: 16 tokens."`
	NullBlock     bool   `group:"memory" help:"Take one block out of use, as vLLM does."`
	NoPrefixCache bool   `group:"memory" help:"Nothing is found in a prefix cache, and sequences share no memory."`

	Batching   string `enum:"continuous,static,shaped" default:"continuous" placeholder:"KIND" group:"batching" help:"How sequences are put together: continuous (they come and go at every step); static (padded to the longest, all answered with the last); shaped (padded to fixed shapes, as on TPUs and HPUs). Default: ${default}."`
	MaxSeqs    *int   `placeholder:"N" group:"batching" help:"Sequences that run at once, rows of a padded launch; others wait. Default: 64, or the machine's."`
	StepBudget *int   `placeholder:"TOKENS" group:"batching" help:"Tokens one step computes at most, prompts and answers together; at least --max-seqs. Default: 8192 tokens, or the machine's."`
	Shapes     []int  `placeholder:"TOKENS" group:"batching" help:"Context lengths that --batching shaped pads to, rising, by comma. Default: 128, 256 and so on up to the context."`
	Priority   bool   `group:"batching" help:"Requests of a lower priority value go first and are preempted last. Off: strictly in order of arrival."`

	Speed     float64 `default:"1" placeholder:"X" group:"pace" help:"1 = the pace of a real GPU, 10 = ten times that, 0 = no waiting. Default: ${default}."`
	StepBase  string  `placeholder:"TIME" group:"pace" help:"Each step: launch and scheduling, such as 1.15ms. The default of all six is that of Llama-3.1-8B on an H100, or the machine's."`
	StepFloor string  `placeholder:"TIME" group:"pace" help:"Each step: reading the weights; a step with few tokens takes no less, such as 5.65ms."`
	StepToken string  `placeholder:"TIME" group:"pace" help:"Each token computed, such as 22us."`
	StepSeq   string  `placeholder:"TIME" group:"pace" help:"Each sequence that takes part, such as 4.4us."`
	StepRead  string  `placeholder:"TIME" group:"pace" help:"Each token of context that decoding reads, such as 76ns."`
	StepPair  string  `placeholder:"TIME" group:"pace" help:"Each pair of a prompt token and a token before it, such as 1.05ns."`

	Fault         []string `sep:"none" placeholder:"NAME=SHARE" group:"wrong" help:"Inject a fault into a share of the requests, e.g. 503=0.05; may be repeated, the first that hits wins. NAME=SHARE,first=N: only into the first N; NAME=SHARE,match=TEXT: only where body, X-Request-Id or X-Session-ID hold TEXT. Names: 429, 500, 503, reset, cut, hang, drip, malformed."`
	RetryAfter    string   `default:"1s" placeholder:"TIME" group:"wrong" help:"What injected 429 and 503 ask for, in whole seconds. Default: ${default}."`
	DripPause     string   `default:"20ms" placeholder:"TIME" group:"wrong" help:"Pause between two pieces of 7 bytes of a dripped answer. Default: ${default}."`
	Strict        bool     `group:"wrong" help:"Refuse fields that OpenAI's own interface does not know."`
	Speaks        string   `enum:"vllm,sglang,llama-server" default:"vllm" placeholder:"ENGINE" group:"wrong" help:"Whose own token routes it has beside OpenAI's, and who its model list says it is: vllm (/inference/v1/generate, render, derender), sglang (/generate) or llama-server (/completion, /apply-template). Default: ${default}."`
	NoScaleOut    bool     `group:"wrong" help:"Answer 403 on vLLM's own token routes, as vLLM does without --enable-scale-out."`
	OddTokens     bool     `group:"wrong" help:"Sample some words in other tokens than their text would be cut into, as models do."`
	HideCached    bool     `group:"wrong" help:"Do not tell how much of a prompt was found in the prefix cache, as vLLM does by default."`
	WeightVersion string   `placeholder:"NAME" group:"wrong" help:"Version of the weights, told with each answer. Default: none is told."`
	DevRoutes     bool     `group:"wrong" help:"Serve /pause, /resume, /is_paused, /update_weight_version and /weight_info."`
}

// Help is kong's long text of the command.
func (engineCmd) Help() string {
	return "An OpenAI-compatible server that simulates an inference engine: chat and plain completions, streaming, tools, token ids, logprobs, /v1/models, /tokenize, /metrics, /health. Its answers are made up; its timing follows a model of a GPU. It prints its address when it is ready; ctrl-c stops it."
}

func (c *engineCmd) do(ctx context.Context, a *app) error {
	if c.Machine == "list" {
		return a.print(machineList())
	}
	cfg, drain, err := c.config(ctx)
	if err != nil {
		return withCode(codeUsage, err)
	}
	engine, err := enginesim.New(cfg)
	if err != nil {
		return withCode(codeUsage, err)
	}
	server, err := engine.Listen(c.Listen)
	if err != nil {
		return notServed("--listen", c.Listen, err)
	}
	if err := c.tell(a, fmt.Sprintf("http://%s/v1", server.Addr()), cfg); err != nil {
		return errors.Join(err, server.Close(ctx))
	}
	a.notice("simulated engine: model %s, context %d tokens, KV cache %d tokens, %d sequences, %s batching; ctrl-c stops it", cfg.Model, cfg.ContextTokens, cfg.KVTokens, cfg.MaxSeqs, c.Batching)
	<-a.signals
	a.notice("stopping: waiting up to %s for running answers", drain)
	closeServer(ctx, a, server, drain)
	return nil
}

// tell prints where the engine is, for whoever starts it as a part of something.
func (c *engineCmd) tell(a *app, url string, cfg enginesim.Config) error {
	if !c.JSON {
		return a.print(url + "\n")
	}
	return a.printJSON(struct {
		URL           string `json:"url"`
		Model         string `json:"model"`
		ContextTokens int    `json:"context_tokens"`
		KVTokens      int    `json:"kv_tokens"`
		MaxSeqs       int    `json:"max_seqs"`
		Batching      string `json:"batching"`
	}{url, cfg.Model, cfg.ContextTokens, cfg.KVTokens, cfg.MaxSeqs, c.Batching})
}

// machineList tells what --machine takes.
func machineList() string {
	var b strings.Builder
	for _, m := range enginesim.Presets() {
		fmt.Fprintf(&b, "%-20s KV cache %d tokens, %d sequences, %d tokens a step\n", m.Name, m.KVTokens, m.MaxSeqs, m.StepBudget)
	}
	return b.String()
}

// closeServer lets what a server has begun come to its end; a second signal ends at once.
func closeServer(ctx context.Context, a *app, server interface{ Close(context.Context) error }, drain time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, drain)
	var second sync.WaitGroup
	second.Go(func() {
		select {
		case <-a.signals:
			cancel()
		case <-ctx.Done():
		}
	})
	if err := server.Close(ctx); err != nil {
		a.notice("%v", err)
	}
	cancel()
	second.Wait()
}

// config turns the flags into the engine's own; all faults at once.
func (c *engineCmd) config(ctx context.Context) (enginesim.Config, time.Duration, error) {
	f := &faults{}
	cfg := c.sizes(f)
	cfg.Model = cmp.Or(c.Model, cfg.Model, "sim")
	cfg.Seed, cfg.Speed, cfg.SolveRate = c.Seed, c.Speed, &c.SolveRate
	cfg.LengthMean, cfg.LengthSigma = c.LengthMean, c.LengthSigma
	cfg.NullBlock, cfg.NoPrefixCache, cfg.Priority = cfg.NullBlock || c.NullBlock, c.NoPrefixCache, c.Priority
	cfg.Batching, cfg.Shapes = enginesim.Batching(c.Batching), c.Shapes
	cfg.Calls = writtenCalls(c.Calls)
	cfg.Speaks, cfg.NoScaleOut, cfg.OddTokens = enginesim.Speaks(c.Speaks), c.NoScaleOut, c.OddTokens
	cfg.Strict, cfg.HideCached, cfg.WeightVersion, cfg.DevRoutes = c.Strict, c.HideCached, c.WeightVersion, c.DevRoutes
	cfg.KeepAlive = timeFlag(f, "keep-alive", c.KeepAlive, 1)
	cfg.Faults = c.faults(f)
	c.stepTimes(f, &cfg.Step)
	c.refuseOdd(f, cfg)
	aboveZero(f, "--length-mean", c.LengthMean) // 0 would mean the default
	aboveZero(f, "--length-sigma", c.LengthSigma)
	checkKeyName(f, "api-key-env", c.APIKeyEnv)
	if c.APIKeyEnv != "" {
		cfg.APIKey = os.Getenv(c.APIKeyEnv)
	}
	drain := timeFlag(f, "drain", c.Drain, 0)
	if len(c.Answers) > 0 {
		tasks := taskfile.Config{Paths: c.Answers, Templates: taskfile.Templates{Prompt: c.Prompt, Answer: c.Answer}, OpenRows: storage.ReadObjects}
		var err error
		if cfg.Answer, err = answersOf(ctx, tasks); err != nil {
			f.add("--answers: %w", err)
		}
	}
	if f.err() == nil {
		f.list = append(f.list, flagged(cfg.Validate()))
	}
	return cfg, drain, f.err()
}

func aboveZero(f *faults, flag string, x float64) {
	if !(x > 0) {
		f.add("%s: expected a number above 0, found %g", flag, x)
	}
}

// refuseOdd names the flags that would do nothing beside others.
func (c *engineCmd) refuseOdd(f *faults, cfg enginesim.Config) {
	padded := cfg.Batching != enginesim.Continuous
	if len(c.Shapes) > 0 && cfg.Batching != enginesim.Shaped {
		f.add("--shapes are what --batching shaped pads to; this is --batching %s", c.Batching)
	}
	if n := len(c.Shapes); n > 0 && c.Shapes[n-1] > cfg.ContextTokens {
		f.add("--shapes: %d tokens are more than the longest context, %d (--context)", c.Shapes[n-1], cfg.ContextTokens)
	}
	if padded && c.Priority {
		f.add("--priority is of --batching continuous: a batch that pads takes what has waited longest and preempts nothing; this is --batching %s", c.Batching)
	}
	if padded && c.StepBudget != nil {
		f.add("--step-budget is of --batching continuous: a batch that pads computes all its prompts at once; this is --batching %s", c.Batching)
	}
	if len(c.Answers) == 0 && (c.Prompt != "" || c.Answer != "") {
		f.add("--prompt and --answer say how to read --answers; there is none")
	}
	if c.NoScaleOut && cfg.Speaks != enginesim.SpeaksVLLM {
		f.add("--no-scale-out is about vLLM's routes; this is --speaks %s", c.Speaks)
	}
	if c.Machine != "" && c.Preset != "" {
		f.add("--preset and --machine both say what the engine is like; expected one of them")
	}
}

// sizes are the machine's, changed by the flags that were given.
func (c *engineCmd) sizes(f *faults) enginesim.Config {
	cfg := enginesim.Config{ContextTokens: 8192, KVTokens: 65536, BlockTokens: 16, MaxSeqs: 64, StepBudget: 8192, Step: enginesim.DefaultStep()}
	if c.Machine != "" {
		m, err := enginesim.Preset(c.Machine)
		if err != nil {
			f.add("--machine: expected one of these, found %q:\n%s", c.Machine, strings.TrimRight(machineList(), "\n"))
		} else {
			cfg = m.Config()
			cfg.BlockTokens = 16
		}
	}
	if c.Preset != "" {
		p, err := readPreset(c.Preset)
		if err != nil {
			f.add("--preset: %w", err)
		} else {
			cfg = p.config()
		}
	}
	for _, x := range []struct {
		flag  string
		given *int
		field *int
	}{
		{"context", c.Context, &cfg.ContextTokens}, {"kv-tokens", c.KVTokens, &cfg.KVTokens}, {"block-tokens", c.BlockTokens, &cfg.BlockTokens},
		{"max-seqs", c.MaxSeqs, &cfg.MaxSeqs}, {"step-budget", c.StepBudget, &cfg.StepBudget},
	} {
		if x.given == nil {
			continue
		}
		if *x.given < 1 {
			f.add("--%s: expected 1 or more, found %d", x.flag, *x.given)
		}
		*x.field = *x.given
	}
	return cfg
}

// timeFlag reads a time of at least so many nanoseconds.
func timeFlag(f *faults, name, text string, least time.Duration) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d < least {
		f.add("--%s: expected a time such as 5s, found %q", name, text)
	}
	return d
}

// stepTimes puts the step times that were given in the place of others.
func (c *engineCmd) stepTimes(f *faults, s *enginesim.StepTime) {
	for _, x := range []struct {
		flag, text string
		field      *float64
	}{
		{"step-base", c.StepBase, &s.Base}, {"step-floor", c.StepFloor, &s.Floor}, {"step-token", c.StepToken, &s.PerToken},
		{"step-seq", c.StepSeq, &s.PerSeq}, {"step-read", c.StepRead, &s.PerRead}, {"step-pair", c.StepPair, &s.PerPair},
	} {
		if x.text == "" {
			continue
		}
		v, ok := fineTime(x.text)
		if !ok {
			f.add("--%s: expected a time such as 1.15ms, 22us or 1.05ns, found %q", x.flag, x.text)
		}
		*x.field = v
	}
	if *s == (enginesim.StepTime{}) {
		f.add("--step-base and the other step times: at least one must be more than 0; --speed 0 is how not to wait")
	}
}

// fineTime reads a time in seconds, finer than a nanosecond where need be.
func fineTime(text string) (float64, bool) {
	for _, unit := range []struct {
		name    string
		seconds float64
	}{{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3}, {"s", 1}} {
		if number, ok := strings.CutSuffix(text, unit.name); ok {
			v, err := strconv.ParseFloat(number, 64)
			return v * unit.seconds, err == nil && v >= 0 && !math.IsInf(v, 0)
		}
	}
	return 0, text == "0"
}

func (c *engineCmd) faults(f *faults) enginesim.Faults {
	all := enginesim.Faults{RetryAfter: timeFlag(f, "retry-after", c.RetryAfter, 1), DripPause: timeFlag(f, "drip-pause", c.DripPause, 1)}
	for _, text := range c.Fault {
		rule, err := faultRule(text)
		if err != nil {
			f.add("--fault: %w", err)
		}
		all.Rules = append(all.Rules, rule)
	}
	return all
}

// flagged says what is wrong with an engine in the words of the command line.
func flagged(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.NewReplacer(
		"enginesim: ", "", "ContextTokens is", "--context is", "BlockTokens is", "--block-tokens is", "MaxSeqs is", "--max-seqs is", "StepBudget is", "--step-budget is",
		"at least MaxSeqs", "at least --max-seqs", "KVTokens is", "--kv-tokens is", "Shapes is", "--shapes is", "Speed is", "--speed is", "SolveRate is", "--solve-rate is",
		"LengthMean is", "--length-mean is", "LengthSigma is", "--length-sigma is", "Faults.Rules", "--fault: rule ",
	).Replace(err.Error()))
}

// faultRule reads NAME, NAME=SHARE and what may follow by comma: first=N, match=TEXT (which takes the rest).
func faultRule(text string) (enginesim.FaultRule, error) {
	head, tail, _ := strings.Cut(text, ",")
	rule := enginesim.FaultRule{Rate: 1}
	name, share, given := strings.Cut(head, "=")
	rule.Fault = name
	expected := fmt.Errorf("expected NAME=SHARE such as 503=0.05, 503=1,first=3 or reset=0.5,match=TEXT, found %q", text)
	var err error
	if given {
		if rule.Rate, err = strconv.ParseFloat(share, 64); err != nil {
			return enginesim.FaultRule{}, expected
		}
	}
	for tail != "" {
		if match, ok := strings.CutPrefix(tail, "match="); ok && match != "" {
			rule.Match = match
			return rule, nil
		}
		head, tail, _ = strings.Cut(tail, ",")
		number, ok := strings.CutPrefix(head, "first=")
		if rule.First, err = strconv.Atoi(number); !ok || err != nil || rule.First < 1 {
			return enginesim.FaultRule{}, expected
		}
	}
	return rule, nil
}

// answersOf reads the answers of a task file for the simulated engine: the last user message is the question.
func answersOf(ctx context.Context, cfg taskfile.Config) (func(string) (string, bool), error) {
	tasks, err := taskfile.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	pairs := map[string]string{}
	for {
		t, err := tasks.Next()
		switch {
		case errors.Is(err, io.EOF):
			return enginesim.AnswerTable(pairs), tasks.Close()
		case err != nil:
			return nil, errors.Join(err, tasks.Close())
		case t.Answer != nil:
			pairs[question(t)] = *t.Answer
		}
	}
}

// question is the last thing a user says in a task's prompt.
func question(t *episode.Task) string {
	for i := len(t.Messages) - 1; i >= 0; i-- {
		if t.Messages[i].Role == episode.RoleUser {
			return t.Messages[i].Text()
		}
	}
	return ""
}

// writtenCalls is the form in which an engine's model writes calls, for a call format by name.
func writtenCalls(format string) enginesim.WrittenCalls {
	switch format {
	case action.CallsToolCall, action.CallsFenced, action.CallsPython, action.CallsTags:
		return enginesim.WrittenCalls(format)
	}
	return enginesim.WritesNone
}
