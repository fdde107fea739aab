package textgrade

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tranche/episode"
	"tranche/internal/jsonschema"
	"tranche/reward"
)

// wanted is a call of the ground truth.
type wanted struct {
	name string
	args map[string][]any // the values that each argument may have; "" among them = it may be left out
	// listed: values inside of objects are lists of what is allowed too, and "" means left out (BFCL); false = values are what they are.
	listed bool
}

// wantedCalls reads the ground truth: a list of calls, or of lists of calls (a list for each turn of the user), taken one after another.
// A call is {func: {arg: [allowed values]}} (BFCL), {"name": …, "arguments": {…}} or "func(arg=value)".
func wantedCalls(t *episode.Task, tools map[string]parameters) ([]wanted, error) {
	text := ""
	if t.Answer != nil {
		text = *t.Answer
	} else if raw, ok := column(t, "ground_truth"); ok {
		text = string(raw)
	}
	if strings.TrimSpace(text) == "" {
		return nil, &reward.Unjudged{Reason: reward.MissingTruth}
	}
	v, err := jsonschema.Decode(text)
	if err != nil {
		return nil, badTruth("no JSON list of calls: %v", err)
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var calls []wanted
	for i, item := range list {
		turn, ok := item.([]any)
		if !ok {
			turn = []any{item}
		}
		for _, c := range turn {
			w, err := wantedCall(c, tools)
			if err != nil {
				return nil, badTruth("call %d: %v", i, err)
			}
			calls = append(calls, w)
		}
	}
	if len(calls) > maxWanted {
		return nil, badTruth("%d calls, at most %d are compared", len(calls), maxWanted)
	}
	return calls, nil
}

func wantedCall(item any, tools map[string]parameters) (wanted, error) {
	if text, ok := item.(string); ok {
		calls, err := pyCalls(text)
		if err != nil || len(calls) != 1 {
			return wanted{}, fmt.Errorf("%q is no call (%v)", reward.Clip(text, 60), err)
		}
		return exactly(calls[0], tools)
	}
	if c, ok := namedCall(item); ok {
		return exactly(c, tools)
	}
	m, _ := item.(map[string]any)
	for name, args := range m {
		args, ok := args.(map[string]any)
		if !ok || len(m) != 1 {
			break
		}
		w := wanted{name: name, args: make(map[string][]any, len(args)), listed: true}
		for arg, allowed := range args {
			list, ok := allowed.([]any)
			if !ok || len(list) == 0 {
				return wanted{}, fmt.Errorf("argument %s of %s: expected a list of allowed values", arg, name)
			}
			w.args[arg] = list
		}
		return w, nil
	}
	return wanted{}, fmt.Errorf("expected {func: {arg: [values]}}, {name, arguments} or \"func(arg=value)\"")
}

// exactly wants the call as it stands.
func exactly(c call, tools map[string]parameters) (wanted, error) {
	c, ok := byName(c, tools)
	if !ok {
		return wanted{}, fmt.Errorf("%s has arguments without names, and no tool of the task tells them", c.name)
	}
	w := wanted{name: c.name, args: make(map[string][]any, len(c.args))}
	for arg, v := range c.args {
		w.args[arg] = []any{v}
	}
	return w, nil
}

// byName gives arguments that were written by position the names they have in the tool's definition.
func byName(c call, tools map[string]parameters) (call, bool) {
	names := tools[plainName(c.name)].names
	if len(c.order) > len(names) {
		return c, false
	}
	for i, v := range c.order {
		if _, twice := c.args[names[i]]; twice {
			return c, false
		}
		c.args[names[i]] = v
	}
	c.order = nil
	return c, true
}

// byPosition is byName of a call that was made: one that cannot be told has no arguments, and fits nothing.
func byPosition(c call, tools map[string]parameters) call {
	if named, ok := byName(c, tools); ok {
		return named
	}
	return call{name: c.name}
}

// fits reports whether a call that was made is the one that is wanted.
func (w wanted) fits(c call, tools map[string]parameters, exact bool) bool {
	if !sameName(w.name, c.name) || c.args == nil {
		return false
	}
	for arg := range c.args {
		if w.args[arg] == nil {
			return false
		}
	}
	tool := tools[plainName(w.name)]
	for arg, allowed := range w.args {
		v, given := c.args[arg]
		if !given && (!w.listed || !mayBeLeftOut(allowed) || slices.Contains(tool.required, arg)) {
			return false
		}
		if given && !w.allows(v, allowed, tool.props[arg], exact) {
			return false
		}
	}
	return true
}

func mayBeLeftOut(allowed []any) bool {
	for _, a := range allowed {
		if a == "" {
			return true
		}
	}
	return false
}

// allows reports whether an argument has one of the values that it may have, and its declared type. A value of another type must be of
// the ground truth's own, and is compared as it is: the name of a variable, say.
func (w wanted) allows(v any, allowed []any, p property, exact bool) bool {
	if list, ok := v.([]any); ok && slices.ContainsFunc(list, func(item any) bool { return kindOf(item) == "number" && !hasType(item, p.items) }) {
		return false
	}
	if !hasType(v, p.declared) {
		exact = true
		for _, a := range allowed {
			if a == "" {
				continue
			}
			if !likeKind(a, v) {
				return false
			}
			break
		}
	}
	for _, a := range allowed {
		if w.equal(v, a, exact) {
			return true
		}
	}
	return false
}

// hasType knows JSON Schema's names of types and BFCL's (Python's).
func hasType(v any, declared string) bool {
	switch declared {
	case "string":
		return kindOf(v) == "string"
	case "integer":
		n, ok := v.(json.Number)
		return ok && whole(n)
	case "number", "float":
		return kindOf(v) == "number"
	case "boolean":
		return kindOf(v) == "boolean"
	case "array", "tuple":
		return kindOf(v) == "array"
	case "object", "dict":
		return kindOf(v) == "object"
	}
	return true
}

func kindOf(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case json.Number:
		return "number"
	case bool:
		return "boolean"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "null"
}

// likeKind tells whole numbers from fractions too.
func likeKind(a, b any) bool {
	x, numbers := a.(json.Number)
	y, both := b.(json.Number)
	return kindOf(a) == kindOf(b) && (!numbers || !both || whole(x) == whole(y))
}

// equal compares a value with one that is allowed.
func (w wanted) equal(v, allowed any, exact bool) bool {
	switch a := allowed.(type) {
	case string:
		s, ok := v.(string)
		return ok && (s == a || !exact && looseText(s) == looseText(a))
	case json.Number:
		n, ok := v.(json.Number)
		return ok && sameNumber(n, a)
	case []any:
		list, ok := v.([]any)
		if !ok || len(list) != len(a) {
			return false
		}
		for i := range list {
			if !w.equal(list[i], a[i], exact) {
				return false
			}
		}
		return true
	case map[string]any:
		m, ok := v.(map[string]any)
		return ok && w.sameObject(m, a, exact)
	}
	return v == allowed // bool, null
}

func (w wanted) sameObject(m, allowed map[string]any, exact bool) bool {
	for key := range m {
		if _, known := allowed[key]; !known {
			return false
		}
	}
	for key, a := range allowed {
		list, listed := a.([]any)
		listed = listed && w.listed
		v, given := m[key]
		switch {
		case !given && !(listed && mayBeLeftOut(list)):
			return false
		case given && listed && !w.allows(v, list, property{}, exact):
			return false
		case given && !listed && !w.equal(v, a, exact):
			return false
		}
	}
	return true
}

// looseText is BFCL's standardize_string.
func looseText(s string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case ' ', ',', '.', '/', '-', '_', '*', '^':
			return -1
		case '\'':
			return '"'
		}
		return r
	}, strings.ToLower(s))
}

func whole(n json.Number) bool { return !strings.ContainsAny(string(n), ".eE") }

// sameNumber compares whole numbers digit by digit: float64 cannot tell long ones apart.
func sameNumber(a, b json.Number) bool {
	if whole(a) && whole(b) {
		return a == b || strings.Trim(string(a), "-0") == "" && strings.Trim(string(b), "-0") == ""
	}
	x, errX := strconv.ParseFloat(string(a), 64)
	y, errY := strconv.ParseFloat(string(b), 64)
	return errX == nil && errY == nil && x == y
}
