package reward

import (
	"regexp"
	"strings"
)

// What makes another value of a number that stands next to it, in an answer that is to be a number and nothing else. Units, currencies, a percent sign and
// words around it do not.
var (
	behindNumber = regexp.MustCompile(`^(?:\s|\\[ ,;!])*(?:` + strings.Join([]string{
		`[+*×·÷]\s*(?:[\d.(\\]|[b-zB-Z]\b)`, `[-−–—]\s*\d`, `\^`, `_\s*\{?\s*\d`, `:\s*\d`, `/\s*[abknxyz]\b`, // an operation, a base, a ratio or a time
		`\\(?:times|cdot|div|pm|mp|sqrt|pi|log|ln|sin|cos|tan|frac)\b`, `[√π±]`,
		`[<>≤≥≠]`, `\\(?:lt|gt|le|ge|leq|geq|ne|neq)\b`, // a bound
		`[xyznij]\b`,         // a variable, or the imaginary unit
		`\(?\s*[,;]\s*\$?\d`, // several numbers
		`\(?\s*(?:\\(?:text|mathrm)\{\s*)?(?:or|to)\b`,
		`\(?\s*and\s+\$?\d`,
		`(?i:hundred|thousand|million|billion|trillion|dozen)s?\b`,
	}, "|") + `)`)
	multiplier = regexp.MustCompile(`^[kKM]\b`) // 5k; a unit where there is a space

	beforeNumber = regexp.MustCompile(strings.Join([]string{
		`[<>≤≥≠±]`, `\\(?:lt|gt|le|ge|leq|geq|ne|neq|pm|mp|log|ln|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|sqrt|min|max)\b`,
		`(?i)\bnot\b`,
		`[A-Za-z]\s*\(\s*$`, // a function of it
		`(?:\b[A-Za-z]|[\d)}])\s*(?:[-+*/×·÷−]|\\(?:times|cdot|div))\s*$`,
		`\b[xyzn]\s*$`,
	}, "|"))
)

// beside is what stands next to the number f of s and makes another value of it; "" = nothing does. What belongs to the number begins at from.
func beside(s string, from int, f found) string {
	before := strings.ReplaceAll(s[from:max(from, f.start)], `\left`, "")
	if what := beforeNumber.FindString(before); what != "" {
		return what
	}
	rest := s[f.end:]
	if what := behindNumber.FindString(rest); what != "" {
		return what
	}
	return multiplier.FindString(rest)
}
