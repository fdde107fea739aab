package sampler

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Mixing names how the shares of the domains are found.
type Mixing string

// Ways to mix. The domain of a task is its data_source.
const (
	MixNone        Mixing = ""            // the domains are not told apart: tasks come as the input has them
	MixWeights     Mixing = "weights"     // the shares are given
	MixTemperature Mixing = "temperature" // the number of a domain's tasks to the power 1/T: 1 = by size, large = all alike
	MixProgress    Mixing = "progress"    // where the reward is moving, up or down
)

// Mix says how much comes from which domain. Shares are of training groups.
type Mix struct {
	// By is how the shares are found. Default none.
	By Mixing
	// Weights of the domains by name, "*" for those that have none of their own; they are scaled to 1 in all. For weights.
	Weights map[string]float64
	// Temperature over 0. For temperature. Default 0 = 1, by size.
	Temperature float64
	// Floor is the least share of a domain, 0 to 1; a domain of weight 0 gets none all the same. Default 0, for progress a fifth of an equal
	// share: what is never tried shows no progress.
	Floor float64
	// Cap is the largest share of a domain. Default 0 = 1.
	Cap float64
	// Every is after how many draws the shares are found anew. For progress. Default 0 = 100 draws.
	Every int64
}

func (m Mix) on() bool { return m.By != MixNone }

func (m Mix) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("mix: "+format, args...))
		}
	}
	check(slices.Contains([]Mixing{MixNone, MixWeights, MixTemperature, MixProgress}, m.By), "by %q: expected weights, temperature or progress", m.By)
	check(m.By == MixWeights == (len(m.Weights) > 0), "weights: stand with by: weights, and only there")
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(m.Weights)) {
		w := m.Weights[name]
		check(w >= 0 && !math.IsInf(w, 0), "weight of %q: expected 0 or more, found %v", name, w)
		sum += w
	}
	check(len(m.Weights) == 0 || sum > 0, "weights: every one is 0")
	check(m.Temperature >= 0 && !math.IsInf(m.Temperature, 0), "temperature %v: expected over 0", m.Temperature)
	check(m.Temperature == 0 || m.By == MixTemperature, "temperature: stands with by: temperature only")
	check(m.Floor >= 0 && m.Floor < 1, "floor %v: expected a share from 0 to 1", m.Floor)
	check(m.Cap >= 0 && m.Cap <= 1, "cap %v: expected a share up to 1", m.Cap)
	check(m.Cap == 0 || m.Floor <= m.Cap, "floor %v is over cap %v", m.Floor, m.Cap)
	check(m.Every >= 0, "every %d: expected 1 or more draws", m.Every)
	check(m.on() || m.Floor == 0 && m.Cap == 0 && m.Every == 0, "floor, cap and every stand with by only")
	return errors.Join(errs...)
}

func (m Mix) filled(domains int) Mix {
	if m.Temperature == 0 {
		m.Temperature = 1
	}
	if m.Cap == 0 {
		m.Cap = 1
	}
	if m.Every == 0 {
		m.Every = 100
	}
	if m.Floor == 0 && m.By == MixProgress {
		m.Floor = min(0.2/float64(domains), m.Cap)
	}
	return m
}

// fits says why the mix cannot be had with these domains.
func (m Mix) fits(names []string) error {
	var errs []error
	var without []string
	drawn := 0
	for _, n := range names {
		w, ok := m.weight(n)
		if m.By == MixWeights && !ok {
			without = append(without, n)
		}
		if m.By != MixWeights || w > 0 {
			drawn++
		}
	}
	if len(without) > 0 {
		errs = append(errs, fmt.Errorf("mix: no weight for the domains %s; give them one (0 leaves them out), or all of them one as *", strings.Join(without, ", ")))
	}
	for _, n := range slices.Sorted(maps.Keys(m.Weights)) {
		if n != anyDomain && !slices.Contains(names, n) {
			errs = append(errs, fmt.Errorf("mix: a weight for %q, and no task is of that domain; there are: %s", n, strings.Join(names, ", ")))
		}
	}
	if m = m.filled(max(drawn, 1)); len(without) == 0 && (m.Floor*float64(drawn) > 1+1e-9 || m.Cap*float64(drawn) < 1-1e-9) {
		errs = append(errs, fmt.Errorf("mix: floor %v and cap %v cannot hold for %d domains: their shares are 1 in all", m.Floor, m.Cap, drawn))
	}
	return errors.Join(errs...)
}

