package bench

import (
	"math"
	"time"

	"tranche/inference/enginesim"
)

// LowerBound is a time that no schedule of the workload on the fleet can beat. It is the greatest of four:
//
//   - work: every token is prefilled once, every decode reads its whole context, steps are as full as memory and sequence slots
//     allow, and the replicas share it all without a gap;
//   - the longest episode alone, each of its calls on the replica that is fastest for it;
//   - all episodes alone, MaxOpen of them at a time;
//   - the squeeze between work and MaxOpen: few fat steps save work, but every sequence in a fat step waits while the contexts of all the
//     others are read.
//
// It holds for every policy that plays all episodes to their end on living replicas (so not with a quorum), as long as prefilling
// a token costs at least as much as reading it: with PerToken < PerRead recomputing would be a way to save time.
func (f Fleet) LowerBound(w Workload) time.Duration {
	var longest, sum float64
	shared := sharedTokens(w)
	for i, e := range w.Episodes {
		t := f.alone(e, shared[i])
		longest = max(longest, t)
		sum += t
	}
	open := float64(len(w.Episodes))
	if f.MaxOpen > 0 {
		open = min(open, float64(f.MaxOpen))
	}
	d := demandOf(w, shared)
	bound := max(f.work(d), longest, sum/open, f.squeeze(d, sum, open))
	return time.Duration(bound * float64(time.Second) * (1 - 1e-9)) // float sums may be a hair above the truth
}

// demand is what a workload asks of engines, whoever does it.
type demand struct {
	computed float64 // tokens run through the model: prompts once, and all sampled tokens but the last of an episode
	pairs    float64 // Σ over prompt tokens of the context before them
	reads    float64 // Σ over decodes of the context read
	held     float64 // the same without what episodes share: the least memory that decodes occupy, tokens · steps
	sampled  float64
	roots    float64 // Σ over decodes of the square root of the context read
}

// demandOf follows the accounting of enginesim.StepTime. The last token that a call samples is never decoded further: it is
// computed as part of the next call's prompt, if there is one. The first comes out of the prefill.
func demandOf(w Workload, shared []int) demand {
	var d demand
	seen := map[uint64]bool{}
	for i, e := range w.Episodes {
		e.calls(func(c span) {
			from := float64(c.kept)
			if c.turn == 0 {
				from = float64(repeated(e.Prefix, seen))
			} else if c.kept > 0 {
				from-- // the last sampled token; after a cut, one that was computed already: it is at the end of a block and may be
				if e.Turns[c.turn].Cut > 0 {
					from++
				}
			}
			prompt, more := float64(c.prompt), float64(c.out-1)
			d.computed += prompt - from + more
			d.pairs += (prompt*prompt - from*from) / 2
			reads := more*prompt + more*(more-1)/2
			d.reads += reads
			d.held += reads - more*float64(shared[i])
			d.sampled += more + 1
			if more > 0 { // a sum of a rising function is at least its integral one step back
				d.roots += (math.Pow(prompt+more-1, 1.5) - math.Pow(prompt-1, 1.5)) * 2 / 3
			}
		})
	}
	return d
}

// sharedTokens is, per episode, the leading tokens of its context that another episode has too.
func sharedTokens(w Workload) []int {
	count := map[uint64]int{}
	walk := func(e Episode, visit func(chain uint64, s Segment)) {
		chain := uint64(0)
		for _, s := range e.Prefix {
			chain = chainOf(chain, s)
			visit(chain, s)
		}
	}
	for _, e := range w.Episodes {
		walk(e, func(chain uint64, _ Segment) { count[chain]++ })
	}
	shared := make([]int, len(w.Episodes))
	for i, e := range w.Episodes {
		walk(e, func(chain uint64, s Segment) {
			if count[chain] > 1 {
				shared[i] += s.Tokens
			}
		})
	}
	return shared
}

// costs is a replica's price of each part of a demand, seconds, for one way of bounding its steps from below.
type costs struct{ computed, pairs, reads, held, sampled float64 }

// costsOf bounds a replica's time linearly: with S steps the time is at least
//
//	Base·S + max(Floor·S, PerToken·computed) + PerSeq·sampled + PerRead·reads + PerPair·pairs,  S ≥ held/KVTokens, S ≥ sampled/MaxSeqs,
//
// and each of the two maxima is at least any mixture of its sides: floor of the first for Floor·S, memory of the second for held.
func costsOf(c enginesim.Config, floor, memory float64) costs {
	step := c.Step.Base + floor*c.Step.Floor
	return costs{
		computed: (1 - floor) * c.Step.PerToken, pairs: c.Step.PerPair, reads: c.Step.PerRead,
		held: step * memory / float64(c.KVTokens), sampled: step*(1-memory)/float64(c.MaxSeqs) + c.Step.PerSeq,
	}
}

func (c costs) of(d demand) float64 {
	return c.computed*d.computed + c.pairs*d.pairs + c.reads*d.reads + c.held*d.held + c.sampled*d.sampled
}

