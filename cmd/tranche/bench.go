package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"tranche/bench"
	"tranche/episode"
	"tranche/inference/enginesim"
)

type benchCmd struct {
	Sched benchSchedCmd `cmd:"" help:"Compare scheduling policies on a simulated fleet, in virtual time."`
	Real  benchRealCmd  `cmd:"" help:"Compare scheduling policies on a real server, such as vLLM."`

	RealReport benchRealReportCmd `cmd:"" name:"real-report" help:"Print the table of what bench real --out has kept, without the server."`
}

type benchSchedCmd struct {
	Workload []string `short:"w" default:"agent" placeholder:"NAME" help:"Workloads to play, several by comma; 'list' tells what there is. Default: ${default}."`
	Policy   []string `short:"p" default:"tranche,flood-sticky,caps,aimd,prime-rl,thunder,walls" placeholder:"NAME" help:"Policies to compare, several by comma: a name, caps (all static caps), cap-N, all; 'list' tells what there is. flood is always played. Default: ${default}."`
	Fleet    string   `placeholder:"REPLICAS" help:"COUNT or COUNTxSHARE of the reference replica's KV memory, several by comma: 2,2x0.3 is two whole replicas and two small ones. Default: what the workload was made for, mostly 4."`
	Preset   string   `placeholder:"FILE" help:"Play on one replica as this preset of calibrate describes it."`
	Engine   string   `default:"continuous" enum:"continuous,static,shaped" placeholder:"KIND" help:"How the replicas batch: continuous; static and shaped pad, and hold 64 sequences. Their policies: arrival, equal-count, least-padding and others ('padded' = all). Default: ${default}."`
	Load     []int    `default:"48" placeholder:"N" help:"Episodes open at once per replica, several by comma; 0 = all. Default: ${default}."`
	Episodes int      `placeholder:"N" help:"Episodes of a workload. Default: its own number."`
	Seeds    int      `default:"5" placeholder:"N" help:"Seeds to play each policy with; figures are means with 95 % intervals. Default: ${default}."`
	Seed     uint64   `default:"1" placeholder:"N" help:"First seed. Default: ${default}."`
	Metrics  string   `default:"1s" placeholder:"TIME" help:"How often policies see the replicas' gauges; 0 = never. Default: ${default}."`
	Told     float64  `default:"1" placeholder:"FACTOR" help:"What policies are told of the KV memory, as a factor of the truth; 0 = nothing. Default: ${default}."`
	Data     string   `placeholder:"DIR" help:"Folder of recorded traces. Default: $$TRANCHE_DATA, else ../shared/data beside the repository."`
	Jobs     int      `short:"j" placeholder:"N" help:"Runs at once. Default: one per core."`
	JSON     bool     `name:"json" help:"Write JSON instead of tables; it holds what --explain tells."`
	Explain  bool     `help:"Tell what bounded each replica under the scheduler's own policy, and what would help."`
	Plot     string   `placeholder:"DIR" help:"Write a plot of makespan against load per workload, SVG, into DIR."`
}

// Help is kong's long text of the command.
func (benchSchedCmd) Help() string {
	return "Plays whole workloads through policies on simulated replicas (Llama-3.1-8B on one H100) and compares them with a lower bound that no schedule can beat. Nothing is sent anywhere. Times are those of a linear model of a GPU: trust ratios, not seconds."
}

func (c *benchCmd) do(ctx context.Context, a *app, verb string) error {
	switch verb {
	case "real":
		return c.Real.do(ctx, a)
	case "real-report":
		return c.RealReport.do(a)
	}
	return c.Sched.do(ctx, a)
}

// schedPlan is a checked command line.
type schedPlan struct {
	items    []bench.Item
	policies []bench.Contestant
	fleet    bench.Fleet
	traces   bench.Traces
}

func (c *benchSchedCmd) do(ctx context.Context, a *app) error {
	if strings.Join(c.Workload, "") == "list" || strings.Join(c.Policy, "") == "list" {
		return a.print(benchLists())
	}
	plan, err := c.plan()
	if err != nil {
		return withCode(codeUsage, err)
	}
	stop, stopped, release := stopOnSignal(ctx, a)
	defer release()
	plan.fleet.Stop = stop
	var reports []bench.Report
	for _, item := range plan.items {
		r, err := c.match(a, plan, item).Run()
		switch {
		case errors.Is(err, bench.ErrStopped):
			return outcome(stopped())
		case errors.Is(err, bench.ErrNoTraces):
			return withCode(codeTasks, fmt.Errorf("workload %s: %w; --data DIR says where they are", item.Name, err))
		case err != nil:
			return fmt.Errorf("workload %s: %w", item.Name, err)
		}
		r.Workload = item.Name
		reports = append(reports, r)
		if err := c.show(a, r); err != nil {
			return err
		}
	}
	if c.JSON {
		return a.printJSON(reports)
	}
	return nil
}

