package action

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"tranche/internal/jsonschema"
)

// badArgs says what is wrong with a call's arguments, worded for the model.
type badArgs struct{ text string }

func (e *badArgs) Error() string { return e.text }

const (
	maxShownArgs   = 200  // bytes of a faulty argument text that are shown back
	maxShownSchema = 1024 // bytes of a schema that are shown; a longer one is left out
)

// compile makes a schema of a definition's parameters; none means any object.
func compile(params json.RawMessage) (*jsonschema.Schema, error) {
	if len(params) == 0 || string(params) == "null" {
		params = json.RawMessage(`{"type":"object"}`)
	}
	return jsonschema.Compile(params, "parameters")
}

// checkArgs returns the argument text as JSON when it is an object that fits every schema, else a *badArgs. No text at all
// is the empty object: that is how many servers write a call without arguments.
func checkArgs(raw string, schemas []*jsonschema.Schema) (json.RawMessage, error) {
	text := strings.TrimSpace(raw)
	if text == "" {
		text = "{}"
	}
	doc, fault := decodeObject(text)
	if fault != "" {
		return nil, &badArgs{fault + shown(text) + expected(schemas)}
	}
	for _, s := range schemas {
		if faults := s.Faults(doc); faults != "" {
			return nil, &badArgs{"the arguments do not fit the tool's schema: " + faults + expected(schemas)}
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
	if n, bad := jsonschema.WildNumber(doc); bad {
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

func shown(text string) string { return "\nyou wrote: " + clip(text, maxShownArgs) }

func expected(schemas []*jsonschema.Schema) string {
	if len(schemas) == 0 || len(schemas[0].String()) > maxShownSchema {
		return ""
	}
	return "\nexpected a JSON object that fits: " + schemas[0].String()
}
