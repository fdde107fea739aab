package enginesim

import (
	"encoding/json"
	"errors"
	"net/http"
)

// Speaks names the engine whose own token routes are spoken.
type Speaks string

// What an engine may speak beside OpenAI's interface.
const (
	SpeaksVLLM   Speaks = "vllm"         // /inference/v1/generate, /v1/chat/completions/render and derender
	SpeaksSGLang Speaks = "sglang"       // /generate
	SpeaksLlama  Speaks = "llama-server" // /completion, /apply-template, and /tokenize with a content
)

// owner is what the model list names as the owner: clients tell engines by it.
func (s Speaks) owner() string {
	switch s {
	case SpeaksSGLang:
		return "sglang"
	case SpeaksLlama:
		return "llamacpp"
	}
	return "tranche-sim"
}

// tokenRoutes adds what the engine's own interface has.
func (e *Engine) tokenRoutes(closing <-chan struct{}, mux *http.ServeMux) {
	switch e.config.Speaks {
	case SpeaksSGLang:
		mux.HandleFunc("POST /generate", e.generating(closing, e.sglangGenerate))
	case SpeaksLlama:
		mux.HandleFunc("POST /completion", e.generating(closing, e.llamaComplete))
		mux.HandleFunc("POST /apply-template", answered(e.applyTemplate))
	default:
		mux.HandleFunc("POST /inference/v1/generate", e.scaledOut(e.generating(closing, e.generate)))
		mux.HandleFunc("POST /v1/chat/completions/render", e.scaledOut(answered(e.render)))
		mux.HandleFunc("POST /v1/chat/completions/derender", e.scaledOut(answered(e.derender)))
	}
}

// scaledOut refuses a route as vLLM does without --enable-scale-out.
func (e *Engine) scaledOut(next http.HandlerFunc) http.HandlerFunc {
	if !e.config.NoScaleOut {
		return next
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, &apiError{Message: "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.",
			Type: "PermissionDeniedError", Code: http.StatusForbidden})
	}
}

// sglangRequest is the body of SGLang's POST /generate.
type sglangRequest struct {
	Text   *string `json:"text"`
	IDs    []int32 `json:"input_ids"`
	Params struct {
		knobs
		MaxNew *int   `json:"max_new_tokens"`
		MinNew int    `json:"min_new_tokens"`
		Seed   *int64 `json:"sampling_seed"`
	} `json:"sampling_params"`
	Priority  int  `json:"priority"`
	Logprob   bool `json:"return_logprob"`
	PromptIDs bool `json:"return_prompt_token_ids"`
	Stream    bool `json:"stream"`
}

type sglangReply struct {
	Text      string     `json:"text"`
	OutputIDs []int32    `json:"output_ids"`
	PromptIDs []int32    `json:"prompt_token_ids,omitempty"`
	Meta      sglangMeta `json:"meta_info"`
}

type sglangMeta struct {
	ID         string       `json:"id"`
	Finish     sglangFinish `json:"finish_reason"`
	Prompt     int          `json:"prompt_tokens"`
	Completion int          `json:"completion_tokens"`
	Cached     *int         `json:"cached_tokens,omitempty"`
	Weights    string       `json:"weight_version"`
	Logprobs   [][]any      `json:"output_token_logprobs,omitempty"`
}

type sglangFinish struct {
	Type    string `json:"type"`
	Matched any    `json:"matched,omitempty"`
	Length  int    `json:"length,omitempty"`
}

// sglangGenerate serves SGLang's POST /generate for one prompt of ids or text.
func (e *Engine) sglangGenerate(w http.ResponseWriter, r *http.Request, body []byte) error {
	var req sglangRequest
	if err := e.parse(body, &req); err != nil {
		return err
	}
	if req.Stream {
		return unsupported("stream")
	}
	k := &req.Params.knobs
	k.MaxTokens, k.MinTokens, k.Seed, k.Priority = req.Params.MaxNew, req.Params.MinNew, req.Params.Seed, req.Priority
	prompt := req.IDs
	if prompt == nil && req.Text != nil {
		prompt = e.tokens.Encode(*req.Text)
	}
	a, c, err := e.single(r, prompt, k, 128)
	if err != nil {
		return err
	}
	u := e.usage(c, []int{len(a.ids)}, 1)
	out := sglangReply{Text: a.text, OutputIDs: a.ids, Meta: sglangMeta{
		ID: session(r), Prompt: u.PromptTokens, Completion: u.CompletionTokens, Weights: e.weights(c), Finish: sglangFinish{Type: a.finish, Matched: a.stop},
	}}
	if out.Meta.Weights == "" {
		out.Meta.Weights = "default"
	}
	if u.Details != nil {
		out.Meta.Cached = &u.Details.CachedTokens
	}
	if a.finish == "length" {
		out.Meta.Finish.Length = len(a.ids)
	}
	if a.finish == "stop" && a.stop == nil {
		out.Meta.Finish.Matched = imEnd
	}
	if req.PromptIDs {
		out.PromptIDs = prompt
	}
	for i := 0; req.Logprob && i < len(a.ids); i++ {
		own, _ := a.logprob(i, 0)
		out.Meta.Logprobs = append(out.Meta.Logprobs, []any{own, a.ids[i], nil})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// single makes one answer to one prompt of ids.
func (e *Engine) single(r *http.Request, prompt []int32, k *knobs, fallback int) (*answer, *call, error) {
	if err := k.check(); err != nil {
		return nil, nil, err
	}
	if k.samples() != 1 {
		return nil, nil, unsupported("n")
	}
	if err := e.tokens.Check(prompt); err != nil {
		return nil, nil, badRequest("prompt", "%v", err)
	}
	l, err := e.limits(k, prompt, k.MaxTokens, fallback, true)
	if err != nil {
		return nil, nil, err
	}
	c := e.submit([]*answer{e.fromIDs(prompt, k, r, 0, want{}, l)}, k)
	defer e.cancel(c)
	if err := e.finished(r.Context(), c); err != nil {
		return nil, nil, err
	}
	return c.flows[0].answer, c, nil
}

// llamaRequest is the body of llama-server's POST /completion.
type llamaRequest struct {
	knobs
	Prompt   llamaPrompt `json:"prompt"`
	Predict  *int        `json:"n_predict"`
	Probs    int         `json:"n_probs"`
	Logprobs *int        `json:"logprobs"`
	Tokens   bool        `json:"return_tokens"`
}

// llamaPrompt is a text or a list of ids.
type llamaPrompt struct {
	text *string
	ids  []int32
}

func (p *llamaPrompt) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		p.text = &text
		return nil
	}
	if json.Unmarshal(b, &p.ids) == nil {
		return nil
	}
	return errors.New("prompt: expected a string or a list of token ids")
}

