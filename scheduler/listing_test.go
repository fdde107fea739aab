package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tranche/episode"
)

// choir is a parrot that takes lists. A row whose episode is poison fails its whole list.
type choir struct {
	parrot
	lists, rows atomic.Int64
	poison      string
	begun       bool          // no answer may be begun
	fault       episode.Fault // of a list with the poison; its zero value = a panic
	unbegun     string        // the episode whose prompt cannot be begun in a list
	hangs       bool
	broken      atomic.Bool // a list was ended by its context
}

func (m *choir) ExtendAll(ctx context.Context, rows []episode.Row, maxTokens int) ([]*episode.Reply, error) {
	m.lists.Add(1)
	m.rows.Add(int64(len(rows)))
	if m.hangs {
		<-ctx.Done()
		m.broken.Store(true)
		return nil, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassCancelled, Cause: context.Cause(ctx)}
	}
	time.Sleep(time.Second)
	var out []*episode.Reply
	for _, r := range rows {
		switch {
		case r.Call.Episode == m.poison && m.fault.Class == "":
			panic("scripted")
		case r.Call.Episode == m.poison:
			f := m.fault
			return nil, &f
		case r.Call.Episode == m.unbegun:
			out = append(out, nil)
		case r.SoFar == nil && m.begun:
			return nil, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassInternal, Cause: errors.New("a list was to begin an answer")}
		case r.SoFar == nil:
			out = append(out, m.answer(r.Call, 0, maxTokens))
		default:
			out = append(out, r.SoFar.Join(m.answer(r.Call, len(r.SoFar.SampledIDs), maxTokens)))
		}
	}
	return out, nil
}

// A batch goes out as lists; when one of its rows fails them, however it does, every row is tried again on its own, and all end well: nothing is
// held against the others, and one failure against the endpoint.
func TestBatchesGoOutAsLists(t *testing.T) {
	fault := func(c episode.Class, retry bool) episode.Fault {
		return episode.Fault{Stage: episode.StageModel, Class: c, Retry: retry, Cause: errors.New("scripted")}
	}
	overflow := fault(episode.ClassOverflow, false)
	overflow.Limit, overflow.Prompt = 8192, 9000
	for name, c := range map[string]struct {
		poison, unbegun string
		fault           episode.Fault
		begun           bool
	}{
		"well":                {},
		"server error":        {"e7", "", fault(episode.ClassServerError, true), false},
		"refused":             {"e7", "", fault(episode.ClassBadRequest, false), false},
		"too large an answer": {"e7", "", fault(episode.ClassMalformed, false), false},
		"over the context":    {"e7", "", overflow, false},
		"a panic":             {"e7", "", episode.Fault{}, false},
		"a row left out":      {"", "e7", episode.Fault{}, false},
		"only what is begun":  {begun: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &choir{begun: c.begun, poison: c.poison, fault: c.fault, unbegun: c.unbegun}
				s, err := New(Config{
					Endpoints: []Endpoint{{Name: "a", Model: m, Extender: m, Lister: m, Rows: 8, Begun: c.begun}}, Rules: Rules{MaxAttempts: 1},
					Trace: Trace{Down: func(string, *episode.Fault, time.Duration) {
						t.Error("one list failed, and the endpoint is taken for dead")
					}},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				var all sync.WaitGroup
				retried := atomic.Int64{}
				for i := range 40 {
					all.Go(func() {
						c := &episode.Call{ID: fmt.Sprint(i), Episode: fmt.Sprint("e", i), Group: fmt.Sprint(i), Want: 4000, PromptTokens: 3, PromptExact: true}
						r, turn, err := s.Generate(t.Context(), c, episode.Budget{})
						if err != nil {
							t.Errorf("%s: %v", c.Episode, err)
							return
						}
						if n := len(strings.Fields(r.Message.Text())); n != m.tokens(c) || int(*turn.CompletionTokens) != n || r.SampledIDs != nil {
							t.Errorf("%s: %d words of %d, %d counted, ids %v", c.Episode, n, m.tokens(c), *turn.CompletionTokens, r.SampledIDs != nil)
						}
						if turn.Retries > 0 {
							retried.Add(1)
						}
					})
				}
				all.Wait()
				if m.lists.Load() == 0 || m.rows.Load() < 2*m.lists.Load() {
					t.Errorf("%d lists of %d rows", m.lists.Load(), m.rows.Load())
				}
				if n := retried.Load(); (n > 0) != (c.poison+c.unbegun != "") || n > 8 || c.unbegun != "" && n != 1 {
					t.Errorf("%d calls were tried again", n)
				}
			})
		})
	}
}

// A list goes on for as long as one of its rows is waited for, and no longer.
func TestListsEndWithTheLastWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &choir{hangs: true}
		s, err := New(Config{Endpoints: []Endpoint{{Name: "a", Model: m, Extender: m, Lister: m, Rows: 2}}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+9*i)*time.Second)
				defer cancel()
				c := &episode.Call{ID: fmt.Sprint(i), Episode: fmt.Sprint("e", i), Group: fmt.Sprint(i), Want: 4000, PromptTokens: 3, PromptExact: true}
				began := time.Now()
				_, _, err := s.Generate(ctx, c, episode.Budget{})
				if f := episode.AsFault(episode.StageModel, err); f == nil || f.Class != episode.ClassCancelled || time.Since(began) > time.Duration(2+9*i)*time.Second {
					t.Errorf("call %d: %v after %v", i, err, time.Since(began))
				}
				if i == 0 && m.broken.Load() {
					t.Error("the list ended with the first who gave up")
				}
			})
		}
		all.Wait()
		synctest.Wait()
		if !m.broken.Load() {
			t.Error("the list goes on and nobody waits for it")
		}
	})
}
