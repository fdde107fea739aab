package reward

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What counts as a number in an answer:
//
//   - digits with or without a decimal part: 18, 18.50, .5; a point at the end of a sentence is no part of it
//   - thousands in groups of three, split by a comma, a thin or a no-break space, or LaTeX's {,} and \,
//   - fractions 3/4, \frac{3}{4}, \frac34; mixed numbers 1 3/4, 1\frac{3}{4}
//   - 1.5e-3, 1.5 x 10^3, 1.5 \times 10^{3}, and 10^3 alone
//   - a minus right before it or before its currency sign, where no letter, digit or closing bracket stands before that: "-5", "-$5", "= -5"
//     and "−5" are negative, "10-5", "x-5" and the list item "- 5" are not
//
// Currency signs and codes before it and units after it are passed over. A percent sign is such a unit: 50% is 50, never
// 0.5, so that "50" and "50%" are the same answer. No numbers are: digits inside a word (x1, H2O, x_1), exponents (m^2),
// ordinals (2nd), powers other than of ten, dates 1/2/2024, versions 1.2.3, and anything of more than a thousand digits.

// found is a number in a text, not yet worked out.
type found struct {
	start, end int // of the number with its sign and currency, in the text
	negative   bool
	whole      string // digits and decimal part of a plain number, or of the whole part of a mixed one; "" = none
	num, den   string // of the fraction; "" = none
	exponent   int    // power of ten
}

const (
	maxDigits   = 1000
	maxExponent = 400
)

// value works the number out exactly.
func (f found) value() (*big.Rat, bool) {
	v := new(big.Rat)
	if f.whole != "" {
		if _, ok := v.SetString(f.whole); !ok {
			return nil, false
		}
	}
	if f.num != "" {
		n, ok1 := new(big.Rat).SetString(f.num)
		d, ok2 := new(big.Rat).SetString(f.den)
		if !ok1 || !ok2 || d.Sign() == 0 {
			return nil, false
		}
		v.Add(v, n.Quo(n, d))
	}
	if f.exponent != 0 {
		scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(f.exponent, -f.exponent))), nil)
		if f.exponent > 0 {
			v.Mul(v, new(big.Rat).SetInt(scale))
		} else {
			v.Quo(v, new(big.Rat).SetInt(scale))
		}
	}
	if f.negative {
		v.Neg(v)
	}
	return v, true
}

// nextNumber finds the first number that begins at i or later.
func nextNumber(s string, i int) (found, bool) {
	for i < len(s) {
		if !begins(s, i) {
			i++
			continue
		}
		f, end, ok := readNumber(s, i)
		if ok {
			return f, true
		}
		i = max(end, i+1)
	}
	return found{}, false
}

// lastNumber finds the last number of a text.
func lastNumber(s string) (last found, ok bool) {
	for i := 0; ; {
		f, more := nextNumber(s, i)
		if !more {
			return last, ok
		}
		last, ok, i = f, true, f.end
	}
}

