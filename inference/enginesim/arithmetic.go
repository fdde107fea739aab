package enginesim

import (
	"math/big"
	"strconv"
	"strings"
)

// Limits that keep an expression in a prompt from costing more than a glance: digits of a number, bytes of an expression,
// nesting of brackets, size of a power.
const (
	maxDigits   = 24
	maxFormula  = 400
	maxNesting  = 32
	maxExponent = 64
)

// formula is an arithmetic expression found in a text.
type formula struct {
	text  string // as calculators take it: * and / for × and ÷, no thousands separators
	value *big.Rat
}

// findFormula returns the expression a question is about: the longest one with an operator in the last paragraph that has
// any, the later of two equally long ones.
func findFormula(text string) (formula, bool) {
	for text != "" {
		rest, paragraph := "", text
		if i := strings.LastIndex(text, "\n\n"); i >= 0 {
			rest, paragraph = text[:i], text[i+2:]
		}
		if f, ok := longestFormula(paragraph); ok {
			return f, true
		}
		text = rest
	}
	return formula{}, false
}

func longestFormula(s string) (best formula, found bool) {
	size := 0
	for i := 0; i < len(s); i++ {
		if !opensFormula(s, i) {
			continue
		}
		p := parser{s: s[i:min(len(s), i+maxFormula)]}
		v, ok := p.sum(0)
		if !ok || p.operators == 0 {
			i = skipNumber(s, i)
			continue
		}
		if p.end >= size {
			best, size, found = formula{text: p.out(), value: v}, p.end, true
		}
		i += p.end - 1
	}
	return best, found
}

func opensFormula(s string, i int) bool {
	c := s[i]
	if i > 0 && (letter(s[i-1]) || digit(s[i-1])) {
		return false
	}
	if before := strings.TrimRight(s[:i], " "); before != "" && strings.IndexByte("/^%", before[len(before)-1]) >= 0 {
		return false // the right side of something not understood, such as a division by zero
	}
	return digit(c) || c == '(' || c == '-' && i+1 < len(s) && (digit(s[i+1]) || s[i+1] == '(')
}

func skipNumber(s string, i int) int {
	for i+1 < len(s) && digit(s[i]) && digit(s[i+1]) {
		i++
	}
	return i
}

func digit(c byte) bool  { return c >= '0' && c <= '9' }
func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }

// parser reads the longest expression that s begins with. end is where what was understood ends: an operator without a right
// side is left out.
type parser struct {
	s         string
	at        int // next byte
	end       int // end of the expression so far
	operators int
	pieces    []string
}

func (p *parser) out() string { return strings.Join(p.pieces, "") }

func (p *parser) blanks() {
	for p.at < len(p.s) && p.s[p.at] == ' ' {
		p.at++
	}
}

// operator reads one of the wanted operators; it returns its calculator form, "" for none.
func (p *parser) operator(wanted string) string {
	p.blanks()
	for _, o := range [...]struct{ text, plain string }{
		{"**", "^"}, {"×", "*"}, {"÷", "/"}, {"−", "-"}, {"+", "+"}, {"-", "-"}, {"*", "*"}, {"/", "/"}, {"%", "%"}, {"^", "^"}, {"x ", "*"},
	} {
		if strings.HasPrefix(p.s[p.at:], o.text) {
			if !strings.Contains(wanted, o.plain) {
				return ""
			}
			p.at += len(o.text)
			return o.plain
		}
	}
	return ""
}

// chainOf reads left-associative operators of one rank.
func (p *parser) chainOf(wanted string, depth int, next func(int) (*big.Rat, bool), apply func(op string, a, b *big.Rat) bool) (*big.Rat, bool) {
	v, ok := next(depth)
	if !ok {
		return nil, false
	}
	for {
		mark, pieces, operators := p.at, len(p.pieces), p.operators
		op := p.operator(wanted)
		if op == "" {
			p.at = mark
			return v, true
		}
		p.pieces = append(p.pieces, " "+op+" ")
		p.operators++
		w, ok := next(depth)
		if !ok || !apply(op, v, w) {
			p.at, p.pieces, p.operators = mark, p.pieces[:pieces], operators
			return v, true
		}
		p.end = p.at
	}
}

func (p *parser) sum(depth int) (*big.Rat, bool) {
	return p.chainOf("+-", depth, p.product, func(op string, a, b *big.Rat) bool {
		if op == "+" {
			a.Add(a, b)
		} else {
			a.Sub(a, b)
		}
		return true
	})
}

