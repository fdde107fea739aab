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
	"gonum.org/v1/gonum/stat/distuv"
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
// of its like, so that a dataset of any size can be gone through; where tasks come again, 8 bytes a group are kept besides.
type Groups struct {
	// Again says that a task may have several groups: then intervals are over tasks, for groups of one task are alike.
	Again bool

	open  map[string]*openStats
	short map[string]shortGroup       // groups that ended early and are not whole yet
	whole map[string]map[groupSum]int // by domain: how many groups came to this
	tasks map[string]taskMeans        // by domain, with Again
}

// taskMeans are the means of each task's groups, by a hash of the task's id.
type taskMeans map[uint64][]float64

type shortGroup struct{ samples, of int }

type openStats struct {
	task, domain string
	groupSum
	told  int
	first float64
}

// groupSum is what the samples of a group with a verdict came to.
type groupSum struct {
	samples, passes int
	sum             float64
	differ          bool
	of              int // samples it would have had, had it not ended early because the others would be alike; 0 = it did not
}

func (s groupSum) mean() float64 { return s.sum / float64(s.samples) }

// trials is the samples and passes for pass@k. A group that ended early counts as if its other samples had been like those it has, which is why
// it ended; to leave it out would leave the unsure ones alone.
func (s groupSum) trials() (n, c int) {
	switch {
	case s.of == 0 || s.passes > 0 && s.passes < s.samples:
		return s.samples, s.passes
	case s.passes > 0:
		return s.of, s.of
	}
	return s.of, 0
}

func (s groupSum) compare(o groupSum) int {
	return cmp.Or(cmp.Compare(s.samples, o.samples), cmp.Compare(s.passes, o.passes), cmp.Compare(s.sum, o.sum), sign(s.differ, o.differ), cmp.Compare(s.of, o.of))
}

// Add takes the reward of one sample of a group of size; nil = no verdict, which says nothing.
func (g *Groups) Add(group, task, domain string, size int, reward *float64) {
	if g.open == nil {
		g.open = map[string]*openStats{}
	}
	r := g.open[group]
	if r == nil {
		r = &openStats{task: task, domain: domain}
		g.open[group] = r
	}
	r.add(reward)
	g.close(group, r, size)
}

// End says that a group has ended with fewer samples than the `of` it might have had. Its samples may come later.
func (g *Groups) End(group string, samples, of int) {
	if g.short == nil {
		g.short = map[string]shortGroup{}
	}
	g.short[group] = shortGroup{samples, of}
	if r := g.open[group]; r != nil {
		g.close(group, r, of)
	}
}

