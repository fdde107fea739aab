package inference

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// text is a JSON string in the bytes its sender meant, damage included: bytes that are no UTF-8 are kept, and a lone
// surrogate escape is kept as its three-byte form (WTF-8). A character cut in two by a stream thus grows together again
// when the pieces are joined, and repair replaces only what is broken for good. encoding/json would replace at once.
//
// Any other JSON value (tool arguments given as an object) is read as its own JSON text. null leaves the value alone.
//
// What the scanner reads may lie in the memory that it read from: it is good until the answer has been taken.
type text []byte

// UnmarshalJSON reads a text.
func (t *text) UnmarshalJSON(data []byte) error {
	switch {
	case len(data) == 0 || data[0] == 'n':
		return nil
	case data[0] == '"':
		s, err := unquote(data)
		*t = s
		return err
	}
	*t = text(bytes.Clone(data))
	return nil
}

var errBadString = errors.New("bad escape in a JSON string")

// unquote decodes a JSON string literal that a JSON scanner has accepted.
func unquote(lit []byte) (text, error) {
	if len(lit) < 2 || lit[0] != '"' || lit[len(lit)-1] != '"' {
		return nil, errBadString
	}
	lit = lit[1 : len(lit)-1]
	out := make([]byte, 0, len(lit))
	for len(lit) > 0 {
		i := bytes.IndexByte(lit, '\\')
		if i < 0 {
			out = append(out, lit...)
			break
		}
		out = append(out, lit[:i]...)
		var err error
		if out, lit, err = unescape(out, lit[i+1:]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// unescape appends what the escape at the start of rest (after its backslash) stands for.
func unescape(out, rest []byte) ([]byte, []byte, error) {
	if len(rest) == 0 {
		return nil, nil, errBadString
	}
	if rest[0] == 'u' {
		return unescapeUnicode(out, rest)
	}
	c := escaped(rest[0])
	if c == 0 {
		return nil, nil, errBadString
	}
	return append(out, c), rest[1:], nil
}

func unescapeUnicode(out, rest []byte) ([]byte, []byte, error) {
	r, ok := hex4(rest)
	if !ok {
		return nil, nil, errBadString
	}
	rest = rest[5:]
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(out, r), rest, nil
	}
	if len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' {
		if low, ok := hex4(rest[1:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return utf8.AppendRune(out, pair), rest[6:], nil
			}
		}
	}
	return append(out, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F), rest, nil
}

func hex4(s []byte) (rune, bool) { // s starts with 'u'
	if len(s) < 5 {
		return 0, false
	}
	n, ok := hex(s[1:5])
	return rune(n), ok
}

// repair makes s valid UTF-8: halves of a surrogate pair that ended up side by side become their character, everything
// else that is broken becomes U+FFFD. It reports whether anything had to be replaced; a healed pair is no replacement.
func repair(s string) (string, bool) {
	if utf8.ValidString(s) {
		return s, false
	}
	var b strings.Builder
	b.Grow(len(s))
	broken := false
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch high, ok := surrogate(s); {
		case r != utf8.RuneError || n > 1:
			b.WriteString(s[:n])
		case ok:
			n = 3
			if low, ok := surrogate(s[3:]); ok && utf16.DecodeRune(high, low) != utf8.RuneError {
				b.WriteRune(utf16.DecodeRune(high, low))
				n = 6
				break
			}
			fallthrough
		default:
			b.WriteRune(utf8.RuneError)
			broken = true
		}
		s = s[n:]
	}
	return b.String(), broken
}

// surrogate decodes the three-byte form of a surrogate at the start of s.
func surrogate(s string) (rune, bool) {
	if len(s) < 3 || s[0] != 0xED || s[1] < 0xA0 || s[1] > 0xBF || s[2] < 0x80 || s[2] > 0xBF {
		return 0, false
	}
	return 0xD000 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), true
}

const minusInfinity = "-3.4028235e+38" // the smallest float32; logprob turns it back

// repairNumbers rewrites NaN and infinities outside strings, which Python servers may write and JSON does not know: NaN and
// Infinity become null (no such log-probability exists), -Infinity becomes the smallest float32. It
// reports whether it changed anything.
func repairNumbers(data []byte) ([]byte, bool) {
	var out []byte
	changed, inString := false, false
	for i := 0; i < len(data); i++ {
		c := data[i]
		if inString {
			if c == '\\' && i+1 < len(data) {
				out = append(out, c)
				i++
				c = data[i]
			} else if c == '"' {
				inString = false
			}
			out = append(out, c)
			continue
		}
		word, instead := bareNumber(data[i:])
		if word == 0 {
			inString = c == '"'
			out = append(out, c)
			continue
		}
		out, changed = append(out, instead...), true
		i += word - 1
	}
	return out, changed
}

func bareNumber(s []byte) (length int, instead string) {
	for _, w := range [...]struct{ word, instead string }{{"-Infinity", minusInfinity}, {"Infinity", "null"}, {"NaN", "null"}} {
		if bytes.HasPrefix(s, []byte(w.word)) {
			return len(w.word), w.instead
		}
	}
	return 0, ""
}

// decode reads JSON, giving a body with bare NaN or infinities a second chance.
func decode(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var syntax *json.SyntaxError
	if err == nil || !errors.As(err, &syntax) {
		return err
	}
	if fixed, changed := repairNumbers(data); changed {
		return json.Unmarshal(fixed, v)
	}
	return err
}
