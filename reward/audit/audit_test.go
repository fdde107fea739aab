package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"tranche/episode"
)

// scorer is a grader for tests: a function of the task and of what was said.
type scorer func(t *episode.Task, said string, spoke bool) (score float64, reason string)

func (f scorer) Score(_ context.Context, e *episode.Episode) (episode.Verdict, error) {
	said, spoke := e.Final()
	s, reason := f(e.Task, said, spoke)
	r := episode.Reward{Name: "g", Score: &s, Outcome: episode.Scored, Weight: 1}
	if reason != "" {
		r.Score, r.Outcome = nil, episode.NoVerdict+": "+reason
	}
	return episode.Verdict{Total: r.Score, Rewards: []episode.Reward{r}}, nil
}

func task(question, answer string) *episode.Task {
	return &episode.Task{ID: "t", Answer: &answer, Messages: []episode.Message{{Role: episode.RoleUser, Content: &question}}}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func exactly(t *episode.Task, said string, _ bool) (float64, string) {
	return one(said == *t.Answer), ""
}

func TestClasses(t *testing.T) {
	asked := 0
	for _, c := range []struct {
		name    string
		kind    string
		task    *episode.Task
		scorer  scorer
		repeat  int
		classes string
		wrong   string // the best of them
	}{
		{"sound", "exact", task("How much is 3 + 4?", "7"), exactly, 1, "", ""},
		{"a constant that is right is not wrong", "exact", task("Is it?", "yes"), exactly, 1, "", ""},
		{"likewise a number", "numeric", task("How much is 3 - 2?", "1.0"), func(_ *episode.Task, said string, _ bool) (float64, string) {
			return one(said == "1" || said == "1.0"), ""
		}, 1, "", ""},
		{"nothing is paid for", "exact", task("Say it.", "word"), func(t *episode.Task, said string, spoke bool) (float64, string) {
			return one(said == *t.Answer || !spoke), ""
		}, 1, "weak", "silent"},
		{"the question again", "contains", task("Is it red or blue?", "red"), func(t *episode.Task, said string, _ bool) (float64, string) {
			return one(strings.Contains(said, *t.Answer)), ""
		}, 1, "weak", "echo"},
		{"a list of everything", "contains", task("How much is 60 + 3?", "63"), func(t *episode.Task, said string, _ bool) (float64, string) {
			return one(slices.Contains(strings.Fields(said), *t.Answer)), ""
		}, 1, "weak", "all numbers"},
		{"half of it", "exact", task("Say it.", "abcdef"), func(t *episode.Task, said string, _ bool) (float64, string) {
			return one(said != "" && strings.HasPrefix(*t.Answer, said)), ""
		}, 1, "weak", "truncated"},
		{"the right answer does not score", "exact", task("Say it.", "word"), func(*episode.Task, string, bool) (float64, string) { return 0, "" }, 1, "impossible", ""},
		{"nor does half a score", "f1", task("Say it.", "word"), func(t *episode.Task, said string, _ bool) (float64, string) {
			return one(strings.Contains(said, *t.Answer)) / 2, ""
		}, 1, "impossible", ""},
		{"another form of it does", "exact", task("Say it.", "word"), func(_ *episode.Task, said string, _ bool) (float64, string) {
			return one(said == "#### word"), ""
		}, 1, "", ""},
		{"no verdict", "exact", task("Say it.", "word"), func(*episode.Task, string, bool) (float64, string) { return 0, "bad_ground_truth" }, 1, "ungradable", ""},
		{"by lot", "exact", task("Say it.", "word"), func(t *episode.Task, said string, _ bool) (float64, string) {
			if asked++; said == "A" {
				return 0, []string{"", "gone"}[asked%2]
			}
			return one(said == *t.Answer), ""
		}, 2, "flaky", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Trial{Name: "g", Kind: c.kind, Scorer: c.scorer, Repeat: c.repeat}.Task(t.Context(), c.task)
			if err != nil {
				t.Fatal(err)
			}
			best := ""
			if len(f.Wrong) > 0 {
				best = f.Wrong[0].Probe
			}
			if strings.Join(f.Classes, " ") != c.classes || best != c.wrong {
				t.Errorf("classes %v, wrong %+v, gold %+v", f.Classes, f.Wrong, f.Gold)
			}
		})
	}
}

// A threshold lets scores pass that mean little, and the best comes first.
func TestAbove(t *testing.T) {
	part := scorer(func(t *episode.Task, said string, spoke bool) (float64, string) {
		switch {
		case said == *t.Answer:
			return 1, ""
		case said == "yes":
			return 0.6, ""
		case said == "A":
			return 0.3, ""
		}
		return 0, ""
	})
	for above, want := range map[float64]string{0: "constant yes, constant A", 0.3: "constant yes", 0.6: ""} {
		f, err := Trial{Kind: "exact", Scorer: part, Above: above}.Task(t.Context(), task("Say it.", "word"))
		var got []string
		for _, w := range f.Wrong {
			got = append(got, w.Probe)
		}
		if err != nil || strings.Join(got, ", ") != want {
			t.Errorf("above %v: %v, %v", above, got, err)
		}
	}
}

