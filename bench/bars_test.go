package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/scheduler"
)

// The benchmarks of this file are the bars that the scheduler is held to: ratios of makespans, means over five seeds with half of their
// 95 % intervals, beside the bar. They take minutes and are not part of the tests:
//
//	go test -run - -bench Bars -benchtime 1x ./bench
//	go test -run - -bench 'Bars/agent_load' -benchtime 1x ./bench
//
// The scheduler's constants were chosen on the first of these seeds. Others tell whether they were chosen for them:
//
//	BARS_FIRST_SEED=101 go test -run - -bench Bars -benchtime 1x ./bench

const barSeeds = 5

// firstSeed is the first seed of the bars.
func firstSeed(b *testing.B) uint64 {
	text := os.Getenv("BARS_FIRST_SEED")
	if text == "" {
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		b.Fatalf("BARS_FIRST_SEED=%s: expected a number", text)
	}
	return seed
}

// bar is one ratio and what it must be at least.
type bar struct {
	name  string
	ratio func(b *testing.B) Mean
	least float64
}

func BenchmarkBars(b *testing.B) {
	for _, x := range slices.Concat(agentBars(), smallBars(), toolBars(), fleetBars(), tailBars(), prefixBars(), paddedBars(), doubtBars()) {
		b.Run(x.name, func(b *testing.B) {
			var m Mean
			for b.Loop() {
				m = x.ratio(b)
			}
			b.ReportMetric(m.Mean, "ratio")
			b.ReportMetric(m.Half, "±")
			b.ReportMetric(x.least, "bar")
			b.ReportMetric(0, "ns/op") // the time that the simulation took says nothing
			if m.Mean < x.least {
				b.Logf("%.3f is under the bar of %.2f", m.Mean, x.least)
			}
		})
	}
}

// course is what a bar is run on.
type course struct {
	item     string
	episodes int    // 0 = the item's own
	replicas string // "" = the item's own
	load     int
	change   func(*Fleet)
	policies []string
}

func (c course) run(b *testing.B) Level {
	b.Helper()
	item, err := Find(c.item)
	if err != nil {
		b.Fatal(err)
	}
	var d Traces
	if item.Traced {
		if d, err = FindTraces(); errors.Is(err, ErrNoTraces) {
			b.Skipf("needs the recorded traces: %v", err)
		} else if err != nil {
			b.Fatal(err)
		}
	}
	if c.episodes == 0 {
		c.episodes = item.Episodes
	}
	f := Fleet{MetricsEvery: time.Second}
	if c.replicas == "" {
		f.Replicas = item.Replicas
	} else if f.Replicas, err = ParseReplicas(c.replicas); err != nil {
		b.Fatal(err)
	}
	if c.change != nil {
		c.change(&f)
	}
	policies, err := Named(c.policies)
	if err != nil {
		b.Fatal(err)
	}
	context := 0
	for _, r := range f.Replicas {
		context = max(context, r.ContextTokens)
	}
	m := Match{
		Workload: func(seed uint64) (Workload, error) { return item.Make(d, c.episodes, context, seed) },
		Fleet:    f, Loads: []int{c.load}, Policies: policies, Seeds: barSeeds, First: firstSeed(b), Workers: runtime.GOMAXPROCS(0),
	}
	r, err := m.Run()
	if err != nil {
		b.Fatal(err)
	}
	for _, x := range r.Levels[0].Rows {
		if x.Failed != "" || x.Truncated.Mean > 0 || x.Rejected.Mean > 0 {
			b.Errorf("%s: %q, %v answers cut short, %v episodes given up", x.Policy, x.Failed, x.Truncated, x.Rejected)
		}
	}
	return r.Levels[0]
}

// faster is how many times faster the scheduler is than another policy, seed by seed.
func faster(l Level, than string) Mean { return over(l.row("tranche"), l.row(than)) }

// over is the ratio of makespans of two rows that were played with the same seeds.
func over(fast, slow *Row) Mean {
	var sample []float64
	for i := range fast.results {
		sample = append(sample, ratio(slow.results[i].Makespan.Seconds(), fast.results[i].Makespan.Seconds()))
	}
	return MeanOf(sample)
}

func agentBars() []bar {
	var bars []bar
	for _, load := range []int{4, 8, 12, 16, 24, 32, 48, 64, 84} {
		c := course{item: "agent", replicas: "4", load: load, policies: []string{"tranche", "caps"}}
		least := 1.0
		if load <= 12 { // memory does not bind
			least = 0.98
		}
		var l Level // of the run for the first of the three
		name := fmt.Sprintf("agent load %d", load)
		bars = append(bars,
			bar{name + "/over the best cap", func(b *testing.B) Mean { l = c.run(b); return l.row("tranche").OverBestCap }, least},
			bar{name + "/of the lower bound", func(b *testing.B) Mean { l = once(b, l, c); return l.row("tranche").OfBound }, 0.82})
		if load >= 48 {
			bars = append(bars, bar{name + "/over flood", func(b *testing.B) Mean { l = once(b, l, c); return l.row("tranche").Speedup }, 2})
		}
	}
	return bars
}

