package inference

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/internal/mock"
)

var askIDs = episode.Sampling{TokenIDs: true, Logprobs: true}

func withIDs() *episode.Call {
	c := call("hello")
	c.Sampling = askIDs
	return c
}

// llama is a llama-server as far as ids go: it renders, tokenises and decodes one character as one token.
func llama(completion int, content string, extra map[string]mock.Handler) mock.Config {
	a := mock.Text(content)
	a.Prompt, a.Completion = len("<hello>"), completion
	var entries []string
	for _, r := range content {
		entries = append(entries, `{"id":`+string(rawInt(int(r)))+`,"token":"x","logprob":-0.5,"top_logprobs":[]}`)
	}
	a.Logprobs = json.RawMessage("null") // what it sends for no token at all
	if content != "" {
		a.Logprobs = json.RawMessage(`{"content":[` + strings.Join(entries, ",") + `]}`)
	}
	routes := map[string]mock.Handler{
		"GET /v1/models": fixed(200, `{"data":[{"id":"g","owned_by":"llamacpp"}]}`),
		"POST /apply-template": func(r *mock.Request, w *mock.Reply) {
			var m []struct{ Content string }
			_ = json.Unmarshal(r.Field("messages"), &m)
			w.JSON(200, `{"prompt":"<`+m[0].Content+`>"}`)
		},
		"POST /tokenize": func(r *mock.Request, w *mock.Reply) {
			if string(r.Field("add_special")) != "true" || string(r.Field("parse_special")) != "true" {
				w.JSON(400, `{"error":{"message":"special tokens"}}`)
				return
			}
			var s string
			_ = json.Unmarshal(r.Field("content"), &s)
			out, _ := json.Marshal(map[string]any{"tokens": []rune(s)})
			w.JSON(200, string(out))
		},
		"POST /detokenize": func(r *mock.Request, w *mock.Reply) {
			var ids []rune
			_ = json.Unmarshal(r.Field("tokens"), &ids)
			out, _ := json.Marshal(map[string]string{"content": string(ids)})
			w.JSON(200, string(out))
		},
	}
	for k, h := range extra {
		routes[k] = h
	}
	return mock.Config{Chat: a.Send, Routes: routes}
}

func rawInt(n int) json.RawMessage { b, _ := json.Marshal(n); return b }

func runes(s string) []int32 { return []int32([]rune(s)) }

func TestLlamaServerIDs(t *testing.T) {
	for name, c := range map[string]struct {
		cfg             mock.Config
		sampled, prompt []int32
		note            string
	}{
		"as many as it says it sampled":     {llama(2, "ab", nil), runes("ab"), runes("<hello>"), ""},
		"stop string left out, text agrees": {llama(3, "ab", nil), runes("ab"), runes("<hello>"), ""},
		"fewer, and the text disagrees": {llama(3, "ab", map[string]mock.Handler{"POST /detokenize": fixed(200, `{"content":"a?"}`)}),
			nil, nil, ""},
		"nothing but a stop string": {llama(3, "", nil), []int32{}, runes("<hello>"), ""},
		"the prompt's length disagrees": {llama(2, "ab", map[string]mock.Handler{"POST /apply-template": fixed(200, `{"prompt":"other"}`)}),
			runes("ab"), nil, "another length"},
		"no template route": {llama(2, "ab", map[string]mock.Handler{"POST /apply-template": fixed(500, `{}`)}),
			runes("ab"), nil, "did not tokenise"},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, mock.New(t, c.cfg), nil)
			r := generate(t, e, withIDs())
			if !slices.Equal(r.SampledIDs, c.sampled) || !slices.Equal(r.PromptIDs, c.prompt) || (r.SampledIDs == nil) != (c.sampled == nil) {
				t.Fatalf("sampled %v prompt %v, want %v and %v", r.SampledIDs, r.PromptIDs, c.sampled, c.prompt)
			}
			if len(r.Logprobs) != len(r.Message.Text()) || len(r.Flags) > 0 {
				t.Fatalf("%d logprobs", len(r.Logprobs))
			}
			if c.note != "" && !slices.ContainsFunc(e.Notes(), func(n string) bool { return strings.Contains(n, c.note) }) {
				t.Fatalf("notes %q do not say %q", e.Notes(), c.note)
			}
		})
	}
}

func TestSGLangIDs(t *testing.T) {
	body := `{"choices":[{"index":0,"message":{"role":"assistant","content":"ab","tool_calls":null},"finish_reason":"stop","matched_stop":2,"prompt_token_ids":[1,5],` +
		`"logprobs":{"content":[{"token":"a","logprob":-9}]},"meta_info":{"output_token_logprobs":[[-0.25,97,"a"],[null,98,null],[-1,2,"</s>"]]}}],` +
		`"usage":{"prompt_tokens":2,"completion_tokens":3},"metadata":{"weight_version":"7"}}`
	s := mock.New(t, mock.Config{Chat: fixed(200, body), Routes: map[string]mock.Handler{"GET /v1/models": fixed(200, `{"data":[{"id":"s","owned_by":"sglang"}]}`)}})
	r := generate(t, open(t, s, nil), withIDs())
	if !slices.Equal(r.SampledIDs, []int32{97, 98, 2}) || !slices.Equal(r.PromptIDs, []int32{1, 5}) {
		t.Fatalf("sampled %v prompt %v", r.SampledIDs, r.PromptIDs)
	}
	if want := []episode.Logprob{{Value: -0.25, Known: true}, {}, {Value: -1, Known: true}}; !slices.Equal(r.Logprobs, want) {
		t.Fatalf("logprobs %+v", r.Logprobs)
	}
	if r.Version == nil || *r.Version != 7 || text1(r.StopSeq) != "2" {
		t.Fatalf("version %v, stop %s", r.Version, text1(r.StopSeq))
	}
}

