package mathgrade

import (
	"math"
	"math/big"
)

// reals works out functions of real numbers to prec bits. It computes with guard bits more, so that a few bits lost on the way do not show.
type reals struct {
	prec    uint
	pi, ln2 *big.Float // worked out when first needed
}

const guard = 64

func (r *reals) zero() *big.Float { return new(big.Float).SetPrec(r.prec + guard) }

func (r *reals) from(v *big.Rat) *big.Float { return r.zero().SetRat(v) }

func (r *reals) whole(n int64) *big.Float { return r.zero().SetInt64(n) }

// add leaves out a term that is too small to show: math/big would write both out to the last bit first, and 9^9^9 has a thousand million.
func (r *reals) add(a, b *big.Float) *big.Float {
	if a.Sign() != 0 && b.Sign() != 0 {
		switch d := a.MantExp(nil) - b.MantExp(nil); {
		case d > int(r.prec+2*guard):
			return r.zero().Set(a)
		case -d > int(r.prec+2*guard):
			return r.zero().Set(b)
		}
	}
	return r.zero().Add(a, b)
}

func (r *reals) sub(a, b *big.Float) *big.Float { return r.add(a, r.neg(b)) }
func (r *reals) mul(a, b *big.Float) *big.Float { return r.zero().Mul(a, b) }
func (r *reals) quo(a, b *big.Float) *big.Float { return r.zero().Quo(a, b) }
func (r *reals) neg(a *big.Float) *big.Float    { return r.zero().Neg(a) }

// scaled is a times two to the power n.
func (r *reals) scaled(a *big.Float, n int) *big.Float { return r.zero().SetMantExp(a, n) }

// small reports whether a term no longer counts in a sum of about one.
func (r *reals) small(term *big.Float) bool {
	return term.Sign() == 0 || term.MantExp(nil) < -int(r.prec+guard)
}

// piValue is 16 atan(1/5) - 4 atan(1/239).
func (r *reals) piValue() *big.Float {
	if r.pi == nil {
		a := r.mul(r.whole(16), r.inverseTangent(5))
		r.pi = r.sub(a, r.mul(r.whole(4), r.inverseTangent(239)))
	}
	return r.pi
}

// inverseTangent is atan(1/n), by its series.
func (r *reals) inverseTangent(n int64) *big.Float {
	power := r.quo(r.whole(1), r.whole(n))
	square := r.whole(n * n)
	sum := r.zero().Set(power)
	for k := int64(3); !r.small(power); k += 2 {
		power = r.neg(r.quo(power, square))
		sum = r.add(sum, r.quo(power, r.whole(k)))
	}
	return sum
}

// ln2Value is 2 atanh(1/3).
func (r *reals) ln2Value() *big.Float {
	if r.ln2 == nil {
		power := r.quo(r.whole(2), r.whole(3))
		sum := r.zero().Set(power)
		for k := int64(3); !r.small(power); k += 2 {
			power = r.quo(power, r.whole(9))
			sum = r.add(sum, r.quo(power, r.whole(k)))
		}
		r.ln2 = sum
	}
	return r.ln2
}

// exp: e^x = 2^k e^(x - k ln 2), the rest by its series after eight halvings.
func (r *reals) exp(x *big.Float) (*big.Float, error) {
	if x.Sign() != 0 && x.MantExp(nil) > 30 {
		return nil, errLarge
	}
	k, _ := r.rounded(r.quo(x, r.ln2Value()))
	const halvings = 8
	rest := r.scaled(r.sub(x, r.mul(r.whole(k), r.ln2Value())), -halvings)
	sum, term := r.whole(1), r.whole(1)
	for n := int64(1); !r.small(term); n++ {
		term = r.quo(r.mul(term, rest), r.whole(n))
		sum = r.add(sum, term)
	}
	for range halvings {
		sum = r.mul(sum, sum)
	}
	return r.scaled(sum, int(k)), nil
}

