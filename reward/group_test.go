package reward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"tranche/episode"
)

// sample is one of a group: what the model said in one turn of so many tokens, scored by the run's graders.
func sample(t *testing.T, s *Scorer, task *episode.Task, text string, tokens int32) *episode.Episode {
	t.Helper()
	e := said(task, text)
	e.Turns = []episode.Turn{{CompletionTokens: &tokens}}
	if tokens < 0 {
		e.Turns[0].CompletionTokens = nil
	}
	e.Verdict = score(t, s, e)
	return e
}

// shown writes the score of one component of each verdict.
func shown(vs []episode.Verdict, name string) string {
	var out []string
	for _, v := range vs {
		for _, r := range v.Rewards {
			if r.Name == name {
				out = append(out, text(r.Score))
			}
		}
	}
	return strings.Join(out, " ")
}

func scoreGroup(t *testing.T, s *Scorer, samples []*episode.Episode, whole bool) []episode.Verdict {
	t.Helper()
	vs, err := s.ScoreGroup(context.Background(), samples, whole)
	if err != nil || len(vs) != len(samples) {
		t.Fatalf("%d verdicts of %d samples, %v", len(vs), len(samples), err)
	}
	return vs
}

func TestMajority(t *testing.T) {
	for _, c := range []struct {
		name          string
		said          []string
		agree, voted  string
		evidenceFirst string
	}{
		{"numbers by value", []string{"#### 18", "so 18.00", `\boxed{36/2}`, "#### 19"}, "0.6666666666666666 0.6666666666666666 0.6666666666666666 0", "1 1 1 0", "18 is the answer of 3 of 4"},
		{"units do not matter", []string{"#### 18 dollars", "#### $18"}, "1 1", "1 1", "18 is the answer of 2 of 2"},
		{"words", []string{"#### Paris", "so\n#### paris ", "#### Rome"}, "0.5 0.5 0", "1 1 0", `"paris" is the answer of 2 of 3`},
		{"a tie has no winner", []string{"1", "1", "2", "2", "3"}, "0.25 0.25 0.25 0.25 0", "null null null null 0", "1 is the answer of 2 of 5"},
		{"all differ", []string{"1", "2"}, "0 0", "null null", "1 is the answer of 1 of 2"},
		{"silence agrees with nobody", []string{"", "", "1"}, "0 0 0", "0 0 1", "no answer"},
		{"alone", []string{"1"}, "null", "", "a majority needs two samples that ended well"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScorer(t, Config{Graders: []Spec{{}, {Kind: KindMajority}}})
			defer requireClose(t, s)
			var group []*episode.Episode
			for _, said := range c.said {
				group = append(group, sample(t, s, answer("18"), said, 5))
			}
			vs := scoreGroup(t, s, group, true)
			if got := shown(vs, "majority"); got != c.agree {
				t.Errorf("agree %s, want %s", got, c.agree)
			}
			if got := shown(vs, "majority.voted"); got != c.voted {
				t.Errorf("voted %s, want %s", got, c.voted)
			}
			if got := vs[0].Rewards[1].Evidence; got != c.evidenceFirst {
				t.Errorf("evidence %q", got)
			}
			for i, v := range vs { // only recorded: the total is that of the answer
				if text(v.Total) != text(group[i].Verdict.Total) || v.Failed {
					t.Errorf("%d: total %s, was %s", i, text(v.Total), text(group[i].Verdict.Total))
				}
			}
		})
	}
}

// What is not to be scored is no member of its group: it neither votes nor is voted on.
func TestUnscoredSamplesAreNoMembers(t *testing.T) {
	s := newScorer(t, Config{Graders: []Spec{{}, {Kind: KindMajority}}, Unscored: []episode.Stop{episode.StopLength}})
	defer requireClose(t, s)
	var group []*episode.Episode
	for i, said := range []string{"1", "18", "1", "18", "18"} {
		e := sample(t, s, answer("18"), said, 5)
		if i == 0 || i == 2 {
			e.Status, e.Stop = episode.StatusTruncated, episode.StopLength
			e.Verdict = score(t, s, e)
		}
		group = append(group, e)
	}
	for _, whole := range []bool{true, false} {
		vs := scoreGroup(t, s, group, whole)
		if got, want := shown(vs, s.cfg.Graders[0].Name), "null 1 null 1 1"; got != want {
			t.Errorf("answers %s, want %s", got, want)
		}
		want := "null 1 null 1 1"
		if !whole {
			want = "null null null null null"
		}
		if got := shown(vs, "majority"); got != want {
			t.Errorf("whole %v: agree %s, want %s", whole, got, want)
		}
	}
	none := scoreGroup(t, s, group[:1], true)
	if len(none) != 1 || none[0].Total != nil || none[0].Rewards[1].Outcome != "no_verdict: not_graded" {
		t.Errorf("%+v", none)
	}
}

