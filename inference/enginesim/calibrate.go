package enginesim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// StepSample is one measurement of an engine: some steps of which is known what they computed, and how long they took together. Tokens,
// Seqs, Reads and Pairs are sums over the steps, as in StepTime; the steps should be alike.
//
// A client cannot see steps, but it can make calls of which it knows what the engine must do: DecodeSample and PrefillSample turn what
// such calls show into samples. They hold only while nothing else runs on the engine.
type StepSample struct {
	Steps    int
	Tokens   int     // computed
	Seqs     int     // that took part, counted in each step
	Reads    int     // tokens of context read by those that decode
	Pairs    float64 // prompt tokens times their context
	Requests int     // whose fixed cost (HTTP, tokenising, queueing) is in the duration
	Duration time.Duration
}

// DecodeSample is what streams running at once show between their first and their last token: their contexts before the second token
// was sampled (prompt + 1), how many tokens more came in each, and the time from the first token to the last, the same for all.
func DecodeSample(contexts []int, tokens int, d time.Duration) StepSample {
	s := StepSample{Steps: tokens, Tokens: tokens * len(contexts), Seqs: tokens * len(contexts), Duration: d}
	for _, x := range contexts {
		s.Reads += tokens*(x-1) + tokens*(tokens-1)/2
	}
	return s
}

// PrefillSample is what one call alone shows up to its first token: the length of its prompt, how much of it the answer says was cached,
// the engine's step budget (max_num_batched_tokens), and the time from sending to the first token.
func PrefillSample(prompt, cached, budget int, d time.Duration) StepSample {
	n := prompt - cached
	s := StepSample{Steps: (n + budget - 1) / budget, Tokens: n, Pairs: float64(n) * (float64(cached) + float64(n)/2), Requests: 1, Duration: d}
	s.Seqs = s.Steps
	return s
}

// Fit is what measurements come to.
type Fit struct {
	Step      StepTime
	Request   time.Duration // what a request costs beside its steps
	Residuals []float64     // by sample: how much longer it takes by the model than it did, relative
}

// Calibrate fits the step-time model to measurements: least squares of the relative error, no coefficient below zero. It needs decodes at several numbers of streams and several contexts, and prefills both short
// and long, with and without a cached prefix; where one kind is missing, the error says which. Outliers are the caller's to drop: repeat
// each measurement and take the median.
func Calibrate(samples []StepSample) (Fit, error) {
	if err := enough(samples); err != nil {
		return Fit{}, err
	}
	best, least := Fit{}, math.Inf(1)
	for _, limit := range thresholds(samples) {
		fit, request := fitAt(samples, limit)
		if off := misfit(samples, fit, request); off < least {
			best, least = Fit{Step: fit, Request: time.Duration(request * float64(time.Second))}, off
		}
	}
	if math.IsInf(least, 1) {
		return Fit{}, errors.New("enginesim: calibrate: the samples do not determine what a token costs: no prefill is long enough to take clearly longer than the shortest step")
	}
	for _, s := range samples {
		took := best.Step.Of(s) + time.Duration(s.Requests)*best.Request
		best.Residuals = append(best.Residuals, took.Seconds()/s.Duration.Seconds()-1)
	}
	return best, nil
}

// enough reports every kind of sample that is missing.
func enough(samples []StepSample) error {
	var errs []error
	widths, contexts, prompts, prefixes := map[int]bool{}, map[int]bool{}, map[int]bool{}, map[bool]bool{}
	for i, s := range samples {
		if s.Steps < 1 || s.Tokens < 1 || s.Seqs < 1 || s.Reads < 0 || s.Pairs < 0 || s.Requests < 0 || s.Duration <= 0 {
			errs = append(errs, fmt.Errorf("enginesim: calibrate: sample %d is %+v: steps, tokens, sequences and duration must be above zero, nothing below", i, s))
			continue
		}
		if s.Pairs == 0 {
			widths[s.Tokens/s.Steps], contexts[s.Reads/s.Seqs] = true, true
			continue
		}
		prompts[s.Tokens] = true
		prefixes[s.Pairs/float64(s.Tokens) > 0.75*float64(s.Tokens)] = true
	}
	want := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("enginesim: calibrate: missing: "+what))
		}
	}
	want(len(widths) > 1, "decodes with different numbers of streams")
	want(len(contexts) > 1, "decodes at different lengths of context")
	want(len(prompts) > 2, "prefills of at least three lengths")
	want(len(prefixes) > 1, "prefills both with and without a long cached prefix")
	return errors.Join(errs...)
}

