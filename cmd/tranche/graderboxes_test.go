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
