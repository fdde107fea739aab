package inference

import (
	"bytes"
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

// mostShort is how much of a text is looked at in one go with what ends it, bytes: few tokens are longer.
const mostShort = 32

// text takes a string and decodes it as type text does. Where there is nothing to decode the text is the very bytes that were read.
func (s *scan) text() (text, bool) {
	if !s.byte('"') {
		return nil, false
	}
	b, from := s.b, s.at
	if end := from + plainRun(b[from:min(from+mostShort, len(b))]); end < len(b) && b[end] == '"' {
		s.at = end + 1
		return text(b[from:end:end]), true
	}
	end := indexFrom(b, from, '"')
	if end < 0 {
		return nil, false
	}
	t := text(b[from:end:end])
	if bytes.IndexByte(t, '\\') >= 0 {
		var ok bool
		if t, end, ok = s.decoded(end); !ok {
			return nil, false
		}
	}
	s.at = end + 1
	return t, !hasControls(b[from:end])
}

// decoded reads a string that has escapes into the room; end is where its first quote lies, and then its last. No text is longer than what
// stands for it.
func (s *scan) decoded(end int) (text, int, bool) {
	b, at, from := s.b, s.at, len(s.room.texts)
	out := slices.Grow(s.room.texts, len(b)-at)
	for {
		n := bytes.IndexByte(b[at:end], '\\')
		if n < 0 {
			out = append(out, b[at:end]...)
			s.room.texts = out
			return text(out[from:len(out):len(out)]), end, true
		}
		out, at = append(out, b[at:at+n]...), at+n+1
		if c := b[at]; c == 'n' { // there is one behind each backslash before a quote
			out, at = append(out, '\n'), at+1
			continue
		}
		more, rest, err := unescape(out, b[at:])
		if err != nil {
			return nil, 0, false
		}
		if out, at = more, len(b)-len(rest); at > end { // the quote was escaped
			if end = indexFrom(b, at, '"'); end < 0 {
				return nil, 0, false
			}
		}
	}
}

// indexFrom is where the first c from a place on lies; -1 = nowhere.
func indexFrom(b []byte, from int, c byte) int {
	i := bytes.IndexByte(b[from:], c)
	if i < 0 {
		return -1
	}
	return from + i
}

// hasControls reports a byte below a space.
func hasControls(b []byte) bool {
	const spaces = eachByte * ' '
	for ; len(b) >= 32; b = b[32:] {
		w, x, y, z := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
		if ((w-spaces)&^w|(x-spaces)&^x|(y-spaces)&^y|(z-spaces)&^z)&topBits != 0 {
			return true
		}
	}
	for _, c := range b {
		if c < ' ' {
			return true
		}
	}
	return false
}

const (
	eachByte = 0x0101010101010101
	topBits  = 0x8080808080808080
)

// plainRun is how many bytes at the start of b are ASCII that stands for itself in a JSON string; eight are looked at at a time.
func plainRun(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		// A byte is marked when it is beyond ASCII, below a space, a quote or a backslash. The lowest mark is exact: a borrow spoils only
		// those above it.
		marks := (x | (x - eachByte*' ') | (x ^ eachByte*'"' - eachByte) | (x ^ eachByte*'\\' - eachByte)) & topBits
		if marks != 0 {
			return i + bits.TrailingZeros64(marks)/8
		}
	}
	for ; i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' && b[i] < utf8.RuneSelf; i++ {
	}
	return i
}

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
