package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is found wrong with a value after its file was read names file, line and column, as what is found while it is read; what a flag says
// has no place in the file.
func TestLateFaultsOfAFileHaveTheirPlace(t *testing.T) {
	file := write(t, "run.yaml", `
tasks: tasks.jsonl
endpoint:
- http://127.0.0.1:1/v1
- {url: "http://127.0.0.1:2/v1", batching: static}
sandbox:
  backend: ns
  disk: 1
  max-runs: -1
reward:
- {kind: exact}
- {kind: code, wall: 10h}
temperature: -1
`)
	_, err := settingsOf(t, "-c", file)
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for _, want := range []string{
		":5:4: endpoint[1]: rows: is missing", ":8:3: sandbox: disk: expected", ":9:3: sandbox: max-runs: expected", ":13:1: temperature: ",
	} {
		if !strings.Contains(err.Error(), file+want) {
			t.Errorf("without %q:\n%v", want, err)
		}
	}
	for line := range strings.Lines(err.Error()) {
		if strings.Count(line, file) != 1 {
			t.Errorf("a fault without its place, or with two: %s", line)
		}
	}
	if _, err = settingsOf(t, "-c", file, "--temperature=-2"); err == nil || !strings.HasPrefix(err.Error(), "temperature: ") {
		t.Errorf("a flag's fault has a place in the file, or none is found: %v", err)
	}
}

// So it is with what only shows when a run begins, in every command that takes a file, and codes stay what they are.
func TestFaultsAtTheStartHaveTheirPlace(t *testing.T) {
	tasks := taskFile(t, 1, "")
	run := write(t, "run.yaml", "\nreward:\n- {kind: exact}\n- {kind: python, file: missing.py}\n")
	done := newRunDir(t)
	newShell(t).do(codeOK, "run", tasks, "-o", done, "-q", "--max-tokens", "1")
	tool := write(t, "tool.yaml", "reward: none\ncommand-tool:\n- {name: t, description: d, run: [no-such-program-here]}\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", tasks, "-c", run, "-o", newRunDir(t), "-q"}, run + ":4:4: reward: graders[1]"},
		{[]string{"run", tasks, "-c", tool, "-o", newRunDir(t), "-q"}, tool + ":3:4: command-tool[0] (t): "},
		{[]string{"audit", "tasks", tasks, "-c", run, "-q"}, run + ":4:4: reward: graders[1]"},
		{[]string{"rescore", done, "-c", run, "-q"}, run + ":4:4: reward: graders[1]"},
	} {
		s := newShell(t)
		if s.do(codeUsage, c.args...); !strings.Contains(s.err.String(), c.want) {
			t.Errorf("%v: without %q:\n%s", c.args, c.want, s.err.String())
		}
	}
}

// noErrors is a list of none.
type noErrors struct{}

func (noErrors) Error() string   { return "sandbox: disk: expected" }
func (noErrors) Unwrap() []error { return nil }

func TestLocate(t *testing.T) {
	at := places{"sandbox": "f:1:1", "sandbox: disk": "f:2:3", "reward[1]": "f:4:1", "tasks": "f:5:1"}
	chain := fmt.Errorf("tasks: %w", os.ErrNotExist)
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "<nil>"},
		{errors.New("sandbox: disk: expected"), "f:2:3: sandbox: disk: expected"},
		{errors.New("sandbox: disks: expected"), "f:1:1: sandbox: disks: expected"},
		{errors.New("reward[1] (x): wall"), "f:4:1: reward[1] (x): wall"},
		{errors.New("reward[10]: wall"), "reward[10]: wall"},
		{errors.New("tasks are read"), "tasks are read"},
		{errors.Join(errors.New("other"), chain), "other\nf:5:1: tasks: file does not exist"},
		{withCode(codeTasks, chain), "f:5:1: tasks: file does not exist"},
		{outcome(codeAudit), outcome(codeAudit).Error()},
		{noErrors{}, "f:2:3: sandbox: disk: expected"},
	} {
		got := at.locate(c.err)
		if fmt.Sprint(got) != c.want || codeOf(got) != codeOf(c.err) {
			t.Errorf("%v: got %v, code %v", c.err, got, codeOf(got))
		}
	}
	if !errors.Is(at.locate(withCode(codeTasks, errors.Join(chain))), os.ErrNotExist) || !errors.Is(at.locate(outcome(codeAudit)), errOutcome) {
		t.Error("what an error is was lost")
	}
	if left := at.without(map[string]bool{"reward": true, "sandbox": true}); len(left) != 1 || left["tasks"] == "" {
		t.Errorf("left are %v", left)
	}
}

// An alias may hold itself: noting places ends all the same, with the fault that reading it gives.
func TestPlacesOfAnEndlessFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endless.yaml")
	if err := os.WriteFile(path, []byte("extra-body: {a: &x [*x, *x, *x]}\nlabels: &y {b: *y}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := defaults()
	if _, err := readSettings(path, &s, nil); err == nil || !strings.HasPrefix(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

// Places are no values: as many of these as ever may stand in a file.
func TestPlacesOfALongFile(t *testing.T) {
	text := "stop: [" + strings.Repeat("x, ", 6000) + "x]\nextra-body: {logit_bias: {0: 1"
	for i := range 1000 {
		text += fmt.Sprintf(", %d: -100", i+1)
	}
	text += "}}\ntemperature: 1\n"
	s := defaults()
	at, err := readSettings(write(t, "long.yaml", text), &s, nil)
	if err != nil || at["temperature"] == "" {
		t.Errorf("%d places, %v", len(at), err)
	}
}
