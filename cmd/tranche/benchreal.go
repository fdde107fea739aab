package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tranche/bench"
	"tranche/episode"
)

type benchRealCmd struct {
	serverFlags
	Workload  string   `short:"w" default:"vllm-a" enum:"vllm-a,vllm-b" placeholder:"NAME" help:"vllm-a: short episodes, made for 16,512 KV tokens; vllm-b: longer prompts, made for 32,896. Default: ${default}."`
	Policy    []string `short:"p" default:"tranche,flood,cap-4,cap-6,cap-8,cap-10,cap-12,cap-16" placeholder:"NAME" help:"Policies to compare, as for bench sched, several by comma; flood is always played. Default: ${default}."`
	Repeats   int      `default:"3" placeholder:"N" help:"Times each policy plays, all in turn; figures are medians. Default: ${default}."`
	Episodes  int      `placeholder:"N" help:"Episodes. Default: the workload's own, 40 or 36."`
	TimeScale float64  `default:"1" placeholder:"FACTOR" help:"Actions last this share of their time: for a trial run, or a server that is simulated at another speed. Default: ${default}."`
	Seed      uint64   `default:"1" placeholder:"N" help:"Decides lengths, pauses and prompts; equal for all policies. Default: ${default}."`
	Simulate  string   `placeholder:"FILE" help:"Play the same on a simulated engine with this preset of calibrate, in virtual time, and print it beside."`
	JSON      bool     `name:"json" help:"Write JSON instead of a table."`
}

// Help is kong's long text of the command.
func (benchRealCmd) Help() string {
	return "Plays whole multi-turn episodes on one real server through every policy, in turn, and compares them: time, prompt tokens computed, prefix-cache hits, preemptions, the latter three as the server counts them. Prompts are random, the server's own ids go back exactly, answers have fixed lengths and every run its own cache salt. Policies are told nothing but what the server says of itself. Needs vLLM, or another server with its /metrics and ids in /v1/completions. Ctrl-c prints what was played so far."
}

// realPlan is a checked command line.
type realPlan struct {
	load     bench.Workload
	policies []bench.Contestant
	preset   *preset
}

func (c *benchRealCmd) plan() (realPlan, error) {
	f := &faults{}
	var p realPlan
	var err error
	if p.policies, err = bench.Named(append([]string{"flood"}, c.Policy...)); err != nil {
		f.add("--policy: %w", err)
	}
	if c.Repeats < 1 || c.Episodes < 0 || !(c.TimeScale >= 0) {
		f.add("--repeats must be at least 1, --episodes and --time-scale not negative; found %d, %d and %g", c.Repeats, c.Episodes, c.TimeScale)
	}
	if c.Simulate != "" {
		read, err := readPreset(c.Simulate)
		if err != nil {
			f.add("--simulate: %w", err)
		}
		p.preset = &read
	}
	load := bench.VLLMA()
	if c.Workload == bench.VLLMB().Name {
		load = bench.VLLMB()
	}
	if c.Episodes > 0 {
		load.Episodes = c.Episodes
	}
	load.Action = time.Duration(float64(load.Action) * c.TimeScale)
	p.load = load.Draw(load.Episodes, c.Seed)
	return p, f.err()
}

// gaugeEvery is how often policies see the server's gauges, as in a run.
const gaugeEvery = 5 * time.Second

func (c *benchRealCmd) do(ctx context.Context, a *app) error {
	plan, err := c.plan()
	if err != nil {
		return withCode(codeUsage, err)
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	e, err := c.open(ctx, len(plan.load.Episodes))
	if err != nil {
		return err
	}
	defer e.Close()
	a.notice("%s: %s %s, model %s, %d KV tokens in blocks of %d", e.Name(), e.Kind(), e.Version(), e.Model(), e.Capacity().KVTokens, e.Capacity().BlockTokens)
	real := bench.Real{
		Server: e, Gauge: e, Capacity: e.Capacity(), Workload: plan.load, Policies: plan.policies, Repeats: c.Repeats,
		GaugeEvery: gaugeEvery, Run: runName(), Seed: c.Seed,
		Done: func(policy string, repeat int, r bench.Result) {
			a.notice("repeat %d, %s: %.1f s, hits %.2f, %d prompt tokens computed, %d preemptions", repeat+1, policy, r.Makespan.Seconds(), r.HitRate(), r.Computed, r.Preemptions)
		},
	}
	report, played := real.Play(ctx)
	if len(report.Rows) == 0 && errors.Is(played, bench.ErrStopped) {
		a.notice("stopped before the first policy had played to its end: there is nothing to show")
	}
	if len(report.Rows) > 0 {
		if err := c.show(a, plan, e.Capacity(), report); err != nil {
			return errors.Join(err, played)
		}
	}
	switch {
	case errors.Is(played, bench.ErrStopped):
		return outcome(stopped())
	case played != nil:
		return withCode(codeEndpoint, played)
	}
	return nil
}

// show prints the report, the simulation beside it where one is asked for. Block size and capacity are the real server's.
func (c *benchRealCmd) show(a *app, plan realPlan, has episode.Capacity, report bench.RealReport) error {
	if plan.preset != nil {
		engine := plan.preset.config()
		engine.KVTokens, engine.BlockTokens, engine.ContextTokens = has.KVTokens, has.BlockTokens, has.ContextTokens
		if err := report.Beside(plan.load, plan.policies, engine, plan.preset.request(), gaugeEvery, c.Seed); err != nil {
			return fmt.Errorf("simulate: %w", err)
		}
	}
	if c.JSON {
		return a.printJSON(report)
	}
	var text strings.Builder
	if err := report.Table(&text); err != nil {
		return err
	}
	return a.print(text.String())
}
