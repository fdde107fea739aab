package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
	"tranche/episode"
)

// TestEveryInstantIsAccountedForOnce: whatever happens, the bounds of every replica make up all the time there was, and no more calls
// are in the account than may be in flight.
func TestEveryInstantIsAccountedForOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.Uint64().Draw(t, "seed"))
		for i := range rapid.IntRange(1, 40).Draw(t, "episodes") {
			id := fmt.Sprintf("%c%d", 'a'+rune(w.rnd.IntN(5)), i)
			w.left[id] = 1 + w.rnd.IntN(4)
			w.offer(id)
			if w.rnd.IntN(4) > 0 {
				w.step(t)
			}
		}
		w.core.NoMore()
		for w.pending > 0 || len(w.acting) > 0 {
			w.step(t)
		}
		for i, a := range w.core.Accounts(w.now) {
			if a.Total() != w.now {
				w.fatal(t, "%s accounts for %v of %v: %v", a.Endpoint, a.Total(), w.now, a.Spent)
			}
			if most := w.core.replicas[i].MaxCalls; a.Calls < 0 || most > 0 && a.MeanCalls() > float64(most) {
				w.fatal(t, "%s had %v calls in flight on average of at most %d", a.Endpoint, a.MeanCalls(), most)
			}
		}
		if w.core.acting != 0 || w.core.scoring != 0 {
			w.fatal(t, "%d episodes act and %d are graded when all have left", w.core.acting, w.core.scoring)
		}
	})
}

func TestAdviceIsOneSentenceForEachBoundThatMattered(t *testing.T) {
	var a Account
	if said := a.Advice(); len(said) != 0 {
		t.Errorf("no time, and advice %q", said)
	}
	a.Spent[BoundKV], a.Spent[BoundTail], a.Spent[BoundDown] = 71*time.Second, 24*time.Second, 5*time.Second
	said := a.Advice()
	if len(said) != 2 || !strings.HasPrefix(said[0], "71 % of the time bound by KV memory") || !strings.HasPrefix(said[1], "24 % of the time in the tail") {
		t.Errorf("%q", said)
	}
	for _, b := range AllBounds() {
		var one Account
		one.Spent[b] = time.Second
		if said := one.Advice(); len(said) != 1 || b.String() == "" {
			t.Errorf("%v: %q", b, said)
		}
	}
}

// gaugeFunc is a gauge that is a function.
type gaugeFunc func(context.Context) (episode.Load, error)

func (g gaugeFunc) Load(ctx context.Context) (episode.Load, error) { return g(ctx) }

// A reading that hangs ends with Close, and Close waits for it: a goroutine left behind would fail the test.
func TestCloseEndsAReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began, ended time.Time
		e := fleet(&scripted{})
		e[0].Gauge = gaugeFunc(func(ctx context.Context) (episode.Load, error) {
			began = time.Now()
			<-ctx.Done()
			ended = time.Now()
			return episode.Load{}, context.Cause(ctx)
		})
		s, err := New(Config{Endpoints: e, GaugeEvery: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(61 * time.Second)
		s.Close()
		if began.IsZero() || ended.Sub(began) != time.Second {
			t.Errorf("the reading took from %v to %v, want one second", began, ended)
		}
	})
}

// slowScorer takes a second to grade.
type slowScorer struct{ oneScorer }

func (s slowScorer) Score(ctx context.Context, e *episode.Episode) (episode.Verdict, error) {
	time.Sleep(4 * time.Second)
	return s.oneScorer.Score(ctx, e)
}

// Five episodes of 10 s, two calls at once and three open at once, graded in 4 s: the shell accounts for every second of it.
func TestTheShellAccountsForARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return says("", 20), 10 * time.Second, nil
		}}
		s, err := New(Config{Endpoints: fleet(m), Concurrency: 2})
		if err != nil {
			t.Fatal(err)
		}
		rollout := &Rollout{Sched: s, Scorer: slowScorer{}}
		if _, err := Run(t.Context(), RunConfig{Source: &list{n: 5, samples: 1}, MaxOpen: 3, Rollout: rollout, Sink: &memory{}, Open: open(episode.Budget{TurnTokens: 64})}); err != nil {
			t.Fatal(err)
		}
		all := s.Accounts()
		s.Close()
		if len(all) != 1 || all[0].Endpoint != "m0" {
			t.Fatalf("%+v", all)
		}
		// 0-10 s: two calls run and the third waits. -14: the third alone, two are graded. -20: it and a new one, the last waits. -30: the last
		// ones run. -34: they are graded.
		var want [bounds]time.Duration
		want[BoundCalls], want[BoundActions], want[BoundTail] = 16*time.Second, 8*time.Second, 10*time.Second
		if all[0].Spent != want {
			t.Errorf("%v, want %v", all[0].Spent, want)
		}
		if all[0].Calls != 50*time.Second {
			t.Errorf("%v in flight, want five calls of 10 s", all[0].Calls)
		}
		if s.Accounts() != nil {
			t.Error("accounts after Close")
		}
	})
}
