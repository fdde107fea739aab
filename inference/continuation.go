package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tranche/episode"
)

var _ episode.Continuer = (*Endpoint)(nil)

// continueBody is a request of the completions route. No seed: on vLLM's CPU back end a batch of requests that carry one kills the
// engine.
type continueBody struct {
	Model     string         `json:"model"`
	Prompt    []int32        `json:"prompt"`
	MaxTokens int            `json:"max_tokens"`
	IgnoreEOS bool           `json:"ignore_eos"`
	ReturnIDs bool           `json:"return_token_ids"`
	Salt      string         `json:"cache_salt,omitempty"`
	Stream    bool           `json:"stream,omitempty"`
	Options   *streamOptions `json:"stream_options,omitempty"`
}

type streamOptions struct {
	Usage bool `json:"include_usage"`
}

// errNoIDs is a completions route that takes ids and gives none back.
var errNoIDs = errors.New("the completions route gives no token ids back (return_token_ids): vLLM does from 0.10 on")

// Continue goes on from exact ids by the completions route. See episode.Continuer.
func (e *Endpoint) Continue(ctx context.Context, c episode.Continuation) (episode.Continued, error) {
	b := continueBody{Model: e.facts.model, Prompt: c.Prompt, MaxTokens: c.Tokens, IgnoreEOS: true, ReturnIDs: true, Salt: c.Salt, Stream: c.Timed}
	if c.Timed {
		b.Options = &streamOptions{Usage: true}
	}
	body, err := json.Marshal(b)
	if err != nil {
		return episode.Continued{}, e.fault(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest, Cause: err})
	}
	out := sending{id: c.ID, session: c.Episode, route: "/completions", body: body, timed: c.Timed}
	a, took, f := e.attempt(ctx, out, e.cfg.limits(len(c.Prompt), c.Tokens))
	if f == nil {
		defer e.clear(a)
		var done episode.Continued
		if done, err = a.continued(c, took); err == nil {
			return done, nil
		}
		f = &failure{reach: reachAnswer, status: http.StatusOK, err: err, answer: a}
	}
	return episode.Continued{}, e.judged(*f)
}

// continued checks that the answer is what was asked for.
func (a *answer) continued(c episode.Continuation, took time.Duration) (episode.Continued, error) {
	choice := a.choice()
	if choice == nil || choice.ids == nil {
		return episode.Continued{}, &malformedError{errNoIDs}
	}
	if len(choice.ids) != c.Tokens {
		return episode.Continued{}, &malformedError{fmt.Errorf("asked for exactly %d tokens (ignore_eos), %d came", c.Tokens, len(choice.ids))}
	}
	d := episode.Continued{IDs: choice.ids, Prompt: -1, Cached: -1, Stamps: a.stamps, Took: took}
	if p := a.usage.Prompt; p != nil {
		d.Prompt = int(*p)
	}
	if n := a.usage.Cached; n != nil {
		d.Cached = int(*n)
	}
	return d, nil
}

// stamp notes the time for the tokens that have come since the last time.
func (a *answer) stamp(at time.Duration) {
	if c := a.choice(); a.timed && c != nil {
		for len(a.stamps) < len(c.ids) {
			a.stamps = append(a.stamps, at)
		}
	}
}
