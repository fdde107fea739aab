package storage

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// A keySet holds what a map would.
func TestKeySetIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s keySet
		want := map[key]bool{}
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			var k key
			binary.BigEndian.PutUint16(k[:], uint16(rapid.IntRange(0, 3).Draw(t, "shard"))) // few shards, so that they grow
			k[15] = rapid.Byte().Draw(t, "k")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				s.remove(k)
				delete(want, k)
			default:
				if s.add(k) == want[k] {
					t.Fatalf("%x: new and there, or neither", k)
				}
				want[k] = true
			}
			if s.has(k) != want[k] || s.len() != len(want) {
				t.Fatalf("%x: %v, %d keys; want %v, %d", k, s.has(k), s.len(), want[k], len(want))
			}
		}
	})
}

// TestKeySetIsSmall counts what the set itself holds: the heap's total moves with whatever else runs in the process.
func TestKeySetIsSmall(t *testing.T) {
	const n = 200_000
	rng := rand.New(rand.NewPCG(1, 1))
	s := new(keySet)
	for range n {
		var k key
		binary.BigEndian.PutUint64(k[:], rng.Uint64())
		binary.BigEndian.PutUint64(k[8:], rng.Uint64())
		s.add(k)
	}
	bytes := unsafe.Sizeof(*s)
	for _, shard := range s.shards {
		bytes += uintptr(cap(shard)) * unsafe.Sizeof(key{})
	}
	if each := float64(bytes) / n; s.len() != n || each > 24 {
		t.Errorf("%d keys of %.1f bytes each; want %d of at most 24", s.len(), each, n)
	} else {
		t.Logf("%.1f bytes a key", each)
	}
}
