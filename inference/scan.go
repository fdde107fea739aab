package inference

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// scan reads an answer in one pass over its bytes, some ten times as fast as encoding/json. It knows the form that servers usually write;
// at anything else it gives up, and encoding/json reads the answer from its beginning. Where it does not give up it fills the very same
// fields with the same values (FuzzScan), but that null is no RawMessage.
//
// Every method reports whether it goes on; at is then behind what was read.
type scan struct {
	b    []byte
	at   int
	room *scanRoom
}

// scanRoom is memory for one wireAnswer after the other: a stream is hundreds of them, each taken before the next is read. It is lent to
// one answer at a time, and nothing of it is kept by who takes the answer.
type scanRoom struct {
	choices []wireChoice
	message wireMessage
	content content
	index   int
	lent    uint8  // which of the three above are in use: 1 message, 2 content, 4 index
	texts   []byte // those that had escapes, one behind the other
	holes   []hole // where the values stood that differ from event to event
}

// lend reports whether a piece is free, and takes it.
func (r *scanRoom) lend(piece uint8) bool {
	free := r.lent&piece == 0
	r.lent |= piece
	return free
}

// clear makes room for the next answer.
func (r *scanRoom) clear() { r.lent, r.texts, r.holes = 0, r.texts[:0], r.holes[:0] }

// forget lets go of what the last answer pointed to.
func (r *scanRoom) forget() {
	r.clear()
	clear(r.choices)
	clear(r.holes[:cap(r.holes)])
	r.message, r.content = wireMessage{}, content{}
}

// scanAnswer reads a whole answer or a chunk; false = it gave up, and w is to be thrown away. w is good until room is used again, and
// as long as data stays as it is.
func scanAnswer(data []byte, w *wireAnswer, room *scanRoom) bool {
	s := scan{b: data, room: room}
	room.clear()
	if !s.answer(w) {
		return false
	}
	s.space()
	return s.at == len(s.b)
}

func (s *scan) space() {
	for s.at < len(s.b) && (s.b[s.at] == ' ' || s.b[s.at] == '\n' || s.b[s.at] == '\t' || s.b[s.at] == '\r') {
		s.at++
	}
}

// byte takes one byte, with the space before it.
func (s *scan) byte(c byte) bool {
	s.space()
	if s.at == len(s.b) || s.b[s.at] != c {
		return false
	}
	s.at++
	return true
}

// peek is the first byte of what comes; 0 = nothing does.
func (s *scan) peek() byte {
	s.space()
	if s.at == len(s.b) {
		return 0
	}
	return s.b[s.at]
}

func (s *scan) literally(w string) bool {
	if !bytes.HasPrefix(s.b[s.at:], []byte(w)) {
		return false
	}
	s.at += len(w)
	return true
}

// null takes a null, if one comes.
func (s *scan) null() bool { return s.peek() == 'n' && s.literally("null") }

// more goes to the n-th element of a list, or key of an object, that close ends.
func (s *scan) more(n int, close byte) (more, ok bool) {
	if s.byte(close) {
		return false, true
	}
	return true, n == 0 || s.byte(',') && s.peek() != close
}

// key goes to the n-th key of an object and to its value.
func (s *scan) key(n int) (key []byte, more, ok bool) {
	if more, ok = s.more(n, '}'); !more || !ok {
		return nil, more, ok
	}
	key, ok = s.quoted()
	return key, true, ok && s.byte(':')
}

// members reads an object: read takes the value of each key, where it can.
func (s *scan) members(read func(key []byte) bool) bool {
	if !s.byte('{') {
		return false
	}
	for n := 0; ; n++ {
		key, more, ok := s.key(n)
		if !ok || !more {
			return ok
		}
		if !read(key) {
			return false
		}
	}
}

// elements reads a list: read takes the next value, where it can.
func (s *scan) elements(read func() bool) bool {
	if !s.byte('[') {
		return false
	}
	for n := 0; ; n++ {
		more, ok := s.more(n, ']')
		if !ok || !more {
			return ok
		}
		if !read() {
			return false
		}
	}
}

