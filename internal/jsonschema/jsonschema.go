// Package jsonschema checks JSON that a model wrote against a JSON schema: a schema that reaches out for nothing, numbers that cost
// nothing, and faults that come in a fixed order. It is all that this module uses of the library behind it.
package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

const (
	maxFaults      = 5    // faults named at once
	maxFaultBytes  = 200  // of each
	maxNumberBytes = 1000 // a longer number is refused: exact arithmetic on it could take the machine
	maxExponent    = 1000 // likewise for 1e9999999
)

// Schema is a JSON schema, compiled once. It may be used from many goroutines.
type Schema struct {
	compiled *jsonschema.Schema
	text     string
}

// Compile makes a schema of its JSON. Its faults name the schema by what.
func Compile(raw json.RawMessage, what string) (*Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("%s: not valid JSON: %w", what, err)
	}
	const url = "mem:///parameters"
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("%s: no JSON schema: %w", what, err)
	}
	compiled, err := c.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("%s: no JSON schema: %s", what, compileFault(err))
	}
	var text bytes.Buffer
	if err := json.Compact(&text, raw); err != nil {
		return nil, fmt.Errorf("%s: not valid JSON: %w", what, err)
	}
	return &Schema{compiled: compiled, text: text.String()}, nil
}

// String is the JSON that the schema was made of, without white space.
func (s *Schema) String() string { return s.text }

// noLoader keeps a schema from reaching out: the library's own loader would read any file that a task's $ref names.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("$ref to %s: only references within the schema are followed", url)
}

// Decode reads a text that is one JSON value, its numbers as they are written. An error of encoding/json is returned as it is.
func Decode(text string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind the JSON value")
	}
	if n, wild := WildNumber(v); wild {
		return nil, fmt.Errorf("the number %s is out of range", clip(n, 40))
	}
	return v, nil
}

// WildNumber finds a number that exact arithmetic must not touch: the schema check works on such numbers, and the model
// writes them.
func WildNumber(v any) (string, bool) {
	switch v := v.(type) {
	case json.Number:
		return string(v), IsWild(string(v))
	case []any:
		for _, x := range v {
			if n, bad := WildNumber(x); bad {
				return n, true
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) { // the first in a fixed order: replies alike are answered alike
			if n, bad := WildNumber(v[k]); bad {
				return n, true
			}
		}
	}
	return "", false
}

// IsWild reports whether a number as it is written is one.
func IsWild(n string) bool {
	if len(n) > maxNumberBytes {
		return true
	}
	_, exp, found := strings.Cut(strings.ToLower(n), "e")
	if !found {
		return false
	}
	e, err := strconv.Atoi(exp)
	return err != nil || e > maxExponent || e < -maxExponent
}

// Faults lists what does not fit in a decoded value, "" = all does. The order is fixed: the library walks objects in map order.
func (s *Schema) Faults(doc any) string {
	err := s.compiled.Validate(doc)
	if err == nil {
		return ""
	}
	var invalid *jsonschema.ValidationError
	if errors.As(err, &invalid) {
		sortNames(invalid)
	}
	return faultLines(err)
}

// compileFault says in one line why a schema is none.
func compileFault(err error) string {
	var invalid *jsonschema.SchemaValidationError
	if errors.As(err, &invalid) {
		var faults *jsonschema.ValidationError
		if errors.As(invalid.Err, &faults) {
			sortNames(faults)
			return faultLines(faults)
		}
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// Endless reports whether checking a value goes round in the schema's own references, so that no value could ever fit.
func (s *Schema) Endless(doc any) bool {
	var invalid *jsonschema.ValidationError
	return errors.As(s.compiled.Validate(doc), &invalid) && cycles(invalid)
}

func cycles(e *jsonschema.ValidationError) bool {
	_, round := e.ErrorKind.(*kind.RefCycle)
	return round || slices.ContainsFunc(e.Causes, cycles)
}

// Twice finds a name that an object of a JSON text has twice: which of its values counts is anyone's guess. A text that is no JSON has none.
func Twice(text string) (name string, found bool) {
	if !json.Valid([]byte(text)) { // also bounds how deep it is: decoders refuse more than 10,000 levels
		return "", false
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	name, err := twice(d)
	return name, errors.Is(err, errTwice)
}

var errTwice = errors.New("a name stands twice")

// twice reads one value. It ends at the first error: a decoder that has failed still says that there is more.
func twice(d *json.Decoder) (string, error) {
	open, err := d.Token()
	if err != nil {
		return "", err
	}
	bracket, nested := open.(json.Delim)
	if !nested {
		return "", nil
	}
	seen := map[string]bool{}
	for d.More() {
		if bracket == '{' {
			key, err := d.Token()
			if err != nil {
				return "", err
			}
			name, _ := key.(string) // every key is one
			if seen[name] {
				return name, errTwice
			}
			seen[name] = true
		}
		if name, err := twice(d); err != nil {
			return name, err
		}
	}
	_, err = d.Token()
	return "", err
}

// faultLines writes the library's report of a value in a fixed order and short.
func faultLines(err error) string {
	lines := strings.Split(err.Error(), "\n")[1:] // the first names our own URL of the schema
	for i, l := range lines {
		l = strings.TrimPrefix(strings.TrimSpace(l), "- ")
		l = strings.TrimPrefix(l, "at '': ")
		lines[i] = clip(strings.TrimPrefix(l, "at "), maxFaultBytes)
	}
	slices.Sort(lines)
	if len(lines) > maxFaults {
		lines = append(lines[:maxFaults], "…")
	}
	return strings.Join(lines, "; ")
}

// sortNames puts the names that one fault lists in order.
func sortNames(e *jsonschema.ValidationError) {
	if extra, ok := e.ErrorKind.(*kind.AdditionalProperties); ok {
		slices.Sort(extra.Properties)
	}
	for _, cause := range e.Causes {
		sortNames(cause)
	}
}

// clip shortens s to about limit bytes, at a rune.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}
