package mathgrade

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// dataFile opens a file of real data, or skips the test.
func dataFile(t testing.TB, path ...string) *bufio.Scanner {
	t.Helper()
	dir := os.Getenv("TRANCHE_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	f, err := os.Open(filepath.Join(append([]string{dir}, path...)...))
	if err != nil {
		t.Skipf("no real data: %v (set TRANCHE_DATA)", err)
	}
	t.Cleanup(func() { f.Close() })
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	return lines
}

// solution is a model's answer with a person's label.
type solution struct {
	line          int
	model         string
	truth, answer string
	correct       bool
}

func solutions(t testing.TB) []solution {
	t.Helper()
	lines := dataFile(t, "tasks-gsm8k", "example_model_solutions.first660.jsonl")
	var out []solution
	for n := 1; lines.Scan(); n++ {
		row := map[string]json.RawMessage{}
		var truth string
		if json.Unmarshal(lines.Bytes(), &row) != nil || json.Unmarshal(row["ground_truth"], &truth) != nil {
			t.Fatalf("line %d cannot be read", n)
		}
		for _, model := range []string{"6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"} {
			var label struct {
				Correct  *bool  `json:"is_correct"`
				Solution string `json:"solution"`
			}
			if err := json.Unmarshal(row[model], &label); err != nil || label.Correct == nil {
				t.Fatalf("line %d, %s: %v", n, model, err)
			}
			out = append(out, solution{n, model, truth, label.Solution, *label.Correct})
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// Answers of real models with labels; truths and answers end with "A: " and the result.
func TestAgreesWithLabels(t *testing.T) {
	all := solutions(t)
	g := grader(t, Options{Markers: []string{"A:"}})
	agreed := 0
	for _, s := range all {
		got, why := verdict(t, g, input(s.answer, s.truth))
		if (got == "yes") == s.correct && got != "none" {
			agreed++
			continue
		}
		t.Logf("line %d, %s: label %v, got %s: %s", s.line, s.model, s.correct, got, why)
	}
	t.Logf("agreement %d of %d (%.4f)", agreed, len(all), float64(agreed)/float64(len(all)))
	if len(all) != 2640 || float64(agreed) < 0.995*float64(len(all)) {
		t.Errorf("agreement %d of %d, want 0.995 of 2640", agreed, len(all))
	}
}

// Each worked answer of the data is right by its own truth.
func TestWorkedAnswersAreRight(t *testing.T) {
	lines := dataFile(t, "tasks-gsm8k", "test.first660.jsonl")
	g := grader(t, Options{})
	n := 0
	for ; lines.Scan(); n++ {
		var row struct{ Answer string }
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		if got, why := verdict(t, g, input(row.Answer, row.Answer)); got != "yes" {
			t.Errorf("line %d: %s: %s", n+1, got, why)
		}
	}
	if n != 660 {
		t.Errorf("%d lines, want 660", n)
	}
}

// Every target of BIG-Bench Hard is right by itself, boxed or behind a marker, and another target of the same task that is written
// otherwise is wrong.
func TestOtherTargetsAreWrong(t *testing.T) {
	lines := dataFile(t, "tasks-bbh", "bbh.firsthalf.jsonl")
	g := grader(t, Options{})
	last := map[string]string{}
	n, wrong := 0, 0
	for ; lines.Scan(); n++ {
		var row struct{ Task, Target string }
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		if row.Target == "" { // the line about training corpora
			continue
		}
		forms := []string{"So the answer is " + row.Target + ".", `\boxed{` + row.Target + `}`}
		if row.Task == "dyck_languages" { // braces that no box can hold
			forms = forms[:1]
		}
		for _, form := range forms {
			if got, why := verdict(t, g, input(form, row.Target)); got != "yes" {
				t.Errorf("line %d (%s): %s: %s", n+1, row.Task, got, why)
			}
		}
		if other := last[row.Task]; other != "" && words(other) != words(row.Target) {
			wrong++
			if got, why := verdict(t, g, input(`\boxed{`+other+`}`, row.Target)); got != "no" {
				t.Errorf("line %d (%s): %s: %s", n+1, row.Task, got, why)
			}
		}
		last[row.Task] = row.Target
	}
	if n < 1000 || wrong < 500 {
		t.Errorf("%d lines, %d wrong answers: fewer than expected", n, wrong)
	}
}

// Labels of others, JSON lines of {gold, pred, expected} in the file that TRANCHE_MATH_LABELS names, such as those of math-verify's own tests:
// disagreements are listed, and judged by a person.
func TestLabelsOfOthers(t *testing.T) {
	path := os.Getenv("TRANCHE_MATH_LABELS")
	if path == "" {
		t.Skip("set TRANCHE_MATH_LABELS to a file of {gold, pred, expected}")
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g := grader(t, Options{Simplify: os.Getenv("TRANCHE_MATH_SIMPLIFY")})
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	n, agreed := 0, 0
	for ; lines.Scan(); n++ {
		var row struct {
			Gold, Pred string
			Expected   int
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		got, why := verdict(t, g, input(row.Pred, row.Gold))
		if (got == "yes") == (row.Expected == 1) && got != "none" {
			agreed++
			continue
		}
		t.Logf("line %d: %s, theirs %d: gold %s: %s", n+1, got, row.Expected, short(row.Gold), why)
	}
	t.Logf("agreement %d of %d", agreed, n)
	if n == 0 {
		t.Error("no labels")
	}
}
