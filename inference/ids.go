package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"tranche/episode"
)

// A call that goes by token ids: its prompt is what the server saw and sampled in the call before, and the ids of what has been said since. The
// server renders those: twice, with and without the new messages, and the difference is what is new. No tokenizer of ours has a part in it.

// errNoWay is what a call that should go by ids fails with where the server has no way for it.
var errNoWay = errors.New("the server has no way to go on from token ids with such a call")

// byIDs reports whether a call is to go by ids. The first call of an episode need not: where a chat answer holds the ids of the prompt too, it is as exact.
func (e *Endpoint) byIDs(c *episode.Call) bool {
	switch {
	case !c.Sampling.TokenIDs || e.cfg.Exchange == episode.ExchangeChat:
		return false
	case e.cfg.Exchange == episode.ExchangeIDs:
		return true
	}
	return e.knowsPast(c)
}

// knowsPast reports whether the call has ids to go on from that mean something here: ids of another model are no ids.
func (e *Endpoint) knowsPast(c *episode.Call) bool {
	return c.Past != nil && (c.Past.Endpoint == e.cfg.Name || c.Past.Model == e.facts.model)
}

// generateIDs makes the call by the first way that the server has. errNoWay is its only error that is no *episode.Fault.
func (e *Endpoint) generateIDs(ctx context.Context, c *episode.Call, maxTokens int, ids *sendings) (*episode.Reply, error) {
	began := time.Now()
	for _, w := range e.waysFor(c) {
		prompt, ready, err := e.plan(ctx, c, w)
		var a *answer
		if err == nil {
			a, err = e.send(ctx, w, &idCall{call: c, prompt: prompt, ready: ready, limit: maxTokens}, ids)
		}
		var r *episode.Reply
		if err == nil {
			r, err = e.readIDs(ctx, w, c, prompt, a, maxTokens)
			e.clear(a)
		}
		if errors.Is(err, errNoWay) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r.Service = time.Since(began)
		return r, nil
	}
	return nil, errNoWay
}

// send makes the request of a way. One that is refused for its priority is made again without, as in chat.
func (e *Endpoint) send(ctx context.Context, w way, i *idCall, ids *sendings) (*answer, error) {
	for {
		d := e.dialect.Load()
		i.id = ids.next()
		out, err := e.sendingBy(w, i)
		if err != nil {
			return nil, e.fault(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest, Cause: fmt.Errorf("the request was not sent: %w", err)})
		}
		a, _, f := e.attempt(ctx, out, e.cfg.limits(len(i.prompt), i.limit))
		switch {
		case f == nil:
			return a, nil
		case refusedField(f.status, f.body, out.body) == fieldPriority && e.learn(d, f, out.body, i.call.Sampling.Extra):
			continue
		case w != wayCompletions && w != waySGLangChat && routeMissing(f):
			e.lose(string(w), fmt.Sprintf("HTTP %d: %s", f.status, clip(readRefusal(f.body).Message, 120)))
			return nil, errNoWay
		}
		return nil, e.failed(*f)
	}
}

// routeMissing tells "there is no such route here" from "there is no such model", which has the same status.
func routeMissing(f *failure) bool {
	switch f.status {
	case http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusForbidden:
		return true
	case http.StatusNotFound:
		said := readRefusal(f.body)
		return said.Param == nil || *said.Param != "model"
	}
	return false
}

