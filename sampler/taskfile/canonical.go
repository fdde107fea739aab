package taskfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"unicode/utf8"

	"tranche/episode"
)

// decode reads one JSON value, numbers kept as their own text.
func decode(raw []byte) (any, error) {
	if first(raw) == '"' { // most columns; a Decoder costs several times as much
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one JSON value")
	}
	return v, nil
}

// encode writes v as compact JSON with sorted keys and without HTML escapes.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// canonical rewrites a JSON value so that equal values have equal bytes: compact, keys sorted, numbers as they were written.
func canonical(raw json.RawMessage) (json.RawMessage, error) {
	switch first(raw) {
	case '{', '[', '"':
		v, err := decode(raw)
		if err != nil {
			return nil, err
		}
		return encode(v)
	}
	return bytes.TrimSpace(raw), nil
}

// withoutNulls removes object members that are null, at every depth: a Parquet reader fills every member that some row has.
func withoutNulls(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	case map[string]any:
		for k, m := range v {
			if m == nil {
				delete(v, k)
				continue
			}
			v[k] = withoutNulls(m)
		}
	}
	return v
}

// first is the first byte of a JSON value, which tells its kind; 0 for none.
func first(raw []byte) byte {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}

// kind names a JSON value's kind for messages.
func kind(raw []byte) string {
	switch first(raw) {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	case 0:
		return "nothing"
	}
	return "a number"
}

// members counts the members of the outermost object of a valid JSON text, repeated names included.
func members(raw []byte) int {
	n, depth, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if quoted {
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
			continue
		}
		switch c {
		case '"':
			quoted = true
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ':':
			if depth == 1 {
				n++
			}
		}
	}
	return n
}

// repeated names the first member that an object states twice; "" when there is none.
func repeated(raw []byte) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	seen := map[string]bool{}
	if _, err := d.Token(); err != nil {
		return ""
	}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return ""
		}
		if seen[name] {
			return name
		}
		seen[name] = true
		var skip json.RawMessage
		if d.Decode(&skip) != nil {
			return ""
		}
	}
	return ""
}

// badText says what in raw could not be text: bytes that are no UTF-8, or the escape of half a surrogate pair. encoding/json
// would put U+FFFD there without a word. "" = all is well.
func badText(raw []byte) string {
	if !utf8.Valid(raw) {
		return fmt.Sprintf("byte %d: not valid UTF-8", invalidAt(raw)+1)
	}
	if i := loneSurrogate(raw); i >= 0 {
		return fmt.Sprintf("byte %d: %s is half of a surrogate pair, which is no character", i+1, raw[i:i+6])
	}
	return ""
}

func invalidAt(raw []byte) int {
	for i := 0; i < len(raw); {
		r, n := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return len(raw)
}

// loneSurrogate returns where an escape like \ud83d stands without its other half, or -1.
func loneSurrogate(raw []byte) int {
	for i := 0; ; {
		j := bytes.IndexByte(raw[i:], '\\')
		if j < 0 || i+j+1 >= len(raw) {
			return -1
		}
		i += j
		switch u := surrogate(raw[i:]); {
		case u == 0 && raw[i+1] == 'u':
			i += 6
		case u == 0:
			i += 2
		case u == 'h' && surrogate(raw[min(i+6, len(raw)):]) == 'l':
			i += 12
		default:
			return i
		}
		if i >= len(raw) {
			return -1
		}
	}
}

// surrogate tells whether b begins with the escape of a high ('h') or low ('l') surrogate; 0 = neither.
func surrogate(b []byte) byte {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' || b[2]|0x20 != 'd' {
		return 0
	}
	switch c := b[3] | 0x20; {
	case c == '8' || c == '9' || c == 'a' || c == 'b':
		return 'h'
	case c >= 'c' && c <= 'f':
		return 'l'
	}
	return 0
}

// hashVersion goes into every content hash, so that a later change of the recipe cannot be taken for a change of a task.
const hashVersion = "tranche task 1"

// contentHash is the hex SHA-256 over all of a task but its id and where it was read.
func contentHash(t *episode.Task) string {
	w := parts{sha256.New()}
	w.text(hashVersion)
	w.count(len(t.Messages))
	for _, m := range t.Messages {
		w.message(m)
	}
	w.bytes(t.Tools)
	w.optional(t.Answer)
	for _, s := range []string{t.Style, t.DataSource, t.EnvClass, t.Split} {
		w.text(s)
	}
	w.bytes(t.Params)
	w.bytes(t.Extra)
	return hex.EncodeToString(w.h.Sum(nil))
}

// parts writes length-prefixed parts into a hash, so that no two different sequences run together.
type parts struct{ h hash.Hash }

func (w parts) count(n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	w.h.Write(b[:])
}

func (w parts) text(s string) {
	w.count(len(s))
	io.WriteString(w.h, s)
}

func (w parts) bytes(b []byte) {
	w.count(len(b))
	w.h.Write(b)
}

func (w parts) optional(s *string) {
	if s == nil {
		w.count(0)
		return
	}
	w.count(1)
	w.text(*s)
}

func (w parts) message(m episode.Message) {
	w.text(m.Role)
	w.optional(m.Content)
	w.optional(m.ReasoningContent)
	w.optional(m.Name)
	w.optional(m.ToolCallID)
	w.count(len(m.ToolCalls))
	for _, c := range m.ToolCalls {
		w.text(c.ID)
		w.text(c.Type)
		w.text(c.Function.Name)
		w.text(c.Function.Arguments)
	}
}
