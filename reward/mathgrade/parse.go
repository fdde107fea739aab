package mathgrade

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// reading is an answer that has been read. There are two of it where a comma may stand between thousands or between numbers.
type reading struct {
	text    string
	root    *node
	err     error
	grouped bool // root takes a comma for a mark between thousands
}

// read reads s as mathematics. Where that fails, it may be that every backslash of it was doubled on the way.
func read(s string, groups, loose bool) reading {
	r := readOnce(s, groups, loose)
	if r.err != nil && strings.Contains(s, `\\`) {
		if single := readOnce(strings.ReplaceAll(s, `\\`, `\`), groups, loose); single.err == nil {
			return single
		}
	}
	return r
}

func readOnce(s string, groups, loose bool) reading {
	r := reading{text: s}
	toks, grouped, err := lex(s, groups, loose)
	r.grouped, r.err = grouped, err
	if err != nil {
		return r
	}
	p := &parser{toks: toks}
	root := p.list(func() bool { return p.at(tEnd, "") })
	if p.err == nil && !p.at(tEnd, "") {
		p.fail("%q is not expected", p.peek().text)
	}
	if p.err != nil {
		r.err = p.err
		return r
	}
	r.root = root
	return r
}

// parser builds nodes by recursive descent. The first fault is kept; what is built after it is thrown away.
type parser struct {
	toks  []token
	i     int
	depth int
	bars  int // |…| that are open
	err   error
}

func (p *parser) fail(format string, args ...any) *node {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
	p.i = len(p.toks) // nothing more is read
	return number(new(big.Rat))
}

func (p *parser) peek() token { return p.ahead(0) }

func (p *parser) ahead(n int) token {
	if p.i+n >= len(p.toks) {
		return token{kind: tEnd}
	}
	return p.toks[p.i+n]
}

func (p *parser) at(k kind, text string) bool {
	t := p.peek()
	return t.kind == k && (text == "" || t.text == text)
}

func (p *parser) op(text string) bool { return p.at(tOp, text) }

func (p *parser) anyOp(texts ...string) bool {
	return p.peek().kind == tOp && slices.Contains(texts, p.peek().text)
}

// take passes over the next token if it is this operator.
func (p *parser) take(text string) bool {
	if p.op(text) {
		p.i++
		return true
	}
	return false
}

func (p *parser) want(text string) {
	if !p.take(text) {
		p.fail("%q is missing", text)
	}
}

// enter counts how deep the text is nested.
func (p *parser) enter() (leave func()) {
	p.depth++
	if p.depth > maxDepth {
		p.fail("nested too deep")
	}
	return func() { p.depth-- }
}

// list reads items with commas, semicolons, "and" or "or" between them, up to an end.
func (p *parser) list(end func() bool) *node {
	defer p.enter()()
	var items []*node
	name := ","
	for p.err == nil {
		items = append(items, p.item())
		sep := p.separator()
		if sep == "" {
			break
		}
		if sep != "," {
			name = sep
		}
		if end() { // a comma at the end
			break
		}
	}
	if len(items) == 1 {
		return items[0]
	}
	return &node{op: opList, kids: items, name: name}
}

// separator passes over what stands between two items: a comma, a word, or a comma and a word.
func (p *parser) separator() (sep string) {
	if p.anyOp(",", ";") {
		sep = ","
		p.i++
	}
	if p.peek().kind == tSep {
		sep = p.peek().text
		p.i++
	}
	return sep
}

// item reads a relation, or a value with its unit.
func (p *parser) item() *node {
	n := &node{op: opRel, kids: []*node{p.measured()}}
	for p.err == nil && p.anyOp("=", "<", ">", "<=", ">=", "!=", "~", "in") {
		n.rels = append(n.rels, p.peek().text)
		p.i++
		n.kids = append(n.kids, p.measured())
	}
	if len(n.rels) == 0 {
		return n.kids[0]
	}
	return n
}

// measured reads a value and the unit behind it. Words before = are a name: Area = 5.
func (p *parser) measured() *node {
	if p.peek().kind == tWord {
		return p.label()
	}
	v := p.union()
	if p.peek().kind != tWord && !p.inches() {
		return v
	}
	name := p.unit()
	return &node{op: opUnit, kids: []*node{v}, name: name}
}

// inches reports whether "in" is the unit here and no relation.
func (p *parser) inches() bool {
	next := p.ahead(1)
	return p.op("in") && (next.kind == tEnd || next.text == "^" || next.text == "," || next.text == "/")
}

// label reads words that stand where a value is expected: only before a relation.
func (p *parser) label() *node {
	var words []string
	for p.peek().kind == tWord || p.peek().kind == tLetter || p.op("in") {
		words = append(words, p.peek().text)
		p.i++
	}
	if !p.op("=") && !p.op("~") {
		return p.fail("words: %s", strings.Join(words, " "))
	}
	return leaf(opSym, "the "+strings.Join(words, " "))
}

// unit reads words behind a value, with powers and strokes between them.
func (p *parser) unit() string {
	var b strings.Builder
	for {
		t := p.peek()
		switch {
		case t.kind == tWord || t.kind == tLetter && b.Len() > 0 || t.kind == tOp && t.text == "in":
			b.WriteString(" " + t.text)
		case t.kind == tOp && t.text == "/" && p.ahead(1).kind != tNum:
			b.WriteString(" / ")
		case t.kind == tOp && t.text == "*" && p.ahead(1).kind == tWord:
			b.WriteString(" * ")
		case t.kind == tOp && t.text == "^":
			p.i++
			b.WriteString("^" + p.unitPower())
			continue
		default:
			return unitName(b.String())
		}
		p.i++
	}
}

func (p *parser) unitPower() string {
	braced := p.take("{")
	sign := ""
	if p.take("-") {
		sign = "-"
	}
	t := p.peek()
	if t.kind != tNum {
		p.fail("the power of a unit is no number")
		return ""
	}
	p.i++
	if braced {
		p.want("}")
	}
	return sign + t.text
}

// union reads set operations.
func (p *parser) union() *node {
	n := p.ratio()
	for p.err == nil && p.anyOp("cup", "cap", "setminus") {
		o := map[string]op{"cup": opUnion, "cap": opInter, "setminus": opMinus}[p.peek().text]
		p.i++
		n = branch(o, n, p.ratio())
	}
	return n
}

// ratio reads 3 : 4.
func (p *parser) ratio() *node {
	n := p.sum()
	if !p.op(":") {
		return n
	}
	r := branch(opRatio, n)
	for p.err == nil && p.take(":") {
		r.kids = append(r.kids, p.sum())
	}
	return r
}

func (p *parser) sum() *node {
	defer p.enter()()
	n := p.signedTerm()
	for p.err == nil {
		switch {
		case p.take("+"):
			n = join(opAdd, n, p.product())
		case p.take("-"):
			n = join(opAdd, n, branch(opNeg, p.product()))
		case p.take("pm"):
			n = &node{op: opPM, kids: []*node{n, p.product()}, name: "+"}
		case p.take("mp"):
			n = &node{op: opPM, kids: []*node{n, p.product()}, name: "-"}
		default:
			return n
		}
	}
	return n
}

// join adds b to a sum or product, or begins one.
func join(o op, a, b *node) *node {
	if a.op == o {
		a.kids = append(a.kids, b)
		return a
	}
	return branch(o, a, b)
}

func (p *parser) signedTerm() *node {
	defer p.enter()()
	switch {
	case p.take("-"):
		return branch(opNeg, p.signedTerm())
	case p.take("+"):
		return p.signedTerm()
	case p.take("pm"):
		return &node{op: opPM, kids: []*node{p.signedTerm()}, name: "+"}
	case p.take("mp"):
		return &node{op: opPM, kids: []*node{p.signedTerm()}, name: "-"}
	}
	return p.product()
}

func (p *parser) product() *node {
	n := p.factor()
	for p.err == nil {
		switch {
		case p.take("*"):
			n = join(opMul, n, p.signedFactor())
		case p.op("/") && p.ahead(1).kind != tWord:
			p.i++
			n = branch(opDiv, n, p.signedFactor())
		case p.begins():
			n = join(opMul, n, p.factor())
		default:
			return n
		}
	}
	return n
}

func (p *parser) signedFactor() *node {
	if p.take("-") {
		return branch(opNeg, p.signedFactor())
	}
	p.take("+")
	return p.factor()
}

// begins reports whether a factor begins here that no sign stands before.
func (p *parser) begins() bool {
	t := p.peek()
	switch t.kind {
	case tLetter, tConst, tFn, tNum:
		return true
	case tCmd:
		return t.text != "end" && t.text != "choose" && t.text != "over"
	case tOp:
		return slices.Contains([]string{"(", "[", "{", `\{`, "lfloor", "lceil", "langle"}, t.text) || t.text == "|" && p.bars == 0
	}
	return false
}

// factor reads a value with its powers and what stands behind it.
func (p *parser) factor() *node {
	defer p.enter()()
	n := p.primary()
	for p.err == nil {
		switch {
		case p.op("^"):
			p.i++
			n = p.power(n)
		case p.op("!") && !(p.ahead(1).kind == tOp && p.ahead(1).text == "="):
			p.i++
			n = branch(opFact, n)
		case p.take("%"):
			n = branch(opPct, n)
		case p.take("deg"):
			n = branch(opDeg, n)
		case p.op("'") && n.op == opSym:
			p.i++
			n = leaf(opSym, n.name+"'")
		case p.op("_"):
			p.i++
			n = p.subscript(n)
		default:
			return n
		}
	}
	return n
}

// power reads what stands behind ^: a power, the degree sign, or the ending of an ordinal.
func (p *parser) power(base *node) *node {
	defer p.enter()()
	if p.take("deg") {
		return branch(opDeg, base)
	}
	if p.peek().kind == tWord {
		p.i++
		return base // 5^\text{th}
	}
	if p.op("{") && (p.ahead(1).text == "deg" || p.ahead(1).kind == tWord) && p.ahead(2).text == "}" {
		p.i++
		n := p.power(base)
		p.want("}")
		return n
	}
	if p.op("'") || p.op("{") && p.ahead(1).text == "'" {
		return p.fail("a prime in a power")
	}
	return branch(opPow, base, p.exponent())
}

func (p *parser) exponent() *node {
	defer p.enter()()
	if p.take("-") {
		return branch(opNeg, p.exponent())
	}
	if p.take("+") {
		return p.exponent()
	}
	n := p.primary()
	if p.take("^") { // 9^9^9 = 9^(9^9)
		return p.power(n)
	}
	return n
}

// subscript reads x_1, 204_5 and x_{n+1}.
func (p *parser) subscript(n *node) *node {
	var b strings.Builder
	if p.take("{") {
		for p.err == nil && !p.op("}") {
			if p.peek().kind == tEnd {
				p.fail("a subscript that does not end")
				return n
			}
			b.WriteString(p.peek().text)
			p.i++
		}
		p.i++
	} else {
		b.WriteString(p.peek().text)
		p.i++
	}
	switch {
	case n.op == opSym:
		return leaf(opSym, n.name+"_"+b.String())
	case n.op == opConst && (n.name == "e" || n.name == "i" || len(n.name) == 1):
		return leaf(opSym, n.name+"_"+b.String())
	case n.op == opNum && n.places < 0:
		return p.based(n, b.String())
	}
	return p.fail("a subscript behind no letter")
}

func (p *parser) based(n *node, base string) *node {
	b, ok := new(big.Rat).SetString(base)
	if !ok || !n.num.IsInt() || !b.IsInt() || n.name == "" {
		return p.fail("the base %q", base)
	}
	return &node{op: opBased, num: b, name: n.name}
}

// primary reads one value without what stands behind it.
func (p *parser) primary() *node {
	defer p.enter()()
	t := p.peek()
	switch t.kind {
	case tNum:
		return p.number()
	case tLetter:
		return p.letter()
	case tConst:
		p.i++
		if n := leaf(opConst, t.text); set(n) || slices.Contains([]string{"pi", "e", "i", "inf"}, t.text) {
			return n
		}
		return p.fail("the set %s", t.text)
	case tFn:
		return p.function()
	case tCmd:
		return p.command()
	case tOp:
		return p.bracket()
	case tWord:
		return p.fail("the word %q", t.text)
	case tSep:
		return p.fail("%q has nothing before it", t.text)
	}
	return p.fail("it ends too early")
}

// number reads a number, and the fraction of a mixed one.
func (p *parser) number() *node {
	t := p.peek()
	p.i++
	n := &node{op: opNum, num: t.num, places: t.places, digits: significant(t.text)}
	if t.places >= 0 || !t.num.IsInt() {
		return n
	}
	if f := p.mixed(); f != nil {
		return &node{op: opNum, num: new(big.Rat).Add(t.num, f), places: -1}
	}
	if p.op("_") { // the digits matter in another base
		n.name = t.text
	}
	return n
}

// significant counts the digits of a number as it was written.
func significant(text string) int {
	mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
	mantissa = strings.TrimLeft(strings.Replace(mantissa, ".", "", 1), "0")
	return len(mantissa)
}

// mixed reads the proper fraction behind a whole number: \frac{3}{4}, or 3/4 after a space.
func (p *parser) mixed() *big.Rat {
	a, b, end := token{}, token{}, 0
	switch {
	case p.at(tCmd, "frac") && p.ahead(1).text == "{" && p.ahead(3).text == "}" && p.ahead(4).text == "{" && p.ahead(6).text == "}":
		a, b, end = p.ahead(2), p.ahead(5), 7
	case p.at(tCmd, "frac") && p.ahead(1).kind == tNum && len(p.ahead(1).text) == 2:
		a, b, end = digitToken(p.ahead(1).text[:1]), digitToken(p.ahead(1).text[1:]), 2
	case p.at(tNum, "") && p.peek().gap && p.ahead(1).text == "/" && p.ahead(2).kind == tNum && p.ahead(3).text != "^" && p.ahead(3).text != "!":
		a, b, end = p.ahead(0), p.ahead(2), 3
	}
	if a.kind != tNum || b.kind != tNum || a.places >= 0 || b.places >= 0 || b.num.Sign() == 0 || a.num.Cmp(b.num) >= 0 {
		return nil
	}
	p.i += end
	return new(big.Rat).Quo(a.num, b.num)
}

func digitToken(text string) token {
	v, ok := new(big.Rat).SetString(text)
	if !ok {
		return token{}
	}
	return token{kind: tNum, text: text, num: v, places: -1}
}

// letter reads a variable, or an unknown function with its argument.
func (p *parser) letter() *node {
	t := p.peek()
	p.i++
	for p.op("'") {
		t.text += "'"
		p.i++
	}
	if len(t.text) > 0 && strings.Contains("fghFG", t.text[:1]) && p.op("(") {
		p.i++
		args := p.list(func() bool { return p.op(")") })
		p.want(")")
		return leaf(opSym, t.text+args.text())
	}
	return leaf(opSym, t.text)
}

// function reads the name of a known function, its power and its argument.
func (p *parser) function() *node {
	defer p.enter()()
	name := p.peek().text
	p.i++
	var base, power *node
	for p.err == nil {
		if p.op("_") && base == nil {
			p.i++
			base = p.primary()
		} else if p.op("^") && power == nil {
			p.i++
			power = p.exponent()
		} else {
			break
		}
	}
	n := call(name, p.arguments()...)
	if base != nil {
		if name != "log" {
			return p.fail("a subscript of %s", name)
		}
		n.kids = append(n.kids, base)
	}
	if power == nil {
		return n
	}
	if power.op == opNeg && power.kids[0].op == opNum && power.kids[0].num.Cmp(big.NewRat(1, 1)) == 0 && functions("a"+name) != "" {
		return call(functions("a"+name), n.kids...)
	}
	return branch(opPow, n, power)
}

// arguments reads (…), {…}, or the factors up to the next operator or function.
func (p *parser) arguments() []*node {
	if p.op("(") || p.op("{") || p.op("[") {
		end := map[string]string{"(": ")", "{": "}", "[": "]"}[p.peek().text]
		p.i++
		l := p.list(func() bool { return p.op(end) })
		p.want(end)
		if l.op == opList {
			return l.kids
		}
		return []*node{l}
	}
	if p.take("-") {
		return []*node{branch(opNeg, p.arguments()[0])}
	}
	if p.op("|") {
		return []*node{p.primary()}
	}
	if p.peek().kind == tFn {
		return []*node{p.function()}
	}
	n := p.factor()
	for p.err == nil && p.begins() && p.peek().kind != tFn && !p.anyOp("(", "[", "{") {
		n = join(opMul, n, p.factor())
	}
	return []*node{n}
}

func (p *parser) command() *node {
	t := p.peek()
	p.i++
	switch t.text {
	case "frac":
		a := p.argument()
		return branch(opDiv, a, p.argument())
	case "binom":
		a := p.argument()
		return call("binom", a, p.argument())
	case "cbrt":
		return call("root", p.radicand(), number(big.NewRat(3, 1)))
	case "sqrt":
		if !p.take("[") {
			return call("root", p.radicand(), number(big.NewRat(2, 1)))
		}
		k := p.sum()
		p.want("]")
		return call("root", p.radicand(), k)
	case "begin":
		return p.matrix()
	}
	return p.fail("%s is not expected", t.text)
}

// argument reads {…} or one digit or sign: \frac12, \frac{1}2, \frac ab.
func (p *parser) argument() *node {
	defer p.enter()()
	if p.take("{") {
		n := p.list(func() bool { return p.op("}") })
		p.want("}")
		return n
	}
	t := p.peek()
	if t.kind == tNum && len(t.text) > 1 && isDigit(t.text[0]) && t.places < 0 && strings.Trim(t.text, "0123456789") == "" {
		first, rest := digitToken(t.text[:1]), digitToken(t.text[1:])
		p.toks[p.i] = rest
		return number(first.num)
	}
	return p.primary()
}

// radicand reads what stands behind a root.
func (p *parser) radicand() *node {
	if p.op("{") || p.op("(") {
		return p.bracket()
	}
	return p.primary()
}

func (p *parser) bracket() *node {
	defer p.enter()()
	t := p.peek()
	p.i++
	switch t.text {
	case "(", "[":
		return p.parenthesis(t.text)
	case "{":
		n := p.list(func() bool { return p.op("}") })
		if p.at(tCmd, "choose") {
			p.i++
			n = call("binom", n, p.list(func() bool { return p.op("}") }))
		} else if p.at(tCmd, "over") {
			p.i++
			n = branch(opDiv, n, p.list(func() bool { return p.op("}") }))
		}
		p.want("}")
		return n
	case `\{`:
		return p.set()
	case "langle":
		n := p.list(func() bool { return p.op("rangle") })
		p.want("rangle")
		return tuple("()", n)
	case "|":
		p.bars++
		n := p.sum()
		p.want("|")
		p.bars--
		return call("abs", n)
	case "lfloor":
		n := p.sum()
		p.want("rfloor")
		return call("floor", n)
	case "lceil":
		n := p.sum()
		p.want("rceil")
		return call("ceil", n)
	}
	return p.fail("%q is not expected", t.text)
}

func tuple(brackets string, n *node) *node {
	if n.op == opList {
		return &node{op: opTuple, kids: n.kids, name: brackets}
	}
	return &node{op: opTuple, kids: []*node{n}, name: brackets}
}

// parenthesis reads a value in brackets, or several: a tuple, or an interval.
func (p *parser) parenthesis(open string) *node {
	bars := p.bars
	p.bars = 0
	n := p.list(func() bool { return p.anyOp(")", "]") })
	p.bars = bars
	if !p.anyOp(")", "]") {
		return p.fail("a bracket that is not closed")
	}
	shut := p.peek().text
	p.i++
	if n.op == opList {
		return tuple(open+shut, n)
	}
	if open+shut != "()" && open+shut != "[]" {
		return p.fail("brackets that do not match")
	}
	if n.op == opNeg || n.op == opAdd || n.op == opMul { // what follows does not join the sum inside
		return branch(opAdd, n)
	}
	return n
}

// set reads what stands in \{…\}: elements, or elements with conditions.
func (p *parser) set() *node {
	bars := p.bars
	p.bars = 1 // a stroke here is no beginning of |…|
	defer func() { p.bars = bars }()
	if p.take(`\}`) {
		return leaf(opConst, "empty")
	}
	n := p.list(func() bool { return p.op(`\}`) })
	if b := colon(n); b != nil {
		p.want(`\}`)
		return b
	}
	if p.take("|") {
		cond := p.list(func() bool { return p.op(`\}`) })
		p.want(`\}`)
		return branch(opBuild, n, cond)
	}
	p.want(`\}`)
	if n.op == opList {
		return branch(opSet, n.kids...)
	}
	return branch(opSet, n)
}

// colon makes {x : x > 2} of what was read as a relation with a ratio in it; nil when it is none.
func colon(n *node) *node {
	if n.op != opRel {
		return nil
	}
	i := slices.IndexFunc(n.kids, func(k *node) bool { return k.op == opRatio && len(k.kids) == 2 })
	if i < 0 {
		return nil
	}
	head := &node{op: opRel, kids: append(slices.Clone(n.kids[:i]), n.kids[i].kids[0]), rels: n.rels[:i]}
	cond := &node{op: opRel, kids: append([]*node{n.kids[i].kids[1]}, n.kids[i+1:]...), rels: n.rels[i:]}
	for _, r := range []*node{head, cond} {
		if len(r.rels) == 0 {
			*r = *r.kids[0]
		}
	}
	return branch(opBuild, head, cond)
}

// matrix reads the cells of an environment.
func (p *parser) matrix() *node {
	env := p.peek().text
	p.i++
	if !slices.Contains([]string{"pmatrix", "bmatrix", "matrix", "Bmatrix", "array", "smallmatrix"}, env) {
		return p.fail("the environment %s", env)
	}
	m := &node{op: opMatrix}
	row := branch(opList)
	for p.err == nil && !p.at(tCmd, "end") {
		row.kids = append(row.kids, p.item())
		switch {
		case p.take("&"):
		case p.take(`\\`):
			m.kids = append(m.kids, row)
			row = branch(opList)
		case !p.at(tCmd, "end"):
			return p.fail("a matrix that does not end")
		}
	}
	if len(row.kids) > 0 {
		m.kids = append(m.kids, row)
	}
	p.i += 2
	if len(m.kids) == 0 || slices.ContainsFunc(m.kids, func(r *node) bool { return len(r.kids) != len(m.kids[0].kids) }) {
		return p.fail("a matrix with rows that differ in length")
	}
	return m
}
