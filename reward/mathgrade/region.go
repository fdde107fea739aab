package mathgrade

import (
	"math/big"
	"slices"
)

// bound is one end of a piece of the line of real numbers.
type bound struct {
	inf  int // -1, 1: infinite
	at   *big.Float
	node *node
	open bool
}

// piece is an interval; a point is one with equal ends.
type piece struct{ lo, hi bound }

// interval reports whether a truth is, or may be, a set of real numbers.
func (c *answers) interval(truth *node) bool {
	switch truth.op {
	case opTuple:
		return len(truth.kids) == 2
	case opUnion, opInter, opMinus, opBuild, opSet:
		return true
	}
	return set(truth)
}

// region compares two sets of real numbers. An inequality stands for one where it is solved, or the options let it.
func (c *answers) region(truth, answer *node) bool {
	if answer.op == opRel || inequalities(answer) {
		if c.opt.Inequality == "never" && truth.op != opRel && !inequalities(truth) {
			return false
		}
		if c.opt.Inequality != "any" && !c.allSolved(answer) {
			return false
		}
	}
	if sameText := c.symbolic(truth, answer); sameText {
		return true
	}
	return c.solvedRegion(truth, answer)
}

func (c *answers) allSolved(n *node) bool {
	if n.op == opList {
		return !slices.ContainsFunc(n.kids, func(k *node) bool { return !c.allSolved(k) })
	}
	return n.op == opRel && c.solved(n)
}

// symbolic compares two intervals whose ends are no numbers, or two unions of such, piece by piece.
func (c *answers) symbolic(truth, answer *node) bool {
	if truth.op != answer.op || len(truth.symbols()) == 0 || truth.op != opUnion {
		return false
	}
	return c.inOrder(truth.kids, answer.kids)
}

func (c *answers) solvedRegion(truth, answer *node) bool {
	t, ok1 := c.pieces(truth)
	a, ok2 := c.pieces(answer)
	if !ok1 || !ok2 || len(t) != len(a) {
		return false
	}
	for i := range t {
		if !c.sameBound(t[i].lo, a[i].lo) || !c.sameBound(t[i].hi, a[i].hi) {
			return false
		}
	}
	return true
}

func (c *answers) sameBound(a, b bound) bool {
	if a.inf != 0 || b.inf != 0 {
		return a.inf == b.inf
	}
	return a.open == b.open && c.values(a.node, b.node)
}

// pieces gives a set of real numbers as pieces in order that do not touch; false when it is none.
func (c *answers) pieces(n *node) ([]piece, bool) {
	switch n.op {
	case opTuple:
		if len(n.kids) != 2 {
			return nil, false
		}
		return c.span(n.kids[0], n.kids[1], n.name[0] == '(', n.name[1] == ')')
	case opSet:
		return c.dots(n)
	case opConst:
		switch n.name {
		case "R":
			return []piece{{bound{inf: -1}, bound{inf: 1}}}, true
		case "empty":
			return nil, true
		}
		return nil, false
	case opUnion, opInter, opMinus:
		return c.combined(n)
	case opBuild:
		return c.pieces(n.kids[len(n.kids)-1])
	case opRel:
		return c.solution(n)
	case opList:
		return c.several(n)
	}
	return nil, false
}

func (c *answers) end(n *node, open bool) (bound, bool) {
	if s := infinity(n); s != 0 {
		return bound{inf: s}, true
	}
	if !n.isExpr() || len(n.symbols()) > 0 {
		return bound{}, false
	}
	c.high.at, c.high.complex = nil, false
	v, err := c.high.eval(n)
	if err != nil || v.im != nil {
		return bound{}, false
	}
	return bound{at: v.re, node: n, open: open}, true
}

func (c *answers) span(lo, hi *node, openLo, openHi bool) ([]piece, bool) {
	a, ok1 := c.end(lo, openLo)
	b, ok2 := c.end(hi, openHi)
	if !ok1 || !ok2 || a.inf > 0 || b.inf < 0 {
		return nil, false
	}
	if a.inf == 0 && b.inf == 0 && a.at.Cmp(b.at) > 0 {
		return nil, false
	}
	return []piece{{a, b}}, true
}

func (c *answers) dots(n *node) ([]piece, bool) {
	var out []piece
	for _, v := range elements(n) {
		b, ok := c.end(v, false)
		if !ok || b.inf != 0 {
			return nil, false
		}
		out = append(out, piece{b, b})
	}
	return c.joined(out), true
}

func (c *answers) combined(n *node) ([]piece, bool) {
	a, ok1 := c.pieces(n.kids[0])
	b, ok2 := c.pieces(n.kids[1])
	if !ok1 || !ok2 {
		return nil, false
	}
	switch n.op {
	case opInter:
		return c.common(a, b), true
	case opMinus:
		return c.common(a, c.rest(b)), true
	}
	return c.joined(append(slices.Clone(a), b...)), true
}

// order compares two ends; numbers that differ by less than the precision are equal.
func (c *answers) order(a, b bound) int {
	switch {
	case a.inf != b.inf:
		return a.inf - b.inf
	case a.inf != 0:
		return 0
	}
	d := c.high.sub(a.at, b.at)
	if d.Sign() == 0 || d.MantExp(nil) < max(a.at.MantExp(nil), b.at.MantExp(nil), -int(c.high.prec))-int(c.high.prec/2) {
		return 0
	}
	return d.Sign()
}

