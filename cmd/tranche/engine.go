package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/sampler/taskfile"
	"tranche/storage"
)

type engineCmd struct {
	Listen    string   `default:"127.0.0.1:8000" placeholder:"ADDR" help:"Address to serve; port 0 takes a free one. Default: ${default}."`
	Model     string   `default:"sim" placeholder:"NAME" help:"Name of the model. Default: ${default}."`
	Seed      int64    `default:"1" placeholder:"N" help:"Seed of every answer and injected fault. Default: ${default}."`
	Speed     float64  `default:"1" placeholder:"X" help:"1 = the pace of a real GPU, 10 = ten times that, 0 = no waiting. Default: ${default}."`
	SolveRate float64  `default:"0.7" placeholder:"SHARE" help:"Share of solvable questions that are answered right, 0 to 1. Default: ${default}."`
	Preset    string   `placeholder:"FILE" help:"Be the engine that this preset of calibrate describes; its model name, step times, memory and limits win over the flags for them."`
	Answers   []string `sep:"none" placeholder:"FILE" help:"Task file whose questions the engine then knows the answers of; may be repeated."`
	Prompt    string   `placeholder:"TEMPLATE" help:"Template for the question in --answers, as for run."`
	Answer    string   `placeholder:"TEMPLATE" help:"Template for the answer in --answers, as for run."`
	Context   int      `default:"8192" placeholder:"TOKENS" help:"Longest prompt and answer of one sequence. Default: ${default} tokens."`
	KVTokens  int      `name:"kv-tokens" default:"65536" placeholder:"TOKENS" help:"KV-cache size. Default: ${default} tokens."`
	MaxSeqs   int      `default:"64" placeholder:"N" help:"Sequences that run at once; others wait. Default: ${default}."`
	Fault     []string `sep:"none" placeholder:"NAME=SHARE" help:"Inject a fault into a share of the requests, e.g. 503=0.05; may be repeated. Names: 429, 500, 503, reset, cut, hang, drip, malformed."`
	APIKeyEnv string   `name:"api-key-env" placeholder:"NAME" help:"NAME of the environment variable that holds the key clients must send. Default: none is asked for."`
	Drain     string   `default:"5s" placeholder:"TIME" help:"After ctrl-c: how long running answers may still finish. Default: ${default}."`
}

// Help is kong's long text of the command.
func (engineCmd) Help() string {
	return "An OpenAI-compatible server that simulates an inference engine: chat and plain completions, streaming, tools, token ids, logprobs, /v1/models, /tokenize, /metrics, /health. Its answers are made up; its timing follows a model of a GPU. It prints its address when it is ready; ctrl-c stops it."
}

func (c *engineCmd) do(ctx context.Context, a *app) error {
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
		return withCode(codeUsage, err)
	}
	if err := a.print(fmt.Sprintf("http://%s/v1\n", server.Addr())); err != nil {
		return errors.Join(err, server.Close(ctx))
	}
	a.notice("simulated engine: model %s, context %d tokens, KV cache %d tokens, %d sequences; ctrl-c stops it", cfg.Model, cfg.ContextTokens, cfg.KVTokens, cfg.MaxSeqs)
	<-a.signals
	a.notice("stopping: waiting up to %s for running answers", drain)
	return closeEngine(ctx, a, server, drain)
}

// closeEngine lets answers finish; a second signal ends at once.
func closeEngine(ctx context.Context, a *app, server *enginesim.Server, drain time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	go func() { // ends with this call
		select {
		case <-a.signals:
			cancel()
		case <-over:
		}
	}()
	if err := server.Close(ctx); err != nil {
		a.notice("%v", err)
	}
	return nil
}

// config turns the flags into the engine's own; all faults at once.
func (c *engineCmd) config(ctx context.Context) (enginesim.Config, time.Duration, error) {
	f := &faults{}
	cfg := enginesim.Config{
		Model: c.Model, Seed: c.Seed, Speed: c.Speed, SolveRate: &c.SolveRate, ContextTokens: c.Context, KVTokens: c.KVTokens, MaxSeqs: c.MaxSeqs,
	}
	if c.Preset != "" {
		p, err := readPreset(c.Preset)
		if err != nil {
			f.add("--preset: %w", err)
		}
		of := p.config()
		of.Seed, of.Speed, of.SolveRate = cfg.Seed, cfg.Speed, cfg.SolveRate
		cfg = of
	}
	checkKeyName(f, "api-key-env", c.APIKeyEnv)
	if c.APIKeyEnv != "" {
		cfg.APIKey = os.Getenv(c.APIKeyEnv)
	}
	for _, text := range c.Fault {
		rule, err := faultRule(text)
		if err != nil {
			f.add("--fault: %w", err)
		}
		cfg.Faults.Rules = append(cfg.Faults.Rules, rule)
	}
	drain, err := time.ParseDuration(c.Drain)
	if err != nil || drain < 0 {
		f.add("--drain: expected a time such as 5s, found %q", c.Drain)
	}
	if len(c.Answers) > 0 {
		tasks := taskfile.Config{Paths: c.Answers, Templates: taskfile.Templates{Prompt: c.Prompt, Answer: c.Answer}, OpenRows: storage.ReadObjects}
		if cfg.Answer, err = answersOf(ctx, tasks); err != nil {
			f.add("--answers: %w", err)
		}
	} else if c.Prompt != "" || c.Answer != "" {
		f.add("--prompt and --answer say how to read --answers; there is none")
	}
	return cfg, drain, f.err()
}

// faultRule reads NAME or NAME=SHARE.
func faultRule(text string) (enginesim.FaultRule, error) {
	name, share, given := strings.Cut(text, "=")
	if !given {
		return enginesim.FaultRule{Fault: name, Rate: 1}, nil
	}
	rate, err := strconv.ParseFloat(share, 64)
	if err != nil {
		return enginesim.FaultRule{}, fmt.Errorf("expected NAME=SHARE such as 503=0.05, found %q", text)
	}
	return enginesim.FaultRule{Fault: name, Rate: rate}, nil
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
