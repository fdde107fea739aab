package mathgrade

import (
	"math/big"
	"slices"
	"strings"
)

// answers compares what was read of two answers. The truth says what is asked for; an answer may be more explicit than it (x = 3 for 3), but
// never leaves work undone that the truth has done.
type answers struct {
	*comparer
	vocabulary
	err error // the caller has gone
}

func (c *answers) values(truth, answer *node) bool {
	same, err := c.equal(truth, answer)
	if err != nil {
		c.err = err
	}
	return same && c.err == nil
}

// same is the verdict on two answers.
func (c *answers) same(truth, answer *node) bool {
	if c.err != nil {
		return false
	}
	truth, answer = truth.faced(), answer.faced()
	if truth.text() == answer.text() {
		return true
	}
	if truth.op == opRel {
		return c.relation(truth, answer)
	}
	if answer.op == opRel {
		return slices.ContainsFunc(c.stated(truth, answer), func(v *node) bool { return c.same(truth, v) }) ||
			c.interval(truth) && c.region(truth, answer)
	}
	switch truth.op {
	case opList:
		return c.list(truth, answer)
	case opSet:
		return c.unordered(elements(truth), elements(answer), answer.op == opSet || answer.op == opList || answer.isExpr()) || c.region(truth, answer)
	case opTuple:
		return c.tuple(truth, answer)
	case opUnion, opInter, opMinus, opBuild:
		return c.region(truth, answer)
	case opMatrix:
		return c.matrix(truth, answer)
	case opRatio:
		if quotient, ok := truth.quotient(); ok && answer.isExpr() {
			return c.quantity(quotient, answer)
		}
		return answer.op == opRatio && c.inOrder(truth.kids, answer.kids)
	case opBased:
		return answer.op == opNum && answer.places < 0 && answer.num.RatString() == strings.TrimLeft(truth.name, "0")
	case opConst:
		if set(truth) || set(answer) {
			return c.region(truth, answer)
		}
	}
	if answer.op == opMatrix || truth.has(func(n *node) bool { return n.op == opMatrix }) {
		return c.scaledMatrix(truth, answer)
	}
	if quotient, ok := answer.quotient(); ok && truth.isExpr() {
		return c.quantity(truth, quotient)
	}
	if all := truth.signs(); len(all) > 1 {
		return c.unordered(all, elements(answer), answer.op == opSet || answer.op == opList || answer.isExpr())
	}
	if (answer.op == opSet || answer.op == opList) && len(elements(answer)) == 1 {
		return c.same(truth, elements(answer)[0])
	}
	return c.quantity(truth, answer)
}

// quotient is a ratio of two as the fraction that it is: 3:4 is 3/4.
func (n *node) quotient() (*node, bool) {
	if n.op != opRatio || len(n.kids) != 2 {
		return nil, false
	}
	return branch(opDiv, n.kids...), true
}

// faced turns 3 = x round.
func (n *node) faced() *node {
	if n.op != opRel || len(n.rels) != 1 || n.rels[0] != "=" || !isLetters(n.kids[1]) || len(n.kids[0].symbols()) > 0 {
		return n
	}
	return &node{op: opRel, kids: []*node{n.kids[1], n.kids[0]}, rels: n.rels}
}

func set(n *node) bool {
	return n.op == opConst && slices.Contains([]string{"R", "Z", "N", "Q", "C", "empty"}, n.name)
}

// elements are the single values of a list, set or expression; ± makes two, and x = 1, 2 gives 1 and 2.
func elements(n *node) []*node {
	if n.op != opList && n.op != opSet {
		return n.signs()
	}
	var out []*node
	for _, k := range n.kids {
		if k.op == opRel && n.op == opList && len(k.rels) == 1 && k.rels[0] == "=" && isLetters(k.kids[0]) && n.oneName() {
			k = k.kids[1]
		}
		if k.op == opList { // x = {1, 2}
			out = append(out, elements(k)...)
			continue
		}
		out = append(out, k.signs()...)
	}
	return out
}

