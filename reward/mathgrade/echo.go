package mathgrade

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// echoes reports whether an answer that leaves work to do is taken from the task: as it stands there, or in the same operations, commuted,
// with factors of 1, sums with 0, powers written out and signs moved. A value that is worked out may well stand there.
func (j judgement) echoes(truth, got reading, answer string) bool {
	if j.opt.Echo != "refuse" || got.root == nil || finished(got.root) {
		return false
	}
	if s := squeezed(answer); len(s) >= 3 && s != squeezed(j.truth) && strings.Contains(squeezed(j.question), s) {
		return true
	}
	asked := map[string]bool{} // forms that stand in the task
	for _, e := range expressions(j.question) {
		if r := read(e, true, false); r.err == nil {
			r.root.has(func(n *node) bool {
				if !finished(n) {
					asked[n.form()] = true
				}
				return false
			})
		}
	}
	for _, v := range truth.root.values() {
		delete(asked, v.form())
	}
	delete(asked, truth.root.form())
	if asked[got.root.form()] {
		return true
	}
	values := got.root.values()
	return len(values) > 0 && !slices.ContainsFunc(values, func(v *node) bool { return !asked[v.form()] })
}

// values are what an answer says in whatever wrapping: the members of an equation but for the name that it begins with, the one element of a list or set,
// the value before a unit.
func (n *node) values() (list []*node) {
	kids := n.kids
	switch {
	case n.op == opRel && isName(kids[0]):
		kids = kids[1:]
	case n.op == opRel:
	case n.op == opUnit:
		kids = kids[:1]
	case (n.op == opSet || n.op == opList || n.op == opTuple) && len(kids) == 1:
	default:
		return []*node{n}
	}
	for _, k := range kids {
		list = append(list, k.values()...)
	}
	return list
}

// maxExpressions bounds how many expressions of a question are read, from its end.
const maxExpressions = 64

// expressions are the pieces of a question that may be mathematics: what stands between dollar signs and the like, and what stands between
// words.
func expressions(question string) []string {
	question = question[max(0, len(question)-4*maxAnswer):]
	var all []string
	for {
		a, b, ok := mathSpan(question, 0)
		if !ok {
			break
		}
		all = append(all, question[a:b])
		question = question[:a] + "\n" + question[b:]
	}
	for line := range strings.SplitSeq(question, "\n") {
		var run []string
		for _, w := range append(strings.Fields(line), "") {
			bare := strings.Trim(w, ".,?:;!")
			if bare != "" && !plainWord(bare) {
				run = append(run, bare)
			}
			if len(run) > 0 && (bare != w || bare == "" || plainWord(bare)) {
				all = append(all, strings.Join(run, " "))
				run = nil
			}
		}
	}
	return all[max(0, len(all)-maxExpressions):]
}

// plainWord reports whether a run of letters is no mathematics.
func plainWord(w string) bool {
	for _, r := range w {
		if r > 127 || !isLetter(byte(r)) {
			return false
		}
	}
	return (len(w) > 1 || w == "a") && functions(w) == "" && !greek(w)
}

// form writes an expression so that commuted ones, and those that differ by 1 as a factor, 0 in a sum or a moved sign, are written alike.
// Nothing is multiplied out or added up.
func (n *node) form() string {
	p := product{powers: map[string]int{}}
	p.multiply(n, 1)
	var out []string
	for base, exp := range p.powers {
		switch exp {
		case 0:
		case 1:
			out = append(out, base)
		default:
			out = append(out, base+"^"+strconv.Itoa(exp))
		}
	}
	slices.Sort(out)
	s := strings.Join(out, "*")
	if s == "" {
		s = "1"
	}
	if p.minus {
		return "-" + s
	}
	return s
}

// product is what is multiplied, by its powers.
type product struct {
	minus  bool
	powers map[string]int
}

const maxPower = 1 << 20

func (p *product) multiply(n *node, exp int) {
	switch n.op {
	case opMul:
		for _, k := range n.kids {
			p.multiply(k, exp)
		}
		return
	case opDiv:
		p.multiply(n.kids[0], exp)
		p.multiply(n.kids[1], -exp)
		return
	case opNeg:
		p.minus = p.minus != (exp%2 != 0)
		p.multiply(n.kids[0], exp)
		return
	case opNum:
		if n.num.Cmp(big.NewRat(1, 1)) == 0 {
			return
		}
	case opPow:
		if k, ok := wholePower(n.kids[1]); ok && k*exp < maxPower && k*exp > -maxPower {
			p.multiply(n.kids[0], k*exp)
			return
		}
	case opAdd:
		if kept := summands(n); len(kept) == 1 {
			p.multiply(kept[0], exp)
			return
		}
	}
	p.powers[n.atom()] += exp
}

// wholePower is a small power that is written as a number.
func wholePower(n *node) (int, bool) {
	sign := 1
	if n.op == opNeg {
		n, sign = n.kids[0], -1
	}
	if n.op != opNum || !n.num.IsInt() || !n.num.Num().IsInt64() || n.num.Num().Int64() > 64 {
		return 0, false
	}
	return sign * int(n.num.Num().Int64()), true
}

// summands are the parts of a sum, of sums in it too, without those that are 0.
func summands(n *node) []*node {
	switch {
	case n.op == opNum && n.num.Sign() == 0:
		return nil
	case n.op == opNeg && n.kids[0].op == opAdd:
		var all []*node
		for _, k := range summands(n.kids[0]) {
			all = append(all, branch(opNeg, k))
		}
		return all
	case n.op != opAdd:
		return []*node{n}
	}
	var all []*node
	for _, k := range n.kids {
		all = append(all, summands(k)...)
	}
	return all
}

// atom writes what is no product.
func (n *node) atom() string {
	kids := n.kids
	if n.op == opAdd {
		kids = summands(n)
	}
	if n.op == opRel {
		n = upwards(n)
		kids = n.kids
	}
	forms := make([]string, len(kids))
	for i, k := range kids {
		forms[i] = k.form()
	}
	if n.op == opAdd || n.op == opSet || n.op == opRel && !slices.ContainsFunc(n.rels, func(r string) bool { return r != "=" }) {
		slices.Sort(forms)
	}
	num := ""
	if n.num != nil {
		num = n.num.RatString()
	}
	return "(" + opName(n.op) + " " + n.name + num + strings.Join(n.rels, "") + ":" + strings.Join(forms, ",") + ")"
}
