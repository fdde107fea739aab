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
		case r.Call.Episode == m.poison:
			return nil, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassServerError, Retry: true, Cause: errors.New("scripted")}
		case r.SoFar == nil:
			out = append(out, m.answer(r.Call, 0, maxTokens))
		default:
			out = append(out, r.SoFar.Join(m.answer(r.Call, len(r.SoFar.SampledIDs), maxTokens)))
		}
	}
	return out, nil
}

// A batch goes out as lists; when one of its rows fails them, every row is tried again on its own, and all end well.
func TestBatchesGoOutAsLists(t *testing.T) {
	for name, poison := range map[string]string{"well": "", "one is poison": "e7"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &choir{poison: poison}
				s, err := New(Config{Endpoints: []Endpoint{{Name: "a", Model: m, Extender: m, Lister: m, Rows: 8}}})
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
				if n := retried.Load(); (n > 0) != (poison != "") || n > 8 {
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