// oneName reports whether the equations of a list are all about one name.
func (n *node) oneName() bool {
	name := ""
	for _, k := range n.kids {
		if k.op != opRel {
			continue
		}
		if name != "" && k.kids[0].text() != name {
			return false
		}
		name = k.kids[0].text()
	}
	return true
}

// isLetters reports whether a node is a letter, or letters for one thing: x, f(2), AB, |AB|, AB/CD, (x, y).
func isLetters(n *node) bool {
	switch n.op {
	case opDiv, opRatio, opTuple:
		return !slices.ContainsFunc(n.kids, func(k *node) bool { return !isLetters(k) })
	case opMul:
		return !slices.ContainsFunc(n.kids, func(k *node) bool { return k.op != opSym })
	case opFn:
		return n.name == "abs" && n.kids[0].op == opMul && isLetters(n.kids[0]) // the length |AB|; |x| is no name
	case opConst:
		return n.name == "e" || n.name == "i"
	}
	return n.op == opSym
}

// isName reports whether a node is only a name for what is asked: letters, or what is made of such without a number: x + y.
func isName(n *node) bool {
	switch n.op {
	case opMul, opAdd:
		return !slices.ContainsFunc(n.kids, func(k *node) bool { return !isName(k) })
	case opDiv:
		return isName(n.kids[0]) && isName(n.kids[1])
	case opPow:
		return isName(n.kids[0]) && n.kids[1].op == opNum
	}
	return isLetters(n)
}

// stated gives what an equation states as its value, when the truth is a value: of x = 2/3 ≈ 0.67 it is 2/3, and 0.67 as that rounds 2/3.
// An equation that has yet to be solved, such as 2x = 10, and a chain that contradicts itself state nothing.
func (c *answers) stated(truth, n *node) []*node {
	if len(n.rels) == 1 && n.rels[0] == "in" {
		return n.kids[1:]
	}
	if slices.ContainsFunc(n.rels, func(r string) bool { return r != "=" && r != "~" }) {
		return nil
	}
	rest := n.kids
	if named := isLetters(rest[0]) || isName(rest[0]) && len(rest[0].symbols()) > 1; named || len(rest[0].symbols()) > 1 && c.opt.Simplify == "any" {
		rest = rest[1:]
	} else if len(rest[0].symbols()) > 0 && len(truth.symbols()) == 0 {
		return nil
	}
	exact := len(rest) - 1
	if i := slices.Index(n.rels, "~"); i >= 0 {
		exact = max(i-(len(n.kids)-len(rest)), 0)
	}
	if !c.consistent(rest) {
		return nil
	}
	if last := rest[len(rest)-1]; exact < len(rest)-1 && c.approximates(last, rest[exact]) {
		return []*node{rest[exact], last}
	}
	return rest[exact : exact+1]
}

// approximates reports whether a decimal is what a value rounds to at the places that it shows. A whole number could be another guess.
func (c *answers) approximates(decimal, exact *node) bool {
	if decimal.op == opUnit {
		if exact.op == opUnit && exact.name == decimal.name {
			exact = exact.kids[0]
		}
		decimal = decimal.kids[0]
	}
	half, ok := decimal.halfPlace()
	if !ok || !exact.isExpr() || len(exact.symbols()) > 0 {
		return false
	}
	c.setComplex(decimal, exact)
	c.high.at = nil
	x, err1 := c.high.eval(decimal)
	y, err2 := c.high.eval(exact)
	h, err3 := c.high.eval(half)
	if err1 != nil || err2 != nil || err3 != nil {
		return false
	}
	return c.gap(c.high, x, y).Cmp(c.high.abs(h)) <= 0
}

