package sampler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Law: an interval that says 95 % holds the truth about so often. The samples of a task are alike (a task is hard or easy), groups are of
// different sizes, and rewards are 0 or 1: what a mean over rows with an interval over rows gets badly wrong.
func TestIntervalsHoldTheTruthAboutAsOftenAsTheySay(t *testing.T) {
	const rounds = 500
	for _, c := range []struct {
		tasks int
		least float64
	}{{12, 0.91}, {40, 0.92}} {
		rng := rand.New(rand.NewPCG(7, uint64(c.tasks)))
		one, pair, naive := 0, 0, 0
		for range rounds {
			var a, b Clusters
			var rows []float64
			for task := range c.tasks {
				name := fmt.Sprint(task)
				ease := rng.Float64() // mean 0.5; the second run is better by 0.1 on average
				better := ease * 0.8
				n := int64(2 + rng.IntN(6))
				for range n {
					v := flipped(rng, better)
					rows = append(rows, v)
					a.Add(name, v, 1)
					b.Add(name, flipped(rng, better+0.2*rng.Float64()), 1)
				}
			}
			if e := a.Estimate(); *e.Low <= 0.4 && 0.4 <= *e.High {
				one++
			}
			if p := Compare(&a, &b); *p.Difference.Low <= 0.1 && 0.1 <= *p.Difference.High {
				pair++
			}
			if low, high := overRows(rows); low <= 0.4 && 0.4 <= high {
				naive++
			}
		}
		share := func(n int) float64 { return float64(n) / rounds }
		t.Logf("%d tasks: the interval of a mean holds it in %.3f, that of a difference in %.3f; one over rows would in %.3f", c.tasks, share(one), share(pair), share(naive))
		for name, got := range map[string]float64{"mean": share(one), "difference": share(pair)} {
			if got < c.least || got > 0.985 {
				t.Errorf("%d tasks, %s: holds the truth in %.3f of cases, want %.3f to 0.985", c.tasks, name, got, c.least)
			}
		}
		if share(naive) > c.least {
			t.Errorf("an interval over rows does as well (%.3f): this test tells nothing", share(naive))
		}
	}
}

func flipped(rng *rand.Rand, p float64) float64 {
	if rng.Float64() < p {
		return 1
	}
	return 0
}

func overRows(rows []float64) (low, high float64) {
	mean, squares := 0.0, 0.0
	for _, v := range rows {
		mean += v / float64(len(rows))
	}
	for _, v := range rows {
		squares += (v - mean) * (v - mean)
	}
	half := 1.96 * math.Sqrt(squares/float64(len(rows)-1)/float64(len(rows)))
	return mean - half, mean + half
}

// Laws: a set held against itself differs by nothing; the other way round is the same with the sign turned; what is in one alone does not count.
func TestPairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 50 {
		var a, b Clusters
		for task := range 8 + round {
			for range 1 + rng.IntN(3) {
				a.Add(fmt.Sprint(task), rng.Float64(), 1)
			}
			b.Add(fmt.Sprint(task), rng.Float64(), 1)
		}
		a.Add("only a", 1, 1)
		b.Add("only b", 1, 1)
		b.Add("nor this one", 1, 0) // no value
		same := Compare(&a, &a)
		if d := same.Difference; d.Mean != 0 || *d.Low != 0 || *d.High != 0 || same.OnlyA != 0 {
			t.Fatalf("against itself: %+v", same)
		}
		there, back := Compare(&a, &b), Compare(&b, &a)
		if there.OnlyA != 1 || there.OnlyB != 1 || there.Difference.Clusters != 8+round {
			t.Fatalf("%+v", there)
		}
		d, e := there.Difference, back.Difference
		if d.Mean != -e.Mean || *d.Low != -*e.High || *d.High != -*e.Low || there.A != back.B || there.B != back.A {
			t.Fatalf("there %+v, back %+v", there, back)
		}
		if math.Abs(there.B-there.A-d.Mean) > 1e-12 {
			t.Fatalf("the difference is not that of the means: %+v", there)
		}
	}
	var few, none Clusters
	for task := range 7 {
		few.Add(fmt.Sprint(task), 1, 1)
	}
	if d := Compare(&few, &few).Difference; d.Low != nil || d.High != nil {
		t.Errorf("an interval over 7 tasks: %+v", d)
	}
	if Compare(&few, &none) != nil || none.Estimate() != nil {
		t.Error("something came of nothing")
	}
}

