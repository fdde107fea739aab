package action

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// schema is what a tool's arguments must fit, compiled once.
type schema struct {
	compiled *jsonschema.Schema
	text     string // the JSON it was made of, to show the model what was expected
}

// badArgs says what is wrong with a call's arguments, worded for the model.
type badArgs struct{ text string }

func (e *badArgs) Error() string { return e.text }

const (
	maxShownArgs    = 200  // bytes of a faulty argument text that are shown back
	maxShownSchema  = 1024 // bytes of a schema that are shown; a longer one is left out
	maxSchemaFaults = 5    // faults named at once
	maxNumberBytes  = 1000 // a longer number is no argument: exact arithmetic on it could take the machine
	maxExponent     = 1000 // likewise for 1e9999999
)

// compile makes a schema of a definition's parameters; none means any object.
func compile(params json.RawMessage) (*schema, error) {
	if len(params) == 0 || string(params) == "null" {
		params = json.RawMessage(`{"type":"object"}`)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(params))
	if err != nil {
		return nil, fmt.Errorf("parameters are not valid JSON: %w", err)
	}
	const url = "mem:///parameters"
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("parameters are no JSON schema: %w", err)
	}
	compiled, err := c.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("parameters are no JSON schema: %w", err)
	}
	var text bytes.Buffer
	if err := json.Compact(&text, params); err != nil {
		return nil, fmt.Errorf("parameters are not valid JSON: %w", err)
	}
	return &schema{compiled: compiled, text: text.String()}, nil
}

// noLoader keeps a schema from reaching out: the library's own loader would read any file that a task's $ref names.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("$ref to %s: only references within the schema are followed", url)
}

// checkArgs returns the argument text as JSON when it is an object that fits every schema, else a *badArgs. No text at all
// is the empty object: that is how many servers write a call without arguments.
func checkArgs(raw string, schemas []*schema) (json.RawMessage, error) {
	text := strings.TrimSpace(raw)
	if text == "" {
		text = "{}"
	}
	doc, fault := decodeObject(text)
	if fault != "" {
		return nil, &badArgs{fault + shown(text) + expected(schemas)}
	}
	for _, s := range schemas {
		if err := s.compiled.Validate(doc); err != nil {
			return nil, &badArgs{"the arguments do not fit the tool's schema: " + schemaFaults(err) + expected(schemas)}
		}
	}
	return json.RawMessage(text), nil
}

func decodeObject(text string) (doc map[string]any, fault string) {
	var probe json.RawMessage
	if err := json.Unmarshal([]byte(text), &probe); err != nil {
		return nil, "the arguments are not valid JSON: " + jsonFault(err, len(text))
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, "the arguments are not valid JSON: " + err.Error()
	}
	doc, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Sprintf("the arguments must be a JSON object, not %s", jsonKind(v))
	}
	if n, bad := wildNumber(doc); bad {
		return nil, fmt.Sprintf("the number %s is out of range", clip(n, 40))
	}
	return doc, ""
}

func jsonFault(err error, size int) string {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return err.Error()
	}
	if int(syntax.Offset) >= size && strings.Contains(syntax.Error(), "unexpected end") {
		return fmt.Sprintf("the text ends too early, after %d bytes", size)
	}
	return fmt.Sprintf("%s at byte %d", syntax.Error(), syntax.Offset)
}

func jsonKind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	default:
		return "a list"
	}
}

// wildNumber finds a number that exact arithmetic must not touch: the schema check works on such numbers, and the model
// writes them.
func wildNumber(v any) (string, bool) {
	switch v := v.(type) {
	case json.Number:
		return string(v), isWild(string(v))
	case []any:
		for _, x := range v {
			if n, bad := wildNumber(x); bad {
				return n, true
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) { // the first in a fixed order: replies alike are answered alike
			if n, bad := wildNumber(v[k]); bad {
				return n, true
			}
		}
	}
	return "", false
}

func isWild(n string) bool {
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

// schemaFaults lists what the check found, in a fixed order: the library walks objects in map order.
func schemaFaults(err error) string {
	var invalid *jsonschema.ValidationError
	if errors.As(err, &invalid) {
		sortNames(invalid)
	}
	lines := strings.Split(err.Error(), "\n")[1:] // the first names our own URL of the schema
	for i, l := range lines {
		l = strings.TrimPrefix(strings.TrimSpace(l), "- ")
		l = strings.TrimPrefix(l, "at '': ")
		lines[i] = clip(strings.TrimPrefix(l, "at "), 200)
	}
	slices.Sort(lines)
	if len(lines) > maxSchemaFaults {
		lines = append(lines[:maxSchemaFaults], "…")
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

func shown(text string) string { return "\nyou wrote: " + clip(text, maxShownArgs) }

func expected(schemas []*schema) string {
	if len(schemas) == 0 || len(schemas[0].text) > maxShownSchema {
		return ""
	}
	return "\nexpected a JSON object that fits: " + schemas[0].text
}
