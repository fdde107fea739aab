package workpool

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func value(v int, err error) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { return v, err }
}

func TestHowWorkEnds(t *testing.T) {
	no := errors.New("no")
	for name, c := range map[string]struct {
		work func(context.Context) (int, error)
		how  How
		want int
		err  error
	}{
		"returns":          {value(7, nil), Finished, 7, nil},
		"returns an error": {value(0, no), Finished, 0, no},
		"panics":           {func(context.Context) (int, error) { panic("boom") }, Panicked, 0, nil},
		"stops when told": {func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 3, nil
		}, TimedOut, 3, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(1, 1)
				e := Start(t.Context(), p, time.Second, nil, c.work).Wait()
				if e.How != c.how || e.Value != c.want || e.Err != c.err {
					t.Errorf("how %d, value %d, error %v", e.How, e.Value, e.Err)
				}
				if c.how == Panicked && !strings.Contains(e.Panicked, "boom at pool_test.go:") {
					t.Errorf("panicked %q: it does not say where", e.Panicked)
				}
				if n := p.Close(); n != 0 {
					t.Errorf("%d abandoned", n)
				}
			})
		})
	}
}

// Work that is deaf to its deadline is abandoned: its worker takes the next, and the count falls when it ends after all.
func TestDeafWorkIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 4)
		release, ended := make(chan struct{}), 0
		deaf := Start(t.Context(), p, time.Second, func() { ended++ }, func(context.Context) (int, error) { <-release; return 1, nil })
		began := time.Now()
		next := Start(t.Context(), p, time.Second, nil, value(2, nil))
		if e := deaf.Wait(); e.How != TimedOut || e.Returned {
			t.Errorf("%+v", e)
		}
		if e := next.Wait(); e.How != Finished || e.Value != 2 || time.Since(began) != time.Second+Grace {
			t.Errorf("%+v after %v", e, time.Since(began))
		}
		if p.Abandoned() != 1 || p.Running() != 0 {
			t.Errorf("%d abandoned, %d running", p.Abandoned(), p.Running())
		}
		close(release)
		synctest.Wait()
		if p.Abandoned() != 0 || ended != 1 {
			t.Errorf("%d abandoned after it ended, told %d times", p.Abandoned(), ended)
		}
		p.Close()
	})
}

// A full pool is waited for no longer than the caller's context, and a closed one takes nothing.
func TestWaitingForRoomEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 0)
		busy := Start(t.Context(), p, time.Hour, nil, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if e := Start(ctx, p, time.Hour, nil, value(1, nil)).Wait(); e.How != Cancelled || time.Since(began) != time.Second {
			t.Errorf("%+v after %v", e, time.Since(began))
		}
		p.Close()
		if e := busy.Wait(); e.How != Cancelled {
			t.Errorf("closing left it as %+v", e)
		}
		if e := Start(t.Context(), p, time.Hour, nil, value(1, nil)).Wait(); e.How != Cancelled {
			t.Errorf("a closed pool ran it: %+v", e)
		}
	})
}