// readIDs makes the reply of an answer to ids.
func (e *Endpoint) readIDs(ctx context.Context, w way, c *episode.Call, prompt []int32, a *answer, maxTokens int) (*episode.Reply, error) {
	malformed := func(err error) error {
		return e.failed(failure{reach: reachAnswer, status: http.StatusOK, err: &malformedError{err}, answer: a})
	}
	r, err := a.reply(c.Sampling, maxTokens)
	switch {
	case err != nil:
		return nil, malformed(err)
	case r.RawEnd == "error" || r.Finish == episode.FinishAbort && len(r.SampledIDs) == 0:
		return nil, e.fault(aborted(r, a))
	case r.SampledIDs == nil:
		return nil, malformed(fmt.Errorf("the answer of %s holds no token ids", w))
	}
	r.Exchange = episode.ExchangeIDs
	e.sign(r)
	if a.first > 0 {
		r.TTFT = episode.Ptr(a.first)
	}
	e.seen(w, r, prompt)
	if w == wayGenerate && r.Message.Content == nil {
		if err := e.derender(ctx, c, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// seen settles the prompt ids: what the server says it saw, else what was sent where its count says that it saw so many.
func (e *Endpoint) seen(w way, r *episode.Reply, prompt []int32) {
	if n := r.Usage.Prompt; n != nil && *n > 0 && int(*n) < len(prompt) || r.PromptIDs != nil && len(r.PromptIDs) < len(prompt) {
		r.Flags = append(r.Flags, episode.FlagPromptCut)
	}
	switch {
	case r.PromptIDs == nil && r.Usage.Prompt != nil && int(*r.Usage.Prompt) == len(prompt):
		r.PromptIDs = prompt
	case r.PromptIDs == nil:
		e.note("prompt ids are missing: %s does not tell how many tokens it saw of a prompt of token ids", w)
	case !slices.Equal(r.PromptIDs, prompt):
		r.Exchange = episode.ExchangeChat
		e.lose(string(w), "it was given token ids and saw others")
	}
}

// plan makes the prompt of a call as ids. ready is the request as vLLM made it ready, on the way that takes one.
func (e *Endpoint) plan(ctx context.Context, c *episode.Call, w way) (ids []int32, ready map[string]json.RawMessage, err error) {
	if !e.knowsPast(c) {
		full, err := e.renderPrompt(ctx, c, w, true)
		if err == nil {
			err = e.identify(ctx, &full)
		}
		return full.ids, full.ready, e.planFault(c, err)
	}
	before := *c
	before.Messages = c.Messages[:c.Past.Messages]
	var full, base rendering
	var fullErr, baseErr error
	var both sync.WaitGroup
	both.Go(func() { base, baseErr = e.renderPrompt(ctx, &before, w, false) })
	full, fullErr = e.renderPrompt(ctx, c, w, true)
	both.Wait()
	end, endErr := e.closing(ctx, c, w)
	if err := errors.Join(fullErr, baseErr, endErr); err != nil {
		return nil, nil, e.planFault(c, err)
	}
	added, ok := full.since(base, end)
	if !ok {
		added, ok, err = e.behindAnswer(ctx, c, w, full)
	}
	if err != nil {
		return nil, nil, e.planFault(c, err)
	}
	if !ok {
		e.note("the chat template rewrites what was said before: prompts do not extend the ones before them (prefix_break)")
		err := e.identify(ctx, &full)
		return full.ids, full.ready, e.planFault(c, err)
	}
	if err := e.identify(ctx, &added); err != nil {
		return nil, nil, e.planFault(c, err)
	}
	tail, err := e.unsaid(ctx, c, added.ids, !end.empty())
	return slices.Concat(c.Past.IDs, tail), full.ready, e.planFault(c, err)
}

// planFault is the fault of a prompt that could not be made. That the server cannot do it at all is errNoWay.
func (e *Endpoint) planFault(c *episode.Call, err error) error {
	var f *failure
	switch {
	case err == nil || errors.Is(err, errNoWay):
		return err
	case errors.As(err, &f):
		return e.failed(*f)
	}
	return e.failed(failure{reach: reachSent, err: fmt.Errorf("render the prompt of %s: %w", c.ID, err)})
}

// unsaid is what the new ids add to what was sampled. They begin with what ends an answer; where the model itself wrote that, it is not said again.
func (e *Endpoint) unsaid(ctx context.Context, c *episode.Call, added []int32, ends bool) ([]int32, error) {
	past := c.Past
	if len(added) == 0 || past.Finish != episode.FinishStop && past.Finish != episode.FinishToolCalls {
		return added, nil
	}
	last := past.IDs[len(past.IDs)-1]
	switch {
	case past.Stop != nil && slices.Contains(c.Sampling.Stop, *past.Stop):
		return e.behindStop(ctx, past, added)
	case added[0] == last:
		return added[1:], nil
	case past.Stop != nil && *past.Stop == fmt.Sprint(last) && ends: // another end token than the template's stands in its place
		return added[1:], nil
	}
	return added, nil
}

// mostStop is how many tokens at the seam are looked at for a stop string.
const mostStop = 16

// behindStop is the added ids without the stop string that the model wrote, where the template ends an answer by just that text.
func (e *Endpoint) behindStop(ctx context.Context, past *episode.Past, added []int32) ([]int32, error) {
	said, err := e.detokenize(ctx, past.IDs[max(0, len(past.IDs)-mostStop):])
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(said, *past.Stop) {
		return added, nil
	}
	for n := 1; n <= min(mostStop, len(added)); n++ {
		text, err := e.detokenize(ctx, added[:n])
		if err != nil {
			return nil, err
		}
		if text == *past.Stop {
			return added[n:], nil
		}
		if !strings.HasPrefix(*past.Stop, text) {
			break
		}
	}
	return added, nil
}

// derender has vLLM make the message of sampled ids, as it would have in a chat answer: text, reasoning and tool calls. Stop strings and end tokens are
// part of the ids and not of the message.
func (e *Endpoint) derender(ctx context.Context, c *episode.Call, r *episode.Reply) error {
	const route = "/v1/chat/completions/derender"
	ids := r.SampledIDs
	ended := r.Finish == episode.FinishStop && (r.StopSeq == nil || len(ids) > 0 && *r.StopSeq == fmt.Sprint(ids[len(ids)-1]))
	if ended && len(ids) > 0 {
		ids = ids[:len(ids)-1]
	}
	if len(ids) == 0 {
		r.Message = episode.Message{Role: episode.RoleAssistant, Content: episode.Ptr("")}
		return nil
	}
	chat, err := e.chatBody(c, 0, nil)
	if err != nil {
		return e.planFault(c, err)
	}
	finish := r.RawEnd
	if r.Finish == episode.FinishAbort {
		finish = "length"
	}
	body := mustEncode(map[string]any{
		"model": e.facts.model, "prompt_tokens": len(r.PromptIDs), "prompt_token_ids": r.PromptIDs, "chat_request": json.RawMessage(chat),
		"generate_response": map[string]any{
			"request_id": c.ID, "prompt_token_ids": r.PromptIDs,
			"choices": []any{map[string]any{"index": 0, "token_ids": ids, "finish_reason": finish, "stop_reason": r.StopSeq}},
		},
	})
	var w wireAnswer
	if f := e.question(ctx, route, body, &w); f != nil {
		if routeMissing(f) {
			e.lose(string(wayGenerate), fmt.Sprintf("no answer can be read back from ids: POST %s: HTTP %d", route, f.status))
			return errNoWay
		}
		return e.failed(*f)
	}
	var a answer
	a.take(&w)
	read, err := a.reply(episode.Sampling{}, 0)
	if err != nil {
		return e.failed(failure{reach: reachAnswer, status: http.StatusOK, err: &malformedError{fmt.Errorf("POST %s: %w", route, err)}, answer: &a})
	}
	r.Flags = untouched(r).Flags // what is told of the thinking is told anew
	r.Message = read.Message
	if s := r.StopSeq; s != nil && r.Message.Content != nil && slices.Contains(c.Sampling.Stop, *s) {
		if at := strings.LastIndex(*r.Message.Content, *s); at >= 0 {
			r.Message.Content = episode.Ptr((*r.Message.Content)[:at])
		}
	}
	for _, flag := range read.Flags {
		if !slices.Contains(r.Flags, flag) {
			r.Flags = append(r.Flags, flag)
		}
	}
	return nil
}

// sendings names the requests of one attempt.
type sendings struct {
	call    *episode.Call
	attempt int
	made    int
}

func (s *sendings) next() string {
	id := requestID(s.call, s.attempt, s.made)
	s.made++
	return id
}

// Error makes a failure of a small question an error on its way to planFault.
func (f *failure) Error() string {
	if f.err != nil {
		return f.err.Error()
	}
	return fmt.Sprintf("HTTP %d: %s", f.status, readRefusal(f.body).Message)
}
