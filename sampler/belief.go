package sampler

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Belief is what is known of a task's pass rate: how many passes and failures speak for it, parts of one included. With a Beta(1, 1)
// before anything is known, the pass rate is distributed as Beta(1+Pass, 1+Fail).
type Belief struct {
	Pass float64 `json:"pass"`
	Fail float64 `json:"fail"`
	// Whole and Zero are how many of these trials had a reward of 1 or more, and of 0: parts of a pass are neither.
	Whole float64 `json:"whole,omitempty"`
	Zero  float64 `json:"zero,omitempty"`
}

// wholes counts what passed wholly against all else.
func (b Belief) wholes() (yes, no float64) { return b.Whole, max(b.Pass+b.Fail-b.Whole, 0) }

// somes counts what had any reward against what had none.
func (b Belief) somes() (yes, no float64) { return max(b.Pass+b.Fail-b.Zero, 0), b.Zero }

// Inside is the chance that the pass rate is from low to high.
func (b Belief) Inside(low, high float64) float64 {
	return max(mathext.RegIncBeta(1+b.Pass, 1+b.Fail, high)-mathext.RegIncBeta(1+b.Pass, 1+b.Fail, low), 0)
}

// After is the belief once rewards from 0 to 1 came; nil ones say nothing. keep is how much of what was known before still counts: the
// model changes.
func (b Belief) After(rewards []*float64, keep float64) Belief {
	b = b.times(keep)
	for _, r := range rewards {
		if r != nil {
			p := min(max(*r, 0), 1)
			b.Pass += p
			b.Fail += 1 - p
			switch p {
			case 1:
				b.Whole++
			case 0:
				b.Zero++
			}
		}
	}
	return b
}

func (b Belief) times(f float64) Belief {
	return Belief{b.Pass * f, b.Fail * f, b.Whole * f, b.Zero * f}
}

// atMost scales the belief down to the weight of so many trials.
func (b Belief) atMost(trials float64) Belief {
	if n := b.Pass + b.Fail; n > trials {
		return b.times(trials / n)
	}
	return b
}

// populations are how the chances of a whole reward and of any reward are spread over tasks. Where rewards come in parts these are two
// things: tasks that never pass wholly may often give half.
type populations struct{ whole, some *population }

func newPopulations() populations { return populations{newPopulation(), newPopulation()} }

// add takes the rewards of a group.
func (p populations) add(rewards []*float64) {
	judged, whole, some := 0, 0, 0
	for _, r := range rewards {
		if r == nil {
			continue
		}
		judged++
		if *r >= 1 {
			whole++
		}
		if *r > 0 {
			some++
		}
	}
	if judged > 0 {
		p.whole.add(judged, whole)
		p.some.add(judged, some)
	}
}

// differs is the chance that at least one of `more` further samples is unlike the n before, which all passed wholly or all gave nothing. known is
// what speaks for the task besides.
func (p populations) differs(known Belief, n, more int, passed bool) float64 {
	if passed {
		yes, no := known.wholes()
		return p.whole.differs(yes, no, n, more, true)
	}
	yes, no := known.somes()
	return p.some.differs(yes, no, n, more, false)
}

// population is how one such chance is spread over tasks: as one of many Beta(a, b), each as likely as the groups that were seen make it. One of
// them alone, the likeliest, would be surer than a few groups allow. Groups that were stopped early count as what they are: likelihoods do
// not mind when one stops looking.
type population struct {
	seen map[[2]int]int // how many groups had (samples, passes)
	n    int
	most int // samples of the largest
	grid []spread
}

// spread is a Beta(a, b) and the logarithm of how likely it is.
type spread struct{ a, b, likely float64 }

func newPopulation() *population {
	p := &population{seen: map[[2]int]int{}}
	for m := 0.025; m < 1; m += 0.05 {
		for w := 0.125; w <= 32; w *= 2 {
			p.grid = append(p.grid, spread{a: m * w, b: (1 - m) * w})
		}
	}
	return p
}

// weighEvery is after how many groups the spreads are weighed anew.
const weighEvery = 16

func (p *population) add(samples, passes int) {
	p.seen[[2]int{samples, passes}]++
	p.most = max(p.most, samples)
	if p.n++; p.n%weighEvery == 0 {
		for i := range p.grid {
			p.grid[i].likely = p.likelihood(p.grid[i].a, p.grid[i].b)
		}
	}
}

// likelihood is the logarithm of it, but for what is the same for all a and b. It adds up in one order, so that it is the same every time.
func (p *population) likelihood(a, b float64) float64 {
	sum := 0.0
	for n := 1; n <= p.most; n++ {
		for c := range n + 1 {
			if k := p.seen[[2]int{n, c}]; k > 0 {
				sum += float64(k) * evidence(a, b, float64(c), float64(n-c))
			}
		}
	}
	return sum
}

// evidence is the logarithm of how likely so many passes and failures are, in one order, where pass rates are spread as Beta(a, b).
func evidence(a, b, passes, failures float64) float64 {
	return mathext.Lbeta(a+passes, b+failures) - mathext.Lbeta(a, b)
}

// differs is the chance that at least one of `more` further samples is unlike the n before, which were all yes or all no. Besides, so many
// yes and no of the task are known.
func (p *population) differs(yes, no float64, n, more int, allYes bool) float64 {
	before, after, top := make([]float64, len(p.grid)), make([]float64, len(p.grid)), math.Inf(-1)
	for i, g := range p.grid {
		like := func(n float64) float64 {
			if allYes {
				return g.likely + evidence(g.a, g.b, yes+n, no)
			}
			return g.likely + evidence(g.a, g.b, yes, no+n)
		}
		before[i], after[i] = like(float64(n)), like(float64(n+more))
		top = max(top, before[i])
	}
	was, is := 0.0, 0.0
	for i := range before {
		was += math.Exp(before[i] - top)
		is += math.Exp(after[i] - top)
	}
	return 1 - is/was
}
