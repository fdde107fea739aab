package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/inference/enginesim"
)

// engineConfig parses a command line of the engine and makes its configuration.
func engineConfig(t *testing.T, args ...string) (enginesim.Config, error) {
	t.Helper()
	inv, done, err := newShell(t).app.parse(append([]string{"engine"}, args...))
	if err != nil || done {
		t.Fatalf("%v: %v", args, err)
	}
	cfg, _, err := inv.cli.Engine.config(t.Context())
	return cfg, err
}

// The engine's defaults on the command line are its own, so that there is but one engine.
func TestEngineDefaultsAreTheEnginesOwn(t *testing.T) {
	cfg, err := engineConfig(t)
	if err != nil {
		t.Fatal(err)
	}
	want := enginesim.Config{
		Model: "sim", Seed: 1, Speed: 1, SolveRate: cfg.SolveRate, ContextTokens: 8192, KVTokens: 65536, BlockTokens: 16, MaxSeqs: 64, StepBudget: 8192,
		Step: enginesim.DefaultStep(), Batching: enginesim.Continuous, LengthMean: 120, LengthSigma: 0.6, KeepAlive: 5 * time.Second,
		Faults: enginesim.Faults{RetryAfter: time.Second, DripPause: 20 * time.Millisecond}, Speaks: enginesim.SpeaksVLLM,
	}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
}

func TestEngineFlagsReachTheEngine(t *testing.T) {
	cfg, err := engineConfig(t, "--machine", "llama-3.1-8b-a100", "--context", "4096", "--block-tokens", "32", "--null-block", "--no-prefix-cache",
		"--batching", "shaped", "--shapes", "128,4096", "--max-seqs", "16", "--step-pair", "1.05ns", "--step-base", "2ms", "--keep-alive", "1s", "--strict",
		"--hide-cached", "--dev-routes", "--weight-version", "v1", "--speaks", "sglang", "--odd-tokens", "--calls", "tags", "--length-mean", "50", "--length-sigma", "1", "--speed", "0",
		"--fault", "503=0.5,first=3", "--fault", "reset=1,match=a,b=c", "--retry-after", "2s", "--drip-pause", "1ms")
	if err != nil {
		t.Fatal(err)
	}
	m, _ := enginesim.Preset("llama-3.1-8b-a100")
	step := m.Step
	step.Base, step.PerPair = 2e-3, 1.05e-9
	want := enginesim.Config{
		Model: "sim", Seed: 1, SolveRate: cfg.SolveRate, ContextTokens: 4096, KVTokens: m.KVTokens, BlockTokens: 32, MaxSeqs: 16, StepBudget: m.StepBudget,
		NullBlock: true, NoPrefixCache: true, Step: step, Batching: enginesim.Shaped, Shapes: []int{128, 4096}, LengthMean: 50, LengthSigma: 1,
		KeepAlive: time.Second, Strict: true, HideCached: true, DevRoutes: true, WeightVersion: "v1", Speaks: enginesim.SpeaksSGLang, OddTokens: true, Calls: enginesim.WritesTags,
		Faults: enginesim.Faults{
			Rules:      []enginesim.FaultRule{{Fault: "503", Rate: 0.5, First: 3}, {Fault: "reset", Rate: 1, Match: "a,b=c"}},
			RetryAfter: 2 * time.Second, DripPause: time.Millisecond,
		},
	}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
	if cfg, err := engineConfig(t, "--no-scale-out"); err != nil || !cfg.NoScaleOut {
		t.Errorf("%v, no scale-out %v; want on", err, cfg.NoScaleOut)
	}
	if _, err := engineConfig(t, "--no-scale-out", "--speaks", "sglang"); err == nil {
		t.Error("a flag that does nothing is taken")
	}
	if cfg, err := engineConfig(t, "--priority", "--step-budget", "4096"); err != nil || !cfg.Priority || cfg.StepBudget != 4096 {
		t.Errorf("%v, priority %v, step budget %d; want on and 4096", err, cfg.Priority, cfg.StepBudget)
	}
}

