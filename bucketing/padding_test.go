package bucketing

import (
	"math"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"
)

// padding is the lengths, each padded to the longest of its class, summed.
func padding(lengths, bounds []int) int {
	longest, count := make([]int, len(bounds)+1), make([]int, len(bounds)+1)
	for _, n := range lengths {
		k := sort.SearchInts(bounds, n)
		longest[k], count[k] = max(longest[k], n), count[k]+1
	}
	sum := 0
	for k := range longest {
		sum += longest[k] * count[k]
	}
	return sum
}

// No bounds of as many classes pad less than LeastPadding's: all of them are tried.
func TestLeastPaddingIsLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(1, 40), 1, 9).Draw(t, "lengths")
		classes := rapid.IntRange(1, 4).Draw(t, "classes")
		bounds := LeastPadding(lengths, classes)
		if len(bounds) >= classes || !sort.IntsAreSorted(bounds) {
			t.Fatalf("bounds %v for %d classes", bounds, classes)
		}
		best := math.MaxInt
		distinct := slices.Compact(slices.Sorted(slices.Values(lengths)))
		for set := range 1 << len(distinct) {
			var try []int
			for i, n := range distinct {
				if set>>i&1 == 1 {
					try = append(try, n)
				}
			}
			if len(try) < classes {
				best = min(best, padding(lengths, try))
			}
		}
		if got := padding(lengths, bounds); got != best {
			t.Fatalf("bounds %v pad %v to %d tokens, the best of %d classes to %d", bounds, lengths, got, classes, best)
		}
	})
}

func TestEqualCount(t *testing.T) {
	for name, c := range map[string]struct {
		lengths []int
		classes int
		want    []int
	}{
		"quarters":      {[]int{8, 1, 2, 7, 3, 6, 4, 5}, 4, []int{2, 4, 6}},
		"one class":     {[]int{3, 1}, 1, nil},
		"all alike":     {[]int{5, 5, 5, 5}, 3, []int{5}},
		"none":          {nil, 3, nil},
		"uneven counts": {[]int{1, 2, 3, 4, 5}, 2, []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := EqualCount(c.lengths, c.classes); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
