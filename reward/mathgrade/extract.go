package mathgrade

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"tranche/reward"
)

// Ways of finding the answer in a text, in Options.Extract.
const (
	Boxed  = "boxed"
	Marked = "marked"
	Whole  = "whole"
	Last   = "last"
)

// found is an answer that stands in a text.
type found struct {
	text  string   // "" = none
	where string   // for people
	boxes []string // every box, when there are several that differ as texts
	frame string   // the words of its sentence that were left out
}

// find looks for the answer in a text, one way after the other.
func find(text string, ways, markers []string) found {
	if i := strings.LastIndex(text, "</think>"); i >= 0 {
		text = text[i+len("</think>"):]
	} else if strings.Contains(text, "<think>") {
		return found{} // it never came to an answer
	}
	for _, way := range ways {
		var f found
		switch way {
		case Boxed:
			f = boxed(text)
		case Marked:
			f = marked(text, markers)
		case Whole:
			f = whole(text)
		case Last:
			f = last(text)
		}
		if f.text != "" || len(f.boxes) > 0 {
			return f
		}
	}
	return found{}
}

// boxed finds the boxes of a text.
func boxed(text string) found {
	all := boxes(text)
	if len(all) == 0 {
		return found{}
	}
	f := found{text: all[len(all)-1], where: `in \boxed{}`}
	if slices.ContainsFunc(all, func(b string) bool { return b != f.text }) {
		f.boxes = all
	}
	return f
}

// maxBoxes is how many boxes are looked at, from the end.
const maxBoxes = 64

// boxes gives what the boxes of a text hold, in order; a box inside another is part of that.
func boxes(text string) []string {
	var all []string
	for {
		i, n := nextBox(text)
		if i < 0 {
			return all[max(0, len(all)-maxBoxes):]
		}
		inside, end := reward.Braced(text[i+n:])
		if s := strings.TrimSpace(inside); s != "" {
			all = append(all, s)
		}
		text = text[i+n+end:]
	}
}

// nextBox looks at each backslash once, so that a long text of boxes takes no longer than another.
func nextBox(text string) (start, length int) {
	for i := 0; i < len(text); i++ {
		j := strings.IndexByte(text[i:], '\\')
		if j < 0 {
			return -1, 0
		}
		i += j
		for _, open := range []string{`\boxed{`, `\fbox{`, `\boxed {`} {
			if strings.HasPrefix(text[i:], open) {
				return i, len(open)
			}
		}
	}
	return -1, 0
}

// maxMarks is how many places of one marker are looked at, from the end.
const maxMarks = 64

// marked finds what stands behind the last marker that has something behind it.
func marked(text string, markers []string) found {
	low := strings.ToLower(text)
	if len(low) != len(text) { // some letters change their length: markers are then looked for as they are
		low = text
	}
	at, mark := -1, ""
	for _, m := range markers {
		key := m
		if low != text || strings.ToLower(m) != m {
			key = strings.ToLower(m)
		}
		end := len(low)
		for range maxMarks {
			i := strings.LastIndex(low[:end], key)
			if i < 0 {
				break
			}
			if begins(text, i, m) && statement(text[i+len(m):]) != "" {
				if i+len(m) > at {
					at, mark = i+len(m), m
				}
				break
			}
			end = i
		}
	}
	if at < 0 {
		return found{}
	}
	s, frame := statement(text[at:]), ""
	if i := strings.LastIndex(s, " is "); i >= 0 && prosaic(s) && !isDigit(s[0]) { // the largest n is 34
		s, frame = strings.TrimSpace(s[i+len(" is "):]), s[:i]+" "
	}
	value, around := only(s)
	return found{text: value, where: fmt.Sprintf("after %q", mark), frame: frame + around}
}

