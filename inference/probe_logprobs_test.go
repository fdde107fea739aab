package inference

import (
	"fmt"
	"testing"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/internal/mock"
)

// What logprobs are of is proved by the answers to requests that are made anyway, and stays as it was where these do not show it.
func TestProbeTellsWhatLogprobsAreOf(t *testing.T) {
	for name, c := range map[string]struct {
		engine enginesim.Config
		want   fact
	}{
		"raw":       {enginesim.Config{Logprobs: enginesim.LogprobsRaw}, fact{"raw", Proved, "apart at temperature 2"}},
		"processed": {enginesim.Config{Logprobs: enginesim.LogprobsProcessed}, fact{"processed", Proved, "apart at temperature 2"}},
		"sglang":    {enginesim.Config{Speaks: enginesim.SpeaksSGLang, Logprobs: enginesim.LogprobsProcessed}, fact{"processed", Proved, "apart at temperature 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range int64(5) {
				c.engine.Seed = seed
				checkFacts(t, probed(t, simulated(t, c.engine), ProbeOptions{}), map[string]fact{"logprobs-mode": c.want, "list-prompts": {"yes", Proved, "4 of 4"}})
			}
		})
	}
	gaps := func(cold, hot string) map[string]mock.Handler {
		routes := vllm(true)
		routes["POST /v1/completions"] = func(r *mock.Request, w *mock.Reply) {
			top := cold
			if string(r.Field("temperature")) == "2" {
				top = hot
			}
			completion(func(i int, p []int32) string {
				return fmt.Sprintf(`{"index":%d,"text":" a","logprobs":{"token_logprobs":[-1.5],"top_logprobs":[%s]},"token_ids":[7],"prompt_token_ids":%s}`, i, top, encoded(p))
			}, "")(r, w)
		}
		return routes
	}
	for name, c := range map[string]struct {
		cold, hot string
		want      fact
	}{
		"as near as rounding": {`{"a":-0.5,"b":-1.5}`, `{"a":-0.52,"b":-1.47,"c":-9}`, fact{"raw", Proved, ""}},
		"half":                {`{"a":-0.5,"b":-1.5}`, `{"c":-9,"a":-1.2,"b":-1.7}`, fact{"processed", Proved, ""}},
		"neither":             {`{"a":-0.5,"b":-1.5}`, `{"a":-0.5,"b":-1.25}`, fact{"", Unknown, "apart"}},
		"too near to tell":    {`{"a":-0.5,"b":-0.6}`, `{"a":-0.5,"b":-0.55}`, fact{"raw", Claimed, "usual"}},
		"one token":           {`{"a":-0.5}`, `{"a":-0.5}`, fact{"raw", Claimed, "usual"}},
		"none when it is hot": {`{"a":-0.5,"b":-1.5}`, `null`, fact{"raw", Claimed, "usual"}},
		"no number":           {`{"a":null,"b":"x"}`, `{"a":-1,"b":-2}`, fact{"raw", Claimed, "usual"}},
	} {
		t.Run(name, func(t *testing.T) {
			checkFacts(t, probed(t, open(t, mock.New(t, mock.Config{Routes: gaps(c.cold, c.hot)}), nil), ProbeOptions{}), map[string]fact{"logprobs-mode": c.want})
		})
	}
}

// A reply says what its logprobs are of once an answer has shown it, and not on the server's word.
func TestReplySaysWhatItsLogprobsAreOf(t *testing.T) {
	for mode, want := range map[enginesim.LogprobsMode]episode.Spread{
		enginesim.LogprobsRaw: episode.SpreadRaw, enginesim.LogprobsProcessed: episode.SpreadProcessed,
	} {
		t.Run(string(mode), func(t *testing.T) {
			e := simulated(t, enginesim.Config{Logprobs: mode})
			of := func(s episode.Sampling) (episode.Spread, int) {
				c := call("2+2?")
				c.Sampling = s
				r, err := e.Generate(t.Context(), c, 0, 8)
				if err != nil {
					t.Fatal(err)
				}
				return r.LogprobsOf, len(r.Logprobs)
			}
			asked := episode.Sampling{Logprobs: true, TokenIDs: true}
			if got, n := of(asked); got != "" || n == 0 {
				t.Errorf("before it was seen: %q of %d logprobs, want nothing said of some", got, n)
			}
			probed(t, e, ProbeOptions{})
			if got, n := of(asked); got != want || n == 0 {
				t.Errorf("by messages: %q of %d logprobs, want %q", got, n, want)
			}
			if got, n := of(episode.Sampling{}); got != "" || n > 0 {
				t.Errorf("without logprobs: %q of %d", got, n)
			}
		})
	}
}
