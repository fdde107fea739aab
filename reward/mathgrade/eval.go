package mathgrade

import (
	"errors"
	"math/big"
)

// errAbsorbed: two terms differ so much in size that their sum would not show the smaller one.
var errAbsorbed = errors.New("its terms differ too much in size")

// maxApart is how many bits two terms of a sum may be apart in size.
const maxApart = 160

// value is a number as far as prec bits; im is nil while everything is real.
type value struct{ re, im *big.Float }

// evaluator works nodes out to prec bits. With complex set, roots and logarithms of negative numbers have their main value; without, they are
// not defined, but odd roots are real.
type evaluator struct {
	*reals
	work    *budget
	at      map[string]*big.Rat
	complex bool
	logTen  bool // a logarithm without a base is to base ten
}

func newEvaluator(prec uint, work *budget) *evaluator {
	return &evaluator{reals: &reals{prec: prec}, work: work}
}

// eval works a node out. What leaves the range of math/big on the way (infinity less infinity) is too large.
func (e *evaluator) eval(n *node) (v value, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, nan := r.(big.ErrNaN); !nan {
				panic(r)
			}
			v, err = value{}, errLarge
		}
	}()
	return e.node(n)
}

func (e *evaluator) node(n *node) (value, error) {
	if err := e.work.spend(2); err != nil {
		return value{}, err
	}
	switch n.op {
	case opNum:
		return value{re: e.from(n.num)}, nil
	case opSym:
		if v, ok := e.at[n.name]; ok {
			return value{re: e.from(v)}, nil
		}
		return value{}, errUndefined
	case opConst:
		return e.constant(n.name)
	case opPow:
		return e.powerOf(n)
	case opFn, opFact:
		return e.functionOf(n)
	case opAdd, opMul, opDiv, opNeg, opDeg, opPct:
		return e.arithmetic(n)
	}
	return value{}, errUndefined
}

func (e *evaluator) constant(name string) (value, error) {
	switch name {
	case "pi":
		return value{re: e.piValue()}, nil
	case "e":
		v, err := e.exp(e.whole(1))
		return value{re: v}, err
	case "i":
		if e.complex {
			return value{re: e.zero(), im: e.whole(1)}, nil
		}
	}
	return value{}, errUndefined
}

func (e *evaluator) arithmetic(n *node) (value, error) {
	args, err := e.all(n.kids)
	if err != nil {
		return value{}, err
	}
	v := args[0]
	switch n.op {
	case opAdd, opMul:
		for _, a := range args[1:] {
			if n.op == opMul {
				v = e.times(v, a)
			} else if v, err = e.plus(v, a); err != nil {
				return value{}, err
			}
		}
	case opDiv:
		v, err = e.over(v, args[1])
	case opNeg:
		v = e.minus(v)
	case opDeg:
		v = e.times(v, value{re: e.quo(e.piValue(), e.whole(180))})
	case opPct:
		v, err = e.over(v, value{re: e.whole(100)})
	}
	if err != nil {
		return value{}, err
	}
	return v, sane(v)
}

func (e *evaluator) all(ns []*node) ([]value, error) {
	vs := make([]value, len(ns))
	for i, n := range ns {
		v, err := e.node(n)
		if err != nil {
			return nil, err
		}
		vs[i] = v
	}
	return vs, nil
}

// sane refuses what went out of range: what follows would be no number.
func sane(v value) error {
	if v.re.IsInf() || v.im != nil && v.im.IsInf() || tooSmall(v.re) || v.im != nil && tooSmall(v.im) {
		return errLarge
	}
	return nil
}

// tooSmall keeps away from the smallest exponents, where a value turns into 0.
func tooSmall(f *big.Float) bool { return f.Sign() != 0 && f.MantExp(nil) < -1<<30 }

func (e *evaluator) imag(v value) *big.Float {
	if v.im == nil {
		return e.zero()
	}
	return v.im
}

func (e *evaluator) plus(a, b value) (value, error) {
	if apart(a.re, b.re) || a.im != nil && b.im != nil && apart(a.im, b.im) {
		return value{}, errAbsorbed
	}
	v := value{re: e.add(a.re, b.re)}
	if a.im != nil || b.im != nil {
		v.im = e.add(e.imag(a), e.imag(b))
	}
	return v, nil
}

