package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A reward timeout that is shorter than a verdict may take ends the run before it begins, by the settings of each grader.
func TestTheRewardTimeoutIsCheckedBeforeARun(t *testing.T) {
	settings := filepath.Join(t.TempDir(), "run.yaml")
	text := "score-timeout: 30s\nreward:\n- {kind: code, name: fits, wall: 23s}\n- {kind: code, name: long, wall: 24s}\n- {kind: code, name: twice, wall: 12s, reference: code}\n"
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	s.do(codeUsage, "run", taskFile(t, 1, ""), "-c", settings, "--endpoint", answering(t, 0).URL(), "-o", newRunDir(t), "-q")
	said := s.out.String() + s.err.String()
	for _, want := range []string{"long: the reward timeout is 30s, and a verdict may take 31s", "twice: the reward timeout is 30s, and a verdict may take 31s"} {
		if !strings.Contains(said, want) {
			t.Errorf("%s\nwithout %q", said, want)
		}
	}
	if strings.Contains(said, "fits") {
		t.Errorf("%s\nthe first has time enough", said)
	}
}

// A grader of programs that finds no tests in any task ends the run before it begins; where some have them, it is said.
func TestTasksWithoutTestsAreToldBeforeARun(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	none := "{\"id\":\"a\",\"prompt\":\"Add.\"}\n"
	tasks := write("none.jsonl", none)
	mixed := write("mixed.jsonl", none+"{\"id\":\"b\",\"prompt\":\"Add.\",\"test_list\":[\"assert f(1) == 1\"]}\n")
	repo, asserts := write("repo.yaml", "reward:\n- {kind: code, name: tree, form: repo}\n"), write("asserts.yaml", "reward:\n- {kind: code, name: tests, form: asserts}\n")
	for _, c := range []struct {
		name, tasks, settings string
		want                  code
		says                  string
	}{
		{"a repository", tasks, repo, codeUsage, "tree: 1 of 1 tasks that were looked at have no tests for it"},
		{"asserts", tasks, asserts, codeUsage, "tests: 1 of 1 tasks"},
		{"some", mixed, asserts, codeOK, "tests: 1 of 2 tasks"},
	} {
		s := newShell(t)
		s.do(c.want, "run", c.tasks, "-c", c.settings, "--endpoint", answering(t, 0).URL(), "-o", newRunDir(t), "--dry-run")
		if said := s.out.String() + s.err.String(); !strings.Contains(said, c.says) {
			t.Errorf("%s: %s\nwithout %q", c.name, said, c.says)
		}
	}
}
