package inference

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"tranche/episode"
)

// A list of prompts in one request: the server has the whole batch before it begins. It answers when all are done, and one row's fault is
// that of all.

var _ episode.Lister = (*Endpoint)(nil)

// ExtendAll begins or goes on with many answers in one request. See episode.Lister.
func (e *Endpoint) ExtendAll(ctx context.Context, rows []episode.Row, maxTokens int) ([]*episode.Reply, error) {
	begun, err := e.beginAll(ctx, rows)
	if err != nil {
		return nil, e.fault(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassUnavailable, Retry: true, Cause: err})
	}
	var prompts [][]int32
	longest := 0
	for _, r := range begun {
		if r != nil {
			prompts = append(prompts, slices.Concat(r.PromptIDs, r.SampledIDs))
			longest = max(longest, len(prompts[len(prompts)-1]))
		}
	}
	c := rows[0].Call
	body, err := e.completionBody(c, prompts, maxTokens, false)
	if err != nil {
		return nil, e.fault(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest, Cause: fmt.Errorf("the request was not sent: %w", err)})
	}
	a, service, f := e.attempt(ctx, sending{id: requestID(c, rows[0].Attempt, 0), session: c.Episode, route: "/completions", body: body}, e.cfg.limits(longest, maxTokens))
	if f != nil {
		return nil, e.failed(*f)
	}
	defer e.clear(a)
	replies, n := make([]*episode.Reply, len(rows)), 0
	for i, so := range begun {
		if so == nil {
			continue
		}
		more, err := e.rowOf(a, n, rows[i].Call, prompts[n], maxTokens)
		n++
		if err != nil {
			err = fmt.Errorf("row %d of %d: %w", i, len(rows), err)
		}
		if err := e.accept(a, more, err, service); err != nil {
			return nil, err
		}
		if more.Finish == episode.FinishAbort {
			return nil, e.fault(aborted(more, a))
		}
		more.Exchange = cmp.Or(so.Exchange, episode.ExchangeIDs)
		replies[i] = e.grown(ctx, so, more)
	}
	return replies, nil
}

// beginAll is what there is of each answer: of one to be begun, the ids of its prompt as the server renders it; nil = the server does not tell
// them. The error is why where that is so of all.
func (e *Endpoint) beginAll(ctx context.Context, rows []episode.Row) ([]*episode.Reply, error) {
	begun, errs := make([]*episode.Reply, len(rows)), make([]error, len(rows))
	var all sync.WaitGroup
	for i, r := range rows {
		if begun[i] = r.SoFar; r.SoFar == nil {
			all.Go(func() { begun[i], errs[i] = e.blank(ctx, r.Call) })
		}
	}
	all.Wait()
	if slices.ContainsFunc(begun, func(r *episode.Reply) bool { return r != nil }) {
		return begun, nil
	}
	return nil, errors.Join(errs...)
}

// blank is an answer of which there is only the prompt.
func (e *Endpoint) blank(ctx context.Context, c *episode.Call) (*episode.Reply, error) {
	n, ids, err := e.tokenizePrompt(ctx, c)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("the server counts the prompt of %s (%d tokens) and does not tell its ids", c.ID, n)
	}
	return &episode.Reply{
		Message: episode.Message{Role: episode.RoleAssistant}, PromptIDs: ids, SampledIDs: []int32{}, Logprobs: []episode.Logprob{}, Spans: []episode.Span{},
		Usage: episode.Usage{Prompt: episode.Ptr(int32(len(ids))), Completion: episode.Ptr(int32(0))},
	}, nil
}

// rowOf is one row's part of the answer. Usage is of all rows together, so each is told by its ids.
func (e *Endpoint) rowOf(a *answer, i int, c *episode.Call, prompt []int32, maxTokens int) (*episode.Reply, error) {
	c0 := a.choices[i]
	if c0 == nil {
		return nil, errors.New("the answer has no choice for it")
	}
	one := &answer{model: a.model, version: a.version, choices: map[int]*choice{0: c0}}
	r, err := e.extension(one, c, prompt, maxTokens)
	if err != nil {
		return nil, err
	}
	r.Usage = episode.Usage{Prompt: episode.Ptr(int32(len(prompt))), Completion: episode.Ptr(int32(len(r.SampledIDs)))}
	return r, nil
}

// proofTokens is how long the answers are by which a list is compared with chats.
const proofTokens = 32

// ProveList finds out whether the server takes a list of prompts as ids and answers each; err nil = it does. begins says that such an answer is also
// what a chat's would be, so that a list may begin answers: where the server takes chats apart (thinking, say) it is not, and a list can only go
// on with what a chat began. Where raw answers are kept no list will do: its answer is of all its rows.
func (e *Endpoint) ProveList(ctx context.Context) (begins bool, err error) {
	if e.cfg.KeepRaw {
		return false, errors.New("raw answers are kept, and that to a list is of several calls")
	}
	rows := make([]episode.Row, 2)
	for i, said := range []string{"Count from one to nine.", "Name a colour."} {
		rows[i] = episode.Row{Attempt: 1, Call: &episode.Call{
			ID: fmt.Sprintf("prove-list/%d", i), Episode: "prove-list", Messages: []episode.Message{{Role: episode.RoleUser, Content: &said}},
			Sampling: episode.Sampling{TokenIDs: true, Temperature: episode.Ptr(0.0)},
		}}
	}
	replies, err := e.ExtendAll(ctx, rows, proofTokens)
	if err != nil {
		return false, err
	}
	begins = true
	for i, r := range replies {
		if r == nil || len(r.SampledIDs) == 0 || len(r.SampledIDs) > proofTokens {
			return false, fmt.Errorf("at most %d tokens were asked for each of two prompts, and did not come for both", proofTokens)
		}
		chat, err := e.Generate(ctx, rows[i].Call, 2, proofTokens)
		begins = begins && err == nil && slices.Equal(chat.PromptIDs, r.PromptIDs) && slices.Equal(chat.SampledIDs, r.SampledIDs) && reflect.DeepEqual(chat.Message, r.Message)
	}
	return begins, nil
}
