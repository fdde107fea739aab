package taskfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	sprig "github.com/go-task/slim-sprig/v3"
)

// templates are the compiled templates; nil = not set.
type templates struct {
	id, prompt, system, answer, dataSource, envClass *column
}

func (t templates) any() bool {
	return t != templates{}
}

// column is one compiled template.
type column struct {
	name string
	t    *template.Template
}

// compileAll compiles every template that is set and reports the faults of all of them.
func compileAll(src Templates) (templates, error) {
	var out templates
	var errs []error
	for _, c := range []struct {
		name, text string
		to         **column
	}{
		{"id", src.ID, &out.id},
		{"prompt", src.Prompt, &out.prompt},
		{"system", src.System, &out.system},
		{"answer", src.Answer, &out.answer},
		{"data_source", src.DataSource, &out.dataSource},
		{"env_class", src.EnvClass, &out.envClass},
	} {
		if c.text == "" {
			continue
		}
		col, err := compile(c.name, c.text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		*c.to = col
	}
	return out, errors.Join(errs...)
}

func compile(name, text string) (*column, error) {
	t, err := template.New(name).Option("missingkey=error").Funcs(functions()).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("template %q: %s", name, strings.TrimPrefix(err.Error(), "template: "))
	}
	for _, sub := range t.Templates() {
		if sub.Tree != nil {
			printThrough(sub.Root)
		}
	}
	return &column{name: name, t: t}, nil
}

// render executes the template over the columns of a row.
func (c *column) render(cols map[string]any) (string, error) {
	var b strings.Builder
	err := c.t.Execute(&b, cols)
	if err == nil {
		return b.String(), nil
	}
	return "", fmt.Errorf("template %q: %s", c.name, explain(err, cols))
}

var missingKey = regexp.MustCompile(`map has no entry for key "(.*)"`)

// explain words an execution error for the person who wrote the template. Only wording depends on the text matched.
func explain(err error, cols map[string]any) string {
	names := slices.Sorted(maps.Keys(cols))
	there := strings.Join(names, ", ")
	if len(names) == 0 {
		there = "none"
	}
	if m := missingKey.FindStringSubmatch(err.Error()); m != nil {
		if _, nested := cols[m[1]]; !nested {
			return fmt.Sprintf("no column %q in this row; its columns are: %s", m[1], there)
		}
	}
	var own *valueError
	if errors.As(err, &own) {
		return own.Error()
	}
	return fmt.Sprintf("%s; the row's columns are: %s", strings.TrimPrefix(err.Error(), "template: "), there)
}

// valueError is a fault found by one of our own template functions.
type valueError struct{ msg string }

func (e *valueError) Error() string { return e.msg }

// printName is the function that every printed value goes through; no identifier a person would write.
const printName = "tranche_print"

// printThrough appends printName to every pipeline that prints, as html/template does with its escapers: text/template alone
// prints a null as "<no value>" and a list in Go's own notation, and neither belongs in a prompt.
func printThrough(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, c := range n.Nodes {
			printThrough(c)
		}
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 {
			printPipe(n.Pipe)
		}
	case *parse.IfNode:
		printBranch(&n.BranchNode)
	case *parse.RangeNode:
		printBranch(&n.BranchNode)
	case *parse.WithNode:
		printBranch(&n.BranchNode)
	}
}

func printBranch(n *parse.BranchNode) {
	printThrough(n.List)
	printThrough(n.ElseList)
}

func printPipe(p *parse.PipeNode) {
	text := p.String()
	p.Cmds = append(p.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: p.Pos, Args: []parse.Node{
		parse.NewIdentifier(printName).SetPos(p.Pos),
		&parse.StringNode{NodeType: parse.NodeString, Pos: p.Pos, Quoted: strconv.Quote(text), Text: text},
	}})
}

// printed renders one value of a row as text: strings as they are, numbers shortest, lists and objects as JSON, null as an error.
func printed(expr string, v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", &valueError{fmt.Sprintf(`{{%s}} is null in this row; write {{%s | default ""}} where it may be`, expr, expr)}
	case string:
		return v, nil
	case float64:
		return shortest(v), nil
	case map[string]any, []any:
		b, err := encode(v)
		return string(b), err
	default:
		return fmt.Sprint(v), nil
	}
}

func shortest(f float64) string {
	b, err := json.Marshal(f) // the notation people expect in data: 0.1, 1e+21
	if err != nil {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return string(b)
}

// functions are what templates may call: slim-sprig without everything that is not a pure function of its arguments (clock,
// random, environment, network, host paths), without what changes its argument (a row is shared by all its templates), and
// without what would hide a builtin of text/template that does more (slice).
func functions() template.FuncMap {
	f := sprig.HermeticTxtFuncMap()
	for _, name := range []string{
		"hello", "ago", "date_modify", "dateModify", "must_date_modify", "mustDateModify", "duration", "durationRound",
		"toDate", "mustToDate", "unixEpoch", "randInt", "uuidv4",
		"osBase", "osClean", "osDir", "osExt", "osIsAbs", "set", "unset", "values", "slice", "mustSlice",
	} {
		delete(f, name)
	}
	f["keys"] = sortedKeys // slim-sprig's own come in random order
	f["after"] = after
	f["afterLast"] = afterLast
	f["before"] = before
	f[printName] = printed
	return f
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// after returns what follows the first sep in s, without surrounding spaces.
func after(sep, s string) (string, error) {
	_, rest, ok := strings.Cut(s, sep)
	return cut("after", sep, s, rest, ok)
}

// afterLast returns what follows the last sep in s, without surrounding spaces.
func afterLast(sep, s string) (string, error) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return cut("afterLast", sep, s, "", false)
	}
	return cut("afterLast", sep, s, s[i+len(sep):], true)
}

// before returns what precedes the first sep in s, without surrounding spaces.
func before(sep, s string) (string, error) {
	head, _, ok := strings.Cut(s, sep)
	return cut("before", sep, s, head, ok)
}

// cut refuses a text without the marker: passing the whole text on would give a wrong answer that nobody notices.
func cut(fn, sep, s, part string, found bool) (string, error) {
	if !found {
		return "", &valueError{fmt.Sprintf("%s %q: no %q in %s", fn, sep, sep, strconv.Quote(clip(s, 80)))}
	}
	return strings.TrimSpace(part), nil
}

// clip shortens s to at most n runes, for messages.
func clip(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i] + "…"
		}
		n--
	}
	return s
}

// view decodes the columns of a row for templates: whole numbers are int64, other numbers float64; a number that neither holds
// without changing it stays the text it was written as.
func view(cols map[string]json.RawMessage) (map[string]any, error) {
	out := make(map[string]any, len(cols))
	for name, raw := range cols {
		v, err := decode(raw)
		if err != nil {
			return nil, fmt.Errorf("decode column %q: %w", name, err)
		}
		out[name] = plainNumbers(v)
	}
	return out, nil
}

func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return plainNumber(v)
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plainNumbers(v[k])
		}
	}
	return v
}

func plainNumber(n json.Number) any {
	if i, err := n.Int64(); err == nil {
		return i
	}
	if _, whole := new(big.Int).SetString(n.String(), 10); whole {
		return n.String() // a float would change its last digits
	}
	if f, err := n.Float64(); err == nil {
		return f
	}
	return n.String() // beyond float64
}
