package scheduler

import (
	"testing"
	"time"

	"pgregory.net/rapid"
	"tranche/episode"
)

// reading is a server's gauges after n first tokens.
func reading(n int64, seconds float64, tokens int64) episode.Load {
	return episode.Load{Firsts: &n, FirstSeconds: &seconds, Computed: &tokens}
}

// TestFirstTokensTellOfAWaitWhateverTheServersSpeed plays servers of any speed whose times vary by less than a factor of two, then lets every
// call wait for twenty times as long: that is noticed, and nothing before it.
func TestFirstTokensTellOfAWaitWhateverTheServersSpeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		price := rapid.Float64Range(1e-6, 1e-2).Draw(t, "seconds a token")
		var f firsts
		var n, tokens int64
		var seconds float64
		next := func(times float64) bool {
			k := int64(rapid.IntRange(firstsLeast, 50).Draw(t, "calls"))
			each := int64(rapid.IntRange(0, 4000).Draw(t, "tokens"))
			n, tokens = n+k, tokens+k*each
			seconds += times * price * float64(k*(each+firstsStep))
			return f.late(reading(n, seconds, tokens))
		}
		for i := range rapid.IntRange(firstsKnown+1, 100).Draw(t, "readings") {
			if next(rapid.Float64Range(1, 2).Draw(t, "times")) {
				t.Fatalf("reading %d: late, though no call waited", i)
			}
		}
		if !next(20) {
			t.Fatal("not late, though every call waited for twenty times as long")
		}
	})
}

func TestAServerThatBecameSlowerIsTheUsualOneSoon(t *testing.T) {
	var f firsts
	n, seconds, late := int64(0), 0.0, 0
	for i := range 100 {
		n += 10
		if seconds += 0.1; i >= 20 {
			seconds += 9.9
		}
		if f.late(reading(n, seconds, 100*n)) {
			late++
		}
	}
	if late < 5 || late > 40 {
		t.Errorf("late %d times of 80, want some until it is the usual", late)
	}
}

func TestReadingsThatTellNoFirstTokensChangeNothing(t *testing.T) {
	n, s, tokens := int64(100), 1.0, int64(1000)
	for name, l := range map[string]episode.Load{
		"none":                      {Computed: &tokens},
		"no sum":                    {Firsts: &n, Computed: &tokens},
		"no count":                  {FirstSeconds: &s, Computed: &tokens},
		"no computed tokens":        {Firsts: &n, FirstSeconds: &s},
		"asked for, not computed":   {Firsts: &n, FirstSeconds: &s, PromptTokens: &tokens},
		"what was found, not asked": {Firsts: &n, FirstSeconds: &s, Hits: &tokens},
	} {
		t.Run(name, func(t *testing.T) {
			var f firsts
			for range 50 {
				n, s, tokens = n+10, s*2, tokens+10
				if f.late(l) {
					t.Fatal("late")
				}
			}
			if f != (firsts{}) {
				t.Errorf("something was learned: %+v", f)
			}
		})
	}
}

func TestAServerThatBeganAnewIsReadAnew(t *testing.T) {
	core, err := NewCore(Rules{}, []ReplicaConfig{{Name: "a", Capacity: episode.Capacity{KVTokens: 32000, ContextTokens: 32000}}})
	if err != nil {
		t.Fatal(err)
	}
	observe := func(i int, n int64, seconds float64) {
		l := reading(n, seconds, 100*n)
		l.Preemptions = episode.Ptr(int64(0))
		core.Observe(0, l, time.Duration(i)*time.Second)
	}
	for i := range 20 {
		observe(i, int64(10*i), float64(i)/10)
	}
	for i := range 20 { // its counters begin at nought again: no time between is known
		observe(20+i, int64(10*i), float64(i)/10)
	}
	if got := core.replicas[0].scale; got != 1 {
		t.Errorf("taken to hold %g of what we were told, want all", got)
	}
	observe(40, 200, 22)
	if got := core.replicas[0].scale; got != 0.99 {
		t.Errorf("taken to hold %g of what we were told after calls waited, want 0.99", got)
	}
}
