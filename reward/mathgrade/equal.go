package mathgrade

import (
	"errors"
	"hash/fnv"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
)

// Two precisions: what is really 0 shrinks as the precision grows, what is not stays.
const (
	lowPrec  = 256
	highPrec = 448
)

// Points at which expressions with variables are compared.
const (
	wantPoints = 8  // that must agree
	tryPoints  = 40 // that are looked at, to find as many where the truth is defined
	fewPoints  = 5  // less than these decide nothing
)

// comparer decides whether two values are equal. All it does is bounded by its budget.
type comparer struct {
	work *budget
	opt  Options
	low  *evaluator
	high *evaluator
}

func newComparer(work *budget, opt Options) *comparer {
	return &comparer{work: work, opt: opt, low: newEvaluator(lowPrec, work), high: newEvaluator(highPrec, work)}
}

// equal reports whether an answer's value is the truth's. An answer that cannot be worked out is not equal; an error says that the caller
// has gone.
func (c *comparer) equal(truth, answer *node) (bool, error) {
	if truth.text() == answer.text() {
		return true, nil
	}
	if !truth.isExpr() || !answer.isExpr() {
		return false, nil
	}
	if a, b := infinity(truth), infinity(answer); a != 0 || b != 0 {
		return a == b, nil
	}
	for _, ten := range []bool{false, true} {
		c.low.logTen, c.high.logTen = ten, ten
		same, err := c.sameAt(truth, answer)
		if same || err != nil {
			return same, c.gone(err)
		}
		if !truth.has(bareLog) && !answer.has(bareLog) {
			break
		}
	}
	return false, nil
}

// gone lets through only the error that is not about the values.
func (c *comparer) gone(err error) error {
	if err != nil && !errors.Is(err, errWork) && c.work.ended != nil {
		return err
	}
	return nil
}

func bareLog(n *node) bool { return n.op == opFn && n.name == "log" && len(n.kids) == 1 }

// infinity is the sign of an infinite value, 0 for any other.
func infinity(n *node) int {
	switch {
	case n.isConst("inf"):
		return 1
	case n.op == opNeg:
		return -infinity(n.kids[0])
	}
	return 0
}

func (c *comparer) sameAt(truth, answer *node) (bool, error) {
	c.setComplex(truth, answer)
	names := branch(opList, truth, answer).symbols()
	if len(names) == 0 {
		return c.constants(truth, answer)
	}
	at := fractions
	switch {
	case truth.has(counts):
		at = wholes
	case answer.has(counts) && answer.has(waves):
		return false, nil // what waves may be 0 at every whole number
	case answer.has(counts):
		at = wholes
	}
	agreed, err := c.points(truth, answer, names, at)
	return err == nil && agreed >= fewPoints, err
}

// counts reports whether a node is defined on whole numbers alone: n!, a binomial, (-1)^n.
func counts(n *node) bool {
	switch n.op {
	case opFact:
		return len(n.symbols()) > 0
	case opFn:
		return (n.name == "binom" || n.name == "gcd" || n.name == "lcm") && len(n.symbols()) > 0
	case opPow:
		base := n.kids[0]
		for base.op == opAdd && len(base.kids) == 1 {
			base = base.kids[0]
		}
		return base.op == opNeg && base.kids[0].op == opNum && len(n.kids[1].symbols()) > 0
	}
	return false
}

// waves reports whether a node is a function of an angle that varies.
func waves(n *node) bool {
	return n.op == opFn && slices.Contains([]string{"sin", "cos", "tan", "cot", "sec", "csc"}, n.name) && len(n.symbols()) > 0
}

func (c *comparer) setComplex(a, b *node) {
	isI := func(n *node) bool { return n.isConst("i") }
	c.low.complex = a.has(isI) || b.has(isI)
	c.high.complex = c.low.complex
}