func apart(a, b *big.Float) bool {
	if a.Sign() == 0 || b.Sign() == 0 {
		return false
	}
	d := a.MantExp(nil) - b.MantExp(nil)
	return d > maxApart || d < -maxApart
}

func (e *evaluator) minus(a value) value {
	v := value{re: e.neg(a.re)}
	if a.im != nil {
		v.im = e.neg(a.im)
	}
	return v
}

func (e *evaluator) times(a, b value) value {
	if a.im == nil && b.im == nil {
		return value{re: e.mul(a.re, b.re)}
	}
	ai, bi := e.imag(a), e.imag(b)
	return value{
		re: e.sub(e.mul(a.re, b.re), e.mul(ai, bi)),
		im: e.add(e.mul(a.re, bi), e.mul(ai, b.re)),
	}
}

func (e *evaluator) over(a, b value) (value, error) {
	if b.im == nil {
		if b.re.Sign() == 0 {
			return value{}, errUndefined
		}
		v := value{re: e.quo(a.re, b.re)}
		if a.im != nil {
			v.im = e.quo(a.im, b.re)
		}
		return v, nil
	}
	size := e.add(e.mul(b.re, b.re), e.mul(b.im, b.im))
	if size.Sign() == 0 {
		return value{}, errUndefined
	}
	v := e.times(a, value{re: b.re, im: e.neg(b.im)})
	return value{re: e.quo(v.re, size), im: e.quo(v.im, size)}, nil
}

// abs is the size of a value. The parts are brought near to 1 first: the square of what is just in range is not.
func (e *evaluator) abs(v value) *big.Float {
	switch {
	case v.im == nil || v.im.Sign() == 0:
		return e.zero().Abs(v.re)
	case v.re.Sign() == 0:
		return e.zero().Abs(v.im)
	}
	k := max(v.re.MantExp(nil), v.im.MantExp(nil))
	re, im := e.scaled(v.re, -k), e.scaled(v.im, -k)
	return e.scaled(e.zero().Sqrt(e.add(e.mul(re, re), e.mul(im, im))), k)
}

// powerOf works out base^exponent: by multiplying where the exponent is a whole number, as a root where it is a fraction.
func (e *evaluator) powerOf(n *node) (value, error) {
	base, err := e.node(n.kids[0])
	if err != nil {
		return value{}, err
	}
	exp, err := e.work.exact(n.kids[1], e.at)
	switch {
	case err == nil:
		return e.rational(base, exp)
	case errors.Is(err, errUndefined) || e.work.ended != nil:
		return value{}, err
	}
	v, err := e.node(n.kids[1])
	if err != nil {
		return value{}, err
	}
	return e.anyPower(base, v)
}

func (e *evaluator) rational(base value, exp *big.Rat) (value, error) {
	if exp.IsInt() {
		if !exp.Num().IsInt64() {
			return value{}, errLarge
		}
		return e.wholePower(base, exp.Num().Int64())
	}
	if !e.complex && base.re.Sign() < 0 {
		if exp.Denom().Bit(0) == 0 {
			return value{}, errUndefined
		}
		v, err := e.anyPower(e.minus(base), value{re: e.from(exp)})
		if err == nil && exp.Num().Bit(0) == 1 {
			v = e.minus(v)
		}
		return v, err
	}
	return e.anyPower(base, value{re: e.from(exp)})
}

func (e *evaluator) wholePower(base value, n int64) (value, error) {
	if err := e.work.spend(64); err != nil {
		return value{}, err
	}
	result := value{re: e.whole(1)}
	for k := max(n, -n); k > 0; k >>= 1 {
		if k&1 == 1 {
			result = e.times(result, base)
		}
		if k > 1 {
			base = e.times(base, base)
		}
		if err := errors.Join(sane(result), sane(base)); err != nil {
			return value{}, errLarge
		}
	}
	if n < 0 {
		return e.over(value{re: e.whole(1)}, result)
	}
	return result, nil
}

