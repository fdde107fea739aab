package reward

import (
	"math/big"
	"strings"
	"unicode/utf8"

	"tranche/episode"
)

// LastNumber finds the last number of a text, by the rules at the head of number.go: its value and where it stands, with its sign and
// currency.
func LastNumber(text string) (value *big.Rat, start, end int, ok bool) {
	f, ok := lastNumber(text)
	return worked(f, ok)
}

// FirstNumber finds the first number of a text, as LastNumber does the last.
func FirstNumber(text string) (value *big.Rat, start, end int, ok bool) {
	f, ok := nextNumber(text, 0)
	return worked(f, ok)
}

func worked(f found, ok bool) (*big.Rat, int, int, bool) {
	if !ok {
		return nil, 0, 0, false
	}
	v, ok := f.value()
	return v, f.start, f.end, ok
}

// FirstLine is the first line with anything on it.
func FirstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// Boxed is what the last \boxed{…} of a text holds; one that is never closed holds the rest.
func Boxed(text string) (inside string, ok bool) {
	const open = `\boxed{`
	i := strings.LastIndex(text, open)
	if i < 0 {
		return "", false
	}
	inside, _ = Braced(text[i+len(open):])
	return inside, true
}

// Braced gives what stands before the brace that closes s, and where s goes on behind it; of one that never closes it gives everything.
func Braced(s string) (inside string, end int) {
	depth := 1
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++ // \{ and \} are text
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return s[:i], i + 1
			}
		}
	}
	return s, len(s)
}

// Halfwidth writes the full-width forms of ASCII (U+FF01 to U+FF5E: １２，＝, usual beside Chinese and Japanese) as ASCII.
func Halfwidth(s string) string {
	const first, last = '！', '～'
	if !strings.ContainsFunc(s, func(r rune) bool { return first <= r && r <= last }) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if first <= r && r <= last {
			return r - first + '!'
		}
		return r
	}, s)
}

// Clip shortens s to at most limit bytes, at a rune, and shows that it did.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit - len("…")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// Asked is the last message of the user in the prompt, "" where there is none.
func (in Input) Asked() string {
	for i := min(in.NumPrompt, len(in.Messages)) - 1; i >= 0; i-- {
		if m := in.Messages[i]; m.Role == episode.RoleUser && m.Content != nil {
			return *m.Content
		}
	}
	return ""
}

// Generated counts what all turns generated, and the longest of them, by the server's count. unknown is the first turn that it did not
// count, -1 = there is none.
func (in Input) Generated() (total, longest, unknown int) {
	for i, t := range in.Turns {
		if t.CompletionTokens == nil {
			return 0, 0, i
		}
		n := int(*t.CompletionTokens)
		total, longest = total+n, max(longest, n)
	}
	return total, longest, -1
}
