package enginesim

import "math"

// LogprobsMode is what the logprobs of an answer are of.
type LogprobsMode string

// Modes, as vLLM calls them.
const (
	LogprobsRaw       LogprobsMode = "raw"       // the model's own distribution, whatever was drawn from
	LogprobsProcessed LogprobsMode = "processed" // the distribution that was drawn from: temperature applied
)

// spread is a distribution over the tokens of a place: the likeliest is the one sampled, each further one is less likely by the same step, which depends on
// what stands before the place and on nothing else.
type spread struct {
	temperature float64 // 1 = as it is
}

// spread is that of a request with this temperature; nil = logprobs are made up. Greedy decoding applies none.
func (m LogprobsMode) spread(temperature *float64) *spread {
	switch {
	case m == "":
		return nil
	case m == LogprobsProcessed && temperature != nil && *temperature > 0:
		return &spread{*temperature}
	}
	return &spread{1}
}

// spreadTokens is how many tokens have any likelihood.
const spreadTokens = 32

func (s *spread) logprob(a *answer, i, k int) (float64, []alternative) {
	h := hashTokens(hashTokens(0, a.prompt), a.ids[:i])
	step := (0.3 + unit(mix(h))) / s.temperature
	all := 0.0
	for j := range spreadTokens {
		all += math.Exp(-step * float64(j))
	}
	at := func(j int) float64 { return round6(-step*float64(j) - math.Log(all)) }
	out := make([]alternative, 0, k)
	for j := range k {
		id := a.ids[i]
		if j > 0 {
			h = mix(h)
			id = a.otherToken(out, h)
		}
		out = append(out, alternative{id, at(j)})
	}
	return at(0), out
}
