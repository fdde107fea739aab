//go:build linux && (amd64 || arm64)

package codegrade

import (
	"bufio"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// rows reads a data set.
func rows(t testing.TB, name string) []map[string]any {
	t.Helper()
	path := filepath.Join(cmp.Or(os.Getenv("TRANCHE_DATA"), "../../../shared/data"), name)
	file, err := os.Open(path)
	if err != nil {
		t.Skipf("needs the data set: %v (set TRANCHE_DATA)", err)
	}
	defer file.Close()
	var list []map[string]any
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row map[string]any
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("%s, line %d: %v", path, len(list)+1, err)
		}
		list = append(list, row)
	}
	if lines.Err() != nil || len(list) == 0 {
		t.Fatalf("%s: %d lines, %v", path, len(list), lines.Err())
	}
	return list
}

// some takes every step-th row; all of them with TRANCHE_REFERENCES=all.
func some[T any](list []T, step int) []T {
	if os.Getenv("TRANCHE_REFERENCES") == "all" {
		return list
	}
	var few []T
	for i := 0; i < len(list); i += step {
		few = append(few, list[i])
	}
	return few
}

var definitions = regexp.MustCompile(`(?m)^(?:def|class)\s+(\w+)`)

func text(v any) string { s, _ := v.(string); return s }

// answers makes three of each row: its reference, and two stubs.
func answers(rows []map[string]any, id, solution string, stubs ...func(map[string]any) string) []question {
	var list []question
	for _, row := range rows {
		name, _ := json.Marshal(row[id])
		t := task(string(name), row, "")
		list = append(list, question{name: string(name), task: t, answer: text(row[solution]), want: 1})
		for _, stub := range stubs {
			list = append(list, question{name: string(name) + " stub", task: t, answer: stub(row)})
		}
	}
	return list
}

// patient has limits for references that compute for seconds, on a machine that is busy with other tests.
func patient(o Options) Options {
	o.CPU, o.TestCPU, o.Wall = 2*time.Minute, time.Minute, 10*time.Minute
	return o
}

func TestHumanEvalReferencesPassAndStubsDoNot(t *testing.T) {
	list := answers(some(rows(t, "tasks-humaneval/humaneval.first82.jsonl"), 40), "task_id", "canonical_solution",
		func(map[string]any) string { return "    pass\n" }, func(map[string]any) string { return "    return None\n" })
	found := newGrader(t, patient(Options{Extract: "all"})).settle(t, list, 2)
	t.Logf("%d verdicts", len(found))
}

func TestMBPPReferencesPassAndStubsDoNot(t *testing.T) {
	stub := func(row map[string]any) string { return stubs(text(row["code"])) }
	list := answers(some(rows(t, "tasks-mbpp/mbpp.part.jsonl"), 180), "task_id", "code", stub)
	found := newGrader(t, patient(Options{})).settle(t, list, 2)
	t.Logf("%d verdicts", len(found))
}

func TestCruxEvalReferencesPassAndStubsDoNot(t *testing.T) {
	list := answers(some(rows(t, "tasks-cruxeval/cruxeval.first400.jsonl"), 100), "id", "code",
		func(map[string]any) string { return "def f(*args, **kwargs):\n    pass\n" })
	found := newGrader(t, patient(Options{Form: FormFunction, Function: "f", Syntax: "python", Inputs: "input", Outputs: "output"})).settle(t, list, 2)
	t.Logf("%d verdicts", len(found))
}

// stubs is a program with the functions of another that return nothing.
func stubs(code string) string {
	out := ""
	for _, m := range definitions.FindAllStringSubmatch(code, -1) {
		out += "def " + m[1] + "(*args, **kwargs):\n    pass\n"
	}
	return out
}
