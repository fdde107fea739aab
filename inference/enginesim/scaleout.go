package enginesim

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// vLLM's routes that keep text and tokens apart (--enable-scale-out): render turns a chat request into ids, generate goes on from ids and
// gives ids, derender turns those into a chat answer.

// generateRequest is the body of POST /inference/v1/generate, and what render answers.
type generateRequest struct {
	RequestID string          `json:"request_id,omitempty"`
	TokenIDs  []int32         `json:"token_ids"`
	Params    json.RawMessage `json:"sampling_params"`
	Model     *string         `json:"model"`
	Stream    bool            `json:"stream"`
	StreamOpt json.RawMessage `json:"stream_options,omitempty"`
	CacheSalt string          `json:"cache_salt,omitempty"`
	Priority  int             `json:"priority"`
	ReturnIDs bool            `json:"return_token_ids,omitempty"`
	Mode      string          `json:"output_mode,omitempty"`
}

// samplingParams are the engine's own parameters: the knobs under the same names, and what only this route has.
type samplingParams struct {
	knobs
	Logprobs *int `json:"logprobs"`
	Extra    struct {
		Choice json.RawMessage `json:"tranche_tool_choice,omitempty"` // how render hands on tool_choice; the original sends a grammar
	} `json:"extra_args"`
}

// render serves POST /v1/chat/completions/render.
func (e *Engine) render(body []byte) (any, error) {
	var req chatRequest
	if err := e.parse(body, &req, chatFields()...); err != nil {
		return nil, err
	}
	generate := req.AddGeneration == nil || *req.AddGeneration
	req.AddGeneration = nil
	if err := e.checkChat(&req); err != nil {
		return nil, err
	}
	if _, err := req.toolChoice(); err != nil {
		return nil, err
	}
	prompt := e.tokens.render(script(req.Messages, req.Tools), generate)
	wanted := req.MaxCompletionTokens
	if wanted == nil {
		wanted = req.MaxTokens
	}
	l, err := e.limits(&req.knobs, prompt, wanted, 0, false)
	if err != nil {
		return nil, err
	}
	params := map[string]any{"max_tokens": l.max, "n": req.samples(), "min_tokens": req.MinTokens, "ignore_eos": req.IgnoreEOS, "include_stop_str_in_output": req.IncludeStop}
	for name, v := range map[string]any{"temperature": req.Temperature, "top_p": req.TopP, "seed": req.Seed} {
		params[name] = v
	}
	if req.Stop != nil {
		params["stop"] = req.Stop
	}
	if req.StopTokenIDs != nil {
		params["stop_token_ids"] = req.StopTokenIDs
	}
	if req.Logprobs {
		top := 0
		if req.TopLogprobs != nil {
			top = *req.TopLogprobs
		}
		params["logprobs"] = top
	}
	if given(req.ToolChoice) {
		params["extra_args"] = map[string]any{"tranche_tool_choice": req.ToolChoice}
	}
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("enginesim: render: %w", err)
	}
	return generateRequest{TokenIDs: prompt, Params: raw, Model: &e.config.Model, CacheSalt: req.CacheSalt, Priority: req.Priority}, nil
}

// generate serves POST /inference/v1/generate.
func (e *Engine) generate(w http.ResponseWriter, r *http.Request, body []byte) error {
	var req generateRequest
	if err := e.parse(body, &req); err != nil {
		return err
	}
	var params samplingParams
	if err := e.parse(req.Params, &params); err != nil {
		return err
	}
	if err := e.checkGenerate(&req, &params); err != nil {
		return err
	}
	params.Stream, params.CacheSalt, params.Priority = req.Stream, req.CacheSalt, req.Priority
	if given(req.StreamOpt) {
		if err := json.Unmarshal(req.StreamOpt, &params.StreamOpts); err != nil {
			return malformedBody(err)
		}
	}
	if params.MaxTokens != nil { // the sum is not checked: the run stops where the context does
		n := min(*params.MaxTokens, max(1, e.config.ContextTokens-len(req.TokenIDs)))
		params.MaxTokens = &n
	}
	l, err := e.limits(&params.knobs, req.TokenIDs, params.MaxTokens, 0, true)
	if err != nil {
		return err
	}
	choice, err := e.choiceOf(&params, req.TokenIDs)
	if err != nil {
		return err
	}
	var answers []*answer
	for i := range params.samples() {
		answers = append(answers, e.fromIDs(req.TokenIDs, &params.knobs, r, i, choice, l))
	}
	c := e.submit(answers, &params.knobs)
	defer e.cancel(c)
	t := generateTurn{engine: e, request: &req, params: &params, call: c, id: e.head("generate-tokens-", r, c).id}
	if req.Stream {
		return t.stream(w, r)
	}
	if err := e.finished(r.Context(), c); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, t.reply())
	return nil
}