// plan checks the flags; all faults at once.
func (c *benchSchedCmd) plan() (schedPlan, error) {
	f := &faults{}
	var p schedPlan
	if len(c.Workload) == 0 {
		f.add("--workload: expected a name; 'list' tells what there is")
	}
	if len(c.Policy) == 0 {
		f.add("--policy: expected a name; 'list' tells what there is")
	}
	for _, name := range c.Workload {
		item, err := bench.Find(name)
		if err != nil {
			f.add("--workload: %w", err)
		}
		p.items = append(p.items, item)
		if item.Traced && c.Data == "" && p.traces.Dir == "" {
			if p.traces, err = bench.FindTraces(); err != nil {
				f.add("--workload %s needs recorded traces: %w; --data DIR says where they are", name, err)
			}
		}
	}
	if c.Data != "" {
		p.traces = bench.Traces{Dir: c.Data}
	}
	var err error
	if p.policies, err = bench.Named(c.Policy); err != nil {
		f.add("--policy: %w", err)
	}
	switch {
	case c.Fleet != "" && c.Preset != "":
		f.add("--fleet and --preset: both say what is played on; expected one of them")
	case c.Preset != "":
		read, err := readPreset(c.Preset)
		if err != nil {
			f.add("--preset: %w", err)
		}
		p.fleet.Replicas = []enginesim.Config{read.config()}
	case c.Fleet != "":
		if p.fleet.Replicas, err = bench.ParseReplicas(c.Fleet); err != nil {
			f.add("--fleet: %w", err)
		}
	}
	if p.fleet.MetricsEvery, err = time.ParseDuration(c.Metrics); err != nil || p.fleet.MetricsEvery < 0 {
		f.add("--metrics: expected a time such as 1s, or 0, found %q", c.Metrics)
	}
	for _, n := range c.Load {
		atLeast(f, "--load", n, 0)
	}
	atLeast(f, "--seeds", c.Seeds, 1)
	atLeast(f, "--episodes", c.Episodes, 0)
	atLeast(f, "--jobs", c.Jobs, 0)
	if !(c.Told >= 0) {
		f.add("--told: expected 0 or more, found %g", c.Told)
	}
	if c.Told != 1 {
		p.fleet.Told = func(_ int, truth episode.Capacity) episode.Capacity {
			truth.KVTokens = int(float64(truth.KVTokens) * c.Told)
			return truth
		}
	}
	return p, f.err()
}

// paddedRows is the launch size of engines that pad: the usual batch of such jobs.
const paddedRows = 64

func (c *benchSchedCmd) match(a *app, p schedPlan, item bench.Item) bench.Match {
	n := item.Episodes
	if c.Episodes > 0 {
		n = c.Episodes
	}
	fleet := p.fleet
	fleet.Replicas = c.replicas(p, item)
	context := 0
	for _, r := range fleet.Replicas {
		context = max(context, r.ContextTokens)
	}
	m := bench.Match{
		Workload: func(seed uint64) (bench.Workload, error) { return item.Make(p.traces, n, context, seed) },
		Fleet:    fleet, Loads: c.Load, Policies: p.policies, Seeds: c.Seeds, First: c.Seed, Workers: c.Jobs,
	}
	if m.Workers == 0 {
		m.Workers = runtime.GOMAXPROCS(0)
	}
	if a.terminal {
		m.Done = func(load int, policy string, seed uint64, r bench.Result) {
			a.notice("%s, load %d, %s, seed %d: %.0f s", item.Name, load, policy, seed, r.Makespan.Seconds())
		}
	}
	return m
}

// replicas is what a workload is played on: what was asked for, else what it was made for.
func (c *benchSchedCmd) replicas(p schedPlan, item bench.Item) []enginesim.Config {
	all := slices.Clone(p.fleet.Replicas)
	if len(all) == 0 {
		all = slices.Clone(item.Replicas)
	}
	if len(all) == 0 {
		all = slices.Repeat([]enginesim.Config{bench.Reference()}, 4)
	}
	for i := range all {
		if all[i].Batching = enginesim.Batching(c.Engine); c.Engine != string(enginesim.Continuous) {
			all[i].MaxSeqs = paddedRows
		}
	}
	return all
}

// show writes what is ready: a workload takes minutes, and the next one may be stopped.
func (c *benchSchedCmd) show(a *app, r bench.Report) error {
	if c.Plot != "" {
		path, err := r.Plot(c.Plot)
		if err != nil {
			return withCode(codeDisk, err)
		}
		a.notice("wrote %s", path)
	}
	if c.JSON {
		return nil
	}
	var text strings.Builder
	if err := r.Table(&text); err != nil {
		return err
	}
	if c.Explain {
		if err := r.Explain(&text); err != nil {
			return err
		}
	}
	return a.print(text.String() + "\n")
}

// stopOnSignal closes stop at the first signal; a second one ends the program. release ends the watching.
func stopOnSignal(ctx context.Context, a *app) (stop <-chan struct{}, stopped func() code, release func()) {
	closed, over, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	why := codeInt
	go func() { // ends with release
		defer close(gone)
		for first := true; ; first = false {
			select {
			case <-over:
				return
			case <-ctx.Done():
				if first {
					close(closed)
				}
				<-over
				return
			case s := <-a.signals:
				why = codeOfSignal(s)
				if !first {
					a.exit(int(why))
				}
				close(closed)
			}
		}
	}()
	release = sync.OnceFunc(func() {
		close(over)
		<-gone
	})
	return closed, func() code { release(); return why }, release
}

// benchLists tells what can be named.
func benchLists() string {
	var b strings.Builder
	fmt.Fprintln(&b, "Workloads:")
	for _, i := range bench.Catalogue() {
		traced := ""
		if i.Traced {
			traced = " (recorded traces)"
		}
		fmt.Fprintf(&b, "  %-22s %d: %s%s\n", i.Name, i.Episodes, i.About, traced)
	}
	fmt.Fprintln(&b, "Policies:")
	for _, p := range append(bench.Contestants(), bench.Padded()...) {
		fmt.Fprintf(&b, "  %-22s %s\n", p.Name, p.About)
	}
	return b.String()
}