func TestStreamedIDs(t *testing.T) {
	raw := `data: {"prompt_token_ids":[1,2],"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n" +
		`data: {"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[7],"logprobs":{"content":[{"logprob":-1}]}}]}` + "\n\n" +
		`data: {"choices":[{"index":0,"delta":{"content":"b"},"token_ids":[8,9],"logprobs":{"content":[{"logprob":null},{"logprob":-3}]},"finish_reason":"stop","stop_reason":"</s>"}]}` + "\n\n" +
		`data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}` + "\n\ndata: [DONE]\n\n"
	r := generate(t, open(t, mock.New(t, mock.Config{Chat: sse(raw)}), nil), withIDs())
	if !slices.Equal(r.SampledIDs, []int32{7, 8, 9}) || !slices.Equal(r.PromptIDs, []int32{1, 2}) || len(r.Logprobs) != 3 || r.Logprobs[1].Known {
		t.Fatalf("%+v", r)
	}
	if r.Usage.Cached == nil || *r.Usage.Cached != 0 || text1(r.StopSeq) != "</s>" || r.Message.Text() != "ab" {
		t.Fatalf("%+v", r)
	}
}

// A negative number is no token id: the list it is in is none.
func TestNegativeIDsAreNone(t *testing.T) {
	a := mock.Text("ab")
	a.Completion = 2
	for name, c := range map[string]struct {
		sampled, prompt         []int32
		wantSampled, wantPrompt int
	}{
		"sampled": {[]int32{5, -1}, []int32{1, 2}, 0, 2},
		"prompt":  {[]int32{5, 6}, []int32{-1, 2}, 2, 0},
		"none":    {[]int32{5, 0}, []int32{0, 2}, 2, 2},
	} {
		a.TokenIDs, a.PromptIDs = c.sampled, c.prompt
		r := generate(t, open(t, mock.New(t, mock.Config{Chat: a.Send}), nil), withIDs())
		if len(r.SampledIDs) != c.wantSampled || len(r.PromptIDs) != c.wantPrompt {
			t.Errorf("%s: sampled %v, prompt %v", name, r.SampledIDs, r.PromptIDs)
		}
	}
}

// A server that gives sampled but no prompt ids is asked to tokenise the prompt; a wrong count is not believed.
func TestPromptIDsByTokenize(t *testing.T) {
	a := mock.Text("ok")
	a.TokenIDs, a.Prompt = []int32{5}, 3
	for name, c := range map[string]struct {
		tokens string
		want   []int32
	}{"right count": {`[1,2,3]`, []int32{1, 2, 3}}, "wrong count": {`[1,2]`, nil}} {
		t.Run(name, func(t *testing.T) {
			s := mock.New(t, mock.Config{Chat: a.Send, Routes: map[string]mock.Handler{"POST /tokenize": fixed(200, `{"count":3,"tokens":`+c.tokens+`}`)}})
			if r := generate(t, open(t, s, nil), withIDs()); !slices.Equal(r.PromptIDs, c.want) {
				t.Fatalf("prompt ids %v, want %v", r.PromptIDs, c.want)
			}
		})
	}
}

func TestCount(t *testing.T) {
	t.Run("vLLM form", func(t *testing.T) {
		s := mock.New(t, mock.Config{Routes: map[string]mock.Handler{
			"GET /v1/models": fixed(200, `{"data":[{"id":"q","owned_by":"vllm"}]}`), "POST /tokenize": fixed(200, `{"count":42,"max_model_len":100,"tokens":null}`)}})
		e := open(t, s, func(c *Config) {
			c.ExtraBody = raws("chat_template_kwargs", `{"enable_thinking":false}`, "user", `"u"`)
		})
		c := call("x")
		c.Tools = json.RawMessage(`[{"type":"function","function":{"name":"f"}}]`)
		n, err := e.Count(t.Context(), c)
		if err != nil || n != 42 {
			t.Fatalf("%d, %v", n, err)
		}
		reqs := s.Requests()
		got := fields(t, reqs[len(reqs)-1].Body)
		checkFields(t, got, map[string]string{"model": `"q"`, "messages": `[{"role":"user","content":"x"}]`, "add_generation_prompt": "true",
			"tools": string(c.Tools), "chat_template_kwargs": `{"enable_thinking":false}`, "user": "-"})
	})
	t.Run("llama-server", func(t *testing.T) {
		n, err := open(t, mock.New(t, llama(2, "ab", nil)), nil).Count(t.Context(), call("hello"))
		if err != nil || n != len("<hello>") {
			t.Fatalf("%d, %v", n, err)
		}
	})
	t.Run("unsupported, and not asked again", func(t *testing.T) {
		s := mock.New(t, mock.Config{})
		e := open(t, s, nil)
		before := len(s.Requests())
		for range 3 {
			if _, err := e.Count(t.Context(), call("x")); !errors.Is(err, episode.ErrUnsupported) {
				t.Fatalf("%v", err)
			}
		}
		if n := len(s.Requests()) - before; n != 1 {
			t.Fatalf("%d requests", n)
		}
	})
	t.Run("a prompt the server refuses is an error, not a missing ability", func(t *testing.T) {
		s := mock.New(t, mock.Config{Routes: map[string]mock.Handler{
			"GET /v1/models": fixed(200, `{"data":[{"id":"q","owned_by":"vllm"}]}`), "POST /tokenize": fixed(400, `{"error":{"message":"roles must alternate"}}`)}})
		_, err := open(t, s, nil).Count(t.Context(), call("x"))
		if err == nil || errors.Is(err, episode.ErrUnsupported) || !strings.Contains(err.Error(), "roles must alternate") {
			t.Fatalf("%v", err)
		}
	})
}
