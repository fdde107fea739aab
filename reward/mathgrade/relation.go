package mathgrade

import (
	"math/big"
	"slices"
)

// relation compares with a truth that is an equation or inequality.
func (c *answers) relation(truth, answer *node) bool {
	if len(truth.rels) == 1 && truth.rels[0] == "in" {
		if answer.op == opRel && len(answer.rels) == 1 && answer.rels[0] == "in" {
			answer = answer.kids[1]
		}
		return c.same(truth.kids[1], answer)
	}
	if slices.ContainsFunc(truth.rels, func(r string) bool { return r != "=" && r != "~" }) {
		return c.inequality(truth, answer)
	}
	value, isValue := assigned(truth)
	if answer.op != opRel {
		return isValue && c.same(value, answer)
	}
	if slices.ContainsFunc(answer.rels, func(r string) bool { return r != "=" && r != "~" }) {
		return len(answer.rels) == 1 && answer.rels[0] == "in" && isValue && c.same(value, answer.kids[1])
	}
	if got, ok := assigned(answer); ok && isValue && c.agree(truth.kids[0], answer.kids[0]) && c.consistent(answer.kids[1:]) && c.same(value, got) {
		return true
	}
	if isValue && len(value.symbols()) == 0 && c.opt.Simplify == "required" {
		return false // x = 3 is asked for, and 2x = 6 leaves that to do
	}
	return len(truth.kids) == 2 && len(answer.kids) == 2 && c.proportional(difference(truth), difference(answer), 0)
}

// assigned is what an equation gives to its name: the last member of x = … = 5.
func assigned(n *node) (*node, bool) {
	if !isLetters(n.kids[0]) {
		return nil, false
	}
	last := len(n.kids) - 1
	if i := slices.Index(n.rels, "~"); i > 0 {
		last = i
	}
	return n.kids[last], true
}

// agree reports whether two names can be of the same thing. Words in front are only labels.
func (c *answers) agree(a, b *node) bool {
	label := func(n *node) bool { return n.op == opSym && len(n.name) > 4 && n.name[:4] == "the " }
	return label(a) || label(b) || a.text() == b.text() || c.values(a, b)
}

// difference is the left side without the right.
func difference(n *node) *node { return branch(opAdd, n.kids[0], branch(opNeg, n.kids[1])) }

// proportional reports whether b is a constant times a, so that both are 0 together. sign asks for a factor above (1) or below (-1) 0; 0 takes any.
func (c *answers) proportional(a, b *node, sign int) bool {
	if !a.isExpr() || !b.isExpr() {
		return false
	}
	c.setComplex(a, b)
	names := branch(opList, a, b).symbols()
	if len(names) == 0 {
		return false
	}
	factor, ok := c.factor(a, b, names)
	if !ok {
		return false
	}
	if sign != 0 {
		c.high.at = nil
		v, err := c.high.eval(factor)
		if err != nil || v.im != nil || v.re.Sign() != sign {
			return false
		}
	}
	return c.values(branch(opMul, factor, a), b)
}

// factor is what b is of a at a point where a is not 0, as an expression without variables.
func (c *answers) factor(a, b *node, names []string) (*node, bool) {
	for k := int64(0); k < 8; k++ {
		at := map[string]*node{}
		for i, n := range names {
			at[n] = number(big.NewRat(7+3*k+5*int64(i)*(k+1), 4+k))
		}
		x, y := a.with(at), b.with(at)
		c.high.at = nil
		v, err := c.high.eval(x)
		if err != nil || c.high.abs(v).Sign() == 0 || c.high.abs(v).MantExp(nil) < -int(c.high.prec/2) {
			continue
		}
		if w, err := c.high.eval(y); err != nil || c.high.abs(w).Sign() == 0 {
			return nil, false
		}
		return branch(opDiv, y, x), true
	}
	return nil, false
}

// with puts values in the place of variables.
func (n *node) with(at map[string]*node) *node {
	if v, ok := at[n.name]; ok && n.op == opSym {
		return v
	}
	c := *n
	c.kids = make([]*node, len(n.kids))
	for i, k := range n.kids {
		c.kids[i] = k.with(at)
	}
	return &c
}

// inequality compares with a truth that is an inequality: as regions of one variable, or side by side.
func (c *answers) inequality(truth, answer *node) bool {
	t := upwards(truth)
	if answer.op != opRel {
		return c.region(truth, answer)
	}
	a := upwards(answer)
	names := truth.symbols()
	if !slices.Equal(names, answer.symbols()) {
		return false
	}
	if slices.Equal(t.rels, a.rels) && c.inOrder(t.kids, a.kids) {
		return true
	}
	if len(names) == 1 && (c.opt.Simplify == "any" || c.solved(answer) || !c.solved(truth)) && c.solvedRegion(truth, answer) {
		return true
	}
	if len(t.kids) != 2 || len(a.kids) != 2 || t.rels[0] != a.rels[0] || c.solved(truth) && !c.solved(answer) && c.opt.Simplify != "any" {
		return false
	}
	sign := 1
	if t.rels[0] == "!=" {
		sign = 0
	}
	return c.proportional(difference(t), difference(a), sign)
}

// upwards turns a chain with > into one with <.
func upwards(n *node) *node {
	down := func(r string) bool { return r == ">" || r == ">=" }
	if !slices.ContainsFunc(n.rels, down) || slices.ContainsFunc(n.rels, func(r string) bool { return !down(r) }) {
		return n
	}
	m := &node{op: opRel, kids: slices.Clone(n.kids), rels: slices.Clone(n.rels)}
	slices.Reverse(m.kids)
	slices.Reverse(m.rels)
	for i, r := range m.rels {
		m.rels[i] = turned(r)
	}
	return m
}

func turned(r string) string {
	switch r {
	case ">":
		return "<"
	case ">=":
		return "<="
	case "<":
		return ">"
	case "<=":
		return ">="
	}
	return r
}

// solved reports whether an inequality has its variable alone on one side, or between two constants.
func (c *answers) solved(n *node) bool {
	alone := 0
	for _, k := range n.kids {
		switch {
		case k.op == opSym:
			alone++
		case len(k.symbols()) > 0:
			return false
		}
	}
	return alone == 1
}

// inequalities reports whether a list is made of inequalities.
func inequalities(n *node) bool {
	return n.op == opList && !slices.ContainsFunc(n.kids, func(k *node) bool {
		return k.op != opRel || !slices.ContainsFunc(k.rels, func(r string) bool { return r != "=" && r != "~" && r != "in" })
	})
}
