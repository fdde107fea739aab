package enginesim

import (
	"net/http"
)

// chat serves POST /v1/chat/completions.
func (e *Engine) chat(w http.ResponseWriter, r *http.Request, body []byte) error {
	var req chatRequest
	if err := e.parse(body, &req, chatFields()...); err != nil {
		return err
	}
	if err := e.checkChat(&req); err != nil {
		return err
	}
	choice, err := req.toolChoice()
	if err != nil {
		return err
	}
	prompt, byIDs, err := e.chatPrompt(&req)
	if err != nil {
		return err
	}
	wanted := req.MaxCompletionTokens
	if wanted == nil {
		wanted = req.MaxTokens
	}
	l, err := e.limits(&req.knobs, prompt, wanted, 0, false)
	if err != nil {
		return err
	}
	answers := make([]*answer, req.samples())
	for i := range answers {
		if byIDs {
			answers[i] = e.fromIDs(prompt, &req.knobs, r, i, choice, l)
			continue
		}
		answers[i] = e.policy.compose(prompt, e.draw(prompt, &req.knobs, session(r), i), choice, l)
		if len(req.Tools) == 0 {
			e.remember(answers[i])
		}
	}
	c := e.submit(answers, &req.knobs)
	defer e.cancel(c)
	t := chatTurn{engine: e, request: &req, call: c, choice: choice, head: e.head("chatcmpl-", r, c)}
	if req.Stream {
		return t.stream(w, r)
	}
	if err := e.finished(r.Context(), c); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, t.reply())
	return nil
}

// chatPrompt is what the template makes of the messages, or SGLang's input_ids in its place.
func (e *Engine) chatPrompt(req *chatRequest) (prompt []int32, byIDs bool, err error) {
	if e.config.Speaks != SpeaksVLLM {
		req.ReturnTokenIDs = false // a field of vLLM's
	}
	if e.config.Speaks != SpeaksSGLang {
		req.InputIDs, req.ReturnPrompt, req.ReturnMeta = nil, false, false
	}
	if req.Stream && (req.ReturnPrompt || req.ReturnMeta) {
		return nil, false, unsupported("stream with return_prompt_token_ids or return_meta_info")
	}
	if req.InputIDs == nil {
		return e.tokens.render(script(req.Messages, req.Tools), true), false, nil
	}
	if err := e.tokens.Check(req.InputIDs); err != nil {
		return nil, true, badRequest("input_ids", "%v", err)
	}
	return req.InputIDs, true, nil
}

func (e *Engine) checkChat(req *chatRequest) error {
	if err := e.knows(req.Model); err != nil {
		return err
	}
	switch {
	case req.ContinueFinal:
		return unsupported("continue_final_message")
	case req.AddGeneration != nil && !*req.AddGeneration:
		return unsupported("add_generation_prompt=false")
	case req.ChatTemplate != nil:
		return unsupported("chat_template")
	case req.TopLogprobs != nil && *req.TopLogprobs != 0 && !req.Logprobs:
		return badRequest("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.")
	case req.TopLogprobs != nil && (*req.TopLogprobs < 0 || *req.TopLogprobs > maxTopCount):
		return badRequest("top_logprobs", "top_logprobs must be at least 0 and at most %d, got %d.", maxTopCount, *req.TopLogprobs)
	}
	if err := checkMessages(req.Messages); err != nil {
		return err
	}
	return req.check()
}

// chatTurn is one chat request being answered.
type chatTurn struct {
	engine  *Engine
	request *chatRequest
	call    *call
	choice  want
	head    head
}

// parts takes an answer's text apart into content and tool calls. Without tools all of it is content.
func (t *chatTurn) parts(a *answer) (end int, calls []spokenCall) {
	if t.choice.none {
		return len(a.text), nil
	}
	return parseSpoken(a.text)
}

// finish is the finish_reason: a named tool_choice keeps "stop", as the original does.
func (t *chatTurn) finish(a *answer, calls []spokenCall) string {
	if len(calls) > 0 && a.finish == "stop" && t.choice.named == "" {
		return "tool_calls"
	}
	return a.finish
}

func (t *chatTurn) top() int {
	if t.request.TopLogprobs == nil {
		return 0
	}
	return *t.request.TopLogprobs
}

func (t *chatTurn) reply() chatReply {
	out := chatReply{ID: t.head.id, Object: "chat.completion", Created: t.head.created, Model: t.engine.config.Model}
	sampled := make([]int, len(t.call.flows))
	for i, f := range t.call.flows {
		sampled[i] = len(f.answer.ids)
		out.Choices = append(out.Choices, t.native(t.whole(i, f.answer), f.answer))
	}
	out.Usage, out.Metadata = t.engine.usage(t.call, sampled, 1), t.engine.metadata(t.call)
	if t.request.ReturnTokenIDs {
		out.PromptIDs = t.call.flows[0].answer.prompt
	}
	return out
}

