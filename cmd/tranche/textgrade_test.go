package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// The examples of the text graders play on the embedded engine: every row has a verdict, with its parts, and the total is that of the
// graders that count.
func TestExamplesOfTextGraders(t *testing.T) {
	for name, c := range map[string]struct {
		rows       int
		main       string
		components []string
	}{
		"ifeval-style":  {48, "instructions", []string{"instructions.strict", "instructions.loose", "loops", "loops.zlib", "length"}},
		"short-answers": {24, "", []string{"option", "option.parsed", "words", "words.exact", "shape", "shape.json", "bare"}},
		"tool-match":    {32, "calls", []string{"calls.names", "calls.matched"}},
	} {
		s, dir := newShell(t), newRunDir(t)
		s.do(codeOK, "run", "-c", filepath.Join("..", "..", "examples", name, "run.yaml"), "-o", dir, "-q", "--json")
		list := rowsIn(t, dir)
		if len(list) != c.rows {
			t.Errorf("%s: %d rows, want %d", name, len(list), c.rows)
		}
		for key, row := range list {
			scores := map[string]float64{}
			for _, r := range row.Rewards {
				if r.Score == nil || !strings.Contains(*r.Grader, "/1") {
					t.Fatalf("%s %s: no verdict: %+v", name, key, r)
				}
				scores[*r.Name] = *r.Score
			}
			if c.main == "" { // several count
				scores[""] = (scores["option"] + scores["words"]/2 + scores["shape"]/2) / 2
			}
			if row.Reward == nil || *row.Reward != scores[c.main] {
				t.Errorf("%s %s: reward %v, %s %v", name, key, row.Reward, c.main, scores[c.main])
			}
			for _, want := range c.components {
				if _, ok := scores[want]; !ok {
					t.Errorf("%s %s: no component %s in %v", name, key, want, scores)
				}
			}
		}
	}
}

// Tasks without a ground truth are told of where a grader compares with one, and only there.
func TestTasksWithoutAnswersAreToldWhereOneIsNeeded(t *testing.T) {
	for reward, want := range map[string]bool{"exact": true, "{kind: regex}": true, "{kind: regex, pattern: a}": false, "repetition": false} {
		s := newShell(t)
		s.do(codeOK, "run", "../../examples/ifeval-style/tasks.jsonl", "-c", settingsFile(t, "reward: ["+reward+"]\n"), "--limit", "1", "-o", newRunDir(t))
		if got := strings.Contains(s.err.String(), "state no answer"); got != want {
			t.Errorf("%s: told %v, want %v: %s", reward, got, want, s.err.String())
		}
	}
}

// An option that a kind does not know is refused before anything is sent, by its name and with those that it knows.
func TestOptionsOfTextGradersAreChecked(t *testing.T) {
	s := newShell(t)
	s.do(codeUsage, "run", taskFile(t, 1, ""), "-c", settingsFile(t, "reward:\n- {kind: ifeval, mood: strict}\n"), "-o", newRunDir(t), "-q")
	if text := s.err.String(); !strings.Contains(text, "mood") || !strings.Contains(text, "mode") {
		t.Errorf("stderr %s", text)
	}
}
