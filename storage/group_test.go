package storage

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"

	"tranche/episode"
)

// inGroup is an episode whose verdict waits for its group.
func inGroup(m made, task, sample int) *episode.Episode {
	e := m.episode(task, sample)
	if e.Fault == nil {
		e.Verdict.Total = nil
		e.Verdict.Rewards = append(e.Verdict.Rewards, episode.Reward{Name: "rank", Weight: 1, Outcome: episode.GroupOpen, Grader: "rank/1"})
	}
	return e
}

// rank gives each sample of a group its place among those that ended well, from 0 to 1.
func rank(rows []*Row, whole bool) {
	for i, r := range rows {
		v := r.Verdict()
		g := &v.Rewards[1]
		if g.Outcome = "no_verdict: group_split"; whole {
			g.Score, g.Outcome = episode.Ptr(float64(i)/float64(len(rows))), episode.Scored
			v.Rewards = append(v.Rewards, episode.Reward{Name: "rank.of", Raw: episode.Ptr(float64(len(rows))), Outcome: episode.Scored, Score: episode.Ptr(1.0)})
			v.Total = episode.Ptr((*v.Rewards[0].Score + *g.Score) / 2)
		}
		r.SetVerdict(v)
	}
}

func groupConfig(dir string) Config {
	cfg := testConfig(dir)
	cfg.GroupVerdicts = rank
	return cfg
}