// joined sorts pieces and joins those that touch.
func (c *answers) joined(ps []piece) []piece {
	slices.SortStableFunc(ps, func(a, b piece) int {
		if o := c.order(a.lo, b.lo); o != 0 {
			return o
		}
		if a.lo.open == b.lo.open {
			return 0
		} else if a.lo.open {
			return 1
		}
		return -1
	})
	var out []piece
	for _, p := range ps {
		n := len(out)
		if n == 0 {
			out = append(out, p)
			continue
		}
		gap := c.order(p.lo, out[n-1].hi)
		if gap > 0 || gap == 0 && p.lo.open && out[n-1].hi.open {
			out = append(out, p)
			continue
		}
		if o := c.order(p.hi, out[n-1].hi); o > 0 || o == 0 && out[n-1].hi.open {
			out[n-1].hi = p.hi
		}
	}
	return out
}

// common is what two sets have in common.
func (c *answers) common(a, b []piece) []piece {
	var out []piece
	for _, p := range a {
		for _, q := range b {
			lo, hi := p.lo, p.hi
			if o := c.order(q.lo, lo); o > 0 || o == 0 && q.lo.open {
				lo = q.lo
			}
			if o := c.order(q.hi, hi); o < 0 || o == 0 && q.hi.open {
				hi = q.hi
			}
			if o := c.order(lo, hi); o < 0 || o == 0 && !lo.open && !hi.open {
				out = append(out, piece{lo, hi})
			}
		}
	}
	return c.joined(out)
}

// rest is the line without a set.
func (c *answers) rest(ps []piece) []piece {
	var out []piece
	lo := bound{inf: -1}
	for _, p := range ps {
		if p.lo.inf == 0 {
			hi := p.lo
			hi.open = !hi.open
			if c.order(lo, hi) < 0 {
				out = append(out, piece{lo, hi})
			}
		}
		if p.hi.inf != 0 {
			return out
		}
		lo = p.hi
		lo.open = !lo.open
	}
	return append(out, piece{lo, bound{inf: 1}})
}

// several joins the solutions of a list of relations: those between which "or" stands, and of "and" what they have in common.
func (c *answers) several(n *node) ([]piece, bool) {
	if !slices.Equal(n.symbols(), n.kids[0].symbols()) {
		return nil, false
	}
	var out []piece
	for i, k := range n.kids {
		p, ok := c.pieces(k)
		switch {
		case !ok || k.op != opRel:
			return nil, false
		case i == 0:
			out = p
		case n.name == "or":
			out = c.joined(append(slices.Clone(out), p...))
		default:
			out = c.common(out, p)
		}
	}
	return out, true
}

// solution solves an inequality of one variable: one that is solved, or that is linear.
func (c *answers) solution(n *node) ([]piece, bool) {
	if len(n.rels) == 1 && n.rels[0] == "in" {
		return c.pieces(n.kids[1])
	}
	all := []piece{{bound{inf: -1}, bound{inf: 1}}}
	for i, r := range n.rels {
		p, ok := c.half(n.kids[i], r, n.kids[i+1])
		if !ok {
			return nil, false
		}
		all = c.common(all, p)
	}
	return all, true
}

// half solves a r b.
func (c *answers) half(a *node, r string, b *node) ([]piece, bool) {
	if a.op != opSym || len(b.symbols()) > 0 {
		if b.op == opSym && len(a.symbols()) == 0 {
			a, r, b = b, turned(r), a
		} else {
			var ok bool
			if r, b, ok = c.linear(a, r, b); !ok {
				return nil, false
			}
		}
	}
	inf, ok := c.end(b, false)
	if !ok {
		return nil, false
	}
	switch r {
	case "=":
		return []piece{{inf, inf}}, inf.inf == 0
	case "!=":
		return c.rest([]piece{{inf, inf}}), inf.inf == 0
	}
	inf.open = r == "<" || r == ">"
	if r == "<" || r == "<=" {
		return []piece{{bound{inf: -1}, inf}}, inf.inf >= 0
	}
	return []piece{{inf, bound{inf: 1}}}, inf.inf <= 0
}

// linear solves a r b for its one variable where the difference of both sides grows evenly: exactly, from its values at three points.
func (c *answers) linear(a *node, r string, b *node) (string, *node, bool) {
	d := branch(opAdd, a, branch(opNeg, b))
	names := d.symbols()
	if len(names) != 1 {
		return "", nil, false
	}
	var at [4]*big.Rat
	for i, x := range []*big.Rat{new(big.Rat), big.NewRat(1, 1), big.NewRat(-17, 5), big.NewRat(1003, 7)} {
		v, err := c.work.exact(d, map[string]*big.Rat{names[0]: x})
		if err != nil {
			return "", nil, false
		}
		at[i] = v
	}
	slope := new(big.Rat).Sub(at[1], at[0])
	line := func(x *big.Rat) *big.Rat { return x.Mul(x, slope).Add(x, at[0]) }
	if slope.Sign() == 0 || line(big.NewRat(-17, 5)).Cmp(at[2]) != 0 || line(big.NewRat(1003, 7)).Cmp(at[3]) != 0 {
		return "", nil, false
	}
	if slope.Sign() < 0 {
		r = turned(r)
	}
	zero := new(big.Rat).Neg(at[0])
	return r, number(zero.Quo(zero, slope)), true
}
