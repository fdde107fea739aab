package mathgrade

import (
	"math/big"
	"slices"
	"strings"
)

// op is what a node is.
type op uint8

const (
	opNum    op = iota // num, as written; places tells a decimal
	opSym              // a variable, or an unknown function with its arguments: name
	opConst            // pi, e, i, inf, and the sets R, Z, N, Q, C, empty: name
	opAdd              // kids
	opMul              // kids
	opDiv              // two kids
	opPow              // two kids
	opNeg              // one kid
	opFn               // name and kids
	opFact             // one kid
	opDeg              // one kid, in degrees
	opPct              // one kid, in hundredths
	opPM               // two kids: the first plus or minus (name "+") or minus or plus (name "-") the second
	opBased            // digits in name, base in num
	opUnit             // one kid, with a unit behind it: name
	opList             // things in a row without brackets; name is "or", "and" or ","
	opTuple            // name is both brackets: "()", "[)", …
	opSet              // {…}
	opBuild            // {x | …}: the conditions are kids
	opRel              // kids with rels between them
	opUnion            // two kids
	opInter            // two kids
	opMinus            // two kids: a set without another
	opMatrix           // kids are rows, each an opList
	opRatio            // a : b : …
)

// node is a piece of an answer that has been read.
type node struct {
	op     op
	kids   []*node
	num    *big.Rat
	name   string
	rels   []string
	places int // opNum: digits behind the decimal point; -1 = written without one
	digits int // opNum: significant digits as written
}

func leaf(o op, name string) *node          { return &node{op: o, name: name} }
func branch(o op, kids ...*node) *node      { return &node{op: o, kids: kids} }
func call(name string, kids ...*node) *node { return &node{op: opFn, name: name, kids: kids} }

func number(r *big.Rat) *node { return &node{op: opNum, num: r, places: -1} }

// text writes a node so that equal texts mean equal nodes.
func (n *node) text() string {
	var b strings.Builder
	n.write(&b)
	return b.String()
}

func (n *node) write(b *strings.Builder) {
	b.WriteByte('(')
	b.WriteString(opName(n.op))
	if n.num != nil {
		b.WriteByte(' ')
		b.WriteString(n.num.RatString())
	}
	if n.name != "" {
		b.WriteByte(' ')
		b.WriteString(n.name)
	}
	for i, k := range n.kids {
		if i > 0 && i-1 < len(n.rels) {
			b.WriteString(n.rels[i-1])
		}
		k.write(b)
	}
	b.WriteByte(')')
}

func opName(o op) string { return string(rune('A' + o)) }

// has reports whether a node or one below it is what is asked for.
func (n *node) has(is func(*node) bool) bool {
	return is(n) || slices.ContainsFunc(n.kids, func(k *node) bool { return k.has(is) })
}

// symbols are the variables below a node, in order.
func (n *node) symbols() []string {
	var names []string
	n.has(func(m *node) bool {
		if m.op == opSym && !slices.Contains(names, m.name) {
			names = append(names, m.name)
		}
		return false
	})
	slices.Sort(names)
	return names
}

func (n *node) isConst(name string) bool { return n.op == opConst && n.name == name }

// isExpr reports whether a node is one value: no list, set or relation is below it.
func (n *node) isExpr() bool {
	return !n.has(func(m *node) bool {
		return m.op >= opUnit || m.op == opBased || set(m)
	})
}

// plain reports whether a node is a number that is worked out: digits, a fraction of two such, times a power of ten, with a sign, a
// percent sign, degrees or a unit.
func (n *node) plain() bool {
	switch n.op {
	case opNum, opBased:
		return true
	case opNeg:
		return n.kids[0].op != opNeg && n.kids[0].plain()
	case opPct, opDeg, opUnit:
		return n.kids[0].plain()
	case opAdd: // in brackets
		return len(n.kids) == 1 && n.kids[0].plain()
	case opDiv:
		return n.kids[0].literal() && n.kids[1].literal()
	case opMul:
		return len(n.kids) == 2 && n.kids[0].literal() && n.kids[1].tenPower()
	case opPow:
		return n.tenPower()
	case opConst:
		return n.name == "inf"
	}
	return false
}

func (n *node) literal() bool {
	if n.op == opNeg {
		n = n.kids[0]
	}
	return n.op == opNum
}

func (n *node) tenPower() bool {
	return n.op == opPow && n.kids[0].op == opNum && n.kids[0].num.Cmp(big.NewRat(10, 1)) == 0 && n.kids[1].literal()
}

// signs gives a node with ± in it as its two values; all signs change together.
func (n *node) signs() []*node {
	if !n.has(func(m *node) bool { return m.op == opPM }) {
		return []*node{n}
	}
	return []*node{n.signed(true), n.signed(false)}
}

func (n *node) signed(upper bool) *node {
	kids := make([]*node, len(n.kids))
	for i, k := range n.kids {
		kids[i] = k.signed(upper)
	}
	c := *n
	c.kids = kids
	if n.op != opPM {
		return &c
	}
	b := kids[len(kids)-1]
	if (n.name == "+") != upper {
		b = branch(opNeg, b)
	}
	if len(kids) == 1 {
		return b
	}
	return branch(opAdd, kids[0], b)
}
