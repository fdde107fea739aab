package enginesim

import (
	"fmt"
	"strings"
)

// Tokenizer turns text into token ids and back. It needs no model file: 256 byte tokens, three special tokens and a few
// thousand pieces of English, matched greedily from the left, longest first. Decode(Encode(x)) == x for any bytes, and an
// encoding cut after any token encodes to that same cut, so what a length limit cut off can be sent back exactly.
// It is immutable and safe for concurrent use.
type Tokenizer struct {
	pieces []string
	first  [256]int32       // node reached by a first byte
	edges  map[uint32]int32 // node<<8 | byte → node
	ends   []int32          // token that ends at a node, -1 for none
}

// NewTokenizer builds the tokenizer; every instance is equal.
func NewTokenizer() *Tokenizer {
	t := &Tokenizer{pieces: vocabulary(), edges: make(map[uint32]int32, 16384), ends: []int32{-1}}
	for id, p := range t.pieces {
		if id := int32(id); id < imStart || id >= firstWord {
			t.plant(p, id)
		}
	}
	return t
}

func (t *Tokenizer) plant(piece string, id int32) {
	var node int32
	for i := range len(piece) {
		next := t.follow(node, piece[i])
		if next == 0 {
			next = int32(len(t.ends))
			t.ends = append(t.ends, -1)
			if node == 0 {
				t.first[piece[i]] = next
			} else {
				t.edges[uint32(node)<<8|uint32(piece[i])] = next
			}
		}
		node = next
	}
	t.ends[node] = id
}

// follow returns the node after one more byte, 0 for none (nothing leads back to the root).
func (t *Tokenizer) follow(node int32, b byte) int32 {
	if node == 0 {
		return t.first[b]
	}
	return t.edges[uint32(node)<<8|uint32(b)]
}

// Size is the number of tokens; valid ids are 0 … Size-1.
func (t *Tokenizer) Size() int { return len(t.pieces) }

// Encode turns text into ids; the names of special tokens become special tokens, as servers do with a raw prompt.
func (t *Tokenizer) Encode(text string) []int32 {
	ids := make([]int32, 0, len(text)/3+4)
	for text != "" {
		at, id := nextSpecial(text)
		ids = t.appendPlain(ids, text[:at])
		if id < 0 {
			break
		}
		ids = append(ids, id)
		text = text[at+len(t.pieces[id]):]
	}
	return ids
}

// nextSpecial finds the first special token in text: its offset and id, or len(text) and -1.
func nextSpecial(text string) (at int, id int32) {
	at, id = len(text), -1
	for i, s := range specials() {
		if j := strings.Index(text[:min(len(text), at+len(s))], s); j >= 0 && j < at {
			at, id = j, imStart+int32(i)
		}
	}
	return at, id
}

// EncodePlain turns text into ids and takes the names of special tokens for ordinary text, as is right for what users and
// tools said: nobody can end a message from within.
func (t *Tokenizer) EncodePlain(text string) []int32 {
	return t.appendPlain(make([]int32, 0, len(text)/3+4), text)
}

func (t *Tokenizer) appendPlain(ids []int32, text string) []int32 {
	for i := 0; i < len(text); {
		id, n := t.longest(text[i:])
		ids = append(ids, id)
		i += n
	}
	return ids
}

// longest returns the longest token that text begins with. Every single byte is a token, so there always is one.
func (t *Tokenizer) longest(text string) (id int32, n int) {
	node := t.first[text[0]]
	id, n = t.ends[node], 1
	for i := 1; i < len(text); i++ {
		node = t.edges[uint32(node)<<8|uint32(text[i])]
		if node == 0 {
			break
		}
		if e := t.ends[node]; e >= 0 {
			id, n = e, i+1
		}
	}
	return id, n
}

// Decode returns the bytes that ids stand for, special tokens by their names. Ids outside the vocabulary are a caller's bug;
// use Check on ids from outside.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(t.pieces[id])
	}
	return b.String()
}

// Check reports the first id that is no token.
func (t *Tokenizer) Check(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= len(t.pieces) {
			return fmt.Errorf("token id %d at position %d is out of vocabulary (0 … %d)", id, i, len(t.pieces)-1)
		}
	}
	return nil
}

func special(id int32) bool { return id >= imStart && id < firstWord }
