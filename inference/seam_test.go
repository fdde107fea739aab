package inference

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/internal/mock"
)

// templated is a vLLM without its scale-out routes, whose chat template is a function and whose tokens are runes.
func templated(template func(messages []templateMessage, generate bool) string) mock.Config {
	return mock.Config{Routes: map[string]mock.Handler{
		"GET /v1/models":                   fixed(200, `{"data":[{"id":"q","owned_by":"vllm"}]}`),
		"POST /v1/chat/completions/render": fixed(403, `{"error":{"message":"disabled","code":403}}`),
		"POST /tokenize": func(r *mock.Request, w *mock.Reply) {
			var messages []templateMessage
			_ = json.Unmarshal(r.Field("messages"), &messages)
			out, _ := json.Marshal(map[string]any{"tokens": []rune(template(messages, string(r.Field("add_generation_prompt")) == "true"))})
			w.JSON(200, string(out))
		},
		"POST /detokenize": func(r *mock.Request, w *mock.Reply) {
			var ids []rune
			_ = json.Unmarshal(r.Field("tokens"), &ids)
			out, _ := json.Marshal(map[string]string{"prompt": string(ids)})
			w.JSON(200, string(out))
		},
		"POST /v1/completions": func(r *mock.Request, w *mock.Reply) {
			w.JSON(200, fmt.Sprintf(`{"model":"q","choices":[{"index":0,"text":"ok","token_ids":%s,"prompt_token_ids":%s,"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":3}}`,
				mustEncode([]rune("ok.")), r.Field("prompt")))
		},
	}}
}

type templateMessage struct {
	Role      string
	Content   string
	Reasoning string `json:"reasoning_content"`
}

// The prompt of the next turn under templates with ways of their own. The answer was "an*swer." in tokens of the model's own choosing ("*"), and "." ends it.
func TestPromptOfTheNextTurn(t *testing.T) {
	line := func(m templateMessage, text string) string { return m.Role[:1] + ":" + text + ".\n" }
	end := func(generate bool) string {
		if generate {
			return "a:"
		}
		return ""
	}
	plain := func(messages []templateMessage, generate bool) string {
		var b strings.Builder
		for _, m := range messages {
			b.WriteString(line(m, m.Reasoning+m.Content))
		}
		return b.String() + end(generate)
	}
	for name, c := range map[string]struct {
		template  func([]templateMessage, bool) string
		reasoning string
		sampled   string
		stop      *string
		want      string
		breaks    bool
	}{
		"the answer ended": {plain, "", "an*swer.", nil, "u:hi.\na:an*swer.\nu:more.\na:", false},
		"by a stop string": {plain, "", "an*swerX", episode.Ptr("X"), "u:hi.\na:an*swerX.\nu:more.\na:", false},
		"by a stop string that is the template's own end": {plain, "", "an*swer.\n", episode.Ptr(".\n"), "u:hi.\na:an*swer.\nu:more.\na:", false},
		"an empty thought before the last answer alone": {func(messages []templateMessage, generate bool) string {
			var b strings.Builder
			for i, m := range messages {
				if m.Role == episode.RoleAssistant && i == len(messages)-1 {
					m.Content = "()" + m.Content
				}
				b.WriteString(line(m, m.Content))
			}
			return b.String() + end(generate)
		}, "", "an*swer.", nil, "u:hi.\na:an*swer.\nu:more.\na:", false},
		"earlier thoughts dropped": {func(messages []templateMessage, generate bool) string {
			var b strings.Builder
			for i, m := range messages {
				if i == len(messages)-1 {
					m.Content = m.Reasoning + m.Content
				}
				b.WriteString(line(m, m.Content))
			}
			return b.String() + end(generate)
		}, "(hm)", "(hm)an*swer.", nil, "u:hi.\na:answer.\nu:more.\na:", true},
		"the beginning counts the messages": {func(messages []templateMessage, generate bool) string {
			return fmt.Sprint(len(messages)) + plain(messages, generate)
		}, "", "an*swer.", nil, "3u:hi.\na:answer.\nu:more.\na:", true},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, mock.New(t, templated(c.template)), nil)
			said := episode.Message{Role: episode.RoleAssistant, Content: episode.Ptr("answer")}
			if c.reasoning != "" {
				said.ReasoningContent = &c.reasoning
			}
			call := call("hi")
			call.Sampling.TokenIDs = true
			if c.stop != nil {
				call.Sampling.Stop = []string{*c.stop}
			}
			past := []int32(c.template([]templateMessage{{Role: "user", Content: "hi"}}, true) + c.sampled)
			call.Messages = append(call.Messages, said, episode.Message{Role: episode.RoleUser, Content: episode.Ptr("more")})
			call.Past = &episode.Past{IDs: past, Messages: 2, Finish: episode.FinishStop, Stop: c.stop, Endpoint: e.Name()}
			r := generate(t, e, call)
			if r.Exchange != episode.ExchangeIDs || string([]rune(r.PromptIDs)) != c.want {
				t.Errorf("%s, the prompt is %q, want %q; notes %q", r.Exchange, string([]rune(r.PromptIDs)), c.want, e.Notes())
			}
			var tokens episode.Tokens
			tokens.Extend(past[:len(past)-len(c.sampled)], past[len(past)-len(c.sampled):], nil, nil)
			tokens.Extend(r.PromptIDs, r.SampledIDs, r.Logprobs, r.Version)
			if (tokens.Break != nil) != c.breaks || slices.ContainsFunc(e.Notes(), func(n string) bool { return strings.Contains(n, "prefix_break") }) != c.breaks {
				t.Errorf("prefix break %v, notes %q", tokens.Break, e.Notes())
			}
		})
	}
}
