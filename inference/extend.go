package inference

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"tranche/episode"
)

// Going on with an answer that was cut: the completions route with the ids of the prompt and of all that was sampled so far. What the
// server renders of a chat it rendered for the first part; from there on ids are all there is.

var _ episode.Extender = (*Endpoint)(nil)

// Extend goes on with an answer from its token ids. See episode.Extender.
func (e *Endpoint) Extend(ctx context.Context, c *episode.Call, soFar *episode.Reply, attempt int, maxTokens int) (*episode.Reply, error) {
	whole, more, err := e.extend(ctx, c, soFar, &sendings{call: c, attempt: attempt}, maxTokens)
	if err == nil && whole.Finish == episode.FinishAbort {
		return nil, e.fault(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassAborted, Retry: true, Partial: more.Message.Sendable().Text(), Wasted: len(more.SampledIDs), Raw: more.Raw,
			Cause: fmt.Errorf("the server ended the answer with finish_reason %q", more.RawEnd)})
	}
	return whole, err
}

// extend is one request that goes on with an answer; it may bring a part of the rest and end with an abort. more is what came by itself.
func (e *Endpoint) extend(ctx context.Context, c *episode.Call, soFar *episode.Reply, ids *sendings, maxTokens int) (whole, more *episode.Reply, err error) {
	prompt := slices.Concat(soFar.PromptIDs, soFar.SampledIDs)
	began := time.Now()
	a, err := e.send(ctx, e.extendingWay(), &idCall{call: c, prompt: prompt, limit: maxTokens}, ids)
	if errors.Is(err, errNoWay) {
		return nil, nil, e.fault(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassNotFound, Cause: err})
	}
	if err != nil {
		return nil, nil, err
	}
	defer e.clear(a)
	more, err = e.extension(a, c, prompt, maxTokens)
	if err := e.accept(a, more, err, time.Since(began)); err != nil {
		return nil, nil, err
	}
	if more.Finish == episode.FinishAbort && len(more.SampledIDs) == 0 {
		return nil, nil, e.fault(aborted(more, a))
	}
	more.Exchange = soFar.Exchange
	return e.grown(ctx, soFar, more), more, nil
}

// grown is an answer as far as it has come: what there was, and what came. Thinking is taken out of the whole text: its tags may lie in
// different parts, or across a cut.
func (e *Endpoint) grown(ctx context.Context, soFar, more *episode.Reply) *episode.Reply {
	soFar, more = untouched(soFar), untouched(more)
	whole := soFar.Join(more)
	e.mend(ctx, soFar, more, whole)
	if t, ok := untag(whole.Message.Text()); ok {
		t.into(&whole.Message)
	}
	flagThinking(whole)
	return whole
}

// untouched is a reply with its thinking back in its text, where the tokens have it.
func untouched(r *episode.Reply) *episode.Reply {
	u := *r
	u.Message = r.Message.Sendable()
	u.Flags = slices.DeleteFunc(slices.Clone(r.Flags), func(f string) bool { return f == episode.FlagThinkingTagged || f == episode.FlagThinkingCut })
	return &u
}

// extendingWay is the way by which an answer is gone on with.
func (e *Endpoint) extendingWay() way {
	switch e.facts.kind {
	case KindSGLang:
		return waySGLang
	case KindLlama:
		return wayLlama
	}
	return wayCompletions
}

// canGoOn reports whether an answer that the server broke off can be gone on with, and is then what it would have been: with a seed the draws would
// begin anew, and out of an answer in two parts somebody has to read the tool calls.
func (e *Endpoint) canGoOn(c *episode.Call, r *episode.Reply) bool {
	plain := *c
	plain.Tools = nil
	read := r.Extensible() && len(c.Tools) == 0
	return len(r.PromptIDs) > 0 && len(r.SampledIDs) > 0 && c.Sampling.TokenIDs && c.Sampling.Seed == nil &&
		e.carries(e.extendingWay(), &plain) && (read || e.derenders())
}

// derenders reports whether the server may read messages out of token ids.
func (e *Endpoint) derenders() bool {
	return (e.facts.kind == KindVLLM || e.facts.kind == KindSim) && !e.isLost(string(wayGenerate))
}

