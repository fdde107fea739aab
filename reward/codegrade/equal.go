package codegrade

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// How values are compared.
const (
	CompareTyped  = "typed"  // the type counts: 1 is neither True nor 1.0, a tuple is no list; NaN is NaN
	CompareJSON   = "json"   // as far as JSON can tell: 1 is 1.0 but not True, a tuple is a list, keys of a dict are text; NaN is NaN
	ComparePython = "python" // what Python's == says of the plain values: 1, 1.0 and True are one; NaN is nothing
)

// alike says when two values count as equal.
type alike struct {
	how       string  // CompareTyped, CompareJSON, ComparePython
	tolerance float64 // absolute and relative, where a float is expected; not inside sets and keys
}

// equal tells whether got is what is wanted. Neither value can do anything: a class that calls itself equal to all never comes here.
func (a alike) equal(want, got value) bool {
	if want.isNumber() && got.isNumber() {
		return a.numbers(want, got)
	}
	if a.family(want.kind) != a.family(got.kind) {
		return false
	}
	switch want.kind {
	case kindNone:
		return true
	case kindList, kindTuple:
		return slices.EqualFunc(want.items, got.items, a.equal)
	case kindDict:
		return a.dicts(want, got)
	case kindIterator:
		return false // one-time things are the same only as themselves
	}
	return a.key(want) == a.key(got)
}

// family is the kinds that can be equal to one another.
func (a alike) family(k kind) kind {
	switch {
	case a.how == CompareJSON && k == kindTuple:
		return kindList
	case a.how == ComparePython && k == kindFrozenSet:
		return kindSet
	case a.how == ComparePython && k == kindByteArray:
		return kindBytes
	}
	return k
}

func (v value) isNumber() bool {
	switch v.kind {
	case kindBool, kindInt, kindFloat, kindComplex, kindDecimal, kindFraction:
		return true
	}
	return false
}

func (a alike) numbers(want, got value) bool {
	if !a.sameSort(want.kind, got.kind) {
		return false
	}
	if want.kind == kindFloat && a.tolerance > 0 {
		if g, ok := got.float(); ok && !math.IsInf(want.re, 0) && math.Abs(want.re-g) <= a.tolerance*max(1, math.Abs(want.re)) {
			return true
		}
	}
	if w, g := want.isNaN(), got.isNaN(); w || g {
		return w && g && a.how != ComparePython
	}
	return a.key(want) == a.key(got)
}

// sameSort tells whether two kinds of numbers may be equal at all.
func (a alike) sameSort(want, got kind) bool {
	switch a.how {
	case ComparePython:
		return true
	case CompareJSON:
		return (want == kindBool) == (got == kindBool)
	}
	return want == got
}

func (v value) isNaN() bool { return math.IsNaN(v.re) || math.IsNaN(v.im) }

func (v value) float() (float64, bool) {
	switch v.kind {
	case kindFloat:
		return v.re, true
	case kindInt, kindBool:
		f, _ := new(big.Float).SetInt(v.int).Float64()
		return f, true
	}
	return 0, false
}

// dicts compares without order: by keys, then the values under them.
func (a alike) dicts(want, got value) bool {
	if len(want.items) != len(got.items) {
		return false
	}
	under := make(map[string]value, len(got.items)/2)
	for i := 0; i < len(got.items); i += 2 {
		under[a.dictKey(got.items[i])] = got.items[i+1]
	}
	for i := 0; i < len(want.items); i += 2 {
		g, ok := under[a.dictKey(want.items[i])]
		if !ok || !a.equal(want.items[i+1], g) {
			return false
		}
	}
	return len(under) == len(got.items)/2
}

// dictKey is a key's text; JSON has no keys but text.
func (a alike) dictKey(v value) string {
	if a.how == CompareJSON && v.kind == kindInt {
		return a.key(value{kind: kindString, text: v.int.String()})
	}
	return a.key(v)
}

