package textgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/reward"
)

const areaTool = `{"function": [{"name": "math.area", "parameters": {"type": "dict", "properties": {"base": {"type": "integer"}, "height": {"type": "float"},
	"unit": {"type": "string"}, "exact": {"type": "boolean"}, "points": {"type": "array", "items": {"type": "integer"}}, "where": {"type": "dict"}}, "required": ["base", "height"]}}]}`

func TestCallsAgainstAllowedValues(t *testing.T) {
	const truth = `[{"math.area": {"base": [10], "height": [5.0], "unit": ["square metres", "m^2", ""], "exact": ["", true], "points": ["", [1, 2]], "where": ["", {"city": ["Rome", "Roma"], "zip": ["00184", ""]}]}}]`
	for name, c := range map[string]struct {
		tool, args string
		want       float64
	}{
		"cut in a list":           {"math.area", `{"base": 10, "height": 5, "points": [1, 2`, 0},
		"as it is":                {"math.area", `{"base": 10, "height": 5}`, 1},
		"name without dots":       {"math_area", `{"base": 10, "height": 5.0}`, 1},
		"optional given":          {"math.area", `{"base": 10, "height": 5, "unit": "m^2", "exact": true, "points": [1, 2]}`, 1},
		"text loosely":            {"math.area", `{"base": 10, "height": 5, "unit": "Square-Metres"}`, 1},
		"object":                  {"math.area", `{"base": 10, "height": 5, "where": {"city": "roma"}}`, 1},
		"object, wrong":           {"math.area", `{"base": 10, "height": 5, "where": {"city": "Paris"}}`, 0},
		"object, more":            {"math.area", `{"base": 10, "height": 5, "where": {"city": "Rome", "land": "Italy"}}`, 0},
		"object, less":            {"math.area", `{"base": 10, "height": 5, "where": {"zip": "00184"}}`, 0},
		"other name":              {"math.volume", `{"base": 10, "height": 5}`, 0},
		"argument missing":        {"math.area", `{"base": 10}`, 0},
		"argument too many":       {"math.area", `{"base": 10, "height": 5, "depth": 1}`, 0},
		"other value":             {"math.area", `{"base": 11, "height": 5}`, 0},
		"text for a number":       {"math.area", `{"base": "10", "height": 5}`, 0},
		"fraction for a whole":    {"math.area", `{"base": 10.0, "height": 5}`, 0},
		"number for true":         {"math.area", `{"base": 10, "height": 5, "exact": 1}`, 0},
		"false for true":          {"math.area", `{"base": 10, "height": 5, "exact": false}`, 0},
		"null for optional":       {"math.area", `{"base": 10, "height": 5, "unit": null}`, 0},
		"list in another order":   {"math.area", `{"base": 10, "height": 5, "points": [2, 1]}`, 0},
		"list too long":           {"math.area", `{"base": 10, "height": 5, "points": [1, 2, 3]}`, 0},
		"fractions in a list":     {"math.area", `{"base": 10, "height": 5, "points": [1.0, 2]}`, 0},
		"no JSON":                 {"math.area", `{"base": 10, "height": 5`, 0},
		"a name twice":            {"math.area", `{"base": 11, "height": 5, "base": 10}`, 0},
		"a name twice inside":     {"math.area", `{"base": 10, "height": 5, "where": {"city": "Paris", "city": "Rome"}}`, 0},
		"no object":               {"math.area", `[10, 5]`, 0},
		"number beyond all sense": {"math.area", `{"base": 1e999999999, "height": 5}`, 0},
	} {
		task := asked("q", truth, areaTool)
		if got := score(t, grader(t, "tool_match", ""), called(task, toolCall(c.tool, c.args))); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestSeveralCalls(t *testing.T) {
	const truth = `[{"name": "go", "arguments": {"to": "a"}}, {"name": "go", "arguments": {"to": "b"}}, "stop(hard=True)"]`
	a, b, stop := toolCall("go", `{"to": "a"}`), toolCall("go", `{"to": "b"}`), toolCall("stop", `{"hard": true}`)
	everything := []episode.ToolCall{stop} // a call for every place there is
	for to := 'a'; to < 'p'; to++ {
		everything = append(everything, toolCall("go", fmt.Sprintf(`{"to": "%c"}`, to)))
	}
	for name, c := range map[string]struct {
		options string
		calls   []episode.ToolCall
		want    float64
	}{
		"all":                       {"", []episode.ToolCall{a, b, stop}, 1},
		"another order":             {"", []episode.ToolCall{stop, b, a}, 1},
		"another order, fixed":      {`{"order": "fixed"}`, []episode.ToolCall{stop, b, a}, 0},
		"the order, fixed":          {`{"order": "fixed"}`, []episode.ToolCall{a, b, stop}, 1},
		"one missing":               {"", []episode.ToolCall{a, b}, 0},
		"one twice":                 {"", []episode.ToolCall{a, a, stop}, 0},
		"one more":                  {"", []episode.ToolCall{a, b, stop, a}, 0},
		"one more, allowed":         {`{"extra": true}`, []episode.ToolCall{a, b, stop, a}, 1},
		"between, allowed":          {`{"extra": true, "order": "fixed"}`, []episode.ToolCall{a, stop, b, a, stop}, 1},
		"all that can be":           {`{"extra": true}`, everything, 0},
		"all that can be, allowed":  {`{"extra": true, "most": 20}`, everything, 1},
		"more than allowed":         {`{"extra": true, "most": 3}`, []episode.ToolCall{a, b, stop, a}, 0},
		"as many as allowed":        {`{"extra": true, "most": 4}`, []episode.ToolCall{a, b, stop, a}, 1},
		"partly":                    {`{"partial": true}`, []episode.ToolCall{a, stop}, 2.0 / 3},
		"partly, with one too many": {`{"partial": true}`, []episode.ToolCall{a, b, stop, stop}, 3.0 / 4},
		"partly, in order":          {`{"partial": true, "order": "fixed"}`, []episode.ToolCall{stop, a, b}, 2.0 / 3},
		"none":                      {`{"partial": true}`, nil, 0},
	} {
		if got := score(t, grader(t, "tool_match", c.options), called(asked("q", truth, ""), c.calls...)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The first right call that fits may be the wrong one to take: as many are paired as can be.
func TestAllThatFitIsPaired(t *testing.T) {
	const truth = `[{"f": {"x": [1, 2]}}, {"f": {"x": [1]}}]`
	if got := score(t, grader(t, "tool_match", ""), called(asked("q", truth, ""), toolCall("f", `{"x": 1}`), toolCall("f", `{"x": 2}`))); got != 1 {
		t.Errorf("%v, want 1", got)
	}
}

func TestCallsWrittenAsText(t *testing.T) {
	task := asked("q", `[{"go": {"to": ["a"], "fast": ["", false]}}]`, `{"function": [{"name": "go", "parameters": {"properties": {"to": {"type": "string"}, "fast": {"type": "boolean"}}}}]}`)
	for text, want := range map[string]float64{
		"go(to='a')":                 1,
		"[go(to=\"a\", fast=False)]": 1,
		"go('a')":                    1,
		`[{"name": "go", "arguments": {"to": "a"}}]`:                       1,
		"```json\n{\"name\": \"go\", \"arguments\": {\"to\": \"a\"}}\n```": 1,
		`[{"name": "go", "arguments": {"to": "b", "to": "a"}}]`:            0,
		"go(to='b')":        0,
		"go('a', True)":     0,
		"go('a', to='a')":   0,
		"I go(to='a') now.": 0,
		"go(to='a'":         0,
		"[]":                0,
		"":                  0,
	} {
		if got := score(t, grader(t, "tool_match", `{"from": "text"}`), answered(task, text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	written := answered(task, "<tool_call>…</tool_call>")
	written.Messages[1].Written = &episode.Written{Call: toolCall("go", `{"to": "a"}`)}
	if got := score(t, grader(t, "tool_match", ""), written); got != 1 {
		t.Errorf("a call that was read out of the text: %v, want 1", got)
	}
}

func TestNoCallWanted(t *testing.T) {
	g, task := grader(t, "tool_match", ""), asked("q", "[]", "")
	if score(t, g, answered(task, "I need no tool for that.")) != 1 || score(t, g, called(task, toolCall("go", "{}"))) != 0 || score(t, g, answered(task, " ")) != 0 {
		t.Error("want 1 for words alone, 0 for a call and for nothing")
	}
}

func TestWrongGroundTruthOfCalls(t *testing.T) {
	for truth, want := range map[string]string{
		"":                           "missing_ground_truth",
		"go(":                        "bad_ground_truth",
		`["go("]`:                    "bad_ground_truth",
		`["go(1)"]`:                  "bad_ground_truth", // no tool tells what the first argument is
		`[{"go": {"to": "a"}}]`:      "bad_ground_truth", // no list of allowed values
		`[{"go": {}, "stop": {}}]`:   "bad_ground_truth",
		`[3]`:                        "bad_ground_truth",
		`[{"name": "go", "arg": 1}]`: "bad_ground_truth",
	} {
		if got := reason(t, grader(t, "tool_match", ""), called(asked("q", truth, ""), toolCall("go", "{}"))); got != want {
			t.Errorf("%s: %q, want %s", truth, got, want)
		}
	}
}

type bfclRow struct {
	ID       string
	Function json.RawMessage
	Classes  []string        `json:"involved_classes"`
	Truth    json.RawMessage `json:"ground_truth"`
}

// BFCL: the right calls score 1, in every value that is allowed; every change to one of them scores less, alone and among others.
func TestPublicToolCalls(t *testing.T) {
	g := grader(t, "tool_match", "")
	changed := 0
	for _, file := range []string{"simple_python.first200", "parallel.first100"} {
		tasks := rows[bfclRow](t, "tasks-bfcl/BFCL_v4_"+file+".jsonl")
		answers := rows[bfclRow](t, "tasks-bfcl/BFCL_v4_"+file+".answers.jsonl")
		for i, r := range tasks {
			if testing.Short() && i%5 != 0 {
				continue
			}
			task := asked("q", string(answers[i].Truth), fmt.Sprintf(`{"function": %s}`, r.Function))
			for _, last := range []bool{false, true} {
				calls := rightCalls(t, task, answers[i].Truth, last)
				if got := score(t, g, called(task, calls...)); got != 1 {
					t.Errorf("%s: the right calls %v score %v", r.ID, calls, got)
				}
				slices.Reverse(calls)
				if got := score(t, g, called(task, calls...)); got != 1 {
					t.Errorf("%s: the right calls in another order score %v", r.ID, got)
				}
				for _, wrong := range perturbed(t, calls) {
					changed++
					if got := score(t, g, called(task, wrong...)); got >= 1 {
						t.Errorf("%s: changed calls %v score %v", r.ID, wrong, got)
					}
				}
			}
		}
	}
	if changed < 3000 && !testing.Short() {
		t.Errorf("only %d changed calls were tried", changed)
	}
}

// rightCalls are the calls of a ground truth with the first or the last allowed value of each argument; "" leaves it out, unless the tool
// requires it.
func rightCalls(t *testing.T, task *episode.Task, truth json.RawMessage, last bool) (calls []episode.ToolCall) {
	t.Helper()
	tools := offered(task)
	var list []map[string]map[string][]any
	if err := json.Unmarshal(truth, &list); err != nil {
		t.Fatal(err)
	}
	for _, want := range list {
		for name, args := range want {
			given := map[string]any{}
			for arg, allowed := range args {
				v := allowed[0]
				if last && !(allowed[len(allowed)-1] == "" && slices.Contains(tools[plainName(name)].required, arg)) {
					v = allowed[len(allowed)-1]
				}
				if v != "" {
					given[arg] = chosen(v)
				}
			}
			calls = append(calls, toolCall(name, string(marshal(t, given))))
		}
	}
	return calls
}

// chosen takes the first allowed value inside of objects too.
func chosen(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, allowed := range v {
			out[k] = allowed.([]any)[0]
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = chosen(v[i])
		}
		return out
	}
	return v
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// perturbed are the calls with one thing wrong: a name, an argument missing, one too many, one of another value, a call too many, one too few.
func perturbed(t *testing.T, calls []episode.ToolCall) (list [][]episode.ToolCall) {
	t.Helper()
	with := func(i int, name string, args map[string]any) {
		c := slices.Clone(calls)
		c[i] = toolCall(name, string(marshal(t, args)))
		list = append(list, c)
	}
	for i, c := range calls {
		var args map[string]any
		if err := json.Unmarshal([]byte(c.Function.Arguments), &args); err != nil {
			t.Fatal(err)
		}
		name := c.Function.Name
		with(i, name+"_x", args)
		for arg, v := range args {
			more := maps.Clone(args)
			more[arg] = "no such value"
			with(i, name, more)
			more = maps.Clone(args)
			more[arg+"_x"] = v
			with(i, name, more)
		}
		list = append(list, slices.Concat(calls, []episode.ToolCall{c}), slices.Delete(slices.Clone(calls), i, i+1))
	}
	list = append(list, slices.Concat(calls, []episode.ToolCall{toolCall("other", "{}")}))
	return list
}

// Arguments that must be given are missed, in the real tasks: those of which "" is no allowed value.
func TestMissingArgumentsOfPublicToolCalls(t *testing.T) {
	g := grader(t, "tool_match", "")
	tasks, answers := rows[bfclRow](t, "tasks-bfcl/BFCL_v4_simple_python.first200.jsonl"), rows[bfclRow](t, "tasks-bfcl/BFCL_v4_simple_python.first200.answers.jsonl")
	n := 0
	for i, r := range tasks {
		var list []map[string]map[string][]any
		if err := json.Unmarshal(answers[i].Truth, &list); err != nil {
			t.Fatal(err)
		}
		right := rightCalls(t, asked("q", "", ""), answers[i].Truth, false)
		for name, args := range list[0] {
			for arg, allowed := range args {
				if mayBeLeftOut(allowed) {
					continue
				}
				var given map[string]any
				if err := json.Unmarshal([]byte(right[0].Function.Arguments), &given); err != nil {
					t.Fatal(err)
				}
				delete(given, arg)
				n++
				if got := score(t, g, called(asked("q", string(answers[i].Truth), fmt.Sprintf(`{"function": %s}`, r.Function)), toolCall(name, string(marshal(t, given))))); got != 0 {
					t.Errorf("%s without %s scores %v", r.ID, arg, got)
				}
			}
		}
	}
	if n < 300 {
		t.Errorf("only %d arguments were left out", n)
	}
}

// The multi-turn tasks: their calls are read, with arguments by position named by the tools' descriptions, and score 1 when made in order;
// without the last one they score less.
func TestPublicMultiTurnCalls(t *testing.T) {
	g := grader(t, "tool_match", `{"order": "fixed", "strings": "exact"}`)
	docs := map[string][]json.RawMessage{}
	files := map[string]string{"GorillaFileSystem": "gorilla_file_system", "MathAPI": "math_api", "MessageAPI": "message_api", "TwitterAPI": "posting_api",
		"TicketAPI": "ticket_api", "TradingBot": "trading_bot", "TravelAPI": "travel_booking", "VehicleControlAPI": "vehicle_control"}
	for class, file := range files {
		docs[class] = rows[json.RawMessage](t, "tasks-bfcl/func_doc/"+file+".jsonl")
	}
	answers := rows[bfclRow](t, "tasks-bfcl/BFCL_v4_multi_turn_base.first100.answers.jsonl")
	for i, r := range rows[bfclRow](t, "tasks-bfcl/BFCL_v4_multi_turn_base.first100.jsonl") {
		if testing.Short() && i%5 != 0 {
			continue
		}
		var tools []json.RawMessage
		for _, class := range r.Classes {
			tools = append(tools, docs[class]...)
		}
		task := asked("q", string(answers[i].Truth), fmt.Sprintf(`{"function": %s}`, marshal(t, tools)))
		want, err := wantedCalls(task, offered(task))
		if err != nil {
			t.Errorf("%s: %v", r.ID, err)
			continue
		}
		var calls []episode.ToolCall
		for _, w := range want {
			args := map[string]any{}
			for arg, v := range w.args {
				args[arg] = v[0]
			}
			calls = append(calls, toolCall(w.name, string(marshal(t, args))))
		}
		if got := score(t, g, called(task, calls...)); got != 1 {
			t.Errorf("%s: its own calls score %v", r.ID, got)
		}
		if got := score(t, g, called(task, calls[:len(calls)-1]...)); got != 0 {
			t.Errorf("%s: without the last call it scores %v", r.ID, got)
		}
	}
}

// BFCL's own verdicts on calls made by rule, where scripts/bfcl-reference.py has written them ($TRANCHE_BFCL_REFERENCE names the file). Those
// that differ are told in docs/rewards.md.
func TestAgreesWithBFCL(t *testing.T) {
	path := os.Getenv("TRANCHE_BFCL_REFERENCE")
	if path == "" {
		t.Skip("TRANCHE_BFCL_REFERENCE names no file of scripts/bfcl-reference.py")
	}
	g, differ := grader(t, "tool_match", ""), 0
	list := rows[struct {
		ID              string
		Function, Truth json.RawMessage
		Calls           []map[string]json.RawMessage
		Valid           bool
	}](t, path)
	for _, r := range list {
		var calls []episode.ToolCall
		for _, c := range r.Calls {
			for name, args := range c {
				calls = append(calls, toolCall(name, string(args)))
			}
		}
		if got := score(t, g, called(asked("q", string(r.Truth), fmt.Sprintf(`{"function": %s}`, r.Function)), calls...)); got != boolScore(r.Valid) {
			differ++
			t.Logf("%s: %v, BFCL %v: %s of %s", r.ID, got, r.Valid, r.Calls, r.Truth)
		}
	}
	t.Logf("%d of %d differ", differ, len(list))
	if 500*differ > len(list) {
		t.Error("too many")
	}
}

func TestPythonCalls(t *testing.T) {
	calls, err := pyCalls(`[f(a=1, b='it\'s', c=[1, -2.5, (3,)], d={'k': None, "l": True}), pkg.g("x\ny", 1_000)]`)
	if err != nil || len(calls) != 2 || calls[1].name != "pkg.g" || len(calls[1].order) != 2 {
		t.Fatalf("%+v, %v", calls, err)
	}
	got, want := string(marshal(t, calls[0].args)), `{"a":1,"b":"it's","c":[1,-2.5,[3]],"d":{"k":null,"l":true}}`
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, bad := range []string{"", "f", "f(", "f(a=)", "f(a=1,,b=2)", "f(a=1 b=2)", "f(x)", "f(a=1)(b=2)", "f(a=1, a=2)", "[f()", "f() g()", "f('a)", "f(" + strings.Repeat("[", 1000), "f({1: 2})", "f({'a': 1, 'a': 2})"} {
		if calls, err := pyCalls(bad); err == nil {
			t.Errorf("%q is read as %+v", reward.Clip(bad, 40), calls)
		}
	}
}

func FuzzPythonCalls(f *testing.F) {
	f.Add(`[f(a=1, b='x'), g([1, (2,)], {'k': None})]`)
	f.Add("f(\"\\")
	f.Fuzz(func(t *testing.T, text string) {
		if calls, err := pyCalls(text); err == nil && len(calls) == 0 {
			t.Error("no call and no error")
		}
	})
}

// Whatever a ground truth and a call are, there is a verdict or a reason.
func FuzzToolMatch(f *testing.F) {
	f.Add(`[{"f": {"x": [1, ""]}}]`, "f", `{"x": 1}`, `{"function": [{"name": "f", "parameters": {"properties": {"x": {"type": "integer"}}}}]}`)
	f.Add(`["f(1)"]`, "f", `{"x": {"y": [1]}}`, `{"function": ["f", {"function": {"name": "f"}}]}`)
	g := grader(f, "tool_match", `{"partial": true}`)
	f.Fuzz(func(t *testing.T, truth, name, args, extra string) {
		task := asked("q", truth, extra)
		if found, err := g.Grade(context.Background(), called(task, toolCall(name, args))); err == nil && !(found.Score >= 0 && found.Score <= 1) {
			t.Errorf("score %v", found.Score)
		} else if err != nil && reason(t, g, called(task, toolCall(name, args))) == "" {
			t.Error("a failure without a reason")
		}
	})
}
