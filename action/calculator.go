package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"

	"tranche/internal/jsonschema"
)

// Calculator is the tool that works out an arithmetic expression.
//
// The text is parsed by expr; of what it parses only numbers, + - * / % ** ^, a sign, parentheses and a few functions are
// let through, and the tree is worked out here in exact fractions, so that 0.1 + 0.2 is 0.3 and large integers keep every
// digit. Only a root that is no fraction and a power that is no whole number make the rest of the way float64.
// % has the sign of the divisor, and round goes away from zero at a half.
type Calculator struct{}

// Limits of one expression.
const (
	maxExpression = 1000 // bytes
	maxNodes      = 200
	maxBits       = 8192 // of a numerator or denominator: some 2,400 digits
	maxDecimals   = 20   // an exact result with more decimals is shown as float64
)

// Name is "calculator".
func (Calculator) Name() string { return "calculator" }

// Definition takes one argument, expression: a string.
func (Calculator) Definition() json.RawMessage {
	return json.RawMessage(`{"type":"function","function":{"name":"calculator",` +
		`"description":"Work out one arithmetic expression and return the number. It knows numbers, + - * / % ** ( ) and the ` +
		`functions abs, min, max, round, floor, ceil, sqrt; round(x, n) rounds to n decimals.",` +
		`"parameters":{"type":"object","properties":{` +
		`"expression":{"type":"string","description":"The expression, for example (3 + 4) * 12 / 5"}},` +
		`"required":["expression"],"additionalProperties":false}}}`)
}

// Keeps is false: a formula depends on nothing before it.
func (Calculator) Keeps(string) bool { return false }

// Run returns the value as text. Whatever is wrong with the expression is a *ToolError.
func (Calculator) Run(_ context.Context, args json.RawMessage, _ Env) (Result, error) {
	var in struct{ Expression string }
	if err := json.Unmarshal(args, &in); err != nil {
		return Result{}, fmt.Errorf("reading the arguments of calculator: %w", err)
	}
	text, err := calculate(in.Expression)
	if err != nil {
		return Result{}, &ToolError{Text: err.Error()}
	}
	return Result{Text: text}, nil
}

func calculate(expression string) (string, error) {
	if len(expression) > maxExpression {
		return "", fmt.Errorf("the expression has %d bytes, at most %d are allowed", len(expression), maxExpression)
	}
	if strings.Contains(expression, "//") || strings.Contains(expression, "/*") {
		return "", errors.New("there is no operator //; write floor(a / b)") // the parser takes both for comments
	}
	src := widen(expression)
	tree, err := parser.ParseWithConfig(src, &conf.Config{MaxNodes: maxNodes})
	if err != nil {
		return "", syntaxFault(err)
	}
	v, err := evaluator{[]rune(src)}.eval(tree.Node)
	if err != nil {
		return "", err
	}
	return v.text(), nil
}

func syntaxFault(err error) error {
	var at *file.Error
	if !errors.As(err, &at) {
		return fmt.Errorf("the expression cannot be read: %w", err)
	}
	return fmt.Errorf("the expression cannot be read: %s (line %d, column %d)", at.Message, at.Line, at.Column+1)
}

// widen makes whole numbers that the parser's int cannot hold readable to it by ending them with a point; their value is
// taken from the text afterwards.
func widen(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); {
		j := i
		for j < len(s) && (isDigit(s[j]) || j > i && s[j] == '_') {
			j++
		}
		if j == i {
			out.WriteByte(s[i])
			i++
			continue
		}
		out.WriteString(s[i:j])
		starts := i == 0 || !isWordByte(s[i-1])
		ends := j == len(s) || !isWordByte(s[j])
		if j-i >= 19 && starts && ends {
			out.WriteByte('.')
		}
		i = j
	}
	return out.String()
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isWordByte reports whether c can belong to a name or to the rest of a number.
func isWordByte(c byte) bool {
	return isDigit(c) || c == '_' || c == '.' || 'a' <= c|0x20 && c|0x20 <= 'z' || c >= 0x80
}

// number is a value: an exact fraction, or a float64 once something could not be exact.
type number struct {
	exact *big.Rat // nil = float holds it
	float float64
}

// evaluator works out a tree; src is what it was parsed from.
type evaluator struct{ src []rune }

func (ev evaluator) eval(n ast.Node) (number, error) {
	switch n := n.(type) {
	case *ast.IntegerNode:
		return number{exact: new(big.Rat).SetInt64(int64(n.Value))}, nil
	case *ast.FloatNode:
		return ev.literal(n)
	case *ast.UnaryNode:
		return ev.sign(n)
	case *ast.BinaryNode:
		return ev.binary(n)
	case *ast.BuiltinNode:
		return ev.call(n.Name, n.Arguments)
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok {
			return ev.call(callee.Value, n.Arguments)
		}
	case *ast.IdentifierNode:
		return number{}, fmt.Errorf("unknown name %q: write numbers, there are no variables", clip(n.Value, 40))
	}
	return number{}, errors.New("only arithmetic is known: numbers, + - * / % ** ( ) and " + functionNames)
}

