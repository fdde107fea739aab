package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
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
