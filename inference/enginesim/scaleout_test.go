package enginesim

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// put posts a body to an engine's route and decodes the answer.
func put(t *testing.T, h http.Handler, route, body string, out any) int {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, route, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Session-ID", "s")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	raw, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(raw, out); err != nil {
			t.Fatalf("%s: %v: %s", route, err, raw)
		}
	}
	return w.Code
}

func handler(t *testing.T, cfg Config) http.Handler {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e.Handler()
}

// The routes that keep text and tokens apart come to the same as a chat: render, generate and derender give its ids and its message.
func TestScaleOutIsChatInThree(t *testing.T) {
	h := handler(t, Config{LengthMean: 30})
	const chat = `{"messages":[{"role":"user","content":"What is 12 + 30?"}],"max_tokens":200,"logprobs":true,"return_token_ids":true,
		"tools":[{"type":"function","function":{"name":"calculator","parameters":{"type":"object","properties":{"expression":{"type":"string"}}}}}]}`
	var whole chatReply
	put(t, h, "/v1/chat/completions", chat, &whole)
	var ready map[string]any
	if code := put(t, h, "/v1/chat/completions/render", chat, &ready); code != http.StatusOK {
		t.Fatalf("render: HTTP %d", code)
	}
	ready["return_token_ids"] = true
	body, _ := json.Marshal(ready)
	var made generateReply
	if code := put(t, h, "/inference/v1/generate", string(body), &made); code != http.StatusOK {
		t.Fatalf("generate: HTTP %d", code)
	}
	c := made.Choices[0]
	if !slices.Equal(made.PromptIDs, whole.PromptIDs) || !slices.Equal(c.TokenIDs, whole.Choices[0].TokenIDs) || len(c.Logprobs.Content) != len(c.TokenIDs) {
		t.Fatalf("generate made %d ids behind %d, chat %d behind %d", len(c.TokenIDs), len(made.PromptIDs), len(whole.Choices[0].TokenIDs), len(whole.PromptIDs))
	}
	for i, l := range c.Logprobs.Content {
		if l.TokenID != c.TokenIDs[i] || l.Logprob != whole.Choices[0].Logprobs.Content[i].Logprob {
			t.Fatalf("logprob %d: %+v, chat %v", i, l, whole.Choices[0].Logprobs.Content[i])
		}
	}
	body, _ = json.Marshal(map[string]any{"chat_request": json.RawMessage(chat), "generate_response": map[string]any{"choices": []any{
		map[string]any{"index": 0, "token_ids": c.TokenIDs[:len(c.TokenIDs)-1], "finish_reason": "stop"}}}})
	var read chatReply
	if code := put(t, h, "/v1/chat/completions/derender", string(body), &read); code != http.StatusOK {
		t.Fatalf("derender: HTTP %d", code)
	}
	want, got := whole.Choices[0].Message, read.Choices[0].Message
	if len(want.ToolCalls) != 1 || len(got.ToolCalls) != 1 || got.ToolCalls[0].Function != want.ToolCalls[0].Function || (got.Content == nil) != (want.Content == nil) {
		t.Fatalf("derender read %+v, chat %+v", got, want)
	}
}

// Without the switch vLLM has, its routes answer 403; other engines have other routes.
func TestTokenRoutesOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		cfg   Config
		route string
		want  int
	}{
		"no scale-out":           {Config{NoScaleOut: true}, "/inference/v1/generate", 403},
		"nor render":             {Config{NoScaleOut: true}, "/v1/chat/completions/render", 403},
		"vLLM has no /generate":  {Config{}, "/generate", 404},
		"nor /completion":        {Config{}, "/completion", 404},
		"SGLang has no generate": {Config{Speaks: SpeaksSGLang}, "/inference/v1/generate", 404},
		"SGLang":                 {Config{Speaks: SpeaksSGLang}, "/generate", 200},
		"llama-server":           {Config{Speaks: SpeaksLlama}, "/completion", 200},
		"llama-server's prompt":  {Config{Speaks: SpeaksLlama}, "/apply-template", 200},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"token_ids":[300,301],"input_ids":[300,301],"prompt":[300,301],"sampling_params":{"max_tokens":2,"max_new_tokens":2},"n_predict":2,"messages":[{"role":"user","content":"x"}]}`
			if got := put(t, handler(t, c.cfg), c.route, body, &struct{}{}); got != c.want {
				t.Errorf("HTTP %d, want %d", got, c.want)
			}
		})
	}
}

// The forms of SGLang's and llama-server's own answers, as their sources write them.
func TestNativeAnswers(t *testing.T) {
	var s sglangReply
	put(t, handler(t, Config{Speaks: SpeaksSGLang}), "/generate", `{"input_ids":[300,301,302],"sampling_params":{"max_new_tokens":3},"return_logprob":true,"return_prompt_token_ids":true}`, &s)
	if len(s.OutputIDs) == 0 || len(s.Meta.Logprobs) != len(s.OutputIDs) || s.Meta.Prompt != 3 || !slices.Equal(s.PromptIDs, []int32{300, 301, 302}) || s.Meta.Weights != "default" || s.Meta.Finish.Type == "" {
		t.Errorf("%+v", s)
	}
	var l llamaReply
	put(t, handler(t, Config{Speaks: SpeaksLlama}), "/completion", `{"prompt":[300,301,302],"n_predict":3,"n_probs":1,"return_tokens":true,"ignore_eos":true}`, &l)
	if len(l.Tokens) != 3 || len(l.Probs) != 3 || l.Evaluated != 3 || l.Predicted != 3 || l.StopType != "limit" || l.Timings.Prompt+l.Timings.Cached != 3 {
		t.Errorf("%+v", l)
	}
	var open map[string]string
	put(t, handler(t, Config{Speaks: SpeaksLlama}), "/apply-template", `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}],"add_generation_prompt":false}`, &open)
	if want := "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo"; open["prompt"] != want {
		t.Errorf("an answer at the end is rendered as %q, want %q", open["prompt"], want)
	}
}

// Words sampled in odd pieces are the same words.
func TestOddTokensSayTheSame(t *testing.T) {
	tok := NewTokenizer()
	plain := tok.EncodePlain("The lighthouse of a great city, é and 😀.")
	odd := tok.oddly(plain)
	if slices.Equal(odd, plain) || tok.Decode(odd) != tok.Decode(plain) {
		t.Fatalf("%v from %v", odd, plain)
	}
}
