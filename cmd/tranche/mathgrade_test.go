package main

import (
	"strings"
	"testing"
)

// The example runs on the embedded engine, which says the truth of most tasks and of others something else: what is right as text is right
// as mathematics, and there is some of both.
func TestMathExample(t *testing.T) {
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codeOK, "run", "-c", "../../examples/math/run.yaml", "-o", dir, "-q", "--json")
	if d := s.document(); d.Dataset.Good != 56 || d.Dataset.Reward.Mean == nil {
		t.Errorf("%+v", d.Dataset)
	}
	scores := map[float64]int{}
	for key, row := range rowsIn(t, dir) {
		if len(row.Rewards) != 2 || *row.Rewards[0].Grader != "math/1" || row.Rewards[0].Score == nil || row.Rewards[1].Score == nil {
			t.Errorf("%s: %+v", key, row.Rewards)
			continue
		}
		if *row.Rewards[0].Score < *row.Rewards[1].Score {
			t.Errorf("%s: right as text alone: %s", key, *row.Rewards[0].Evidence)
		}
		scores[*row.Rewards[0].Score]++
	}
	if scores[1] < 20 || scores[0] < 3 || scores[0]+scores[1] != 56 {
		t.Errorf("scores %v", scores)
	}
}

// An option that is wrong is said before anything runs.
func TestMathOptionsAreChecked(t *testing.T) {
	s := newShell(t)
	cfg := write(t, "run.yaml", "reward:\n- {kind: math, units: metric}\n")
	s.do(codeUsage, "run", arithmetic, "-c", cfg, "-o", newRunDir(t), "-q")
	if !strings.Contains(s.err.String(), `units: "metric", expected one of compatible, strict, ignore`) {
		t.Errorf("%s", s.err.String())
	}
}
