package textgrade

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// countWords counts runs of letters, figures and _: \w+ of Python's regular expressions.
func countWords(text string) int {
	n, in := 0, false
	for _, r := range text {
		word := isWordRune(r)
		if word && !in {
			n++
		}
		in = word
	}
	return n
}

// countCapitalWords counts words without a small letter and with a capital one, words as NLTK's word_tokenize cuts them.
func countCapitalWords(text string) int {
	n := 0
	for _, chunk := range strings.Fields(text) {
		if !strings.ContainsFunc(chunk, unicode.IsUpper) {
			continue
		}
		for len(chunk) > 0 {
			end := wordEnd(chunk)
			n += capitalsIn(chunk[:end])
			chunk = strings.TrimLeft(chunk[end:], cutMarks)
			if end == 0 && chunk != "" && wordEnd(chunk) == 0 { // a , or : or a dash
				chunk = chunk[1:]
			}
		}
	}
	return n
}

// cutMarks are words of their own wherever they stand.
const cutMarks = ";@#$%&?![](){}<>*\"`«»“”’‘„"

// wordEnd is where the first word of a chunk ends.
func wordEnd(s string) int {
	for i, r := range s {
		rest := s[i:]
		switch {
		case strings.ContainsRune(cutMarks, r), strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, ".."), strings.HasPrefix(rest, "''"):
			return i
		case (r == ',' || r == ':') && (len(rest) == 1 || rest[1] < '0' || rest[1] > '9'):
			return i
		}
	}
	return len(s)
}

// capitalsIn counts the words in capitals of which one is made: DON'T is DO and N'T, CANNOT is CAN and NOT.
func capitalsIn(word string) int {
	for _, tail := range []string{"'S", "'M", "'D", "'LL", "'RE", "'VE", "N'T"} {
		if head, ok := strings.CutSuffix(word, tail); ok && head != "" {
			return 1 + int(boolScore(isUpper(head)))
		}
	}
	if strings.Contains(" CANNOT GONNA GOTTA GIMME LEMME D'YE MORE'N ", " "+word+" ") && word != "" {
		return 2
	}
	if isUpper(word) {
		return 1
	}
	return 0
}

// isUpper is Python's str.isupper: a capital letter, and no small one.
func isUpper(s string) bool { return hasCase(s, unicode.IsUpper, unicode.IsLower) }

// isLower is Python's str.islower.
func isLower(s string) bool { return hasCase(s, unicode.IsLower, unicode.IsUpper) }

func hasCase(s string, is, isNot func(rune) bool) bool {
	found := false
	for _, r := range s {
		if isNot(r) || unicode.IsTitle(r) {
			return false
		}
		found = found || is(r)
	}
	return found
}

// hasWord reports whether a text has a word or phrase whatever its case, with no letter, figure or _ going on at either end: \b of Python's
// regular expressions. Both are in small letters already.
func hasWord(text, word string) bool {
	for from := 0; word != ""; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		i += from
		if boundary(text, i) && boundary(text, i+len(word)) {
			return true
		}
		from = i + 1
	}
	return false
}

// boundary reports whether a word begins or ends at i.
func boundary(text string, i int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:i])
	after, _ := utf8.DecodeRuneInString(text[i:])
	return isWordRune(before) != isWordRune(after)
}