// anyDomain stands for the domains without a weight of their own.
const anyDomain = "*"

func (m Mix) weight(domain string) (float64, bool) {
	if w, ok := m.Weights[domain]; ok {
		return w, true
	}
	w, ok := m.Weights[anyDomain]
	return w, ok
}

// shares are the parts of the domains, 1 in all.
func (m Mix) shares(list []*domain) []float64 {
	w := make([]float64, len(list))
	for i, d := range list {
		switch m.By {
		case MixWeights:
			w[i], _ = m.weight(d.name)
		case MixTemperature:
			w[i] = math.Pow(float64(len(d.entries)), 1/m.Temperature)
		case MixProgress:
			w[i] = leastProgress + d.reward.progress()
		default:
			w[i] = 1
		}
	}
	return between(w, m.Floor, m.Cap)
}

// leastProgress keeps domains whose reward stands still alike.
const leastProgress = 1e-3

// between scales weights to a sum of 1 with none below floor or above most; weights of 0 stay 0. What a bound takes or gives, the others
// share in proportion. Nothing else has the sum 1, so it is found by halving.
func between(weights []float64, floor, most float64) []float64 {
	out := make([]float64, len(weights))
	total := func(scale float64) float64 {
		sum := 0.0
		for i, w := range weights {
			if out[i] = 0; w > 0 {
				out[i] = min(max(w*scale, floor), most)
			}
			sum += out[i]
		}
		return sum
	}
	low, high := 0.0, 1.0
	for total(high) < 1 && high < 1e300 {
		high *= 2
	}
	for range 200 {
		if mid := (low + high) / 2; total(mid) < 1 {
			low = mid
		} else {
			high = mid
		}
	}
	sum := total(high)
	for i := range out {
		out[i] /= sum
	}
	return out
}

// pacer deals draws out so that at every moment each domain has its share of them, but for less than one draw. It is Tijdeman's rule for
// the chairman assignment problem (Discrete Mathematics 32, 1980): of the domains that are owed something, the one that would fall a whole draw
// behind first. Taking the one that is owed most would let small shares fall behind by more.
type pacer struct {
	shares []float64
	target []float64 // what each should have had of the draws so far
	drawn  []int64
}

func newPacer(shares []float64) *pacer {
	return &pacer{shares: shares, target: make([]float64, len(shares)), drawn: make([]int64, len(shares))}
}

// order lists the domains with a share, the one to draw from first; the others are for when that one has no task to give.
func (p *pacer) order() []int {
	type claim struct {
		domain int
		owed   bool
		when   float64 // draws until it is a whole draw behind
	}
	least := 1 / (2 * float64(max(len(p.shares), 2)-1))
	var claims []claim
	for i, s := range p.shares {
		if s > 0 {
			lag := p.target[i] + s - float64(p.drawn[i])
			claims = append(claims, claim{i, lag >= least-1e-9, (1 - least - lag) / s})
		}
	}
	slices.SortStableFunc(claims, func(a, b claim) int {
		switch {
		case a.owed != b.owed:
			return sign(a.owed, b.owed)
		case a.when < b.when:
			return -1
		case a.when > b.when:
			return 1
		}
		return 0
	})
	out := make([]int, len(claims))
	for i, c := range claims {
		out[i] = c.domain
	}
	return out
}

// sign puts what is true first.
func sign(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (p *pacer) take(domain int) {
	for i, s := range p.shares {
		p.target[i] += s
	}
	p.drawn[domain]++
}

// trend follows the mean reward of a domain's groups, fast and slowly.
type trend struct {
	fast, slow float64
	groups     int64
}

// How much one group counts in a trend: the last ten or so, and the last fifty.
const (
	fastRate = 0.1
	slowRate = 0.02
)

func (t *trend) add(reward float64) {
	if t.groups++; t.groups == 1 {
		t.fast, t.slow = reward, reward
		return
	}
	t.fast += fastRate * (reward - t.fast)
	t.slow += slowRate * (reward - t.slow)
}

// progress is how far the reward of late is from that of before.
func (t *trend) progress() float64 { return math.Abs(t.fast - t.slow) }
