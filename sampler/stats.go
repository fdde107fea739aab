package sampler

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/combin"
)

// PassAtK is the unbiased estimate of the chance that at least one of k samples passes, from n samples of which c passed (Chen and others,
// 2021, arXiv 2107.03374): 1 - C(n-c, k)/C(n, k). NaN where k is over n.
func PassAtK(n, c, k int) float64 {
	if k < 1 || k > n {
		return math.NaN()
	}
	if n-c < k {
		return 1
	}
	return 1 - math.Exp(combin.LogGeneralizedBinomial(float64(n-c), float64(k))-combin.LogGeneralizedBinomial(float64(n), float64(k)))
}

// PassAllK is the unbiased estimate of the chance that all of k samples pass (pass^k of tau-bench, arXiv 2406.12045): C(c, k)/C(n, k). NaN
// where k is over n.
func PassAllK(n, c, k int) float64 {
	switch {
	case k < 1 || k > n:
		return math.NaN()
	case c < k:
		return 0
	}
	return math.Exp(combin.LogGeneralizedBinomial(float64(c), float64(k)) - combin.LogGeneralizedBinomial(float64(n), float64(k)))
}

// Groups collects rewards by group and sums them up by domain. A sample passes with a reward of 1. A group that is whole is kept as a count
// of its like, so that a dataset of any size can be gone through.
type Groups struct {
	open  map[string]*openStats
	whole map[string]map[groupSum]int // by domain: how many groups came to this
}

type openStats struct {
	domain string
	groupSum
	told  int
	first float64
}

// groupSum is what the samples of a group with a verdict came to.
type groupSum struct {
	samples, passes int
	sum             float64
	differ          bool
}

func (s groupSum) mean() float64 { return s.sum / float64(s.samples) }

func (s groupSum) compare(o groupSum) int {
	return cmp.Or(cmp.Compare(s.samples, o.samples), cmp.Compare(s.passes, o.passes), cmp.Compare(s.sum, o.sum), sign(s.differ, o.differ))
}

// Add takes the reward of one sample of a group of size; nil = no verdict, which says nothing.
func (g *Groups) Add(group, domain string, size int, reward *float64) {
	if g.open == nil {
		g.open, g.whole = map[string]*openStats{}, map[string]map[groupSum]int{}
	}
	r := g.open[group]
	if r == nil {
		r = &openStats{domain: domain}
		g.open[group] = r
	}
	r.add(reward)
	if r.told >= size {
		delete(g.open, group)
		count(g.whole, r)
	}
}

func (r *openStats) add(reward *float64) {
	if r.told++; reward == nil {
		return
	}
	if r.samples == 0 {
		r.first = *reward
	}
	r.samples++
	r.sum += *reward
	r.differ = r.differ || *reward != r.first
	if *reward >= 1 {
		r.passes++
	}
}

// count enters a group; one without a verdict says nothing.
func count(into map[string]map[groupSum]int, r *openStats) {
	if r.samples == 0 {
		return
	}
	for _, name := range []string{r.domain, Overall} {
		if into[name] == nil {
			into[name] = map[groupSum]int{}
		}
		into[name][r.groupSum]++
	}
}

// GroupStats is what the groups of a domain came to.
type GroupStats struct {
	Groups  int       `json:"groups"`  // with at least one verdict
	Samples int       `json:"samples"` // with a verdict
	Useful  int       `json:"useful"`  // groups with rewards that differ
	Mean    float64   `json:"mean"`    // of the groups' means: every group counts alike
	Low     float64   `json:"mean_low"`
	High    float64   `json:"mean_high"` // the middle 95 % of the mean over groups drawn again by chance
	Pass    []KChance `json:"pass"`
}

// KChance is pass@k and pass^k, over the groups that have k samples.
type KChance struct {
	K      int     `json:"k"`
	Any    float64 `json:"pass_at_k"`    // at least one of k samples passes
	All    float64 `json:"pass_power_k"` // all of k samples pass
	Groups int     `json:"groups"`
}

// Overall is the name of all domains together in Groups.Stats.
const Overall = "all"

// leastTasks is how many tasks a drop takes: with fewer, groups drawn again by chance are too alike to tell.
const leastTasks = 8

// resamples is how often groups are drawn again for an interval.
const resamples = 1000

// Stats sums up, by domain and over all of them; nil without a verdict. Groups that are not whole count as they are. The seed fixes the
// intervals.
func (g *Groups) Stats(seed uint64) map[string]GroupStats {
	all := map[string]map[groupSum]int{}
	for name, sums := range g.whole {
		all[name] = maps.Clone(sums)
	}
	for _, r := range g.open {
		count(all, r)
	}
	if len(all) == 0 {
		return nil
	}
	out := make(map[string]GroupStats, len(all))
	for name, sums := range all {
		out[name] = statsOf(sums, seed)
	}
	return out
}

func statsOf(sums map[groupSum]int, seed uint64) GroupStats {
	var s GroupStats
	var means, counts []float64
	most := 0
	list := slices.SortedFunc(maps.Keys(sums), groupSum.compare) // one order, so that the intervals are the same every time
	for _, g := range list {
		n := sums[g]
		s.Groups += n
		s.Samples += n * g.samples
		if g.differ {
			s.Useful += n
		}
		most = max(most, g.samples)
		means, counts = append(means, g.mean()), append(counts, float64(n))
	}
	s.Mean = stat.Mean(means, counts)
	s.Low, s.High = bootstrap(means, counts, seed)
	for k := 1; k <= most; k = nextK(k, most) {
		s.Pass = append(s.Pass, passes(list, sums, k))
	}
	return s
}