// close enters the group if it is whole.
func (g *Groups) close(group string, r *openStats, size int) {
	end, short := g.short[group]
	if short {
		size = end.samples
	}
	if r.told < size {
		return
	}
	r.of = end.of
	delete(g.open, group)
	delete(g.short, group)
	if g.whole == nil {
		g.whole, g.tasks = map[string]map[groupSum]int{}, map[string]taskMeans{}
	}
	g.count(g.whole, g.tasks, r)
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
func (g *Groups) count(into map[string]map[groupSum]int, tasks map[string]taskMeans, r *openStats) {
	if r.samples == 0 {
		return
	}
	for _, name := range []string{r.domain, Overall} {
		if into[name] == nil {
			into[name] = map[groupSum]int{}
		}
		into[name][r.groupSum]++
		if !g.Again {
			continue
		}
		if tasks[name] == nil {
			tasks[name] = taskMeans{}
		}
		h := hash64(r.task)
		tasks[name][h] = append(tasks[name][h], r.mean())
	}
}

// GroupStats is what the groups of a domain came to.
type GroupStats struct {
	Groups  int     `json:"groups"`  // with at least one verdict
	Samples int     `json:"samples"` // with a verdict
	Useful  int     `json:"useful"`  // groups with rewards that differ
	Mean    float64 `json:"mean"`    // of the groups' means: every group counts alike
	// Low and High are the middle 95 % of the mean over tasks drawn again by chance, each with all its groups; null with fewer than 8 tasks.
	Low  *float64  `json:"mean_low"`
	High *float64  `json:"mean_high"`
	Pass []KChance `json:"pass"`
}

// KChance is pass@k and pass^k, over the groups that have k samples. A group that ended early, because its other samples would surely have been
// like those it has, counts as if they had been.
type KChance struct {
	K      int     `json:"k"`
	Any    float64 `json:"pass_at_k"`    // at least one of k samples passes
	All    float64 `json:"pass_power_k"` // all of k samples pass
	Groups int     `json:"groups"`
}

// Overall is the name of all domains together in Groups.Stats.
const Overall = "all"

// leastTasks is how many tasks an interval, and so a drop, takes: fewer that are drawn again by chance are too alike to tell.
const leastTasks = 8

// resamples is how often tasks are drawn again for an interval.
const resamples = 1000

// Stats sums up, by domain and over all of them; nil without a verdict. Groups that are not whole count as they are. The seed fixes the
// intervals.
func (g *Groups) Stats(seed uint64) map[string]GroupStats {
	all, tasks := map[string]map[groupSum]int{}, map[string]taskMeans{}
	for name, sums := range g.whole {
		all[name] = maps.Clone(sums)
	}
	for name, means := range g.tasks {
		tasks[name] = maps.Clone(means)
	}
	for _, r := range g.open {
		g.count(all, tasks, r)
	}
	if len(all) == 0 {
		return nil
	}
	out := make(map[string]GroupStats, len(all))
	for name, sums := range all {
		out[name] = g.statsOf(sums, tasks[name], seed)
	}
	return out
}

func (g *Groups) statsOf(sums map[groupSum]int, tasks taskMeans, seed uint64) GroupStats {
	var s GroupStats
	var units []unit
	most, total := 0, 0.0
	list := slices.SortedFunc(maps.Keys(sums), groupSum.compare) // one order, so that the intervals are the same every time
	for _, sum := range list {
		n := sums[sum]
		s.Groups += n
		s.Samples += n * sum.samples
		if sum.differ {
			s.Useful += n
		}
		size, _ := sum.trials()
		most = max(most, size)
		total += float64(n) * sum.mean()
		units = append(units, unit{sum: sum.mean(), n: 1, times: n})
	}
	if g.Again {
		units = tasks.units()
	}
	s.Mean = total / float64(s.Groups)
	s.Low, s.High = interval(units, seed)
	for k := 1; k <= most; k = nextK(k, most) {
		s.Pass = append(s.Pass, passes(list, sums, k))
	}
	return s
}

// units are the tasks, each with all its groups, in one order.
func (m taskMeans) units() []unit {
	out := make([]unit, 0, len(m))
	for _, h := range slices.Sorted(maps.Keys(m)) {
		means := slices.Sorted(slices.Values(m[h]))
		out = append(out, unit{sum: floats.Sum(means), n: float64(len(means)), times: 1})
	}
	return out
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
	p := KChance{K: k}
	for _, g := range list {
		if n, c := g.trials(); n >= k {
			times := sums[g]
			p.Groups += times
			p.Any += float64(times) * PassAtK(n, c, k)
			p.All += float64(times) * PassAllK(n, c, k)
		}
	}
	p.Any /= float64(p.Groups)
	p.All /= float64(p.Groups)
	return p
}

// unit is what is drawn again as a whole for an interval: n values that are not independent, by their sum. It is there so many times.
type unit struct {
	sum, n float64
	times  int
}

// interval is the middle 95 % of the mean over units drawn again by chance, as many as there are; nil for fewer than 8, which are too alike to
// tell. For more than a few thousand that is a normal distribution, and drawing again would only take time.
func interval(units []unit, seed uint64) (low, high *float64) {
	count, sum, n := 0, 0.0, 0.0
	for _, u := range units {
		count += u.times
		sum += float64(u.times) * u.sum
		n += float64(u.times) * u.n
	}
	switch {
	case count < leastTasks:
		return nil, nil
	case count > normalFrom:
		return normal(units, count, sum/n, n)
	}
	var each []unit
	for _, u := range units {
		each = append(each, slices.Repeat([]unit{u}, u.times)...)
	}
	rng := rand.New(rand.NewPCG(seed, uint64(len(each))))
	means := make([]float64, resamples)
	for i := range means {
		sum, n := 0.0, 0.0
		for range each {
			u := each[rng.IntN(len(each))]
			sum, n = sum+u.sum, n+u.n
		}
		means[i] = sum / n
	}
	slices.Sort(means)
	l, h := stat.Quantile(0.025, stat.Empirical, means, nil), stat.Quantile(0.975, stat.Empirical, means, nil)
	return &l, &h
}

// normal is the interval of a mean of so many units with n values in all, by how far each is from it.
func normal(units []unit, count int, mean, n float64) (low, high *float64) {
	squares := 0.0
	for _, u := range units {
		d := u.sum - mean*u.n
		squares += float64(u.times) * d * d
	}
	half := 1.959964 * math.Sqrt(squares*float64(count)/float64(count-1)) / n
	l, h := mean-half, mean+half
	return &l, &h
}

const normalFrom = 5000

// Evaluations collects what came of the tasks that are kept apart, by the number of the evaluation.
type Evaluations struct {
	byRound map[int]*evaluated
}

// evaluated is one evaluation, by task.
type evaluated struct {
	tasks   map[string]*taskMean
	samples int // that came, those without a verdict included
	mean    float64
	known   bool // mean is of all samples that came
}

type taskMean struct {
	sum     float64
	samples int // with a verdict
}

// Add takes one sample; nil = no verdict. It returns how many the evaluation has with it.
func (v *Evaluations) Add(round int, taskID string, reward *float64) (samples int) {
	if v.byRound == nil {
		v.byRound = map[int]*evaluated{}
	}
	e := v.byRound[round]
	if e == nil {
		e = &evaluated{tasks: map[string]*taskMean{}}
		v.byRound[round] = e
	}
	m := e.tasks[taskID]
	if m == nil {
		m = &taskMean{}
		e.tasks[taskID] = m
	}
	e.samples++
	e.known = false
	if reward != nil {
		m.sum += *reward
		m.samples++
	}
	return e.samples
}

// means is the mean of each task with a verdict.
func (e *evaluated) means() map[string]float64 {
	out := map[string]float64{}
	for id, m := range e.tasks {
		if m.samples > 0 {
			out[id] = m.sum / float64(m.samples)
		}
	}
	return out
}

// average is the mean of the tasks' means; false without a verdict. It is found once.
func (e *evaluated) average() (float64, bool) {
	if !e.known {
		e.mean, e.known = stat.Mean(inOrder(e.means()), nil), true
	}
	return e.mean, !math.IsNaN(e.mean)
}

// Evaluation is one evaluation, held against the best before it.
type Evaluation struct {
	Number  int      `json:"number"`
	Tasks   int      `json:"tasks"`   // with a verdict
	Samples int      `json:"samples"` // played, those without a verdict included
	Mean    float64  `json:"mean"`    // of the tasks' means
	Low     *float64 `json:"mean_low"`
	High    *float64 `json:"mean_high"` // null with fewer than 8 tasks
	// Change is the mean over the tasks of both evaluations, less that of the best one before; null for the first. Its interval is over those
	// tasks, each held against itself.
	Change *Change `json:"change,omitempty"`
	// Dropped says that the mean went down by more than chance does, where the best of all before it was partly best by luck.
	Dropped bool `json:"dropped"`
}

// Change is how an evaluation differs from the best before it.
type Change struct {
	Since int      `json:"since"` // number of that evaluation
	Tasks int      `json:"tasks"` // in both
	Mean  float64  `json:"mean"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"` // null with fewer than 8 tasks
}

// List is the evaluations in order. The seed fixes the intervals.
func (v *Evaluations) List(seed uint64) []Evaluation {
	var out []Evaluation
	for _, n := range slices.Sorted(maps.Keys(v.byRound)) {
		if p, ok := v.Against(n); ok {
			out = append(out, p.Evaluation(seed))
		}
	}
	return out
}

// Pair is one evaluation and the best before it, copied: what more comes does not change it.
type Pair struct {
	number, samples, since int
	earlier                int                // evaluations that the best is the best of
	now, before            map[string]float64 // before is nil where there is none
}

// Against holds an evaluation against the best one before it; false where it has no verdict.
func (v *Evaluations) Against(round int) (p Pair, ok bool) {
	e := v.byRound[round]
	if e == nil {
		return p, false
	}
	if _, ok := e.average(); !ok {
		return p, false
	}
	p = Pair{number: round, samples: e.samples, now: e.means()}
	var best *evaluated
	for _, n := range slices.Sorted(maps.Keys(v.byRound)) {
		if n >= round {
			break
		}
		mean, ok := v.byRound[n].average()
		if ok {
			p.earlier++
		}
		if ok && (best == nil || mean > best.mean) {
			best, p.since = v.byRound[n], n
		}
	}
	if best != nil {
		p.before = best.means()
	}
	return p, true
}

// Evaluation finds the intervals, which takes a while. The seed fixes them.
func (p Pair) Evaluation(seed uint64) Evaluation {
	values := inOrder(p.now)
	e := Evaluation{Number: p.number, Tasks: len(values), Samples: p.samples, Mean: stat.Mean(values, nil)}
	e.Low, e.High = interval(alone(values), seed)
	if p.before != nil {
		e.Change = change(p.before, p.now, p.since, seed)
		e.Dropped = e.Change != nil && dropped(differences(p.before, p.now), p.earlier)
	}
	return e
}

// dropped says whether the mean over tasks went down from the best of so many earlier evaluations by more than chance does. The best is partly best by
// luck, so the chance of 1 in 40 is shared out among all it was chosen from (Bonferroni), with Student's distribution of the mean.
func dropped(by map[string]float64, earlier int) bool {
	values := inOrder(by)
	n := float64(len(values))
	if len(values) < leastTasks {
		return false
	}
	mean, root := stat.MeanStdDev(values, nil)
	far := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(1 - 0.025/float64(max(earlier, 1)))
	return mean+far*root/math.Sqrt(n) < 0
}

// alone makes each value a unit.
func alone(values []float64) []unit {
	out := make([]unit, len(values))
	for i, v := range values {
		out[i] = unit{v, 1, 1}
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
	values := inOrder(differences(before, now))
	if len(values) == 0 {
		return nil
	}
	c := &Change{Since: since, Tasks: len(values), Mean: stat.Mean(values, nil)}
	c.Low, c.High = interval(alone(values), seed)
	return c
}

// differences are those of the tasks that are in both.
func differences(before, now map[string]float64) map[string]float64 {
	by := map[string]float64{}
	for id, m := range now {
		if was, ok := before[id]; ok {
			by[id] = m - was
		}
	}
	return by
}
