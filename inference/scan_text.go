package inference

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// This file reads JSON strings. Most of an answer is one, or a thousand small ones.

// quoted takes a string as it stands between its quotes, and checks it as encoding/json does: no control characters, no unknown escapes.
func (s *scan) quoted() (inner []byte, ok bool) {
	if !s.byte('"') {
		return nil, false
	}
	b, i := s.b, s.at
	for {
		if i = plainEnd(b, i); i == len(b) {
			return nil, false
		}
		if b[i] == '"' {
			inner, s.at = b[s.at:i], i+1
			return inner, true
		}
		n := escapeLength(b[i:])
		if n == 0 {
			return nil, false
		}
		i += n
	}
}

// text takes a string and decodes it as type text does. Where there is nothing to decode the text is the very bytes that were read.
func (s *scan) text() (t text, ok bool) {
	if !s.byte('"') {
		return nil, false
	}
	end := plainEnd(s.b, s.at)
	if end == len(s.b) {
		return nil, false
	}
	if s.b[end] != '"' {
		return s.decoded(end)
	}
	t = text(s.b[s.at:end:end])
	s.at = end + 1
	return t, true
}

// decoded reads a string that has escapes, from its first on, into the room. No text is longer than what stands for it.
func (s *scan) decoded(first int) (text, bool) {
	from := len(s.room.texts)
	s.room.texts = slices.Grow(s.room.texts, len(s.b)-s.at+8) // 8: a word is copied at a time
	out, n := s.room.texts[:cap(s.room.texts)], from
	n += copy(out[n:], s.b[s.at:first])
	b, i := s.b, first
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			s.room.texts, s.at = out[:n], i+1
			return text(out[from:n:n]), true
		case c < ' ':
			return nil, false
		case c != '\\':
			moved := copyPlain(out[n:], b[i:])
			n, i = n+moved, i+moved
		case i+1 == len(b):
			return nil, false
		case b[i+1] == 'u':
			more, rest, err := unescapeUnicode(out[:n], b[i+1:])
			if err != nil {
				return nil, false
			}
			n, i = len(more), len(b)-len(rest)
		default:
			if out[n] = escaped(b[i+1]); out[n] == 0 {
				return nil, false
			}
			n, i = n+1, i+2
		}
	}
	return nil, false
}

const (
	eachByte = 0x0101010101010101
	topBits  = 0x8080808080808080
)

// special marks, by their top bits, the bytes of x below a space, quotes and backslashes; of bytes beyond ASCII it may mark any. The lowest
// mark among ASCII is exact: a borrow spoils only those above it.
func special(x uint64) uint64 {
	return (x - eachByte*' ') | (x ^ eachByte*'"' - eachByte) | (x ^ eachByte*'\\' - eachByte)
}

// plainRun is how many bytes at the start of b are ASCII that stands for itself in a JSON string; eight are looked at at a time.
func plainRun(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		if marks := (x | special(x)) & topBits; marks != 0 {
			return i + bits.TrailingZeros64(marks)/8
		}
	}
	for ; i < len(b) && isPlain(b[i]); i++ {
	}
	return i
}

func isPlain(c byte) bool { return c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf }

// plainEnd is where the first byte from i on lies that does not stand for itself; bytes beyond ASCII do.
func plainEnd(b []byte, i int) int {
	for {
		i += plainRun(b[i:])
		if i == len(b) || b[i] < utf8.RuneSelf {
			return i
		}
		for i < len(b) && b[i] >= utf8.RuneSelf {
			i++
		}
	}
}

// copyPlain copies what stands for itself at the start of from, at least a byte, and says how much. to has room for eight bytes more than from has;
// what lies behind the copy is written over.
func copyPlain(to, from []byte) int {
	i := 0
	for ; i+8 <= len(from); i += 8 {
		x := binary.LittleEndian.Uint64(from[i:])
		binary.LittleEndian.PutUint64(to[i:], x)
		if marks := (x | special(x)) & topBits; marks != 0 {
			i += bits.TrailingZeros64(marks) / 8
			for ; i < len(from) && from[i] >= utf8.RuneSelf; i++ {
				to[i] = from[i]
			}
			return i
		}
	}
	for ; i < len(from) && (isPlain(from[i]) || from[i] >= utf8.RuneSelf); i++ {
		to[i] = from[i]
	}
	return i
}

// escaped is what a letter behind a backslash stands for; 0 = nothing. u is apart.
func escaped(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return 0
}

// escapeLength is how long the escape at the start of b is; 0 = it is none.
func escapeLength(b []byte) int {
	switch {
	case b[0] != '\\' || len(b) < 2:
		return 0
	case b[1] != 'u':
		if escaped(b[1]) == 0 {
			return 0
		}
		return 2
	case len(b) < 6:
		return 0
	}
	if _, ok := hex4(b[1:]); !ok {
		return 0
	}
	return 6
}
