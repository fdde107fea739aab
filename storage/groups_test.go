package storage

import (
	"context"
	"slices"
	"testing"
	"time"

	"tranche/episode"
)

// TestGroupsThatEndEarly: a group with fewer samples than its rows say is published as soon as it is said to have ended, with its real size,
// and after a restart it takes saying so again; what is said of others changes nothing.
func TestGroupsThatEndEarly(t *testing.T) {
	cfg := testConfig(t.TempDir())
	m := made{run: "r", group: 4}
	w := mustOpen(t, cfg)
	mustWrite(t, w, m.episode(0, 0), m.episode(0, 1), m.episode(1, 0), m.episode(1, 1))
	group := func(task int) string { return m.episode(task, 0).GroupID }
	w.EndGroup(group(0), 3) // it has two
	w.EndGroup(group(7), 1) // nobody knows it
	if c := w.Counts(); c.Waiting != 4 {
		t.Fatalf("%d rows wait, want 4", c.Waiting)
	}
	mustClose(t, w)
	w = mustOpen(t, cfg)
	w.EndGroup(group(0), 2)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	w.EndGroup(group(0), 2) // it is in a part by now
	if c := w.Counts(); c.Published != 2 || c.Waiting != 2 {
		t.Fatalf("%d rows published, %d wait; want 2 and 2", c.Published, c.Waiting)
	}
	mustWrite(t, w, m.episode(1, 2), m.episode(1, 3))
	mustClose(t, w)
	for _, r := range rowsOf(t, cfg.Dir) {
		want := map[string]int32{"task-0000": 2, "task-0001": 4}[r.TaskID]
		if r.GroupSize != want {
			t.Errorf("%s sample %d: group_size %d, want %d", r.TaskID, r.SampleIndex, r.GroupSize, want)
		}
	}
}

// TestGroupsThatEndEarlyArePublishedInTime: when they are old enough, also where no further row comes, and at once where rows wait for room.
func TestGroupsThatEndEarlyArePublishedInTime(t *testing.T) {
	for name, c := range map[string]Config{"old": {MinPartAge: time.Millisecond, MaxPartAge: time.Millisecond}, "full": {MinPartAge: time.Hour, MaxPartAge: time.Hour, PartBytes: 1}} {
		c.Dir, c.SyncInterval = t.TempDir(), time.Microsecond
		w := mustOpen(t, c)
		m := made{run: "r", group: 4}
		mustWrite(t, w, m.episode(0, 0), m.episode(0, 1))
		w.EndGroup(m.episode(0, 0).GroupID, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if c.PartBytes > 0 {
			if err := w.Write(ctx, m.episode(1, 0)); err != nil {
				t.Errorf("%s: the next row: %v", name, err)
			}
		}
		for w.Counts().Published != 2 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if n := w.Counts().Published; n != 2 {
			t.Errorf("%s: %d rows are published, want 2", name, n)
		}
	}
}

// TestEqualGroupsAreMarked: when published, and only whole groups whose rewards are all the same.
func TestEqualGroupsAreMarked(t *testing.T) {
	for _, mark := range []bool{true, false} {
		cfg := testConfig(t.TempDir())
		cfg.MarkEqual = mark
		w := mustOpen(t, cfg)
		m := made{run: "r", group: 3}
		for task, rewards := range [][]*float64{
			{episode.Ptr(1.0), episode.Ptr(1.0), episode.Ptr(1.0)}, {episode.Ptr(0.0), episode.Ptr(1.0), episode.Ptr(0.0)},
			{episode.Ptr(0.0), nil, episode.Ptr(0.0)}, {episode.Ptr(0.5), episode.Ptr(0.5), episode.Ptr(0.5)},
		} {
			for sample, reward := range rewards {
				e := m.episode(task, sample)
				e.Verdict.Total = reward
				mustWrite(t, w, e)
			}
		}
		mustClose(t, w)
		if n := w.Summary().Flags[FlagZeroVariance]; n != map[bool]int64{true: 6}[mark] {
			t.Errorf("mark %v: the summary counts %d", mark, n)
		}
		for _, r := range rowsOf(t, cfg.Dir) {
			want := mark && (r.TaskID == "task-0000" || r.TaskID == "task-0003")
			if got := slices.Contains(r.Flags, FlagZeroVariance); got != want {
				t.Errorf("mark %v: %s is marked %v", mark, r.TaskID, got)
			}
		}
	}
}

// TestGroupsThatAreJudgedEqualAreMarked: also where the rewards came only when the group was published.
func TestGroupsThatAreJudgedEqualAreMarked(t *testing.T) {
	cfg := groupConfig(t.TempDir())
	cfg.MarkEqual = true
	cfg.GroupVerdicts = func(rows []*Row, _ bool) {
		for i, r := range rows {
			v := r.Verdict()
			v.Rewards[1].Outcome, v.Rewards[1].Score = episode.Scored, episode.Ptr(0.5)
			if v.Total = episode.Ptr(0.5); r.TaskID == "task-0001" && i == 1 {
				v.Total = episode.Ptr(0.25)
			}
			r.SetVerdict(v)
		}
	}
	w := mustOpen(t, cfg)
	m := made{run: "r", group: 3, failing: func(task, sample int) bool { return task == 2 && sample == 0 }}
	for i := range 12 { // all equal; one differs; one failed; all equal
		mustWrite(t, w, inGroup(m, i/3, i%3))
	}
	mustClose(t, w)
	if n := w.Summary().Flags[FlagZeroVariance]; n != 6 {
		t.Errorf("the summary counts %d, want 6", n)
	}
	rows := rowsOf(t, cfg.Dir)
	for _, r := range rows {
		if got, want := slices.Contains(r.Flags, FlagZeroVariance), r.TaskID == "task-0000" || r.TaskID == "task-0003"; got != want {
			t.Errorf("%s is marked %v", r.TaskID, got)
		}
	}
	if len(rows) != 12 {
		t.Errorf("%d rows", len(rows))
	}
}

// TestOutcomesAreThoseOfTheRows: published and not, each once.
func TestOutcomesAreThoseOfTheRows(t *testing.T) {
	cfg := testConfig(t.TempDir())
	w := mustOpen(t, cfg)
	m := made{run: "r", group: 2, failing: func(task, sample int) bool { return task == 1 && sample == 0 }}
	mustWrite(t, w, m.episode(0, 0), m.episode(0, 1), m.episode(1, 0), m.episode(1, 1))
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, w, m.episode(2, 0))
	run, err := OpenRun(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	rows, n := rowsOf(t, cfg.Dir), 0
	for o, err := range run.Outcomes() {
		if err != nil {
			t.Fatal(err)
		}
		want := OutcomeOf(rows[o.EpisodeID])
		same := (o.Reward == nil) == (want.Reward == nil) && (o.Reward == nil || *o.Reward == *want.Reward) && text(o.Status) == text(want.Status)
		o.Reward, want.Reward, o.Status, want.Status = nil, nil, nil, nil
		if !same || o != want {
			t.Errorf("%+v, the row says %+v", o, want)
		}
		n++
	}
	if n != 5 || len(rows) != 5 {
		t.Errorf("%d outcomes of %d rows, want 5", n, len(rows))
	}
}