// once runs a course unless it was run.
func once(b *testing.B, l Level, c course) Level {
	if l.Rows == nil {
		return c.run(b)
	}
	return l
}

func toolBars() []bar {
	var bars []bar
	for _, item := range []string{"agent-x5", "agent-x20"} {
		c := course{item: item, replicas: "4", load: 64, policies: []string{"tranche", "caps"}}
		var l Level
		bars = append(bars,
			bar{item + "/over the best cap", func(b *testing.B) Mean { l = c.run(b); return l.row("tranche").OverBestCap }, 1},
			bar{item + "/over flood", func(b *testing.B) Mean { l = once(b, l, c); return l.row("tranche").Speedup }, 0.95})
	}
	return bars
}

func fleetBars() []bar {
	c := course{item: "agent", replicas: "2,2x0.3", load: 48, policies: []string{"tranche", "caps"}}
	return []bar{{"uneven fleet/over the best uniform cap", func(b *testing.B) Mean { return c.run(b).row("tranche").OverBestCap }, 1.15}}
}

func tailBars() []bar {
	c := course{item: "reasoning", replicas: "4", policies: []string{"tranche"}}
	quorum := c
	quorum.policies = []string{"tranche-early"} // as the scheduler orders where there is a quorum
	quorum.change = func(f *Fleet) { f.Quorum.Run = 0.9 }
	return []bar{
		{"reasoning tail/over flood", func(b *testing.B) Mean { return faster(c.run(b), "flood") }, 1.1},
		{"reasoning tail/nine in ten over all by flood", func(b *testing.B) Mean {
			all, some := c.run(b), quorum.run(b)
			return over(some.row("tranche-early"), all.row("flood"))
		}, 1.8},
	}
}

// Round robin computes a group's prompt once on each of min(8, R) replicas; with four of them the lower bound leaves only 1.5 to win
// on the Mooncake conversations, so eight are taken.
func prefixBars() []bar {
	one := func(item string, least float64) bar {
		c := course{item: item, episodes: 4096, replicas: "8", load: 48, policies: []string{"tranche"}}
		return bar{item + "/over round robin", func(b *testing.B) Mean { return faster(c.run(b), "flood") }, least}
	}
	return []bar{one("prefixes", 1.5), one("mooncake-conversation", 1.5), one("mooncake-synthetic", 1.5), one("prefixes-fit", 0.98)}
}

func paddedBars() []bar {
	var bars []bar
	for _, item := range []string{"r1", "azure-code", "azure-conv"} {
		c := course{item: item, replicas: "2", policies: []string{"tranche", "padded"}, change: func(f *Fleet) {
			for i := range f.Replicas {
				f.Replicas[i].Batching, f.Replicas[i].MaxSeqs = enginesim.Static, 64
			}
		}}
		var l Level
		bars = append(bars,
			bar{"static engine, " + item + "/over arrival order", func(b *testing.B) Mean { l = c.run(b); return faster(l, "arrival") }, 2},
			bar{"static engine, " + item + "/over the best bounds", func(b *testing.B) Mean { l = once(b, l, c); return faster(l, "least-padding-oracle") }, 0.95})
	}
	return bars
}

// smallBars are the loads that were played on a real vLLM, on that server simulated.
func smallBars() []bar {
	var all []bar
	for item, overFlood := range map[string]float64{"vllm-a": 1.4, "vllm-b": 2.2} {
		run := func(b *testing.B) Level {
			return course{item: item, load: 0, policies: []string{"tranche", "flood", "cap-4", "cap-6", "cap-8", "cap-10", "cap-12", "cap-16"}}.run(b)
		}
		all = append(all,
			bar{item + "/over flood", func(b *testing.B) Mean { return faster(run(b), "flood") }, overFlood},
			bar{item + "/over the best cap", func(b *testing.B) Mean { l := run(b); return over(l.row("tranche"), l.bestCap()) }, 1},
		)
	}
	return all
}

