package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/reward"
)

// quick is a grader of a kind with options.
type quick struct {
	CPU   time.Duration      `json:"cpu"`
	Tiers map[string]float64 `json:"tiers"`
	Tests string             `json:"tests"`
}

func (quick) ID() string { return "quick/2" }

func (q quick) Grade(context.Context, reward.Input) (reward.Finding, error) {
	return reward.Finding{Score: q.Tiers["all"], Evidence: q.CPU.String()}, nil
}

func quickKind() reward.Kind {
	return reward.Kind{Name: "quick", Make: func(s reward.Spec) (reward.Grader, error) {
		q := quick{CPU: time.Second}
		return q, reward.ReadOptions(s, &q)
	}}
}

func settingsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// The options of a kind stand beside the keys that every kind has, also those that a built-in kind has too; they go through run.yaml and
// back, and the same run is resumed.
func TestRewardOptionsOfAKind(t *testing.T) {
	path := settingsFile(t, "reward:\n- {kind: quick, name: tests, weight: 2, tests: all, cpu: 10s, tiers: {all: 0.75}}\n- auto\n")
	dir := newRunDir(t)
	s := newShell(t)
	s.app.graders = []reward.Kind{quickKind()}
	s.do(codeOK, "run", taskFile(t, 3, ""), "-c", path, "-o", dir, "--json", "-q")
	for key, row := range rowsIn(t, dir) {
		if r := row.Rewards[0]; *r.Name != "tests" || r.Score == nil || *r.Score != 0.75 || *r.Evidence != "10s" || *r.Grader != "quick/2" || r.Weight != 2 {
			t.Errorf("%s: %+v", key, r)
		}
	}
	s.do(codeOK, "resume", dir, "-q")
	var set Settings
	if err := readSettings(filepath.Join(dir, runFileName), &set, nil); err != nil {
		t.Fatal(err)
	}
	if got := string(encode(set.Reward)); got != `[{"name":"tests","kind":"quick","weight":2,"cpu":"10s","tests":"all","tiers":{"all":0.75}},{"kind":"auto"}]` {
		t.Errorf("run.yaml gives %s", got)
	}
}

func TestRewardFaults(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"an option nobody knows":       {"reward: {kind: quick, marker: x}", "graders[0] (quick): marker: unknown option, expected one of cpu, tests, tiers"},
		"a wrong value":                {"reward: {kind: quick, cpu: 10}", `cpu: expected a time with its unit such as "10s", found 10`},
		"a misspelt key of a built-in": {"reward: {kind: auto, makrer: x}", `reward: unknown key "makrer"; did you mean "marker"?`},
		"twice":                        {"reward: {kind: quick, max-x: 1, max_x: 2}", "max-x is given twice"},
		"no kind":                      {"reward: {weight: 1}", "reward: kind: is missing"},
		"an unknown kind":              {"reward: {kind: quikc, cpu: 1s}", `kind: "quikc", expected one of auto, contains, exact, none, numeric, quick, regex`},
		"a weight that is no number":   {"reward: {kind: quick, weight: x}", "weight"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t)
			s.app.graders = []reward.Kind{quickKind()}
			s.do(codeUsage, "run", taskFile(t, 1, ""), "-c", settingsFile(t, c.yaml), "-o", newRunDir(t), "-q")
			if out := s.err.String(); !strings.Contains(out, c.want) {
				t.Errorf("%s\nwant %q", out, c.want)
			}
		})
	}
}

// A spec without options of its kind is written as it always was: the digest of a run must not change.
func TestRewardSpecIsWrittenAsBefore(t *testing.T) {
	w := 0.5
	spec := RewardSpec{Name: "a<b", Kind: "regex", Weight: &w, Pattern: "<a>&", Normalize: []string{}, From: "final"}
	want := `{"name":"a<b","kind":"regex","weight":0.5,"pattern":"<a>&","normalize":[],"from":"final"}`
	if got := string(encode(RewardSpecs{spec})); got != "["+want+"]" {
		t.Errorf("%s\nwant %s", got, want)
	}
	if !json.Valid(encode(RewardSpec{Kind: "quick", With: Object{"a": json.RawMessage("1")}})) {
		t.Error("no valid JSON")
	}
}