// only is the one number of a sentence that is no answer as a whole, and the words around it: Jane began 3 hours ago.
func only(s string) (value, around string) {
	if !prosaic(s) || strings.ContainsAny(s, `$\`) || read(s, true, false).err == nil {
		return s, ""
	}
	_, a, end, ok1 := reward.FirstNumber(s)
	_, b, _, ok2 := reward.LastNumber(s)
	if !ok1 || !ok2 || a != b || a == 0 {
		return s, ""
	}
	return s[a:end] + measure(s[end:]), s[:a] + " " + strings.TrimPrefix(s[end:], measure(s[end:]))
}

// prosaic reports whether words stand around the mathematics or numbers of a text: what is no unit, function or "and".
func prosaic(s string) bool {
	for {
		a, b, ok := mathSpan(s, 0)
		if !ok {
			break
		}
		s = s[:a] + " 0 " + s[b:]
	}
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i = skipCommand(s, i)
			continue
		}
		end := i
		for end < len(s) && isLetter(s[end]) {
			end++
		}
		if run := s[i:end]; len(run) > 1 && (i == 0 || s[i-1] == ' ') && !meaningful(run) {
			return true
		}
		i = max(i, end-1)
	}
	return false
}

// skipCommand is the last byte of a command, and of the text that it sets.
func skipCommand(s string, i int) int {
	j := i + 1
	for j < len(s) && isLetter(s[j]) {
		j++
	}
	if strings.HasPrefix(s[i:], `\text`) || strings.HasPrefix(s[i:], `\math`) || strings.HasPrefix(s[i:], `\mbox`) {
		if j < len(s) && s[j] == '{' {
			_, end := reward.Braced(s[j+1:])
			j += 1 + end
		}
	}
	return max(i, min(j, len(s))-1)
}

// meaningful reports whether a word can stand in an answer that is mathematics.
func meaningful(run string) bool {
	low := strings.ToLower(run)
	if greek(run) || functions(low) != "" || isUnit(low) {
		return true
	}
	switch low {
	case "and", "or", "pi", "sqrt", "inf", "infinity", "infty", "percent", "degrees", "degree", "in", "xy", "xyz":
		return true
	}
	return len(run) > 3 && strings.Trim(low, "aeiouy") == low // letters without a vowel
}

// begins reports whether a marker that begins with a letter stands at the beginning of a word.
func begins(text string, i int, marker string) bool {
	return i == 0 || !unicode.IsLetter(rune(marker[0])) || !isLetter(text[i-1])
}

// statement is the answer at the beginning of what stands behind a marker: the mathematics when it begins with a pair of dollar signs or
// the like, else its first sentence.
func statement(s string) string {
	s = strings.TrimLeft(s[:min(len(s), 2*maxAnswer)], " \t\r\n:*=_")
	s = strings.TrimPrefix(s, "is ")
	s = strings.TrimLeft(s, " \t\r\n:*")
	if i, end, ok := mathSpan(s, 0); ok && strings.Trim(s[:i], ` "'`) == "" {
		for { // 12 $ and $ 13
			j, e, more := mathSpan(s, end)
			if !more || !joins(s[end:j]) {
				break
			}
			end = e
		}
		if denied(s[end:]) {
			return strings.TrimSpace(sentence(s)) // words and all: it is none
		}
		return strings.TrimSpace(s[:end] + measure(s[end:]))
	}
	s, _, _ = strings.Cut(s, "\n")
	return strings.TrimSpace(strings.TrimRight(sentence(s), " .*!?"))
}

// denied reports whether the words right behind an answer, up to a comma, deny it: $3$ is wrong.
func denied(behind string) bool {
	if i := strings.IndexAny(behind, ".,;:(\n$\\"); i >= 0 {
		behind = behind[:i]
	}
	for _, w := range spoken(behind) {
		if reasons(w) {
			return false
		}
		if denies(w) {
			return true
		}
	}
	return false
}

// bounded reports whether the words right before an answer deny or bound it: at least 3.
func bounded(before string) bool {
	before = before[strings.LastIndexAny(before, ".,;:()\n$\\=0123456789")+1:]
	return slices.ContainsFunc(spoken(before), denies)
}

// joins reports whether what stands between two pieces of mathematics makes one answer of them.
func joins(between string) bool {
	switch strings.Trim(strings.TrimSpace(between), ",") {
	case "", "and", "or", " and", " or":
		return len(between) < 20
	}
	return false
}

