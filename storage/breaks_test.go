package storage

import (
	"math"
	"reflect"
	"testing"

	"tranche/episode"
)

// What a break took out of a sequence is in journal and parts; without one the column is null.
func TestBreaksAreStored(t *testing.T) {
	e := made{run: "r"}.episode(1, 0)
	e.Tokens = episode.Tokens{}
	e.Tokens.Extend([]int32{1, 2}, []int32{3, 4}, []episode.Logprob{{Value: -1, Known: true}, {Value: float32(math.Inf(-1)), Known: true}}, episode.Ptr(int32(7)))
	e.Tokens.Extend([]int32{1, 2, 9}, []int32{5}, nil, nil)
	e.Tokens.Breaks[0].Turn = 1
	want := []Broken{{Turn: 1, At: 2, TokenIDs: []int32{3, 4}, LossMask: []int8{1, 1}, Logprobs: []*float32{episode.Ptr(float32(-1)), nil}, Versions: []int32{7, 7}}}
	with, without := RowOf(e), RowOf(made{run: "r"}.episode(2, 0))
	if !reflect.DeepEqual(with.Breaks, want) || without.Breaks != nil || with.check() != nil {
		t.Fatalf("%+v and %+v", with.Breaks, without.Breaks)
	}
	payload, err := appendRow(nil, 1, keyOf(with.EpisodeID), &with)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := decodeRow(payload); err != nil || !reflect.DeepEqual(back.Breaks, want) {
		t.Fatalf("out of the journal: %+v, %v", back.Breaks, err)
	}
	rows := readPart[Row](t, writePart(t, t.TempDir(), "x", with, without))
	if len(rows) != 2 || !reflect.DeepEqual(rows[0].Breaks, want) || rows[1].Breaks != nil {
		t.Fatalf("out of the part: %+v", rows)
	}
	with.Breaks[0].LossMask = nil
	if with.check() == nil {
		t.Error("lists of unequal length pass")
	}
}
