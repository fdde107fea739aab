//go:build linux && (amd64 || arm64)

package codegrade

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/action/sandbox"
	"tranche/episode"
	"tranche/reward"
)

func TestFormsOfTests(t *testing.T) {
	entry := func(test string) map[string]any { return map[string]any{"entry_point": "f", "test": test} }
	cases := []question{
		{name: "list of asserts as ground truth", task: task("1", nil, `["assert f(1) == 2", "assert f(2) == 3"]`), answer: "def f(x): return x + 1", want: 1},
		{name: "asserts as ground truth", task: task("2", nil, "assert f(1) == 2\nassert f(2) == 3"), answer: "def f(x): return x + 1", want: 1},
		{name: "reversed", task: task("3", entry("assert 2 == f(1)"), ""), answer: "def f(x): return x + 1", want: 1},
		{name: "fails by an exception", task: task("4", entry("try:\n    f(-1)\n    assert False\nexcept ValueError:\n    pass"), ""), answer: "def f(x): raise ValueError('no')", want: 1},
		{name: "should have raised", task: task("5", entry("try:\n    f(-1)\n    assert False\nexcept ValueError:\n    pass"), ""), answer: "def f(x): return x", want: 0},
		{name: "works in place", task: task("6", entry("xs = [3, 1, 2]\nf(xs)\nassert xs == [1, 2, 3]"), ""), answer: "def f(xs): xs.sort()", want: 1},
		{name: "does not work in place", task: task("7", entry("xs = [3, 1, 2]\nf(xs)\nassert xs == [1, 2, 3]"), ""), answer: "def f(xs): return sorted(xs)", want: 0},
		{name: "in place, asserted", task: task("8", entry("xs = [3, 1, 2]\nassert f(xs) is None\nassert xs == [1, 2, 3]"), ""), answer: "def f(xs): xs.sort()", want: 1},
		{name: "a check that returns", task: task("9", entry("def check(candidate):\n    if candidate(1) != 2:\n        assert False\n    return\n"), ""), answer: "def f(x): return x + 1", want: 1},
		{name: "a check that returns, failed", task: task("10", entry("def check(candidate):\n    if candidate(1) != 2:\n        assert False\n    return\n"), ""), answer: "def f(x): return x", want: 0},
		{name: "a library that the test does not import", task: task("11", nil, `["assert math.isclose(f(2), math.sqrt(2))"]`), answer: "def f(x): return x ** .5", want: 1},
		{name: "class of the answer in an argument", task: task("12", nil, `["assert f([P(1), P(2)]) == 3"]`), answer: "class P:\n    def __init__(self, n): self.n = n\ndef f(ps): return sum(p.n for p in ps)", want: 1},
		{name: "helper of the prompt", task: task("13", map[string]any{"entry_point": "f", "prompt": "def double(x):\n    return 2 * x\n\n\ndef f(x):\n    \"\"\"Half.\"\"\"\n",
			"test": "def check(candidate):\n    for x in range(5):\n        assert candidate(double(x)) == x\n"}, ""), answer: "def f(x):\n    return x // 2\n", want: 1},
		{name: "helper of the prompt, replaced", task: task("14", map[string]any{"entry_point": "f", "prompt": "def double(x):\n    return 2 * x\n\n\ndef f(x):\n    \"\"\"Half.\"\"\"\n",
			"test": "def check(candidate):\n    for x in range(1, 5):\n        assert candidate(double(x)) == x\n    assert candidate(double(7)) == 7\n"}, ""), answer: "def double(x):\n    return x\ndef f(x):\n    return x\n", want: 0},
		{name: "function of a JSON row", task: task("15", nil, `{"fn_name":"f","inputs":[["a",1],["b",2]],"outputs":["a","bb"]}`), answer: "def f(s, n): return s * n", want: 1},
		{name: "tuples where JSON has lists", task: task("16", nil, `{"fn_name":"f","inputs":[[1]],"outputs":[[1,[2,3]]]}`), answer: "def f(x): return (x, (2, 3))", want: 1},
		{name: "True is not 1", task: task("17", nil, `{"fn_name":"f","inputs":[[1]],"outputs":[1]}`), answer: "def f(x): return True", want: 0},
		{name: "lines of JSON", task: task("18", nil, `{"fn_name":"f","inputs":["[1,2]\n\"x\""],"outputs":["[\"x\",1,2]"]}`), answer: "def f(xs, y): return [y] + xs", want: 1},
		{name: "a method of Solution", task: task("19", nil, `{"fn_name":"f","inputs":[[2]],"outputs":[4]}`), answer: "class Solution:\n    def f(self, x):\n        return x * x", want: 1},
		{name: "input and output", task: task("20", nil, `{"inputs":["3\n1 2 3\n"],"outputs":["6"]}`), answer: "n = int(input())\nprint(sum(map(int, input().split())))", want: 1},
		{name: "right output, bad end", task: task("21", nil, `{"inputs":["1"],"outputs":["1"]}`), answer: "print(input())\nraise SystemExit(3)", want: 0},
		{name: "main guard", task: task("22", nil, `{"inputs":["5"],"outputs":["5"]}`), answer: "if __name__ == '__main__':\n    print(input())", want: 1},
		{name: "main guard of a function", task: task("23", nil, `["assert f() == 1"]`), answer: "def f(): return 1\nif __name__ == '__main__':\n    f = None", want: 1},
		{name: "LiveCodeBench", task: task("24", map[string]any{"test_cases": []map[string]any{{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}}}, ""), answer: honestMain, want: 1},
		{name: "no program", task: task("25", nil, `["assert f() == 1"]`), answer: "", want: 0},
		{name: "does not compile", task: task("26", nil, `["assert f() == 1"]`), answer: "def f(: return 1", want: 0},
		{name: "no such function", task: task("27", nil, `["assert f() == 1"]`), answer: "def g(): return 1", want: 0},
		{name: "identity", task: task("28", entry("assert f(1) is True"), ""), answer: "def f(x): return 1", want: 0},
		{name: "not", task: task("29", entry("assert not f(1)"), ""), answer: "def f(x): return []", want: 1},
		{name: "a frozen dataclass of its own", task: task("30", nil, `["assert f(1) == 1"]`), answer: "from dataclasses import dataclass\n@dataclass\nclass D:\n    x: int\ndef f(x): return D(x).x", want: 1},
	}
	newGrader(t, Options{}).settle(t, cases, 2)
}

