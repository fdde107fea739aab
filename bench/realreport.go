package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"tranche/inference/enginesim"
)

// RealReport is what policies came to on a real server. Figures of a policy are medians over its repeats; ratios are taken repeat by
// repeat first, as a machine drifts.
type RealReport struct {
	Workload    string     `json:"workload"`
	Episodes    int        `json:"episodes"`
	Calls       int        `json:"calls"`
	KVTokens    int        `json:"kv_tokens"`
	BlockTokens int        `json:"block_tokens"`
	Repeats     int        `json:"repeats"`
	BestCap     string     `json:"best_cap,omitempty"` // the static cap with the least median makespan
	Rows        []RealRow  `json:"policies"`
	Agreement   *Agreement `json:"agreement,omitempty"` // with the simulation, where there is one
}

// RealRow is one policy.
type RealRow struct {
	Policy string `json:"policy"`
	Runs   int    `json:"runs"`
	Figures
	Speedup     float64  `json:"speedup_over_flood,omitempty"`       // 0 = flood was not played
	OverBestCap float64  `json:"speedup_over_best_cap,omitempty"`    // 0 = no cap was played
	OfLowestCap float64  `json:"computed_over_lowest_cap,omitempty"` // computed prompt tokens, relative to what the lowest cap needed
	LatencyP50  float64  `json:"turn_latency_p50_s"`                 // of calls, from offer to answer
	Makespans   []string `json:"makespans_s"`                        // of every run, in the order of the repeats
	Simulated   *Figures `json:"simulated,omitempty"`

	results []Result
}

// Figures are what is compared.
type Figures struct {
	Makespan    float64 `json:"makespan_s"`
	Computed    float64 `json:"computed_prompt_tokens"` // asked for and not found in the prefix cache
	HitRate     float64 `json:"prefix_hit_rate"`
	Preemptions float64 `json:"preemptions"`
}

// Agreement says how far the simulation is from the server, over all policies.
type Agreement struct {
	HitOff      float64  `json:"hit_rate_off"`  // the greatest difference
	MakespanOff float64  `json:"makespan_off"`  // the greatest relative difference
	Swapped     []string `json:"order_differs"` // pairs of policies of which the other is faster in the simulation
}

// What the simulation is held to.
const (
	hitWithin      = 0.05
	makespanWithin = 0.20
)

func figuresOf(results []Result) Figures {
	return Figures{
		Makespan:    medianOf(results, func(r *Result) float64 { return r.Makespan.Seconds() }),
		Computed:    medianOf(results, func(r *Result) float64 { return float64(r.Queried - r.Hits) }),
		HitRate:     medianOf(results, func(r *Result) float64 { return r.HitRate() }),
		Preemptions: medianOf(results, func(r *Result) float64 { return float64(r.Preemptions) }),
	}
}

func medianOf(results []Result, of func(*Result) float64) float64 {
	var all []float64
	for i := range results {
		all = append(all, of(&results[i]))
	}
	return median(all)
}

// median of a sample: the mean of the two in the middle where there is no middle one; 0 of none.
func median(all []float64) float64 {
	n := len(all)
	if n == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return (all[n/2] + all[(n-1)/2]) / 2
}

// report sums up what was played so far, by policy.
func (r Real) report(runs [][]Result) RealReport {
	out := RealReport{
		Workload: r.Workload.Name, Episodes: len(r.Workload.Episodes), Calls: r.Workload.Calls(), Repeats: r.Repeats,
		KVTokens: r.Capacity.KVTokens, BlockTokens: r.Capacity.BlockTokens,
	}
	for i, results := range runs {
		if len(results) == 0 {
			continue
		}
		row := RealRow{Policy: r.Policies[i].Name, Runs: len(results), Figures: figuresOf(results), results: results}
		row.LatencyP50 = medianOf(results, func(r *Result) float64 { return r.LatencyP50.Seconds() })
		for _, x := range results {
			row.Makespans = append(row.Makespans, strconv.FormatFloat(x.Makespan.Seconds(), 'f', 1, 64))
		}
		out.Rows = append(out.Rows, row)
	}
	out.conclude()
	return out
}

// conclude fills in what compares policies.
func (r *RealReport) conclude() {
	flood, best, lowest := r.row("flood"), r.bestCap(), r.lowestCap()
	for i := range r.Rows {
		row := &r.Rows[i]
		row.Speedup, row.OverBestCap = row.over(flood, seconds), row.over(best, seconds)
		if x := row.over(lowest, func(r *Result) float64 { return float64(r.Queried - r.Hits) }); x > 0 {
			row.OfLowestCap = 1 / x
		}
	}
	if best != nil {
		r.BestCap = best.Policy
	}
}

func seconds(r *Result) float64 { return r.Makespan.Seconds() }

// over is the median over the repeats that both played of another policy's figure divided by this one's; 0 without the other.
func (r *RealRow) over(other *RealRow, of func(*Result) float64) float64 {
	if other == nil {
		return 0
	}
	var all []float64
	for i := range min(len(r.results), len(other.results)) {
		all = append(all, ratio(of(&other.results[i]), of(&r.results[i])))
	}
	return median(all)
}

func (r *RealReport) row(policy string) *RealRow {
	for i := range r.Rows {
		if r.Rows[i].Policy == policy {
			return &r.Rows[i]
		}
	}
	return nil
}

func (r *RealReport) caps() []*RealRow {
	var all []*RealRow
	for i := range r.Rows {
		if strings.HasPrefix(r.Rows[i].Policy, "cap-") {
			all = append(all, &r.Rows[i])
		}
	}
	return all
}

