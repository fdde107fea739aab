package textgrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// call is a call of a function: by its arguments' names, and (where they were written as Python) by position.
type call struct {
	name  string
	args  map[string]any // values as JSON has them, numbers as json.Number
	order []any          // arguments by position
}

const maxNesting = 100

// pyCalls reads calls as Python writes them: f(a=1, b='x'), or a list of them, in brackets or not. What is not that is an error.
func pyCalls(text string) ([]call, error) {
	p := &pyText{s: strings.TrimSpace(text)}
	listed := p.eat('[')
	var calls []call
	for {
		p.space()
		c, err := p.call()
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
		p.space()
		if !p.eat(',') {
			break
		}
	}
	if listed && !p.eat(']') {
		return nil, p.fault("expected , or ]")
	}
	if p.space(); p.i < len(p.s) {
		return nil, p.fault("expected the end")
	}
	return calls, nil
}

// pyText is a place in a text that is read as Python literals.
type pyText struct {
	s     string
	i     int
	depth int
}

func (p *pyText) fault(what string) error {
	return fmt.Errorf("%s at byte %d", what, p.i)
}

func (p *pyText) space() {
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.i]) >= 0 {
		p.i++
	}
}

func (p *pyText) at(c byte) bool { return p.i < len(p.s) && p.s[p.i] == c }

func (p *pyText) eat(c byte) bool {
	if !p.at(c) {
		return false
	}
	p.i++
	return true
}

// name reads a name, with dots where it is a function's.
func (p *pyText) name(dots bool) string {
	from := p.i
	for p.i < len(p.s) {
		r, n := utf8.DecodeRuneInString(p.s[p.i:])
		if !isWordRune(r) && !(dots && r == '.') && r != '-' {
			break
		}
		p.i += n
	}
	return p.s[from:p.i]
}

func (p *pyText) call() (call, error) {
	c := call{name: p.name(true), args: map[string]any{}}
	p.space()
	if c.name == "" || !p.eat('(') {
		return c, p.fault("expected a name and (")
	}
	for {
		p.space()
		if p.eat(')') {
			return c, nil
		}
		if err := p.argument(&c); err != nil {
			return c, err
		}
		p.space()
		if !p.eat(',') && !p.at(')') {
			return c, p.fault("expected , or )")
		}
	}
}

func (p *pyText) argument(c *call) error {
	from := p.i
	name := p.name(false)
	p.space()
	named := name != "" && p.at('=')
	if !named {
		p.i = from
	} else {
		p.i++
	}
	v, err := p.value()
	if err != nil {
		return err
	}
	if !named {
		c.order = append(c.order, v)
		return nil
	}
	if _, twice := c.args[name]; twice {
		return p.fault("argument " + name + " stands twice")
	}
	c.args[name] = v
	return nil
}

func (p *pyText) value() (any, error) {
	p.space()
	if p.depth++; p.depth > maxNesting {
		return nil, p.fault("nested too deep")
	}
	defer func() { p.depth-- }()
	switch {
	case p.i >= len(p.s):
		return nil, p.fault("expected a value")
	case p.s[p.i] == '\'' || p.s[p.i] == '"':
		return p.text()
	case p.eat('['):
		return p.list(']')
	case p.eat('('):
		return p.list(')')
	case p.eat('{'):
		return p.dict()
	}
	return p.word()
}

func (p *pyText) list(end byte) (any, error) {
	list := []any{}
	for {
		p.space()
		if p.eat(end) {
			return list, nil
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		p.space()
		if !p.eat(',') && !p.at(end) {
			return nil, p.fault("expected , or " + string(rune(end)))
		}
	}
}

func (p *pyText) dict() (any, error) {
	dict := map[string]any{}
	for {
		p.space()
		if p.eat('}') {
			return dict, nil
		}
		key, err := p.value()
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		p.space()
		if !ok || !p.eat(':') {
			return nil, p.fault("expected a text and : in {}")
		}
		if _, twice := dict[name]; twice {
			return nil, p.fault("a name stands twice in {}")
		}
		if dict[name], err = p.value(); err != nil {
			return nil, err
		}
		p.space()
		if !p.eat(',') && !p.at('}') {
			return nil, p.fault("expected , or }")
		}
	}
}

// text reads a quoted text with Python's common escapes.
func (p *pyText) text() (any, error) {
	quote := p.s[p.i]
	var b strings.Builder
	for p.i++; p.i < len(p.s); p.i++ {
		switch c := p.s[p.i]; {
		case c == quote:
			p.i++
			return b.String(), nil
		case c == '\\' && p.i+1 < len(p.s):
			p.i++
			switch e := p.s[p.i]; e {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'r':
				b.WriteByte('\r')
			case '\\', '\'', '"':
				b.WriteByte(e)
			default:
				b.WriteByte('\\')
				b.WriteByte(e)
			}
		default:
			b.WriteByte(c)
		}
	}
	return nil, p.fault("a text that does not end")
}

// word reads a number, True, False, None, or their JSON forms.
func (p *pyText) word() (any, error) {
	from := p.i
	for p.i < len(p.s) && (isLetter(p.s[p.i]) || strings.IndexByte("+-.0123456789_", p.s[p.i]) >= 0) {
		p.i++
	}
	switch w := p.s[from:p.i]; w {
	case "True", "true":
		return true, nil
	case "False", "false":
		return false, nil
	case "None", "null":
		return nil, nil
	default:
		n, err := pyNumber(w)
		if err != nil {
			p.i = from
			return nil, p.fault("expected a value")
		}
		return n, nil
	}
}

// pyNumber is a number as JSON writes it.
func pyNumber(w string) (json.Number, error) {
	w = strings.TrimPrefix(strings.ReplaceAll(w, "_", ""), "+")
	if w == "" || strings.Trim(w, "+-.0123456789eE") != "" || strings.Trim(w, "+-.eE") == "" {
		return "", errors.New("no number")
	}
	if len(w) > 100 {
		return "", errors.New("too long a number")
	}
	if _, err := strconv.ParseFloat(w, 64); err != nil {
		return "", err
	}
	return json.Number(w), nil
}
