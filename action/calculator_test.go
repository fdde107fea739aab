package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCalculate(t *testing.T) {
	for _, c := range []struct{ expression, want string }{
		{"2 + 3 * 4", "14"},
		{"(2 + 3) * 4", "20"},
		{"10 / 4", "2.5"},
		{"10 / 5", "2"},
		{"1 / 3", "0.3333333333333333"},
		{"0.1 + 0.2", "0.3"},
		{"1.50 + 1.50", "3"},
		{"1.10", "1.1"},
		{"-2 ^ 2", "-4"},
		{"(-2) ** 3", "-8"},
		{"2 ** 3 ** 2", "512"},
		{"2 ** -1", "0.5"},
		{"2 ** 100", "1267650600228229401496703205376"},
		{"12345678901234567890 + 1", "12345678901234567891"},
		{"99999999999999999999 * 99999999999999999999", "9999999999999999999800000000000000000001"},
		{"max(12345678901234567890, 1)", "12345678901234567890"},
		{"9223372036854775807 + 1", "9223372036854775808"},
		{"9223372036854775808.5 - 0.5", "9223372036854775808"},
		{"1_000_000 * 2", "2000000"},
		{"1e3 + 1", "1001"},
		{"1.5e-3", "0.0015"},
		{".5 + .5", "1"},
		{"7 % 3", "1"},
		{"-7 % 3", "2"},
		{"7 % -3", "-2"},
		{"7.5 % 2", "1.5"},
		{"sqrt(16)", "4"},
		{"sqrt(2)", "1.4142135623730951"},
		{"sqrt(2.25)", "1.5"},
		{"sqrt(10 ** 60)", "1" + strings.Repeat("0", 30)},
		{"4 ** 0.5", "2"},
		{"abs(-3.5)", "3.5"},
		{"min(3, 1, 2)", "1"},
		{"max(3, 1, sqrt(16))", "4"},
		{"round(2.5)", "3"},
		{"round(-2.5)", "-3"},
		{"round(2.345, 2)", "2.35"},
		{"round(1234, -2)", "1200"},
		{"round(sqrt(2), 3)", "1.414"},
		{"floor(-1.5)", "-2"},
		{"ceil(-1.5)", "-1"},
		{"ceil(1.2)", "2"},
		{"0 * -1", "0"},
		{"0 * -sqrt(2)", "0"},
		{"0 ** 0", "1"},
		{"(-1) ** 1000000", "1"},
		{"(-1) ** 999999", "-1"},
		{"10 ** 30 / 3", "3.333333333333333e+29"},
		{"1 / 10 ** 10 / 3", "3.3333333333333335e-11"},
		{"10 ** 400 / 3", "3.3333333333333333e+399"},
		{"0xff", "255"},
		{"+4", "4"},
	} {
		t.Run(c.expression, func(t *testing.T) {
			got, err := calculate(c.expression)
			if err != nil || got != c.want {
				t.Fatalf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestCalculateRefuses(t *testing.T) {
	for _, c := range []struct{ name, expression, want string }{
		{"division by zero", "1 / 0", "division by zero"},
		{"division by an exact zero", "1 / (0.1 + 0.2 - 0.3)", "division by zero"},
		{"remainder by zero", "1 % 0", "division by zero"},
		{"zero to a negative power", "0 ** -1", "division by zero"},
		{"root of a negative", "sqrt(-1)", "not a real number"},
		{"fractional power of a negative", "(-8) ** 0.5", "not a real number"},
		{"tower", "9 ** 9 ** 9", "too many digits"},
		{"float overflow", "sqrt(2) * 10 ** 400", "too large"},
		{"exponent out of range", "1e-9999999", "out of range"},
		{"name", "x + 1", `unknown name "x"`},
		{"other function", "len(1)", `unknown function "len"`},
		{"unknown function", "system(1)", `unknown function "system"`},
		{"string", `"a" + "b"`, "only arithmetic"},
		{"list", "[1, 2][0]", "only arithmetic"},
		{"map", "{a: 1}.a", "only arithmetic"},
		{"range", "1..3", "unknown operator"},
		{"member", "(1).foo", "only arithmetic"},
		{"comparison", "1 < 2", "unknown operator"},
		{"boolean", "true", "only arithmetic"},
		{"conditional", "1 ? 2 : 3", "only arithmetic"},
		{"sequence", "1; 2", "only arithmetic"},
		{"variable", "let x = 1; x", "only arithmetic"},
		{"predicate", "sum([1], # * 2)", "unknown function"},
		{"floor division, a comment to the parser", "7 // 2", "floor(a / b)"},
		{"comment", "7 /* 2 */", "floor(a / b)"},
		{"open parenthesis", "(1 + 2", "cannot be read"},
		{"nothing", "", "cannot be read"},
		{"too few arguments", "abs()", "abs takes one number, not 0"},
		{"too many arguments", "round(1, 2, 3)", "round takes one or two numbers, not 3"},
		{"rounding to a fraction", "round(1, 0.5)", "whole number"},
		{"too long", strings.Repeat("1+", 600) + "1", "at most 1000"},
		{"too many nodes", strings.Repeat("1+", 150) + "1", "nodes"},
		{"deep", strings.Repeat("(", 400) + "1" + strings.Repeat(")", 400) + "x", "cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := calculate(c.expression)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %q, %v; want an error with %q", got, err, c.want)
			}
		})
	}
}

func TestCalculatorFaultIsTheModels(t *testing.T) {
	_, err := Calculator{}.Run(context.Background(), json.RawMessage(`{"expression":"1/0"}`), Env{})
	var mistake *ToolError
	if !errors.As(err, &mistake) || mistake.Text != "division by zero" {
		t.Fatalf("got %v", err)
	}
}

// ref is an expression and what big.Rat makes of it; nil = it divides by zero somewhere.
type ref struct {
	text  string
	value *big.Rat
}

// drawRef builds a random fully parenthesised expression together with its value, worked out apart from the calculator.
func drawRef(t *rapid.T, depth int) ref {
	if depth == 0 || rapid.IntRange(0, 3).Draw(t, "leaf") == 0 {
		whole := rapid.Int64Range(0, 1<<62).Draw(t, "whole")
		if rapid.Bool().Draw(t, "small") {
			whole %= 100
		}
		text := strconv.FormatInt(whole, 10)
		if n := rapid.IntRange(0, 4).Draw(t, "decimals"); n > 0 {
			text += "." + fmt.Sprintf("%0*d", n, rapid.IntRange(0, 9999).Draw(t, "part")%pow10(n))
		}
		v, _ := new(big.Rat).SetString(text)
		return ref{text, v}
	}
	a := drawRef(t, depth-1)
	switch op := rapid.SampledFrom([]string{"+", "-", "*", "/", "neg", "abs", "floor", "max"}).Draw(t, "op"); op {
	case "neg":
		return ref{"(-" + a.text + ")", apply(a, a, func(r, x, _ *big.Rat) { r.Neg(x) })}
	case "abs":
		return ref{"abs(" + a.text + ")", apply(a, a, func(r, x, _ *big.Rat) { r.Abs(x) })}
	case "floor":
		return ref{"floor(" + a.text + ")", apply(a, a, func(r, x, _ *big.Rat) {
			q, m := new(big.Int).QuoRem(x.Num(), x.Denom(), new(big.Int))
			if m.Sign() < 0 {
				q.Sub(q, big.NewInt(1))
			}
			r.SetInt(q)
		})}
	default:
		b := drawRef(t, depth-1)
		text := "(" + a.text + " " + op + " " + b.text + ")"
		if op == "max" {
			text = "max(" + a.text + ", " + b.text + ")"
		}
		if op == "/" && b.value != nil && b.value.Sign() == 0 {
			return ref{text, nil}
		}
		return ref{text, apply(a, b, func(r, x, y *big.Rat) {
			switch op {
			case "+":
				r.Add(x, y)
			case "-":
				r.Sub(x, y)
			case "*":
				r.Mul(x, y)
			case "/":
				r.Quo(x, y)
			case "max":
				r.Set(x)
				if y.Cmp(x) > 0 {
					r.Set(y)
				}
			}
		})}
	}
}

func apply(a, b ref, f func(r, x, y *big.Rat)) *big.Rat {
	if a.value == nil || b.value == nil {
		return nil
	}
	r := new(big.Rat)
	f(r, a.value, b.value)
	return r
}

func pow10(n int) int {
	p := 1
	for range n {
		p *= 10
	}
	return p
}

// Whole results keep every digit; others agree with the reference to float64 precision, and division by zero is named.
func TestCalculateAgreesWithExactFractions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawRef(t, 4)
		got, err := calculate(e.text)
		switch {
		case len(e.text) > maxExpression:
			if err == nil {
				t.Fatalf("%d bytes were let through", len(e.text))
			}
		case e.value == nil:
			if !errors.Is(err, errDivision) {
				t.Fatalf("%s: got %q, %v; want division by zero", e.text, got, err)
			}
		case err != nil:
			t.Fatalf("%s: %v", e.text, err)
		case e.value.IsInt():
			if got != e.value.Num().String() {
				t.Fatalf("%s: got %s, want %s", e.text, got, e.value.Num())
			}
		default:
			requireNear(t, e, got)
		}
	})
}

func requireNear(t *rapid.T, e ref, got string) {
	r, ok := new(big.Rat).SetString(got)
	if !ok {
		t.Fatalf("%s: %q is no number", e.text, got)
	}
	off := new(big.Rat).Sub(r, e.value)
	off.Abs(off.Quo(off, e.value))
	if off.Cmp(big.NewRat(1, 1<<50)) > 0 {
		t.Fatalf("%s: got %s, want %s", e.text, got, e.value.FloatString(30))
	}
}

func FuzzCalculate(f *testing.F) {
	for _, s := range []string{"1+2", "sqrt(2)**-3", "9**9**9", "max(1,)", "1e-5", "((", "12345678901234567890123", "a|sqrt()", "é1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := calculate(s)
		if err != nil {
			return
		}
		if _, _, err := big.ParseFloat(got, 10, 64, big.ToNearestEven); err != nil {
			t.Fatalf("%q gave %q, which is no number", s, got)
		}
	})
}
