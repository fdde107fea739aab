package inference

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/episode"
)

// way is a route by which a server goes on from token ids.
type way string

// Ways, as they are called in notes.
const (
	wayGenerate    way = "/inference/v1/generate" // vLLM's own: no text between
	wayCompletions way = "/v1/completions"
	waySGLang      way = "/generate"
	waySGLangChat  way = "/v1/chat/completions with input_ids" // SGLang: the server reads tool calls and reasoning out of the answer
	wayLlama       way = "/completion"
)

// waysFor are the ways that could carry this call, the best first.
func (e *Endpoint) waysFor(c *episode.Call) []way {
	var list []way
	caps := e.caps.Load()
	add := func(w way, ok bool) {
		if ok && !e.isLost(string(w)) {
			list = append(list, w)
		}
	}
	own := !caps.Generate.Known() || caps.Generate.Value != ""
	ids := !(caps.TokenIDsIn.Known() && !caps.TokenIDsIn.Value || caps.PromptKept.Known() && !caps.PromptKept.Value || caps.TokenIDsOut.Known() && !caps.TokenIDsOut.Value)
	switch e.facts.kind {
	case KindVLLM, KindSim:
		add(wayGenerate, own)
		add(wayCompletions, ids && e.carries(wayCompletions, c))
	case KindSGLang:
		// The route takes nothing from the model's generation_config, as chat does: only a call that says all of it means the same there.
		add(waySGLang, own && e.carries(waySGLang, c) && c.Sampling.Temperature != nil && c.Sampling.TopP != nil && c.Sampling.TopK != nil)
		add(waySGLangChat, true)
	case KindLlama:
		add(wayLlama, own && e.carries(wayLlama, c))
	default:
		sure := caps.TokenIDsIn.Sure() && caps.TokenIDsOut.Sure() && caps.PromptKept.Sure()
		add(wayCompletions, sure && e.carries(wayCompletions, c))
	}
	return list
}

// carries reports whether all that the call asks for can be said on a route that knows no messages. Tools cannot: nobody would read the calls
// out of the answer.
func (e *Endpoint) carries(w way, c *episode.Call) bool {
	if len(c.Tools) > 0 {
		return false
	}
	known := carried(w)
	for _, extra := range []map[string]json.RawMessage{e.cfg.ExtraBody, c.Sampling.Extra} {
		for name := range extra {
			if !slices.Contains(known, name) && !slices.Contains(templateFields[:], name) && name != fieldMaxTokens && name != fieldMaxCompletionTokens {
				return false
			}
		}
	}
	return true
}

// carried are the body fields that mean the same on a route as in chat completions.
func carried(w way) []string {
	all := []string{"temperature", "top_p", "top_k", "min_p", "seed", "stop", "ignore_eos", "frequency_penalty", "presence_penalty", "logit_bias"}
	switch w {
	case wayLlama:
		return append(all, "repeat_penalty", "repeat_last_n", "typical_p", "xtc_probability", "xtc_threshold", "dry_multiplier", "dry_base", "dry_allowed_length",
			"dry_penalty_last_n", "mirostat", "mirostat_tau", "mirostat_eta", "samplers", "cache_prompt", "id_slot", "n_keep", "grammar", "json_schema")
	case waySGLang:
		return append(all, "repetition_penalty", "stop_token_ids", "skip_special_tokens", "spaces_between_special_tokens")
	}
	return append(all, "repetition_penalty", "length_penalty", "stop_token_ids", "include_stop_str_in_output", "skip_special_tokens",
		"spaces_between_special_tokens", "min_tokens", "bad_words", "allowed_token_ids", "response_format", "structured_outputs", "priority", "cache_salt",
		"session_id", "user", "vllm_xargs")
}

// idCall is a call that goes by ids, ready to be written down.
type idCall struct {
	call   *episode.Call
	prompt []int32
	ready  map[string]json.RawMessage // the request as vLLM made it ready; nil on other ways
	id     string
	limit  int // tokens it may generate; 0 = the server decides
}

