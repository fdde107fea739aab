package ends

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// What is kept is the stream's beginning and end, whatever pieces it came in.
func TestKeptAreHeadAndTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.IntRange(2, 20).Draw(t, "keep")
		e := Keep(keep)
		var all []byte
		for range rapid.IntRange(0, 10).Draw(t, "pieces") {
			piece := rapid.SliceOfN(rapid.Byte(), 0, 25).Draw(t, "piece")
			all = append(all, piece...)
			e.Add(piece)
		}
		half := keep / 2
		head := all[:min(half, len(all))]
		tail := all[max(len(head), len(all)-half):]
		if !bytes.Equal(e.Head(), head) || !bytes.Equal(e.Tail(), tail) || e.Total() != int64(len(all)) || e.Missing() != int64(len(all)-len(head)-len(tail)) {
			t.Fatalf("kept %q and %q of %d, %d missing; want %q and %q of %d", e.Head(), e.Tail(), e.Total(), e.Missing(), head, tail, len(all))
		}
	})
}

// A writer keeps one end, whatever pieces the stream came in.
func TestWritersKeepOneEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.IntRange(0, 10).Draw(t, "keep")
		head, tail := KeepHead(keep), KeepTail(keep)
		var all []byte
		for range rapid.IntRange(0, 10).Draw(t, "pieces") {
			piece := rapid.SliceOfN(rapid.Byte(), 0, 25).Draw(t, "piece")
			all = append(all, piece...)
			for _, w := range []*Writer{head, tail} {
				if n, err := w.Write(piece); n != len(piece) || err != nil {
					t.Fatalf("%d of %d bytes taken, %v", n, len(piece), err)
				}
			}
		}
		n := min(keep, len(all))
		if !bytes.Equal(head.Bytes(), all[:n]) || !bytes.Equal(tail.Bytes(), all[len(all)-n:]) {
			t.Fatalf("of %q and %d are kept %q and %q", all, keep, head.Bytes(), tail.Bytes())
		}
	})
}
