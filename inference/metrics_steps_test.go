package inference

import (
	"testing"

	"tranche/episode"
)

// Only a counter that goes on while an answer is made shows that an engine lives.
func TestReadLoadOfSteps(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want *int64
	}{
		"vLLM, two engines": {`vllm:generation_tokens_total{engine="0"} 30
vllm:generation_tokens_total{engine="1"} 12`, episode.Ptr(int64(42))},
		"vLLM, the older name": {"vllm:generation_tokens 7", episode.Ptr(int64(7))},
		"SGLang counts by request": {`sglang:generation_tokens_total 900
sglang:prompt_tokens_total 800`, nil},
		"SGLang, by step, ranks of one engine": {`sglang:generation_tokens_total 900
sglang:realtime_tokens_total{mode="prefill_compute",tp_rank="0"} 100
sglang:realtime_tokens_total{mode="decode",tp_rank="0"} 20
sglang:realtime_tokens_total{mode="decode",tp_rank="1"} 20`, episode.Ptr(int64(120))},
		"llama-server":                     {llamaMetrics + "llamacpp:n_decode_total 26\n", episode.Ptr(int64(26))},
		"llama-server without its decodes": {llamaMetrics, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var l episode.Load
			readLoad(&l, parseMetrics(c.text))
			if (l.Steps == nil) != (c.want == nil) || c.want != nil && *l.Steps != *c.want {
				t.Errorf("steps %v, want %v", l.Steps, c.want)
			}
		})
	}
}
