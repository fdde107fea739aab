package bucketing

import (
	"errors"
	"fmt"
	"slices"
	"sort"
)

// Ladder maps a length in tokens to a class. Class i holds lengths in (Bounds[i-1], Bounds[i]]; the last class,
// len(Bounds), holds everything longer.
type Ladder struct {
	bounds []int
}

// DefaultBounds are powers of two from 256 tokens to 128 Ki tokens: a class is at most a factor of two wide, so that the
// longest call of a class costs at most twice the memory of the shortest.
func DefaultBounds() []int {
	var b []int
	for n := 256; n <= 128<<10; n *= 2 {
		b = append(b, n)
	}
	return b
}

// MaxClasses is the greatest number of classes a ladder may have.
const MaxClasses = 31

// NewLadder makes a ladder from ascending upper bounds in tokens; nil means DefaultBounds.
func NewLadder(bounds []int) (Ladder, error) {
	if bounds == nil {
		bounds = DefaultBounds()
	}
	if len(bounds) >= MaxClasses {
		return Ladder{}, fmt.Errorf("class bounds: %d given, at most %d can be used", len(bounds), MaxClasses-1)
	}
	for i, b := range bounds {
		if b <= 0 {
			return Ladder{}, fmt.Errorf("class bounds: %d is not a positive number of tokens", b)
		}
		if i > 0 && b <= bounds[i-1] {
			return Ladder{}, errors.New("class bounds must ascend: " + fmt.Sprint(bounds))
		}
	}
	return Ladder{bounds: slices.Clone(bounds)}, nil
}

// Class is the class of a length in tokens.
func (l Ladder) Class(tokens int) int { return sort.SearchInts(l.bounds, tokens) }

// Classes is the number of classes.
func (l Ladder) Classes() int { return len(l.bounds) + 1 }

// Bounds returns the upper bounds, for display.
func (l Ladder) Bounds() []int { return slices.Clone(l.bounds) }
