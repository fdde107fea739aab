package reward

import (
	"context"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// numeric: the answer's number is the ground truth's. What a number is stands in number.go.
//
// In an answer it is the number right after the last marker that has one there (a heading such as "#### Step 2" has none),
// else the only number in the last \boxed{}, else the last number of the text. A box is taken at its word: one without a
// number, with several or with a root in it has no number, and the text around it is not searched. Where something stands beside the number that
// makes another value of it ("5 + 2", "5 thousand", "> 5", "5 or 6"; beside.go), there is none either, unless the ground truth says the same.
type numeric struct {
	marker    string
	tolerance *big.Rat
}

func newNumeric(marker string, tolerance float64) numeric {
	tol, ok := new(big.Rat).SetString(strconv.FormatFloat(tolerance, 'g', -1, 64)) // 0.1 is a tenth
	if !ok {
		tol = new(big.Rat) // not finite: Validate has refused it
	}
	return numeric{marker, tol}
}

func (numeric) ID() string { return "numeric/2" }

func (g numeric) Grade(_ context.Context, in Input) (Finding, error) {
	stated, err := truth(in.Task)
	if err != nil {
		return Finding{}, err
	}
	want, ok := truthNumber(stated, g.marker)
	if !ok {
		return Finding{}, &Unjudged{Reason: BadTruth, Detail: fmt.Sprintf("%q is not a number", Clip(stated, 80))}
	}
	if f, silent := silence(in); silent {
		return f, nil
	}
	got := answerNumber(Halfwidth(in.Text), g.marker)
	if got.beside != "" && !strings.Contains(stated, got.beside) {
		return grade(false, "%q %s stands with %q, want %s", Clip(got.text, 80), got.where, got.beside, ratText(want)), nil
	}
	if got.value == nil {
		return grade(false, "%s, want %s", got.where, ratText(want)), nil
	}
	off := new(big.Rat).Sub(got.value, want)
	return grade(off.Abs(off).Cmp(g.tolerance) <= 0, "%q %s, want %s", Clip(got.text, 80), got.where, ratText(want)), nil
}

// ratText writes a number for people.
func ratText(r *big.Rat) string {
	if n, ends := r.FloatPrec(); ends {
		return Clip(r.FloatString(n), 60)
	}
	return Clip(r.RatString(), 60)
}

// reading is a number taken from an answer; a nil value means that there is none, and where says why.
type reading struct {
	value  *big.Rat
	text   string
	where  string
	beside string // what makes another value of it
}

func answerNumber(text, marker string) reading {
	if f, line, ok := afterMarker(text, marker); ok {
		return read(line, 0, f, fmt.Sprintf("after %q", marker))
	}
	if inside, ok := Boxed(text); ok {
		f, why := boxedNumber(inside)
		if why != "" {
			return reading{where: why}
		}
		return read(inside, strings.LastIndex(inside, "=")+1, f, `in \boxed{}`)
	}
	if f, ok := lastNumber(text); ok {
		r := read(text, f.start, f, "last number")
		r.beside = "" // it was not stated to be the answer, and is taken for what it is
		return r
	}
	return reading{where: "no number in the text"}
}

// read takes a number of s, in which what belongs to it begins at from.
func read(s string, from int, f found, where string) reading {
	v, ok := f.value()
	if !ok {
		return reading{where: "no number " + where}
	}
	return reading{value: v, text: s[f.start:f.end], where: where, beside: strings.TrimSpace(beside(s, from, f))}
}

// maxMarked is how much of the line after a marker is looked at, bytes.
const maxMarked = 256

// afterMarker finds the last marker that a number follows. Only signs may stand between them, or an equation: of
// "x = 2 + 3 = 5" the part after the last = counts.
func afterMarker(text, marker string) (f found, line string, ok bool) {
	for end := len(text); ; {
		i := strings.LastIndex(text[:end], marker)
		if i < 0 {
			return found{}, "", false
		}
		line = text[i+len(marker):]
		line = strings.TrimLeft(line[:min(len(line), 2*maxMarked)], " \t\r\n")
		line, _, _ = strings.Cut(line[:min(len(line), maxMarked)], "\n")
		if eq := strings.LastIndex(line, "="); eq >= 0 {
			line = line[eq+1:]
		}
		if f, ok := nextNumber(line, 0); ok && onlySigns(line[:f.start]) {
			return f, line, true
		}
		end = i
	}
}

// onlySigns reports whether s holds no words and no digits; LaTeX commands such as \boxed{\text{ are no words.
func onlySigns(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			for i+1 < len(s) && 'a' <= s[i+1]|0x20 && s[i+1]|0x20 <= 'z' {
				i++
			}
		} else if isDigit(s[i]) || s[i] == '#' {
			return false
		} else if letterAt(s, i) {
			return false
		}
	}
	return true
}

// boxedNumber is the number of a box, or why there is none.
func boxedNumber(inside string) (f found, why string) {
	for _, irrational := range []string{`\sqrt`, "√", `\pi`, "π"} {
		if strings.Contains(inside, irrational) {
			return f, `no plain number in \boxed{}`
		}
	}
	from := strings.LastIndex(inside, "=") + 1
	f, ok := nextNumber(inside, from)
	if !ok {
		return f, `no number in \boxed{}`
	}
	if _, more := nextNumber(inside, f.end); more {
		return f, `several numbers in \boxed{}`
	}
	return f, ""
}

// truthNumber is the number that a ground truth states: alone, where an answer would state it, or as its only number.
func truthNumber(s, marker string) (*big.Rat, bool) {
	if v, ok := statedNumber(s, marker); ok {
		return v, true
	}
	f, ok := nextNumber(s, 0)
	if !ok {
		return nil, false
	}
	if _, more := nextNumber(s, f.end); more {
		return nil, false
	}
	return f.value()
}

// statedNumber is truthNumber for a text that may well be no number at all: "5 of the above" states none.
func statedNumber(s, marker string) (*big.Rat, bool) {
	if v, ok := wholeNumber(s); ok {
		return v, true
	}
	for _, m := range []string{marker, defaultMarker} { // a task may keep its own mark while answers use another
		if f, _, ok := afterMarker(s, m); ok {
			return f.value()
		}
	}
	if inside, ok := Boxed(s); ok {
		if f, why := boxedNumber(inside); why == "" {
			return f.value()
		}
	}
	return nil, false
}

// wholeNumber reads a text that is one number and nothing else but signs around it.
func wholeNumber(s string) (*big.Rat, bool) {
	s = strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r == '$' })
	f, ok := nextNumber(s, 0)
	if !ok || strings.Trim(s[:f.start], " $+") != "" || strings.Trim(s[f.end:], ` .%\$€£¥₹°`) != "" {
		return nil, false
	}
	return f.value()
}
