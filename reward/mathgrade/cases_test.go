package mathgrade

import (
	"errors"
	"os"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/reward"
)

// labelled is one line of testdata/cases.txt.
type labelled struct {
	line                        int
	answer, truth, want, remark string
}

// text is the whole text of the model.
func (c labelled) text() string {
	if t, ok := strings.CutPrefix(c.answer, "> "); ok {
		return strings.ReplaceAll(t, `\n`, "\n")
	}
	return `It is \boxed{` + c.answer + `}.`
}

func cases(t testing.TB) []labelled {
	t.Helper()
	raw, err := os.ReadFile("testdata/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []labelled
	for i, line := range strings.Split(string(raw), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, " | ")
		if len(f) != 4 {
			t.Fatalf("cases.txt:%d: %d fields, expected answer | truth | verdict | note", i+1, len(f))
		}
		out = append(out, labelled{i + 1, f[0], strings.ReplaceAll(f[1], `\n`, "\n"), f[2], f[3]})
	}
	return out
}

func input(answer, truth string) reward.Input {
	asked := "How many hours ago did Jane begin? How large is the area, and how many red apples, eggs and pears are there?"
	return reward.Input{
		Task: &episode.Task{ID: "t", Answer: &truth}, Text: answer, Said: answer != "",
		Messages: []episode.Message{{Role: episode.RoleUser, Content: &asked}}, NumPrompt: 1,
	}
}

func grader(t testing.TB, opt Options) *Grader {
	t.Helper()
	g, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// verdict is how a case is labelled: yes, no, ambiguous, none.
func verdict(t testing.TB, g reward.Grader, in reward.Input) (word, evidence string) {
	t.Helper()
	f, err := g.Grade(t.Context(), in)
	var nothing *reward.Unjudged
	switch {
	case errors.As(err, &nothing):
		return "none", nothing.Error()
	case err != nil:
		t.Fatalf("%q: %v", in.Text, err)
	case f.Score == 1:
		return "yes", f.Evidence
	case f.Score != 0:
		t.Fatalf("%q: score %v", in.Text, f.Score)
	case len(f.Parts) == 1 && f.Parts[0].Name == ambiguous:
		return ambiguous, f.Evidence
	}
	return "no", f.Evidence
}

func TestCases(t *testing.T) {
	g := grader(t, Options{})
	all := cases(t)
	if len(all) < 300 {
		t.Fatalf("%d cases, expected 300 at least", len(all))
	}
	for _, c := range all {
		if got, why := verdict(t, g, input(c.text(), c.truth)); got != c.want {
			t.Errorf("cases.txt:%d: %s | %s: %s, want %s (%s): %s", c.line, c.answer, c.truth, got, c.want, c.remark, why)
		}
	}
}