func TestGroupLength(t *testing.T) {
	s := newScorer(t, Config{Graders: []Spec{{}, {Kind: KindGroupLength, Weight: episode.Ptr(1.0)}}, Total: Product})
	defer requireClose(t, s)
	task := answer("18")
	group := []*episode.Episode{
		sample(t, s, task, "18", 10), sample(t, s, task, "well, 18", 40), sample(t, s, task, "19", 5), sample(t, s, task, "18", -1),
		sample(t, s, &episode.Task{ID: "t"}, "18", 8),
	}
	for i, e := range group {
		if e.Verdict.Total != nil || e.Verdict.Failed || e.Verdict.Rewards[1].Outcome != episode.GroupOpen {
			t.Errorf("%d before the group was whole: %+v", i, e.Verdict)
		}
	}
	vs := scoreGroup(t, s, group, true)
	if got := shown(vs, "group_length"); got != "1 0.25 0 null null" {
		t.Errorf("%s", got)
	}
	var totals []string
	for _, v := range vs {
		totals = append(totals, text(v.Total))
	}
	if got := strings.Join(totals, " "); got != "1 0.25 0 null null" {
		t.Errorf("totals %s", got)
	}
	for i, want := range map[int]string{0: "10 tokens, the shortest right one has 10", 3: "no_verdict: length_unknown", 4: "no_verdict: no_base_verdict"} {
		if r := vs[i].Rewards[1]; r.Evidence != want && r.Outcome != want {
			t.Errorf("%d: %+v", i, r)
		}
	}
	for _, v := range scoreGroup(t, s, group[:1], false) {
		if v.Total != nil || v.Rewards[1].Outcome != "no_verdict: group_split" {
			t.Errorf("without its siblings: %+v", v)
		}
	}
}

// bench judges groups by a function.
type bench struct {
	grade func([]Member) ([]Judged, error)
}

func (bench) ID() string { return "bench/1" }

func (b bench) GradeGroup(_ context.Context, m []Member) ([]Judged, error) { return b.grade(m) }

// What a group grader does wrong is no verdict on its component, and the others keep theirs.
func TestGroupGraderFailureIsNoVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		grade func([]Member) ([]Judged, error)
		want  string
	}{
		"error":        {func([]Member) ([]Judged, error) { return nil, errors.New("broke") }, "no_verdict: verifier_error no_verdict: verifier_error"},
		"too few":      {func([]Member) ([]Judged, error) { return make([]Judged, 1), nil }, "no_verdict: verifier_error no_verdict: verifier_error"},
		"out of range": {func([]Member) ([]Judged, error) { return []Judged{{Finding: Finding{Score: 2}}, {}}, nil }, "no_verdict: verifier_error scored"},
		"panics":       {func([]Member) ([]Judged, error) { panic("no") }, "no_verdict: verifier_error no_verdict: verifier_error"},
		"one is left open": {func([]Member) ([]Judged, error) { return []Judged{{}, {Err: &Unjudged{Reason: "odd"}}}, nil },
			"scored no_verdict: odd"},
	} {
		t.Run(name, func(t *testing.T) {
			kind := Kind{Name: "bench", MakeGroup: func(Spec) (GroupGrader, error) { return bench{c.grade}, nil }}
			cfg := Config{Graders: []Spec{{}, {Kind: "bench"}}}
			s, err := New(cfg, kind)
			if err != nil {
				t.Fatal(err)
			}
			defer requireClose(t, s)
			group := []*episode.Episode{sample(t, s, answer("18"), "18", 1), sample(t, s, answer("18"), "19", 1)}
			vs := scoreGroup(t, s, group, true)
			if got := vs[0].Rewards[1].Outcome + " " + vs[1].Rewards[1].Outcome; got != c.want || !cfg.JudgesGroups(kind) || cfg.JudgesGroups() {
				t.Errorf("%s, want %s", got, c.want)
			}
			if text(vs[0].Rewards[0].Score) != "1" || text(vs[1].Rewards[0].Score) != "0" {
				t.Errorf("the graders of samples: %+v", vs)
			}
			for _, v := range vs {
				if r := v.Rewards[1]; (v.Total == nil) != (r.Score == nil) || v.Failed != (r.Score == nil) {
					t.Errorf("%+v", v)
				}
			}
		})
	}
}