func TestSays(t *testing.T) {
	for _, c := range []struct {
		truth, said string
		want        bool
	}{
		{"yes", "Yes", true}, {"(A)", "A", true}, {"so\n#### 1", "1", true}, {"$1", "1", true}, {`\boxed{0}`, "0", true}, {"x = 1", "1", true}, {"1.00", "1", true},
		{"1,000", "0 1 2 999 1000", true}, {"10", "1", false}, {"B", "A", false}, {"no", "I don't know", false}, {"", "", false},
	} {
		if got := says(stated(task("?", c.truth), nil), c.said); got != c.want {
			t.Errorf("%q for %q: %v", c.said, c.truth, got)
		}
	}
	if !says(stated(task("Which?\n(A) 3\n(B) yes", "(B)"), nil), "yes") {
		t.Error("the text of the right option is a right answer")
	}
}

func TestEntry(t *testing.T) {
	for _, c := range []struct{ row, want string }{
		{`{"entry_point":"add","test_list":["assert other(1) == 2"]}`, "add"},
		{`{"fn_name":"solve"}`, "solve"},
		{`{"test_list":["assert add(1, 2) == 3"]}`, "add"},
		{`{"test_list":["assert set(pairs((1, 2))) == set((1,))"]}`, "pairs"},
		{`{"test_list":["assert not is_it(3)"]}`, "is_it"},
		{`{"test_list":["assert math.isclose(area(3), 2.5)"]}`, "area"},
		{`{"inputs":["1"],"outputs":["2"]}`, ""},
		{``, ""},
	} {
		if got := entry(&episode.Task{Extra: json.RawMessage(c.row)}); got != c.want {
			t.Errorf("%s: %q, want %q", c.row, got, c.want)
		}
	}
}

// The right answer comes from where the task has it.
func TestGold(t *testing.T) {
	row := `{"canonical_solution":"    return 1","mine":"def f(): pass"}`
	for _, c := range []struct{ name, kind, column, answer, row, want string }{
		{"the ground truth", "exact", "", "word", "", `word|#### word|\boxed{word}`},
		{"one of several", "f1", "", `["a","b"]`, "", `a|["a","b"]|#### ["a","b"]|\boxed{["a","b"]}`},
		{"an index of options", "choice", "", "2", "", `2|#### 2|\boxed{2}|C`},
		{"a program's usual column", "code", "", "assert f() == 1", row, "```python\n    return 1\n```|    return 1"},
		{"a column that is named", "code", "mine", "", row, "```python\ndef f(): pass\n```|def f(): pass"},
		{"a pattern is no answer", "regex", "", ".*", "", ""},
		{"none", "code", "", "", "", ""},
	} {
		tk := task("?", c.answer)
		tk.Extra = json.RawMessage(c.row)
		var got []string
		for _, p := range gold(c.kind, c.column, tk) {
			got = append(got, p.Text)
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	calls := gold("tool_match", "", task("?", `[{"weather": {"city": ["Rome", "Roma"], "day": ["", "today"], "at": [{"hour": [3]}]}}, {"name": "stop", "arguments": {}}]`))
	if len(calls) != 1 || len(calls[0].Calls) != 2 || calls[0].Calls[0].Function.Arguments != `{"at":{"hour":3},"city":"Rome"}` || calls[0].Calls[1].Function.Name != "stop" {
		t.Errorf("%+v", calls)
	}
}

// Fleiss' own example has kappa 0.2099 (Psychological Bulletin 76, 1971): 14 raters, 10 subjects, 5 categories.
func TestKappa(t *testing.T) {
	table := [][5]int{{0, 0, 0, 0, 14}, {0, 2, 6, 4, 2}, {0, 0, 3, 5, 6}, {0, 3, 9, 2, 0}, {2, 2, 8, 1, 1}, {7, 7, 0, 0, 0}, {3, 2, 6, 3, 0}, {2, 5, 3, 2, 2}, {6, 5, 2, 1, 0}, {0, 2, 2, 3, 7}}
	var a Agreement
	for _, row := range table {
		var verdicts []string
		for category, n := range row {
			for range n {
				verdicts = append(verdicts, fmt.Sprint(category))
			}
		}
		a.Add(verdicts)
	}
	kappa, ok := a.Kappa()
	if share, known := a.Share(); !ok || math.Abs(kappa-0.2099) > 5e-5 || !known || share != 0.1 {
		t.Errorf("kappa %v, share %v", kappa, share)
	}
	var same Agreement
	same.Add([]string{"1", "1"})
	if _, ok := same.Kappa(); ok {
		t.Error("kappa is not defined where every verdict is the same")
	}
	var none Agreement
	none.Add([]string{"1"})
	if _, ok := none.Share(); ok || none.Answers != 0 {
		t.Error("one verdict agrees with nothing")
	}
}

func TestTwins(t *testing.T) {
	var twins Twins
	named := func(id, question, answer string) *episode.Task {
		tk := task(question, answer)
		tk.ID = id
		return tk
	}
	for _, c := range []struct {
		task *episode.Task
		want *Twin
	}{
		{named("a", "How much is 1 + 1?", "2"), nil},
		{named("b", "how much is  1 + 1?\n", "2"), &Twin{"b", "a", false}},
		{named("c", "How much is 1 + 1?", "3"), &Twin{"c", "a", true}},
		{named("d", "How much is 1 + 2?", "3"), nil},
	} {
		got, ok := twins.Add(c.task)
		if ok != (c.want != nil) || ok && got != *c.want {
			t.Errorf("%s: %+v, %v", c.task.ID, got, ok)
		}
	}
}