func (e *Engine) checkGenerate(req *generateRequest, params *samplingParams) error {
	if err := e.knows(req.Model); err != nil {
		return err
	}
	switch {
	case len(req.TokenIDs) == 0:
		return badRequest("token_ids", "token_ids must hold at least one token")
	case req.Mode != "" && req.Mode != "tokens" && req.Mode != "text":
		return badRequest("output_mode", "output_mode is %q, must be tokens or text", req.Mode)
	case params.Logprobs != nil && (*params.Logprobs < 0 || *params.Logprobs > maxTopCount):
		return badRequest("logprobs", "logprobs must be at least 0 and at most %d, got %d.", maxTopCount, *params.Logprobs)
	}
	if err := e.tokens.Check(req.TokenIDs); err != nil {
		return badRequest("token_ids", "%v", err)
	}
	return params.check()
}

// choiceOf is the tool choice that render handed on, among the tools that the prompt declares.
func (e *Engine) choiceOf(p *samplingParams, prompt []int32) (want, error) {
	r := chatRequest{Tools: e.tokens.read(prompt).tools, ToolChoice: p.Extra.Choice}
	return r.toolChoice()
}

// generateTurn is one generate request being answered.
type generateTurn struct {
	engine  *Engine
	request *generateRequest
	params  *samplingParams
	call    *call
	id      string
}

type generateReply struct {
	RequestID string           `json:"request_id"`
	Model     string           `json:"model,omitempty"`
	Mode      string           `json:"output_mode"`
	Usage     *usage           `json:"usage"`
	PromptIDs []int32          `json:"prompt_token_ids"`
	Choices   []generateChoice `json:"choices"`
}

type generateChoice struct {
	Index    int               `json:"index"`
	Finish   *string           `json:"finish_reason"`
	Stop     any               `json:"stop_reason"`
	TokenIDs []int32           `json:"token_ids"`
	Text     *string           `json:"text,omitempty"`
	Logprobs *generateLogprobs `json:"logprobs"`
	Weights  []weightSpan      `json:"weight_versions"`
}

type generateLogprobs struct {
	Content []generateLogprob `json:"content"`
}

type generateLogprob struct {
	TokenID int32             `json:"token_id"`
	Logprob float64           `json:"logprob"`
	Top     []generateLogprob `json:"top_logprobs,omitempty"`
}

func (t *generateTurn) envelope(choices ...generateChoice) *generateReply {
	if choices == nil {
		choices = []generateChoice{}
	}
	mode := t.request.Mode
	if mode == "" {
		mode = "tokens"
	}
	return &generateReply{RequestID: t.id, Mode: mode, Choices: choices}
}

func (t *generateTurn) reply() *generateReply {
	out := t.envelope()
	out.Model = t.engine.config.Model
	sampled := make([]int, len(t.call.flows))
	for i, f := range t.call.flows {
		a := f.answer
		sampled[i] = len(a.ids)
		c := generateChoice{Index: i, Finish: &a.finish, Stop: a.stop, TokenIDs: a.ids, Logprobs: t.logprobs(a, 0, len(a.ids)), Weights: t.engine.spans(f)}
		if t.request.Mode == "text" {
			c.Text = &a.text
		}
		out.Choices = append(out.Choices, c)
	}
	if t.request.ReturnIDs {
		out.PromptIDs = t.request.TokenIDs
	}
	u := t.engine.usage(t.call, sampled, 1)
	out.Usage = &u
	return out
}

