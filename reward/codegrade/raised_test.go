//go:build linux && (amd64 || arm64)

package codegrade

import (
	"testing"
	"time"
)

// Only what the answer's function raised is an exception inside the tests: a call that came to nothing loses its test, whatever that catches.
func TestOnlyAnExceptionThatWasRaisedIsCaught(t *testing.T) {
	t.Parallel() // one of them waits for its end
	catch := func(what string) string {
		return "try:\n    f(-1)\n    assert False, 1\nexcept " + what + ":\n    pass\n"
	}
	tests := task("raised", map[string]any{"entry_point": "f", "test": catch("ValueError") + catch("Exception") + catch("BaseException") + catch("") +
		"got = 0\ntry:\n    f(-1)\nfinally:\n    got = 1\nassert got == f(1)\n"}, "")
	whole := task("whole", map[string]any{"entry_point": "f", "test": "def check(candidate):\n    try:\n        candidate(-1)\n    except:\n        return\n    assert False\n"}, "")
	const share = 1. / 5
	list := []question{{name: "a check that returns", task: whole, answer: "import os\ndef f(x): os._exit(0)"},
		{name: "a check that returns, raised", task: whole, answer: "def f(x): raise KeyError", want: 1}}
	for _, c := range []struct {
		name, does string
		want       float64
	}{
		{"nothing", "pass", 4 * share}, // all but ValueError catch its `assert False`
		{"an object", "return object()", 0},
		{"an object with its own words", "return type('raised ValueError', (), {})()", 0},
		{"an iterator that raises", "return map(int, 'x')", 0},
		{"a hard exit", "os._exit(0)", 0},
		{"a kill", "os.kill(os.getpid(), 9)", 0},
		{"no end", "while 1: pass", 0},
		{"words of its own", "os.write(100, b'%015d\\n{}' % 2)", 0},
		{"SystemExit", "raise SystemExit", 3 * share},
		{"BaseException", "raise BaseException", 3 * share},
		{"one of its own that is no Exception", "raise type('ValueError', (BaseException,), {})", 3 * share},
		{"one of its own that has the name", "raise type('ValueError', (Exception,), {})", 4 * share},
		{"TypeError", "raise TypeError", 4 * share},
		{"ValueError", "raise ValueError('no')", 1},
		{"one of its own that is a ValueError", "raise type('No', (ValueError,), {})", 1},
		{"one that is not made of a text", "b'\\xff'.decode()", 1},
	} {
		answer := "import os\ndef f(x):\n    if x == 1: return 1\n    " + c.does + "\n"
		list = append(list, question{name: c.name, task: tests, answer: answer, want: c.want, waits: c.name == "no end"})
	}
	newGrader(t, Options{Tiers: map[string]float64{"share": 1}, TestCPU: 300 * time.Millisecond}).settle(t, list, 4)
}
