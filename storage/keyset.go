package storage

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// keySet is a set of keys in little more than the 16 bytes of each; a map takes three to four times that, and a run has a key for every row. It is
// for keys that are spread evenly, as those of ids are. The zero value is empty.
type keySet struct {
	shards [keyShards][]key // by the first bits of a key, each in order
	n      int
}

const keyShards = 1 << 10

// find is where a key is, or belongs.
func (s *keySet) find(k key) (shard *[]key, at int, has bool) {
	shard = &s.shards[int(binary.BigEndian.Uint16(k[:]))%keyShards]
	at, has = slices.BinarySearchFunc(*shard, k, func(a, b key) int { return bytes.Compare(a[:], b[:]) })
	return shard, at, has
}

func (s *keySet) has(k key) bool {
	_, _, has := s.find(k)
	return has
}

// add reports whether the key is new.
func (s *keySet) add(k key) bool {
	shard, at, has := s.find(k)
	if !has {
		*shard = slices.Insert(*shard, at, k)
		s.n++
	}
	return !has
}

func (s *keySet) remove(k key) {
	if shard, at, has := s.find(k); has {
		*shard = slices.Delete(*shard, at, at+1)
		s.n--
	}
}

func (s *keySet) len() int { return s.n }
