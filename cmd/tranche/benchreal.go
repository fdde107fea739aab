package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"tranche/bench"
	"tranche/inference"
)

type benchRealCmd struct {
	serverFlags
	Workload  string   `short:"w" default:"vllm-a" enum:"vllm-a,vllm-b" placeholder:"NAME" help:"vllm-a: short episodes, made for 16,512 KV tokens; vllm-b: longer prompts, made for 32,896. Default: ${default}."`
	Policy    []string `short:"p" default:"tranche,flood,cap-4,cap-6,cap-8,cap-10,cap-12,cap-16" placeholder:"NAME" help:"Policies to compare, as for bench sched, several by comma; flood is always played. Default: ${default}."`
	Repeats   int      `default:"3" placeholder:"N" help:"Times each policy plays, all in turn, those in --out included; figures are medians. Default: ${default}."`
	Episodes  int      `placeholder:"N" help:"Episodes. Default: the workload's own, 40 or 36."`
	TimeScale float64  `default:"1" placeholder:"FACTOR" help:"Actions last this share of their time: for a trial run, or a server that is simulated at another speed. Default: ${default}."`
	Seed      uint64   `default:"1" placeholder:"N" help:"Decides lengths, pauses and prompts; equal for all policies. Default: ${default}."`
	Out       string   `short:"o" placeholder:"FILE" help:"Keep each run there as soon as it has ended, and go on with the runs that are there already. Default: a measurement that is stopped begins anew."`
	Again     []string `placeholder:"NAME" help:"Policies, several by comma, whose runs in --out are set aside and played again: after a change of the program. Once is enough: to go on after a stop, leave it out."`
	Simulate  string   `placeholder:"FILE" help:"Play the same on a simulated engine with this preset of calibrate, in virtual time, and print it beside."`
	JSON      bool     `name:"json" help:"Write JSON instead of a table."`
}

// Help is kong's long text of the command.
func (benchRealCmd) Help() string {
	return "Plays whole multi-turn episodes on one real server through every policy, in turn, and compares them: time, prompt tokens computed, prefix-cache hits, preemptions, the latter three as the server counts them. Prompts are random, the server's own ids go back exactly, answers have fixed lengths and every run its own cache salt. Policies are told nothing but what the server says of itself. Needs vLLM, or another server with its /metrics and ids in /v1/completions. Ctrl-c prints what was played so far. A full measurement takes hours: with --out the same command goes on where it was stopped, with more --repeats or policies too, and `bench real-report FILE` prints the table without the server."
}

// realPlan is a checked command line.
type realPlan struct {
	load     bench.Workload
	policies []bench.Contestant
	again    []bench.Contestant // to be played anew
	preset   *preset
}

func (c *benchRealCmd) plan() (realPlan, error) {
	f := &faults{}
	var p realPlan
	var err error
	if p.policies, err = bench.Named(append([]string{"flood"}, c.Policy...)); err != nil {
		f.add("--policy: %w", err)
	}
	atLeast(f, "--repeats", c.Repeats, 1)
	atLeast(f, "--episodes", c.Episodes, 0)
	if !(c.TimeScale >= 0) {
		f.add("--time-scale: expected 0 or more, found %g", c.TimeScale)
	}
	p.again = c.playedAgain(f, p.policies)
	p.preset = simulatedBy(f, c.Simulate)
	p.load = vllmLoad(c.Workload, c.Episodes, c.TimeScale, c.Seed)
	return p, f.err()
}

// playedAgain reads --again. Runs that would be set aside and not played again are refused.
func (c *benchRealCmd) playedAgain(f *faults, policies []bench.Contestant) []bench.Contestant {
	if len(c.Again) == 0 {
		return nil
	}
	if c.Out == "" {
		f.add("--again: sets runs of --out aside; there is none")
	}
	again, err := bench.Named(c.Again)
	if err != nil {
		f.add("--again: %w", err)
	}
	for _, x := range again {
		if !slices.ContainsFunc(policies, func(p bench.Contestant) bool { return p.Name == x.Name }) {
			f.add("--again: %s is not among --policy: its runs would be set aside and not played again", x.Name)
		}
	}
	return again
}