// measure is a percent sign or a known unit that begins s.
func measure(s string) string {
	t := strings.TrimLeft(s, " ~")
	for _, w := range []string{`\%`, "%", "percent"} {
		if strings.HasPrefix(t, w) {
			return " " + w
		}
	}
	end := 0
	for end < len(t) && isLetter(t[end]) {
		end++
	}
	if end > 1 && (isUnit(t[:end]) || multiplies(strings.ToLower(t[:end])) != nil) {
		return " " + t[:end]
	}
	return ""
}

// sentence cuts s behind its first sentence: a point with a space or the end behind it, outside of mathematics.
func sentence(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] != '.' {
			continue
		}
		if i+1 == len(s) || s[i+1] == ' ' && !abbreviation(s[:i]) {
			return s[:i]
		}
	}
	return s
}

func abbreviation(before string) bool {
	i := strings.LastIndexByte(before, ' ')
	switch strings.ToLower(before[i+1:]) {
	case "approx", "sq", "cu", "ft", "in", "vs", "no", "st", "dr", "mr", "mrs", "ms":
		return true
	}
	return false
}

// mathSpan finds the next mathematics at from or later: $…$, $$…$$, \(…\), \[…\]. start and end hold its marks too.
func mathSpan(s string, from int) (start, end int, ok bool) {
	best := -1
	shut := ""
	for _, pair := range [][2]string{{"$$", "$$"}, {`\(`, `\)`}, {`\[`, `\]`}, {"$", "$"}} {
		if i := indexFrom(s, pair[0], from); i >= 0 && (best < 0 || i < best) {
			if pair[0] == "$" && i > 0 && s[i-1] == '\\' {
				continue
			}
			best, shut = i, pair[1]
		}
	}
	if best < 0 {
		return 0, 0, false
	}
	j := indexFrom(s, shut, best+len(shut))
	if j < 0 {
		return 0, 0, false
	}
	return best, j + len(shut), true
}

func indexFrom(s, sub string, from int) int {
	if from > len(s) {
		return -1
	}
	i := strings.Index(s[from:], sub)
	if i < 0 {
		return -1
	}
	return from + i
}

// whole takes the text itself for the answer when it is short and has one line.
func whole(text string) found {
	s := strings.TrimSpace(text)
	if len(s) > 200 || strings.Contains(s, "\n") || wordy(s) {
		return found{}
	}
	s = strings.TrimRight(s, ".")
	r := read(s, true, false)
	if r.err != nil {
		return found{}
	}
	return found{text: s, where: "all of the text"}
}

// amounts reports whether what stands between two dollar signs is an amount and the words before the next: $5 and then $7.
func amounts(span string) bool {
	inside := strings.Trim(span, "$")
	if inside == "" || inside == span || !isDigit(inside[0]) {
		return false
	}
	for _, w := range strings.Fields(inside)[1:] {
		if len(w) > 1 && strings.Trim(strings.ToLower(w), "abcdefghijklmnopqrstuvwxyz,.") == "" {
			return true
		}
	}
	return false
}

// wordy reports whether a text has more words than an answer with a thing behind its number: 18 red apples.
func wordy(s string) bool {
	first := strings.TrimLeft(s, "$-\\(+ ")
	return prosaic(s) && (first == "" || !isDigit(first[0]) || len(strings.Fields(s)) > 4)
}

// last finds the last mathematics or number of a text, whichever ends later.
func last(text string) found {
	from := max(0, len(text)-4*maxAnswer)
	text = text[from:]
	f := found{}
	end := 0
	for i := 0; ; {
		a, b, ok := mathSpan(text, i)
		if !ok {
			break
		}
		if amounts(text[a:b]) {
			i = a + 1
			continue
		}
		f, end, i = found{text: text[a:b] + measure(text[b:]), where: "last mathematics"}, b, b
	}
	if _, a, b, ok := reward.LastNumber(text); ok && a >= end {
		f, end = found{text: text[a:b] + measure(text[b:]), where: "last number"}, b
	}
	if start := strings.LastIndex(text[:end], strings.TrimSuffix(f.text, measure(text[end:]))); start >= 0 && (bounded(text[:start]) || denied(text[end:])) {
		return found{}
	}
	return f
}
