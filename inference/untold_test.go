package inference

import (
	"encoding/json"
	"slices"
	"testing"

	"tranche/episode"
)

// What a real llama-server (b11434) told of answers to n_probs 1: nothing of a stop string's tokens, and of a character in four tokens only the last.
func TestUntoldTokens(t *testing.T) {
	const settings = `,"generation_settings":{"n_probs":1}`
	for name, c := range map[string]struct {
		answer string
		known  []bool // by token; nil = no logprobs
		flags  []string
	}{
		"a stop string at the end":  {`{"content":"4","tokens":[236812,107],"stop_type":"word","stopping_word":"\n","completion_probabilities":[{"id":236812,"logprob":-1.5}]` + settings + `}`, []bool{true, false}, nil},
		"nothing but a stop string": {`{"content":"","tokens":[236820,236909],"stop_type":"word","stopping_word":"<|"` + settings + `}`, []bool{false, false}, nil},
		"nothing but a stop string, logprobs not asked for": {`{"content":"","tokens":[107],"stop_type":"word","stopping_word":"\n","generation_settings":{"n_probs":0}}`,
			nil, []string{episode.FlagLogprobsMissing}},
		"a server that tells none":          {`{"content":"4","tokens":[236812],"stop_type":"limit"` + settings + `}`, nil, []string{episode.FlagLogprobsMissing}},
		"no settings, nothing told":         {`{"content":"","tokens":[107],"stop_type":"word","stopping_word":"\n"}`, nil, []string{episode.FlagLogprobsMissing}},
		"settings that are no object":       {`{"content":"","tokens":[107],"stop_type":"word","stopping_word":"\n","generation_settings":7}`, nil, []string{episode.FlagLogprobsMissing}},
		"a character in four tokens":        {`{"content":"𐎀","tokens":[478,382,380,366],"stop_type":"limit","completion_probabilities":[{"id":366,"logprob":-1}]` + settings + `}`, []bool{false, false, false, true}, nil},
		"a character that is not whole yet": {`{"content":"𐎀�","tokens":[478,382,380,366,478],"stop_type":"limit","completion_probabilities":[{"id":366,"logprob":-1}]` + settings + `}`, []bool{false, false, false, true, false}, nil},
		"two, words between, a stop string": {`{"content":"a𐎀a𐎀","tokens":[1,478,382,380,366,1,478,382,380,366,107],"stop_type":"word","stopping_word":"\n",` +
			`"completion_probabilities":[{"id":1,"logprob":-1},{"id":366,"logprob":-2},{"id":1,"logprob":-3},{"id":366,"logprob":-4}]` + settings + `}`,
			[]bool{true, false, false, false, true, true, false, false, false, true, false}, nil},
		"which of two equal tokens": {`{"content":"😟","tokens":[478,397,390,397],"stop_type":"limit","completion_probabilities":[{"id":397,"logprob":-1}]` + settings + `}`, nil, []string{episode.FlagLogprobsMissing}},
		"another token":             {`{"content":"a","tokens":[1,2],"stop_type":"limit","completion_probabilities":[{"id":3,"logprob":-1}]` + settings + `}`, nil, []string{episode.FlagLogprobsMissing}},
		"more than there are":       {`{"content":"a","tokens":[1],"stop_type":"limit","completion_probabilities":[{"id":1,"logprob":-1},{"id":1,"logprob":-1}]` + settings + `}`, nil, []string{episode.FlagLogprobsMissing}},
		"without ids":               {`{"content":"a","tokens":[1,2],"stop_type":"limit","completion_probabilities":[{"logprob":-1}]` + settings + `}`, nil, []string{episode.FlagLogprobsMissing}},
	} {
		t.Run(name, func(t *testing.T) {
			a := answer{shape: llamaShape}
			if _, err := a.takeEvent([]byte(c.answer)); err != nil {
				t.Fatal(err)
			}
			r, err := a.reply(episode.Sampling{Logprobs: true, TokenIDs: true}, 0)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.Flags, c.flags) || (r.Logprobs == nil) != (c.known == nil) || len(r.Logprobs) != len(c.known) {
				t.Fatalf("logprobs %+v, flags %v; want %v, flags %v", r.Logprobs, r.Flags, c.known, c.flags)
			}
			var told struct {
				Probs []struct {
					ID      int32   `json:"id"`
					Logprob float32 `json:"logprob"`
				} `json:"completion_probabilities"`
			}
			if err := json.Unmarshal([]byte(c.answer), &told); err != nil {
				t.Fatal(err)
			}
			for i, l := range r.Logprobs {
				if l.Known != c.known[i] {
					t.Fatalf("token %d: %+v", i, l)
				}
				if !l.Known {
					continue
				}
				if p := told.Probs[0]; l.Value != p.Logprob || r.SampledIDs[i] != p.ID {
					t.Errorf("token %d, %d: %v; told %+v", i, r.SampledIDs[i], l.Value, p)
				}
				told.Probs = told.Probs[1:]
			}
		})
	}
}