// thresholds are the tokens a step up to which the floor may be what counts: StepTime is linear on either side.
func thresholds(samples []StepSample) []float64 {
	var list []float64
	for _, s := range samples {
		list = append(list, float64(s.Tokens)/float64(s.Steps))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// coefficients of the linear fit.
const (
	atBase = iota
	atFloor
	atToken
	atSeq
	atRead
	atPair
	atRequest
	coefficients
)

// row is what a sample says about each coefficient, when the floor counts up to limit tokens a step.
func (s StepSample) row(limit float64) (x [coefficients]float64) {
	x[atBase], x[atSeq], x[atRead], x[atPair], x[atRequest] = float64(s.Steps), float64(s.Seqs), float64(s.Reads), s.Pairs, float64(s.Requests)
	if float64(s.Tokens)/float64(s.Steps) <= limit {
		x[atFloor] = float64(s.Steps)
	} else {
		x[atToken] = float64(s.Tokens)
	}
	return x
}

// fitAt fits under the assumption of a threshold.
func fitAt(samples []StepSample, limit float64) (fit StepTime, request float64) {
	var n normal
	for _, s := range samples {
		n.add(s.row(limit), s.Duration.Seconds())
	}
	c := n.solve()
	return StepTime{Base: c[atBase], Floor: c[atFloor], PerToken: c[atToken], PerSeq: c[atSeq], PerRead: c[atRead], PerPair: c[atPair]}, c[atRequest]
}

// misfit is the sum of squares of the relative errors under the whole model, the maximum included.
func misfit(samples []StepSample, fit StepTime, request float64) (sum float64) {
	tokens := 0.0 // the largest share of a duration that tokens explain
	for _, s := range samples {
		tokens = max(tokens, fit.PerToken*float64(s.Tokens)/s.Duration.Seconds())
		off := (fit.Of(s).Seconds()+request*float64(s.Requests))/s.Duration.Seconds() - 1
		sum += off * off
	}
	if tokens < 0.2 {
		return math.Inf(1) // what a token costs was made up from noise
	}
	return sum
}

// Of is how long the steps of a sample take by the model, the fixed cost of requests left out.
func (t StepTime) Of(s StepSample) time.Duration {
	d := t.Base*float64(s.Steps) + max(t.Floor*float64(s.Steps), t.PerToken*float64(s.Tokens)) + t.PerSeq*float64(s.Seqs) + t.PerRead*float64(s.Reads) + t.PerPair*s.Pairs
	return time.Duration(d * float64(time.Second))
}

// normal collects the normal equations of a weighted least-squares problem: A·c = b.
type normal struct {
	a [coefficients][coefficients]float64
	b [coefficients]float64
}

// add takes one equation, weighted so that relative errors count.
func (n *normal) add(x [coefficients]float64, y float64) {
	for i := range x {
		n.b[i] += x[i] / y
		for j := range x {
			n.a[i][j] += x[i] * x[j] / (y * y)
		}
	}
}

// solve returns the best coefficients of which none is negative. There are few: it tries every subset of those above zero.
func (n *normal) solve() (best [coefficients]float64) {
	most := 0.0 // of what the fit explains: the sum of squares falls by b·c
	for subset := 1; subset < 1<<coefficients; subset++ {
		c, ok := n.within(subset)
		if !ok {
			continue
		}
		explained := 0.0
		for i := range c {
			explained += n.b[i] * c[i]
		}
		if explained > most {
			best, most = c, explained
		}
	}
	return best
}

// within solves for the coefficients of a subset, the others zero; false when they are not determined or one is not positive.
func (n *normal) within(subset int) (c [coefficients]float64, ok bool) {
	var at []int
	for i := range coefficients {
		if subset>>i&1 == 1 {
			at = append(at, i)
		}
	}
	m := make([][]float64, len(at)) // scaled to a diagonal of ones, with the right side
	for r, i := range at {
		m[r] = make([]float64, len(at)+1)
		for k, j := range at {
			m[r][k] = n.a[i][j] / math.Sqrt(n.a[i][i]*n.a[j][j])
		}
		m[r][len(at)] = n.b[i] / math.Sqrt(n.a[i][i])
	}
	if !eliminate(m) {
		return c, false
	}
	for r, i := range at {
		c[i] = m[r][len(at)] / math.Sqrt(n.a[i][i])
		if !(c[i] > 0) {
			return c, false
		}
	}
	return c, true
}

// eliminate brings [A|b] of a positive definite A to [1|x] (Gauss and Jordan); false when A is as good as singular.
func eliminate(m [][]float64) bool {
	for p := range m {
		if !(m[p][p] > 1e-9) {
			return false
		}
		for k := len(m[p]) - 1; k >= p; k-- {
			m[p][k] /= m[p][p]
		}
		for r := range m {
			if f := m[r][p]; r != p && f != 0 {
				for k := p; k < len(m[r]); k++ {
					m[r][k] -= f * m[p][k]
				}
			}
		}
	}
	return true
}
