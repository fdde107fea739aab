package taskfile

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	goparser "go/parser"
	"go/token"
	"regexp"
	"strings"
)

var equation = regexp.MustCompile(`[0-9][0-9 +*/-]*= [0-9]+`)

// equations finds every "a op b = c" in a text.
func equations(text string) []string { return equation.FindAllString(text, -1) }

// holds evaluates "expression = number" exactly, with Go's own parser and big constants.
func holds(eq string) error {
	left, right, ok := strings.Cut(eq, " = ")
	if !ok {
		return errors.New("no equation")
	}
	a, err := value(left)
	if err != nil {
		return err
	}
	b, err := value(right)
	if err != nil {
		return err
	}
	if !constant.Compare(a, token.EQL, b) {
		return fmt.Errorf("%s is %s, not %s", left, a.ExactString(), right)
	}
	return nil
}

func value(text string) (constant.Value, error) {
	e, err := goparser.ParseExpr(text)
	if err != nil {
		return nil, err
	}
	return eval(e)
}

func eval(e ast.Expr) (constant.Value, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0), nil
	case *ast.ParenExpr:
		return eval(e.X)
	case *ast.UnaryExpr:
		x, err := eval(e.X)
		if err != nil {
			return nil, err
		}
		return constant.UnaryOp(e.Op, x, 0), nil
	case *ast.BinaryExpr:
		x, err := eval(e.X)
		if err != nil {
			return nil, err
		}
		y, err := eval(e.Y)
		if err != nil {
			return nil, err
		}
		return constant.BinaryOp(x, e.Op, y), nil
	}
	return nil, fmt.Errorf("not arithmetic: %T", e)
}
