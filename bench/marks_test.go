package bench

import (
	"testing"

	"pgregory.net/rapid"
	"tranche/scheduler"
)

// TestMarksTellWhatIsShared: two episodes have a mark in common exactly where their prefixes are equal so far, and the longest mark they have
// in common covers two thirds of what they share from 256 tokens on.
func TestMarksTellWhatIsShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segment := rapid.Custom(func(t *rapid.T) Segment {
			return Segment{rapid.Uint64Range(1, 1000).Draw(t, "salt"), rapid.IntRange(1, 128).Draw(t, "tokens")}
		})
		same := rapid.SliceOfN(segment, 0, 200).Draw(t, "same")
		with := func(salt uint64) Episode {
			return Episode{Prefix: append(same[:len(same):len(same)], Segment{salt, 100}, Segment{3, 100})}
		}
		a, b := with(1001), with(1002)
		shared := tokensBefore(same)
		longest := 0
		for _, m := range a.marks() {
			for _, o := range b.marks() {
				if m.Hash != o.Hash {
					continue
				}
				if m.Tokens != o.Tokens || m.Tokens > shared {
					t.Fatalf("a mark at %d and %d tokens is common; %d tokens are", m.Tokens, o.Tokens, shared)
				}
				longest = max(longest, m.Tokens)
			}
		}
		if shared >= 512 && float64(longest) < float64(shared)/1.6-128 {
			t.Fatalf("%d tokens are common, the marks tell of %d", shared, longest)
		}
		if m := a.marks(); m[len(m)-1] != (scheduler.Mark{Hash: m[len(m)-1].Hash, Tokens: a.PrefixTokens()}) {
			t.Fatalf("the last mark is %v of %d tokens", m[len(m)-1], a.PrefixTokens())
		}
	})
}

func tokensBefore(s []Segment) int { return Episode{Prefix: s}.PrefixTokens() }

// TestSharedPrefixesAreComputedSeldom: on a small fleet whose replicas cannot each hold all documents, the scheduler has them computed a
// fifth as often as round robin at most, and is faster by half.
func TestSharedPrefixesAreComputedSeldom(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a fleet")
	}
	w := Prefixes(192, 8, 24, 16_000, 1)
	replicas, err := ParseReplicas("4x0.3")
	if err != nil {
		t.Fatal(err)
	}
	f := Fleet{Replicas: replicas, MaxOpen: 128, Seed: 1}
	policies, err := Named([]string{"tranche", "flood"})
	if err != nil {
		t.Fatal(err)
	}
	var got [2]Result
	for i, c := range policies {
		p, err := c.New(f.Tell(w))
		if err != nil {
			t.Fatal(err)
		}
		if got[i], err = f.Play(w, p); err != nil {
			t.Fatal(err)
		}
	}
	if mine, theirs := got[0].Recomputed(), got[1].Recomputed(); mine > theirs/5 {
		t.Errorf("prompts were computed %.2f times, by round robin %.2f times", mine, theirs)
	}
	if x := got[1].Makespan.Seconds() / got[0].Makespan.Seconds(); x < 1.5 {
		t.Errorf("%.2f times round robin", x)
	}
}