// halfPlace is half of the last place that a decimal shows: 0.005 of 3.14, 0.005·10^5 of 3.14·10^5.
func (n *node) halfPlace() (*node, bool) {
	switch {
	case n.op == opNum && n.places > 0:
		ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n.places)), nil)
		return number(new(big.Rat).SetFrac(big.NewInt(1), ten.Mul(ten, big.NewInt(2)))), true
	case n.op == opNeg, n.op == opPct, n.op == opDeg, n.op == opAdd && len(n.kids) == 1, n.op == opMul && len(n.kids) == 2 && n.kids[1].tenPower():
		half, ok := n.kids[0].halfPlace()
		c := *n
		c.kids = append([]*node{half}, n.kids[1:]...)
		return &c, ok
	}
	return nil, false
}

// consistent reports whether the members of a chain could all be the same value.
func (c *answers) consistent(chain []*node) bool {
	last := chain[len(chain)-1]
	for _, k := range chain[:len(chain)-1] {
		if !k.isExpr() || !last.isExpr() || len(k.symbols()) > 0 || len(last.symbols()) > 0 {
			continue
		}
		if !c.roughly(k, last) {
			return false
		}
	}
	return true
}

// roughly reports whether two values are equal to a fiftieth of their size, as what is called about the same.
func (c *answers) roughly(a, b *node) bool {
	c.setComplex(a, b)
	c.high.at = nil
	x, err1 := c.high.eval(a)
	y, err2 := c.high.eval(b)
	if err1 != nil || err2 != nil {
		return true // it cannot be told
	}
	d := c.gap(c.high, x, y)
	return d.Cmp(c.high.mul(c.high.abs(x), c.decimal(0.02))) <= 0
}

// list compares with a truth of several values without brackets, whose order does not matter.
func (c *answers) list(truth, answer *node) bool {
	if inequalities(truth) {
		return c.region(truth, answer)
	}
	if answer.op == opTuple && len(answer.kids) == len(truth.kids) && !interval(answer) {
		return c.inOrder(truth.kids, answer.kids)
	}
	if answer.op != opList && answer.op != opSet && len(answer.signs()) < 2 {
		return false
	}
	if answer.op == opSet && truth.name == "or" { // alternatives are a set
		return c.unordered(elements(truth), elements(answer), true)
	}
	if assigns(truth) && answer.op == opList && !slices.ContainsFunc(answer.kids, func(k *node) bool { return k.op == opRel }) {
		return c.inOrder(truth.kids, answer.kids) // 2, 1 is not a = 1, b = 2
	}
	t, a := elements(truth), elements(answer)
	return (len(t) == len(a) || len(t) == len(c.distinct(t))) && c.unordered(t, a, true)
}

// assigns reports whether a list gives values to letters that differ, more than by a subscript.
func assigns(n *node) bool {
	var seen []string
	for _, k := range n.kids {
		if k.op != opRel || k.rels[0] != "=" || k.kids[0].op != opSym {
			return false
		}
		base, _, _ := strings.Cut(k.kids[0].name, "_")
		if slices.Contains(seen, base) {
			return false
		}
		seen = append(seen, base)
	}
	return true
}

// interval reports whether brackets can only mean an interval.
func interval(n *node) bool { return n.op == opTuple && (n.name == "[)" || n.name == "(]") }

// unordered reports whether two bunches of values are the same: each as often where there are as many, else as sets.
func (c *answers) unordered(truth, answer []*node, comparable bool) bool {
	if !comparable {
		return false
	}
	if len(truth) != len(answer) { // one of them says a value again
		truth, answer = c.distinct(truth), c.distinct(answer)
	}
	if len(truth) != len(answer) {
		return false
	}
	for _, t := range truth {
		i := slices.IndexFunc(answer, func(a *node) bool { return c.same(t, a) })
		if i < 0 {
			return false
		}
		answer = slices.Delete(slices.Clone(answer), i, i+1)
	}
	return true
}

// maxElements bounds how many values are compared with one another.
const maxElements = 64