func (t *chatTurn) whole(index int, a *answer) chatChoice {
	end, calls := t.parts(a)
	c := chatChoice{Index: index, Finish: t.finish(a, calls), Stop: a.stop}
	c.Message = replyMessage{Role: "assistant", ToolCalls: []toolCall{}}
	if content := a.text[:end]; content != "" || len(calls) == 0 {
		c.Message.Content = &content
	}
	for i, s := range calls {
		call := toolCall{ID: a.callID(i), Type: "function"}
		call.Function.Name, call.Function.Arguments = s.name, a.text[s.args:s.stop]
		c.Message.ToolCalls = append(c.Message.ToolCalls, call)
	}
	if t.request.Logprobs {
		c.Logprobs = a.chatLogprobs(0, len(a.ids), t.top())
	}
	if t.request.ReturnTokenIDs {
		c.TokenIDs = a.ids
	}
	return c
}

// native adds what other engines than vLLM say in a choice.
func (t *chatTurn) native(c chatChoice, a *answer) chatChoice {
	if t.engine.config.Speaks == SpeaksLlama && c.Logprobs != nil {
		for i := range c.Logprobs.Content {
			c.Logprobs.Content[i].ID = &a.ids[i]
		}
	}
	if t.request.ReturnPrompt {
		c.PromptIDs = a.prompt
	}
	if t.request.ReturnMeta {
		c.Meta = &sglangMeta{Prompt: len(a.prompt), Completion: len(a.ids), Weights: t.engine.weights(t.call), Finish: sglangFinish{Type: a.finish}}
		for i := 0; t.request.Logprobs && i < len(a.ids); i++ {
			own, _ := a.logprob(i, 0)
			c.Meta.Logprobs = append(c.Meta.Logprobs, []any{own, a.ids[i], nil})
		}
	}
	return c
}

func (t *chatTurn) stream(w http.ResponseWriter, r *http.Request) error {
	tellers := make([]chatTeller, len(t.call.flows))
	for i, f := range t.call.flows {
		tellers[i] = chatTeller{chatTurn: t, index: i, answer: f.answer}
		tellers[i].end, tellers[i].calls = t.parts(f.answer)
	}
	s := stream{
		engine: t.engine, call: t.call, w: w,
		begin: func(choice int) any { return tellers[choice].begin() },
		token: func(choice, i int, last bool) any { return tellers[choice].token(i, last) },
		abort: func(choice int) any {
			reason := finishAbort
			return t.chunk(chunkChoice{Index: choice, Finish: &reason})
		},
		end: func(sampled []int) any {
			if !t.request.wantsUsage() {
				return nil
			}
			end := t.chunk()
			u := t.engine.usage(t.call, sampled, 1)
			end.Usage, end.Metadata = &u, t.engine.metadata(t.call)
			return end
		},
	}
	if t.request.wantsRunningUse() {
		s.patch = func(event any, sampled []int) {
			u := t.engine.usage(t.call, sampled, 1)
			event.(*chatChunk).Usage = &u
		}
	}
	return s.run(r)
}

func (t *chatTurn) chunk(choices ...chunkChoice) *chatChunk {
	if choices == nil {
		choices = []chunkChoice{}
	}
	return &chatChunk{ID: t.head.id, Object: "chat.completion.chunk", Created: t.head.created, Model: t.engine.config.Model, Choices: choices}
}

// chatTeller turns the tokens of one choice into chunks. Where content and tool calls lie in the text is known from the whole
// answer, so a chunk never shows a part of a tool call as content.
type chatTeller struct {
	*chatTurn
	index  int
	answer *answer
	end    int // of the content in the text
	calls  []spokenCall
	named  int // calls whose name was told
	shown  int // bytes told
}

func (t *chatTeller) begin() *chatChunk {
	empty := ""
	c := t.chunk(chunkChoice{Index: t.index, Delta: delta{Role: "assistant", Content: &empty}})
	if t.request.ReturnTokenIDs {
		c.PromptIDs = t.answer.prompt
	}
	return c
}

func (t *chatTeller) token(i int, last bool) any {
	c := chunkChoice{Index: t.index, Delta: t.uncover(t.answer.shown[i])}
	if t.request.Logprobs {
		c.Logprobs = t.answer.chatLogprobs(i, i+1, t.top())
	}
	if t.request.ReturnTokenIDs {
		c.TokenIDs = t.answer.ids[i : i+1]
	}
	if last {
		reason := t.finish(t.answer, t.calls)
		c.Finish, c.Stop = &reason, t.answer.stop
	}
	if c.Delta.Content == nil && c.Delta.ToolCalls == nil && c.Logprobs == nil && c.TokenIDs == nil && !last {
		return nil
	}
	return t.chunk(c)
}

// uncover tells what lies between the bytes already told and to.
func (t *chatTeller) uncover(to int) delta {
	from := t.shown
	t.shown = to
	var d delta
	if text := between(t.answer.text, from, to, 0, t.end); text != "" {
		d.Content = &text
	}
	for i, c := range t.calls {
		args := between(t.answer.text, from, to, c.args, c.stop)
		naming := i == t.named && to >= c.named
		if !naming && args == "" {
			continue
		}
		part := callDelta{Index: i}
		part.Function.Arguments = args
		if naming {
			t.named++
			part.ID, part.Type, part.Function.Name = t.answer.callID(i), "function", c.name
		}
		d.ToolCalls = append(d.ToolCalls, part)
	}
	return d
}

// between returns the part of text in [from, to) that lies within [low, high).
func between(text string, from, to, low, high int) string {
	from, to = max(from, low), min(to, high)
	if from >= to {
		return ""
	}
	return text[from:to]
}
