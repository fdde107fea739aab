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
	// A trie over the pieces. Its first two levels are one table, since most of a text is decided there; node 0 = none.
	pairs []int32 // first byte<<8 | second byte → node
	nodes []node
}

type node struct {
	token int32 // that ends here, -1 for none
	edges []edge
}

type edge struct {
	by byte
	to int32
}

// NewTokenizer builds the tokenizer; every instance is equal.
func NewTokenizer() *Tokenizer {
	t := &Tokenizer{pieces: vocabulary(), pairs: make([]int32, 1<<16), nodes: make([]node, 1, 8192)}
	for id, p := range t.pieces {
		if len(p) > 1 && !special(int32(id)) {
			t.plant(p, int32(id))
		}
	}
	return t
}

func (t *Tokenizer) plant(piece string, id int32) {
	at := &t.pairs[pair(piece)]
	if *at == 0 {
		*at = t.grow()
	}
	n := *at
	for i := 2; i < len(piece); i++ {
		next := t.follow(n, piece[i])
		if next == 0 {
			next = t.grow()
			t.nodes[n].edges = append(t.nodes[n].edges, edge{piece[i], next})
		}
		n = next
	}
	t.nodes[n].token = id
}

func (t *Tokenizer) grow() int32 {
	t.nodes = append(t.nodes, node{token: -1})
	return int32(len(t.nodes) - 1)
}

func pair(s string) int { return int(s[0])<<8 | int(s[1]) }

// follow returns the node after one more byte, 0 for none.
func (t *Tokenizer) follow(n int32, b byte) int32 {
	for _, e := range t.nodes[n].edges {
		if e.by == b {
			return e.to
		}
	}
	return 0
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

// longest returns the longest token that text begins with. Every single byte is a token, its id the byte, so there always is
// one.
func (t *Tokenizer) longest(text string) (id int32, n int) {
	id, n = int32(text[0]), 1
	if len(text) < 2 {
		return id, n
	}
	at := t.pairs[pair(text)]
	for i := 2; at != 0; i++ {
		if token := t.nodes[at].token; token >= 0 {
			id, n = token, i
		}
		if i == len(text) {
			break
		}
		at = t.follow(at, text[i])
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