// key is a text that two values share exactly when they are equal.
func (a alike) key(v value) string {
	switch v.kind {
	case kindString, kindBytes, kindByteArray, kindType:
		return string(a.family(v.kind)) + strconv.Quote(v.text)
	case kindClock:
		return fmt.Sprint(v.kind, v.clock)
	}
	if v.isNumber() {
		return a.numberKey(v)
	}
	parts := make([]string, len(v.items))
	for i, item := range v.items {
		parts[i] = a.key(item)
	}
	switch v.kind {
	case kindSet, kindFrozenSet:
		slices.Sort(parts)
	case kindDict:
		parts = pairs(parts)
	}
	return string(a.family(v.kind)) + "(" + strings.Join(parts, ",") + ")"
}

// pairs joins keys and values, in the order of the keys.
func pairs(parts []string) []string {
	joined := make([]string, 0, len(parts)/2)
	for i := 0; i+1 < len(parts); i += 2 {
		joined = append(joined, parts[i]+":"+parts[i+1])
	}
	slices.SortFunc(joined, cmp.Compare[string])
	return joined
}

// numberKey is a number's text: with its sort where that counts.
func (a alike) numberKey(v value) string {
	sort := "number"
	if a.how == CompareTyped || a.how == CompareJSON && v.kind == kindBool {
		sort = string(v.kind)
	}
	return sort + " " + v.exact()
}

// exact is a number without loss: whole numbers and fractions alike in all kinds.
func (v value) exact() string {
	switch v.kind {
	case kindBool, kindInt:
		return v.int.Text(16)
	case kindFloat:
		return exactFloat(v.re)
	case kindComplex:
		if v.im == 0 {
			return exactFloat(v.re)
		}
		return exactFloat(v.re) + "+" + exactFloat(v.im) + "j"
	}
	if r, ok := rational(v.text); ok {
		return ratText(r)
	}
	return v.text
}

func exactFloat(f float64) string {
	r := new(big.Rat).SetFloat64(f)
	if r == nil { // infinite or NaN
		return floatText(f)
	}
	return ratText(r)
}

// ratText is the number in hex, which takes no time that grows with its square.
func ratText(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().Text(16)
	}
	return r.Num().Text(16) + "/" + r.Denom().Text(16)
}

// mostDigits is how long a Decimal or Fraction, and how large its exponent, may be to be worked out: more is compared as text.
const mostDigits = 2000

func rational(text string) (*big.Rat, bool) {
	if len(text) > mostDigits {
		return nil, false
	}
	if _, exponent, ok := strings.Cut(strings.ToLower(text), "e"); ok {
		if n, err := strconv.Atoi(exponent); err != nil || n > mostDigits || n < -mostDigits {
			return nil, false
		}
	}
	return new(big.Rat).SetString(text)
}

// truth is what Python's bool says of a value.
func (v value) truth() bool {
	switch v.kind {
	case kindNone:
		return false
	case kindBool, kindInt:
		return v.int.Sign() != 0
	case kindFloat, kindComplex:
		return v.re != 0 || v.im != 0
	case kindString, kindBytes, kindByteArray:
		return v.text != ""
	case kindList, kindTuple, kindSet, kindFrozenSet, kindDict:
		return len(v.items) > 0
	case kindRange:
		up := v.items[2].int.Sign() > 0
		c := v.items[0].int.Cmp(v.items[1].int)
		return up && c < 0 || !up && c > 0
	case kindDecimal, kindFraction:
		r, ok := rational(v.text)
		return !ok || r.Sign() != 0
	case kindClock:
		return v.clock.class != "timedelta" || strings.Trim(v.clock.numbers, "0 ") != ""
	}
	return true
}

// is tells whether a value is None, True or False itself.
func (v value) is(want value) bool {
	return v.kind == want.kind && (v.kind == kindNone || v.int.Cmp(want.int) == 0)
}
