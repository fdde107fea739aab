package bucketing

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestLadderClass(t *testing.T) {
	l, err := NewLadder([]int{100, 200, 400})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tokens, class int }{{0, 0}, {1, 0}, {100, 0}, {101, 1}, {200, 1}, {201, 2}, {400, 2}, {401, 3}, {1 << 30, 3}} {
		if got := l.Class(c.tokens); got != c.class {
			t.Errorf("Class(%d) = %d, want %d", c.tokens, got, c.class)
		}
	}
	if l.Classes() != 4 {
		t.Errorf("Classes() = %d, want 4", l.Classes())
	}
}

func TestLadderRefusesNonsense(t *testing.T) {
	for name, b := range map[string][]int{
		"zero": {0, 1}, "negative": {-1}, "equal": {5, 5}, "descending": {5, 4}, "too many": make([]int, MaxClasses),
	} {
		if _, err := NewLadder(b); err == nil {
			t.Errorf("%s: NewLadder(%v) gave no error", name, b)
		}
	}
}

func TestLadderIsMonotone(t *testing.T) {
	l, _ := NewLadder(nil)
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.IntRange(0, 1<<20).Draw(t, "a"), rapid.IntRange(0, 1<<20).Draw(t, "b")
		if a <= b && l.Class(a) > l.Class(b) {
			t.Fatalf("Class(%d) = %d > Class(%d) = %d", a, l.Class(a), b, l.Class(b))
		}
	})
}

// Queues against the obvious model: one slice per level.
func TestQueuesLikeSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queues[int]
		model := map[int][]int{}
		items := map[int]*Item[int]{}
		for i := range rapid.IntRange(1, 200).Draw(t, "ops") {
			level := rapid.IntRange(0, 63).Draw(t, "level")
			switch {
			case rapid.Bool().Draw(t, "push"):
				items[i] = q.Push(level, i)
				model[level] = append(model[level], i)
			case len(model[level]) > 0:
				k := rapid.IntRange(0, len(model[level])-1).Draw(t, "which")
				v := model[level][k]
				items[v].Remove()
				items[v].Remove() // twice is once
				model[level] = slices.Delete(model[level], k, k+1)
			}
		}
		total := 0
		want := -1
		for level, vs := range model {
			total += len(vs)
			if len(vs) == 0 {
				if q.Head(level) != nil {
					t.Fatalf("level %d should be empty", level)
				}
				continue
			}
			want = max(want, level)
			if got := q.Head(level); got == nil || got.Value != vs[0] {
				t.Fatalf("head of level %d is not %d", level, vs[0])
			}
		}
		if q.Len() != total || q.Below(64) != want {
			t.Fatalf("Len %d want %d, highest %d want %d", q.Len(), total, q.Below(64), want)
		}
	})
}

func TestLengthsShrinkTowardsTheWhole(t *testing.T) {
	l := Lengths[string]{Prior: 100}
	if got := l.Mean("a"); got != 100 {
		t.Fatalf("before anything: %v, want the prior 100", got)
	}
	for range 1000 {
		l.Add("a", 50)
	}
	l.Add("b", 5000)
	if got := l.Mean("b"); got > 1000 {
		t.Errorf("one long observation of a cell must not rule it: mean %v", got)
	}
	if got := l.Mean("a"); math.Abs(got-50) > 2 {
		t.Errorf("a thousand observations must rule: mean %v, want about 50", got)
	}
}

func TestLengthsDeviation(t *testing.T) {
	var l Lengths[int]
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		l.Add(1, int(1000+100*r.NormFloat64()))
	}
	if d := l.Deviation(1); math.Abs(d-100) > 3 {
		t.Errorf("deviation %v, want about 100", d)
	}
}
