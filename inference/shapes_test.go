package inference

import (
	"encoding/json"
	"testing"

	"tranche/episode"
)

// Whatever comes as an answer of an engine's own route, it is read or refused: never a panic, and no reply whose lists are of unequal length.
func FuzzOwnRoutes(f *testing.F) {
	for _, seed := range []string{
		`{"text":"a","output_ids":[7,8],"prompt_token_ids":[1],"meta_info":{"finish_reason":{"type":"stop","matched":8},"prompt_tokens":1,"completion_tokens":2,"weight_version":"default","output_token_logprobs":[[-0.5,7,null],[null,8,null]]}}`,
		`{"content":"a","tokens":[7,8],"stop_type":"word","stopping_word":"\n","tokens_evaluated":1,"tokens_predicted":2,"completion_probabilities":[{"id":7,"logprob":-1}],"timings":{"cache_n":0,"prompt_n":1,"predicted_n":2}}`,
		`{"content":"","tokens":[107],"stop_type":"word","stopping_word":"\n","generation_settings":{"n_probs":1}}`,
		`{"content":"𐎀","tokens":[478,382,380,366],"stop_type":"limit","completion_probabilities":[{"id":366,"logprob":-1}]}`,
		`{"error":{"message":"no"}}`, `{"meta_info":{"output_token_logprobs":[[1]]}}`, `{"content":null,"tokens":null}`,
		`{"choices":[{"index":0,"token_ids":[1,2,3],"weight_versions":[{"version":"7","start":0,"end":2},{"version":8,"start":2,"end":9}]}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, shape := range []func([]byte) (*wireAnswer, error){sglangShape, llamaShape, nil} {
			a := &answer{shape: shape}
			if _, err := a.takeEvent(data); err != nil {
				continue
			}
			r, err := a.reply(episode.Sampling{Logprobs: true, TokenIDs: true}, 8)
			if err != nil {
				continue
			}
			if r.SampledIDs != nil && r.Logprobs != nil && len(r.SampledIDs) != len(r.Logprobs) {
				t.Fatalf("%d ids, %d logprobs", len(r.SampledIDs), len(r.Logprobs))
			}
			var e episode.Episode
			e.Sampling.TokenIDs = true
			e.AddReply(r, episode.Turn{})
			if tk := &e.Tokens; len(tk.IDs) != len(r.PromptIDs)+len(r.SampledIDs) && r.SampledIDs != nil || len(tk.Mask) != len(tk.IDs) || len(tk.Versions) != len(tk.IDs) {
				t.Fatalf("%d ids behind %d make %d, %d mask, %d versions", len(r.SampledIDs), len(r.PromptIDs), len(tk.IDs), len(tk.Mask), len(tk.Versions))
			}
		}
	})
}

// Weight versions cover every token, whatever a server says of them.
func TestWeightSpansCoverTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		told string
		want []episode.Span
	}{
		"all":            {`[{"version":"7","start":0,"end":3},{"version":"8","start":3,"end":4}]`, []episode.Span{{Tokens: 3, Version: episode.Ptr(int32(7))}, {Tokens: 1, Version: episode.Ptr(int32(8))}}},
		"a hole, an end": {`[{"version":"7","start":1,"end":2}]`, []episode.Span{{Tokens: 1}, {Tokens: 1, Version: episode.Ptr(int32(7))}, {Tokens: 2}}},
		"a name":         {`[{"version":"step-7","start":0,"end":4}]`, []episode.Span{{Tokens: 4}}},
		"none":           {`null`, nil},
		"beyond the ids": {`[{"version":"7","start":0,"end":5}]`, nil},
		"out of order":   {`[{"version":"7","start":2,"end":4},{"version":"8","start":0,"end":2}]`, nil},
		"ends before it": {`[{"version":"7","start":2,"end":1}]`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var a answer
			if _, err := a.takeEvent([]byte(`{"choices":[{"index":0,"finish_reason":"stop","token_ids":[1,2,3,4],"weight_versions":` + c.told + `}]}`)); err != nil {
				t.Fatal(err)
			}
			r, err := a.reply(episode.Sampling{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := json.Marshal(r.Spans)
			want, _ := json.Marshal(c.want)
			if string(got) != string(want) {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}