const functionNames = "abs, min, max, round, floor, ceil, sqrt"

// literal reads a number with a point or an exponent from its text: 0.1 is one tenth, not the float64 next to it.
func (ev evaluator) literal(n *ast.FloatNode) (number, error) {
	at := n.Location()
	text := strings.ReplaceAll(string(ev.src[at.From:at.To]), "_", "")
	if jsonschema.IsWild(text) {
		return number{}, fmt.Errorf("the number %s is out of range", clip(text, 40))
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return number{}, fmt.Errorf("%q is no number", clip(text, 40))
	}
	return settle(r)
}

func (ev evaluator) sign(n *ast.UnaryNode) (number, error) {
	v, err := ev.eval(n.Node)
	if err != nil {
		return v, err
	}
	switch n.Operator {
	case "+":
		return v, nil
	case "-":
		if v.exact == nil {
			return approximate(-v.float)
		}
		return number{exact: new(big.Rat).Neg(v.exact)}, nil
	}
	return number{}, unknownOperator(n.Operator)
}

func unknownOperator(op string) error {
	return fmt.Errorf("unknown operator %q: the operators are + - * / %% **", op)
}

func (ev evaluator) binary(n *ast.BinaryNode) (number, error) {
	if !strings.Contains(" + - * / % ** ^ ", " "+n.Operator+" ") {
		return number{}, unknownOperator(n.Operator)
	}
	a, err := ev.eval(n.Left)
	if err != nil {
		return a, err
	}
	b, err := ev.eval(n.Right)
	if err != nil {
		return b, err
	}
	if (n.Operator == "/" || n.Operator == "%") && b.isZero() {
		return number{}, errDivision
	}
	if n.Operator == "**" || n.Operator == "^" {
		return power(a, b)
	}
	if a.exact == nil || b.exact == nil {
		return approximate(floatOp(n.Operator, a.near(), b.near()))
	}
	return settle(exactOp(n.Operator, a.exact, b.exact))
}

var (
	errDivision = errors.New("division by zero")
	errTooLarge = errors.New("the result is too large or has too many digits")
	errNoNumber = errors.New("the result is not a real number")
)

func exactOp(op string, a, b *big.Rat) *big.Rat {
	r := new(big.Rat)
	switch op {
	case "+":
		return r.Add(a, b)
	case "-":
		return r.Sub(a, b)
	case "*":
		return r.Mul(a, b)
	case "/":
		return r.Quo(a, b)
	default: // %: a - b*floor(a/b)
		whole := new(big.Rat).SetInt(floor(r.Quo(a, b)))
		return r.Sub(a, whole.Mul(whole, b))
	}
}

func floatOp(op string, a, b float64) float64 {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "/":
		return a / b
	default:
		return a - b*math.Floor(a/b)
	}
}

// power is exact for whole exponents of exact numbers.
func power(a, b number) (number, error) {
	if b.exact == nil || !b.exact.IsInt() || a.exact == nil {
		if a.isZero() && b.near() < 0 {
			return number{}, errDivision
		}
		return approximate(math.Pow(a.near(), b.near()))
	}
	base, exp := a.exact, b.exact.Num()
	if exp.Sign() < 0 {
		if base.Sign() == 0 {
			return number{}, errDivision
		}
		base, exp = new(big.Rat).Inv(base), new(big.Int).Neg(exp)
	}
	// 0, 1 and -1 stay what they are at any exponent; all else grows by its bits each time.
	size := max(base.Num().BitLen(), base.Denom().BitLen())
	if size <= 1 {
		if exp.Bit(0) == 0 && exp.Sign() != 0 {
			base = new(big.Rat).Abs(base)
		} else if exp.Sign() == 0 {
			base = big.NewRat(1, 1)
		}
		return number{exact: base}, nil
	}
	if !exp.IsInt64() || exp.Int64() > maxBits || (int64(size)-1)*exp.Int64() > maxBits {
		return number{}, errTooLarge
	}
	r := new(big.Rat).SetFrac(new(big.Int).Exp(base.Num(), exp, nil), new(big.Int).Exp(base.Denom(), exp, nil))
	return settle(r)
}

func (ev evaluator) call(name string, args []ast.Node) (number, error) {
	low, high, known := arity(name)
	if !known {
		return number{}, fmt.Errorf("unknown function %q: the functions are %s", clip(name, 40), functionNames)
	}
	if len(args) < low || len(args) > high {
		return number{}, fmt.Errorf("%s takes %s, not %d", name, countOf(low, high), len(args))
	}
	vals := make([]number, len(args))
	for i, a := range args {
		v, err := ev.eval(a)
		if err != nil {
			return v, err
		}
		vals[i] = v
	}
	switch name {
	case "min", "max":
		return extreme(name, vals), nil
	case "sqrt":
		return root(vals[0])
	case "abs":
		if vals[0].exact == nil {
			return approximate(math.Abs(vals[0].float))
		}
		return number{exact: new(big.Rat).Abs(vals[0].exact)}, nil
	default:
		return rounded(name, vals)
	}
}

