package main

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tranche/reward"
	"tranche/sampler"
	"tranche/storage"
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
	if _, err := readSettings(filepath.Join(dir, runFileName), &set, nil); err != nil {
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
		"an unknown kind":              {"reward: {kind: quikc, cpu: 1s}", `kind: "quikc", expected one of auto, `},
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

// broken is a grader that needs a server which is down.
type broken struct{ asked *atomic.Int64 }

func (broken) ID() string { return "broken/1" }

func (b broken) Grade(context.Context, reward.Input) (reward.Finding, error) {
	b.asked.Add(1)
	return reward.Finding{}, &reward.Unjudged{Reason: "judge_unavailable", Detail: "HTTP 500", Retry: true}
}

// A judge that is down: no reward of 0 is written, the run stops instead of spending on what cannot be used, says so, and can be resumed.
func TestRunStopsWhenGradersFail(t *testing.T) {
	var asked atomic.Int64
	kind := reward.Kind{Name: "broken", Make: func(s reward.Spec) (reward.Grader, error) { return broken{&asked}, reward.ReadOptions(s, &struct{}{}) }}
	server := answering(t, 0)
	dir := newRunDir(t)
	s := newShell(t)
	s.app.graders = []reward.Kind{kind}
	s.do(codeGaveUp, "run", taskFile(t, 400, ""), "--endpoint", server.URL(), "--reward", "broken", "--score-retries", "0", "-o", dir, "-q")
	for _, want := range []string{"graders failed on too large a share of the episodes: ", "--stop-on-unscored-share 0.5", "view", "--unscored"} {
		if !strings.Contains(s.err.String(), want) {
			t.Errorf("%s\nlacks %q", s.err.String(), want)
		}
	}
	if !strings.Contains(s.out.String(), "broken: none: no verdict on any of ") || !strings.Contains(s.out.String(), "; no verdict: judge_unavailable ") {
		t.Errorf("the summary does not count them:\n%s", s.out.String())
	}
	rows := rowsIn(t, dir)
	if len(rows) < 100 || len(rows) == 400 || asked.Load() < int64(len(rows)) || asked.Load() > int64(len(rows))+200 {
		t.Errorf("%d rows of 400, asked %d times", len(rows), asked.Load())
	}
	for key, r := range rows {
		if r.Reward != nil || r.Scored == nil || *r.Scored || *r.Rewards[0].Outcome != "no_verdict: judge_unavailable" || *r.Rewards[0].Tries != 1 {
			t.Fatalf("%s: %+v", key, r.Rewards)
		}
	}
	s = newShell(t)
	s.do(codeOK, "view", dir, "--unscored", "-n", "1")
	if !strings.Contains(s.out.String(), "reward broken: none (no verdict) · weight 1 · no_verdict: judge_unavailable · broken/1") {
		t.Errorf("%s", s.out.String())
	}
	s = newShell(t)
	s.app.graders = []reward.Kind{kind}
	s.do(codeOK, "resume", dir, "--stop-on-unscored-share", "0", "--score-retries", "0", "-q")
	if n := len(rowsIn(t, dir)); n != 400 {
		t.Errorf("%d rows after the resume", n)
	}
}

// Tasks without an answer are nobody's failure: such a run is played to its end.
func TestTasksWithoutAnswersDoNotStopARun(t *testing.T) {
	dir := newRunDir(t)
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 150, ""), "--endpoint", answering(t, 0).URL(), "-o", dir, "-q")
	rows := rowsIn(t, dir)
	if row := rows["t3/0"]; len(rows) != 150 || row.Reward != nil || *row.Rewards[0].Outcome != "no_verdict: missing_ground_truth" {
		t.Errorf("%d rows; %+v", len(rows), row)
	}
}

// A gate lets through what is well formed, and its rule is part of what the run is.
func TestGatedReward(t *testing.T) {
	server := answering(t, 0) // it says #### 7
	for pattern, want := range map[string]float64{"7$": 0.75, "8$": 0} {
		path := settingsFile(t, "reward-total: gate\nreward:\n- {kind: regex, name: format, pattern: '"+pattern+"', threshold: 1, weight: 0}\n- {kind: quick, tiers: {all: 0.75}}\n")
		dir := newRunDir(t)
		s := newShell(t)
		s.app.graders = []reward.Kind{quickKind()}
		s.do(codeOK, "run", taskFile(t, 2, ""), "-c", path, "--endpoint", server.URL(), "-o", dir, "-q")
		for key, r := range rowsIn(t, dir) {
			if r.Reward == nil || *r.Reward != want || *r.Rewards[1].Score != 0.75 || !*r.Scored {
				t.Errorf("%s, %s: reward %v of %+v", pattern, key, r.Reward, r.Rewards)
			}
		}
	}
	s := newShell(t)
	s.do(codeUsage, "run", taskFile(t, 1, ""), "--reward-total", "gate", "-o", newRunDir(t), "-q")
	if want := "total: gate, expected a threshold on one grader or more"; !strings.Contains(s.err.String(), want) {
		t.Errorf("%s", s.err.String())
	}
}