func doubtBars() []bar {
	c := course{item: "agent", replicas: "4", load: 48, policies: []string{"tranche"}}
	one := func(name string, least float64, change func(*Fleet)) bar {
		doubt := c
		doubt.change = change
		return bar{name + "/over the informed run", func(b *testing.B) Mean {
			return over(doubt.run(b).row("tranche"), c.run(b).row("tranche"))
		}, least}
	}
	told := func(factor float64) func(*Fleet) {
		return func(f *Fleet) {
			f.Told = func(_ int, truth episode.Capacity) episode.Capacity {
				truth.KVTokens = int(float64(truth.KVTokens) * factor)
				return truth
			}
		}
	}
	return []bar{
		one("told half of the memory", 0.9, told(0.5)), one("told half too much memory", 0.9, told(1.5)),
		one("no metrics", 0.85, func(f *Fleet) { f.MetricsEvery = 0 }),
	}
}

// BenchmarkSimulation is how many calls a minute the simulator plays on one core.
func BenchmarkSimulation(b *testing.B) {
	for _, name := range []string{"flood", "cap-14", "tranche"} {
		b.Run(name, func(b *testing.B) {
			policies, err := Named([]string{name})
			if err != nil {
				b.Fatal(err)
			}
			c := Reference()
			w := Agent(768, 800*time.Millisecond, 1)
			f := Fleet{Replicas: []enginesim.Config{c, c, c, c}, MaxOpen: 4 * 48, MetricsEvery: time.Second}
			calls := 0
			for b.Loop() {
				p, err := policies[0].New(f.Tell(w))
				if err != nil {
					b.Fatal(err)
				}
				r, err := f.Play(w, p)
				if err != nil {
					b.Fatal(err)
				}
				calls += r.Calls
			}
			b.ReportMetric(float64(calls)/b.Elapsed().Minutes(), "calls/min")
		})
	}
}

// stopwatch times every decision of a policy.
type stopwatch struct {
	Policy
	took []time.Duration
}

func (s *stopwatch) Next(now scheduler.Time) ([]scheduler.Launch, []scheduler.Reject, scheduler.Time) {
	began := time.Now()
	l, r, w := s.Policy.Next(now)
	s.took = append(s.took, time.Since(began)/time.Duration(max(len(l), 1)))
	return l, r, w
}

func (s *stopwatch) Offer(r scheduler.Request, now scheduler.Time) {
	began := time.Now()
	s.Policy.Offer(r, now)
	s.took = append(s.took, time.Since(began))
}

func (s *stopwatch) Settle(t scheduler.Ticket, o Outcome, now scheduler.Time) scheduler.Decision {
	began := time.Now()
	d := s.Policy.Settle(t, o, now)
	s.took = append(s.took, time.Since(began))
	return d
}

// BenchmarkDecision is the time of the core's decisions with many open episodes; a launch counts as one decision.
func BenchmarkDecision(b *testing.B) {
	for _, x := range []struct {
		name string
		open int
		cuts int // places where the prompts of episodes part
	}{{"5000 open", 5_000, 0}, {"50000 open", 50_000, 0}, {"50000 open, shared prefixes", 50_000, 8}} {
		open := x.open
		b.Run(x.name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			w := Workload{Name: "many", MaxNew: 512}
			for i := range open {
				e := Episode{Group: strconv.Itoa(i / 8), Domain: "many"}
				for range 3 {
					e.Turns = append(e.Turns, Turn{New: 200 + r.IntN(2000), Out: 1 + r.IntN(60), Tool: time.Duration(r.IntN(4000)) * time.Millisecond, Kind: "k"})
				}
				if x.cuts > 0 { // groups of 8 share all, 64 of them a little less, and so on
					e.Prefix = append(e.Prefix, Segment{1, 300})
					for k := 1; k < x.cuts; k++ {
						e.Prefix = append(e.Prefix, Segment{mix(uint64(i>>(3*max(4-k, 1))) ^ uint64(k)<<40), e.Prefix[k-1].Tokens / 2 * 3})
					}
					e.Turns[0].New += e.PrefixTokens()
				}
				w.Episodes = append(w.Episodes, e)
			}
			f := Fleet{MetricsEvery: time.Second}
			for range 16 {
				f.Replicas = append(f.Replicas, Reference())
			}
			var took []time.Duration
			for b.Loop() {
				core, err := NewCore(scheduler.Rules{}, f.Tell(w))
				if err != nil {
					b.Fatal(err)
				}
				s := &stopwatch{Policy: core}
				if _, err := f.Play(w, s); err != nil {
					b.Fatal(err)
				}
				took = append(took, s.took...)
			}
			slices.Sort(took)
			b.ReportMetric(float64(quantile(took, 0.5).Nanoseconds())/1e3, "p50-µs")
			b.ReportMetric(float64(quantile(took, 0.99).Nanoseconds())/1e3, "p99-µs")
			b.ReportMetric(float64(took[len(took)-1].Nanoseconds())/1e3, "max-µs")
		})
	}
}
