package inference

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/episode"
)

// TestRealServer asks a running server, named by TRANCHE_TEST_ENDPOINT, for what only a real one can show: that ids,
// logprobs, usage and counts agree with each other.
func TestRealServer(t *testing.T) {
	base := os.Getenv("TRANCHE_TEST_ENDPOINT")
	if base == "" {
		t.Skip("no server; set TRANCHE_TEST_ENDPOINT to a base URL to run this against one")
	}
	for _, stream := range []bool{false, true} {
		e, err := Open(t.Context(), Config{BaseURL: base, Concurrency: 8, AttemptTimeout: 5 * time.Minute, Stream: stream})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		t.Logf("%s %s, model %s, capacity %+v", e.Kind(), e.Version(), e.Model(), e.Capacity())
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() { checkReal(t, e, i) })
		}
		wg.Wait()
		t.Run("overflow", func(t *testing.T) { realOverflow(t, e) })
		if l, err := e.Load(t.Context()); err != nil || l.GeneratedTokens == nil || *l.GeneratedTokens == 0 {
			t.Errorf("load %+v, %v", l, err)
		}
		t.Logf("stream %v, notes %q", stream, e.Notes())
	}
}

func checkReal(t *testing.T, e *Endpoint, i int) {
	c := call("Q: 2+3?\nA: 5\nQ: 4+4?\nA: 8 😀\nQ: 1+" + strings.Repeat("1", i+1) + "?\nA:")
	c.Sampling = episode.Sampling{Temperature: episode.Ptr(0.8), TokenIDs: true, Logprobs: true}
	if i%2 == 0 {
		c.Sampling.Stop = []string{"\n", "<|im_end|>"}
	}
	n, err := e.Count(t.Context(), c)
	if err != nil {
		t.Error(err)
		return
	}
	r, err := e.Generate(t.Context(), c, 0, 24)
	if err != nil {
		t.Error(err)
		return
	}
	if r.Usage.Prompt == nil || int(*r.Usage.Prompt) != n || len(r.PromptIDs) != n {
		t.Errorf("call %d: counted %d, usage %v, %d prompt ids", i, n, r.Usage.Prompt, len(r.PromptIDs))
	}
	if r.SampledIDs == nil || len(r.SampledIDs) != len(r.Logprobs) || len(r.SampledIDs) > int(*r.Usage.Completion) || len(r.Flags) > 0 {
		t.Errorf("call %d: %d ids, %d logprobs, %d completion tokens, flags %v, finish %s, text %q",
			i, len(r.SampledIDs), len(r.Logprobs), *r.Usage.Completion, r.Flags, r.RawEnd, r.Message.Text())
	}
	if slices.ContainsFunc(r.Logprobs, func(l episode.Logprob) bool { return l.Known && l.Value > 0 }) {
		t.Errorf("call %d: a logprob above 0: %v", i, r.Logprobs)
	}
}

func realOverflow(t *testing.T, e *Endpoint) {
	_, err := e.Generate(t.Context(), call(strings.Repeat("seven plus one is eight. ", e.Capacity().ContextTokens)), 0, 8)
	f := faultOf(t, err)
	if f.Class != episode.ClassOverflow || f.Limit != e.Capacity().ContextTokens || f.Prompt != 0 && f.Prompt < f.Limit {
		t.Fatalf("%+v", f)
	}
}