// A run of before there was a rule to choose is the same run now; another rule makes another run.
func TestRewardTotalIsPartOfTheRun(t *testing.T) {
	was, is := defaults(), defaults()
	is.RewardTotal = reward.Product
	if id := identity(&was, "x", nil); id["reward-total"] != "" || digestOf(id) == digestOf(identity(&is, "x", nil)) {
		t.Errorf("%v", id)
	}
}

// The example runs on the embedded engine. Every sample has the verdicts of its group, the reward is made of them by the rule, and the
// summary agrees with the rows.
func TestRewardsExample(t *testing.T) {
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codeOK, "run", "-c", "../../examples/rewards/run.yaml", "-o", dir, "-q", "--json")
	rows := rowsIn(t, dir)
	sum, best := 0.0, map[string]float64{}
	for key, r := range rows {
		c := map[string]storage.Reward{}
		for _, x := range r.Rewards {
			c[*x.Name] = x
		}
		answer, plain, brevity := *c["answer"].Score, *c["plain"].Score, *c["brevity"].Score
		want := 0.0
		if plain == 1 {
			want = (answer + 0.1*brevity) / 1.1
		}
		if r.Reward == nil || math.Abs(*r.Reward-want) > 1e-12 || c["majority"].Score == nil || c["majority"].Weight != 0 || (brevity > 0) != (answer*plain == 1) {
			t.Errorf("%s: reward %v of %+v", key, r.Reward, r.Rewards)
		}
		sum += *r.Reward
		best[r.TaskID] = max(best[r.TaskID], brevity)
	}
	d := s.document()
	if len(rows) != 160 || d.Dataset.Reward.N != 160 || d.Dataset.Reward.Mean == nil || math.Abs(*d.Dataset.Reward.Mean-sum/160) > 1e-9 || sum < 16 {
		t.Errorf("%d rows, reward %+v, mean of the rows %v", len(rows), d.Dataset.Reward, sum/160)
	}
	if view := newShell(t); len(d.Run.Groups) == 0 || d.Run.Groups[sampler.Overall].Groups != 40 {
		t.Errorf("the session counts groups %+v", d.Run.Groups)
	} else if view.do(codeOK, "view", dir, "--json"); !reflect.DeepEqual(view.document().Run.Groups, d.Run.Groups) {
		t.Errorf("the session counts groups %+v, view %+v", d.Run.Groups, view.document().Run.Groups)
	}
	requireSameFromRows(t, rows)
	for task, b := range best { // the shortest right sample of each group has it all
		if b != 0 && b != 1 {
			t.Errorf("%s: the best brevity is %v", task, b)
		}
	}
}

// deaf is a grader that on some answers goes on whatever it is told.
type deaf struct{ release chan struct{} }

func (deaf) ID() string { return "deaf/1" }

func (d deaf) Grade(_ context.Context, in reward.Input) (reward.Finding, error) {
	if strings.HasSuffix(in.Messages[0].Text(), "3") {
		<-d.release
	}
	return reward.Finding{Score: 1}, nil
}

// RW-o3 on a whole run: the one that never ends has no verdict, the others have theirs, and the run ends and says what was left.
func TestCaseRWo3AGraderThatNeverEnds(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	dir := newRunDir(t)
	s := newShell(t)
	s.app.graders = []reward.Kind{reward.Fixed(deaf{release})}
	s.do(codeOK, "run", taskFile(t, 10, ""), "--endpoint", answering(t, 0).URL(), "--reward", "deaf", "--score-timeout", "300ms", "-o", dir, "-q")
	for key, r := range rowsIn(t, dir) {
		if stuck := key == "t3/0"; stuck != (r.Reward == nil) || stuck && *r.Rewards[0].Outcome != "no_verdict: score_timeout" {
			t.Errorf("%s: %+v", key, r.Rewards[0])
		}
	}
	if want := "grader deaf: 1 gradings did not stop when told to and were abandoned; 1 of them had not ended by then"; !strings.Contains(s.out.String(), want) {
		t.Errorf("the summary does not say %q:\n%s", want, s.out.String())
	}
}

// requireSameFromRows scores stored rows without a run: every grader of samples comes to what it said when the episode ended.
func requireSameFromRows(t *testing.T, rows map[string]*storage.Row) {
	t.Helper()
	scorer, err := reward.New(reward.Config{Graders: []reward.Spec{{Name: "answer"}, {Name: "plain", Kind: reward.KindRegex, Pattern: "^-?[0-9.,/]+$"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer scorer.Close()
	for key, r := range rows {
		v, err := scorer.Score(t.Context(), r.Episode())
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range v.Rewards {
			if was := r.Rewards[i]; *c.Score != *was.Score || c.Evidence != *was.Evidence || c.Config != *was.Config || c.Grader != *was.Grader {
				t.Errorf("%s: %+v, was %+v", key, c, was)
			}
		}
	}
}
