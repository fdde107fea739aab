package action

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"tranche/episode"
	"tranche/internal/jsonschema"
)

const (
	defOther    = `{"type":"function","function":{"name":"search_flights","parameters":{"type":"dict"}}}`
	defCalc     = `{"type":"function","function":{"name":"calculator","description":"<mine>","parameters":{"type":"object","properties":{"expression":{"type":"string","maxLength":5}},"required":["expression"]}}}`
	defNamesake = `{"type":"function","function":{"name":"calculator","parameters":{"type":"object","properties":{"a":{"type":"number"}}}}}`
)

func TestTools(t *testing.T) {
	for _, c := range []struct {
		name     string
		always   []string
		task     string
		want     []string // names told to the model, in order
		runs     []string // names that are run here
		runnable bool
	}{
		{"none", nil, "", nil, nil, true},
		{"null", nil, " null ", nil, nil, true},
		{"empty list", nil, "[]", nil, nil, true},
		{"of the run", []string{"submit", "calculator"}, "", []string{"submit", "calculator"}, []string{"submit", "calculator"}, true},
		{"of the task by name", nil, `["calculator"]`, []string{"calculator"}, []string{"calculator"}, true},
		{"both", []string{"submit"}, `["calculator"]`, []string{"submit", "calculator"}, []string{"submit", "calculator"}, true},
		{"named by both", []string{"submit"}, `["submit"]`, []string{"submit"}, []string{"submit"}, true},
		{"definition of ours", nil, "[" + defCalc + "]", []string{"calculator"}, []string{"calculator"}, true},
		{"definition nobody runs", []string{"submit"}, "[" + defOther + "]", []string{"submit", "search_flights"}, []string{"submit"}, false},
		{"namesake with other arguments", nil, "[" + defNamesake + "]", []string{"calculator"}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := New(Config{Tools: c.always}, Builtins()...)
			if err != nil {
				t.Fatal(err)
			}
			task := &episode.Task{ID: "t", Tools: json.RawMessage(c.task)}
			defs, runnable, err := s.Tools(task)
			if err != nil || runnable != c.runnable {
				t.Fatalf("runnable %v, %v", runnable, err)
			}
			if (defs == nil) != (c.want == nil) {
				t.Fatalf("got %s", defs)
			}
			if got := told(t, defs); strings.Join(got, " ") != strings.Join(c.want, " ") {
				t.Errorf("told %v, want %v", got, c.want)
			}
			if o := s.offers[c.task]; strings.Join(o.names, " ") != strings.Join(c.runs, " ") {
				t.Errorf("runs %v, want %v", o.names, c.runs)
			}
			again, _, _ := s.Tools(task)
			if defs != nil && &again[0] != &defs[0] {
				t.Error("worked out twice")
			}
		})
	}
}

func told(t *testing.T, defs []byte) []string {
	t.Helper()
	if defs == nil {
		return nil
	}
	var list []definition
	if err := json.Unmarshal(defs, &list); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range list {
		out = append(out, d.Function.Name)
	}
	return out
}

func TestToolsErrors(t *testing.T) {
	s, err := New(Config{}, Builtins()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, task, want string }{
		{"unknown name", `["python"]`, `tasks.jsonl:7: tools: no built-in tool "python"; there are: calculator, submit`},
		{"no list", `{"a":1}`, "expected a list of tool names or OpenAI tool definitions"},
		{"a number", `["submit", 5]`, "entry 1: no tool definition"},
		{"bare function", `[{"name":"f","parameters":{}}]`, `expected {"type":"function"`},
		{"twice", `["submit","submit"]`, `"submit" is listed twice`},
		{"bad schema of ours", `[{"type":"function","function":{"name":"submit","parameters":{"type":"dict","properties":{"answer":{}}}}}]`, `"submit": parameters: no JSON schema`},
		{"schema that reads files", `[{"type":"function","function":{"name":"submit","parameters":{"properties":{"answer":{"$ref":"file:///etc/hostname"}}}}}]`, "only references within the schema"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := s.Tools(&episode.Task{Tools: json.RawMessage(c.task), Where: episode.Position{File: "tasks.jsonl", Line: 7}})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "tasks.jsonl:7: ") {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A call must fit what the model was told, and what the tool needs.
func TestTaskDefinitionIsChecked(t *testing.T) {
	s := newSet(t, Config{Tools: []string{}}, Builtins()...)
	defer requireClose(t, s)
	task := &episode.Task{Tools: json.RawMessage("[" + defCalc + "]")}
	e, acts := ask("e", task, call{"calculator", `{"expression":"1 + 2 + 3"}`}, call{"calculator", `{"expression":"1+2"}`}, call{"submit", `{"answer":1}`})
	obs := s.Do(t.Context(), e, acts)
	if o := obs[0]; o.Status != episode.ActionBadArgs || !strings.Contains(o.Text, "maxLength: got 9, want 5") {
		t.Errorf("too long for the task's schema: %+v", o)
	}
	if o := obs[1]; o.Status != episode.ActionOK || o.Text != "3" {
		t.Errorf("fits: %+v", o)
	}
	if o := obs[2]; o.Status != episode.ActionNoTool {
		t.Errorf("not offered: %+v", o)
	}
}

func TestOfferCacheIsBounded(t *testing.T) {
	s := newSet(t, Config{Tools: []string{}}, Builtins()...)
	for i := range 3 * maxOffers {
		_, _, err := s.Tools(&episode.Task{Tools: json.RawMessage(strings.Repeat(" ", i) + "[]")})
		if err != nil || len(s.offers) > maxOffers {
			t.Fatalf("%d offers held, %v", len(s.offers), err)
		}
	}
}

func TestNewErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   Config
		tools []Tool
		want  []string
	}{
		{"every fault at once", Config{Tools: []string{"", "a", "a"}, Workers: -1, Queue: -1, Timeout: -1, MaxObservationBytes: 10}, nil,
			[]string{"tools[0]: empty", "tools[2]", "workers: -1", "queue: -1", "timeout: -1ns", "max_observation_bytes: 10"}},
		{"unknown name", Config{Tools: []string{"python"}}, Builtins(), []string{`tools[0]: no tool "python"; there are: calculator, submit`}},
		{"registered twice", Config{}, []Tool{Submit{}, Submit{}}, []string{`"submit": registered twice`}},
		{"bad name", Config{}, []Tool{says("a b", "")}, []string{`tool "a b": a name has`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.cfg, c.tools...)
			for _, w := range c.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("got %v, want %q", err, w)
				}
			}
		})
	}
}

