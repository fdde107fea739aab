package inference

import (
	"testing"

	"tranche/episode"
)

func TestReadLoadOfFirstTokens(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		count   int64
		seconds float64
		told    bool
	}{
		"vLLM, two engines": {`vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 7
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 10
vllm:time_to_first_token_seconds_sum{engine="0"} 3.5
vllm:time_to_first_token_seconds_count{engine="0"} 10
vllm:time_to_first_token_seconds_sum{engine="1"} 1.25
vllm:time_to_first_token_seconds_count{engine="1"} 2`, 12, 4.75, true},
		"SGLang, ranks of one engine": {`sglang:time_to_first_token_seconds_sum{tp_rank="0"} 2
sglang:time_to_first_token_seconds_sum{tp_rank="1"} 2
sglang:time_to_first_token_seconds_count{tp_rank="0"} 4
sglang:time_to_first_token_seconds_count{tp_rank="1"} 4`, 4, 2, true},
		"llama-server tells none": {"llamacpp:prompt_tokens_total 100", 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			var l episode.Load
			readLoad(&l, parseMetrics(c.text))
			switch {
			case !c.told:
				if l.Firsts != nil || l.FirstSeconds != nil {
					t.Errorf("%v first tokens in %v s, want none told", l.Firsts, l.FirstSeconds)
				}
			case l.Firsts == nil || l.FirstSeconds == nil || *l.Firsts != c.count || *l.FirstSeconds != c.seconds:
				t.Errorf("%v first tokens in %v s, want %d in %g", l.Firsts, l.FirstSeconds, c.count, c.seconds)
			}
		})
	}
}