// distinct drops values that are there already.
func (c *answers) distinct(ns []*node) []*node {
	if len(ns) > maxElements {
		return ns
	}
	var out []*node
	for _, n := range ns {
		if !slices.ContainsFunc(out, func(o *node) bool { return c.same(o, n) }) {
			out = append(out, n)
		}
	}
	return out
}

func (c *answers) inOrder(truth, answer []*node) bool {
	if len(truth) != len(answer) {
		return false
	}
	for i, t := range truth {
		if !c.same(t, answer[i]) {
			return false
		}
	}
	return true
}

// tuple compares with a truth in brackets: a point, a vector, an interval.
func (c *answers) tuple(truth, answer *node) bool {
	switch answer.op {
	case opTuple:
		if truth.name == answer.name || len(truth.kids) > 2 && len(answer.kids) > 2 {
			return c.inOrder(truth.kids, answer.kids)
		}
		return false
	case opList:
		if answer.name == "or" || interval(truth) || truth.name == "[]" {
			return c.interval(truth) && c.region(truth, answer)
		}
		if vs, ok := named(answer); ok {
			return c.inOrder(truth.kids, vs)
		}
		return c.inOrder(truth.kids, answer.kids) || c.interval(truth) && c.region(truth, answer)
	case opMatrix:
		return truth.name == "()" && c.inOrder(truth.kids, flat(answer))
	case opUnion, opInter, opMinus, opBuild, opConst:
		return c.region(truth, answer)
	}
	return false
}

// named gives the values of x = 1, y = 2 in the order of their names.
func named(n *node) ([]*node, bool) {
	kids := slices.Clone(n.kids)
	for _, k := range kids {
		if k.op != opRel || len(k.rels) != 1 || k.rels[0] != "=" || k.kids[0].op != opSym {
			return nil, false
		}
	}
	slices.SortStableFunc(kids, func(a, b *node) int { return strings.Compare(a.kids[0].name, b.kids[0].name) })
	for i, k := range kids {
		if i > 0 && k.kids[0].name == kids[i-1].kids[0].name {
			return nil, false
		}
	}
	vs := make([]*node, len(kids))
	for i, k := range kids {
		vs[i] = k.kids[1]
	}
	return vs, true
}

// flat gives the cells of a matrix with one row or one column.
func flat(m *node) []*node {
	if len(m.kids) == 1 {
		return m.kids[0].kids
	}
	var cells []*node
	for _, row := range m.kids {
		if len(row.kids) != 1 {
			return nil
		}
		cells = append(cells, row.kids[0])
	}
	return cells
}

func (c *answers) matrix(truth, answer *node) bool {
	if answer.op == opTuple && answer.name == "()" {
		return c.inOrder(flat(truth), answer.kids)
	}
	if answer.op != opMatrix {
		return c.scaledMatrix(truth, answer)
	}
	if len(truth.kids) != len(answer.kids) {
		return false
	}
	for i, row := range truth.kids {
		if !c.inOrder(row.kids, answer.kids[i].kids) {
			return false
		}
	}
	return true
}

// scaledMatrix compares matrices of which one has a factor before it.
func (c *answers) scaledMatrix(truth, answer *node) bool {
	t, ok1 := multiplied(truth)
	a, ok2 := multiplied(answer)
	return ok1 && ok2 && (t != truth || a != answer) && c.matrix(t, a)
}

// multiplied multiplies a factor into the cells of a matrix.
func multiplied(n *node) (*node, bool) {
	switch {
	case n.op == opMatrix:
		return n, true
	case n.op == opNeg && n.kids[0].op == opMatrix:
		return spread(number(big.NewRat(-1, 1)), n.kids[0]), true
	case n.op == opMul && len(n.kids) == 2 && n.kids[1].op == opMatrix && n.kids[0].isExpr():
		return spread(n.kids[0], n.kids[1]), true
	}
	return nil, false
}

func spread(factor, m *node) *node {
	out := &node{op: opMatrix}
	for _, row := range m.kids {
		r := branch(opList)
		for _, cell := range row.kids {
			r.kids = append(r.kids, branch(opMul, factor, cell))
		}
		out.kids = append(out.kids, r)
	}
	return out
}