func TestCheckArgs(t *testing.T) {
	s, err := compile(json.RawMessage(`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"n":{"type":"integer","minimum":3},"s":{"type":"string"}},"required":["n"],"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, raw, want string }{
		{"fits", ` {"n":3} `, ""},
		{"whole number as a float", `{"n":3.0}`, ""},
		{"nothing", "", "missing property 'n'"},
		{"cut", `{"n": 7`, "the text ends too early, after 7 bytes"},
		{"two values", `{"n":7}{"n":8}`, "invalid character '{' after top-level value at byte 8"},
		{"python", `{'n': 7}`, `invalid character '\'' looking for beginning of object key string at byte 2`},
		{"list", `[7]`, "must be a JSON object, not a list"},
		{"null", `null`, "must be a JSON object, not null"},
		{"JSON in a string", `"{\"n\":7}"`, "must be a JSON object, not a string"},
		{"every fault, in one order", `{"n":1.5,"s":2,"x":1}`, "'/n': got number, want integer; '/s': got number, want string; additional properties 'x' not allowed"},
		{"too small", `{"n":1}`, "'/n': minimum: got 1, want 3"},
		{"shows what was expected", `{"n":"a"}`, `expected a JSON object that fits: {"$schema"`},
		{"number that would panic the schema check", `{"n":1e9999999}`, "the number 1e9999999 is out of range"},
		{"number that would take the machine", `{"n":1e900000}`, "out of range"},
		{"number of many digits", `{"n":` + strings.Repeat("9", 2000) + `}`, "out of range"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := checkArgs(c.raw, []*jsonschema.Schema{s})
			if c.want == "" {
				if err != nil || !json.Valid(got) {
					t.Fatalf("got %s, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}

// The library walks objects in map order; what the model is told must not depend on it.
func TestFaultsAreToldInOneOrder(t *testing.T) {
	s, err := compile(json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"},"o":{"anyOf":[{"type":"string"},{"type":"null"}]}},"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{
		`{"n":"a","o":1,"x":1,"y":2,"z":3,"w":4}`,
		`{"b":1e99999,"a":1e88888,"c":1e77777}`,
	} {
		_, first := checkArgs(raw, []*jsonschema.Schema{s})
		for range 50 {
			if _, again := checkArgs(raw, []*jsonschema.Schema{s}); first == nil || again.Error() != first.Error() {
				t.Fatalf("got %v\nthen %v", first, again)
			}
		}
	}
}

func FuzzCheckArgs(f *testing.F) {
	s, err := compile(json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","minimum":3},"a":{"uniqueItems":true}}}`))
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{`{"n":7}`, `{"n":`, `[]`, `{"a":[1,1.0,1e0]}`, "", `{"n":-0}`, "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		args, err := checkArgs(raw, []*jsonschema.Schema{s})
		var object map[string]json.RawMessage
		if err == nil && json.Unmarshal(args, &object) != nil {
			t.Fatalf("%q was let through as %q", raw, args)
		}
	})
}

// What is kept and what is said to be gone add up to the whole, at rune boundaries, within the limit.
func TestCutAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 2000, -1).Draw(t, "text")
		limit := rapid.IntRange(100, 1500).Draw(t, "limit")
		got, was := cut(text, limit)
		if len(got) > limit || was != (len(text) > limit) || !utf8.ValidString(got) {
			t.Fatalf("%d bytes of %d, cut %v", len(got), len(text), was)
		}
		if !was {
			return
		}
		for gone := 1; gone <= len(text); gone++ {
			head, tail, ok := strings.Cut(got, marker(gone))
			if ok && strings.HasPrefix(text, head) && strings.HasSuffix(text, tail) && len(head)+len(tail)+gone == len(text) {
				return
			}
		}
		t.Fatalf("%q does not add up", got)
	})
}
