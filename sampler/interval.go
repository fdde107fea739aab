package sampler

import (
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Clusters collects values that are not independent inside a cluster, such as what came of the samples of one task, by their sums: a mean
// with an interval that knows of it needs no more. A cluster is told by its name. Memory: some 50 bytes a cluster.
type Clusters struct {
	sums map[uint64]clusterSum
}

// clusterSum is n values by their sum.
type clusterSum struct {
	sum float64
	n   int64
}

// Add takes n values of a cluster by their sum.
func (c *Clusters) Add(cluster string, sum float64, n int64) {
	if c.sums == nil {
		c.sums = map[uint64]clusterSum{}
	}
	h := hash64(cluster)
	s := c.sums[h]
	c.sums[h] = clusterSum{s.sum + sum, s.n + n}
}

// AddAll takes all that another one has.
func (c *Clusters) AddAll(o *Clusters) {
	if c.sums == nil {
		c.sums = map[uint64]clusterSum{}
	}
	for h, s := range o.sums {
		c.sums[h] = clusterSum{c.sums[h].sum + s.sum, c.sums[h].n + s.n}
	}
}

// N is how many values there are.
func (c *Clusters) N() (n int64) {
	for _, s := range c.sums {
		n += s.n
	}
	return n
}

// Estimate is a mean, and how sure it is.
type Estimate struct {
	N        int64   `json:"n"`        // values
	Clusters int     `json:"clusters"` // they are of
	Mean     float64 `json:"mean"`
	// Low and High bound the mean with 95 % confidence; null with fewer than 8 clusters, which are too few to tell.
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
}

// Estimate is the mean over all values, with an interval by Student's t over the clusters: the values of one count as one observation,
// however many they are (linearised, as survey samplers do for a ratio). nil without a value, and
// where they are too large for a mean.
func (c *Clusters) Estimate() *Estimate {
	var list []clusterSum
	for _, h := range slices.Sorted(maps.Keys(c.sums)) { // one order, so that the same rows give the same last digit
		if s := c.sums[h]; s.n > 0 {
			list = append(list, s)
		}
	}
	var e Estimate
	total := 0.0
	for _, s := range list {
		e.N += s.n
		total += s.sum
	}
	if e.N == 0 {
		return nil
	}
	e.Clusters, e.Mean = len(list), total/float64(e.N)
	if math.IsInf(e.Mean, 0) || math.IsNaN(e.Mean) {
		return nil
	}
	squares := 0.0
	for _, s := range list {
		d := s.sum - e.Mean*float64(s.n)
		squares += d * d
	}
	e.bound(math.Sqrt(squares) / float64(e.N))
	return &e
}

// Independent is the estimate of a mean of n values that say nothing of one another, from their standard deviation.
func Independent(n int64, mean, deviation float64) Estimate {
	e := Estimate{N: n, Clusters: int(n), Mean: mean}
	e.bound(deviation * math.Sqrt(float64(n-1)) / float64(n))
	return e
}

// bound sets the interval from the root of the summed squares, in units of the mean.
func (e *Estimate) bound(root float64) {
	if e.Clusters < leastTasks {
		return
	}
	n := float64(e.Clusters)
	half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975) * root * math.Sqrt(n/(n-1))
	low, high := e.Mean-half, e.Mean+half
	if math.IsInf(low, 0) || math.IsInf(high, 0) || math.IsNaN(half) {
		return
	}
	e.Low, e.High = &low, &high
}

// Paired is two sets of values held against each other, cluster by cluster.
type Paired struct {
	A float64 `json:"a"` // mean of the clusters' means, those in both alone
	B float64 `json:"b"`
	// Difference is B less A, with its interval: the clusters in both, each held against itself, all with the same weight.
	Difference Estimate `json:"difference"`
	OnlyA      int      `json:"only_a"` // clusters with values in one set alone: not in the numbers above
	OnlyB      int      `json:"only_b"`
}

