// Package secret finds a secret in what others wrote, in every spelling that JSON has of it. Open secret.go.
package secret

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Spelled matches a text as it stands and as any writer of JSON writes it: each character as itself, by its number (\u002f, \u002F) or by its own escape
// (\/, \"), with any number of backslashes, for JSON may stand in a string of JSON. A match takes time in proportion to what is searched.
func Spelled(text string) *regexp.Regexp {
	var b strings.Builder
	for i, r := range text {
		if _, size := utf8.DecodeRuneInString(text[i:]); r == utf8.RuneError && size == 1 {
			b.WriteString(`(?s:.)`) // no JSON holds it as it is
			continue
		}
		b.WriteString(`(?:(?i:`) // the longer spellings first: of a backslash all begin with it
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\\+u%04x`, unit)
		}
		b.WriteString(`)|`)
		if escape, ok := short[r]; ok {
			b.WriteString(`\\+` + regexp.QuoteMeta(escape) + `|`)
		}
		b.WriteString(regexp.QuoteMeta(string(r)) + `)`)
	}
	return regexp.MustCompile(b.String())
}

// short are the escapes of JSON (RFC 8259, section 7), behind their backslash.
var short = map[rune]string{'"': `"`, '\\': `\`, '/': `/`, '\b': "b", '\f': "f", '\n': "n", '\r': "r", '\t': "t"}