// A prompt is run with the tests only where it defines something: words may well be Python too.
func TestWordsAreNoCode(t *testing.T) {
	var list []question
	for _, prompt := range []string{"Implement", "exit()", "add<x> + y", "a: int", "1 / 0", "while True: pass", "Add\x00"} {
		list = append(list, question{name: prompt, answer: "def f(x): return x + 1", want: 1,
			task: task(prompt, map[string]any{"prompt": prompt, "entry_point": "f", "test": "def check(candidate):\n    assert candidate(1) == 2"}, "")})
	}
	newGrader(t, Options{}).settle(t, list, 2)
}

func TestTiersAreParts(t *testing.T) {
	g := newGrader(t, Options{Tiers: map[string]float64{"compiles": 1, "runs": 1, "share": 4, "all": 2}})
	tests := task("tiers", nil, `["assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 4", "assert f(4) == 5"]`)
	for _, c := range []struct {
		name, answer               string
		score                      float64
		compiles, runs, share, all float64
	}{
		{"does not compile", "def f(:", 0, 0, 0, 0, 0},
		{"does not load", "raise ValueError", 1. / 8, 1, 0, 0, 0},
		{"half of the tests", "def f(x): return x", 4. / 8, 1, 1, .5, 0},
		{"all", "def f(x): return x + (x > 2)", 1, 1, 1, 1, 1},
	} {
		f, err := g.judge(tests, c.answer)
		if err != nil {
			t.Fatal(err)
		}
		got := []float64{f.Score, score(f, "compiles"), score(f, "runs"), score(f, "share"), score(f, "all")}
		for i, want := range []float64{c.score, c.compiles, c.runs, c.share, c.all} {
			if got[i] != want {
				t.Errorf("%s: %v, want score %v and tiers %v %v %v %v", c.name, got, c.score, c.compiles, c.runs, c.share, c.all)
				break
			}
		}
	}
}