// anyPower is e to the exponent times the logarithm of the base.
func (e *evaluator) anyPower(base, exp value) (value, error) {
	if base.re.Sign() == 0 && (base.im == nil || base.im.Sign() == 0) {
		if exp.re.Sign() > 0 {
			return value{re: e.zero()}, nil
		}
		return value{}, errUndefined
	}
	l, err := e.log(base)
	if err != nil {
		return value{}, err
	}
	return e.exponential(e.times(l, exp))
}

// log is the natural logarithm.
func (e *evaluator) log(v value) (value, error) {
	if err := e.work.spend(60); err != nil {
		return value{}, err
	}
	size := e.abs(v)
	if size.Sign() == 0 || !e.complex && v.re.Sign() < 0 {
		return value{}, errUndefined
	}
	l, err := e.ln(size)
	if err != nil || v.im == nil && v.re.Sign() > 0 {
		return value{re: l}, err
	}
	return value{re: l, im: e.angle(e.imag(v), v.re)}, nil
}

func (e *evaluator) exponential(v value) (value, error) {
	if err := e.work.spend(40); err != nil {
		return value{}, err
	}
	size, err := e.exp(v.re)
	if err != nil || v.im == nil {
		return value{re: size}, err
	}
	s, c, err := e.sincos(v.im)
	if err != nil {
		return value{}, err
	}
	return value{re: e.mul(size, c), im: e.mul(size, s)}, nil
}

func (e *evaluator) functionOf(n *node) (value, error) {
	if n.op == opFact || discrete(n.name) {
		if v, err := e.work.exact(n, e.at); !errors.Is(err, errInexact) {
			if err != nil {
				return value{}, err
			}
			return value{re: e.from(v)}, nil
		}
	}
	args, err := e.all(n.kids)
	if err != nil {
		return value{}, err
	}
	if len(args) == 0 {
		return value{}, errUndefined
	}
	if err := e.work.spend(60); err != nil {
		return value{}, err
	}
	v, err := e.apply(n.name, args)
	if err != nil {
		return value{}, err
	}
	return v, sane(v)
}

// discrete functions jump, so that they are worked out exactly where that can be.
func discrete(name string) bool {
	switch name {
	case "floor", "ceil", "binom", "gcd", "lcm":
		return true
	}
	return false
}

func (e *evaluator) apply(name string, args []value) (value, error) {
	x := args[0]
	two := map[string]bool{"root": true, "log": true, "min": true, "max": true}
	if len(args) > 1 && !two[name] {
		return value{}, errUndefined
	}
	switch name {
	case "root":
		if len(args) != 2 {
			return value{}, errUndefined
		}
		return e.rootOf(x, args[1])
	case "abs":
		return value{re: e.abs(x)}, nil
	case "exp":
		return e.exponential(x)
	case "ln", "lg", "log":
		return e.logarithm(name, args)
	case "floor", "ceil":
		return e.step(name, x)
	case "min", "max":
		return e.extreme(name, args)
	case "sinh", "cosh", "tanh":
		return e.hyperbolic(name, x)
	case "arcsin", "arccos", "arctan", "arccot":
		return e.inverse(name, x)
	}
	return e.circular(name, x)
}

func (e *evaluator) rootOf(x, k value) (value, error) {
	n, ok := e.rounded(k.re)
	if !ok || n < 1 || k.im != nil || e.whole(n).Cmp(k.re) != 0 {
		inverse, err := e.over(value{re: e.whole(1)}, k)
		if err != nil {
			return value{}, err
		}
		return e.anyPower(x, inverse)
	}
	if n == 2 && x.im == nil && x.re.Sign() >= 0 {
		return value{re: e.zero().Sqrt(x.re)}, nil
	}
	return e.rational(x, big.NewRat(1, n))
}

func (e *evaluator) logarithm(name string, args []value) (value, error) {
	l, err := e.log(args[0])
	if err != nil {
		return value{}, err
	}
	base := value{re: e.whole(10)}
	switch {
	case len(args) == 2:
		base = args[1]
	case name == "ln" || name == "log" && !e.logTen:
		return l, nil
	}
	b, err := e.log(base)
	if err != nil {
		return value{}, err
	}
	return e.over(l, b)
}

