package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/episode"
	"tranche/storage"
)

// madeRow is a row of a run in which task 0 is never solved and later ones more and more often, and of which some fail.
func madeRow(run string, task, sample, samples int) *storage.Row {
	id := fmt.Sprintf("task-%02d", task)
	group := episode.GroupID(run, id, 0)
	r := &storage.Row{
		SchemaVersion: storage.SchemaVersion, RunID: run, EpisodeID: episode.ID(group, fmt.Sprint(sample)), GroupID: group, TaskID: id, TaskHash: "h" + id,
		SampleIndex: int32(sample), GroupSize: int32(samples), DataSource: []string{"math", "code", ""}[task%3], NumBranches: 1,
		Status: episode.Ptr("completed"), StopReason: episode.Ptr("stop"), Flags: []string{}, NumTurns: 1, NumOutputTokens: episode.Ptr(int32(10 + task)),
		Seed: episode.Ptr(int64(task*100 + sample)), Timing: storage.Timing{Total: 1}, CreatedAt: time.Unix(0, 0).UTC(),
		Messages: []storage.Message{{Role: episode.Ptr("assistant"), Content: episode.Ptr(fmt.Sprint(sample / 2))}},
	}
	if (task+3*sample)%11 == 5 {
		r.Status, r.StopReason, r.FaultStage, r.FaultClass = episode.Ptr("failed"), episode.Ptr("fault"), episode.Ptr("model"), episode.Ptr("timeout")
		return r
	}
	reward := 0.0
	if (sample*7+task*5)%20 < task {
		reward = 1
	}
	r.Reward, r.Scored = &reward, episode.Ptr(true)
	for range task % 3 {
		r.Actions = append(r.Actions, storage.Action{Name: episode.Ptr("python"), Status: episode.Ptr([]string{"ok", "error"}[sample%2]), WallMS: episode.Ptr(float32(5))})
	}
	return r
}

