package mathgrade

import (
	"context"
	"errors"
	"math/big"
)

// Why a value could not be worked out.
var (
	errInexact   = errors.New("it has no exact value within the limits")
	errUndefined = errors.New("it is not defined")
	errLarge     = errors.New("it is too large")
	errWork      = errors.New("it is too much work")
)

// Limits on the work on one comparison.
const (
	maxWork      = 200_000 // steps; one is about a multiplication of 300 bits
	maxBits      = 1 << 16 // of the numerator and denominator of an exact value, together
	maxFactorial = 3000
	maxRoot      = 64
)

// budget is how much work a comparison may still do.
type budget struct {
	ctx   context.Context
	left  int
	ended error // why there is none left
}

// spend takes n steps off, and looks now and then whether the caller has gone.
func (b *budget) spend(n int) error {
	if b.ended != nil {
		return b.ended
	}
	if b.left/256 != (b.left-n)/256 {
		b.ended = b.ctx.Err()
	}
	if b.left -= n; b.left < 0 && b.ended == nil {
		b.ended = errWork
	}
	return b.ended
}

// exact works a node out as a fraction, with values for its variables. The error is one of the four above, or that of the context.
func (b *budget) exact(n *node, at map[string]*big.Rat) (*big.Rat, error) {
	if err := b.spend(1); err != nil {
		return nil, err
	}
	switch n.op {
	case opNum:
		return n.num, nil
	case opSym:
		if v, ok := at[n.name]; ok {
			return v, nil
		}
		return nil, errInexact
	case opAdd, opMul, opDiv, opPow, opNeg, opFact, opDeg, opPct, opFn:
	default:
		return nil, errInexact
	}
	args := make([]*big.Rat, len(n.kids))
	for i, k := range n.kids {
		v, err := b.exact(k, at)
		if err != nil {
			return nil, err
		}
		args[i] = v
	}
	v, err := b.apply(n, args)
	if err == nil && bits(v) > maxBits {
		return nil, errInexact
	}
	return v, err
}

func bits(v *big.Rat) int { return v.Num().BitLen() + v.Denom().BitLen() }

func (b *budget) apply(n *node, args []*big.Rat) (*big.Rat, error) {
	size := 0
	for _, a := range args {
		size += bits(a)
	}
	if err := b.spend(1 + size/64); err != nil {
		return nil, err
	}
	switch n.op {
	case opAdd, opMul:
		return fold(n.op, args)
	case opDiv:
		if args[1].Sign() == 0 {
			return nil, errUndefined
		}
		return new(big.Rat).Quo(args[0], args[1]), nil
	case opNeg:
		return new(big.Rat).Neg(args[0]), nil
	case opPct:
		return new(big.Rat).Quo(args[0], big.NewRat(100, 1)), nil
	case opPow:
		return b.power(args[0], args[1])
	case opFact:
		return b.factorial(args[0])
	case opFn:
		return b.function(n.name, args)
	}
	return nil, errInexact
}

func fold(o op, args []*big.Rat) (*big.Rat, error) {
	v := new(big.Rat).Set(args[0])
	for _, a := range args[1:] {
		if o == opAdd {
			v.Add(v, a)
		} else {
			v.Mul(v, a)
		}
		if bits(v) > maxBits {
			return nil, errInexact
		}
	}
	return v, nil
}

// power works out a power with a whole exponent, or one that is a root without remainder.
func (b *budget) power(base, exp *big.Rat) (*big.Rat, error) {
	if !exp.IsInt() {
		if !exp.Denom().IsInt64() {
			return nil, errInexact
		}
		r, err := b.root(base, exp.Denom().Int64())
		if err != nil {
			return nil, err
		}
		return b.power(r, new(big.Rat).SetInt(exp.Num()))
	}
	switch {
	case base.Sign() == 0 && exp.Sign() < 0:
		return nil, errUndefined
	case exp.Sign() == 0:
		return big.NewRat(1, 1), nil
	case base.Sign() == 0:
		return new(big.Rat), nil
	case base.IsInt() && base.Num().IsInt64() && (base.Num().Int64() == 1 || base.Num().Int64() == -1):
		if exp.Num().Bit(0) == 0 {
			return big.NewRat(1, 1), nil
		}
		return base, nil
	case !exp.Num().IsInt64():
		return nil, errInexact
	}
	n := exp.Num().Int64()
	up := max(n, -n)
	if up <= 0 || up > maxBits || up*int64(bits(base)) > 2*maxBits {
		return nil, errInexact
	}
	if err := b.spend(int(up) * bits(base) / 64); err != nil {
		return nil, err
	}
	v := new(big.Rat).SetFrac(
		new(big.Int).Exp(base.Num(), big.NewInt(up), nil), new(big.Int).Exp(base.Denom(), big.NewInt(up), nil))
	if n < 0 {
		v.Inv(v)
	}
	return v, nil
}

