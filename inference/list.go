package inference

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

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
	prompts := make([][]int32, len(rows))
	for i, r := range begun {
		prompts[i] = slices.Concat(r.PromptIDs, r.SampledIDs)
	}
	c := rows[0].Call
	body, err := e.completionBody(c, prompts, maxTokens, false)
	if err != nil {
		return nil, e.fault(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest, Cause: fmt.Errorf("the request was not sent: %w", err)})
	}
	a, service, f := e.attempt(ctx, sending{id: requestID(c, rows[0].Attempt, 0), session: c.Episode, route: "/completions", body: body})
	if f != nil {
		return nil, e.fault(classify(*f, time.Now()))
	}
	replies := make([]*episode.Reply, len(rows))
	for i := range rows {
		more, err := e.rowOf(a, i, rows[i].Call, prompts[i], maxTokens)
		if err != nil {
			return nil, e.fault(classify(failure{reach: reachAnswer, status: http.StatusOK, err: &malformedError{fmt.Errorf("row %d of %d: %w", i, len(rows), err)}, answer: a}, time.Now()))
		}
		if more.Finish == episode.FinishAbort || more.RawEnd == "error" {
			return nil, e.fault(aborted(more, a))
		}
		more.Endpoint, more.Service, more.Exchange = e.cfg.Name, service, cmp.Or(begun[i].Exchange, episode.ExchangeIDs)
		replies[i] = begun[i].Join(more)
		e.mend(ctx, begun[i], more, replies[i])
	}
	return replies, nil
}

// beginAll is what there is of each answer: of one to be begun, the ids of its prompt as the server renders it.
func (e *Endpoint) beginAll(ctx context.Context, rows []episode.Row) ([]*episode.Reply, error) {
	begun, errs := make([]*episode.Reply, len(rows)), make([]error, len(rows))
	var all sync.WaitGroup
	for i, r := range rows {
		if begun[i] = r.SoFar; r.SoFar == nil {
			all.Go(func() { begun[i], errs[i] = e.blank(ctx, r.Call) })
		}
	}
	all.Wait()
	return begun, errors.Join(errs...)
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
	if r.Model == "" {
		r.Model = e.facts.model
	}
	r.Usage = episode.Usage{Prompt: episode.Ptr(int32(len(prompt))), Completion: episode.Ptr(int32(len(r.SampledIDs)))}
	return r, nil
}

// ProveList finds out whether the server takes a list of prompts as ids, and answers each. nil = it does.
func (e *Endpoint) ProveList(ctx context.Context) error {
	rows := make([]episode.Row, 2)
	for i, said := range []string{"Count from one to nine.", "Name a colour."} {
		rows[i] = episode.Row{Attempt: 1, Call: &episode.Call{
			ID: fmt.Sprintf("prove-list/%d", i), Episode: "prove-list", Messages: []episode.Message{{Role: episode.RoleUser, Content: &said}}, Sampling: episode.Sampling{TokenIDs: true},
		}}
	}
	replies, err := e.ExtendAll(ctx, rows, 1)
	for _, r := range replies {
		if len(r.SampledIDs) != 1 {
			err = errors.Join(err, fmt.Errorf("one token was asked for each of two prompts, %d came for one", len(r.SampledIDs)))
		}
	}
	return err
}
