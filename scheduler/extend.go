package scheduler

import (
	"context"
	"time"

	"tranche/episode"
)

// The shell's side of answers that are cut (cutting.go): it keeps what there is of them and has the next endpoint go on with that.

// errandFor is the attempt that a launch asks for: of the call itself, or to go on with what there is of its answer.
func (s *Scheduler) errandFor(p *pending, l Launch) func(context.Context) (*episode.Reply, error) {
	e, c, soFar := s.cfg.Endpoints[l.Replica], p.call, p.soFar
	if (l.Cut || soFar != nil) && !c.Sampling.TokenIDs {
		p.asks = true
	}
	if soFar != nil {
		return func(ctx context.Context) (*episode.Reply, error) {
			return e.Extender.Extend(ctx, c, soFar, l.Attempt, l.MaxTokens)
		}
	}
	if l.Cut && !c.Sampling.TokenIDs { // going on takes them
		asking := *c
		asking.Sampling.TokenIDs = true
		c = &asking
	}
	return func(ctx context.Context) (*episode.Reply, error) {
		return e.Model.Generate(ctx, c, l.Attempt, l.MaxTokens)
	}
}

// cuttable says whether the answer to a call may be cut.
func (s *Scheduler) cuttable(c *episode.Call) bool { return !s.whole.Load() && c.Cuttable() }

// part is what an attempt took: of an answer that was gone on with, the tokens that came with it.
func (p *pending) part(r *episode.Reply) Usage {
	u := usage(r)
	if r != nil && r.SampledIDs != nil && p.soFar != nil {
		u.Generated = len(r.SampledIDs) - len(p.soFar.SampledIDs)
	}
	return u
}

// cutShort takes up an answer that was cut where its batch was, and has not ended; false = it has.
func (s *Scheduler) cutShort(p *pending, l Launch, r *episode.Reply, endpoint string, took time.Duration) bool {
	u := p.part(r)
	if !l.Cut || r.Finish != episode.FinishLength || u.Generated < l.MaxTokens {
		return false
	}
	delete(p.flights, l.Ticket)
	if !r.Extensible() || len(r.SampledIDs) != p.tokens()+u.Generated {
		s.whole.Store(true) // the next ones would not be either
		s.cfg.Trace.remade(endpoint, u.Generated+p.tokens())
		p.soFar = nil
		s.core.Whole(l.Ticket, s.now())
	} else {
		again := 0
		if p.soFar != nil {
			again = len(p.soFar.PromptIDs) + len(p.soFar.SampledIDs)
		}
		s.cfg.Trace.continued(endpoint, again)
		s.core.Cut(l.Ticket, len(r.PromptIDs)+p.tokens(), u, s.now())
		p.soFar = r
	}
	p.served += took
	s.withdrawn(l.Ticket.call(), p)
	return true
}

// tokens is how many there are of an answer that was cut.
func (p *pending) tokens() int {
	if p.soFar == nil {
		return 0
	}
	return len(p.soFar.SampledIDs)
}

// asAsked is the reply as the caller wants it: the ids of an answer that might have been cut were asked for here.
func (p *pending) asAsked(r *episode.Reply) *episode.Reply {
	if !p.asks {
		return r
	}
	bare := *r
	bare.PromptIDs, bare.SampledIDs, bare.Spans = nil, nil, nil
	return &bare
}

// full is the answer to a call for which there is no more room: what there is of it, where it was cut, else none.
func (s *Scheduler) full(p *pending) answer {
	r := p.soFar
	if r == nil {
		return answer{err: ErrContextFull}
	}
	return answer{reply: p.asAsked(r), turn: s.turn(p, p.latest, r, r.Endpoint, time.Now(), 0)}
}