type llamaReply struct {
	Index     int          `json:"index"`
	Content   string       `json:"content"`
	Tokens    []int32      `json:"tokens"`
	Model     string       `json:"model"`
	Predicted int          `json:"tokens_predicted"`
	Evaluated int          `json:"tokens_evaluated"`
	HasNew    bool         `json:"has_new_line"`
	Truncated bool         `json:"truncated"`
	StopType  string       `json:"stop_type"`
	StopWord  string       `json:"stopping_word"`
	Cached    int          `json:"tokens_cached"`
	Stop      bool         `json:"stop"`
	Probs     []llamaProb  `json:"completion_probabilities,omitempty"`
	Settings  llamaKnobs   `json:"generation_settings"`
	Timings   llamaTimings `json:"timings"`
}

type llamaKnobs struct {
	Probs int `json:"n_probs"`
}

type llamaProb struct {
	ID      int32       `json:"id"`
	Token   string      `json:"token"`
	Bytes   []int       `json:"bytes"`
	Logprob float64     `json:"logprob"`
	Top     []llamaProb `json:"top_logprobs,omitempty"`
}

type llamaTimings struct {
	Cached    int `json:"cache_n"`
	Prompt    int `json:"prompt_n"`
	Predicted int `json:"predicted_n"`
}

// llamaComplete serves llama-server's POST /completion.
func (e *Engine) llamaComplete(w http.ResponseWriter, r *http.Request, body []byte) error {
	var req llamaRequest
	if err := e.parse(body, &req); err != nil {
		return err
	}
	if req.Stream {
		return unsupported("stream")
	}
	if req.Predict != nil && *req.Predict >= 0 {
		req.MaxTokens = req.Predict
	}
	prompt := req.Prompt.ids
	if req.Prompt.text != nil {
		prompt = e.tokens.Encode(*req.Prompt.text)
	}
	a, c, err := e.single(r, prompt, &req.knobs, 0)
	if err != nil {
		return err
	}
	u := e.usage(c, []int{len(a.ids)}, 1)
	out := llamaReply{Content: a.text, Tokens: []int32{}, Model: e.config.Model, Predicted: len(a.ids), Evaluated: len(prompt), Cached: len(prompt) + len(a.ids), Stop: true, StopType: "eos"}
	if req.Tokens {
		out.Tokens = a.ids
	}
	if u.Details != nil {
		out.Timings.Cached = u.Details.CachedTokens
	}
	out.Timings.Prompt, out.Timings.Predicted = len(prompt)-out.Timings.Cached, len(a.ids)
	if word, ok := a.stop.(string); ok {
		out.StopType, out.StopWord = "word", word
	}
	if a.finish == "length" {
		out.StopType = "limit"
	}
	if req.Logprobs != nil {
		req.Probs = *req.Logprobs
	}
	out.Settings.Probs = req.Probs
	told := len(a.ids)
	if out.StopType == "word" {
		told-- // those of the stop string are left out; here one token stands for them
	}
	for i := 0; req.Probs > 0 && i < told; i++ {
		own, _ := a.logprob(i, 0)
		text, raw := e.tokens.display(a.ids[i])
		out.Probs = append(out.Probs, llamaProb{ID: a.ids[i], Token: text, Bytes: raw, Logprob: own})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// applyTemplate serves llama-server's POST /apply-template: the prompt as text. An assistant message at the end is taken for the beginning of
// the answer and left open, as llama-server does.
func (e *Engine) applyTemplate(body []byte) (any, error) {
	var req chatRequest
	if err := e.parse(body, &req); err != nil {
		return nil, err
	}
	if err := checkMessages(req.Messages); err != nil {
		return nil, err
	}
	begun := ""
	if last := len(req.Messages) - 1; req.Messages[last].Role == "assistant" {
		begun = spoken(req.Messages[last].Content.text(), req.Messages[last].ToolCalls)
		req.Messages = req.Messages[:last]
		req.AddGeneration = nil
	}
	ids := e.tokens.render(script(req.Messages, req.Tools), req.AddGeneration == nil || *req.AddGeneration)
	return map[string]string{"prompt": e.tokens.Decode(ids) + begun}, nil
}

// oddly cuts every third token of several bytes into its bytes.
func (t *Tokenizer) oddly(ids []int32) []int32 {
	var out []int32
	long := 0
	for _, id := range ids {
		p := t.pieces[id]
		if len(p) > 1 && !special(id) {
			if long++; long%3 == 0 {
				for i := range len(p) {
					out = append(out, int32(p[i]))
				}
				continue
			}
		}
		out = append(out, id)
	}
	return out
}
