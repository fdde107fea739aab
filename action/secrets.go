package action

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"tranche/internal/secret"
)

// Secrets are texts that a program or a service was given and that nobody shall see: it may repeat them.
type Secrets struct {
	values  []string
	spelled []*regexp.Regexp // the same, in every spelling of JSON
}

const (
	redacted = "[secret]"
	// leastSecret is from how many bytes on the value of a variable that a program gets is a secret. Shorter ones are settings
	// ("1", "debug"), and taking them out of a text would take it apart.
	leastSecret = 6
	// leastPart is from how many bytes on a part of a secret counts, where a text was cut in the middle of it.
	leastPart = 4
)

// add takes a value up, and how it stands inside JSON where that is not the same.
func (s *Secrets) add(value string) {
	if !slices.Contains(s.values, value) {
		s.spelled = append(s.spelled, secret.Spelled(value))
	}
	quoted, _ := plainJSON(value) // a string always can be
	for _, v := range []string{value, string(quoted[1 : len(quoted)-1])} {
		if !slices.Contains(s.values, v) {
			s.values = append(s.values, v)
		}
	}
}

// addVariable adds the value of a variable that a program gets, if it may be a secret: one that is short is not, nor is the path of
// something that is there, which a model may need to read.
func (s *Secrets) addVariable(value string) {
	if len(value) < leastSecret {
		return
	}
	if filepath.IsAbs(value) {
		if _, err := os.Stat(value); err == nil {
			return
		}
	}
	s.add(value)
}

// With returns the secrets of both.
func (s Secrets) With(others Secrets) Secrets {
	all := Secrets{slices.Clone(s.values), slices.Clone(s.spelled)}
	for _, v := range others.values {
		all.add(v)
	}
	return all
}

// Redact puts [secret] in the place of every secret in a text.
func (s Secrets) Redact(text string) string { return s.redactPart(text, false, false) }

// redactPart is Redact of a text that was cut before its beginning or behind its end: what is left there of a secret goes too.
func (s Secrets) redactPart(text string, cutBefore, cutAfter bool) string {
	found := s.find(text, cutBefore, cutAfter)
	if len(found) == 0 {
		return text
	}
	var b strings.Builder
	at := 0
	for _, f := range found {
		b.WriteString(text[at:f.from])
		b.WriteString(redacted)
		at = f.to
	}
	b.WriteString(text[at:])
	return b.String()
}

// Hide is err with its text redacted.
func (s Secrets) Hide(err error) error {
	if err == nil || len(s.values) == 0 {
		return err
	}
	return hidden{s.Redact(err.Error()), err}
}

type hidden struct {
	text string
	err  error
}

func (h hidden) Error() string { return h.text }
func (h hidden) Unwrap() error { return h.err }

// span is a part of a text, by bytes.
type span struct{ from, to int }

// find lists where secrets are, in order and apart. Secrets that lie over one another, or one in another, are one place: taken out one by
// one they would leave ends of each other.
func (s Secrets) find(text string, cutBefore, cutAfter bool) []span {
	var all []span
	for _, value := range s.values {
		all = append(all, occurrences(text, value)...)
		if n := overlap(value, text); cutBefore && n > 0 {
			all = append(all, span{0, n})
		}
		if n := overlap(text, value); cutAfter && n > 0 {
			all = append(all, span{len(text) - n, len(text)})
		}
	}
	for _, pattern := range s.spelled {
		for _, at := range pattern.FindAllStringIndex(text, -1) {
			all = append(all, span{at[0], at[1]})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var apart []span
	for _, f := range all {
		apart = join(apart, f)
	}
	return apart
}

// occurrences lists where a secret is in a text, those that lie over one another as one.
func occurrences(text, secret string) (all []span) {
	for at := 0; ; at++ {
		i := strings.Index(text[at:], secret)
		if i < 0 {
			return all
		}
		at += i
		all = join(all, span{at, at + len(secret)})
	}
}

// join adds a span that begins no earlier than the others do.
func join(all []span, f span) []span {
	if n := len(all); n > 0 && f.from < all[n-1].to {
		all[n-1].to = max(all[n-1].to, f.to)
		return all
	}
	return append(all, f)
}

// overlap is how many bytes at the end of one text are the beginning of the next, less than all of either; 0 = too few to tell anything.
func overlap(first, next string) int {
	for n := min(len(first), len(next)) - 1; n >= leastPart; n-- {
		if first[len(first)-n:] == next[:n] {
			return n
		}
	}
	return 0
}
