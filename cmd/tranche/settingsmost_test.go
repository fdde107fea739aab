package main

import (
	"strings"
	"testing"
)

// What the storage or the tools would refuse later is refused with the settings, in a dry run too.
func TestSettingsBeyondTheirMost(t *testing.T) {
	tasks := taskFile(t, 1, "")
	for flag, want := range map[string]string{
		"--row-group-bytes=2GiB": "row-group-bytes: expected 1GiB at most, found 2GiB",
		"--part-bytes=17GiB":     "part-bytes: expected 16GiB at most, found 17GiB",
		"--journal-sync=1h":      "journal-sync: expected 1m0s at most, found 1h0m0s",
		"--max-observation=64":   "max-observation: expected 256 or more, found 64",
	} {
		s := newShell(t)
		s.do(codeUsage, "run", tasks, flag, "--dry-run", "-o", newRunDir(t))
		if said := s.err.String(); !strings.Contains(said, want) {
			t.Errorf("%s: said %s", flag, said)
		}
	}
}