// What compiles is known before it is loaded, so that the tier means the same in every form.
func TestAnEndWhileLoadingIsPython(t *testing.T) {
	g := newGrader(t, Options{CPU: time.Second, TestCPU: 300 * time.Millisecond})
	functions := task("loading", nil, `["assert f(1) == 1"]`)
	main := task("loading main", nil, `{"inputs":["1"],"outputs":["1"]}`)
	for name, c := range map[string]struct {
		answer   string
		compiles float64
	}{
		"exits":      {"import os\nos._exit(1)", 1},
		"spins":      {"while 1: pass", 1},
		"is killed":  {"import os\nos.kill(os.getpid(), 9)", 1},
		"raises":     {"raise KeyError", 1},
		"no program": {"def f(:", 0},
	} {
		for _, tests := range []*episode.Task{functions, main} {
			f, err := g.judge(tests, c.answer)
			if err != nil || score(f, "compiles") != c.compiles || score(f, "runs") != 0 || f.Score != 0 {
				t.Errorf("%s (%s): %+v, %v; want compiles %v and no more", name, tests.ID, f, err, c.compiles)
			}
		}
	}
}

// A call that is only made is no test: a function that does nothing gets nothing for it.
func TestCallsAloneProveNothing(t *testing.T) {
	g := newGrader(t, Options{Tiers: map[string]float64{"share": 1}})
	row := func(test string) map[string]any { return map[string]any{"entry_point": "f", "test": test} }
	g.settle(t, []question{
		{name: "in place", task: task("1", row("xs = [3, 1, 2]\nf(xs)\nassert xs == [1, 2, 3]"), ""), answer: "def f(xs): pass"},
		{name: "kept", task: task("2", row("got = []\ngot.append(f(1))\nprint(f(2))\nassert got == [2]"), ""), answer: "def f(x): pass"},
		{name: "a helper that asserts", task: task("3", row("def same(a, b):\n    assert a == b\nsame(f(1), 2)\nsame(f(2), 3)"), ""), answer: "def f(x): return 2", want: .5},
		{name: "raised where it should not", task: task("4", row("try:\n    f(1)\nexcept KeyError:\n    pass\nelse:\n    raise ValueError"), ""), answer: "def f(x): pass"},
	}, 2)
}

// A program that ends itself in one test loses that test, not those behind it.
func TestOneTestHurtsItselfOnly(t *testing.T) {
	g := newGrader(t, Options{TestCPU: 500 * time.Millisecond})
	f, err := g.judge(task("one", nil, `["assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 3", "assert f(4) == 4"]`),
		"import os\ndef f(x):\n    if x == 2: os._exit(0)\n    while x == 3: pass\n    return x")
	if err != nil || *f.Raw != 2 || score(f, "share") != .5 {
		t.Errorf("%+v, %v; want two of four tests", f, err)
	}
}

// RW-o1: the tested code ends the process before any test.
func TestCaseRWo1ExitIsNoProof(t *testing.T) {
	g := newGrader(t, Options{Tiers: map[string]float64{"share": 1}})
	f, err := g.judge(task("exit", nil, `["assert f(1) == 1"]`), "import sys\nsys.exit(0)\ndef f(x): return x")
	if err != nil || f.Score != 0 {
		t.Errorf("%+v, %v; want score 0", f, err)
	}
}

