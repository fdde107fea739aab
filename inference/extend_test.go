package inference

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/inference/enginesim"
)

// beginning is an answer of three tokens that was cut.
func beginning(text string) *episode.Reply {
	return &episode.Reply{
		Message: episode.Message{Role: episode.RoleAssistant, Content: &text}, Finish: episode.FinishLength, RawEnd: "length", PromptIDs: []int32{1, 2}, SampledIDs: []int32{3, 4, 5},
		Logprobs: []episode.Logprob{{Value: -1, Known: true}, {Value: -2, Known: true}, {}}, Version: episode.Ptr(int32(7)),
		Usage: episode.Usage{Prompt: episode.Ptr(int32(2)), Completion: episode.Ptr(int32(3)), Cached: episode.Ptr(int32(0))},
	}
}

// completing is an endpoint whose completions route gives this answer and whose detokenize route gives this text.
func completing(t *testing.T, status int, completion, text string, seen func(map[string]json.RawMessage)) *Endpoint {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/detokenize" {
			if text == "" {
				w.WriteHeader(http.StatusNotFound)
			}
			fmt.Fprintf(w, `{"prompt": %q}`, text)
			return
		}
		var body map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v1/completions" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		if seen != nil {
			seen(body)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, completion)
	}))
	t.Cleanup(s.Close)
	e, err := newEndpoint(Config{BaseURL: s.URL, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// The request goes on from the exact ids, with the sampling of the call and without what decides how a chat is rendered; the reply is whole.
func TestExtendGoesOnFromTheIDs(t *testing.T) {
	var sent map[string]json.RawMessage
	e := completing(t, http.StatusOK, `{"model":"m","choices":[{"index":0,"text":" d e","token_ids":[6,7],"prompt_token_ids":[1,2,3,4,5],"finish_reason":"stop",
		"logprobs":{"token_logprobs":[-0.5,-0.25]}}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`, "", func(b map[string]json.RawMessage) { sent = b })
	c := &episode.Call{
		ID: "e/0", Episode: "e", Messages: []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr("hi")}},
		Sampling: episode.Sampling{Temperature: episode.Ptr(0.0), Logprobs: true, TokenIDs: true, Extra: map[string]json.RawMessage{"chat_template_kwargs": []byte(`{"a":1}`), "priority": []byte("2")}},
	}
	r, err := e.Extend(t.Context(), c, beginning("a b c"), 2, 40)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"prompt": "[1,2,3,4,5]", "max_tokens": "40", "temperature": "0", "logprobs": "1", "return_token_ids": "true", "priority": "2"} {
		if string(sent[name]) != want {
			t.Errorf("%s: sent %s, expected %s", name, sent[name], want)
		}
	}
	if sent["messages"] != nil || sent["chat_template_kwargs"] != nil {
		t.Errorf("sent %v: what is of a chat has no place there", sent)
	}
	if r.Message.Text() != "a b c d e" || !slices.Equal(r.SampledIDs, []int32{3, 4, 5, 6, 7}) || !slices.Equal(r.PromptIDs, []int32{1, 2}) || r.Finish != episode.FinishStop ||
		len(r.Logprobs) != 5 || r.Logprobs[2].Known || r.Logprobs[4].Value != -0.25 || *r.Usage.Prompt != 2 || *r.Usage.Completion != 5 || len(r.Flags) != 0 {
		t.Errorf("%+v %q", r, r.Message.Text())
	}
	if len(r.Spans) != 2 || r.Spans[0].Tokens != 3 || *r.FirstVersion() != 7 || r.Version != nil {
		t.Errorf("versions %+v", r.Spans)
	}
}

