package taskfile

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// idTable remembers which ids were seen and with what content, in at most 24 bytes an id: 63 bits of a hash of the id and 64 of
// the content hash. Two different ids among a million share their bits with a chance of 5 in 10^8; they would be reported as a
// duplicate id, never merged without a word, because their content differs.
//
// It is open addressing with linear probing in shards that grow by a quarter: doubling one large table would spend up to twice
// the room, and hold old and new at once.
type idTable struct{ shards [64]shard }

type shard struct {
	slots []slot
	used  int
}

// slot holds one id; id 0 means empty.
type slot struct{ id, content uint64 }

// verdict is what the table says about an id and its content.
type verdict int

const (
	fresh     verdict = iota // not seen before; remembered now
	duplicate                // seen before with the same content
	conflict                 // seen before with other content
)

// add looks an id up and remembers it when it is new. content is the hex content hash.
func (t *idTable) add(id, content string) verdict {
	k := slot{short(id) | 1, short(content)} // |1: never the empty mark
	s := &t.shards[k.id>>58]
	if s.used*20 >= len(s.slots)*17 { // 85 % full
		s.grow()
	}
	at := s.find(k.id)
	switch have := s.slots[at]; {
	case have.id == 0:
		s.slots[at] = k
		s.used++
		return fresh
	case have.content == k.content:
		return duplicate
	}
	return conflict
}

// find returns the slot of id: its own, or the empty one where it belongs.
func (s *shard) find(id uint64) int {
	hi, _ := bits.Mul64(id<<6, uint64(len(s.slots))) // the top bits chose the shard
	at := int(hi)
	for s.slots[at].id != 0 && s.slots[at].id != id {
		if at++; at == len(s.slots) {
			at = 0
		}
	}
	return at
}

func (s *shard) grow() {
	old := s.slots
	s.slots = make([]slot, len(old)+max(len(old)/4, 16))
	for _, k := range old {
		if k.id != 0 {
			s.slots[s.find(k.id)] = k
		}
	}
}

// bytes is the room the table takes.
func (t *idTable) bytes() int {
	n := 0
	for i := range t.shards {
		n += len(t.shards[i].slots) * 16
	}
	return n
}

func short(s string) uint64 {
	h := sha256.Sum256([]byte(s))
	return binary.BigEndian.Uint64(h[:8])
}