// atLeast refuses a number that is too small.
func atLeast(f *faults, flag string, n, least int) {
	if n < least {
		f.add("%s: expected %d or more, found %d", flag, least, n)
	}
}

// simulatedBy reads the preset of --simulate; nil without one.
func simulatedBy(f *faults, file string) *preset {
	if file == "" {
		return nil
	}
	read, err := readPreset(file)
	if err != nil {
		f.add("--simulate: %w", err)
	}
	return &read
}

// vllmLoad draws a workload by its name; no number of episodes = its own.
func vllmLoad(name string, episodes int, timeScale float64, seed uint64) bench.Workload {
	load := bench.VLLMA()
	if name == bench.VLLMB().Name {
		load = bench.VLLMB()
	}
	if episodes > 0 {
		load.Episodes = episodes
	}
	load.Action = time.Duration(float64(load.Action) * timeScale)
	return load.Draw(load.Episodes, seed)
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
	real := c.measurement(e, plan)
	file, err := c.keep(a, &real, plan.again)
	if err != nil {
		return err
	}
	real.Done = func(r bench.RealRun) error { return c.ended(a, file, r) }
	report, played := real.Play(ctx)
	if file != nil {
		played = errors.Join(played, withCode(codeDisk, file.Close()))
	}
	return c.conclude(a, plan, report, played, stopped)
}

// measurement is what is to be played.
func (c *benchRealCmd) measurement(e *inference.Endpoint, plan realPlan) bench.Real {
	return bench.Real{
		Server: e, Gauge: e, Capacity: e.Capacity(), Workload: plan.load, Policies: plan.policies, Repeats: c.Repeats,
		GaugeEvery: gaugeEvery, Run: runName(), Seed: c.Seed, TimeScale: c.TimeScale, Build: buildVersion().named(),
		Identity: bench.IdentityOf(string(e.Kind()), e.Version(), e.Model(), e.Capacity()),
	}
}

// keep checks the measurement, opens the file of runs, sets aside what is to be played again, and hands over what is there; nil without
// --out.
func (c *benchRealCmd) keep(a *app, real *bench.Real, again []bench.Contestant) (*bench.RealFile, error) {
	if err := real.Validate(); err != nil {
		return nil, withCode(codeEndpoint, err)
	}
	if c.Out == "" {
		return nil, nil
	}
	file, err := bench.OpenRealFile(c.Out, real.Measured())
	if err != nil {
		return nil, realFileError("--out: ", err)
	}
	for _, p := range again {
		n, err := file.Again(p.Name)
		if err != nil {
			return nil, errors.Join(withCode(codeDisk, fmt.Errorf("--out: %w", err)), file.Close())
		}
		a.notice("%s: %d runs set aside, to be played again", p.Name, n)
	}
	if real.Had = file.Runs(); len(real.Had) > 0 {
		a.notice("going on with the %d runs in %s", len(real.Had), c.Out)
	}
	return file, nil
}

// realFileError gives what is wrong with a file of runs its exit status.
func realFileError(prefix string, err error) error {
	status := codeDisk
	switch {
	case errors.Is(err, bench.ErrOtherMeasurement):
		status, err = codeRefused, fmt.Errorf("%w\nwhat differs cannot be compared: take another file, or the command line it was begun with", err)
	case errors.Is(err, bench.ErrIrregular):
		status = codeUsage
	case errors.Is(err, bench.ErrNoRealFile), errors.Is(err, bench.ErrRealFileHeld), errors.Is(err, fs.ErrNotExist):
		status = codeRefused
	}
	return withCode(status, fmt.Errorf("%s%w", prefix, err))
}