func (r *RealReport) bestCap() *RealRow {
	return least(r.caps(), func(r *RealRow) float64 { return r.Makespan })
}

func (r *RealReport) lowestCap() *RealRow {
	return least(r.caps(), func(r *RealRow) float64 {
		n, _ := strconv.Atoi(strings.TrimPrefix(r.Policy, "cap-")) // the names are ours
		return float64(n)
	})
}

// least is the row with the least figure; nil of none.
func least(rows []*RealRow, of func(*RealRow) float64) *RealRow {
	if len(rows) == 0 {
		return nil
	}
	return slices.MinFunc(rows, func(a, b *RealRow) int { return cmp.Compare(of(a), of(b)) })
}

// Beside plays every policy of the report on a simulated engine, in virtual time, and puts the figures beside the real ones. request is
// what a call costs beside its steps: it is added to the actions. The policies must be those that the report is of.
func (r *RealReport) Beside(w Workload, policies []Contestant, engine enginesim.Config, request, gauges time.Duration, seed uint64) error {
	fleet := Fleet{Replicas: []enginesim.Config{engine}, MetricsEvery: gauges, Seed: seed}
	w = w.later(request)
	for i := range r.Rows {
		k := slices.IndexFunc(policies, func(c Contestant) bool { return c.Name == r.Rows[i].Policy })
		if k < 0 {
			return fmt.Errorf("simulate: no policy is named %s", r.Rows[i].Policy)
		}
		p, err := policies[k].New(fleet.Tell(w))
		if err != nil {
			return err
		}
		got, err := fleet.Play(w, p)
		if err != nil {
			return fmt.Errorf("simulate %s: %w", r.Rows[i].Policy, err)
		}
		f := figuresOf([]Result{got})
		r.Rows[i].Simulated = &f
	}
	r.agree()
	return nil
}

// later is the workload with every action taking d longer.
func (w Workload) later(d time.Duration) Workload {
	w.Episodes = slices.Clone(w.Episodes)
	for i := range w.Episodes {
		e := &w.Episodes[i]
		e.Turns = slices.Clone(e.Turns)
		for k := range e.Turns {
			e.Turns[k].Tool += d
		}
	}
	return w
}

func (r *RealReport) agree() {
	a := &Agreement{Swapped: []string{}}
	for i, x := range r.Rows {
		a.HitOff = max(a.HitOff, math.Abs(x.Simulated.HitRate-x.HitRate))
		a.MakespanOff = max(a.MakespanOff, math.Abs(x.Simulated.Makespan/x.Makespan-1))
		for _, y := range r.Rows[i+1:] {
			if (x.Makespan < y.Makespan) != (x.Simulated.Makespan < y.Simulated.Makespan) {
				a.Swapped = append(a.Swapped, x.Policy+" and "+y.Policy)
			}
		}
	}
	r.Agreement = a
}

// Table writes the report for people, fastest first.
func (r RealReport) Table(w io.Writer) error {
	fmt.Fprintf(w, "%s on a real server: %d episodes, %d calls; %d KV tokens in blocks of %d; medians of %d repeats", r.Workload, r.Episodes, r.Calls, r.KVTokens, r.BlockTokens, r.Repeats)
	if r.BestCap != "" {
		fmt.Fprintf(w, "; best static cap: %s", r.BestCap)
	}
	fmt.Fprintln(w)
	head := "policy\truns\tmakespan s\tx flood\tx best cap\tcomputed\tx lowest cap\thits\tpreempted\tp50 turn s\t"
	if r.Agreement != nil {
		head += "simulated: s\tcomputed\thits\tpreempted\t"
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, head)
	rows := slices.SortedStableFunc(slices.Values(r.Rows), func(a, b RealRow) int { return cmp.Compare(a.Makespan, b.Makespan) })
	for _, x := range rows {
		line := fmt.Sprintf("%s\t%d\t%.1f\t%s\t%s\t%.0f\t%s\t%.2f\t%.0f\t%.2f\t", x.Policy, x.Runs, x.Makespan, known(x.Speedup), known(x.OverBestCap), x.Computed, known(x.OfLowestCap), x.HitRate, x.Preemptions, x.LatencyP50)
		if s := x.Simulated; s != nil {
			line += fmt.Sprintf("%.1f\t%.0f\t%.2f\t%.0f\t", s.Makespan, s.Computed, s.HitRate, s.Preemptions)
		}
		fmt.Fprintln(t, line)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	if a := r.Agreement; a != nil {
		fmt.Fprintln(w, a)
	}
	return nil
}

// known is a ratio for people: there is none without the policy it is over.
func known(ratio float64) string {
	if ratio == 0 {
		return "-"
	}
	return strconv.FormatFloat(ratio, 'f', 2, 64)
}

// String says in words how far the simulation can be believed.
func (a *Agreement) String() string {
	verdict := func(ok bool) string {
		if ok {
			return "as it should be"
		}
		return "NOT as it should be"
	}
	order := "the same"
	if len(a.Swapped) > 0 {
		order = "differs for " + strings.Join(a.Swapped, ", ")
	}
	return fmt.Sprintf("simulation: hit rates off by up to %.3f (%s: within %.2f), makespans by up to %.0f %% (%s: within %.0f %%), order of policies %s",
		a.HitOff, verdict(a.HitOff <= hitWithin), hitWithin, 100*a.MakespanOff, verdict(a.MakespanOff <= makespanWithin), 100*makespanWithin, order)
}