// rounded is the nearest whole number; false when it is too large for one.
func (r *reals) rounded(x *big.Float) (int64, bool) {
	half := big.NewFloat(0.5)
	if x.Sign() < 0 {
		half.Neg(half)
	}
	n, _ := r.add(x, half).Int64() // cuts towards 0
	return n, n != math.MaxInt64 && n != math.MinInt64
}

// ln of a number above 0: Halley's iteration from the machine's logarithm; each round triples the bits that are right.
func (r *reals) ln(x *big.Float) (*big.Float, error) {
	m := r.zero()
	k := x.MantExp(m)
	start, _ := m.Float64()
	y := r.zero().SetFloat64(math.Log(start))
	for right := uint(45); right < 2*(r.prec+guard); right *= 3 {
		e, err := r.exp(y)
		if err != nil {
			return nil, err
		}
		step := r.quo(r.sub(m, e), r.add(m, e))
		y = r.add(y, r.scaled(step, 1))
	}
	return r.add(y, r.mul(r.whole(int64(k)), r.ln2Value())), nil
}

// sincos takes x to within an eighth of a turn and sums both series.
func (r *reals) sincos(x *big.Float) (sin, cos *big.Float, err error) {
	if x.Sign() != 0 && x.MantExp(nil) > guard/2 {
		return nil, nil, errLarge
	}
	quarter := r.scaled(r.piValue(), -1)
	k, _ := r.rounded(r.quo(x, quarter))
	rest := r.sub(x, r.mul(r.whole(k), quarter))
	square := r.mul(rest, rest)
	s, c := r.series(rest, square, 1), r.series(r.whole(1), square, 0)
	switch ((k % 4) + 4) % 4 {
	case 1:
		return c, r.neg(s), nil
	case 2:
		return r.neg(s), r.neg(c), nil
	case 3:
		return r.neg(c), s, nil
	}
	return s, c, nil
}

// series sums first, with signs that change and factors square/((n+1)(n+2)).
func (r *reals) series(first, square *big.Float, n int64) *big.Float {
	sum, term := r.zero().Set(first), first
	for minus := true; !r.small(term); n, minus = n+2, !minus {
		term = r.quo(r.mul(term, square), r.whole((n+1)*(n+2)))
		if minus {
			sum.Sub(sum, term)
		} else {
			sum.Add(sum, term)
		}
	}
	return sum
}

// atan halves its argument's angle four times and sums the series.
func (r *reals) atan(x *big.Float) *big.Float {
	if x.Sign() == 0 {
		return r.zero()
	}
	one := r.whole(1)
	if x.Sign() < 0 {
		return r.neg(r.atan(r.neg(x)))
	}
	if x.Cmp(one) > 0 {
		return r.sub(r.scaled(r.piValue(), -1), r.atan(r.quo(one, x)))
	}
	const halvings = 4
	y := x
	for range halvings {
		root := r.zero().Sqrt(r.add(one, r.mul(y, y)))
		y = r.quo(y, r.add(one, root))
	}
	square := r.mul(y, y)
	sum, power := r.zero().Set(y), y
	for k := int64(3); !r.small(power); k += 2 {
		power = r.neg(r.mul(power, square))
		sum = r.add(sum, r.quo(power, r.whole(k)))
	}
	return r.scaled(sum, halvings)
}

// angle of the point (x, y), from -pi to pi.
func (r *reals) angle(y, x *big.Float) *big.Float {
	switch {
	case x.Sign() > 0:
		return r.atan(r.quo(y, x))
	case x.Sign() < 0 && y.Sign() >= 0:
		return r.add(r.atan(r.quo(y, x)), r.piValue())
	case x.Sign() < 0:
		return r.sub(r.atan(r.quo(y, x)), r.piValue())
	case y.Sign() > 0:
		return r.scaled(r.piValue(), -1)
	case y.Sign() < 0:
		return r.neg(r.scaled(r.piValue(), -1))
	}
	return r.zero()
}