// once notes that a field was there: what a second one means is left to encoding/json.
func once(seen *uint32, field int) bool {
	was := *seen
	*seen |= 1 << field
	return was != *seen
}

// other takes a value nobody asked for, unless encoding/json might take its key for one that differs in case.
func (s *scan) other(key []byte) bool {
	for _, c := range key {
		if c >= utf8.RuneSelf || c >= 'A' && c <= 'Z' || c == '\\' {
			return false
		}
	}
	return s.skip(0)
}

// skip takes any value.
func (s *scan) skip(depth int) bool {
	const deepest = 100
	switch c := s.peek(); {
	case depth > deepest:
		return false
	case c == '"':
		_, ok := s.quoted()
		return ok
	case c == '{':
		return s.members(func([]byte) bool { return s.skip(depth + 1) })
	case c == '[':
		return s.elements(func() bool { return s.skip(depth + 1) })
	case c == 't':
		return s.literally("true")
	case c == 'f':
		return s.literally("false")
	case c == 'n':
		return s.literally("null")
	}
	_, ok := s.number()
	return ok
}

// number takes a number in JSON's grammar.
func (s *scan) number() (lit []byte, ok bool) {
	s.space()
	b, i := s.b, s.at
	digits := func() bool {
		from := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if zero := i < len(b) && b[i] == '0'; zero {
		i++
	} else if !digits() {
		return nil, false
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return nil, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return nil, false
		}
	}
	lit, s.at = b[s.at:i], i
	return lit, true
}

// whole takes a whole number of at most nine digits; others are left to encoding/json.
func (s *scan) whole() (n int32, ok bool) {
	lit, ok := s.number()
	if !ok || len(lit) > 9 {
		return 0, false
	}
	negative := lit[0] == '-'
	if negative {
		lit = lit[1:]
	}
	for _, c := range lit {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int32(c-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

func (s *scan) word(into *word) bool {
	if s.null() {
		return true
	}
	t, ok := s.text()
	if ok {
		*into = word(t)
	}
	return ok
}

func (s *scan) optionalWord(into **word) bool {
	if s.null() {
		return true
	}
	*into = new(word)
	return s.word(*into)
}

// slowly has encoding/json read one value: of those that are rare, or come once an answer.
func (s *scan) slowly(into any) bool {
	s.space()
	from := s.at
	return s.skip(0) && json.Unmarshal(s.b[from:s.at], into) == nil
}

func (s *scan) optionalText(into **text) bool {
	if s.null() {
		return true
	}
	*into = new(text)
	return s.varying(hole{text: *into})
}

// content takes a text; parts are left to encoding/json.
func (s *scan) content(into **content) bool {
	if s.null() {
		return true
	}
	if *into = &s.room.content; !s.room.lend(2) {
		*into = new(content)
	}
	**into = content{}
	return s.varying(hole{text: &(*into).said})
}

func (s *scan) optionalInt(into **int) bool {
	if s.null() {
		return true
	}
	n, ok := s.whole()
	if *into = &s.room.index; !s.room.lend(4) {
		*into = new(int)
	}
	**into = int(n)
	return ok
}

func (s *scan) raw(into *json.RawMessage) bool {
	if s.null() {
		return true
	}
	from := s.at
	if !s.skip(0) {
		return false
	}
	*into = bytes.Clone(s.b[from:s.at])
	return true
}

func (s *scan) int32s(into *[]int32) bool {
	if s.null() {
		return true
	}
	return s.int32List(into)
}

// int32List takes a list, into the memory of the one before it if there is one.
func (s *scan) int32List(into *[]int32) bool {
	list := notNil((*into)[:0])
	ok := s.elements(func() bool {
		id, ok := s.whole()
		list = append(list, id)
		return ok
	})
	*into = list
	return ok
}

func (s *scan) optionalNats(into **nats) bool {
	if s.null() {
		return true
	}
	lit, ok := s.number()
	if !ok {
		return false
	}
	f, err := strconv.ParseFloat(string(lit), 32)
	v := nats(f)
	*into = &v
	return err == nil
}

func (s *scan) optionalID(into **int32) bool {
	if s.null() {
		return true
	}
	n, ok := s.whole()
	*into = &n
	return ok
}