// constants compares two values without variables: as fractions where both are, else to many digits.
func (c *comparer) constants(truth, answer *node) (bool, error) {
	c.low.at, c.high.at = nil, nil
	t, terr := c.work.exact(truth, nil)
	a, aerr := c.work.exact(answer, nil)
	if terr == nil && aerr == nil {
		return t.Cmp(a) == 0 || c.near(t, a) ||
			!terminates(t) && c.rounds(answer, c.float(a), c.float(t)) ||
			!terminates(a) && c.rounds(truth, c.float(t), c.float(a)), nil
	}
	same, err := c.floats(truth, answer)
	if errors.Is(err, errUndefined) && !c.low.complex { // sqrt(-4) has a value after all
		c.low.complex, c.high.complex = true, true
		same, err = c.floats(truth, answer)
	}
	return same, c.gone(err)
}

func (c *comparer) float(v *big.Rat) *big.Float { return c.high.from(v) }

// near reports whether two fractions are within the tolerances that were set, exactly.
func (c *comparer) near(truth, answer *big.Rat) bool {
	d := new(big.Rat).Sub(truth, answer)
	d.Abs(d)
	share := new(big.Rat).Abs(truth)
	return c.opt.Tolerance > 0 && d.Cmp(setting(c.opt.Tolerance)) <= 0 ||
		c.opt.Relative > 0 && d.Cmp(share.Mul(share, setting(c.opt.Relative))) <= 0
}

// within reports whether two numbers are within the tolerances that were set.
func (c *comparer) within(truth, answer *big.Float) bool {
	d := c.high.sub(truth, answer)
	if d.Abs(d); d.IsInf() {
		return false
	}
	if t := c.opt.Tolerance; t > 0 && d.Cmp(c.decimal(t)) <= 0 {
		return true
	}
	size := c.high.zero().Abs(truth)
	return c.opt.Relative > 0 && d.Cmp(c.high.mul(size, c.decimal(c.opt.Relative))) <= 0
}

// setting is a number of the options as it was written: 0.1 is a tenth.
func setting(f float64) *big.Rat {
	v, ok := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	if !ok {
		return new(big.Rat) // not finite: Validate has refused it
	}
	return v
}

func (c *comparer) decimal(f float64) *big.Float {
	return c.high.from(setting(f))
}

// errTruth says that it is the truth that has no value.
var errTruth = errors.New("the truth has no value here")

// floats compares two values at both precisions.
func (c *comparer) floats(truth, answer *node) (bool, error) {
	t2, err := c.high.eval(truth)
	if err != nil {
		return false, errors.Join(errTruth, err)
	}
	t1, err := c.low.eval(truth)
	if err != nil {
		return false, errors.Join(errTruth, err)
	}
	a2, err := c.high.eval(answer)
	if err != nil {
		return false, err
	}
	a1, err := c.low.eval(answer)
	if err != nil {
		return false, err
	}
	if c.vanishes(c.gap(c.low, t1, a1), c.gap(c.high, t2, a2), c.high.abs(t2), c.high.abs(a2)) {
		return true, nil
	}
	if t2.im != nil || a2.im != nil {
		return false, nil
	}
	return c.within(t2.re, a2.re) || c.rounds(answer, a2.re, t2.re) || c.rounds(truth, t2.re, a2.re), nil
}

func (c *comparer) gap(e *evaluator, a, b value) *big.Float { return e.abs(e.add2(a, e.minus(b))) }

// vanishes reports whether a difference goes to 0 as the precision grows, or is nothing beside the values.
func (c *comparer) vanishes(low, high, size1, size2 *big.Float) bool {
	if high.Sign() == 0 {
		return true
	}
	if high.IsInf() || low.IsInf() {
		return false
	}
	if size1.Cmp(size2) < 0 {
		size1 = size2
	}
	bound := c.high.scaled(size1, -150)
	if bound.Cmp(low) < 0 {
		bound = low
	}
	return high.Cmp(c.high.scaled(bound, -100)) <= 0
}

