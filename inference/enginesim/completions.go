package enginesim

import "net/http"

// complete serves POST /v1/completions.
func (e *Engine) complete(w http.ResponseWriter, r *http.Request, body []byte) error {
	var req completionRequest
	if err := e.parse(body, &req, completionFields()...); err != nil {
		return err
	}
	if err := e.checkCompletion(&req); err != nil {
		return err
	}
	prompts, err := e.prompts(req.Prompt)
	if err != nil {
		return err
	}
	var answers []*answer
	for _, prompt := range prompts {
		l, err := e.limits(&req.knobs, prompt, req.MaxTokens, 16, req.Prompt.ids != nil)
		if err != nil {
			return err
		}
		for range req.samples() { // equal prompts of one list are samples too
			answers = append(answers, e.completion(prompt, &req.knobs, r, len(answers), l))
		}
	}
	c := e.submit(answers, &req.knobs)
	defer e.cancel(c)
	t := completionTurn{engine: e, request: &req, call: c, prompts: len(prompts), head: e.head("cmpl-", r, c)}
	if req.Stream {
		return t.stream(w, r)
	}
	if err := e.finished(r.Context(), c); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, t.reply())
	return nil
}

func (e *Engine) checkCompletion(req *completionRequest) error {
	if err := e.knows(req.Model); err != nil {
		return err
	}
	switch {
	case req.Echo:
		return unsupported("echo")
	case req.Suffix != nil && *req.Suffix != "":
		return unsupported("suffix")
	case req.BestOf != nil && *req.BestOf != req.samples():
		return unsupported("best_of")
	case req.Logprobs != nil && (*req.Logprobs < 0 || *req.Logprobs > maxTopCount):
		return badRequest("logprobs", "logprobs must be at least 0 and at most %d, got %d.", maxTopCount, *req.Logprobs)
	case len(req.Prompt.texts)+len(req.Prompt.ids) == 0:
		return badRequest("prompt", "prompt is required: a string, a list of strings, a list of token ids or a list of such lists")
	case len(req.Prompt.texts)+len(req.Prompt.ids) > maxPrompts:
		return badRequest("prompt", "prompt holds %d prompts, at most %d may go into one request", len(req.Prompt.texts)+len(req.Prompt.ids), maxPrompts)
	}
	return req.check()
}

func (e *Engine) prompts(p promptField) ([][]int32, error) {
	for _, ids := range p.ids {
		if err := e.tokens.Check(ids); err != nil {
			return nil, badRequest("prompt", "%v", err)
		}
	}
	out := p.ids
	for _, text := range p.texts {
		out = append(out, e.tokens.Encode(text))
	}
	return out, nil
}

// completionTurn is one completion request being answered. Choices come prompt by prompt: index = prompt · n + sample.
type completionTurn struct {
	engine  *Engine
	request *completionRequest
	call    *call
	prompts int
	head    head
}

func (t *completionTurn) top() int { return *t.request.Logprobs }

func (t *completionTurn) envelope(choices ...completionChoice) *completionReply {
	if choices == nil {
		choices = []completionChoice{}
	}
	return &completionReply{ID: t.head.id, Object: "text_completion", Created: t.head.created, Model: t.engine.config.Model, Choices: choices}
}

func (t *completionTurn) reply() *completionReply {
	out := t.envelope()
	sampled := make([]int, len(t.call.flows))
	for i, f := range t.call.flows {
		a := f.answer
		sampled[i] = len(a.ids)
		c := completionChoice{Index: i, Text: a.text, Finish: &a.finish, Stop: a.stop}
		if t.request.Logprobs != nil {
			c.Logprobs = a.completionLogprobs(0, len(a.ids), t.top())
		}
		if t.request.ReturnTokenIDs {
			c.TokenIDs, c.PromptIDs = a.ids, a.prompt
		}
		out.Choices = append(out.Choices, c)
	}
	u := t.engine.usage(t.call, sampled, t.prompts)
	out.Usage, out.Metadata = &u, t.engine.metadata(t.call)
	return out
}

func (t *completionTurn) stream(w http.ResponseWriter, r *http.Request) error {
	s := stream{
		engine: t.engine, call: t.call, w: w, token: t.token,
		abort: func(choice int) any {
			reason := finishAbort
			return t.envelope(completionChoice{Index: choice, Finish: &reason})
		},
		end: func(sampled []int) any {
			if !t.request.wantsUsage() {
				return nil
			}
			end := t.envelope()
			u := t.engine.usage(t.call, sampled, t.prompts)
			end.Usage, end.Metadata = &u, t.engine.metadata(t.call)
			return end
		},
	}
	if t.request.wantsRunningUse() {
		s.patch = func(event any, sampled []int) {
			u := t.engine.usage(t.call, sampled, t.prompts)
			event.(*completionReply).Usage = &u
		}
	}
	return s.run(r)
}

func (t *completionTurn) token(choice, i int, last bool) any {
	a := t.call.flows[choice].answer
	c := completionChoice{Index: choice, Text: a.piece(i)}
	if t.request.Logprobs != nil {
		c.Logprobs = a.completionLogprobs(i, i+1, t.top())
	}
	if t.request.ReturnTokenIDs {
		c.TokenIDs = a.ids[i : i+1]
		if i == 0 {
			c.PromptIDs = a.prompt
		}
	}
	if last {
		c.Finish, c.Stop = &a.finish, a.stop
	}
	if c.Text == "" && c.Logprobs == nil && c.TokenIDs == nil && !last {
		return nil
	}
	return t.envelope(c)
}
