package storage

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parquet-go/parquet-go"

	"tranche/episode"
)

// playedRun writes 10 tasks of 3 samples in three parts, some of them failed, and leaves an incomplete group in the journal.
func playedRun(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(fastDir(t), "x")
	m := made{run: "r", group: 3, failing: func(task, sample int) bool { return task == 4 && sample == 1 }}
	w := mustOpen(t, testConfig(dir))
	for task := range 10 {
		for sample := range 3 {
			mustWrite(t, w, m.episode(task, sample))
		}
		if task%4 == 3 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustWrite(t, w, m.episode(10, 0))
	mustClose(t, w)
	return dir
}

// place judges: the place of a row in its group, and how many there are.
func place(_ context.Context, rows []*Row, whole bool) error {
	for i, r := range rows {
		v := episode.Verdict{Total: episode.Ptr(float64(i) / 10)}
		outcome := episode.Scored
		if !whole {
			v.Total, outcome = nil, "no_verdict: group_split"
		}
		v.Rewards = []episode.Reward{{Name: "place", Score: v.Total, Weight: 1, Raw: episode.Ptr(float64(len(rows))), Outcome: outcome, Grader: "place/1", Tries: 1}}
		r.SetVerdict(v)
	}
	return nil
}

func toRescore(dir string) Rescoring {
	return Rescoring{Dir: dir, Run: "r", Set: "s", Digest: "d", Judge: place}
}

// unjudged is a row as JSON without its verdict.
func unjudged(t *testing.T, r *Row) string {
	t.Helper()
	c := *r
	c.Reward, c.Scored, c.Rewards, c.TurnCredit, c.Credits = nil, nil, nil, nil, nil
	b, err := json.Marshal(&c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func files(t *testing.T, dir, folder string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(n)] = string(b)
	}
	return all
}

// Rescoring changes verdicts and nothing else: every other column of every row, the order of the rows, and all files that were there. Readers
// see the new verdicts, each row once; the way back is one call.
func TestRescoreChangesVerdictsAlone(t *testing.T) {
	for _, into := range []bool{false, true} {
		dir := playedRun(t)
		before, parts, failures, journal := rowsOf(t, dir), files(t, dir, partsDir), files(t, dir, failuresDir), files(t, dir, journalDir)
		cfg, at := toRescore(dir), dir
		if into {
			at = filepath.Join(t.TempDir(), "y")
			cfg.Into = at
		}
		var order []string
		cfg.Compared = func(b, a *Judged) {
			order = append(order, b.EpisodeID)
			if *b.Reward != *before[b.EpisodeID].Reward || *a.Rewards[0].Name != "place" {
				t.Errorf("%s: compared %v with %+v", b.EpisodeID, *b.Reward, a.Rewards)
			}
		}
		got, err := Rescore(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got.Rows != 29 || got.Failed != 1 || got.Journal != 1 || got.Earlier != 0 || len(order) != 29 {
			t.Errorf("into %v: %+v, %d compared", into, got, len(order))
		}
		after := rowsOf(t, at)
		want := len(before)
		if into {
			want-- // what is in the journal only is not there
		}
		if len(after) != want {
			t.Errorf("into %v: %d rows, want %d", into, len(after), want)
		}
		judged := 0
		for id, r := range after {
			if u, w := unjudged(t, r), unjudged(t, before[id]); u != w {
				t.Errorf("into %v: %s\n got %s\nwant %s", into, id, u, w)
			}
			if len(r.Rewards) == 1 && *r.Rewards[0].Name == "place" {
				judged++
				if size := *r.Rewards[0].Raw; size != 3 && r.TaskID != "task-0004" || *r.Reward != *r.Rewards[0].Score {
					t.Errorf("%s: judged with %v others, reward %v", id, size, *r.Reward)
				}
			} else if !reflect.DeepEqual(r.Rewards, before[id].Rewards) {
				t.Errorf("%s: %+v", id, r.Rewards)
			}
		}
		if judged != 29 {
			t.Errorf("into %v: %d rows were judged", into, judged)
		}
		if !reflect.DeepEqual(files(t, dir, partsDir), parts) || !reflect.DeepEqual(files(t, dir, failuresDir), failures) || !reflect.DeepEqual(files(t, dir, journalDir), journal) {
			t.Errorf("into %v: files of the run were changed", into)
		}
		if into {
			if !reflect.DeepEqual(files(t, at, failuresDir), failures) {
				t.Error("the failures were not copied as they are")
			}
			continue
		}
		if err := UseRewards(dir, "other"); !errors.Is(err, ErrNoSet) {
			t.Errorf("a set that is not there: %v", err)
		}
		if err := UseRewards(dir, PlayedRewards); err != nil {
			t.Fatal(err)
		}
		for id, r := range rowsOf(t, dir) {
			if !reflect.DeepEqual(r, before[id]) {
				t.Errorf("%s is not as it was", id)
			}
		}
	}
}

// The rows of a part come in the order and the row groups of the part they stand for.
func TestRescoreKeepsOrderAndRowGroups(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	cfg := testConfig(dir)
	cfg.RowGroupBytes = 4 << 10
	w := mustOpen(t, cfg)
	for task := range 20 {
		mustWrite(t, w, made{run: "r", group: 2}.episode(task, 0), made{run: "r", group: 2}.episode(task, 1))
	}
	mustClose(t, w)
	if _, err := Rescore(t.Context(), toRescore(dir)); err != nil {
		t.Fatal(err)
	}
	m, err := (&Run{dir: dir, fs: disk{}}).Manifest()
	if err != nil {
		t.Fatal(err)
	}
	a, b := m.Parts[0], m.current()[0]
	if a.RowGroups < 3 || a.RowGroups != b.RowGroups || a.FirstEpisode != b.FirstEpisode || a.LastEpisode != b.LastEpisode || a.Path == b.Path {
		t.Errorf("%+v\n%+v", a, b)
	}
	ids := func(p Part) (list []string) {
		rows, err := parquet.ReadFile[idOnly](filepath.Join(dir, p.Path))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			list = append(list, r.EpisodeID)
		}
		return list
	}
	if !slices.Equal(ids(a), ids(b)) {
		t.Error("the order of the rows is another one")
	}
}

// Whatever operation of the disk fails, and wherever the process dies there, what readers see is the old verdicts or the new ones, whole; the
// same again comes to the end.
func TestRescoreGoesOnWhereItWasStopped(t *testing.T) {
	dir := playedRun(t)
	manifest, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		t.Fatal(err)
	}
	original := rowsOf(t, dir)
	ended, stride := false, 1
	if testing.Short() {
		stride = 5
	}
	for failAt := 1; !ended; failAt += stride {
		if failAt > 500 {
			t.Fatal("it never comes to its end")
		}
		if err := os.RemoveAll(filepath.Join(dir, rewardsDir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, manifestName), manifest, 0o644); err != nil {
			t.Fatal(err)
		}
		d := newFaultyDisk(failAt, true)
		_, err := rescoreOn(t.Context(), d, toRescore(dir))
		if ended = !d.hit; ended {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if err == nil {
			t.Fatalf("operation %d failed and nobody said so", failAt)
		}
		d.loseUnsynced(t)
		news := 0
		rows := rowsOf(t, dir)
		for id, r := range rows {
			if !reflect.DeepEqual(r.Rewards, original[id].Rewards) {
				news++
			}
		}
		if len(rows) != len(original) || news != 0 && news != 29 {
			t.Fatalf("operation %d: %d rows, %d of them with new verdicts", failAt, len(rows), news)
		}
		if got, err := Rescore(t.Context(), toRescore(dir)); err != nil || got.Rows != 29 {
			t.Fatalf("operation %d, again: %+v, %v", failAt, got, err)
		}
		for id, r := range rowsOf(t, dir) {
			if original[id].failed() || len(original[id].Rewards) == 0 || r.TaskID == "task-0010" {
				continue
			}
			if *r.Rewards[0].Name != "place" {
				t.Fatalf("operation %d, again: %s has its old verdict", failAt, id)
			}
		}
	}
}

// A stop leaves whole parts; what they hold is not judged again.
func TestStoppedRescoreKeepsItsParts(t *testing.T) {
	dir := playedRun(t)
	ctx, cancel := context.WithCancel(t.Context())
	cfg := toRescore(dir)
	cfg.Width = 1
	var rows atomic.Int64
	cfg.Judge = func(ctx context.Context, list []*Row, whole bool) error {
		if rows.Add(int64(len(list))) > 18 { // in the second part
			cancel()
			return ctx.Err()
		}
		return place(ctx, list, whole)
	}
	if _, err := Rescore(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	if m, err := (&Run{dir: dir, fs: disk{}}).Manifest(); err != nil || m.CurrentRewards != "" || len(m.RewardSets) != 1 || m.RewardSets[0].Complete {
		t.Errorf("after the stop: %+v, %v", m, err)
	}
	var again atomic.Int64
	cfg.Judge = func(ctx context.Context, list []*Row, whole bool) error {
		again.Add(int64(len(list)))
		return place(ctx, list, whole)
	}
	got, err := Rescore(t.Context(), cfg)
	if err != nil || got.Earlier != 12 || again.Load() != 17 || got.Rows != 29 {
		t.Errorf("%+v, %d judged again, %v", got, again.Load(), err)
	}
}

// A sample that was published after its siblings stands alone, also where an earlier call did the siblings.
func TestRescoreOfASplitGroup(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	failing := true
	m := made{run: "r", group: 3, failing: func(task, sample int) bool { return failing && sample == 2 }}
	w := mustOpen(t, testConfig(dir))
	mustWrite(t, w, m.episode(1, 0), m.episode(1, 1), m.episode(1, 2))
	mustClose(t, w)
	failing = false
	cfg := testConfig(dir)
	cfg.RetryFailed = true
	w = mustOpen(t, cfg)
	mustWrite(t, w, m.episode(1, 2))
	mustClose(t, w)
	for _, stop := range []bool{false, true} {
		r := toRescore(dir)
		r.Set = map[bool]string{false: "whole", true: "stopped"}[stop]
		var mu sync.Mutex
		seen := map[int]bool{}
		r.Judge = func(ctx context.Context, rows []*Row, whole bool) error {
			mu.Lock()
			defer mu.Unlock()
			if len(rows) == 1 && stop {
				return errors.New("stop here")
			}
			seen[len(rows)] = whole
			return place(ctx, rows, whole)
		}
		if _, err := Rescore(t.Context(), r); (err != nil) != stop {
			t.Fatal(err)
		}
		if stop {
			stop = false
			if _, err := Rescore(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(seen, map[int]bool{2: true, 1: false}) {
			t.Errorf("%s: %v", r.Set, seen)
		}
	}
}

// What is of other settings, no run, or in use is refused and left as it is.
func TestRescoreRefuses(t *testing.T) {
	dir, other := playedRun(t), playedRun(t)
	if _, err := Rescore(t.Context(), toRescore(dir)); err != nil {
		t.Fatal(err)
	}
	changed := toRescore(dir)
	changed.Digest = "another"
	ontoRun := toRescore(dir)
	ontoRun.Into = other
	copied := toRescore(dir)
	copied.Into = filepath.Join(t.TempDir(), "y")
	if _, err := Rescore(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	ontoCopy := toRescore(other)
	ontoCopy.Into, ontoCopy.Run = copied.Into, "r2"
	onto := toRescore(dir)
	onto.Into = dir
	odd := toRescore(dir)
	odd.Set = "../s"
	for name, c := range map[string]struct {
		cfg  Rescoring
		want error
	}{
		"another digest": {changed, ErrOtherSet}, "a run of its own": {ontoRun, ErrOtherSet}, "the copy of another run": {ontoCopy, ErrOtherSet}, "no run": {toRescore(t.TempDir()), ErrNotRun},
		"itself": {onto, nil}, "a path for a name": {odd, nil},
	} {
		if _, err := Rescore(t.Context(), c.cfg); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w := mustOpen(t, testConfig(other))
	if _, err := Rescore(t.Context(), toRescore(other)); !errors.Is(err, ErrLocked) {
		t.Errorf("a run that is written: %v", err)
	}
	mustClose(t, w)
}

// A rescored run can be gone on with: its own parts stay the books, and readers see the new rows beside the rescored ones until they are
// rescored too.
func TestRescoredRunGoesOn(t *testing.T) {
	dir := playedRun(t)
	if _, err := Rescore(t.Context(), toRescore(dir)); err != nil {
		t.Fatal(err)
	}
	m := made{run: "r", group: 3}
	w := mustOpen(t, testConfig(dir))
	mustWrite(t, w, m.episode(10, 1), m.episode(10, 2))
	mustClose(t, w)
	count := func() (judged, rows int) {
		for _, r := range rowsOf(t, dir) {
			if rows++; len(r.Rewards) > 0 && *r.Rewards[0].Name == "place" {
				judged++
			}
		}
		return judged, rows
	}
	if judged, rows := count(); judged != 29 || rows != 33 {
		t.Errorf("%d of %d rows have new verdicts", judged, rows)
	}
	got, err := Rescore(t.Context(), toRescore(dir))
	if err != nil || got.Earlier != 29 || got.Rows != 32 || got.Journal != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if judged, rows := count(); judged != 32 || rows != 33 {
		t.Errorf("again: %d of %d rows have new verdicts", judged, rows)
	}
}

// A copy of a run has the run's failures also when the run was gone on with since: what was retried is in it once, as it ended.
func TestRescoredCopyFollowsRetries(t *testing.T) {
	dir := playedRun(t)
	cfg := toRescore(dir)
	cfg.Into = filepath.Join(t.TempDir(), "y")
	if _, err := Rescore(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	m := made{run: "r", group: 3, failing: func(task, _ int) bool { return task == 11 }}
	again := testConfig(dir)
	again.RetryFailed = true
	w := mustOpen(t, again)
	mustWrite(t, w, m.episode(4, 1), m.episode(11, 0), m.episode(11, 1), m.episode(11, 2))
	mustClose(t, w)
	got, err := Rescore(t.Context(), cfg)
	if err != nil || got.Rows != 30 || got.Failed != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if !reflect.DeepEqual(files(t, cfg.Into, failuresDir), files(t, dir, failuresDir)) {
		t.Errorf("the failures are not those of the run")
	}
	run, copied := &Run{dir: dir, fs: disk{}}, &Run{dir: cfg.Into, fs: disk{}}
	a, aerr := run.Manifest()
	b, berr := copied.Manifest()
	if err := errors.Join(aerr, berr); err != nil || !reflect.DeepEqual(a.Failures, b.Failures) || b.FailureRows != 3 {
		t.Errorf("%+v\n%+v, %v", a.Failures, b.Failures, err)
	}
	if err := checkFiles(disk{}, cfg.Into, b); err != nil {
		t.Error(err)
	}
}

// Groups are marked for the rewards that they have now, and only where the run marked; other flags stay.
func TestRescoreMarksEqualGroupsAnew(t *testing.T) {
	for _, mark := range []bool{true, false} {
		dir := filepath.Join(fastDir(t), "x")
		cfg := testConfig(dir)
		cfg.MarkEqual = true
		w := mustOpen(t, cfg)
		m := made{run: "r", group: 3}
		for i := range 9 { // the first group is equal now, the second will be, the third has a failure to come
			e := m.episode(i/3, i%3)
			if e.Flags = []string{episode.FlagPromptCut}; i < 3 {
				e.Verdict.Total = episode.Ptr(1.0)
			}
			if i == 8 {
				e = made{run: "r", group: 3, failing: func(int, int) bool { return true }}.episode(2, 2)
			}
			mustWrite(t, w, e)
		}
		mustClose(t, w)
		r := toRescore(dir)
		r.MarkEqual = mark
		r.Judge = func(_ context.Context, rows []*Row, _ bool) error {
			for i, row := range rows {
				v := row.Verdict()
				if v.Total = episode.Ptr(0.5); row.TaskID == "task-0000" {
					v.Total = episode.Ptr(float64(i))
				}
				row.SetVerdict(v)
			}
			return nil
		}
		before := rowsOf(t, dir)
		if _, err := Rescore(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		for id, row := range rowsOf(t, dir) {
			if was, want := slices.Contains(before[id].Flags, FlagZeroVariance), row.TaskID == "task-0000"; was != want {
				t.Errorf("before: %s is marked %v", row.TaskID, was)
			}
			want := slices.DeleteFunc(slices.Clone(before[id].Flags), func(f string) bool { return f == FlagZeroVariance })
			if mark && row.TaskID == "task-0001" {
				want = append(want, FlagZeroVariance) // the last in order
			}
			if !slices.Equal(row.Flags, want) {
				t.Errorf("mark %v: %s sample %d has the flags %v, want %v", mark, row.TaskID, row.SampleIndex, row.Flags, want)
			}
		}
	}
}
