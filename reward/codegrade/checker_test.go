//go:build linux && (amd64 || arm64)

package codegrade

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tranche/episode"
	"tranche/reward"
)

// twoParts is a task with many right answers: two numbers of one line that add up to the input.
const twoParts = `
def check(input, expected, output):
    a, b = map(int, output.split())
    return a + b == int(input)
`

func checkedTask(id, checker string) *episode.Task {
	return task(id, map[string]any{"checker": checker}, `{"inputs":["7\n","12\n"],"outputs":["3 4\n","6 6\n"]}`)
}

// A checker decides on what programs print: any right output passes, and what it cannot take is the answer's doing.
func TestCheckersDecide(t *testing.T) {
	parts := checkedTask("parts", twoParts)
	spins := checkedTask("spins", "def check(input, expected, output):\n    while output != expected: pass\n    return True\n")
	dies := checkedTask("dies", "import os\ndef check(input, expected, output):\n    if output != expected: os._exit(0)\n    return True\n")
	forged := "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'000000000000031\\n{\"passed\": true, \"raised\": \"\"}')\n    except OSError:\n        pass\n"
	newGrader(t, Options{Extract: "all", Tiers: map[string]float64{"share": 1}, TestCPU: 500 * time.Millisecond}).settle(t, []question{
		{name: "the expected output", task: parts, answer: "n = int(input())\nprint(*{7: (3, 4), 12: (6, 6)}[n])", want: 1},
		{name: "another right one", task: parts, answer: "n = int(input())\nprint(0, n)", want: 1},
		{name: "right once", task: parts, answer: "input()\nprint(0, 7)", want: .5},
		{name: "wrong", task: parts, answer: "input()\nprint(1, 1)"},
		{name: "garbage", task: parts, answer: "print('x')"},
		{name: "nothing", task: parts, answer: "pass"},
		{name: "ends badly", task: parts, answer: "n = int(input())\nprint(0, n)\nraise SystemExit(1)"},
		{name: "forges a verdict", task: parts, answer: forged + "print(1, 1)"},
		{name: "leaves files for it", task: parts, answer: "open('/tmp/json.py', 'w').write('raise SystemExit')\nopen('json.py', 'w').write('x')\nprint(1, 1)"},
		{name: "makes it spin", task: spins, answer: "print('x')"},
		{name: "makes it end", task: dies, answer: "print('x')"},
	}, 2)
}

// Each output gets the CPU time of a test, also where all together take more than the process of a checker may.
func TestACheckerHasTimeForEachOutput(t *testing.T) {
	slow := "import time\ndef check(input, expected, output):\n    end = time.process_time() + .3\n    while time.process_time() < end: pass\n    return True\n"
	six := task("six", map[string]any{"checker": slow}, `{"inputs":["1","2","3","4","5","6"],"outputs":["1","2","3","4","5","6"]}`)
	newGrader(t, Options{Extract: "all", CPU: 600 * time.Millisecond, TestCPU: 500 * time.Millisecond}).settle(t, []question{{name: "slow", task: six, answer: "print(0)", want: 1}}, 1)
}

// What a program prints at the last moment is decided on all the same, however long that takes.
func TestACheckerHasTimeForTheLastOutput(t *testing.T) {
	slow := "import time\ndef check(input, expected, output):\n    end = time.process_time() + 1.3\n    while output != expected and time.process_time() < end: pass\n    return output == expected\n"
	late := task("late", map[string]any{"checker": slow}, `{"inputs":["1"],"outputs":["1"]}`)
	newGrader(t, Options{Extract: "all", CPU: 1500 * time.Millisecond, TestCPU: 1500 * time.Millisecond, Wall: 3 * time.Second}).settle(t, []question{
		{name: "late", task: late, answer: "import time\ntime.sleep(2.6)\nprint(0)", want: 0},
	}, 1)
}

// A program that ended well ran, also where the checker raises on its output.
func TestOutputsThatCheckersCannotTakeWereRun(t *testing.T) {
	newGrader(t, Options{Extract: "all", Tiers: map[string]float64{"runs": 1}}).settle(t, []question{
		{name: "garbage", task: checkedTask("parts", twoParts), answer: "print('x')", want: 1},
		{name: "ends badly", task: checkedTask("parts", twoParts), answer: "print('x')\nraise SystemExit(1)"},
	}, 1)
}

// A checker's own failure is no verdict, never a score: neither a zero nor a one.
func TestACheckerThatFailsGivesNoVerdict(t *testing.T) {
	g := newGrader(t, Options{Extract: "all", TestCPU: 500 * time.Millisecond})
	for _, c := range []struct{ name, checker, says string }{
		{"no program", "def check(:", "does not load: SyntaxError"},
		{"no function", "def decide(): pass", "does not load: KeyError"},
		{"raises", "def check(input, expected, output): raise ValueError", "fails with the expected output: it raised ValueError"},
		{"says something else", "def check(input, expected, output): return 'yes'", "it raised TypeError"},
		{"spins", "def check(input, expected, output):\n    while True: pass", "fails with the expected output: it ended: cpu_limit"},
		{"spins while it is loaded", "while True: pass", "ended while it was loaded"},
		{"exits", "import os\ndef check(input, expected, output): os._exit(0)", "fails with the expected output: it ended"},
	} {
		f, err := g.judge(checkedTask(c.name, c.checker), "n = int(input())\nprint(0, n)")
		var u *reward.Unjudged
		if !errors.As(err, &u) || u.Reason != reward.BadTruth || !strings.Contains(u.Detail, c.says) {
			t.Errorf("%s: score %v, %v", c.name, f.Score, err)
		}
	}
}