// Compare holds two sets against each other; nil when no cluster is in both. The interval is Student's t of the differences of the clusters'
// means: the other way round it is the same with the sign turned.
func Compare(a, b *Clusters) *Paired {
	var p Paired
	var differences []float64
	for _, h := range slices.Sorted(maps.Keys(a.sums)) {
		x, y := a.sums[h], b.sums[h]
		switch {
		case x.n == 0:
		case y.n == 0:
			p.OnlyA++
		default:
			p.A += x.mean()
			p.B += y.mean()
			differences = append(differences, y.mean()-x.mean())
		}
	}
	for h, y := range b.sums {
		if y.n > 0 && a.sums[h].n == 0 {
			p.OnlyB++
		}
	}
	n := float64(len(differences))
	if n == 0 {
		return nil
	}
	p.A, p.B = p.A/n, p.B/n
	e := &p.Difference
	e.N, e.Clusters = int64(len(differences)), len(differences)
	for _, d := range differences {
		e.Mean += d / n
	}
	squares := 0.0
	for _, d := range differences {
		squares += (d - e.Mean) * (d - e.Mean)
	}
	e.bound(math.Sqrt(squares) / n)
	return &p
}

func (s clusterSum) mean() float64 { return s.sum / float64(s.n) }

// exactValues is how many different values a Spread holds exactly.
const exactValues = 1 << 16

// Spread holds values so that their quantiles can be told: exactly as long as there are at most 65,536 different ones, else rounded to
// so many binary digits as fit, at first 10 (to within 0.1 %). Memory does not grow with their number.
type Spread struct {
	counts map[float64]int64
	n      int64
	sum    float64
	digits int // of the mantissa; 0 = all
	most   int // different values; 0 = exactValues
}

// Add takes one value; what is no finite number is left out.
func (s *Spread) Add(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	if s.counts == nil {
		s.counts = map[float64]int64{}
	}
	s.n++
	s.sum += v
	s.counts[s.round(v)]++
	for limit := s.limit(); len(s.counts) > limit && s.digits != 1; {
		s.coarsen()
	}
}

func (s *Spread) limit() int {
	if s.most > 0 {
		return s.most
	}
	return exactValues
}

func (s *Spread) coarsen() {
	if s.digits == 0 {
		s.digits = 11
	}
	s.digits--
	old := s.counts
	s.counts = make(map[float64]int64, len(old)/2)
	for v, n := range old {
		s.counts[s.round(v)] += n
	}
}

// round keeps so many digits of the mantissa.
func (s *Spread) round(v float64) float64 {
	if s.digits == 0 || v == 0 {
		return v
	}
	fraction, exponent := math.Frexp(v) // 0.5 to 1: the first binary digit is always set
	return math.Ldexp(math.Round(math.Ldexp(fraction, s.digits+1)), exponent-s.digits-1)
}

// N is how many values there are.
func (s *Spread) N() int64 { return s.n }

// Mean is that of all values, whatever was rounded; NaN without one.
func (s *Spread) Mean() float64 { return s.sum / float64(s.n) }

// Error bounds how far a quantile is from a value that is there, relative to it; 0 = not at all. A value may have been rounded several
// times, each time to within half of what the time before was.
func (s *Spread) Error() float64 {
	if s.digits == 0 {
		return 0
	}
	return math.Ldexp(1, -s.digits)
}

// Quantiles are the smallest values that so large shares (0 to 1) of all values do not exceed; nil without a value.
func (s *Spread) Quantiles(shares ...float64) []float64 {
	if s.n == 0 {
		return nil
	}
	values := slices.Sorted(maps.Keys(s.counts))
	out := make([]float64, len(shares))
	for i, p := range shares {
		out[i] = s.quantile(values, p)
	}
	return out
}

func (s *Spread) quantile(values []float64, p float64) float64 {
	want, n := int64(math.Ceil(p*float64(s.n))), int64(0)
	for _, v := range values {
		if n += s.counts[v]; n >= want {
			return v
		}
	}
	return values[len(values)-1]
}