// Laws: the order of the samples changes nothing but the order of the verdicts, and scoring a group again gives the same, as after a crash.
func TestGroupLaws(t *testing.T) {
	s := newScorer(t, Config{Graders: []Spec{{}, {Kind: KindMajority, Weight: episode.Ptr(0.5)}, {Kind: KindGroupLength, Weight: episode.Ptr(0.5)}}})
	defer requireClose(t, s)
	task := answer("1")
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(rt, "n")
		group := make([]*episode.Episode, n)
		for i := range group {
			group[i] = sample(t, s, task, fmt.Sprint(rapid.IntRange(0, 2).Draw(rt, "answer")), int32(rapid.IntRange(1, 5).Draw(rt, "tokens")))
		}
		record := func(order []int) []string {
			shuffled := make([]*episode.Episode, n)
			for at, i := range order {
				shuffled[at] = group[i]
			}
			out := make([]string, n)
			for at, v := range scoreGroup(t, s, shuffled, true) {
				for j := range v.Rewards {
					v.Rewards[j].Cost.Wall = 0
				}
				b, err := json.Marshal(v)
				if err != nil {
					rt.Fatal(err)
				}
				out[order[at]] = string(b)
			}
			return out
		}
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		first := record(order)
		if other := record(rapid.Permutation(order).Draw(rt, "order")); !reflect.DeepEqual(first, other) {
			rt.Fatalf("%v\n%v", first, other)
		}
	})
}

func TestGroupKindOptions(t *testing.T) {
	for with, want := range map[string]string{
		`{"marker": ""}`: "marker: is empty", `{"right": 0}`: "right: expected", `{"left": 1}`: "left: unknown option",
	} {
		kind := KindGroupLength
		if strings.Contains(with, "marker") {
			kind = KindMajority
		}
		_, err := New(Config{Graders: []Spec{{}, {Kind: kind, With: json.RawMessage(with)}}})
		if want = strings.ReplaceAll(want, "right: expected", "right: 0, expected"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", with, err)
		}
	}
}

// TestAMemberIsAskedAgain: where asking again may help for one member, all are asked again, and what was judged before stays.
func TestAMemberIsAskedAgain(t *testing.T) {
	down := Judged{Err: &Unjudged{Reason: "down", Retry: true}}
	says := func(score float64) Judged { return Judged{Finding: Finding{Score: score}} }
	for name, c := range map[string]struct {
		tries [][]Judged
		errs  []error
		want  string
		asked int
	}{
		"one heals":                 {[][]Judged{{says(1), down}, {says(1), says(0.5)}}, nil, "1 0.5", 2},
		"each fails once":           {[][]Judged{{says(1), down}, {down, says(0.5)}}, nil, "1 0.5", 2},
		"then nothing comes":        {[][]Judged{{says(1), down}, nil, nil}, []error{nil, down.Err, down.Err}, "1 null", 3},
		"it stays":                  {[][]Judged{{says(1), down}, {says(1), down}, {says(1), down}}, nil, "1 null", 3},
		"what cannot be helped":     {[][]Judged{{says(1), {Err: &Unjudged{Reason: "odd"}}}}, nil, "1 null", 1},
		"a plain error of a member": {[][]Judged{{says(1), {Err: errors.New("broke")}}}, nil, "1 null", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				kind := Kind{Name: "bench", MakeGroup: func(Spec) (GroupGrader, error) {
					return bench{func([]Member) ([]Judged, error) {
						i := asked
						asked++
						if i < len(c.errs) && c.errs[i] != nil {
							return nil, c.errs[i]
						}
						return slices.Clone(c.tries[i]), nil
					}}, nil
				}}
				s, err := New(Config{Graders: []Spec{{}, {Kind: "bench"}}, Workers: 1}, kind)
				if err != nil {
					t.Fatal(err)
				}
				defer requireClose(t, s)
				vs := scoreGroup(t, s, []*episode.Episode{sample(t, s, answer("18"), "18", 1), sample(t, s, answer("18"), "19", 1)}, true)
				if got := shown(vs, "bench"); got != c.want || asked != c.asked || vs[0].Rewards[1].Tries != c.asked {
					t.Errorf("%s after %d tries (%d asked), want %s after %d", got, vs[0].Rewards[1].Tries, asked, c.want, c.asked)
				}
			})
		})
	}
}