// ended keeps a run and tells of it.
func (c *benchRealCmd) ended(a *app, file *bench.RealFile, run bench.RealRun) error {
	r := run.Result
	a.notice("repeat %d, %s: %.1f s, hits %.2f, %d prompt tokens computed, %d preemptions", run.Repeat, run.Policy, r.Makespan.Seconds(), r.HitRate(), r.Computed, r.Preemptions)
	if file == nil {
		return nil
	}
	if err := file.Add(run); err != nil {
		return withCode(codeDisk, fmt.Errorf("--out: keep the run of %s: %w", run.Policy, err))
	}
	return nil
}

// conclude shows what there is and turns how it ended into the exit status.
func (c *benchRealCmd) conclude(a *app, plan realPlan, report bench.RealReport, played error, stopped func() code) error {
	halted := errors.Is(played, bench.ErrStopped)
	switch {
	case len(report.Rows) == 0 && halted:
		a.notice("stopped before the first policy had played to its end: there is nothing to show")
	case halted && c.Out != "":
		a.notice("stopped; the same command%s goes on: %s keeps what has ended", label(" without --again ", strings.Join(c.Again, ",")), c.Out)
	}
	if len(report.Rows) > 0 {
		if err := showReal(a, report, plan.load, plan.preset, c.JSON); err != nil {
			return errors.Join(err, played)
		}
	}
	if halted {
		return outcome(stopped())
	}
	return withCode(codeEndpoint, played)
}

type benchRealReportCmd struct {
	File     string `arg:"" help:"What bench real --out wrote, or is writing."`
	Simulate string `placeholder:"FILE" help:"Play the same on a simulated engine with this preset of calibrate, in virtual time, and print it beside."`
	JSON     bool   `name:"json" help:"Write JSON instead of a table."`
}

// Help is kong's long text of the command.
func (benchRealReportCmd) Help() string {
	return "Prints the table of all runs in a file of bench real --out. No server is needed, and the measurement may be going on."
}

func (c *benchRealReportCmd) do(a *app) error {
	f := &faults{}
	by := simulatedBy(f, c.Simulate)
	if err := f.err(); err != nil {
		return withCode(codeUsage, err)
	}
	m, runs, err := bench.ReadRealFile(c.File)
	if errors.Is(err, fs.ErrNotExist) {
		return withCode(codeUsage, err)
	}
	if err != nil {
		return realFileError("", err)
	}
	if len(runs) == 0 {
		return withCode(codeRefused, fmt.Errorf("%s: no run has ended yet", c.File))
	}
	load := vllmLoad(m.Workload, m.Episodes, m.TimeScale, m.Seed)
	if by != nil && load.Digest() != m.Digest {
		return withCode(codeRefused, fmt.Errorf("%s: %s is drawn otherwise by this version: it cannot be simulated", c.File, m.Workload))
	}
	return showReal(a, bench.ReportOf(m, runs), load, by, c.JSON)
}

// showReal prints the report, the simulation beside it where one is asked for. Block size and capacity are the real server's.
func showReal(a *app, report bench.RealReport, load bench.Workload, by *preset, json bool) error {
	if by != nil {
		engine, has := by.config(), report.Server
		engine.KVTokens, engine.BlockTokens, engine.ContextTokens = has.KVTokens, has.BlockTokens, has.ContextTokens
		var names []string
		for _, row := range report.Rows {
			names = append(names, row.Policy)
		}
		policies, err := bench.Named(names)
		if err != nil {
			return fmt.Errorf("simulate: %w", err)
		}
		if err := report.Beside(load, policies, engine, by.request(), gaugeEvery, report.Seed); err != nil {
			return fmt.Errorf("simulate: %w", err)
		}
	}
	if json {
		return a.printJSON(report)
	}
	var text strings.Builder
	if err := report.Table(&text); err != nil {
		return err
	}
	return a.print(text.String())
}