// Clusters of one value each are independent values: the textbook's interval of a mean.
func TestClustersOfOneValueAreIndependent(t *testing.T) {
	var c Clusters
	values := []float64{2, 4, 4, 4, 5, 5, 7, 9} // mean 5, deviation 2.138
	for i, v := range values {
		c.Add(fmt.Sprint(i), v, 1)
	}
	e := c.Estimate()
	const half = 2.364624 * 2.1380899 / 2.8284271 // t(7) at 97.5 %
	if e.Mean != 5 || math.Abs(*e.High-5-half) > 1e-4 || math.Abs(5-half-*e.Low) > 1e-4 {
		t.Errorf("%v, %v to %v, want 5 ± %v", e.Mean, *e.Low, *e.High, half)
	}
	if i := Independent(8, 5, 2.1380899); math.Abs(*i.High-*e.High) > 1e-6 {
		t.Errorf("by deviation up to %v, by values up to %v", *i.High, *e.High)
	}
	var twice Clusters // the same values again in each cluster tell nothing new
	for range 2 {
		twice.AddAll(&c)
	}
	if w := twice.Estimate(); w.N != 16 || math.Abs(*w.High-*e.High) > 1e-9 {
		t.Errorf("with every value twice up to %v, once up to %v", *w.High, *e.High)
	}
}

func TestEstimatesAreNumbersOrNone(t *testing.T) {
	var c Clusters
	for i := range 10 {
		c.Add(fmt.Sprint(i), math.MaxFloat64, 1)
	}
	if e := c.Estimate(); e != nil {
		t.Errorf("the mean of what has no sum is %v", e.Mean)
	}
}

// Law: quantiles are values that are there, exactly, until there are too many different ones, and then to within the error that is told.
func TestSpread(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	shares := []float64{0, 0.1, 0.5, 0.9, 0.99, 1}
	for name, most := range map[string]int{"exact": 0, "rounded": 500, "rounded much": 40} {
		t.Run(name, func(t *testing.T) {
			s := Spread{most: most}
			var values []float64
			for range 5000 {
				v := math.Exp(3*rng.NormFloat64()) * float64(1-2*rng.IntN(2))
				values = append(values, v)
				s.Add(v)
			}
			s.Add(math.NaN())
			s.Add(math.Inf(1))
			slices.Sort(values)
			if got := len(s.counts); most > 0 && got > most && s.digits != 1 {
				t.Errorf("holds %d values, want at most %d", got, most)
			}
			if (s.Error() == 0) != (most == 0) {
				t.Errorf("the error is %v", s.Error())
			}
			sum := 0.0
			for _, v := range values {
				sum += v
			}
			if s.N() != 5000 || math.Abs(s.Mean()-sum/5000) > 1e-9*math.Abs(sum) {
				t.Errorf("n %d, mean %v", s.N(), s.Mean())
			}
			for i, q := range s.Quantiles(shares...) {
				want := values[max(int(math.Ceil(shares[i]*5000))-1, 0)]
				if math.Abs(q-want) > s.Error()*math.Abs(want) {
					t.Errorf("quantile %v is %v, want %v to within %v", shares[i], q, want, s.Error())
				}
			}
		})
	}
	var none Spread
	if none.Quantiles(0.5) != nil {
		t.Error("a quantile of nothing")
	}
}
