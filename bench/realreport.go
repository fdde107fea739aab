package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
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
	Measured
	KVTokens    int        `json:"kv_tokens"`
	BlockTokens int        `json:"block_tokens"`
	Repeats     int        `json:"repeats"`            // of the policy that played most often
	BestCap     string     `json:"best_cap,omitempty"` // the static cap with the least median makespan
	Rows        []RealRow  `json:"policies"`
	Agreement   *Agreement `json:"agreement,omitempty"` // with the simulation, where there is one
}

// RealRow is one policy.
type RealRow struct {
	Policy string `json:"policy"`
	Runs   int    `json:"runs"`
	Figures
	Least       *Figures `json:"least,omitempty"`                    // of each figure over the runs; absent where there is but one
	Most        *Figures `json:"most,omitempty"`                     // likewise
	Speedup     float64  `json:"speedup_over_flood,omitempty"`       // 0 = flood was not played
	OverBestCap float64  `json:"speedup_over_best_cap,omitempty"`    // 0 = no cap was played
	OfLowestCap float64  `json:"computed_over_lowest_cap,omitempty"` // computed prompt tokens, relative to what the lowest cap needed
	LatencyP50  float64  `json:"turn_latency_p50_s"`                 // of calls, from offer to answer
	Makespans   []string `json:"makespans_s"`                        // of every run, in the order of the repeats
	Builds      []string `json:"builds"`                             // the programs that played it
	Simulated   *Figures `json:"simulated,omitempty"`

	runs []RealRun // by repeat
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

// figuresOf sums each figure over runs up.
func figuresOf(results []Result, sum func([]float64) float64) Figures {
	of := func(figure func(*Result) float64) float64 {
		all := make([]float64, len(results))
		for i := range results {
			all[i] = figure(&results[i])
		}
		return sum(all)
	}
	return Figures{Makespan: of(seconds), Computed: of(computed), HitRate: of((*Result).HitRate), Preemptions: of(preemptions)}
}

func seconds(r *Result) float64     { return r.Makespan.Seconds() }
func computed(r *Result) float64    { return float64(r.Queried - r.Hits) }
func preemptions(r *Result) float64 { return float64(r.Preemptions) }

// median of a sample: the mean of the two in the middle where there is no middle one; 0 of none.
func median(all []float64) float64 {
	n := len(all)
	if n == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return (all[n/2] + all[(n-1)/2]) / 2
}

// ReportOf sums up runs of one measurement, by policy in the order in which they first ended.
func ReportOf(m Measured, runs []RealRun) RealReport {
	out := RealReport{Measured: m, KVTokens: m.Server.KVTokens, BlockTokens: m.Server.BlockTokens}
	for _, r := range runs {
		row := out.row(r.Policy)
		if row == nil {
			out.Rows = append(out.Rows, RealRow{Policy: r.Policy})
			row = &out.Rows[len(out.Rows)-1]
		}
		row.runs = append(row.runs, r)
	}
	for i := range out.Rows {
		out.Rows[i].sum()
		out.Repeats = max(out.Repeats, out.Rows[i].Runs)
	}
	out.conclude()
	return out
}

// sum fills in what hangs on this policy's runs alone.
func (r *RealRow) sum() {
	slices.SortFunc(r.runs, byRepeat)
	var results []Result
	var latency []float64
	for _, x := range r.runs {
		results = append(results, x.Result)
		latency = append(latency, x.Result.LatencyP50.Seconds())
		r.Makespans = append(r.Makespans, strconv.FormatFloat(x.Result.Makespan.Seconds(), 'f', 1, 64))
		if !slices.Contains(r.Builds, x.Build) {
			r.Builds = append(r.Builds, x.Build)
		}
	}
	r.Runs, r.LatencyP50, r.Figures = len(results), median(latency), figuresOf(results, median)
	if len(results) > 1 {
		least, most := figuresOf(results, slices.Min[[]float64]), figuresOf(results, slices.Max[[]float64])
		r.Least, r.Most = &least, &most
	}
}

// conclude fills in what compares policies.
func (r *RealReport) conclude() {
	flood, best, lowest := r.row("flood"), r.bestCap(), r.lowestCap()
	for i := range r.Rows {
		row := &r.Rows[i]
		row.Speedup, row.OverBestCap = row.over(flood, seconds), row.over(best, seconds)
		if x := row.over(lowest, computed); x > 0 {
			row.OfLowestCap = 1 / x
		}
	}
	if best != nil {
		r.BestCap = best.Policy
	}
}

// over is the median over the repeats that both played of another policy's figure divided by this one's; 0 without the other.
func (r *RealRow) over(other *RealRow, of func(*Result) float64) float64 {
	if other == nil {
		return 0
	}
	var all []float64
	for i := range r.runs {
		k, both := slices.BinarySearchFunc(other.runs, r.runs[i], byRepeat)
		if both {
			all = append(all, ratio(of(&other.runs[k].Result), of(&r.runs[i].Result)))
		}
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
		f := figuresOf([]Result{got}, median)
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
	fmt.Fprintf(w, "%s on %s: %d episodes, %d calls; %d KV tokens in blocks of %d; medians of %s", r.Workload, r.Server, r.Episodes, r.Calls, r.KVTokens, r.BlockTokens, r.repeatsText())
	if r.BestCap != "" {
		fmt.Fprintf(w, "; best static cap: %s", r.BestCap)
	}
	fmt.Fprintln(w)
	head := "policy\truns\tmakespan s\t"
	if r.Repeats > 1 {
		head += "least - most\t"
	}
	head += "x flood\tx best cap\tcomputed\tx lowest cap\thits\tpreempted\tp50 turn s\t"
	if r.Agreement != nil {
		head += "simulated: s\tcomputed\thits\tpreempted\t"
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, head)
	rows := slices.SortedStableFunc(slices.Values(r.Rows), func(a, b RealRow) int { return cmp.Compare(a.Makespan, b.Makespan) })
	for _, x := range rows {
		fmt.Fprintln(t, x.line(r.Repeats > 1))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	if said := r.buildsText(); said != "" {
		fmt.Fprintln(w, said)
	}
	if a := r.Agreement; a != nil {
		fmt.Fprintln(w, a)
	}
	return nil
}

// line is a policy's line of the table, with the spread of its makespans where there is a column for it.
func (r RealRow) line(spread bool) string {
	line := fmt.Sprintf("%s\t%d\t%.1f\t", r.Policy, r.Runs, r.Makespan)
	if spread {
		line += r.spread(func(f *Figures) string { return strconv.FormatFloat(f.Makespan, 'f', 1, 64) }) + "\t"
	}
	line += fmt.Sprintf("%s\t%s\t%.0f\t%s\t%.2f\t%.0f", known(r.Speedup), known(r.OverBestCap), r.Computed, known(r.OfLowestCap), r.HitRate, r.Preemptions)
	if r.Least != nil && r.Least.Preemptions != r.Most.Preemptions { // a median of 0 must not hide them
		line += " (" + r.spread(func(f *Figures) string { return strconv.FormatFloat(f.Preemptions, 'f', 0, 64) }) + ")"
	}
	line += fmt.Sprintf("\t%.2f\t", r.LatencyP50)
	if s := r.Simulated; s != nil {
		line += fmt.Sprintf("%.1f\t%.0f\t%.2f\t%.0f\t", s.Makespan, s.Computed, s.HitRate, s.Preemptions)
	}
	return line
}

// spread is a figure's least and most over the runs; "-" of a single run.
func (r RealRow) spread(of func(*Figures) string) string {
	if r.Least == nil {
		return "-"
	}
	return of(r.Least) + " - " + of(r.Most)
}

// repeatsText says how many runs a median is of.
func (r RealReport) repeatsText() string {
	for _, x := range r.Rows {
		if x.Runs != r.Repeats {
			return fmt.Sprintf("up to %d repeats", r.Repeats)
		}
	}
	return fmt.Sprintf("%d repeats", r.Repeats)
}

// buildsText names the programs that played, where that was more than one; else "".
func (r RealReport) buildsText() string {
	played := map[string][]string{} // policies by builds
	for _, x := range r.Rows {
		builds := strings.Join(x.Builds, " and ")
		played[builds] = append(played[builds], x.Policy)
	}
	if len(played) < 2 && !slices.ContainsFunc(r.Rows, func(x RealRow) bool { return len(x.Builds) > 1 }) {
		return ""
	}
	var said []string
	for _, builds := range slices.Sorted(maps.Keys(played)) {
		said = append(said, strings.Join(played[builds], ", ")+" by "+builds)
	}
	return "played by different builds of this program, at different times: " + strings.Join(said, "; ")
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
