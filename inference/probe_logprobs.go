package inference

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"tranche/episode"
)

// Whether logprobs are of the model's own distribution or of the one that was drawn from shows in the gap between the two likeliest tokens: a temperature
// of 2 halves it, if it is applied at all. The prompt that is sent twice in a list has been sent at temperature 0 before, so this costs no request.

const (
	hotTemperature = 2
	likeliest      = 2 // alternatives asked for
)

// Gaps, in nats: the least that shows anything, and how far two of one distribution may be apart, which engines compute in few bits.
const (
	leastGap  = 0.2
	gapShare  = 0.15
	gapGround = 0.02
)

// readHot compares the gap at a temperature of 2 with that at 0.
func (p *prober) readHot(s said) {
	f, hot := &p.caps.LogprobsMode, gapOf(s.body)
	near := func(a, b float64) bool { return math.Abs(a-b) <= gapShare*p.gap+gapGround }
	from := fmt.Sprintf("%s: the likeliest two first tokens are %.2f apart at temperature %d, %.2f at 0", s.label, hot, hotTemperature, p.gap)
	switch {
	case !s.ok() || hot == 0:
		f.wonder(s.label + ": no logprobs of two tokens")
	case p.gap < leastGap:
		f.wonder(from + ": too near to tell")
	case near(hot, p.gap):
		f.prove(episode.SpreadRaw, from)
	case near(hot, p.gap/hotTemperature):
		f.prove(episode.SpreadProcessed, from)
	default:
		f.doubt(from)
	}
}

// gapOf is how much likelier, in nats, the first token of the first choice is than the next likeliest in its place; 0 = the answer does not tell.
func gapOf(body []byte) float64 {
	var a struct {
		Choices []struct {
			Logprobs struct {
				Top     []map[string]float64 `json:"top_logprobs"`
				Content []struct {
					Top []struct {
						Logprob float64 `json:"logprob"`
					} `json:"top_logprobs"`
				} `json:"content"` // llama-server
			} `json:"logprobs"`
		} `json:"choices"`
	}
	if json.Unmarshal(body, &a) != nil || len(a.Choices) == 0 {
		return 0
	}
	var values []float64
	l := a.Choices[0].Logprobs
	if len(l.Top) > 0 {
		for _, v := range l.Top[0] {
			values = append(values, v)
		}
	} else if len(l.Content) > 0 {
		for _, t := range l.Content[0].Top {
			values = append(values, t.Logprob)
		}
	}
	if len(values) < 2 {
		return 0
	}
	slices.SortFunc(values, func(a, b float64) int { return cmp.Compare(b, a) })
	return values[0] - values[1]
}
