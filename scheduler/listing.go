package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"tranche/episode"
)

// A server that pads begins with what is there: of a batch that comes call by call it would take the first alone. So where it takes lists, the
// calls of a batch that ask for the same go out as one request. It answers for all or for none, and when it fails one of them may be why. So nothing is held
// against any of them: each goes alone then, and gets its own verdict. A failure of the endpoint it is once, however many calls there were.

// listing is calls of one batch that go out together.
type listing struct {
	to      episode.Lister
	rows    []episode.Row
	most    int // tokens of each
	replies []*episode.Reply
	err     error
	done    chan struct{} // closed when replies and err are there
	waited  atomic.Int32  // rows that are still waited for
	stop    context.CancelFunc
	told    bool // owned by the scheduler's loop: the core has been told that it failed
}

// errLeftOut is the cause of the end of an attempt in a list that a call could have no part in.
var errLeftOut = errors.New("its prompt could not be begun in a list: it goes alone")

// spoiled says that a fault of one of the calls is that of the request they shared, and not of its own end.
func (l *listing) spoiled(f *episode.Fault) bool {
	return l != nil && f != nil && f.Class != episode.ClassCancelled && !errors.Is(f, errStalled)
}

// tell tells the core of the end of an attempt, and whether anything is to be held against its call or its endpoint.
func (s *Scheduler) tell(p *pending, l Launch, reply *episode.Reply, fault *episode.Fault) Decision {
	list := p.flights[l.Ticket].list
	if !list.spoiled(fault) {
		return s.core.Settle(l.Ticket, fault, p.part(reply), s.now())
	}
	leftOut := errors.Is(fault, errLeftOut)
	decision := s.core.Spoil(l.Ticket, fault, !leftOut && !list.told, s.now())
	list.told = list.told || !leftOut
	return decision
}

// Spoil reports that a launched attempt has failed with the request that it shared with other calls: the core holds the call and launches it
// again. blame holds the fault against the replica; a request that has failed is one failure, whoever shared it.
func (c *Core) Spoil(t Ticket, fault *episode.Fault, blame bool, now Time) Decision {
	w := c.calls[t]
	if w == nil || w.state != running {
		panic(fmt.Sprintf("scheduler: call %d is spoiled and was not running", t))
	}
	r := c.landed(w, fault, Usage{Cached: -1}, -1, now)
	c.answers.left(w.Cell, w.launched, now, -1)
	if blame {
		r.failed++
		b := blameFor(fault)
		if b.gate {
			c.closeGate(w, r, fault, now)
		}
		if b.endpoint {
			c.strike(w, r, fault, now)
		}
	}
	w.failures++
	return c.postpone(w, fault, now)
}

// listings puts those of the launches together that may go out as one request; nil for one that goes alone.
func (s *Scheduler) listings(launches []Launch) []*listing {
	type kind struct {
		replica, most int
		sampling      string
	}
	lists := make([]*listing, len(launches))
	of := map[kind]*listing{}
	for i, l := range launches {
		e, p := s.cfg.Endpoints[l.Replica], s.pending[l.Ticket.call()]
		if e.Lister == nil || e.Rows == 0 || len(p.attempts) > 0 || e.Begun && p.soFar == nil || !s.cuttable(p.call) {
			continue
		}
		how, err := json.Marshal(p.call.Sampling)
		if err != nil {
			continue
		}
		k := kind{l.Replica, l.MaxTokens, string(how)}
		if of[k] == nil {
			of[k] = &listing{to: e.Lister, most: l.MaxTokens, done: make(chan struct{})}
		}
		c := *p.call
		c.Sampling.TokenIDs = true
		of[k].rows = append(of[k].rows, episode.Row{Call: &c, SoFar: p.soFar, Attempt: l.Attempt})
		lists[i] = of[k]
	}
	for i, l := range lists {
		switch p := s.pending[launches[i].Ticket.call()]; {
		case l == nil:
		case len(l.rows) == 1:
			lists[i] = nil
		default:
			p.asks = p.asks || !p.call.Sampling.TokenIDs
		}
	}
	return lists
}

// begin sends the request, in a goroutine of the scheduler's.
func (l *listing) begin(s *Scheduler) {
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.waited.Store(int32(len(l.rows)))
	s.running.Go(func() {
		defer stop()
		defer close(l.done)
		defer func() {
			if x := recover(); x != nil {
				l.replies, l.err = nil, panicked(x)
			}
		}()
		l.replies, l.err = l.to.ExtendAll(ctx, l.rows, l.most)
		if l.err == nil && len(l.replies) != len(l.rows) {
			l.err = &episode.Fault{Stage: episode.StageModel, Class: episode.ClassInternal, Cause: errors.New("a list was answered with another number of rows")}
		}
	})
}

// wait is the attempt of one row.
func (l *listing) wait(ctx context.Context, row int) (*episode.Reply, error) {
	select {
	case <-l.done:
	case <-ctx.Done():
		if l.waited.Add(-1) == 0 {
			l.stop()
		}
		return nil, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassCancelled, Cause: context.Cause(ctx)}
	}
	switch {
	case l.err == nil && l.replies[row] == nil:
		return nil, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassUnavailable, Retry: true, Cause: errLeftOut}
	case l.err == nil:
		return l.replies[row], nil
	}
	f := *episode.AsFault(episode.StageModel, l.err) // each row keeps the history of its own
	f.Partial, f.Wasted = "", f.Wasted/len(l.rows)
	return nil, &f
}
