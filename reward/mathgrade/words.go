package mathgrade

import (
	"strings"
	"unicode"

	"tranche/reward"
)

// unwrapped takes away what only sets a text: \text{…}, dollar signs, spaces at the ends.
func unwrapped(s string) string {
	for _, c := range []string{`\text{`, `\textbf{`, `\textrm{`, `\textit{`, `\mathrm{`, `\mathbf{`, `\mbox{`, `\operatorname{`, `\textnormal{`} {
		for {
			i := strings.Index(s, c)
			if i < 0 {
				break
			}
			inside, end := reward.Braced(s[i+len(c):])
			s = s[:i] + inside + s[i+len(c)+end:]
		}
	}
	return strings.Trim(s, " \t\n$.*`\"'")
}

// words writes a text for comparing: small letters, one space between words, no punctuation.
func words(s string) string {
	s = strings.ToLower(unwrapped(s))
	s = strings.NewReplacer(`\ `, " ", `\,`, " ", `\;`, " ", "~", " ", "{", "", "}", "", `\left`, "", `\right`, "", "_", " ").Replace(s)
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`.,;:!?"'`+"`*()", r) }), " ")
}

// squeezed writes mathematics for comparing as text: without spaces, dollar signs and what only changes the size of brackets.
func squeezed(s string) string {
	return strings.NewReplacer(
		" ", "", "\n", "", "\t", "", "$", "", `\left`, "", `\right`, "", `\,`, "", `\;`, "", `\!`, "", `\ `, "", `\(`, "", `\)`, "", `\[`, "", `\]`, "",
		`\dfrac`, `\frac`, `\tfrac`, `\frac`, `\cdot`, "*", `\times`, "*", "×", "*", "−", "-", `\leq`, "<=", `\geq`, ">=", `\le`, "<=", `\ge`, ">=",
		"≤", "<=", "≥", ">=", "**", "^",
	).Replace(s)
}

// worded reports whether a truth is words and no mathematics, although letters side by side could be a product: Tom, no, HTT.
func worded(s string) bool {
	s = unwrapped(s)
	for _, r := range s {
		if !unicode.IsLetter(r) && !strings.ContainsRune(" ,.'-", r) {
			return false
		}
	}
	for run := range strings.FieldsFuncSeq(s, func(r rune) bool { return !unicode.IsLetter(r) }) {
		low := strings.ToLower(run)
		switch low {
		case "yes", "no", "all", "odd", "even", "none", "any", "red", "one", "two", "six", "ten":
			return true
		case "infinity", "infty", "sqrt":
			continue
		}
		if functions(run) == "" && !greek(run) && (len(run) > 3 || len(run) > 1 && low != run) {
			return true
		}
	}
	return false
}

// prose reports whether a text is words and numbers, so that its brackets and other marks do not matter.
func prose(s string) bool {
	letters := false
	for _, r := range unwrapped(s) {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(" \n.,;:!?'\"()-&_", r) {
			return false
		}
		letters = letters || unicode.IsLetter(r)
	}
	return letters
}

// choice is the letter of a truth that is one of several choices: C, (C), \text{(C)}.
func choice(s string) string {
	s = strings.Trim(unwrapped(s), "() ")
	if len(s) == 1 && 'A' <= s[0] && s[0] <= 'J' {
		return s
	}
	return ""
}

// chosen reports whether an answer names a choice, alone or with its text behind it: (C) 12, C. blue. One that names another too does not.
func chosen(answer, letter string) bool {
	s := strings.TrimLeft(unwrapped(answer), "( ")
	rest, ok := strings.CutPrefix(s, letter)
	if !ok {
		return false
	}
	if strings.Trim(rest, " ).:") == "" {
		return true
	}
	if !strings.ContainsAny(rest[:1], ").:") {
		return false
	}
	for i := range len(rest) {
		if c := rest[i]; 'A' <= c && c <= 'J' && !isLetter(at(rest, i-1)) && !isLetter(at(rest, i+1)) && c != letter[0] {
			article := (c == 'A' || c == 'I') && at(rest, i+1) == ' '
			if !article {
				return false
			}
		}
	}
	return !strings.Contains(" "+words(rest)+" ", " or ")
}

// at is the byte at i, 0 outside.
func at(s string, i int) byte {
	if i < 0 || i >= len(s) {
		return 0
	}
	return s[i]
}

// pointed writes numbers with decimal commas as others do: 1.234,5 as 1234.5.
func pointed(s string) string {
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		between := isDigit(at(s, i-1)) && isDigit(at(s, i+1))
		switch {
		case s[i] == ',' && between:
			b = append(b, '.')
		case s[i] == '.' && between && isDigit(at(s, i+2)) && isDigit(at(s, i+3)) && !isDigit(at(s, i+4)) && (s[i-1] != '0' || isDigit(at(s, i-2))):
			// it parts thousands
		default:
			b = append(b, s[i])
		}
	}
	return string(b)
}