// root works out the k-th root where it is a fraction. An odd root of a negative number is negative.
func (b *budget) root(v *big.Rat, k int64) (*big.Rat, error) {
	switch {
	case k < 1 || k > maxRoot:
		return nil, errInexact
	case k == 1:
		return v, nil
	case v.Sign() < 0 && k%2 == 0:
		return nil, errUndefined
	case v.Sign() < 0:
		r, err := b.root(new(big.Rat).Neg(v), k)
		if err != nil {
			return nil, err
		}
		return r.Neg(r), nil
	}
	if err := b.spend(bits(v)); err != nil {
		return nil, err
	}
	num, ok1 := wholeRoot(v.Num(), k)
	den, ok2 := wholeRoot(v.Denom(), k)
	if !ok1 || !ok2 {
		return nil, errInexact
	}
	return new(big.Rat).SetFrac(num, den), nil
}

// wholeRoot finds the whole number whose k-th power is v, by halving the range.
func wholeRoot(v *big.Int, k int64) (*big.Int, bool) {
	if k == 2 {
		r := new(big.Int).Sqrt(v)
		return r, new(big.Int).Mul(r, r).Cmp(v) == 0
	}
	lo, hi := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(v.BitLen()/int(k)+1))
	for lo.Cmp(hi) < 0 {
		mid := new(big.Int).Add(lo, hi)
		mid.Rsh(mid, 1)
		switch new(big.Int).Exp(mid, big.NewInt(k), nil).Cmp(v) {
		case 0:
			return mid, true
		case -1:
			lo.Add(mid, big.NewInt(1))
		default:
			hi = mid
		}
	}
	return lo, new(big.Int).Exp(lo, big.NewInt(k), nil).Cmp(v) == 0
}

func (b *budget) factorial(v *big.Rat) (*big.Rat, error) {
	n, err := small(v, maxFactorial)
	if err != nil {
		return nil, err
	}
	if err := b.spend(int(n)); err != nil {
		return nil, err
	}
	return new(big.Rat).SetInt(new(big.Int).MulRange(1, n)), nil
}

// small gives v as a whole number from 0 to limit. Between whole numbers and below 0 there is nothing; above the limit it is too large.
func small(v *big.Rat, limit int64) (int64, error) {
	if !v.IsInt() || v.Sign() < 0 {
		return 0, errUndefined
	}
	if !v.Num().IsInt64() || v.Num().Int64() > limit {
		return 0, errLarge
	}
	return v.Num().Int64(), nil
}

func (b *budget) function(name string, args []*big.Rat) (*big.Rat, error) {
	switch {
	case name == "root" && len(args) == 2:
		if !args[1].IsInt() || !args[1].Num().IsInt64() {
			return nil, errInexact
		}
		return b.root(args[0], args[1].Num().Int64())
	case name == "binom" && len(args) == 2:
		return b.binomial(args[0], args[1])
	case name == "abs" && len(args) == 1:
		return new(big.Rat).Abs(args[0]), nil
	case name == "floor" && len(args) == 1:
		return floor(args[0]), nil
	case name == "ceil" && len(args) == 1:
		v := floor(new(big.Rat).Neg(args[0]))
		return v.Neg(v), nil
	case (name == "min" || name == "max") && len(args) > 0:
		return extreme(name, args), nil
	case (name == "gcd" || name == "lcm") && len(args) > 0:
		return divisors(name, args)
	}
	return nil, errInexact
}

func (b *budget) binomial(n, k *big.Rat) (*big.Rat, error) {
	i, err := small(n, maxFactorial)
	if err != nil {
		return nil, err
	}
	j, err := small(k, maxFactorial)
	if err != nil {
		return nil, err
	}
	if err := b.spend(int(i)); err != nil {
		return nil, err
	}
	return new(big.Rat).SetInt(new(big.Int).Binomial(i, j)), nil
}

func floor(v *big.Rat) *big.Rat {
	q, m := new(big.Int), new(big.Int)
	q.DivMod(v.Num(), v.Denom(), m) // towards minus infinity: the denominator is above 0
	return new(big.Rat).SetInt(q)
}

func extreme(name string, args []*big.Rat) *big.Rat {
	best := args[0]
	for _, a := range args[1:] {
		if (a.Cmp(best) > 0) == (name == "max") {
			best = a
		}
	}
	return best
}

func divisors(name string, args []*big.Rat) (*big.Rat, error) {
	v := new(big.Int)
	for i, a := range args {
		if !a.IsInt() {
			return nil, errUndefined
		}
		n := new(big.Int).Abs(a.Num())
		switch {
		case i == 0:
			v.Set(n)
		case name == "gcd":
			v.GCD(nil, nil, v, n)
		case v.Sign() == 0 || n.Sign() == 0:
			v.SetInt64(0)
		default:
			g := new(big.Int).GCD(nil, nil, v, n)
			v.Mul(v, n.Quo(n, g))
		}
		if v.BitLen() > maxBits {
			return nil, errInexact
		}
	}
	return new(big.Rat).SetInt(v), nil
}
