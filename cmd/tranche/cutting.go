package main

import (
	"context"
	"sync"
	"sync/atomic"
)

// cutting counts the answers that were cut where their padded batch was, and gone on with.
type cutting struct {
	cuts   atomic.Int64
	again  atomic.Int64 // tokens of context that were computed again
	remade atomic.Int64 // tokens of answers that were cut and could not be gone on with
}

// cuttingReport is what cutting did in this invocation.
type cuttingReport struct {
	Cuts   int64 `json:"answers_cut"`             // and gone on with; one that was cut twice counts twice
	Again  int64 `json:"context_tokens_again"`    // computed again to go on
	Remade int64 `json:"tokens_made_for_nothing"` // of answers that could not be gone on with and were made anew
}

func (c *cutting) report() *cuttingReport {
	r := &cuttingReport{c.cuts.Load(), c.again.Load(), c.remade.Load()}
	if *r == (cuttingReport{}) {
		return nil
	}
	return r
}

func (c *cutting) continued(_ string, again int) {
	c.cuts.Add(1)
	c.again.Add(int64(again))
}

func (r *report) cuttingText(p *printer) {
	if r.Session == nil || r.Session.Cutting == nil {
		return
	}
	c := r.Session.Cutting
	p.line("  cutting    %d times an answer was cut with its batch and gone on with; %d tokens of context computed again for that", c.Cuts, c.Again)
	if c.Remade > 0 {
		p.line("             %d tokens were for nothing: an answer turned out to be more than text, and no more were cut", c.Remade)
	}
}

// proveFleet finds out which of the servers that pad go on from token ids, so that their answers may be cut; the others are named. Of
// those that do it finds out whether they take a batch as a list. It takes six short generations a server, so a dry run does without.
func (s *session) proveFleet(ctx context.Context) {
	if s.set.Uncut {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	var all sync.WaitGroup
	for i := range s.fleet.members {
		m := &s.fleet.members[i]
		if m.rows == 0 {
			continue
		}
		all.Go(func() {
			err := m.endpoint.ProveExtend(ctx)
			if m.extends = err == nil; m.extends {
				begins, err := m.endpoint.ProveList(ctx)
				m.lists, m.begun = err == nil, !begins
			} else {
				s.a.notice("endpoint %s: answers are made at one go: it does not go on from token ids (%v)", m.endpoint.Name(), err)
			}
		})
	}
	all.Wait()
}