// Flags that would do nothing beside others are refused, each in one line that names it; both of the pair alone are fine.
func TestEngineRefusesOddPairs(t *testing.T) {
	preset := write(t, "small.yaml", "model: tiny\ncontext_tokens: 1024\nkv_tokens: 4096\nblock_tokens: 16\nnull_block: true\nmax_seqs: 8\nstep_budget: 512\n"+
		"step: {base: 0.001, floor: 0, per_token: 0, per_sequence: 0, per_read: 0, per_pair: 0}\nrequest: 0\n")
	flag := func(words ...string) []string { return words }
	for _, c := range []struct {
		name      string
		one, with []string
		want      string
	}{
		{"shapes, static", flag("--shapes", "128"), flag("--batching", "static"), "--shapes are what --batching shaped pads to; this is --batching static"},
		{"shapes, continuous", flag("--shapes", "128"), flag("--batching", "continuous"), "--shapes are what --batching shaped pads to; this is --batching continuous"},
		{"shapes, context", flag("--batching", "shaped", "--shapes", "128,2048"), flag("--context", "1024"), "--shapes: 2048 tokens are more than the longest context, 1024 (--context)"},
		{"priority, static", flag("--priority"), flag("--batching", "static"), "--priority is of --batching continuous"},
		{"priority, shaped", flag("--priority"), flag("--batching", "shaped"), "--priority is of --batching continuous"},
		{"step budget, static", flag("--step-budget", "4096"), flag("--batching", "static"), "--step-budget is of --batching continuous"},
		{"step budget, shaped", flag("--step-budget", "4096"), flag("--batching", "shaped"), "--step-budget is of --batching continuous"},
		{"machine, preset", flag("--machine", "llama-3.1-8b-a100"), flag("--preset", preset), "--preset and --machine both say what the engine is like"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := engineConfig(t, append(slices.Clone(c.one), c.with...)...)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line that begins with %q", err, c.want)
			}
			if !strings.HasPrefix(c.name, "shapes, ") || c.one[0] == "--batching" { // shapes are of one kind of batching only
				if _, err := engineConfig(t, c.one...); err != nil {
					t.Errorf("%v alone: %v", c.one, err)
				}
			}
			if _, err := engineConfig(t, c.with...); err != nil {
				t.Errorf("%v alone: %v", c.with, err)
			}
		})
	}
	if _, err := engineConfig(t, "--batching", "static", "--priority", "--step-budget", "4096", "--shapes", "128", "--answer", "x"); err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("got %v, want four lines at once", err)
	}
}

func TestEngineRefusesBadValuesInTheWordsOfItsFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"--context: expected 1 or more, found 0":                               {"--context", "0"},
		"--kv-tokens is 100 (96 in usable blocks), must hold one full context": {"--kv-tokens", "100"},
		"--step-budget is 8, must be at least --max-seqs (64)":                 {"--step-budget", "8"},
		"--speed is -1":       {"--speed=-1"},
		"--solve-rate is 2":   {"--solve-rate", "2"},
		"--length-sigma is 9": {"--length-sigma", "9"},
		"--length-mean: expected a number above 0, found 0":                         {"--length-mean", "0"},
		"--shapes is [4 2], must be at least one length":                            {"--batching", "shaped", "--shapes", "4,2"},
		"--shapes are what --batching shaped pads to; this is --batching static":    {"--batching", "static", "--shapes", "4"},
		"--machine: expected one of these, found \"tpu\"":                           {"--machine", "tpu"},
		"--step-token: expected a time such as 1.15ms, 22us or 1.05ns, found \"x\"": {"--step-token", "x"},
		"--step-read: expected a time":                                              {"--step-read=-1ns"},
		"--keep-alive: expected a time such as 5s, found \"0s\"":                    {"--keep-alive", "0s"},
		"--drain: expected a time such as 5s, found \"soon\"":                       {"--drain", "soon"},
		"expected NAME=SHARE such as 503=0.05, 503=1,first=3":                       {"--fault", "503=1,first=x"},
		"--fault: rule [0].Fault is \"nonsense\"":                                   {"--fault", "nonsense=1"},
		"--fault: rule [0].Rate is 2":                                               {"--fault", "503=2"},
		"at least one must be more than 0":                                          {"--step-base", "0", "--step-floor", "0", "--step-token", "0", "--step-seq", "0", "--step-read", "0", "--step-pair", "0"},
		"--prompt and --answer say how to read --answers":                           {"--prompt", "{{.q}}"},
	} {
		_, err := engineConfig(t, args...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q in it", args, err, want)
			continue
		}
		if strings.Contains(err.Error(), "enginesim") || strings.Count(err.Error(), "\n") > 4 {
			t.Errorf("%v: not one message in the words of the flags: %v", args, err)
		}
	}
}