// sending writes the request of a way.
func (e *Endpoint) sendingBy(w way, i *idCall) (sending, error) {
	out := sending{id: i.id, session: i.call.Episode, keep: e.cfg.KeepRaw}
	var err error
	switch w {
	case wayGenerate:
		out.to = e.address.root + string(wayGenerate)
		out.body, err = e.generateBody(i)
	case wayCompletions:
		out.route = "/completions"
		out.body, err = e.completionBody(i.call, i.prompt, i.limit, e.cfg.Stream)
	case waySGLang:
		out.to, out.shape = e.address.root+string(waySGLang), sglangShape
		out.body, err = e.sglangBody(i)
	case waySGLangChat:
		out.route = "/chat/completions"
		out.body, err = e.chatIDsBody(i)
	case wayLlama:
		out.to, out.shape = e.address.root+string(wayLlama), llamaShape
		out.body, err = e.llamaBody(i)
	}
	return out, err
}

// generateBody is the request that render made ready, with the exact ids in the place of those it rendered.
func (e *Endpoint) generateBody(i *idCall) ([]byte, error) {
	params := map[string]json.RawMessage{}
	if err := json.Unmarshal(i.ready["sampling_params"], &params); err != nil {
		return nil, fmt.Errorf("sampling_params as the server made them ready: %w", err)
	}
	if i.limit > 0 {
		params[fieldMaxTokens] = mustEncode(i.limit)
	}
	body := maps.Clone(i.ready)
	for name, v := range map[string]any{"sampling_params": params, "token_ids": i.prompt, "request_id": i.id, "return_token_ids": true, "stream": e.cfg.Stream} {
		body[name] = mustEncode(v)
	}
	if i.plain() {
		body["output_mode"] = mustEncode("text")
	}
	if v, ok := e.priority(i.call); ok && body[fieldPriority] == nil {
		body[fieldPriority] = mustEncode(v)
	}
	if e.cfg.Stream {
		body["stream_options"] = mustEncode(streamOptions{Usage: true})
	}
	return json.Marshal(body)
}

// plain reports whether the text of the answer is all of its message: nobody has to read tool calls or thinking out of it. vLLM then gives it with the ids
// (0.32; before that it ignores the wish).
func (i *idCall) plain() bool {
	parser := i.ready["reasoning_parser_kwargs"]
	return len(i.call.Tools) == 0 && (parser == nil || string(parser) == "null")
}

// completionBody says a call on the completions route; prompt is ids or a list of such. What decides how a chat is rendered has no place in it.
func (e *Endpoint) completionBody(c *episode.Call, prompt any, limit int, stream bool) ([]byte, error) {
	b, limit, err := e.plainBody(c, limit)
	if err != nil {
		return nil, err
	}
	b.add("model", e.facts.model)
	b.add("prompt", prompt)
	if limit > 0 {
		b.add(fieldMaxTokens, limit)
	}
	addSampling(b, &c.Sampling)
	if v, ok := e.priority(c); ok {
		b.add(fieldPriority, v)
	}
	if c.Sampling.Logprobs {
		b.add("logprobs", 1) // a number here: so many alternatives beside the token's own
	}
	b.add("return_token_ids", true)
	if stream {
		b.add("stream", true)
		b.add("stream_options", streamOptions{Usage: true})
	}
	return b.close()
}

// plainBody begins a body with the extra fields that are not the template's.
func (e *Endpoint) plainBody(c *episode.Call, limit int) (*body, int, error) {
	extra, err := mergeExtra(e.cfg.ExtraBody, c.Sampling.Extra)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range templateFields {
		delete(extra, name)
	}
	_, limit, err = tokenLimit(extra, limit, dialect{})
	return newBody(extra), limit, err
}

// sglangBody says the call on SGLang's own route: all that is about sampling stands in an object of its own.
func (e *Endpoint) sglangBody(i *idCall) ([]byte, error) {
	p, limit, err := e.plainBody(i.call, i.limit)
	if err != nil {
		return nil, err
	}
	s := i.call.Sampling
	if limit > 0 {
		p.add("max_new_tokens", limit)
	}
	addIf(p, "sampling_seed", s.Seed)
	s.Seed = nil
	addSampling(p, &s)
	params, err := p.close()
	if err != nil {
		return nil, err
	}
	request := map[string]any{"input_ids": i.prompt, "sampling_params": json.RawMessage(params), "return_logprob": s.Logprobs, "return_prompt_token_ids": true}
	if v, ok := e.priority(i.call); ok {
		request[fieldPriority] = v
	}
	return json.Marshal(request)
}

