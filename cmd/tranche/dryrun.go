package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"tranche/episode"
	"tranche/sampler"
)

// dryRunReport is what --dry-run prints.
type dryRunReport struct {
	RunID        string          `json:"run_id"`
	Tasks        int64           `json:"tasks"`
	NoAnswer     int64           `json:"tasks_without_answer"`
	Bad          int64           `json:"bad_rows_skipped"`
	Duplicates   int64           `json:"duplicate_rows_dropped"`
	Samples      int             `json:"samples"`
	Rounds       int             `json:"rounds"`
	Episodes     int64           `json:"episodes"` // at most, where open_end says so
	OpenEnd      bool            `json:"open_end,omitempty"`
	CallsAtMost  *int64          `json:"calls_at_most"`  // null = no bound (max-turns 0)
	TokensAtMost *int64          `json:"tokens_at_most"` // generated; null = no bound
	Endpoints    []dryEndpoint   `json:"endpoints"`
	Request      json.RawMessage `json:"first_request"`
}

type dryEndpoint struct {
	Name          string `json:"name"`
	Kind          string `json:"kind"`
	Model         string `json:"model"`
	ContextTokens int    `json:"context_tokens"` // 0 = not told
	KVTokens      int    `json:"kv_tokens"`      // 0 = not told
	CallsAtOnce   int    `json:"calls_at_once"`
}

// dryRun checks everything a run would, asks the endpoints who they are, and sends no generation request.
func (s *session) dryRun(ctx context.Context) error {
	if err := s.openFleet(ctx); err != nil {
		return err
	}
	defer s.fleet.close()
	s.identify()
	body, err := s.firstRequest()
	if err != nil {
		return err
	}
	r := s.dryReport(body)
	if s.set.JSON {
		return s.a.printJSON(r)
	}
	return s.a.print(visible(r.text()))
}

// firstRequest renders the first call of the first episode as the first endpoint would be sent it.
func (s *session) firstRequest() (json.RawMessage, error) {
	order, err := sampler.New(s.samplerConfig().Config, nil)
	if err != nil {
		return nil, withCode(codeUsage, err)
	}
	actor, err := s.newActor()
	if err != nil {
		return nil, withCode(codeUsage, err)
	}
	defer actor.Close()
	tools, _, err := actor.Tools(s.tasks.First)
	if err != nil {
		return nil, withCode(codeTasks, err)
	}
	e := s.openEpisode(&order.Knobs, episode.Draw{Task: s.tasks.First, Samples: s.set.drawn()}, 0)
	if err := actor.Prepare(e); err != nil {
		return nil, withCode(codeTasks, err)
	}
	call, ok := e.NextCall()
	if !ok {
		return nil, fmt.Errorf("the first episode has no call to make: %v", e.Fault)
	}
	call.Tools = tools
	body, err := s.fleet.members[0].endpoint.Render(&call, call.Want)
	if err != nil {
		return nil, fmt.Errorf("render the first request: %w", err)
	}
	return body, nil
}

func (s *session) dryReport(body json.RawMessage) *dryRunReport {
	r := &dryRunReport{
		RunID: s.file.RunID, Tasks: s.tasks.Tasks, NoAnswer: s.tasks.NoAnswer, Bad: s.tasks.Bad.Rows, Duplicates: s.tasks.Duplicates,
		Samples: s.set.drawn(), Rounds: s.set.Rounds, Episodes: s.most(), OpenEnd: s.total() == 0, Request: body,
	}
	if s.set.MaxTurns > 0 {
		calls := r.Episodes * int64(s.set.MaxTurns)
		tokens := calls * int64(s.set.MaxTokens)
		if most := int64(s.set.MaxEpisodeTokens); most > 0 {
			tokens = min(tokens, r.Episodes*most)
		}
		r.CallsAtMost, r.TokensAtMost = &calls, &tokens
	} else if most := int64(s.set.MaxEpisodeTokens); most > 0 {
		r.TokensAtMost = episode.Ptr(r.Episodes * most)
	}
	for _, m := range s.fleet.members {
		c := m.endpoint.Capacity()
		r.Endpoints = append(r.Endpoints, dryEndpoint{m.meter.name, string(m.endpoint.Kind()), m.endpoint.Model(), c.ContextTokens, c.KVTokens, m.calls})
	}
	return r
}

func (r *dryRunReport) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("dry run: everything was checked; no generation request was sent, nothing was written")
	line("  run id    %s", r.RunID)
	line("  tasks     %d (%d bad rows skipped, %d repeated rows dropped, %d without an answer to grade by)", r.Tasks, r.Bad, r.Duplicates, r.NoAnswer)
	most := ""
	if r.OpenEnd {
		most = "at most "
	}
	line("  episodes  %s%d (%d samples of each task, %d rounds)", most, r.Episodes, r.Samples, r.Rounds)
	line("  calls     at most %s, generating at most %s tokens", bound(r.CallsAtMost), bound(r.TokensAtMost))
	for _, e := range r.Endpoints {
		line("  endpoint  %s (%s, model %s, context %s, KV cache %s), %d calls at once", e.Name, e.Kind, e.Model, tokensText(e.ContextTokens), tokensText(e.KVTokens), e.CallsAtOnce)
	}
	line("first request (max_tokens is cut to the room left in the context when it is sent):")
	pretty, err := json.MarshalIndent(r.Request, "  ", "  ")
	if err != nil {
		pretty = r.Request
	}
	line("  %s", pretty)
	return b.String()
}

func bound(n *int64) string {
	if n == nil {
		return "any number of"
	}
	return fmt.Sprint(*n)
}
