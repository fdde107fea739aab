package scheduler

import "math"

// lasting tells how long answers last, from parts of them: an answer that was cut tells that it is longer, one that went on after a cut
// that it was as long. Lengths are binned by their logarithm, and each bin keeps how many answers came through it and how many ended
// in it (the life table of Kaplan and Meier). So what is still running does not make answers look short.
type lasting struct {
	prior  float64           // median length believed before anything was seen, tokens; 0 = answerPrior
	risked [lastBins]float64 // answers that were seen in the bin, each for the part of it that it was seen for; one that ended there for all that was left
	ended  [lastBins]float64
	gone   [lastBins + 1]float64 // minus the logarithm of the share of answers that reach the beginning of each bin; made by tabulate
}

const (
	lastWidth  = 0.125 // of a bin, in natural logarithms
	lastBins   = 124   // five million tokens
	lastWeight = 2     // of the prior in each bin, in answers
	lastShape  = 1.5   // the prior is log-logistic: beyond the median, two in three of the answers end before they are twice as long
)

// lastPlace is where a length lies among the bins.
func lastPlace(tokens int) float64 { return min(logOf(tokens)/lastWidth, lastBins-1e-6) }

// lastEdge is the length with which a bin begins, tokens.
func lastEdge(bin int) int { return int(math.Round(math.Exp(float64(bin) * lastWidth))) }

// learn takes up that an answer which had `from` tokens got to `to`, and whether it ended there.
func (l *lasting) learn(from, to int, ended bool) {
	at, end := lastPlace(from), lastPlace(to)
	if ended {
		l.ended[int(end)]++
		end = math.Floor(end) + 1
	}
	for b := int(at); float64(b) < end; b++ {
		l.risked[b] += min(end, float64(b+1)) - max(at, float64(b))
	}
}

// expect sets what is believed beforehand by the most tokens that an answer may have; 0 = not bounded.
func (l *lasting) expect(want int) {
	if p := priorAnswer(want); p > l.prior {
		l.prior = p
	}
}

// tabulate brings the table up to what was learned.
func (l *lasting) tabulate() {
	median := max(l.prior, 1)
	for b := range lastBins {
		x := math.Pow(math.Exp((float64(b)+0.5)*lastWidth)/median, lastShape)
		belief := lastShape * lastWidth * x / (1 + x)
		ends := (l.ended[b] + lastWeight*belief) / (l.risked[b] + lastWeight)
		l.gone[b+1] = l.gone[b] - math.Log1p(-min(ends, 1-1e-9))
	}
}

// through is minus the logarithm of the share of answers that get longer than so many tokens.
func (l *lasting) through(tokens int) float64 {
	at := lastPlace(tokens)
	b := int(at)
	return l.gone[b] + (at-float64(b))*(l.gone[b+1]-l.gone[b])
}

// share is the share of the answers of more than `from` tokens that get longer than `to`.
func (l *lasting) share(from, to int) float64 { return math.Exp(l.through(from) - l.through(to)) }
