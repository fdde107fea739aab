package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"tranche/episode"
)

// A server that pads begins with what is there: of a batch that comes call by call it would take the first alone. So where it takes lists, the
// calls of a batch that ask for the same go out as one request. It answers for all or for none. A call that failed so goes on its own.

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
		if e.Lister == nil || e.Rows == 0 || len(p.attempts) > 0 || !s.cuttable(p.call) {
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
	if l.err == nil {
		return l.replies[row], nil
	}
	f := *episode.AsFault(episode.StageModel, l.err) // each row keeps the history of its own
	f.Partial, f.Wasted = "", f.Wasted/len(l.rows)
	return nil, &f
}