func arity(name string) (low, high int, known bool) {
	switch name {
	case "abs", "floor", "ceil", "sqrt":
		return 1, 1, true
	case "round":
		return 1, 2, true
	case "min", "max":
		return 1, maxNodes, true
	}
	return 0, 0, false
}

func countOf(low, high int) string {
	switch {
	case low == high:
		return "one number"
	case high == 2:
		return "one or two numbers"
	}
	return "one or more numbers"
}

func extreme(name string, vals []number) number {
	best := vals[0]
	for _, v := range vals[1:] {
		if c := v.compare(best); name == "max" && c > 0 || name == "min" && c < 0 {
			best = v
		}
	}
	return best
}

// root is exact where numerator and denominator are squares.
func root(v number) (number, error) {
	if v.exact == nil {
		return approximate(math.Sqrt(v.float))
	}
	if v.exact.Sign() < 0 {
		return number{}, errors.New("the square root of a negative number is not a real number")
	}
	num, den := new(big.Int).Sqrt(v.exact.Num()), new(big.Int).Sqrt(v.exact.Denom())
	r := new(big.Rat).SetFrac(num, den)
	if new(big.Rat).Mul(r, r).Cmp(v.exact) == 0 {
		return number{exact: r}, nil
	}
	return approximate(math.Sqrt(v.near()))
}

// rounded is floor, ceil, round(x) and round(x, decimals). The result is exact, whatever x was.
func rounded(name string, vals []number) (number, error) {
	x := vals[0].exact
	if x == nil {
		x = new(big.Rat)
		x.SetFloat64(vals[0].float)
	}
	switch name {
	case "floor":
		return number{exact: new(big.Rat).SetInt(floor(x))}, nil
	case "ceil":
		up := floor(new(big.Rat).Neg(x))
		return number{exact: new(big.Rat).SetInt(up.Neg(up))}, nil
	}
	scale := big.NewRat(1, 1)
	if len(vals) == 2 {
		d := vals[1].exact
		if d == nil || !d.IsInt() || new(big.Rat).Abs(d).Cmp(big.NewRat(maxDecimals, 1)) > 0 {
			return number{}, fmt.Errorf("round(x, n) needs a whole number n from -%d to %d", maxDecimals, maxDecimals)
		}
		n := d.Num().Int64()
		scale.SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(max(n, -n)), nil))
		if n < 0 {
			scale.Inv(scale)
		}
	}
	return settle(halfAway(x, scale))
}

// halfAway rounds x*scale to a whole number, away from zero at a half, and scales back.
func halfAway(x, scale *big.Rat) *big.Rat {
	r := new(big.Rat).Mul(new(big.Rat).Abs(x), scale)
	r.SetInt(floor(r.Add(r, big.NewRat(1, 2))))
	r.Quo(r, scale)
	if x.Sign() < 0 {
		r.Neg(r)
	}
	return r
}

// floor is the largest whole number not above r; Div of big.Int is Euclidean, which is that for a positive divisor.
func floor(r *big.Rat) *big.Int { return new(big.Int).Div(r.Num(), r.Denom()) }

func (v number) isZero() bool {
	if v.exact == nil {
		return v.float == 0
	}
	return v.exact.Sign() == 0
}

// near is the float64 next to v; infinite when v is too large for one.
func (v number) near() float64 {
	if v.exact == nil {
		return v.float
	}
	f, _ := v.exact.Float64()
	return f
}

func (v number) compare(w number) int {
	a, b := v.exact, w.exact
	if a == nil {
		a = new(big.Rat).SetFloat64(v.float)
	}
	if b == nil {
		b = new(big.Rat).SetFloat64(w.float)
	}
	return a.Cmp(b)
}

func settle(r *big.Rat) (number, error) {
	if r.Num().BitLen() > maxBits || r.Denom().BitLen() > maxBits {
		return number{}, errTooLarge
	}
	return number{exact: r}, nil
}

func approximate(f float64) (number, error) {
	switch {
	case math.IsNaN(f):
		return number{}, errNoNumber
	case math.IsInf(f, 0):
		return number{}, errTooLarge
	}
	return number{float: f}, nil
}

// text is v without needless decimals.
func (v number) text() string {
	if v.exact == nil {
		return floatText(v.float)
	}
	if v.exact.IsInt() {
		return v.exact.Num().String()
	}
	if n, ends := v.exact.FloatPrec(); ends && n <= maxDecimals {
		return v.exact.FloatString(n)
	}
	f := v.near()
	if f == 0 || math.IsInf(f, 0) {
		return new(big.Float).SetPrec(64).SetRat(v.exact).Text('g', 17)
	}
	return floatText(f)
}

func floatText(f float64) string {
	if f == 0 {
		return "0" // and never -0
	}
	if a := math.Abs(f); a < 1e-6 || a >= 1e21 {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