// begins reports whether a number could begin at i.
func begins(s string, i int) bool {
	switch {
	case isDigit(s[i]):
		return true
	case s[i] == '.':
		return i+1 < len(s) && isDigit(s[i+1]) && (i == 0 || !isDigit(s[i-1]) && !letterBefore(s[:i]))
	case s[i] == '\\':
		return fracCommand(s[i:]) > 0
	}
	return false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// readNumber reads what begins at i. Where that is no number, end says how far to pass over it.
func readNumber(s string, i int) (f found, end int, ok bool) {
	f = found{start: i}
	end = i
	if fracCommand(s[i:]) == 0 {
		f.whole, end, ok = readPlain(s, i)
		if !ok {
			return f, end, false
		}
	}
	f, end, ok = readTail(s, f, end)
	f.end = end
	if !ok || end-f.start > maxDigits+100 || isOrdinal(s[end:]) {
		return f, end, false
	}
	return f, end, f.lookBack(s)
}

// readPlain reads digits, groups of thousands and a decimal part.
func readPlain(s string, i int) (text string, end int, ok bool) {
	j := digits(s, i)
	text = s[i:j]
	if n := j - i; n >= 1 && n <= 3 && s[i] != '0' {
		for {
			k := j + separator(s[j:])
			if k == j || digits(s, k) != k+3 {
				break
			}
			if len(text) <= maxDigits { // beyond that it is passed over, not collected
				text += s[k : k+3]
			}
			j = k + 3
		}
	}
	if j+1 < len(s) && s[j] == '.' && isDigit(s[j+1]) {
		k := digits(s, j+1)
		text += s[j:k]
		j = k
		if j+1 < len(s) && s[j] == '.' && isDigit(s[j+1]) { // 1.2.3
			return "", skipDotted(s, j), false
		}
	}
	if len(text) > maxDigits {
		return "", j, false
	}
	return text, j, true
}

// digits is the end of the run of digits at i.
func digits(s string, i int) int {
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return i
}

func skipDotted(s string, i int) int {
	for i < len(s) && (isDigit(s[i]) || s[i] == '.') {
		i++
	}
	return i
}

// separator is the length of the mark between thousands that s begins with, 0 for none.
func separator(s string) int {
	for _, sep := range []string{",", "{,}", `\,`, "\u00a0", "\u2009", "\u202f"} {
		if strings.HasPrefix(s, sep) {
			return len(sep)
		}
	}
	return 0
}

// readTail reads what can follow a plain number and belongs to it: a fraction, an exponent, times a power of ten.
func readTail(s string, f found, i int) (found, int, bool) {
	if f.whole == "" {
		num, den, end, ok := readFrac(s, i)
		f.num, f.den = num, den
		return f, end, ok
	}
	rest := s[i:]
	switch {
	case degrees(rest) > 0:
		return f, i + degrees(rest), true
	case strings.HasPrefix(rest, "^"):
		return readPower(s, f, i)
	case strings.HasPrefix(rest, "/"):
		return readSlash(s, f, i)
	case len(rest) > 1 && (rest[0] == 'e' || rest[0] == 'E'):
		if e, end, ok := readExponent(s, i+1); ok {
			f.exponent = e
			return f, end, inRange(e)
		}
	}
	if e, end, ok := readTimesTen(s, i); ok {
		f.exponent = e
		return f, end, inRange(e)
	}
	if strings.Contains(f.whole, ".") {
		return f, i, true
	}
	return readMixed(s, f, i)
}

func inRange(e int) bool { return -maxExponent <= e && e <= maxExponent }

// readExponent reads a signed whole number that no letter follows; at most five digits, so that it fits an int.
func readExponent(s string, i int) (e, end int, ok bool) {
	j := i
	if j < len(s) && (s[j] == '-' || s[j] == '+') {
		j++
	}
	end = digits(s, j)
	if end == j || end-j > 5 || letterAt(s, end) {
		return 0, i, false
	}
	e, err := strconv.Atoi(strings.TrimPrefix(s[i:end], "+"))
	return e, end, err == nil
}

func letterAt(s string, i int) bool {
	r, _ := utf8.DecodeRuneInString(s[i:])
	return unicode.IsLetter(r)
}

// degrees is the length of the sign of degrees in LaTeX that s begins with, 0 for none. It is a unit.
func degrees(s string) int {
	for _, sign := range []string{`^\circ`, `^{\circ}`} {
		if strings.HasPrefix(s, sign) {
			return len(sign)
		}
	}
	return 0
}

// readPower reads ^k after a number: ten to a power is a number, any other power is not.
func readPower(s string, f found, i int) (found, int, bool) {
	e, end, ok := readBraced(s, i+1)
	if !ok {
		return f, i + 1, false
	}
	ten := f.whole == "10"
	f.whole, f.exponent = "1", e
	return f, end, ten && inRange(e)
}

// readBraced reads k, {k} or (k).
func readBraced(s string, i int) (e, end int, ok bool) {
	shut := byte(0)
	if i < len(s) && s[i] == '{' {
		shut = '}'
	} else if i < len(s) && s[i] == '(' {
		shut = ')'
	}
	if shut == 0 {
		return readExponent(s, i)
	}
	e, end, ok = readExponent(s, i+1)
	if !ok || end >= len(s) || s[end] != shut {
		return 0, i, false
	}
	return e, end + 1, true
}

// readTimesTen reads " x 10^k" in its several spellings.
func readTimesTen(s string, i int) (e, end int, ok bool) {
	j := spacesEnd(s, i)
	n := 0
	for _, times := range []string{`\times`, `\cdot`, "×", "·", "x", "*"} {
		if strings.HasPrefix(s[j:], times) {
			n = len(times)
			break
		}
	}
	j = spacesEnd(s, j+n)
	if n == 0 || !strings.HasPrefix(s[j:], "10^") {
		return 0, i, false
	}
	return readBraced(s, j+len("10^"))
}

func spacesEnd(s string, i int) int {
	for i < len(s) && s[i] == ' ' {
		i++
	}
	return i
}

// readSlash reads /d after a number: a fraction, unless what follows makes it a date or a power.
func readSlash(s string, f found, i int) (found, int, bool) {
	if i+1 >= len(s) || !isDigit(s[i+1]) {
		return f, i, true // 60 miles/hour and the like: the slash belongs to a unit
	}
	den, end, ok := readPlain(s, i+1)
	if !ok || strings.HasPrefix(s[end:], "^") || strings.HasPrefix(s[end:], "/") && end+1 < len(s) && isDigit(s[end+1]) {
		for end < len(s) && (isDigit(s[end]) || s[end] == '/' || s[end] == '^') {
			end++
		}
		return f, end, false
	}
	f.num, f.den, f.whole = f.whole, den, ""
	return f, end, strings.Trim(den, "0.") != ""
}

// readMixed reads the fraction after a whole number, " 3/4" or "\frac{3}{4}"; where there is none the number stands alone.
func readMixed(s string, f found, i int) (found, int, bool) {
	j := spacesEnd(s, i)
	if num, den, end, ok := readFrac(s, j); ok {
		f.num, f.den = num, den
		return f, end, true
	}
	if j != i+1 {
		return f, i, true
	}
	slash := digits(s, j)
	if slash == j || slash >= len(s) || s[slash] != '/' {
		return f, i, true
	}
	end := digits(s, slash+1)
	den := s[slash+1 : end]
	goesOn := end < len(s) && (s[end] == '/' || s[end] == '.' && end+1 < len(s) && isDigit(s[end+1]))
	if end-j > maxDigits || strings.Trim(den, "0") == "" || goesOn {
		return f, i, true
	}
	f.num, f.den = s[j:slash], den
	return f, end, true
}

// fracCommand is the length of the LaTeX fraction command that s begins with, 0 for none.
func fracCommand(s string) int {
	for _, c := range []string{`\frac`, `\dfrac`, `\tfrac`, `\cfrac`} {
		if strings.HasPrefix(s, c) {
			return len(c)
		}
	}
	return 0
}

// readFrac reads \frac{a}{b} or \frac ab. Where it holds no plain numbers it is passed over whole.
func readFrac(s string, i int) (num, den string, end int, ok bool) {
	n := fracCommand(s[i:])
	if n == 0 {
		return "", "", i, false
	}
	a, j := group(s, i+n)
	b, end := group(s, j)
	if !isPlain(strings.TrimPrefix(a, "-")) || !isPlain(b) || strings.Trim(b, "0.") == "" {
		return "", "", end, false
	}
	return a, b, end, true
}

// group is one LaTeX argument at i: {…} or one character.
func group(s string, i int) (text string, end int) {
	i = spacesEnd(s, i)
	if i >= len(s) {
		return "", i
	}
	if s[i] != '{' {
		return s[i : i+1], i + 1
	}
	shut := strings.IndexByte(s[i:min(len(s), i+maxDigits)], '}')
	if shut < 0 {
		return "", i + 1
	}
	return strings.TrimSpace(s[i+1 : i+shut]), i + shut + 1
}

// isPlain reports whether s is digits with at most one point among them.
func isPlain(s string) bool {
	return s != "" && strings.Trim(s, "0123456789.") == "" && strings.Count(s, ".") <= 1 && strings.Trim(s, ".") != ""
}

func isOrdinal(rest string) bool {
	if len(rest) < 2 || letterAt(rest, 2) {
		return false
	}
	switch strings.ToLower(rest[:2]) {
	case "st", "nd", "rd", "th":
		return true
	}
	return false
}

// lookBack takes in what stands before the number, currency and sign, and reports whether it is a number there at all.
func (f *found) lookBack(s string) bool {
	before := s[:f.start]
	r, _ := utf8.DecodeLastRuneInString(before)
	switch {
	case r == '_' || r == '^':
		return false
	case unicode.IsLetter(r):
		n := currencyCode(before)
		if n == 0 {
			return latexCommand(before)
		}
		before = before[:len(before)-n]
	default:
		trimmed := strings.TrimRight(before, " ")
		if mark := currencySign(trimmed); mark > 0 {
			before = trimmed[:len(trimmed)-mark]
		}
	}
	f.start = len(before)
	r, size := utf8.DecodeLastRuneInString(before)
	if r != '-' && r != '−' {
		return true
	}
	left, _ := utf8.DecodeLastRuneInString(before[:len(before)-size])
	if unicode.IsLetter(left) || unicode.IsDigit(left) || strings.ContainsRune(")]}%_-−", left) {
		return true // a minus between two terms, or a dash
	}
	f.negative = true
	f.start -= size
	return true
}

// currencySign is the length of the sign that s ends with, 0 for none.
func currencySign(s string) int {
	for _, sign := range []string{`\$`, "$", "€", "£", "¥", "₹"} {
		if strings.HasSuffix(s, sign) {
			return len(sign)
		}
	}
	return 0
}

// currencyCode is the length of the code that s ends with, 0 for none.
func currencyCode(s string) int {
	for _, code := range []string{"USD", "EUR", "GBP", "INR", "JPY", "CNY", "Rs"} {
		if strings.HasSuffix(s, code) && !letterBefore(s[:len(s)-len(code)]) {
			return len(code)
		}
	}
	return 0
}

func letterBefore(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return unicode.IsLetter(r)
}

// latexCommand reports whether s ends with a command such as \approx.
func latexCommand(s string) bool {
	i := len(s)
	for i > 0 && len(s)-i < 20 && 'a' <= s[i-1]|0x20 && s[i-1]|0x20 <= 'z' {
		i--
	}
	return i > 0 && s[i-1] == '\\'
}
