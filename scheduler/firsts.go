package scheduler

import (
	"math"

	"tranche/episode"
)

// A server whose memory is full lets calls wait, and a gauge that is read every few seconds may miss it: the queue is there and gone between two
// readings. The time to the first token does not miss it, because it holds the wait of every call. What it should be without a wait is
// learned from the server itself, for each prompt token it had to compute: the price differs a hundredfold between servers.

// firsts judges a server's times to the first token, from one reading to a later one.
type firsts struct {
	from  tally
	begun bool
	usual logs // logarithms of seconds per computed token, with older ones fading
}

// tally is a server's counters of first tokens.
type tally struct {
	count   int64
	seconds float64 // to them, in sum
	tokens  int64   // of prompts, computed
}

const (
	firstsLeast = 8    // first tokens that one judgement needs
	firstsKnown = 8    // judgements until one counts
	firstsFade  = 0.95 // what each later judgement leaves of the weight of those before
	firstsStep  = 256  // computed tokens that a call costs beside its own: a step's floor
	firstsLate  = 8    // times what is usual that is far above it
)

// late takes a reading and says whether the first tokens since the last judgement came far later than the computed prompt tokens explain.
// False as long as the server does not tell, or too few came. What was late is learned too, as if it were just under the limit: a server
// that has become slower for good is the usual one after some twenty judgements.
func (f *firsts) late(l episode.Load) bool {
	is, ok := tallyOf(l)
	if !ok {
		return false
	}
	was := f.from
	if !f.begun || is.count < was.count || is.tokens < was.tokens || is.seconds < was.seconds { // the first, or the server began anew
		f.from, f.begun = is, true
		return false
	}
	n := float64(is.count - was.count)
	if n < firstsLeast {
		return false
	}
	f.from = is
	x := math.Log(max(is.seconds-was.seconds, 1e-9) / (float64(is.tokens-was.tokens) + n*firstsStep))
	limit := math.Inf(1)
	if f.usual.n > 0 {
		limit = f.usual.mean(0, 0) + math.Log(firstsLate)
	}
	late := f.judged() && x > limit
	f.usual = logs{f.usual.n * firstsFade, f.usual.sum * firstsFade}
	f.usual.add(min(x, limit))
	return late
}

// judged says whether enough judgements were made: with fading weights, n of them weigh (1-fadeⁿ)/(1-fade).
func (f *firsts) judged() bool {
	return f.usual.n >= (1-math.Pow(firstsFade, firstsKnown))/(1-firstsFade)-1e-9
}

// tallyOf reads the counters; false where the server lacks one. Computed prompt tokens are told, or what was asked for less what was cached.
func tallyOf(l episode.Load) (t tally, ok bool) {
	if l.Firsts == nil || l.FirstSeconds == nil {
		return t, false
	}
	t.count, t.seconds = *l.Firsts, *l.FirstSeconds
	switch {
	case l.Computed != nil:
		t.tokens = *l.Computed
	case l.PromptTokens != nil && l.Hits != nil:
		t.tokens = *l.PromptTokens - *l.Hits
	default:
		return t, false
	}
	return t, true
}
