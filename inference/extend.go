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
	prompt := slices.Concat(soFar.PromptIDs, soFar.SampledIDs)
	a, service, err := e.complete(ctx, c, attempt, prompt, e.cfg.limits(len(prompt), maxTokens), maxTokens)
	if err != nil {
		return nil, err
	}
	more, err := e.extension(a, c, prompt, maxTokens)
	if err := e.accept(a, more, err, service); err != nil {
		return nil, err
	}
	return e.grown(ctx, soFar, more), nil
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

// complete asks the completions route to go on from a prompt, or from each of a list; the error is a fault.
func (e *Endpoint) complete(ctx context.Context, c *episode.Call, attempt int, prompt any, l limits, maxTokens int) (*answer, time.Duration, error) {
	body, err := e.renderExtension(c, prompt, maxTokens)
	if err != nil {
		return nil, 0, e.fault(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest, Cause: fmt.Errorf("the request was not sent: %w", err)})
	}
	a, service, f := e.attempt(ctx, sending{id: requestID(c, attempt, 0), session: c.Episode, route: "/completions", body: body, keep: e.cfg.KeepRaw}, l)
	if f != nil {
		return nil, 0, e.failed(*f)
	}
	return a, service, nil
}

// renderExtension is the body of the request; prompt is ids or a list of such. What decides how a chat is rendered has no place in it.
func (e *Endpoint) renderExtension(c *episode.Call, prompt any, maxTokens int) ([]byte, error) {
	extra, err := mergeExtra(e.cfg.ExtraBody, c.Sampling.Extra)
	if err != nil {
		return nil, err
	}
	for _, name := range templateFields {
		delete(extra, name)
	}
	b := newBody(extra)
	b.add("model", e.facts.model)
	b.add("prompt", prompt)
	if maxTokens > 0 {
		b.add(fieldMaxTokens, maxTokens)
	}
	addSampling(b, &c.Sampling)
	if c.Sampling.Logprobs {
		b.add("logprobs", 1) // a number here: so many alternatives beside the token's own
	}
	b.add("return_token_ids", true)
	return b.close()
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
		return nil, fmt.Errorf("the completions route was given %d token ids and says it saw %d others", len(prompt), len(r.PromptIDs))
	case r.Usage.Prompt != nil && int(*r.Usage.Prompt) != len(prompt):
		return nil, fmt.Errorf("the completions route was given %d token ids and counts %d", len(prompt), *r.Usage.Prompt)
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
	}
	if err := e.post(ctx, "/detokenize", body, &out); err != nil {
		return "", err
	}
	for _, s := range []*string{out.Prompt, out.Content} {
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