// measured is a value without what stands behind it.
type measured struct {
	value   *node
	unit    string
	percent bool
	degrees bool
}

func peel(n *node) measured {
	switch {
	case n.op == opUnit:
		m := peel(n.kids[0])
		m.unit = n.name
		return m
	case n.op == opPct:
		m := peel(n.kids[0])
		m.percent = true
		return m
	case n.op == opDeg:
		m := peel(n.kids[0])
		m.degrees = true
		return m
	case n.op == opAdd && len(n.kids) == 1:
		return peel(n.kids[0])
	case n.op == opNeg && (n.kids[0].op == opPct || n.kids[0].op == opDeg || n.kids[0].op == opUnit):
		m := peel(n.kids[0])
		m.value = branch(opNeg, m.value)
		return m
	}
	return measured{value: n}
}

// quantity compares two single values with their units.
func (c *answers) quantity(truth, answer *node) bool {
	t, a := peel(truth), peel(answer)
	if t.degrees != a.degrees && c.angles(t, a) {
		return true
	}
	if c.opt.Simplify == "required" && t.value.plain() && !a.value.plain() {
		return t.unit == a.unit && t.percent == a.percent && c.rounded(t.value, a.value)
	}
	if t.degrees && inRadians(a.unit) || a.degrees && inRadians(t.unit) {
		return false
	}
	t, a = t.counted(), a.counted()
	if factor, ok := c.units(t, a); !ok {
		return false
	} else if factor != nil {
		a.value = branch(opMul, number(factor), a.value)
	}
	return c.percents(t, a)
}

// units reports whether the units of two values go together, and by what an answer in the same kind of unit is to be multiplied.
func (c *answers) units(t, a measured) (factor *big.Rat, ok bool) {
	switch {
	case c.opt.Units == "ignore" || t.unit == a.unit:
		return nil, true
	case t.unit == "" || a.unit == "":
		return nil, c.opt.Units != "strict" || t.unit == ""
	}
	tu, ok1 := unitScale(t.unit)
	au, ok2 := unitScale(a.unit)
	if ok1 && ok2 {
		return new(big.Rat).Quo(au.factor, tu.factor), tu.of == au.of
	}
	return nil, c.opt.Units != "strict" && !ok1 && !ok2 && sameThing(t.unit, a.unit)
}

// sameThing reports whether one of two names says all that the other does about the same thing: red apple, apple.
func sameThing(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	if len(x) == 0 || len(y) == 0 || x[len(x)-1] != y[len(y)-1] {
		return false
	}
	within := func(x, y []string) bool {
		return !slices.ContainsFunc(x, func(w string) bool { return !slices.Contains(y, w) })
	}
	return within(x, y) || within(y, x)
}

// angles compares 90° with π/2: only an answer with π in it can be meant in radians.
func (c *answers) angles(t, a measured) bool {
	hasPi := func(n *node) bool { return n.isConst("pi") }
	if t.degrees && a.value.has(hasPi) {
		return c.values(branch(opDeg, t.value), a.value)
	}
	return a.degrees && t.value.has(hasPi) && c.values(t.value, branch(opDeg, a.value))
}

// large reports whether a value is over 1, so that it may be meant in percent: 0.5 is not 0.5%.
func (c *answers) large(n *node) bool {
	c.setComplex(n, n)
	c.high.at = nil
	x, err := c.high.eval(n)
	return err == nil && c.high.abs(x).Cmp(c.decimal(1)) > 0
}

func (c *answers) percents(t, a measured) bool {
	switch {
	case t.percent == a.percent:
		return c.values(t.value, a.value)
	case c.opt.Percent == "same" && (t.percent || c.large(t.value)) && c.values(t.value, a.value):
		return true
	case t.percent:
		return c.values(branch(opPct, t.value), a.value)
	}
	return c.values(t.value, branch(opPct, a.value))
}