// nextK goes by powers of two, and ends with the most: pass@k of 64 samples is not 64 numbers. Up to four every k is told.
func nextK(k, most int) int {
	switch {
	case k < 4:
		return k + 1
	case k < most && 2*k > most:
		return most
	}
	return 2 * k
}

func passes(list []groupSum, sums map[groupSum]int, k int) KChance {
	c := KChance{K: k}
	for _, g := range list {
		if n := sums[g]; g.samples >= k {
			c.Groups += n
			c.Any += float64(n) * PassAtK(g.samples, g.passes, k)
			c.All += float64(n) * PassAllK(g.samples, g.passes, k)
		}
	}
	c.Any /= float64(c.Groups)
	c.All /= float64(c.Groups)
	return c
}

// bootstrap is the middle 95 % of the mean over values drawn again by chance, as many as there are; counts says how often each value is there,
// nil = once. For more than a few thousand that is a normal distribution, and drawing again would only take time.
func bootstrap(values, counts []float64, seed uint64) (low, high float64) {
	var each []float64
	n := float64(len(values))
	if counts != nil {
		n = floats.Sum(counts)
	}
	if n > normalFrom {
		mean, sd := stat.MeanStdDev(values, counts)
		half := 1.959964 * sd / math.Sqrt(n)
		return mean - half, mean + half
	}
	for i, v := range values {
		times := 1
		if counts != nil {
			times = int(counts[i])
		}
		each = append(each, slices.Repeat([]float64{v}, times)...)
	}
	rng := rand.New(rand.NewPCG(seed, uint64(len(each))))
	means := make([]float64, resamples)
	for i := range means {
		sum := 0.0
		for range each {
			sum += each[rng.IntN(len(each))]
		}
		means[i] = sum / float64(len(each))
	}
	slices.Sort(means)
	return stat.Quantile(0.025, stat.Empirical, means, nil), stat.Quantile(0.975, stat.Empirical, means, nil)
}

const normalFrom = 5000

// Evaluations collects what came of the tasks that are kept apart, by the number of the evaluation.
type Evaluations struct {
	byRound map[int]map[string]*taskMean
}

type taskMean struct {
	sum     float64
	samples int // with a verdict
	all     int
}

// Add takes one sample; nil = no verdict.
func (v *Evaluations) Add(round int, taskID string, reward *float64) {
	if v.byRound == nil {
		v.byRound = map[int]map[string]*taskMean{}
	}
	if v.byRound[round] == nil {
		v.byRound[round] = map[string]*taskMean{}
	}
	m := v.byRound[round][taskID]
	if m == nil {
		m = &taskMean{}
		v.byRound[round][taskID] = m
	}
	m.all++
	if reward != nil {
		m.sum += *reward
		m.samples++
	}
}

// Samples is how many came of an evaluation.
func (v *Evaluations) Samples(round int) int {
	n := 0
	for _, m := range v.byRound[round] {
		n += m.all
	}
	return n
}

// Evaluation is one evaluation, held against the best before it.
type Evaluation struct {
	Number  int     `json:"number"`
	Tasks   int     `json:"tasks"`   // with a verdict
	Samples int     `json:"samples"` // played, those without a verdict included
	Mean    float64 `json:"mean"`    // of the tasks' means
	Low     float64 `json:"mean_low"`
	High    float64 `json:"mean_high"`
	// Change is the mean over the tasks of both evaluations, less that of the best one before; null for the first. Its interval is over those
	// tasks, each held against itself.
	Change *Change `json:"change,omitempty"`
	// Dropped says that the whole interval of the change is below 0, with at least 8 tasks to tell by.
	Dropped bool `json:"dropped"`
}

// Change is how an evaluation differs from the best before it.
type Change struct {
	Since int     `json:"since"` // number of that evaluation
	Tasks int     `json:"tasks"` // in both
	Mean  float64 `json:"mean"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// List is the evaluations in order. The seed fixes the intervals.
func (v *Evaluations) List(seed uint64) []Evaluation {
	var out []Evaluation
	best := -1
	for _, n := range slices.Sorted(maps.Keys(v.byRound)) {
		means := v.means(n)
		if len(means) == 0 {
			continue
		}
		e := Evaluation{Number: n, Tasks: len(means), Samples: v.Samples(n)}
		values := inOrder(means)
		e.Mean = stat.Mean(values, nil)
		e.Low, e.High = bootstrap(values, nil, seed)
		if best >= 0 {
			e.Change = change(v.means(out[best].Number), means, out[best].Number, seed)
			e.Dropped = e.Change != nil && e.Change.Tasks >= leastTasks && e.Change.High < 0
		}
		out = append(out, e)
		if best < 0 || cmp.Compare(e.Mean, out[best].Mean) > 0 {
			best = len(out) - 1
		}
	}
	return out
}

func (v *Evaluations) means(round int) map[string]float64 {
	out := map[string]float64{}
	for id, m := range v.byRound[round] {
		if m.samples > 0 {
			out[id] = m.sum / float64(m.samples)
		}
	}
	return out
}

func inOrder(means map[string]float64) []float64 {
	out := make([]float64, 0, len(means))
	for _, id := range slices.Sorted(maps.Keys(means)) {
		out = append(out, means[id])
	}
	return out
}

// change holds each task against itself; nil when no task is in both.
func change(before, now map[string]float64, since int, seed uint64) *Change {
	differences := map[string]float64{}
	for id, m := range now {
		if was, ok := before[id]; ok {
			differences[id] = m - was
		}
	}
	if len(differences) == 0 {
		return nil
	}
	values := inOrder(differences)
	c := &Change{Since: since, Tasks: len(values), Mean: stat.Mean(values, nil)}
	c.Low, c.High = bootstrap(values, nil, seed)
	return c
}