// goOn has the rest of an answer made that the server broke off, as it does when its weights change: what came is progress, not a fault.
func (e *Endpoint) goOn(ctx context.Context, c *episode.Call, r *episode.Reply, maxTokens int, ids *sendings) (*episode.Reply, error) {
	part := func(f *episode.Fault) *episode.Fault {
		f.Partial, f.Wasted = r.Message.Sendable().Text()+f.Partial, f.Wasted+len(r.SampledIDs)
		return f
	}
	for r.Finish == episode.FinishAbort {
		left := maxTokens - len(r.SampledIDs)
		if maxTokens > 0 && left <= 0 {
			r.Finish = episode.FinishLength
			return r, nil
		}
		whole, _, err := e.extend(ctx, c, r, ids, max(0, left))
		if err != nil {
			return nil, part(episode.AsFault(episode.StageModel, err))
		}
		if len(c.Tools) > 0 || r.Message.ReasoningContent != nil && r.Message.Tagged == nil {
			err := e.derender(ctx, c, whole)
			if errors.Is(err, errNoWay) {
				err = e.fault(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassAborted, Retry: true, Cause: fmt.Errorf("the server ended the answer: %w", err)})
			}
			if err != nil {
				return nil, part(episode.AsFault(episode.StageModel, err))
			}
		}
		if slices.ContainsFunc(c.Sampling.Stop, func(s string) bool { return strings.Contains(whole.Message.Sendable().Text(), s) }) {
			return nil, part(e.fault(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassAborted, Retry: true,
				Cause: errors.New("the server ended the answer inside a stop string")}))
		}
		r = whole
	}
	return r, nil
}

// extension checks that the answer goes on from the prompt, token by token.
func (e *Endpoint) extension(a *answer, c *episode.Call, prompt []int32, maxTokens int) (*episode.Reply, error) {
	r, err := a.reply(c.Sampling, maxTokens)
	switch {
	case err != nil:
		return nil, err
	case r.SampledIDs == nil:
		return nil, errNoIDs
	case r.PromptIDs != nil && !slices.Equal(r.PromptIDs, prompt):
		return nil, fmt.Errorf("the server was given %d token ids and says it saw %d others", len(prompt), len(r.PromptIDs))
	case r.Usage.Prompt != nil && int(*r.Usage.Prompt) != len(prompt):
		return nil, fmt.Errorf("the server was given %d token ids and counts %d", len(prompt), *r.Usage.Prompt)
	}
	return r, nil
}

// mend puts a character right that was cut in two: neither part's text can show it, the server's decoding of all ids does.
func (e *Endpoint) mend(ctx context.Context, before, more, whole *episode.Reply) {
	const lost = string(utf8.RuneError)
	head, tail := strings.TrimRight(before.Message.Text(), lost), strings.TrimLeft(more.Message.Text(), lost)
	if head == before.Message.Text() && tail == more.Message.Text() {
		return
	}
	ids := whole.SampledIDs
	if whole.Finish == episode.FinishStop && whole.StopSeq == nil && len(ids) > 0 {
		ids = ids[:len(ids)-1] // the token that ends an answer is no text
	}
	if text, err := e.detokenize(ctx, ids); err == nil && strings.HasPrefix(text, head) && strings.HasSuffix(text, tail) && len(text) >= len(head)+len(tail) {
		whole.Message.Content = &text
		return
	}
	if !slices.Contains(whole.Flags, episode.FlagTextRepaired) {
		whole.Flags = append(whole.Flags, episode.FlagTextRepaired)
	}
}

// detokenize is the text of ids, by the server.
func (e *Endpoint) detokenize(ctx context.Context, ids []int32) (string, error) {
	b := newBody(nil)
	b.add("model", e.facts.model)
	b.add("tokens", ids)
	body, err := b.close()
	if err != nil {
		return "", err
	}
	var out struct {
		Prompt  *string `json:"prompt"`  // vLLM
		Content *string `json:"content"` // llama-server
		Text    *string `json:"text"`    // SGLang
	}
	if err := e.post(ctx, "/detokenize", body, &out); err != nil {
		return "", err
	}
	for _, s := range []*string{out.Prompt, out.Content, out.Text} {
		if s != nil {
			return *s, nil
		}
	}
	return "", errors.New("POST /detokenize gave no text")
}

// ProveExtend finds out whether the server goes on with an answer from ids, by one token of a chat and one more. nil = it does.
func (e *Endpoint) ProveExtend(ctx context.Context) error {
	for field := range e.cfg.ExtraBody {
		if !episode.Memoryless(field) {
			return fmt.Errorf("with the body field %s an answer in parts is not what it would be at one go", field)
		}
	}
	c := &episode.Call{
		ID: "prove-extend", Episode: "prove-extend", Messages: []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr("Count from one to nine.")}},
		Sampling: episode.Sampling{TokenIDs: true},
	}
	first, err := e.Generate(ctx, c, 1, 1)
	switch {
	case err != nil:
		return err
	case !first.Extensible():
		return errors.New("an answer comes without token ids, or not as text alone")
	case first.Finish != episode.FinishLength:
		return fmt.Errorf("an answer of one token ends for %q, expected %q", first.RawEnd, episode.FinishLength)
	}
	whole, err := e.Extend(ctx, c, first, 2, 1)
	if err == nil && len(whole.SampledIDs) != 2 {
		err = fmt.Errorf("one more token was asked for, %d came", len(whole.SampledIDs)-1)
	}
	return err
}
