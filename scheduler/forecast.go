package scheduler

import (
	"math"

	"tranche/episode"
)

// forecast tells how long answers get and how far off that may be. A batch waits for its longest answer, so the mean alone does not do:
// what counts is how the longest of n gets. Everything is kept in natural logarithms of tokens: lengths differ by factors.
type forecast struct {
	all     logs
	cells   map[episode.Cell]*logs
	within  float64 // Σ of squared differences between siblings, of so many
	withinN float64
	total   float64 // Σ of squared errors where nothing but the cell was known, of so many
	totalN  float64
	misses  [evidences]spread
}

// logs are a count and a sum of logarithms.
type logs struct{ n, sum float64 }

func (l *logs) add(x float64) {
	l.n++
	l.sum += x
}

func (l logs) mean(towards, weight float64) float64 {
	return (l.sum + weight*towards) / (l.n + weight)
}

// evidence is how many answers of siblings a forecast rests on: none, one, two, or more.
const evidences = 4

// Weights of what is believed before anything is seen, in answers.
const (
	cellWeight    = 8
	wholeWeight   = 4
	siblingWeight = 8
	priorWithin   = 0.3 // variance of siblings' lengths, in squared logarithms
	priorTotal    = 1.0 // of all
)

func newForecast() *forecast {
	f := &forecast{cells: map[episode.Cell]*logs{}}
	for i := range f.misses {
		f.misses[i].prior = math.Sqrt(priorTotal)
		if i > 0 {
			f.misses[i].prior = 0.7
		}
		f.misses[i].tabulate()
	}
	return f
}

// likely is the logarithm of the expected length of an answer of at most `want` tokens (0 = no bound), given siblings' lengths.
func (f *forecast) likely(cell episode.Cell, siblings logs, want int) float64 {
	x := f.all.mean(math.Log(max(priorAnswer(want), 1)), wholeWeight)
	if own := f.cells[cell]; own != nil {
		x = own.mean(x, cellWeight)
	}
	if siblings.n > 0 {
		x = siblings.mean(x, f.aloof())
	}
	return x
}

// alike is the share in the error of a forecast that siblings have in common.
func (f *forecast) alike(evidence int) float64 {
	within, between := f.variances()
	common := 1 / (1/between + float64(evidence)/within)
	return common / (common + within)
}

// aloof is how many siblings the cell's mean is worth: few when siblings are alike, many when they are not.
func (f *forecast) aloof() float64 {
	within, between := f.variances()
	return within / between
}

// variances are those of siblings around their mean and of the means, in squared logarithms.
func (f *forecast) variances() (within, between float64) {
	within = (f.within + siblingWeight*priorWithin) / (f.withinN + siblingWeight)
	total := (f.total + siblingWeight*priorTotal) / (f.totalN + siblingWeight)
	return within, max(total-within, 0.02*total)
}

// learn takes up an answer: what was expected on what evidence, and what the siblings had said by now.
func (f *forecast) learn(cell episode.Cell, likely float64, evidence int, siblings logs, tokens int) {
	x := logOf(tokens)
	if siblings.n > 0 {
		d := x - siblings.sum/siblings.n
		f.within += d * d / (1 + 1/siblings.n)
		f.withinN++
	}
	if evidence == 0 {
		f.total += (x - likely) * (x - likely)
		f.totalN++
	}
	f.all.add(x)
	own := f.cells[cell]
	if own == nil {
		own = &logs{}
		f.cells[cell] = own
	}
	own.add(x)
	f.misses[evidence].add(x - likely)
}

// tabulate brings the tables up to what was learned.
func (f *forecast) tabulate() {
	for i := range f.misses {
		f.misses[i].tabulate()
	}
}

// spread is how far answers were from what was expected: a histogram of the logarithms of their ratios.
type spread struct {
	prior float64 // standard deviation believed before
	seen  [missBins]float64
	odds  [missBins]float64 // ln of the chance to be at most so far off
	once  [powers]float64   // expected ratio of the longest of 2^k answers
	twice [powers]float64   // and of its square
}

const (
	missWidth   = 0.25
	missBins    = 48
	missZero    = 24 // the bin of answers as long as expected
	missWeight  = 6  // of the prior, in answers
	powers      = 11
	neverLonger = -50 // ln of a chance taken for nought
)

func missBin(miss float64) int {
	return min(max(int(math.Round(miss/missWidth))+missZero, 0), missBins-1)
}

func (s *spread) add(miss float64) { s.seen[missBin(miss)]++ }

// tabulate makes the tables from the histogram and the prior, a normal distribution.
func (s *spread) tabulate() {
	var mass [missBins]float64
	sum, bell := 0.0, 0.0
	for b := range mass {
		z := float64(b-missZero) * missWidth / s.prior
		mass[b] = math.Exp(-z * z / 2)
		bell += mass[b]
	}
	for b := range mass {
		mass[b] = s.seen[b] + missWeight*mass[b]/bell
		sum += mass[b]
	}
	up := 0.0
	for b := range mass {
		up += mass[b] / sum
		s.odds[b] = max(math.Log(min(up, 1)), neverLonger)
	}
	s.odds[missBins-1] = 0
	for k := range powers {
		s.once[k], s.twice[k] = s.longest(float64(int(1) << k))
	}
}

// longestOf is what longest is, from the tables.
func (s *spread) longestOf(n float64) (once, twice float64) {
	at := min(math.Log2(n), powers-1)
	k := min(int(at), powers-2)
	part := at - float64(k)
	return s.once[k] + part*(s.once[k+1]-s.once[k]), s.twice[k] + part*(s.twice[k+1]-s.twice[k])
}

// at is the logarithm of the chance to be at most in that bin.
func (s *spread) at(bin int) float64 {
	switch {
	case bin < 0:
		return neverLonger
	case bin >= missBins:
		return 0
	}
	return s.odds[bin]
}

// longest is the expected ratio of the longest of n answers to what was expected, and that of its square.
func (s *spread) longest(n float64) (once, twice float64) {
	below := 0.0
	for b := range s.odds {
		up := math.Exp(n * s.odds[b])
		ratio := math.Exp(float64(b-missZero) * missWidth)
		once += (up - below) * ratio
		twice += (up - below) * ratio * ratio
		below = up
	}
	return once, twice
}
