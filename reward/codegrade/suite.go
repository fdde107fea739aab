package codegrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"tranche/episode"
	"tranche/reward"
)

// suite is the tests of one task. It is read-only: answers to one task share it.
type suite struct {
	form   string
	checks []check
	entry  string // the function under test; "" = none is named
	prompt string // the code that an answer goes on from

	setup   string            // code that runs behind the answer
	checker string            // code that decides on outputs; "" = they are compared
	modules []string          // of the standard library, that tests name without importing them
	aliases map[string]string // names of functions in expressions
	here    *trialJob         // what runs the checks that are run beside the tests' own code; nil = there are none
}

// check is one test.
type check struct {
	kind string // call, here, io

	call     callJob
	rule     string // equal, is, true, false, near
	want     value
	fromCode bool    // it was written in Python, whose == is meant
	within   float64 // of rule near
	reached  bool    // and may be just so far
	at       int     // of kind here: which statement
	in, text string  // of kind io: input, and the output that is expected
}

const (
	kindCall = "call"
	kindHere = "here"
	kindIO   = "io"
)

// source is where a task's tests stand, before they are taken apart.
type source struct {
	form           string
	tests          string // code
	setup, prelude string
	entry          string
	checks         []check // of forms that need not be taken apart
	checker        string  // of form stdin: code that decides on outputs
}

// row reads a task's columns.
type row struct {
	task   *episode.Task
	fields map[string]json.RawMessage
	truth  map[string]json.RawMessage // the members of the ground truth, where it is a JSON object
}

func readRow(t *episode.Task) row {
	r := row{task: t}
	_ = json.Unmarshal(t.Extra, &r.fields) // it is an object, or there is none
	if t.Answer != nil {
		_ = json.Unmarshal([]byte(*t.Answer), &r.truth)
	}
	return r
}

// column is the first of the named columns that the row, or its ground truth, has.
func (r row) column(names ...string) (json.RawMessage, bool) {
	for _, n := range names {
		if n == "" {
			continue
		}
		for _, m := range []map[string]json.RawMessage{r.fields, r.truth} {
			if raw, ok := m[n]; ok && string(raw) != "null" {
				return raw, true
			}
		}
	}
	return nil, false
}

// text is a column that is a text, "" where there is none.
func (r row) text(names ...string) string {
	raw, _ := r.column(names...)
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// or is the configured column, or else the usual ones.
func or(own string, usual ...string) []string {
	if own != "" {
		return []string{own}
	}
	return usual
}

func missing(format string, args ...any) error {
	return &reward.Unjudged{Reason: reward.MissingTruth, Detail: fmt.Sprintf(format, args...)}
}

func bad(format string, args ...any) error {
	return &reward.Unjudged{Reason: reward.BadTruth, Detail: fmt.Sprintf(format, args...)}
}

// sourceOf finds the tests of a task.
func (o Options) sourceOf(t *episode.Task) (source, error) {
	r := readRow(t)
	src := source{setup: r.text(or(o.Setup, "test_setup_code")...), entry: o.Function, prelude: o.prompt(r)}
	if src.entry == "" {
		src.entry = r.text(or(o.Entry, "entry_point", "fn_name", "func_name")...)
	}
	src.form = o.Form
	var err error
	switch o.Form {
	case FormAsserts:
		src.tests, err = o.asserts(r)
	case FormFunction, FormStdin:
		err = o.lists(r, &src)
	default:
		if src.tests, err = o.asserts(r); err == nil {
			src.form = FormAsserts
			return src, nil
		}
		src.form = FormStdin
		if src.entry != "" {
			src.form = FormFunction
		}
		var broken *reward.Unjudged
		if lerr := o.lists(r, &src); lerr == nil || !errors.As(err, &broken) || broken.Reason != reward.BadTruth {
			err = lerr
		}
	}
	if src.form == FormStdin {
		src.checker = r.text(or(o.Checker, "checker")...)
	}
	return src, err
}

// prompt is the code that an answer goes on from: a column, else what the model was asked last.
func (o Options) prompt(r row) string {
	if text := r.text(or(o.Prompt, "prompt")...); text != "" || o.Prompt != "" {
		return text
	}
	for i := len(r.task.Messages) - 1; i >= 0; i-- {
		if m := r.task.Messages[i]; m.Role == episode.RoleUser && m.Content != nil {
			return *m.Content
		}
	}
	return ""
}

// asserts is tests that are code: one text, or a list of them.
func (o Options) asserts(r row) (string, error) {
	raw, ok := r.column(or(o.Tests, "test", "test_list")...)
	if !ok && o.Tests == "" && r.task.Answer != nil && r.truth == nil {
		raw, ok = json.RawMessage(*r.task.Answer), true
		if !json.Valid(raw) { // code as it is
			raw, _ = json.Marshal(*r.task.Answer)
		}
	}
	if !ok {
		return "", missing("no column %s with tests", strings.Join(or(o.Tests, "test", "test_list"), ", "))
	}
	list, ok := texts(raw)
	if !ok {
		return "", bad("the tests are no code and no list of code")
	}
	text := strings.Join(list, "\n")
	if !strings.Contains(text, "assert") && !strings.Contains(text, "raise") {
		return "", bad("there is no assert in the tests")
	}
	return text, nil
}

// lists is tests that are data: columns of inputs and outputs, or a list of objects with an input and an output.
func (o Options) lists(r row, src *source) error {
	in, ok1 := r.column(or(o.Inputs, "inputs", "input")...)
	out, ok2 := r.column(or(o.Outputs, "outputs", "output")...)
	if !ok1 || !ok2 {
		if ok := o.Inputs == "" && o.Outputs == "" && o.pairs(r, src); ok {
			return nil
		}
		return missing("no columns %s and %s with tests", or(o.Inputs, "inputs")[0], or(o.Outputs, "outputs")[0])
	}
	if src.form == FormFunction && o.Syntax == "python" {
		return pythonTests(src, in, out)
	}
	ins, outs := elements(in), elements(out)
	if len(ins) != len(outs) || len(ins) == 0 {
		return bad("%d inputs and %d outputs", len(ins), len(outs))
	}
	for i := range ins {
		c, err := o.pair(*src, ins[i], outs[i])
		if err != nil {
			return bad("test %d: %v", i, err)
		}
		src.checks = append(src.checks, c)
	}
	return nil
}

// elements is a list's, or the one thing that is no list. A text may hold the list, as JSON.
func elements(raw json.RawMessage) []json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	var text string
	if json.Unmarshal(raw, &text) == nil && json.Unmarshal([]byte(text), &list) == nil {
		return list
	}
	return []json.RawMessage{raw}
}