// madeRun writes a run of 20 tasks; change may alter a row, or drop it by returning false.
func madeRun(t *testing.T, run string, samples int, change func(*storage.Row) bool) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), run)
	d, err := storage.NewDataset(storage.DatasetConfig{Dir: dir, PartBytes: 40_000, RowGroupBytes: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	for task := range 20 {
		var group []*storage.Row
		for sample := range samples {
			if r := madeRow(run, task, sample, samples); change == nil || change(r) {
				group = append(group, r)
			}
		}
		if err := d.Add(group...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Close(storage.Making{How: "test"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// jsonOf runs a command and reads its JSON.
func jsonOf[T any](t *testing.T, args ...string) T {
	t.Helper()
	s := newShell(t)
	s.do(codeOK, append(args, "--json")...)
	var v T
	if err := json.Unmarshal(s.out.Bytes(), &v); err != nil {
		t.Fatalf("stdout is no JSON document: %v\n%s", err, s.out.String())
	}
	return v
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// stats counts what is in the rows: the figures are worked out here once more, the plain way.
func TestStatsAreThoseOfTheRows(t *testing.T) {
	dir := madeRun(t, "a", 6, nil)
	s := jsonOf[statistics](t, "stats", dir, "--by", "data_source")
	var n, failed, twins, even int64
	sum, tasks, byGroup, answers := 0.0, map[string]bool{}, map[string][]float64{}, map[string]map[string]int{}
	var tokens []float64
	calls := map[string]int64{}
	for _, r := range rowsIn(t, dir) {
		tasks[r.TaskID] = true
		if r.Reward != nil {
			n++
			sum += *r.Reward
			byGroup[r.GroupID] = append(byGroup[r.GroupID], *r.Reward)
		}
		if *r.Status == "failed" {
			failed++
			continue
		}
		tokens = append(tokens, float64(*r.NumOutputTokens))
		if answers[r.GroupID] == nil {
			answers[r.GroupID] = map[string]int{}
		}
		answers[r.GroupID][*r.Messages[0].Content]++
		for _, act := range r.Actions {
			calls[*act.Status]++
		}
	}
	for _, rewards := range byGroup {
		if slices.Min(rewards) == slices.Max(rewards) {
			even++
		}
	}
	for _, group := range answers {
		if slices.Max(slices.Collect(maps.Values(group))) > 1 {
			twins++
		}
	}
	slices.Sort(tokens)
	if s.Rows != 120 || s.Failed != failed || failed == 0 || s.Tasks != len(tasks) || s.Reward.N != n || !near(s.Reward.Mean, sum/float64(n)) || !near(s.Coverage, float64(n)/120) {
		t.Errorf("%+v, reward %+v", s.slice, s.Reward)
	}
	if q := s.Spreads["tokens out"]; q.N != int64(len(tokens)) || q.Quantiles.P50 != tokens[(len(tokens)+1)/2-1] || q.Quantiles.Min != tokens[0] || q.Quantiles.Max != tokens[len(tokens)-1] || q.Error != 0 {
		t.Errorf("tokens out: %+v", q.Quantiles)
	}
	if g := s.Groups; g.Groups != 20 || g.ZeroVariance != even || even == 0 || g.Twins != twins || g.Told != 20 {
		t.Errorf("groups %+v, want %d that are all the same and %d with twins", g, even, twins)
	}
	if a := s.Actions["python"]; a.Status["ok"] != calls["ok"] || a.Status["error"] != calls["error"] || a.Calls != calls["ok"]+calls["error"] {
		t.Errorf("actions %+v, want %v", a, calls)
	}
	if s.Faults["model/timeout"] != failed || s.Stops["fault"] != failed {
		t.Errorf("faults %v, stops %v", s.Faults, s.Stops)
	}
	var rows int64
	for _, line := range s.Table {
		rows += line.Rows
	}
	if len(s.Table) != 3 || rows != s.Rows || s.Table[0].Name != "code" && s.Table[0].Name != "math" {
		t.Errorf("table %+v", s.Table)
	}
	if len(s.Pass) == 0 || s.Pass[0].K != 1 {
		t.Errorf("pass %+v", s.Pass)
	}
}

// Flags choose the rows that stats counts: what it says of them is what it says of a run that has no others. Failed rows count as well.
func TestStatsOfChosenRows(t *testing.T) {
	dir := madeRun(t, "a", 6, nil)
	alone := madeRun(t, "a", 6, func(r *storage.Row) bool { return r.DataSource == "math" })
	got, want := jsonOf[statistics](t, "stats", dir, "--domain", "math"), jsonOf[statistics](t, "stats", alone)
	if got.Choice != `--domain ["math"]` || len(got.Columns) > 0 || len(want.Columns) == 0 || want.Failed == 0 {
		t.Errorf("choice %q, %d columns of %d, %d failed", got.Choice, len(got.Columns), len(want.Columns), want.Failed)
	}
	for _, s := range []*statistics{&got, &want} {
		s.Choice, s.Dirs, s.Columns, s.Disk, s.Encoded = "", nil, nil, 0, 0
	}
	if a, b := string(must(json.Marshal(got))), string(must(json.Marshal(want))); a != b {
		t.Errorf("of the chosen rows\n%s\nof a run of these\n%s", a, b)
	}
	if s := jsonOf[statistics](t, "stats", dir, "--min-reward", "1"); s.Rows == 0 || s.Failed != 0 || s.Reward.Mean != 1 {
		t.Errorf("%d rows, %d failed, reward %+v", s.Rows, s.Failed, s.Reward)
	}
	if s := jsonOf[statistics](t, "stats", dir, "--status", "failed"); s.Rows == 0 || s.Failed != s.Rows || s.Groups.Answered != 0 {
		t.Errorf("%d rows, %d failed, %+v", s.Rows, s.Failed, s.Groups)
	}
	newShell(t).do(codeUsage, "stats", dir, "--status", "good")
}

// Laws of diff: antisymmetric; nothing against itself; what was changed is what is found.
func TestDiffFindsWhatWasChanged(t *testing.T) {
	a := madeRun(t, "a", 6, nil)
	b := madeRun(t, "b", 6, func(r *storage.Row) bool {
		switch r.TaskID {
		case "task-19":
			return false // only in a
		case "task-07":
			r.TaskHash = "another"
		case "task-18":
			if r.Reward != nil { // the largest change
				*r.Reward = 0
			}
		}
		r.NumOutputTokens = episode.Ptr(*r.NumOutputTokens + 5)
		if len(r.Actions) > 0 {
			r.Actions = r.Actions[1:]
		}
		return true
	})
	same := jsonOf[difference](t, "diff", a, a)
	if d := same.Reward.Difference; d.Mean != 0 || *d.Low > 0 || *d.High < 0 || len(same.Top) != 0 || same.ByTask.Ties != same.ByTask.Pairs || len(same.Settings) != 0 {
		t.Errorf("against itself: %+v", same)
	}
	there, back := jsonOf[difference](t, "diff", a, b), jsonOf[difference](t, "diff", b, a)
	if x, y := there.Reward.Difference, back.Reward.Difference; x.Mean != -y.Mean || *x.Low != -*y.High || there.ByTask.Loses != back.ByTask.Wins || there.Top[0].Difference != -back.Top[0].Difference {
		t.Errorf("there %+v, back %+v", x, y)
	}
	if x := there.Tasks; x.Both != 19 || x.OnlyA != 1 || x.OnlyB != 0 || x.Other != 1 || x.IDs[0] != "task-07" {
		t.Errorf("tasks %+v", x)
	}
	if top := there.Top; len(top) != 1 || top[0].TaskID != "task-18" || top[0].B != 0 {
		t.Errorf("top %+v", top)
	}
	if m := there.Measures[0]; m.Name != "tokens out" || !near(m.Pair.Difference.Mean, 5) || !near(*m.Pair.Difference.Low, 5) {
		t.Errorf("tokens out %+v", m.Pair)
	}
	if there.Samples == nil || there.Samples.Pairs < 80 || there.Samples.Loses == 0 || there.Samples.Wins != 0 {
		t.Errorf("samples %+v", there.Samples)
	}
	if tool := there.Tools[0]; tool.Name != "python" || tool.Calls[1] >= tool.Calls[0] || tool.Episode.Difference.Mean >= 0 || tool.NotOK[0] == 0 {
		t.Errorf("tools %+v", tool)
	}
	newShell(t).do(codeOK, "view", a, "--episode", there.Top[0].EpisodeA)
	newShell(t).do(codeOK, "view", b, "--episode", there.Top[0].EpisodeB)
}

// --exact names the places in which rows differ, and nothing else.
func TestExactDiffNamesThePlace(t *testing.T) {
	a := madeRun(t, "a", 3, nil)
	b := madeRun(t, "a", 3, func(r *storage.Row) bool {
		r.Timing.Total, r.CreatedAt = 9, time.Unix(9, 0).UTC()
		if r.TaskID == "task-03" && r.SampleIndex == 1 {
			r.Messages[0].Content = episode.Ptr("otherwise")
		}
		return true
	})
	s := newShell(t)
	s.do(codeDiffers, "diff", a, b, "--exact", "--json")
	var d exactly
	if err := json.Unmarshal(s.out.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	if d.Same != 59 || d.Other != 1 || d.OnlyA+d.OnlyB != 0 || len(d.First) != 1 || len(d.First[0].Fields) != 1 || d.First[0].Fields[0].Field != "messages[0].content" || d.First[0].TaskID != "task-03" {
		t.Errorf("%+v", d)
	}
}

func idsOf(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	return jsonOf[struct{ Episodes []string }](t, append([]string{"sample", dir, "--ids", "-q"}, args...)...).Episodes
}

// Laws of sample: as many as were asked for, out of what was chosen; of a run that has grown the same ones, but for newcomers; groups whole;
// of each by itself; every row with the same chance.
func TestSampleLaws(t *testing.T) {
	dir := madeRun(t, "a", 6, nil)
	rows := map[string]*storage.Row{}
	for _, r := range rowsIn(t, dir) {
		rows[r.EpisodeID] = r
	}
	good := 0
	for _, r := range rows {
		if *r.Status != "failed" {
			good++
		}
	}
	for _, n := range []int{1, 7, good, good + 5} {
		ids := idsOf(t, dir, "-n", fmt.Sprint(n))
		if len(ids) != min(n, good) || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
			t.Errorf("-n %d: %d ids", n, len(ids))
		}
		for _, id := range ids {
			if rows[id] == nil || *rows[id].Status == "failed" {
				t.Errorf("-n %d: %s", n, id)
			}
		}
	}
	smaller := madeRun(t, "a", 6, func(r *storage.Row) bool { return r.TaskID < "task-15" })
	was, is := idsOf(t, smaller, "-n", "20"), idsOf(t, dir, "-n", "20")
	kept := 0
	for _, id := range is {
		if rows[id].TaskID < "task-15" {
			kept++
			if !slices.Contains(was, id) {
				t.Errorf("%s was not drawn when the run was smaller", id)
			}
		}
	}
	if kept == 0 || kept == 20 {
		t.Errorf("%d of 20 are old: the check tells nothing", kept)
	}
	groups := map[string]int{}
	for _, id := range idsOf(t, dir, "--groups", "-n", "4", "--failures", "--scored") {
		groups[rows[id].GroupID]++
	}
	for g, n := range groups {
		if n != 6 {
			t.Errorf("group %s is drawn with %d of 6 rows", g, n)
		}
	}
	if len(groups) != 4 {
		t.Errorf("%d groups, want 4", len(groups))
	}
	sources := map[string]int{}
	for _, id := range idsOf(t, dir, "--by", "data_source", "--per", "5") {
		sources[rows[id].DataSource]++
	}
	if !maps.Equal(sources, map[string]int{"math": 5, "code": 5, "": 5}) {
		t.Errorf("by data_source: %v", sources)
	}
	drawn := map[string]int{}
	const seeds = 24
	for seed := range seeds {
		for _, id := range idsOf(t, dir, "-n", fmt.Sprint(good/2), "--seed", fmt.Sprint(seed)) {
			drawn[id]++
		}
	}
	for id, r := range rows { // 12 of 24 on average, deviation 2.4
		if n := drawn[id]; *r.Status != "failed" && (n < 1 || n > 23) {
			t.Errorf("%s was drawn %d times of %d", id, n, seeds)
		}
	}
	out := filepath.Join(t.TempDir(), "s")
	newShell(t).do(codeOK, "sample", dir, "-n", "9", "-o", out, "-q")
	written, told := rowsIn(t, out), idsOf(t, dir, "-n", "9")
	if len(written) != 9 {
		t.Errorf("%d rows written", len(written))
	}
	for key, r := range written {
		if d := storage.Differences(r, rows[r.EpisodeID], 3); len(d) > 0 || !slices.Contains(told, r.EpisodeID) {
			t.Errorf("%s is not the row of the run: %v", key, d)
		}
	}
}

// Killed at any moment, a merge shows nothing or all; the same command then succeeds.
func TestKilledMerge(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes: skipped with -short")
	}
	a, b := madeRun(t, "a", 12, nil), madeRun(t, "b", 12, nil)
	want := len(rowsIn(t, a)) + len(rowsIn(t, b))
	base := t.TempDir()
	killed := 0
	for i := range 4 {
		out := filepath.Join(base, fmt.Sprint(i))
		cmd := exec.CommandContext(context.Background(), os.Args[0], "merge", a, b, "-o", out, "-q")
		cmd.Args[0] = "tranche"
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for range 400 { // until it has begun to write, and a while more
			if made, _ := filepath.Glob(filepath.Join(base, ".tmp-"+fmt.Sprint(i), "parts", "*")); len(made) > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		_ = cmd.Process.Kill()
		if cmd.Wait() != nil {
			killed++
		}
		if _, err := os.Stat(out); err != nil {
			newShell(t).do(codeOK, "merge", a, b, "-o", out, "-q")
		}
		rows := 0
		for _, err := range must(storage.OpenRun(out)).Rows() {
			if err != nil {
				t.Fatal(err)
			}
			rows++
		}
		if rows != want {
			t.Fatalf("kill %d: %d rows, want %d", i, rows, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(base, ".tmp-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	t.Logf("%d of 4 merges were killed before they ended", killed)
	if killed == 0 {
		t.Error("no merge was killed: the test tells nothing")
	}
}

// Text that a run holds does not steer the terminal or break a table.
func TestTablesShowStrangeNames(t *testing.T) {
	dir := madeRun(t, "a", 2, func(r *storage.Row) bool {
		r.DataSource = "\x1b[31m" + strings.Repeat("long ", 40)
		return true
	})
	s := newShell(t)
	s.do(codeOK, "stats", dir, "--by", "data_source")
	s.do(codeOK, "diff", dir, dir)
	if out := s.out.String(); strings.Contains(out, "\x1b") || !strings.Contains(out, "long") {
		t.Errorf("%s", out)
	}
	for line := range strings.Lines(s.out.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 100 && !strings.Contains(line, dir) {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
