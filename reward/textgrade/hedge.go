package textgrade

import (
	"regexp"
	"strings"
)

// alone reports whether what follows a named option leaves it the only one named: nothing, that it is right, its own text (own), or a
// reason. Anything else may take it back or name another. A formal answer (behind a marker, in a box) has no other option in its reason
// either; another's reason names one only in passing.
func (q question) alone(name, rest, own string, formal bool) bool {
	rest = strings.TrimLeft(rest, " \t.,:;)-–—*_`$\"'")
	if inside := strings.TrimPrefix(rest, "("); own != "" && len(inside) >= len(own) && strings.EqualFold(inside[:len(own)], own) {
		rest = inside
	}
	if end := len(own); own != "" && len(rest) >= end && strings.EqualFold(rest[:end], own) && !startsWord(rest[end:]) {
		rest = strings.TrimLeft(rest[end:], " \t.,:;)-–—*_`$\"'!")
	}
	if m := affirmed.FindString(rest); m != "" {
		rest = rest[len(m):]
	}
	if strings.Trim(rest, " \t\r\n.!)}*_`$\"'") == "" {
		return true
	}
	m := reasoned.FindString(rest)
	if m == "" || withdrawn.MatchString(rest) {
		return false
	}
	why := strings.TrimSpace(rest[len(m):])
	if label, more := labelAt(why, true); label != "" && more == "" && q.offers(label) && label != name {
		return false // B because C
	}
	if text := plainText(why); q.namesText(text, name) {
		return false
	}
	return !formal && !preferred.MatchString(why) || !q.mentions(why, name)
}

var (
	// affirmed are words behind an option that only say again that it is the one.
	affirmed = regexp.MustCompile(`(?i)^(?:\(?(?:i (?:think|believe|guess)|is (?:the )?(?:correct|right|best|answer|one)(?: (?:answer|choice|option|one))?)\b[.!)]*)`)
	// reasoned begins a reason.
	reasoned = regexp.MustCompile(`(?i)^(?:\(?(?:because|since|as|for|given)\b)`)
	// preferred says in a reason which option is right.
	preferred = regexp.MustCompile(`(?i)\bis (?:the )?(?:correct|right|best|better|answer)\b`)
	// withdrawn are words in a reason that take the answer back or offer another.
	withdrawn = regexp.MustCompile(`(?i)\b(?:no wait|wait|actually|instead|maybe|perhaps|alternatively|really mean|or (?:maybe|perhaps|possibly)|(?:answer|choice|option) is)\b`)
)

// namesText reports whether a text is that of an option other than name.
func (q question) namesText(text, name string) bool {
	for _, o := range q.options {
		if o.name() != name && plainText(o.text) != "" && plainText(o.text) == text {
			return true
		}
	}
	return false
}

// mentions reports whether a text has the letter or the text of an option other than name in it.
func (q question) mentions(s, name string) bool {
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return !isWordRune(r) && r != '\'' && r != '-' }) {
		if len(word) == 1 && isLetter(word[0]) && strings.ToUpper(word) == word && word != name && word != "I" && q.offers(word) {
			return true
		}
	}
	plain := " " + strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !isWordRune(r) }), " ") + " "
	for _, o := range q.options {
		text := strings.Join(strings.FieldsFunc(strings.ToLower(o.text), func(r rune) bool { return !isWordRune(r) }), " ")
		if o.name() != name && text != "" && strings.Contains(plain, " "+text+" ") {
			return true
		}
	}
	return false
}
