package bench

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// Agent is a synthetic agent load of n episodes in the shape of public coding-agent trajectories: 38 turns in the mean, longest
// context 27.7k tokens in the mean (none much over 96k, as there), contexts that only grow, actions log-normal with the given
// median (0.8 s is usual) and sigma 1.
func Agent(n int, toolMedian time.Duration, seed uint64) Workload {
	r := rand.New(rand.NewPCG(seed, 0xa9e7))
	w := Workload{Name: "agent", MaxNew: 4096}
	for i := range n {
		turns := int(min(max(math.Round(logNormal(r, 33, 0.55)), 3), 120))
		e := Episode{Group: strconv.Itoa(i), Domain: "agent"}
		slope := logNormal(r, 1, 0.35) // some episodes grow faster than others, all along
		context := 0
		for k := range turns {
			t := Turn{New: int(logNormal(r, 290, 0.9)*slope) + 1, Out: min(int(logNormal(r, 130, 0.8))+1, w.MaxNew), Kind: "bash"}
			if k == 0 {
				t.New = int(logNormal(r, 3500, 0.4)) + 1
			}
			t.Tool = time.Duration(logNormal(r, toolMedian.Seconds(), 1.0) * float64(time.Second))
			e.Turns = append(e.Turns, t)
			if context += t.New + t.Out; context > 96_000 {
				break
			}
		}
		w.Episodes = append(w.Episodes, e)
	}
	return w
}

// Reasoning is single answers with a long tail: groups of samples, a group's median length log-normal (1.1k tokens, sigma 0.9), its
// samples spread around it by exp(0.5 z), cut at 32k tokens; prompts log-normal around 200 tokens, one a group.
func Reasoning(groups, samples int, seed uint64) Workload {
	r := rand.New(rand.NewPCG(seed, 0x2ea5))
	w := Workload{Name: "reasoning", MaxNew: 32 << 10}
	for g := range groups {
		prompt := int(logNormal(r, 200, 0.6)) + 1
		median := logNormal(r, 1100, 0.9)
		for range samples {
			out := min(int(median*math.Exp(0.5*r.NormFloat64()))+1, w.MaxNew)
			w.Episodes = append(w.Episodes, Episode{
				Group: strconv.Itoa(g), Domain: "reasoning", Prefix: []Segment{{mix(uint64(g)), prompt}},
				Turns: []Turn{{New: prompt, Out: out}},
			})
		}
	}
	return w
}

// Prefixes is groups of samples whose prompts begin with one of a few long documents: groups prompts over documents of about
// tokens tokens, short answers. Where the documents together do not fit a replica, it pays to keep each on its own.
func Prefixes(groups, samples, documents, tokens int, seed uint64) Workload {
	r := rand.New(rand.NewPCG(seed, 0x92ef))
	w := Workload{Name: "prefixes", MaxNew: 1024}
	lengths := make([]int, documents)
	for d := range lengths {
		lengths[d] = int(logNormal(r, float64(tokens), 0.3)) + 1
	}
	for g := range groups {
		d := r.IntN(documents)
		question := int(logNormal(r, 150, 0.5)) + 1
		for range samples {
			w.Episodes = append(w.Episodes, Episode{
				Group: strconv.Itoa(g), Domain: "prefixes",
				Prefix: []Segment{{mix(uint64(d) | 1<<40), lengths[d]}, {mix(uint64(g) | 1<<41), question}},
				Turns:  []Turn{{New: lengths[d] + question, Out: min(int(logNormal(r, 160, 0.7))+1, w.MaxNew)}},
			})
		}
	}
	return w
}

func logNormal(r *rand.Rand, median, sigma float64) float64 {
	return median * math.Exp(sigma*r.NormFloat64())
}
