package inference

import (
	"testing"

	"tranche/internal/mock"
)

// A claim stands for what servers of a kind usually do. One that took the question and did not do it is no longer taken to: the claim is gone, and the record says
// what went against it. A server that is busy, ill or slow has said nothing.
func TestAnAnswerTakesAClaimBack(t *testing.T) {
	const odd = `{"error":{"message":"no such thing here"}}`
	for name, c := range map[string]struct {
		route  string
		status int
		body   string
		facts  map[string]fact
	}{
		"a route answers with something else": {"POST /inference/v1/generate", 200, `{"choices":[]}`, map[string]fact{"generate": {"", Unknown, "does not hold it"}}},
		"a route refuses":                     {"POST /v1/chat/completions/render", 400, odd, map[string]fact{"render": {"", Unknown, "HTTP 400"}}},
		"chat refuses both ways":              {"POST /v1/chat/completions", 400, odd, map[string]fact{"n": {"", Unknown, "HTTP 400"}, "logprobs": {"", Unknown, "HTTP 400"}, "chat-token-ids": {"", Unknown, "HTTP 400"}}},
		"completions refuse":                  {"POST /v1/completions", 400, odd, map[string]fact{"token-ids-out": {"", Unknown, "HTTP 400"}, "prompt-kept": {"", Unknown, "HTTP 400"}, "list-prompts": {"", Unknown, "HTTP 400"}}},
		"chat is busy":                        {"POST /v1/chat/completions", 429, odd, map[string]fact{"n": {"yes", Claimed, "usual"}, "logprobs": {"yes", Claimed, "usual"}}},
		"completions are ill":                 {"POST /v1/completions", 500, odd, map[string]fact{"token-ids-out": {"yes", Claimed, "usual"}, "list-prompts": {"yes", Claimed, "usual"}}},
		"the tokenizer is odd":                {"POST /tokenize", 200, `{"count":3}`, map[string]fact{"tokenize-messages": {"", Unknown, "does not hold it"}}},
	} {
		t.Run(name, func(t *testing.T) {
			routes := vllm(true)
			before := open(t, mock.New(t, mock.Config{Routes: routes}), nil).Capabilities()
			for key := range c.facts { // else there is nothing to take back
				for _, r := range before.Rows() {
					if r.Key == key && key != "render" && key != "generate" && r.Proof != Claimed {
						t.Fatalf("%s is %s before", key, r.Proof)
					}
				}
			}
			routes[c.route] = fixed(c.status, c.body)
			checkFacts(t, probed(t, open(t, mock.New(t, mock.Config{Routes: routes}), nil), ProbeOptions{}), c.facts)
		})
	}
}

func TestDoubtLeavesWhatIsProvedOrSet(t *testing.T) {
	for _, proof := range []Proof{Proved, Set} {
		f := Fact[bool]{true, proof, "x"}
		if f.doubt("y"); f != (Fact[bool]{true, proof, "x"}) {
			t.Errorf("%+v", f)
		}
	}
	f := Fact[bool]{true, Claimed, "usual"}
	if f.doubt("y"); f != (Fact[bool]{false, Unknown, "y"}) {
		t.Errorf("%+v", f)
	}
}