// bare is a row as JSON, for comparison.
func bare(t *testing.T, r *Row) string {
	t.Helper()
	c := timeless(r)
	b, err := json.Marshal(&c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Groups get their verdicts when they are published, whole, and the books agree with the files; a sample that waits for the others is
// not counted as one without a verdict of the group grader.
func TestGroupVerdicts(t *testing.T) {
	dir := t.TempDir()
	m := made{run: "r", group: 4, failing: func(task, sample int) bool { return task%3 == 1 && sample == 1 }}
	w := mustOpen(t, groupConfig(dir))
	for sample := range 4 { // the samples of a group come far apart
		for task := range 12 {
			mustWrite(t, w, inGroup(m, task, sample))
		}
	}
	mustWrite(t, w, inGroup(m, 50, 0), inGroup(m, 50, 1))
	if s := w.Summary(); s.Reward.N != 0 || s.Reward.Of != 50 || s.Components["rank"].Score.Of != 0 || s.Components["exact"].Score.N != 46 {
		t.Errorf("before it is published: reward %+v, components %+v", s.Reward, s.Components)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	sum := w.Summary()
	if sum.Reward.N != 44 || sum.Reward.Of != 50 || sum.Components["rank"].Score.N != 44 || sum.Components["rank"].Score.Of != 44 || sum.Components["rank.of"].Score.N != 44 ||
		sum.Components["exact"].Score.N != 46 || sum.DataSources["source-0"].Reward.N != 16 {
		t.Errorf("after: reward %+v, components %+v", sum.Reward, sum.Components)
	}
	run, err := OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	if read, err := run.Summary(); err != nil || !sameJSON(read, sum) {
		t.Errorf("the books say\n%+v\nthe files say\n%+v, %v", sum, read, err)
	}
	for id, r := range rowsOf(t, dir) {
		switch {
		case r.FaultClass != nil:
			if r.Rewards != nil {
				t.Errorf("%s failed and has %+v", id, r.Rewards)
			}
		case r.TaskID == "task-0050":
			if *r.Rewards[1].Outcome != episode.GroupOpen || *r.Scored {
				t.Errorf("%s waits for its group: %+v", id, r.Rewards)
			}
		default:
			members, place := 4.0, float64(r.SampleIndex)
			if *r.Rewards[2].Raw < 4 { // one of them failed
				if members = 3; place > 0 {
					place--
				}
			}
			if *r.Rewards[1].Score != place/members || !*r.Scored || *r.Reward != (*r.Rewards[0].Score+*r.Rewards[1].Score)/2 {
				t.Errorf("%s, sample %d: %v of %+v", id, r.SampleIndex, *r.Reward, r.Rewards)
			}
		}
	}
	mustClose(t, w)
}

// kill -9 at any time leaves what the journal holds; whoever opens it next comes to the same verdicts.
func TestGroupVerdictsSurviveACrash(t *testing.T) {
	dir := t.TempDir()
	m := made{run: "r", group: 4, failing: func(task, sample int) bool { return task == 2 && sample == 3 }}
	w := mustOpen(t, groupConfig(dir))
	var copies []string
	for i := range 24 { // every group whole but the last one when it ends; a copy of the folder is what kill -9 leaves
		mustWrite(t, w, inGroup(m, i/4, i%4))
		if i%5 == 4 {
			at := filepath.Join(t.TempDir(), "run")
			if err := os.CopyFS(at, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			copies = append(copies, at)
		}
		if i == 9 { // two groups are in a part, two samples of the third are carried over
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustClose(t, w)
	want := rowsOf(t, dir)
	for n, at := range copies {
		w := mustOpen(t, groupConfig(at))
		for i := range 24 {
			if e := inGroup(m, i/4, i%4); !w.Done(e.ID) {
				mustWrite(t, w, e)
			}
		}
		mustClose(t, w)
		got := rowsOf(t, at)
		if len(got) != len(want) {
			t.Errorf("copy %d: %d rows, want %d", n, len(got), len(want))
		}
		for id, r := range got {
			if a, b := bare(t, r), bare(t, want[id]); a != b {
				t.Errorf("copy %d, %s:\n%s\nwant\n%s", n, id, a, b)
			}
		}
	}
}

// The second try of a failed sample whose siblings are in a part already is told to be by itself, and no sibling is judged again.
func TestRetriedSampleIsJudgedByItself(t *testing.T) {
	dir := t.TempDir()
	m := made{run: "r", group: 3, failing: func(_, sample int) bool { return sample == 1 }}
	w := mustOpen(t, groupConfig(dir))
	mustWrite(t, w, inGroup(m, 1, 0), inGroup(m, 1, 1), inGroup(m, 1, 2))
	mustClose(t, w)
	cfg := groupConfig(dir)
	cfg.RetryFailed = true
	var asked atomic.Int32
	cfg.GroupVerdicts = func(rows []*Row, whole bool) {
		if asked.Add(1); len(rows) != 1 || whole {
			t.Errorf("%d rows, whole %v", len(rows), whole)
		}
		rank(rows, whole)
	}
	w = mustOpen(t, cfg)
	m.failing = nil
	again := inGroup(m, 1, 1)
	mustWrite(t, w, again)
	mustClose(t, w)
	rows := rowsOf(t, dir)
	if r := rows[again.ID]; asked.Load() != 1 || len(rows) != 3 || *r.Rewards[1].Outcome != "no_verdict: group_split" || *r.Scored {
		t.Errorf("asked %d times; %+v", asked.Load(), r.Rewards)
	}
}

// A row's episode is what graders saw when it was scored.
func TestEpisodeOfARow(t *testing.T) {
	e := judged()
	e.Messages = append(e.Messages, episode.Message{Role: episode.RoleAssistant, ToolCalls: []episode.ToolCall{{ID: "c", Type: "function"}}})
	e.Messages = append(e.Messages, // reasoning between tags, closed, cut, and opened by the template; a call in the text, read and not
		episode.Message{Role: episode.RoleAssistant, Content: episode.Ptr("18"), ReasoningContent: episode.Ptr("r"), Tagged: &episode.Tagged{Open: "<think>", Closed: true}},
		episode.Message{Role: episode.RoleAssistant, Content: episode.Ptr(""), ReasoningContent: episode.Ptr("r"), Tagged: &episode.Tagged{}},
		episode.Message{Role: episode.RoleAssistant, Content: episode.Ptr("f(1)"), Written: &episode.Written{Call: episode.ToolCall{ID: "w", Type: "function", Function: episode.Function{Name: "f", Arguments: `{"x":1}`}}}},
		episode.Message{Role: episode.RoleAssistant, Content: episode.Ptr("f("), Written: &episode.Written{Unread: "no end"}, Tagged: &episode.Tagged{Open: "", Closed: true}, ReasoningContent: episode.Ptr("")})
	e.Submitted = episode.Ptr("9")
	e.Actions = []episode.ActionRecord{{Turn: 1, CallID: "c", Name: "python", Status: episode.ActionOK, Tier: "cgroup2"}}
	e.Verdict.Rewards[2].Raw = nil
	r := RowOf(e)
	stored := readPart[Row](t, writePart(t, t.TempDir(), "x", r))
	if len(stored) != 1 || len(stored[0].Forms) != 4 {
		t.Fatalf("%+v", stored)
	}
	got := stored[0].Episode()
	if !reflect.DeepEqual(got.Messages, e.Messages) || got.NumPrompt != e.NumPrompt || *got.Submitted != "9" || got.Status != e.Status || got.Stop != e.Stop ||
		got.ID != e.ID || got.GroupID != e.GroupID || len(got.Turns) != len(e.Turns) {
		t.Errorf("%+v\nwant %+v", got, e)
	}
	if got.Task.ID != e.Task.ID || *got.Task.Answer != *e.Task.Answer || string(got.Task.Extra) != string(e.Task.Extra) || !reflect.DeepEqual(got.Task.Messages, e.Task.Messages) {
		t.Errorf("task %+v\nwant %+v", got.Task, e.Task)
	}
	if a := got.Actions[0]; a != e.Actions[0] {
		t.Errorf("action %+v\nwant %+v", a, e.Actions[0])
	}
	again := RowOf(e)
	again.SetVerdict(got.Verdict)
	if a, b := bare(t, &r), bare(t, &again); a != b {
		t.Errorf("the verdict changed on its way:\n%s\n%s", a, b)
	}
	failed := RowOf(made{run: "r", failing: func(int, int) bool { return true }}.episode(1, 0))
	if f := failed.Episode(); f.Fault == nil || f.Fault.Class != episode.ClassTimeout || f.Status != episode.StatusFailed {
		t.Errorf("%+v", f)
	}
}