func (t *generateTurn) logprobs(a *answer, from, to int) *generateLogprobs {
	if t.params.Logprobs == nil {
		return nil
	}
	out := &generateLogprobs{Content: make([]generateLogprob, 0, to-from)}
	for i := from; i < to; i++ {
		own, others := a.logprob(i, *t.params.Logprobs)
		l := generateLogprob{TokenID: a.ids[i], Logprob: own}
		for _, o := range others {
			l.Top = append(l.Top, generateLogprob{TokenID: o.id, Logprob: o.logprob})
		}
		out.Content = append(out.Content, l)
	}
	return out
}

func (t *generateTurn) stream(w http.ResponseWriter, r *http.Request) error {
	s := stream{
		engine: t.engine, call: t.call, w: w, token: t.token,
		abort: func(choice int) any {
			reason := finishAbort
			return t.envelope(generateChoice{Index: choice, Finish: &reason, Weights: t.engine.spans(t.call.flows[choice])})
		},
		end: func(sampled []int) any {
			if !t.params.wantsUsage() {
				return nil
			}
			end := t.envelope()
			u := t.engine.usage(t.call, sampled, 1)
			end.Usage = &u
			return end
		},
	}
	return s.run(r)
}

func (t *generateTurn) token(choice, i int, last bool) any {
	f := t.call.flows[choice]
	a := f.answer
	c := generateChoice{Index: choice, TokenIDs: a.ids[i : i+1], Logprobs: t.logprobs(a, i, i+1)}
	if t.request.Mode == "text" {
		piece := a.piece(i)
		c.Text = &piece
	}
	if last {
		c.Finish, c.Stop, c.Weights = &a.finish, a.stop, t.engine.spans(f)
	}
	out := t.envelope(c)
	if t.request.ReturnIDs && i == 0 {
		out.PromptIDs = t.request.TokenIDs
	}
	return out
}

// derenderRequest is the body of POST /v1/chat/completions/derender.
type derenderRequest struct {
	Model    *string `json:"model"`
	Generate struct {
		RequestID string `json:"request_id"`
		Choices   []struct {
			Index    int     `json:"index"`
			TokenIDs []int32 `json:"token_ids"`
			Finish   *string `json:"finish_reason"`
			Stop     any     `json:"stop_reason"`
		} `json:"choices"`
	} `json:"generate_response"`
	PromptTokens int          `json:"prompt_tokens"`
	Chat         *chatRequest `json:"chat_request"`
}

// derender serves POST /v1/chat/completions/derender. The original keeps the names of special tokens in the text for its parsers, those
// of the end token included, and refuses an answer without tokens; so does this.
func (e *Engine) derender(body []byte) (any, error) {
	var req derenderRequest
	if err := e.parse(body, &req); err != nil {
		return nil, err
	}
	if err := e.knows(req.Model); err != nil {
		return nil, err
	}
	if req.Chat == nil {
		return nil, badRequest("chat_request", "chat_request is required when a tool or reasoning parser is configured because plain detokenization would leak raw parser markup into content.")
	}
	choice, err := req.Chat.toolChoice()
	if err != nil {
		return nil, err
	}
	out := chatReply{ID: req.Generate.RequestID, Object: "chat.completion", Created: e.began.Unix(), Model: e.config.Model}
	for _, c := range req.Generate.Choices {
		if len(c.TokenIDs) == 0 {
			return nil, badRequest("", "choice %d has empty or null token_ids", c.Index)
		}
		if err := e.tokens.Check(c.TokenIDs); err != nil {
			return nil, badRequest("token_ids", "%v", err)
		}
		a := &answer{ids: c.TokenIDs, text: e.tokens.Decode(c.TokenIDs), finish: "stop", stop: c.Stop, draw: hashTokens(0, c.TokenIDs), tokens: e.tokens}
		if c.Finish != nil {
			a.finish = *c.Finish
		}
		t := chatTurn{engine: e, request: &chatRequest{}, choice: choice}
		said := t.whole(c.Index, a)
		said.Finish = a.finish // it stays what the engine said
		out.Choices = append(out.Choices, said)
		out.Usage.CompletionTokens += len(c.TokenIDs)
	}
	out.Usage.PromptTokens, out.Usage.TotalTokens = req.PromptTokens, req.PromptTokens+out.Usage.CompletionTokens
	return out, nil
}