// step rounds down or up; a value that is too near to a whole number to tell has none.
func (e *evaluator) step(name string, x value) (value, error) {
	n, ok := e.rounded(x.re)
	if !ok || x.im != nil {
		return value{}, errUndefined
	}
	d := e.sub(x.re, e.whole(n))
	if d.Sign() == 0 || d.MantExp(nil) < -int(e.prec/2) {
		return value{}, errUndefined
	}
	if name == "floor" && d.Sign() < 0 {
		n--
	} else if name == "ceil" && d.Sign() > 0 {
		n++
	}
	return value{re: e.whole(n)}, nil
}

func (e *evaluator) extreme(name string, args []value) (value, error) {
	best := args[0]
	for _, a := range args {
		if a.im != nil {
			return value{}, errUndefined
		}
		if (a.re.Cmp(best.re) > 0) == (name == "max") {
			best = a
		}
	}
	return best, nil
}

// pair is e^x and e^-x.
func (e *evaluator) pair(x value) (up, down value, err error) {
	if up, err = e.exponential(x); err != nil {
		return up, down, err
	}
	down, err = e.over(value{re: e.whole(1)}, up)
	return up, down, err
}

func (e *evaluator) hyperbolic(name string, x value) (value, error) {
	up, down, err := e.pair(x)
	if err != nil {
		return value{}, err
	}
	sin, err := e.plus(up, e.minus(down))
	if err != nil {
		return value{}, err
	}
	cos, err := e.plus(up, down)
	if err != nil {
		return value{}, err
	}
	two := value{re: e.whole(2)}
	switch name {
	case "sinh":
		return e.over(sin, two)
	case "cosh":
		return e.over(cos, two)
	}
	return e.over(sin, cos)
}

func (e *evaluator) inverse(name string, x value) (value, error) {
	if x.im != nil {
		return value{}, errUndefined
	}
	half := e.scaled(e.piValue(), -1)
	switch name {
	case "arctan":
		return value{re: e.atan(x.re)}, nil
	case "arccot":
		return value{re: e.sub(half, e.atan(x.re))}, nil
	}
	rest := e.sub(e.whole(1), e.mul(x.re, x.re))
	if rest.Sign() < 0 {
		return value{}, errUndefined
	}
	v := e.angle(x.re, e.zero().Sqrt(rest))
	if name == "arccos" {
		v = e.sub(half, v)
	}
	return value{re: v}, nil
}

func (e *evaluator) circular(name string, x value) (value, error) {
	sin, cos, err := e.sinCos(x)
	if err != nil {
		return value{}, err
	}
	one := value{re: e.whole(1)}
	switch name {
	case "sin":
		return sin, nil
	case "cos":
		return cos, nil
	case "tan":
		return e.ratio(sin, cos)
	case "cot":
		return e.ratio(cos, sin)
	case "sec":
		return e.ratio(one, cos)
	case "csc":
		return e.ratio(one, sin)
	}
	return value{}, errUndefined
}

// ratio has a pole where the denominator is as good as 0.
func (e *evaluator) ratio(a, b value) (value, error) {
	if d := e.abs(b); d.Sign() == 0 || d.MantExp(nil) < -int(e.prec/2) {
		return value{}, errUndefined
	}
	return e.over(a, b)
}

func (e *evaluator) sinCos(x value) (sin, cos value, err error) {
	if x.im == nil {
		s, c, err := e.sincos(x.re)
		return value{re: s}, value{re: c}, err
	}
	up, down, err := e.pair(value{re: e.neg(x.im), im: x.re}) // e^(ix)
	if err != nil {
		return sin, cos, err
	}
	half := value{re: e.quo(e.whole(1), e.whole(2))}
	cos = e.times(e.add2(up, down), half)
	sin = e.times(e.add2(up, e.minus(down)), value{re: e.zero(), im: e.neg(half.re)})
	return sin, cos, nil
}

// add2 adds without asking how far apart the terms are.
func (e *evaluator) add2(a, b value) value {
	return value{re: e.add(a.re, b.re), im: e.add(e.imag(a), e.imag(b))}
}