// work bounds the time of replicas that divide a demand as they like, each part of it on its own. For any weights that sum to one,
// the greatest of the replicas' times is at least their weighted sum, and that is at least each part at its cheapest weighted
// price. Equal replicas get equal weights and the bound is work/R; for unequal ones a few sensible weightings are tried.
func (f Fleet) work(d demand) float64 {
	best := 0.0
	for _, floor := range []float64{0, 0.25, 0.5, 0.75, 1} {
		for _, memory := range []float64{0, 0.5, 1} {
			prices := make([]costs, len(f.Replicas))
			for i, c := range f.Replicas {
				prices[i] = costsOf(c, floor, memory)
			}
			for _, bend := range []float64{0, 0.25, 0.5, 0.75, 1} {
				best = max(best, weighted(prices, d, bend))
			}
		}
	}
	return best
}

// weighted is the bound for weights that fall with the bend-th power of the time each replica would need alone for everything.
func weighted(prices []costs, d demand, bend float64) float64 {
	weights, sum := make([]float64, len(prices)), 0.0
	for i, p := range prices {
		weights[i] = math.Pow(max(p.of(d), 1e-12), -bend)
		sum += weights[i]
	}
	cheapest := costs{math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)}
	for i, p := range prices {
		w := weights[i] / sum
		cheapest = costs{
			min(cheapest.computed, w*p.computed), min(cheapest.pairs, w*p.pairs), min(cheapest.reads, w*p.reads),
			min(cheapest.held, w*p.held), min(cheapest.sampled, w*p.sampled),
		}
	}
	return cheapest.of(d)
}

// squeeze bounds the makespan by both sides of batching. Let n_i be the number of sequences that decode in the step in which decode i
// happens, x_i its context, and S the number of steps. Then Σ 1/n_i ≤ S, and the time that episodes are open, at most open · T, is at
// least what each needs alone plus what it waits for the others: in all PerRead · Σ n_i x_i instead of PerRead · Σ x_i. By Cauchy and
// Schwarz Σ n_i x_i ≥ (Σ √x_i)² / S. So more steps cost work and fewer cost waiting, and T is at least where the two bounds meet. alone
// is the sum of all episodes' times alone. For unequal replicas the cheapest of each price counts.
//
// A decode might be replaced by preempting and recomputing, which costs PerToken for each token of context: prices above PerToken over
// the sequences that run at once are cut to that, so that the bound holds against this too.
func (f Fleet) squeeze(d demand, alone, open float64) float64 {
	least := f.Replicas[0].Step
	slots, shared := 0, math.Inf(1)
	for _, c := range f.Replicas {
		s := c.Step
		least = enginesim.StepTime{
			Base: min(least.Base, s.Base), Floor: min(least.Floor, s.Floor), PerToken: min(least.PerToken, s.PerToken), PerSeq: min(least.PerSeq, s.PerSeq),
			PerRead: min(least.PerRead, s.PerRead), PerPair: min(least.PerPair, s.PerPair),
		}
		slots += c.MaxSeqs
		shared = min(shared, s.PerRead, s.PerToken/float64(c.MaxSeqs))
	}
	work := func(steps float64) float64 {
		t := least.Base*steps + max(least.Floor*steps, least.PerToken*d.computed) + least.PerSeq*d.sampled + least.PerRead*d.reads + least.PerPair*d.pairs
		return t / float64(len(f.Replicas))
	}
	wait := func(steps float64) float64 {
		return (alone + shared*max(d.roots*d.roots/steps-d.reads, 0)) / open
	}
	few, many := max(d.sampled/float64(slots), 1), max(d.sampled, 2)
	for range 60 { // work rises with the steps, wait falls
		if mid := math.Sqrt(few * many); work(mid) < wait(mid) {
			few = mid
		} else {
			many = mid
		}
	}
	return max(work(few), wait(many)) // with S below few, wait(S) > wait(few) ≥ that; above many, work is
}

// alone is the least time that one episode takes when it has the fleet for itself and finds what it shares in the caches, seconds.
func (f Fleet) alone(e Episode, shared int) float64 {
	total := 0.0
	e.calls(func(c span) {
		best := math.Inf(1)
		for _, r := range f.Replicas {
			best = min(best, callAlone(r, c, e.Turns[c.turn].Cut > 0, shared))
		}
		total += best
		if c.turn < len(e.Turns)-1 {
			total += e.Turns[c.turn].Tool.Seconds()
		}
	})
	return total
}

// callAlone is the least time of one call on an idle replica whose cache holds all it can.
func callAlone(r enginesim.Config, c span, cut bool, shared int) float64 {
	held := c.kept
	switch {
	case c.turn == 0:
		held = min(shared, c.prompt-1)
	case c.kept > 0 && !cut:
		held = c.kept - 1
	}
	fresh := float64(c.prompt - held)
	steps := math.Ceil(fresh / float64(r.StepBudget))
	t := (r.Step.Base+r.Step.PerSeq)*steps + max(r.Step.Floor*steps, r.Step.PerToken*fresh)
	t += r.Step.PerPair * (float64(c.prompt)*float64(c.prompt) - float64(held)*float64(held)) / 2
	more := float64(c.out - 1)
	t += more*(r.Step.Base+r.Step.PerSeq+max(r.Step.Floor, r.Step.PerToken)) + r.Step.PerRead*(more*float64(c.prompt)+more*(more-1)/2)
	return t
}