// rounds reports whether a decimal is what the other value rounds to, and shows digits enough to be told by.
func (c *comparer) rounds(n *node, decimal, other *big.Float) bool {
	for n.op == opNeg || n.op == opAdd && len(n.kids) == 1 {
		n = n.kids[0]
	}
	if least := c.opt.digits(); n.op != opNum || n.places < 0 || least == 0 || n.digits < least {
		return false
	}
	half := c.high.from(big.NewRat(1, 2))
	for range n.places {
		half = c.high.quo(half, c.high.whole(10))
	}
	d := c.high.sub(decimal, other)
	return d.Abs(d).Cmp(half) <= 0
}

// terminates reports whether a fraction can be written as a decimal, so that nothing has to be rounded.
func terminates(v *big.Rat) bool {
	_, exact := v.FloatPrec()
	return exact
}

// points compares at up to tryPoints points and says at how many both agreed; -1 = they differ at one. Where the truth is not defined nothing
// is compared; an answer that is not defined where the truth is differs. Which points are taken depends on the two texts alone.
func (c *comparer) points(truth, answer *node, names []string, at func(*rand.Rand, int) *big.Rat) (int, error) {
	h := fnv.New64a()
	h.Write([]byte(truth.text()))
	seed := h.Sum64()
	h.Write([]byte(answer.text()))
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	agreed := 0
	for k := 0; k < tryPoints && agreed < wantPoints; k++ {
		point := make(map[string]*big.Rat, len(names))
		for _, n := range names {
			point[n] = at(r, k)
		}
		defined, same, err := c.samePoint(truth, answer, point)
		if err != nil || defined && !same {
			return -1, err
		}
		if defined {
			agreed++
		}
	}
	return agreed, nil
}

// samePoint compares at one point.
func (c *comparer) samePoint(truth, answer *node, point map[string]*big.Rat) (defined, same bool, err error) {
	t, terr := c.work.exact(truth, point)
	if c.work.ended != nil {
		return false, false, c.work.ended
	}
	if terr == nil {
		if a, err := c.work.exact(answer, point); err == nil {
			return true, t.Cmp(a) == 0, nil
		}
	}
	c.low.at, c.high.at = point, point
	same, err = c.floats(truth, answer)
	switch {
	case c.work.ended != nil:
		return false, false, c.work.ended
	case errors.Is(err, errTruth):
		return false, false, nil
	}
	return true, same && err == nil, nil
}

// fractions with a power of two below: of both signs, small and larger.
func fractions(r *rand.Rand, k int) *big.Rat {
	n := 2*r.Int64N(1<<19) + 1 // odd, so that the fraction is no shorter
	den := int64(1 << 18)
	switch k % 4 {
	case 1:
		den = 1 << 20 // between 0 and 1
	case 2:
		if r.Uint64()%2 == 0 {
			n = -n
		}
	case 3:
		if k%8 == 3 {
			n = -n
		} else {
			den = 1 << 14
		}
	}
	return big.NewRat(n, den)
}

// wholes are whole numbers, small ones first: more often than not everything is defined there.
func wholes(r *rand.Rand, k int) *big.Rat {
	if k%2 == 0 {
		return big.NewRat(1+r.Int64N(20), 1)
	}
	return big.NewRat(1+r.Int64N(200), 1)
}

// rounded reports whether a truth is the decimal to which an answer has to be rounded: an answer with roots, or with pi, that has no
// other form.
func (c *comparer) rounded(truth, answer *node) bool {
	if truth.places < 0 && truth.op == opNum || len(answer.symbols()) > 0 || !answer.isExpr() {
		return false
	}
	if _, err := c.work.exact(answer, nil); !errors.Is(err, errInexact) {
		return false // it is a fraction, and not worked out
	}
	c.setComplex(truth, answer)
	c.high.at = nil
	t, err1 := c.high.eval(truth)
	a, err2 := c.high.eval(answer)
	if err1 != nil || err2 != nil || t.im != nil || a.im != nil {
		return false
	}
	gap := c.gap(c.high, t, a)
	return (c.rounds(truth, t.re, a.re) || c.within(t.re, a.re)) && gap.Sign() != 0 && gap.MantExp(nil) > -int(c.high.prec/2)
}