// chatIDsBody is the chat request with the ids beside the messages.
func (e *Endpoint) chatIDsBody(i *idCall) ([]byte, error) {
	cfg := e.cfg
	cfg.Stream = false // refused together with what carries the ids
	cfg.ExtraBody = maps.Clone(cfg.ExtraBody)
	if cfg.ExtraBody == nil {
		cfg.ExtraBody = map[string]json.RawMessage{}
	}
	cfg.ExtraBody["input_ids"] = mustEncode(i.prompt)
	return render(i.call, i.limit, cfg, e.facts, *e.dialect.Load())
}

// llamaBody says the call on llama-server's own route.
func (e *Endpoint) llamaBody(i *idCall) ([]byte, error) {
	b, limit, err := e.plainBody(i.call, i.limit)
	if err != nil {
		return nil, err
	}
	b.add("prompt", i.prompt)
	if limit > 0 {
		b.add("n_predict", limit)
	}
	addSampling(b, &i.call.Sampling)
	if i.call.Sampling.Logprobs {
		b.add("n_probs", 1)
	}
	b.add("return_tokens", true)
	return b.close()
}

// mustEncode is the JSON of a value of our own.
func mustEncode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("inference: %v", err)) // ids, numbers and what came as JSON: a bug here
	}
	return raw
}

// sglangShape reads an answer of SGLang's own route.
func sglangShape(data []byte) (*wireAnswer, error) {
	var s struct {
		Text      *text           `json:"text"`
		OutputIDs []int32         `json:"output_ids"`
		PromptIDs []int32         `json:"prompt_token_ids"`
		Error     json.RawMessage `json:"error"`
		Meta      struct {
			wireMeta
			Finish struct {
				Type    word            `json:"type"`
				Matched json.RawMessage `json:"matched"`
			} `json:"finish_reason"`
		} `json:"meta_info"`
	}
	if err := decode(data, &s); err != nil {
		return nil, err
	}
	w := &wireAnswer{Error: s.Error}
	if s.Text != nil || s.OutputIDs != nil {
		w.Choices = []wireChoice{{Text: s.Text, FinishReason: &s.Meta.Finish.Type, MatchedStop: s.Meta.Finish.Matched, TokenIDs: s.OutputIDs, PromptTokenIDs: s.PromptIDs, MetaInfo: &s.Meta.wireMeta}}
	}
	return w, nil
}

// llamaShape reads an answer of llama-server's own route.
func llamaShape(data []byte) (*wireAnswer, error) {
	var l struct {
		Content   *text              `json:"content"`
		Tokens    []int32            `json:"tokens"`
		Model     word               `json:"model"`
		StopType  word               `json:"stop_type"`
		StopWord  json.RawMessage    `json:"stopping_word"`
		Evaluated *count             `json:"tokens_evaluated"`
		Predicted *count             `json:"tokens_predicted"`
		Probs     []wireLogprob      `json:"completion_probabilities"`
		Timings   aside[wireTimings] `json:"timings"`
		Settings  aside[llamaKnobs]  `json:"generation_settings"`
		Error     json.RawMessage    `json:"error"`
	}
	if err := decode(data, &l); err != nil {
		return nil, err
	}
	w := &wireAnswer{Error: l.Error, Model: l.Model, Timings: l.Timings}
	if l.Content == nil {
		return w, nil
	}
	w.Usage.of = &wireUsage{Prompt: l.Evaluated, Completion: l.Predicted}
	c := wireChoice{Text: l.Content, FinishReason: &l.StopType, TokenIDs: l.Tokens}
	if l.StopType == "word" {
		c.StopReason = l.StopWord
	}
	onlyStop := l.StopType == "word" && l.Settings.of != nil && l.Settings.of.Probs > 0 // asked for, and left out where the answer is a stop string and nothing else
	if l.Probs != nil || onlyStop {
		c.Logprobs = &wireLogprobs{Content: untold(l.Probs, l.Tokens)}
	}
	w.Choices = []wireChoice{c}
	return w, nil
}

// isLost reports whether the server turned out not to have a route.
func (e *Endpoint) isLost(route string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost[route]
}

// lose notes that the server does not have a route; why is for people.
func (e *Endpoint) lose(route, why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost == nil {
		e.lost = map[string]bool{}
	}
	if !e.lost[route] {
		e.lost[route] = true
		e.noteLocked("no exact token ids by " + strings.TrimSuffix(route, "/") + ": " + why)
	}
}
