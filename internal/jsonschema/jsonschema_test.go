package jsonschema

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDecodeTakesOneValue(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": [1, 2.50]}`: `{"a":[1,2.50]}`, " 3 ": "3", "null": "null", "": "", "{": "", "1 2": "", "[1]]": "", "1e9999": "", `{"a": [` + strings.Repeat("9", 2000) + "]}": "", "NaN": "",
	} {
		v, err := Decode(text)
		if raw, _ := json.Marshal(v); (err != nil) != (want == "") || err == nil && string(raw) != want {
			t.Errorf("%.40s: %s, %v; want %s", text, raw, err, want)
		}
	}
}

func TestFaultsOfAValue(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"type": "object", "properties": {"n": {"minimum": 3}}, "additionalProperties": false}`), "options")
	if err != nil || s.String() != `{"type":"object","properties":{"n":{"minimum":3}},"additionalProperties":false}` {
		t.Fatalf("%v, %v", s, err)
	}
	for text, want := range map[string]string{`{"n": 3}`: "", `{"n": 2, "b": 1, "a": 1}`: "'/n': minimum: got 2, want 3; additional properties 'a', 'b' not allowed", `[]`: "got array, want object"} {
		v, err := Decode(text)
		if got := s.Faults(v); err != nil || got != want {
			t.Errorf("%s: %q (%v), want %q", text, got, err, want)
		}
	}
}

func TestSchemasThatAreNone(t *testing.T) {
	for raw, want := range map[string]string{`{`: "options: not valid JSON", `{"type": 3}`: "options: no JSON schema: '/type'", `{"$ref": "file:///etc/hostname"}`: "only references within the schema"} {
		if _, err := Compile(json.RawMessage(raw), "options"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
}

func TestNamesThatStandTwice(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": 1, "b": 2}`: "", `{"a": "x", "a": 1}`: "a", `[{"a": {"c": 1, "b": [], "c": 2}}]`: "c", `[{"a": 1}, {"a": 2}]`: "", `3`: "", `{"a": {"a": 1}}`: "", `{"a"`: "",
		`[oops`: "", `{"a": [1 2]}`: "", `{"items": ["ab`: "", `{"a": 1, "a": [`: "", strings.Repeat("[", 1<<20): "", // none of which may take for ever
		`{"a": 1, "\u0061": 2}`: "a",
	} {
		if name, found := Twice(text); name != want || found != (want != "") {
			t.Errorf("%s: %q, %v; want %q", text, name, found, want)
		}
	}
}

func TestSchemasThatGoRound(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"$ref": "#"}`: true, `{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}`: true,
		`{"type": "integer"}`: false, `{"properties": {"next": {"$ref": "#"}}, "required": ["n"]}`: false,
	} {
		s, err := Compile(json.RawMessage(raw), "options")
		if err != nil {
			t.Fatal(err)
		}
		doc, _ := Decode(`{"next": {"next": {}}}`)
		if got := s.Endless(doc); got != want {
			t.Errorf("%s: %v, want %v", raw, got, want)
		}
	}
}
