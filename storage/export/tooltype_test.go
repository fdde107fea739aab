package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tranche/storage"
)

func tool(name, parameters string) string {
	return `{"type":"function","function":{"name":"` + name + `","parameters":` + parameters + `}}`
}

func TestTypeOfTools(t *testing.T) {
	const flat = `{"type":"object","properties":{"a":{"type":"string","enum":["x","y"]},"b":{"type":"integer","minimum":1,"maximum":2.5}},"required":["a"]}`
	for _, c := range []struct {
		name  string
		lists []string
		union bool
		want  string // in the error; "" = each list has the type and comes back as it was
	}{
		{"one tool", []string{"[" + tool("f", flat) + "]"}, false, ""},
		{"the same keys in two", []string{"[" + tool("f", flat) + "," + tool("g", flat) + "]", "[" + tool("h", flat) + "]"}, false, ""},
		{"an empty list and a full one", []string{"[]", "[" + tool("f", flat) + "]"}, false, ""},
		{"booleans", []string{`[{"strict":true,"note":null}]`}, false, ""},
		{"other parameters", []string{"[" + tool("f", `{"a":{"type":"string"}}`) + "," + tool("g", `{"b":{"type":"string"}}`) + "]"}, false, `tools[].function.parameters has the keys ["a"] in one place and ["b"] in another`},
		{"in another list", []string{"[" + tool("f", `{"a":1}`) + "]", "[" + tool("f", `{"a":1,"b":2}`) + "]"}, false, "tools[].function.parameters"},
		{"in another order", []string{`[{"a":1,"b":2},{"b":1,"a":2}]`}, false, "tools[] has the keys"},
		{"no parameters", []string{"[" + tool("f", `{}`) + "]"}, false, "always an empty object"},
		{"text and number", []string{`[{"enum":["a"]},{"enum":[1]}]`}, false, "tools[].enum[] is text in one place and a whole number in another"},
		{"mixed list", []string{`[{"enum":["a",1]}]`}, true, "tools[].enum[]"},
		{"lists of lists", []string{`[{"enum":[["a"]]}]`}, false, "list of lists"},
		{"a null in a list", []string{`[{"enum":[null]}]`}, false, "a null in its list"},
		{"a key that is no name", []string{`[{"a,b":1}]`}, false, "cannot name a column"},
		{"a key twice", []string{`[{"a":1,"a":2}]`}, false, "comes twice"},
		{"union", []string{"[" + tool("f", `{"a":{"type":"string"}}`) + "," + tool("g", `{"b":{"type":"string"}}`) + "]"}, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &node{kind: kindNull}
			var err error
			for _, l := range c.lists {
				if err = n.learn(json.RawMessage(l), "tools", c.union); err != nil {
					break
				}
			}
			var typ reflect.Type
			if err == nil {
				typ, err = n.goType("tools")
			}
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range c.lists {
				v := reflect.New(typ)
				if err := json.Unmarshal([]byte(l), v.Interface()); err != nil {
					t.Fatal(err)
				}
				if back, _ := json.Marshal(v.Interface()); !c.union && string(back) != l {
					t.Errorf("%s came back as %s", l, back)
				}
			}
		})
	}
}

// FuzzTypeOfTools: whatever stands in a task file gives a type or an error, and with a type the value comes back as it was, nulls aside.
func FuzzTypeOfTools(f *testing.F) {
	f.Add(`[{"type":"function","function":{"name":"f","parameters":{"type":"object","required":["a"]}}}]`)
	f.Add(`[{"a":[1.5,2e3]},{"a":[]}]`)
	f.Add(`[{"A":1,"a":2}]`)
	f.Fuzz(func(t *testing.T, list string) {
		if !json.Valid([]byte(list)) || kindOf(json.RawMessage(list)) != kindList {
			return
		}
		n := &node{kind: kindNull}
		if n.learn(json.RawMessage(list), "tools", false) != nil {
			return
		}
		typ, err := n.goType("tools")
		if err != nil {
			return
		}
		v := reflect.New(typ)
		if err := json.Unmarshal([]byte(list), v.Interface()); err != nil {
			if strings.Contains(err.Error(), "cannot unmarshal number") { // over 64 bits
				return
			}
			t.Fatalf("%s: %v", list, err)
		}
		var was, is any
		back, err := json.Marshal(v.Interface())
		if err != nil || json.Unmarshal([]byte(list), &was) != nil || json.Unmarshal(back, &is) != nil || !reflect.DeepEqual(was, is) {
			t.Fatalf("%s came back as %s (%v)", list, back, err)
		}
	})
}

// verl-sft holds the tools as a list of structs; in the other forms they are text or no column.
func TestToolsInParquet(t *testing.T) {
	for _, c := range []struct {
		name, tools string
		offer       string
		want        string // the column, "" = none; or in the error
		fails       bool
	}{
		{"list", AsList, "[" + tool("f", `{"a":1}`) + "]", `[{"type":"function","function":{"name":"f","parameters":{"a":1}}}]`, false},
		{"text", AsText, `[{"a":1}]`, `"[{\"a\":1}]"`, false},
		{"none", AsNone, `[{"a":1}]`, "", false},
		{"there are none", AsList, "null", "", false},
		{"union", AsUnion, `[{"a":1},{"b":2}]`, `[{"a":1,"b":null},{"a":null,"b":2}]`, false},
		{"other keys", AsList, `[{"a":1},{"b":2}]`, "has the keys", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := written(t, 2, 2)
			e, err := New(Config{Shape: "verl-sft", Tools: c.tools, Offer: func(*storage.Row) (json.RawMessage, error) { return json.RawMessage(c.offer), nil }})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err = e.Write(context.Background(), run, &out)
			if c.fails {
				if !errors.Is(err, ErrTools) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "o.parquet")
			if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			n := 0
			for o, err := range storage.ReadObjects(path) {
				if err != nil {
					t.Fatal(err)
				}
				var got struct {
					Messages []map[string]any
					Tools    json.RawMessage
				}
				if err := json.Unmarshal(o, &got); err != nil {
					t.Fatal(err)
				}
				if !sameJSON(string(got.Tools), c.want) || len(got.Messages) != 2 || got.Messages[1]["content"] == nil || got.Messages[1]["name"] != nil {
					t.Errorf("tools %s, want %s; messages %v", got.Tools, c.want, got.Messages)
				}
				n++
			}
			if int64(n) != e.Report().Records || n == 0 {
				t.Errorf("%d records of %d", n, e.Report().Records)
			}
		})
	}
}

// Tools of a row that came when the type of the column was known already end the export: they have no place in it.
func TestToolsThatCameLater(t *testing.T) {
	for first, later := range map[string]string{"null": `[{"a":1}]`, `[{"a":1}]`: `[{"a":1,"b":2}]`} {
		offer := func(r *storage.Row) (json.RawMessage, error) {
			if len(r.Messages) == 0 { // the pass that reads the type
				return json.RawMessage(first), nil
			}
			return json.RawMessage(later), nil
		}
		e, err := New(Config{Shape: "verl-sft", Offer: offer})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Write(context.Background(), written(t, 1, 2), &bytes.Buffer{}); !errors.Is(err, errNewTools) {
			t.Errorf("%s, then %s: error %v", first, later, err)
		}
	}
}

func sameJSON(a, b string) bool {
	if a == "" || b == "" {
		return a == b
	}
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}
