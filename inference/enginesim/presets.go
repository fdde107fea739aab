package enginesim

import (
	"fmt"
	"slices"
	"strings"
)

// Machine is a model on a GPU as published figures describe it: what a Config needs to behave like that pair.
type Machine struct {
	Name       string // model and GPU, lower case
	Step       StepTime
	KVTokens   int // at 0.9 of 80 GB: (72 GB - weights - 3 GB) / KV bytes of a token
	StepBudget int // vLLM's default for this GPU, tokens a step
	MaxSeqs    int // likewise
}

// Config is a validated configuration of that machine; the fields it does not set are the caller's.
func (m Machine) Config() Config {
	return Config{Step: m.Step, KVTokens: m.KVTokens, StepBudget: m.StepBudget, MaxSeqs: m.MaxSeqs, ContextTokens: 32768}
}

// machines is the table. Where its figures come from, by field:
//
//   - Base + Floor, the shortest step: BLIS (inference-sim/inference-sim@f90a1e3, defaults.yaml) evaluated for one token; Base is its
//     32.1 µs a layer (32 layers of Llama, 28 of Qwen) and 126 µs, Floor the rest. Kernels alone measured 9.7 ms for Llama-3-8B on an
//     A100 (microsoft/vidur@7d47513, mlp.csv).
//   - PerToken: Vidur's kernel medians at 4,096 tokens, scaled by parameters for Qwen; measured on an H100: 20.3 µs for Llama-2-7B.
//     BLIS's own prefill coefficient is not used: at 2 µs a token it is faster than the GPU's peak.
//   - PerSeq: 4.4 µs a sequence, BLIS β6.
//   - PerRead: BLIS β = 1.947 over memory bandwidth, 2 to 3 times the roofline, as real logs show too.
//   - PerPair: 4·layers·width FLOP at half of peak.
//   - KVTokens: 128 KiB (Llama) or 56 KiB (Qwen) a token.
func machines() []Machine {
	llama := func(gpu string, s StepTime, budget, seqs int) Machine {
		s.Base, s.PerSeq = 1.15e-3, 4.4e-6
		return Machine{"llama-3.1-8b-" + gpu, s, 404_000, budget, seqs}
	}
	qwen := func(gpu string, s StepTime, budget, seqs int) Machine {
		s.Base, s.PerSeq = 1.02e-3, 4.4e-6
		return Machine{"qwen2.5-7b-" + gpu, s, 938_000, budget, seqs}
	}
	return []Machine{
		llama("h100", StepTime{Floor: 5.65e-3, PerToken: 22e-6, PerRead: 76e-9, PerPair: 1.05e-9}, 8192, 1024),
		llama("a100", StepTime{Floor: 9.35e-3, PerToken: 66.7e-6, PerRead: 125e-9, PerPair: 3.4e-9}, 2048, 256),
		qwen("h100", StepTime{Floor: 5.28e-3, PerToken: 20.5e-6, PerRead: 33e-9, PerPair: 0.8e-9}, 8192, 1024),
		qwen("a100", StepTime{Floor: 8.78e-3, PerToken: 62e-6, PerRead: 55e-9, PerPair: 2.6e-9}, 2048, 256),
	}
}

// Presets are the machines of the table.
func Presets() []Machine { return machines() }

// Preset finds a machine by name; the error lists the names there are.
func Preset(name string) (Machine, error) {
	var names []string
	for _, m := range machines() {
		if m.Name == strings.ToLower(name) {
			return m, nil
		}
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return Machine{}, fmt.Errorf("enginesim: no preset is named %q; there are %s", name, strings.Join(names, ", "))
}
