package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"tranche/episode"
)

// Count tells the exact length of the call's prompt, by having the server render and tokenise it. See episode.Counter.
func (e *Endpoint) Count(ctx context.Context, c *episode.Call) (int, error) {
	n, _, err := e.tokenizePrompt(ctx, c)
	return n, err
}

// tokenizePrompt has the server render and tokenise a call's prompt. ids may be nil where the server only counts.
func (e *Endpoint) tokenizePrompt(ctx context.Context, c *episode.Call) (n int, ids []int32, err error) {
	if e.noTokenize.Load() || e.facts.kind == KindOllama {
		return 0, nil, episode.ErrUnsupported
	}
	body, err := e.templateBody(c, true)
	if err != nil {
		return 0, nil, fmt.Errorf("count the prompt of %s: %w", c.ID, err)
	}
	if e.facts.kind == KindLlama {
		if body, err = e.llamaPrompt(ctx, body); err != nil {
			return 0, nil, e.countError(c, err)
		}
	}
	var out struct {
		Count  *int    `json:"count"`
		Tokens []int32 `json:"tokens"`
	}
	if err := e.post(ctx, "/tokenize", body, &out); err != nil {
		return 0, nil, e.countError(c, err)
	}
	switch {
	case out.Tokens != nil:
		return len(out.Tokens), out.Tokens, nil
	case out.Count != nil:
		return *out.Count, nil, nil
	}
	return 0, nil, fmt.Errorf("count the prompt of %s at %s: POST /tokenize gave neither count nor tokens", c.ID, e.cfg.Name)
}

// templateFields are the body fields beside messages and tools that change how a prompt is rendered.
var templateFields = [...]string{
	"chat_template", "chat_template_kwargs", "continue_final_message", "documents", "add_generation_prompt", "reasoning_effort", "reasoning_format", "tool_choice",
}

// templateBody is the part of the request that decides the prompt.
func (e *Endpoint) templateBody(c *episode.Call, generate bool) ([]byte, error) {
	extra, err := mergeExtra(e.cfg.ExtraBody, c.Sampling.Extra)
	if err != nil {
		return nil, err
	}
	for name := range extra {
		if !slices.Contains(templateFields[:], name) {
			delete(extra, name)
		}
	}
	b := newBody(extra)
	b.add("model", e.facts.model)
	b.add("messages", c.Messages)
	if len(c.Tools) > 0 {
		b.add("tools", c.Tools)
	}
	b.add("add_generation_prompt", generate)
	return b.close()
}

// llamaPrompt renders the prompt and returns the body that tokenises it the way chat completions do.
func (e *Endpoint) llamaPrompt(ctx context.Context, body []byte) ([]byte, error) {
	var out struct {
		Prompt *string `json:"prompt"`
	}
	if err := e.post(ctx, "/apply-template", body, &out); err != nil {
		return nil, err
	}
	if out.Prompt == nil {
		return nil, errors.New("POST /apply-template gave no prompt")
	}
	return json.Marshal(map[string]any{"content": *out.Prompt, "add_special": true, "parse_special": true})
}

// statusError is a small question that was refused.
type statusError struct {
	status int
	err    error
}

func (s *statusError) Error() string { return s.err.Error() }
func (s *statusError) Unwrap() error { return s.err }

// post asks a small question below the root and decodes the answer.
func (e *Endpoint) post(ctx context.Context, path string, body []byte, out any) error {
	status, raw, err := e.ask(ctx, http.MethodPost, e.address.root+path, body)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		said := readRefusal(e.redact(raw))
		return &statusError{status, fmt.Errorf("POST %s: HTTP %d: %s", path, status, said.Message)}
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("POST %s: %w", path, describe(raw, err))
	}
	return nil
}

// countError tells "cannot" from "did not". A server of unknown kind that refuses the question in any way is taken not to
// know it; one that is known to have the route has refused this prompt.
func (e *Endpoint) countError(c *episode.Call, err error) error {
	var s *statusError
	if errors.As(err, &s) && cannotCount(e.facts.kind, s.status) {
		if !e.noTokenize.Swap(true) {
			e.note("the server cannot count a prompt (%v); lengths are estimates", err)
		}
		return episode.ErrUnsupported
	}
	return fmt.Errorf("count the prompt of %s at %s: %w", c.ID, e.cfg.Name, err)
}

func cannotCount(k Kind, status int) bool {
	switch status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusUnauthorized, http.StatusForbidden:
		return !k.familiar()
	}
	return false
}

// completeIDs adds the ids that the answer itself does not carry. Ids are taken only where a count or a text proves them;
// what cannot be proved stays absent, and the episode is flagged.
func (e *Endpoint) completeIDs(ctx context.Context, c *episode.Call, a *answer, r *episode.Reply) {
	if r.SampledIDs == nil && e.facts.kind == KindLlama && onlyStopString(r) {
		r.SampledIDs, r.Logprobs = []int32{}, []episode.Logprob{}
		r.Flags = slices.DeleteFunc(r.Flags, func(f string) bool { return f == episode.FlagLogprobsMissing })
	}
	if r.SampledIDs == nil {
		e.idsFromLogprobs(ctx, a.choice(), r)
	}
	if r.SampledIDs == nil || r.PromptIDs != nil || r.Usage.Prompt == nil {
		return
	}
	n, ids, err := e.tokenizePrompt(ctx, c)
	switch {
	case err != nil:
		if !errors.Is(err, episode.ErrUnsupported) && ctx.Err() == nil {
			e.note("prompt ids are missing: the server did not tokenise a prompt it had answered (%s)", clip(err.Error(), 200))
		}
	case n == int(*r.Usage.Prompt) && ids != nil:
		r.PromptIDs = ids
	default:
		e.note("prompt ids are missing: the server's own tokenisation of a prompt has another length than the prompt it answered")
	}
}

// onlyStopString recognises an answer of which llama-server left out everything: it began with a stop string. Its logprobs
// are null then, and no token is missing one.
func onlyStopString(r *episode.Reply) bool {
	m := r.Message
	return r.Finish == episode.FinishStop && len(r.Logprobs) == 0 && m.Content != nil && *m.Content == "" && m.ReasoningContent == nil && len(m.ToolCalls) == 0
}

// idsFromLogprobs takes the ids llama-server writes beside its logprobs. It leaves out the tokens of a stop string, and may
// leave out parts of characters: the list is taken when it is as long as the server says it sampled, or when the server's
// own decoding of it is the text of the answer.
func (e *Endpoint) idsFromLogprobs(ctx context.Context, ch *choice, r *episode.Reply) {
	if ch.logprobs == nil || len(ch.logprobIDs) != len(ch.logprobs) {
		return
	}
	ids := notNil(ch.logprobIDs)
	if r.Usage.Completion != nil && int(*r.Usage.Completion) == len(ids) {
		r.SampledIDs = ids
		return
	}
	if e.decodesTo(ctx, ids, r.Message) {
		r.SampledIDs = ids
	}
}

func (e *Endpoint) decodesTo(ctx context.Context, ids []int32, m episode.Message) bool {
	m = m.Sendable()
	if m.Content == nil || m.ReasoningContent != nil || len(m.ToolCalls) > 0 {
		return false // a parser cut the text up; there is nothing whole to compare with
	}
	body, err := json.Marshal(map[string]any{"tokens": ids})
	if err != nil {
		return false
	}
	var out struct {
		Content *string `json:"content"`
	}
	if err := e.post(ctx, "/detokenize", body, &out); err != nil || out.Content == nil {
		return false
	}
	return strings.TrimSpace(*out.Content) == strings.TrimSpace(*m.Content)
}