func (p *parser) product(depth int) (*big.Rat, bool) {
	return p.chainOf("*/%", depth, p.power, func(op string, a, b *big.Rat) bool {
		switch {
		case op == "*":
			a.Mul(a, b)
		case b.Sign() == 0:
			return false
		case op == "/":
			a.Quo(a, b)
		case !a.IsInt() || !b.IsInt():
			return false
		default:
			a.SetInt(new(big.Int).Rem(a.Num(), b.Num()))
		}
		return true
	})
}

func (p *parser) power(depth int) (*big.Rat, bool) {
	return p.chainOf("^", depth, p.atom, func(_ string, a, b *big.Rat) bool {
		if !b.IsInt() || b.Sign() < 0 || b.Num().Cmp(big.NewInt(maxExponent)) > 0 || a.Num().BitLen()+a.Denom().BitLen() > 256 {
			return false
		}
		num := new(big.Int).Exp(a.Num(), b.Num(), nil)
		a.SetFrac(num, new(big.Int).Exp(a.Denom(), b.Num(), nil))
		return true
	})
}

func (p *parser) atom(depth int) (*big.Rat, bool) {
	p.blanks()
	if p.at >= len(p.s) || depth > maxNesting {
		return nil, false
	}
	switch c := p.s[p.at]; {
	case c == '(':
		return p.bracket(depth)
	case c == '-':
		p.at++
		p.pieces = append(p.pieces, "-")
		v, ok := p.atom(depth + 1)
		if !ok {
			return nil, false
		}
		return v.Neg(v), true
	case digit(c):
		return p.number()
	}
	return nil, false
}

func (p *parser) bracket(depth int) (*big.Rat, bool) {
	p.at++
	p.pieces = append(p.pieces, "(")
	v, ok := p.sum(depth + 1)
	p.blanks()
	if !ok || p.at >= len(p.s) || p.s[p.at] != ')' {
		return nil, false
	}
	p.at++
	p.pieces = append(p.pieces, ")")
	p.end = p.at
	return v, true
}

func (p *parser) number() (*big.Rat, bool) {
	n := numberLen(p.s[p.at:])
	text := strings.ReplaceAll(p.s[p.at:p.at+n], ",", "")
	v, ok := new(big.Rat).SetString(text)
	if !ok || len(text) > maxDigits {
		return nil, false
	}
	p.at += n
	p.end = p.at
	p.pieces = append(p.pieces, text)
	return v, true
}

// numberLen is the length of the number that s begins with: digits, thousands separators before three digits, a decimal part.
func numberLen(s string) int {
	n := 0
	for n < len(s) && (digit(s[n]) || s[n] == ',' && thousands(s[n+1:])) {
		n++
	}
	if n+1 < len(s) && s[n] == '.' && digit(s[n+1]) {
		for n++; n < len(s) && digit(s[n]); n++ {
		}
	}
	return n
}

func thousands(s string) bool {
	return len(s) >= 3 && digit(s[0]) && digit(s[1]) && digit(s[2]) && (len(s) == 3 || !digit(s[3]))
}

// lastNumber finds the last number in what a tool answered, sign included.
func lastNumber(s string) (string, *big.Rat, bool) {
	var text string
	for i := 0; i < len(s); i++ {
		if !digit(s[i]) {
			continue
		}
		n := numberLen(s[i:])
		if i+n < len(s) && (s[i+n] == 'e' || s[i+n] == 'E') {
			n += exponentLen(s[i+n:])
		}
		text = strings.ReplaceAll(s[i:i+n], ",", "")
		if i > 0 && s[i-1] == '-' {
			text = "-" + text
		}
		i += n - 1
	}
	if text == "" || len(text) > 2*maxDigits {
		return "", nil, false
	}
	v, ok := new(big.Rat).SetString(text)
	return text, v, ok
}

func exponentLen(s string) int {
	n := 1
	if n < len(s) && (s[n] == '+' || s[n] == '-') {
		n++
	}
	if n >= len(s) || !digit(s[n]) {
		return 0
	}
	from := n
	for n < len(s) && digit(s[n]) && n-from < 2 {
		n++
	}
	return n
}

// decimal writes a value as people do: exact where it is short, else ten significant digits.
func decimal(v *big.Rat) string {
	if v.IsInt() {
		return v.Num().String()
	}
	for places := 1; places <= 8; places++ {
		s := v.FloatString(places)
		if w, _ := new(big.Rat).SetString(s); w.Cmp(v) == 0 {
			return s
		}
	}
	f, _ := v.Float64()
	return strconv.FormatFloat(f, 'g', 10, 64)
}