// What is no going on from these ids is a failed attempt, and what there was stays as it is.
func TestExtendRefusesWhatDoesNotGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		answer string
		class  episode.Class
	}{
		"no ids":          {200, `{"choices":[{"text":"x","finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`, episode.ClassMalformed},
		"another prompt":  {200, `{"choices":[{"text":"x","token_ids":[6],"prompt_token_ids":[1,2,3],"finish_reason":"stop"}]}`, episode.ClassMalformed},
		"another count":   {200, `{"choices":[{"text":"x","token_ids":[6],"finish_reason":"stop"}],"usage":{"prompt_tokens":6,"completion_tokens":1}}`, episode.ClassMalformed},
		"aborted":         {200, `{"choices":[{"text":"x","token_ids":[6],"finish_reason":"abort"}]}`, episode.ClassAborted},
		"no such route":   {404, `{"detail":"Not Found"}`, ""},
		"the engine died": {500, `{"error":"EngineCore encountered an issue"}`, episode.ClassServerError},
	} {
		t.Run(name, func(t *testing.T) {
			so := beginning("a b c")
			r, err := completing(t, c.status, c.answer, "", nil).Extend(t.Context(), &episode.Call{ID: "e/0"}, so, 1, 40)
			f := episode.AsFault(episode.StageModel, err)
			if r != nil || f == nil || c.class != "" && f.Class != c.class {
				t.Errorf("%+v, %v; expected class %s", r, err, c.class)
			}
			if so.Message.Text() != "a b c" || len(so.SampledIDs) != 3 {
				t.Errorf("what there was changed: %+v", so)
			}
		})
	}
}

// A character that was cut in two is put right by the server's own decoding of all ids, or the text is marked.
func TestExtendMendsCharacters(t *testing.T) {
	for name, c := range map[string]struct {
		before, more, decoded, want string
		marked                      bool
	}{
		"cut in two":            {"caf\ufffd", "\ufffd au lait", "café au lait", "café au lait", false},
		"held back":             {"caf", "\ufffd au lait", "café au lait", "café au lait", false},
		"cannot be decoded":     {"caf\ufffd", "\ufffd au lait", "", "caf\ufffd\ufffd au lait", true},
		"decoded to other text": {"caf\ufffd", "\ufffd au lait", "tea", "caf\ufffd\ufffd au lait", true},
		"whole":                 {"café", " au lait", "never asked", "café au lait", false},
	} {
		t.Run(name, func(t *testing.T) {
			answer := fmt.Sprintf(`{"choices":[{"text":%q,"token_ids":[6,7],"finish_reason":"stop"}]}`, c.more)
			r, err := completing(t, http.StatusOK, answer, c.decoded, nil).Extend(t.Context(), &episode.Call{ID: "e/0"}, beginning(c.before), 1, 40)
			if err != nil {
				t.Fatal(err)
			}
			if r.Message.Text() != c.want || slices.Contains(r.Flags, episode.FlagTextRepaired) != c.marked {
				t.Errorf("%q, flags %v; expected %q", r.Message.Text(), r.Flags, c.want)
			}
		})
	}
}

// Thinking is told from what is said as in an answer made at one go, wherever the answer was cut, also inside a tag.
func TestThinkingIsTakenOutOfTheWhole(t *testing.T) {
	e := completing(t, http.StatusOK, "", "", nil)
	part := func(text string, ended bool) *episode.Reply {
		c := &choice{content: pieces(text), finish: "length", promptIDs: []int32{1}, ids: []int32{2}}
		if ended {
			c.finish = "stop"
		}
		return (&answer{}).replyOf(c, episode.Sampling{}, 1)
	}
	for _, text := range []string{
		"I think so</think>yes", "<think>I think so</think>yes", "\n<think>hm</think>", "<think>it never ends", "no thinking", "a <think>b</think> c", "<think>a</think>b</think>c",
	} {
		for _, ended := range []bool{true, false} {
			want := part(text, ended)
			for i := range len(text) {
				for j := range i + 1 {
					half := e.grown(t.Context(), part(text[:j], false), part(text[j:i], false))
					if !half.Extensible() {
						t.Fatalf("%q cannot be gone on with", text[:i])
					}
					got := e.grown(t.Context(), half, part(text[i:], ended))
					if !reflect.DeepEqual(got.Message, want.Message) || !slices.Equal(got.Flags, want.Flags) {
						t.Fatalf("%q cut at %d and %d: %+v %v, at one go %+v %v", text, j, i, got.Message, got.Flags, want.Message, want.Flags)
					}
				}
			}
		}
	}
}

// Whether a server goes on from ids is found out by doing it.
func TestProveExtend(t *testing.T) {
	e := simulated(t, enginesim.Config{})
	if err := e.ProveExtend(t.Context()); err != nil {
		t.Errorf("the simulated engine: %v", err)
	}
	if e.cfg.ExtraBody = map[string]json.RawMessage{"repetition_penalty": []byte("1.1")}; !strings.Contains(fmt.Sprint(e.ProveExtend(t.Context())), "repetition_penalty") {
		t.Error("an endpoint whose every request carries a penalty is said to go on")
	}
}