func TestBrokenTasksGetNoVerdict(t *testing.T) {
	g := newGrader(t, Options{})
	for name, c := range map[string]struct {
		columns map[string]any
		truth   string
		want    string
	}{
		"no tests":                           {nil, "", reward.MissingTruth},
		"tests that are no Python":           {map[string]any{"test": "assert (", "entry_point": "f"}, "", reward.BadTruth},
		"tests that test nothing":            {map[string]any{"test": "assert True", "entry_point": "f"}, "", reward.BadTruth},
		"a test that fails by itself":        {map[string]any{"test": "assert 1 == 2\nassert f(1) == 1", "entry_point": "f"}, "", reward.BadTruth},
		"check without a function":           {map[string]any{"test": "def check(candidate):\n    assert candidate(1) == 1"}, "", reward.MissingTruth},
		"inputs without outputs":             {nil, `{"inputs":["1"]}`, reward.MissingTruth},
		"more inputs than outputs":           {nil, `{"inputs":["1","2"],"outputs":["1"]}`, reward.BadTruth},
		"a comparison that nobody defines":   {map[string]any{"test": "def check(candidate):\n    assert isclose(candidate(1), 1.5)", "entry_point": "f"}, "", reward.BadTruth},
		"the same without an entry point":    {nil, `["assert isclose(f(1), 1.5)", "assert isclose(f(2), 2.5)"]`, reward.BadTruth},
		"a comparison with what was kept":    {map[string]any{"test": "got = f(1)\nassert isclose(got, 1.5)", "entry_point": "f"}, "", reward.BadTruth},
		"a library that is nobody's":         {map[string]any{"test": "assert np.allclose(f(1), 1.5)", "entry_point": "f"}, "", reward.BadTruth},
		"two functions, and none is named":   {nil, `["assert f(1) == 1", "assert g(2) == 2"]`, reward.BadTruth},
		"an object of the answer's, kept":    {map[string]any{"test": "p = P(1)\nassert f(p) == 1", "entry_point": "f"}, "", reward.BadTruth},
		"an argument that cannot be sent":    {map[string]any{"test": "for g in [len, lambda x: x]:\n    assert f(g) == g", "entry_point": "f"}, "", reward.BadTruth},
		"a check that ends by itself":        {map[string]any{"test": "def check(candidate):\n    import os\n    os._exit(0)\n    assert candidate(1) == 1\n    return", "entry_point": "f"}, "", reward.BadTruth},
		"setup that ends the tests' process": {map[string]any{"test": "import os\nos._exit(0)\nassert f(1) == 1", "entry_point": "f"}, "", reward.BadTruth},
	} {
		_, err := g.judge(task(name, c.columns, c.truth), "def f(x): return x\nisclose = lambda *a: True")
		if got := reason(err); got != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// Tests are many before they are too many: taking them apart is linear in their number.
func TestManyTests(t *testing.T) {
	g := newGrader(t, Options{CPU: 30 * time.Second, Wall: time.Minute, Sample: 2})
	many := task("many", nil, strings.Repeat("assert f(1) == 1, 'x'\n", 3000))
	if f, err := g.judge(many, "def f(x): return x"); err != nil || f.Score != 1 {
		t.Errorf("%+v, %v; want score 1", f, err)
	}
	for how, want := range map[sandbox.Status]string{sandbox.StatusCPULimit: TestsTooLong, sandbox.StatusNonzero: reward.BadTruth, sandbox.StatusOK: reward.BadTruth} {
		if err := endedBy(how, "it"); reason(err) != want {
			t.Errorf("ended by %s: %v, want %s", how, err, want)
		}
	}
}

// failing is a back end that fails at one point of a grading, the n-th time it comes there.
type failing struct {
	sandbox.Executor
	at string
}

type failingBox struct {
	sandbox.Sandbox
	at string
}

type failingProcess struct{ sandbox.Process }

var errDead = errors.New("the sandbox has died")

func (x failing) Open(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	if x.at == "open" {
		return nil, errDead
	}
	box, err := x.Executor.Open(ctx, s)
	return failingBox{box, x.at}, err
}

func (b failingBox) Start(ctx context.Context, c sandbox.Cmd) (sandbox.Process, error) {
	switch b.at {
	case "start":
		return nil, errDead
	case "find python":
		c.Args = []string{"no-such-python"}
	case "come up":
		c.Args = []string{"python3", "-c", "raise SystemExit(3)"}
	}
	p, err := b.Sandbox.Start(ctx, c)
	if b.at == "wait" && err == nil {
		p = failingProcess{p}
	}
	return p, err
}

func (b failingBox) Put(ctx context.Context, f ...sandbox.File) error {
	if b.at == "put" {
		return errDead
	}
	return b.Sandbox.Put(ctx, f...)
}

func (b failingBox) Close() error {
	err := b.Sandbox.Close()
	if b.at == "close" {
		err = errDead
	}
	return err
}

func (p failingProcess) Wait(ctx context.Context) (sandbox.Result, error) {
	r, err := p.Process.Wait(ctx)
	return r, errors.Join(err, errDead)
}

// Whatever of ours fails, there is no verdict, and asking again is said to help: never a 0.
func TestFailureOfASandboxIsNoVerdict(t *testing.T) {
	open := backEnd(t)
	x, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tasks := adding()
	for _, at := range []string{"open", "start", "find python", "come up", "wait", "put", "close"} {
		g, err := New(func(context.Context) (sandbox.Executor, error) { return failing{x, at}, nil }, small(), Options{Extract: "all"})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Check(context.Background()); reason(err) != SandboxFailed && at != "put" {
			t.Errorf("%s fails: the check before a run said %v", at, err)
		}
		for form, program := range map[string]string{"check": honest, "function": honest, "stdin": honestMain} {
			if at == "put" && form != "stdin" {
				continue // nothing is put there
			}
			f, err := g.Grade(context.Background(), reward.Input{Task: tasks[form].task, Text: program, Said: true})
			var u *reward.Unjudged
			if !errors.As(err, &u) || u.Reason != SandboxFailed || !u.Retry {
				t.Errorf("%s fails (%s): %+v, %v; want no verdict that may be asked for again", at, form, f, err)
			}
		}
	}
	g, err := New(func(context.Context) (sandbox.Executor, error) { return nil, errDead }, small(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Grade(context.Background(), reward.Input{Task: tasks["function"].task, Text: honest, Said: true}); reason(err) != SandboxFailed {
		t.Errorf("no back end: %v", err)
	}
}

func TestTooShortATimeoutIsSaid(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := newGrader(t, Options{}).Grade(ctx, reward.Input{Task: adding()["function"].task, Text: honest, Said: true})
	if err == nil || !strings.Contains(err.Error(), "wall 20s") {
		t.Errorf("%v, want an error that names wall", err)
	}
}

func TestHowLongAVerdictMayTake(t *testing.T) {
	for name, c := range map[string]struct {
		opt  Options
		want time.Duration
	}{
		"by default":         {Options{}, 27 * time.Second},
		"with a wall":        {Options{Wall: time.Minute}, 67 * time.Second},
		"with a reference":   {Options{Reference: "code"}, 47 * time.Second},
		"a repository's own": {Options{Form: FormRepo, Reference: "code"}, 27 * time.Second},
	} {
		g, err := New(nil, small(), c.opt)
		if err != nil {
			t.Fatal(err)
		}
		if g.EnoughTime(c.want) != nil || g.EnoughTime(c.want-time.Millisecond) == nil {
			t.Errorf("%s: %v, want %s", name, g.Longest(), c.want)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 27*time.Second) // just enough, less what goes by on the way
	defer cancel()
	g, err := New(func(context.Context) (sandbox.Executor, error) { return nil, errDead }, small(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Grade(ctx, reward.Input{Task: adding()["function"].task, Text: honest, Said: true}); reason(err) != SandboxFailed {
		t.Errorf("%v, want that it was tried", err)
	}
}

// Same seed, same answers: the same bytes, however many are judged at once. What judging cost is measured and left out.
func TestVerdictsAreTheSameWithAnyNumberOfWorkers(t *testing.T) {
	tests := `["assert f(1) == 1", "assert f(2) == 4", "assert sorted([f(3)]) == [9]", "assert f(4) == 16", "assert f(5) == 25", "assert f(6) > 0 and f(6) == 36"]`
	var list []question
	for i, program := range []string{"def f(x): return x * x", "def f(x): return x", "def f(x): return {x}", "import os\ndef f(x): os._exit(x)", "def f(x): return 1 / (x - 3)",
		"def f(x): return f(x)", "def f(x): raise KeyError", "x =", "def f(x): return set(range(x))"} {
		list = append(list, question{name: "program", want: one(i == 0), task: task(string(rune('a'+i)), nil, tests), answer: program})
	}
	verdicts := func(workers int) string {
		g := newGrader(t, Options{Sample: 4, Seed: 7})
		found := g.settle(t, list, workers)
		for i := range found {
			found[i].Cost = reward.Cost{}
		}
		text, err := json.Marshal(found)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	one, many := verdicts(1), verdicts(16)
	if one != many {
		t.Errorf("1 worker:\n%s\n16 workers:\n%s", one, many)
	}
	if !strings.Contains(one, "(numbers ") {
		t.Errorf("the tests of the sample are not named: %s", one)
	}
}

func TestReferenceIsMeasured(t *testing.T) {
	g := newGrader(t, Options{Reference: "code"})
	tests := map[string]any{"test_list": []string{"assert f(300000) == 300000"}, "code": "def f(x):\n    return sum(1 for _ in range(x))"}
	f, err := g.judge(task("m", tests, ""), "def f(x):\n    n = 0\n    for _ in range(20):\n        n = sum(1 for _ in range(x))\n    return n")
	if err != nil || f.Score != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	raw := map[string]float64{}
	for _, p := range f.Parts {
		if p.Raw != nil {
			raw[p.Name] = *p.Raw
		}
	}
	if raw["speed"] <= 1.5 || raw["memory"] < 1<<20 {
		t.Errorf("%v: twenty times the work should take more CPU time, and a program more than a megabyte", raw)
	}
}

// An answer that passed keeps its score where its reference is at fault: else only right answers would lose theirs.
func TestAFaultyReferenceCostsTheFigureAlone(t *testing.T) {
	g := newGrader(t, Options{Reference: "code"})
	for name, c := range map[string]struct{ code, want string }{
		"none":         {"", "no column code"},
		"a wrong one":  {"def f(x):\n    return 0", "does not pass"},
		"no Python":    {"def f(", "does not pass"},
		"another name": {"def g(x):\n    return x", "does not pass"},
	} {
		f, err := g.judge(task(name, map[string]any{"test_list": []string{"assert f(3) == 3"}, "code": c.code}, ""), "def f(x):\n    return x")
		if err != nil || f.Score != 1 {
			t.Errorf("%s: %+v, %v; want score 1", name, f, err)
			continue
		}
		last := f.Parts[len(f.Parts)-1]
		if last.Name != "speed" || last.Raw != nil || last.Score != nil || !strings.Contains(last.Evidence, c.want) {
			t.Errorf("%s: %+v, want no figure, and why", name, last)
		}
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	err := Options{Form: "x", Syntax: "x", Extract: "x", Join: "x", Compare: "x", Output: "x", Sample: -1, Tolerance: -1, CPU: -1, Wall: -1, Tiers: map[string]float64{"best": 1}}.Validate()
	if err == nil {
		t.Fatal("no fault was found")
	}
	for _, want := range []string{"form:", "syntax:", "extract:", "join:", "compare:", "output:", "sample:", "tolerance:", "cpu:", "wall:", `tiers: "best"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not name %s", err, want)
		}
	}
	if err := (Options{Tiers: map[string]float64{"all": 0}}).Validate(); err == nil {
		t.Error("weights that are all 0 were accepted")
	}
	kind := Kind(func(context.Context) (sandbox.Executor, error) { return nil, os.ErrInvalid }, small())
	for with, want := range map[string]string{`{"tiers":{}}`: "tiers: there is none", `{"cpu":"2s","test-cpu":"3s"}`: "test-cpu: 3s", `{"test-cpu":"11s"}`: "test-cpu: 11s", `{"cpu":"8s","wall":"15s"}`: "cpu: 8s, expected no more than half of wall", `{"cpu":"30s"}`: "", `{"wall":"12s"}`: "", `{"cpu":"2s"}`: "", `{"cpu":"2s","test-cpu":"2s"}`: ""} {
		_, err := kind.Make(reward.Spec{Kind: KindName, With: json.RawMessage(with)})
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", with, err, want)
		}
	}
	if _, err := kind.Make(reward.Spec{Kind: KindName, With: json.RawMessage(`{"cpu":"2s","tiers":{"all":1},"tests":"t","seed":3}`)}); err != nil {
		t.Error(err)
	}
	if _, err := kind.Make(reward.Spec{Kind: KindName, With: json.RawMessage(`{"cpuu":"2s"}`)}); err == nil || !strings.Contains(err.Error(), "cpuu") {
		t.Errorf("%v, want an error that names cpuu", err)
	}
}

// BenchmarkGrade is one verdict on a right program with three tests, with as many workers as there are cores.
func BenchmarkGrade(b *testing.B) {
	tasks := adding()
	for form, program := range map[string]string{"asserts": honest, "check": honest, "function": honest, "stdin": honestMain} {
		b.Run(form, func(b *testing.B) {
			g := newGrader(b, Options{Extract: "all"})
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if f, err := g.judge(tasks[form].task, program); err != nil || f.Score != 1 {
						b.Fatalf("%+v, %v", f, err)
					}
				}
			})
		})
	}
}

func TestWhoseFaultItIsThatTimeRanOut(t *testing.T) {
	const wall = 20 * time.Second
	for name, c := range map[string]struct {
		list    []pace
		starved bool
	}{
		"it slept":                           {[]pace{{wall, wall, 0}}, false},
		"it worked for a second, then slept": {[]pace{{time.Second, time.Second, time.Second}, {19 * time.Second, 19 * time.Second, 10 * time.Millisecond}}, false},
		"it worked a tenth of the time":      {[]pace{{wall, wall, 2 * time.Second}}, false},
		"it slept in many short tests":       {slices.Repeat([]pace{{90 * time.Millisecond, 90 * time.Millisecond, time.Millisecond}}, 222), false},
		"it worked and got little":           {[]pace{{wall, wall, 12 * time.Second}}, true},
		"nobody looked":                      {[]pace{{2 * time.Second, wall, 0}}, true},
		"it never came to run":               {nil, true},
	} {
		var sum pace
		for _, p := range c.list {
			sum.add(p)
		}
		if got := sum.starved(wall); got != c.starved {
			t.Errorf("%s: starved %v, want %v", name, got, c.starved)
		}
	}
}

// A program that worked for a while and then sleeps is not the machine's fault.
func TestSleepIsNoWayOut(t *testing.T) {
	t.Parallel() // it waits
	g := newGrader(t, Options{CPU: 1500 * time.Millisecond, TestCPU: time.Second, Wall: 3 * time.Second})
	f, err := g.judge(task("sleep", nil, `["assert f(1) == 1", "assert f(2) == 2"]`), "import time\ndef f(x):\n    if x == 2: time.sleep(100)\n    for _ in range(2000000): pass\n    return x")
	if reason(err) == SandboxFailed && busy() {
		t.Skipf("this machine is too busy: %v", err)
	}
	if err != nil || score(f, "share") != .5 {
		t.Errorf("%+v, %v; want one of two tests", f, err)
	}
}