// pythonTests makes asserts of arguments and results that are written in Python.
func pythonTests(src *source, in, out json.RawMessage) error {
	ins, ok1 := texts(in)
	outs, ok2 := texts(out)
	switch {
	case src.entry == "":
		return missing("no function is named")
	case !ok1 || !ok2 || len(ins) != len(outs) || len(ins) == 0:
		return bad("expected as many texts of Python for inputs as for outputs")
	}
	var tests strings.Builder
	for i := range ins {
		fmt.Fprintf(&tests, "assert %s(%s) == (%s)\n", src.entry, ins[i], outs[i])
	}
	src.tests = tests.String()
	return nil
}

// texts is one text, or a list of them.
func texts(raw json.RawMessage) ([]string, bool) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, true
	}
	var list []string
	return list, json.Unmarshal(raw, &list) == nil
}

// pairs reads a ground truth that is a list of {input, output, testtype}, as LiveCodeBench has it.
func (o Options) pairs(r row, src *source) bool {
	raw, ok := r.column(or(o.Tests, "public_test_cases", "test_cases", "tests")...)
	if !ok && r.task.Answer != nil {
		raw = json.RawMessage(*r.task.Answer)
	}
	list := elements(raw)
	for _, one := range list {
		var c struct{ Input, Output json.RawMessage }
		if json.Unmarshal(one, &c) != nil || c.Input == nil || c.Output == nil {
			return false
		}
		made, err := o.pair(*src, c.Input, c.Output)
		if err != nil {
			return false
		}
		src.checks = append(src.checks, made)
	}
	return len(list) > 0
}

// pair makes one test of an input and an output.
func (o Options) pair(src source, in, out json.RawMessage) (check, error) {
	if src.form == FormStdin {
		text, err1 := flat(in)
		want, err2 := flat(out)
		return check{kind: kindIO, in: text, text: want}, errors.Join(err1, err2)
	}
	if src.entry == "" {
		return check{}, errors.New("no function is named")
	}
	args, written, err := arguments(in)
	if err != nil {
		return check{}, fmt.Errorf("input: %w", err)
	}
	c := check{kind: kindCall, rule: "equal", call: callJob{Call: src.entry, Args: args}}
	if written { // APPS has both in texts of JSON
		var text string
		if json.Unmarshal(out, &text) == nil {
			out = json.RawMessage(text)
		}
	}
	if c.want, err = fromJSON(out); err != nil {
		return check{}, fmt.Errorf("output: %w", err)
	}
	return c, nil
}

// flat is a text, or lines of it.
func flat(raw json.RawMessage) (string, error) {
	lines, ok := texts(raw)
	if !ok {
		return "", errors.New("expected a text, or a list of lines")
	}
	return strings.Join(lines, "\n"), nil
}

// arguments are a list's elements, or the lines of a text, each a JSON value (written).
func arguments(raw json.RawMessage) (args []value, written bool, err error) {
	var text string
	parts := []json.RawMessage{}
	if json.Unmarshal(raw, &text) == nil {
		written = true
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				parts = append(parts, json.RawMessage(line))
			}
		}
	} else if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, false, errors.New("expected a list of arguments")
	}
	args = make([]value, len(parts))
	for i, p := range parts {
		if args[i], err = fromJSON(p); err != nil {
			return nil, written, fmt.Errorf("argument %d: %w", i, err)
		}
	}
	return args, written, nil
}
