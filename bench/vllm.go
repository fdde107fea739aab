package bench

import (
	"math/rand/v2"
	"strconv"
	"time"

	"tranche/inference/enginesim"
)

// Small multi-turn loads that a real vLLM on two cores plays in minutes, and that engine as a configuration. They are what `bench
// real` plays over HTTP and what shows, in virtual time, whether the simulation says the same.

// VLLMLoad is a load of episodes with uniform lengths, tokens, and exponential actions. Every pair is a range, both ends included.
type VLLMLoad struct {
	Name     string
	KVTokens int // of the server it was made for
	Episodes int
	Prompt   [2]int
	Turns    [2]int
	Out, New [2]int        // a turn's answer, and what its action adds
	Action   time.Duration // mean
}

// VLLMA is short episodes of which the cache holds about ten, in a server of 129 blocks.
func VLLMA() VLLMLoad {
	return VLLMLoad{"vllm-a", 129 * 128, 40, [2]int{360, 840}, [2]int{3, 9}, [2]int{24, 103}, [2]int{120, 380}, 500 * time.Millisecond}
}

// VLLMB has longer prompts and shorter answers, in a server of 257 blocks.
func VLLMB() VLLMLoad {
	return VLLMLoad{"vllm-b", 257 * 128, 36, [2]int{1080, 2520}, [2]int{4, 12}, [2]int{16, 47}, [2]int{120, 380}, 600 * time.Millisecond}
}

// Draw makes n episodes.
func (l VLLMLoad) Draw(n int, seed uint64) Workload {
	r := rand.New(rand.NewPCG(seed, 0x7611))
	within := func(b [2]int) int { return b[0] + r.IntN(b[1]-b[0]+1) }
	w := Workload{Name: l.Name, MaxNew: l.Out[1]}
	for i := range n {
		e := Episode{Group: strconv.Itoa(i), Domain: l.Name}
		for k := range within(l.Turns) {
			t := Turn{New: within(l.New), Out: within(l.Out), Tool: time.Duration(r.ExpFloat64() * float64(l.Action)), Kind: "tool"}
			if k == 0 {
				t.New = within(l.Prompt)
			}
			e.Turns = append(e.Turns, t)
		}
		w.Episodes = append(w.Episodes, e)
	}
	return w
}

// Engine is vLLM 0.32 on the CPU of two cores with a tiny model, as it was started for this load: blocks of 128 tokens, of which one
// is reserved.
func (l VLLMLoad) Engine() enginesim.Config {
	return enginesim.Config{
		Model: "tiny", ContextTokens: 8192, KVTokens: l.KVTokens, BlockTokens: 128, NullBlock: true, MaxSeqs: 64, StepBudget: 2048,
		Step: enginesim.StepTime{Base: 15e-3, PerToken: 0.25e-3, PerSeq: 0.5e-3, PerRead: 0.5e-6, PerPair: 20e-9},
	}
}
