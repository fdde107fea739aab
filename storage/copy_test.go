package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/episode"
)

// splitRun is a run of 12 tasks of 4 samples, some of them failed, in several parts, with run.yaml and an account.
func splitRun(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(fastDir(t), "whole")
	cfg := testConfig(dir)
	cfg.RunFile = []byte("run-id: \"r\"\n")
	w := mustOpen(t, cfg)
	m := made{run: "r", group: 4, failing: func(task, sample int) bool { return task%5 == 1 && sample == 2 }}
	for task := range 12 {
		for sample := range 4 {
			mustWrite(t, w, m.episode(task, sample))
		}
		if task%5 == 4 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.WriteAccount(map[string]int{"sessions": 1}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, w)
	return dir
}

func mustCopy(t testing.TB, cfg Copying) Copied {
	t.Helper()
	if cfg.How == "" {
		cfg.How = "merge"
	}
	got, err := Copy(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// inJSON is a dataset by key, every column of it.
func inJSON(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for id, r := range rowsOf(t, dir) {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		all[id] = string(b)
	}
	return all
}

// checkDataset holds a dataset against what is promised of every one.
func checkDataset(t *testing.T, dir string) {
	t.Helper()
	m, err := loadManifest(disk{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkFiles(disk{}, dir, m); err != nil {
		t.Error(err)
	}
	if len(m.Parts) == 0 {
		t.Error("no part: readers find no schema")
	}
	at := map[string]string{} // of each group, its row group
	for _, p := range m.files() {
		if err := checkSum(t.Context(), disk{}, dir, p); err != nil {
			t.Error(err)
		}
		rows := partRows(t, filepath.Join(dir, filepath.FromSlash(p.Path)))
		if int64(len(rows)) != p.Rows {
			t.Errorf("%s has %d rows, the manifest says %d", p.Path, len(rows), p.Rows)
		}
		failures := strings.HasPrefix(p.Path, failuresDir)
		seen, last, tasks := map[string]bool{}, "", map[string]bool{}
		for i, r := range rows {
			if r.failed() != failures {
				t.Errorf("%s: %s is in the wrong folder", p.Path, r.EpisodeID)
			}
			if failures {
				continue
			}
			if i > 0 && r.GroupID != rows[i-1].GroupID && seen[r.GroupID] {
				t.Errorf("%s: group %s is torn", p.Path, r.GroupID)
			}
			if i > 0 && r.GroupID == rows[i-1].GroupID && r.SampleIndex < rows[i-1].SampleIndex {
				t.Errorf("%s: group %s is not in sample order", p.Path, r.GroupID)
			}
			if r.TaskID != last && tasks[r.TaskID] {
				t.Errorf("%s: the groups of task %s do not follow one another", p.Path, r.TaskID)
			}
			seen[r.GroupID], last, tasks[r.TaskID] = true, r.TaskID, true
			if was, ok := at[r.GroupID]; ok && was != p.Path {
				t.Errorf("group %s is in %s and %s", r.GroupID, was, p.Path)
			}
			at[r.GroupID] = p.Path
		}
	}
	if m.Rows != rowsIn(m.Parts) || m.FailureRows != rowsIn(m.Failures) || m.Made == nil {
		t.Errorf("manifest: %+v", m)
	}
	for _, folder := range []string{".", partsDir, failuresDir} {
		names, _ := filepath.Glob(filepath.Join(dir, folder, tempPrefix+"*"))
		if len(names) > 0 {
			t.Errorf("left behind: %v", names)
		}
	}
}

// Law: however a run is split, by whole groups or by single rows, its pieces merged are the run again: every row in every column, groups
// whole, failures apart.
func TestMergingASplitGivesTheWhole(t *testing.T) {
	whole := splitRun(t)
	want := inJSON(t, whole)
	ids := slices.Sorted(maps.Keys(want))
	groups := map[string]string{}
	for id, r := range rowsOf(t, whole) {
		groups[id] = r.GroupID
	}
	for seed := range uint64(2) {
		rng := rand.New(rand.NewPCG(seed, 1))
		base := fastDir(t)
		n, byGroup := 3-int(seed), seed%2 == 0
		piece := map[string]int{}
		for _, id := range ids {
			unit := id
			if byGroup {
				unit = groups[id]
			}
			if _, ok := piece[unit]; !ok {
				piece[unit] = rng.IntN(n)
			}
			piece[id] = piece[unit]
		}
		rowGroup, part := []int64{1, 2000, 8 << 20}[rng.IntN(3)], []int64{1, 5000, 64 << 20}[rng.IntN(3)]
		var from []string
		for i := range n {
			dir := filepath.Join(base, fmt.Sprint(i))
			mustCopy(t, Copying{From: []string{whole}, Into: dir, Keep: func(id string) bool { return piece[id] == i }, RowGroupBytes: rowGroup, PartBytes: part})
			from = append(from, dir)
		}
		again := filepath.Join(base, "again")
		got := mustCopy(t, Copying{From: from, Into: again, RowGroupBytes: rowGroup, PartBytes: part})
		if rows := inJSON(t, again); !maps.Equal(rows, want) {
			t.Fatalf("seed %d: %d rows, want %d, or other ones", seed, len(rows), len(want))
		}
		checkDataset(t, again)
		if got.Alike != 0 || got.Preferred != 0 || (byGroup || n == 1) != (got.Gathered == 0) {
			t.Errorf("seed %d, %d pieces by group %v: %+v", seed, n, byGroup, got.Gathered)
		}
	}
}

// Law: merging twice changes nothing, and what is merged with itself is itself.
func TestMergingIsIdempotent(t *testing.T) {
	whole := splitRun(t)
	base := fastDir(t)
	once, twice, both := filepath.Join(base, "once"), filepath.Join(base, "twice"), filepath.Join(base, "both")
	a := mustCopy(t, Copying{From: []string{whole}, Into: once})
	b := mustCopy(t, Copying{From: []string{once}, Into: twice})
	c := mustCopy(t, Copying{From: []string{whole, once, twice}, Into: both})
	want := inJSON(t, whole)
	for _, dir := range []string{once, twice, both} {
		if got := inJSON(t, dir); !maps.Equal(got, want) {
			t.Errorf("%s: %d rows, want %d, or other ones", dir, len(got), len(want))
		}
		checkDataset(t, dir)
	}
	if id := a.Manifest.Made.ID; b.Manifest.Made.ID != id || c.Manifest.Made.ID != id {
		t.Error("the same episodes have different ids")
	}
	if c.Alike != 2*int64(len(want)) || c.Gathered != 0 {
		t.Errorf("%+v", c)
	}
	if s, err := (&Run{dir: both, fs: disk{}}).Summary(); err != nil || !sameJSON(s, c.Summary) {
		t.Errorf("summary %+v (%v), told %+v", s, err, c.Summary)
	}
}

// altered writes a copy of a run in which some rows have another answer.
func altered(t *testing.T, from string, ids ...string) string {
	t.Helper()
	dir := filepath.Join(fastDir(t), "altered")
	d, err := NewDataset(DatasetConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(t, from)
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		r := rows[id]
		if slices.Contains(ids, id) {
			r.Submitted = episode.Ptr("another")
		}
		if err := d.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Close(Making{How: "test"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDifferentRowsOfOneIDAreRefusedUnlessOneIsPreferred(t *testing.T) {
	whole := splitRun(t)
	ids := slices.Sorted(maps.Keys(rowsOf(t, whole)))
	other := altered(t, whole, ids[3], ids[17])
	into := filepath.Join(fastDir(t), "into")
	_, err := Copy(t.Context(), Copying{From: []string{whole, other}, Into: into, How: "merge"})
	var conflict *ConflictError
	if !errors.As(err, &conflict) || conflict.Total != 2 || conflict.First[0].EpisodeID != ids[3] || !slices.Equal(conflict.First[1].Dirs, []string{whole, other}) {
		t.Fatalf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(into), "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for prefer, want := range map[Preference]string{PreferFirst: whole, PreferLast: other} {
		dir := filepath.Join(fastDir(t), string(prefer))
		got := mustCopy(t, Copying{From: []string{whole, other}, Into: dir, Prefer: prefer})
		if !maps.Equal(inJSON(t, dir), inJSON(t, want)) {
			t.Errorf("prefer %s: other rows", prefer)
		}
		checkDataset(t, dir)
		if got.Preferred != 2 || got.Alike != int64(len(ids)-2) {
			t.Errorf("prefer %s: %+v", prefer, got)
		}
	}
}

// What a source knew of itself goes along, through several merges; the rewards are those that readers of it see; what is in its journal
// only is counted and left out.
func TestMergingKeepsWhereRowsAreFrom(t *testing.T) {
	whole, played := splitRun(t), playedRun(t)
	if _, err := Rescore(t.Context(), toRescore(played)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(whole, StreamName), []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	base := fastDir(t)
	first, second := filepath.Join(base, "first"), filepath.Join(base, "second")
	mustCopy(t, Copying{From: []string{played}, Into: first})
	got := mustCopy(t, Copying{From: []string{whole, first}, Into: second, Prefer: PreferFirst})
	sources := got.Manifest.Made.Sources
	if len(sources) != 2 || sources[0].RunID != "r" || sources[1].Made == nil || sources[1].Made.Sources[0].Rewards != "s" || sources[1].Made.Sources[0].Unfinished != 1 {
		t.Errorf("%+v", sources)
	}
	for _, name := range []string{"sources/00000/run.yaml", "sources/00000/account.json", "sources/00000/" + StreamName} {
		a, err := os.ReadFile(filepath.Join(second, name))
		b, berr := os.ReadFile(filepath.Join(whole, filepath.Base(name)))
		if err != nil || berr != nil || string(a) != string(b) {
			t.Errorf("%s: %v %v", name, err, berr)
		}
	}
	for id, r := range rowsOf(t, first) {
		if !r.failed() && *r.Rewards[0].Name != "place" {
			t.Errorf("%s: its reward is that of %s", id, *r.Rewards[0].Name)
		}
	}
	if n := len(rowsOf(t, first)); n != 30 {
		t.Errorf("%d rows, want 30: the one in the journal only is of a group that is not complete", n)
	}
	if _, err := Open(testConfig(second)); !errors.Is(err, ErrNotRun) || !strings.Contains(err.Error(), "put together by `merge`") {
		t.Errorf("a run can be played into it: %v", err)
	}
	cfg := toRescore(second)
	if _, err := Rescore(t.Context(), cfg); err != nil {
		t.Errorf("rescoring what was merged: %v", err)
	}
}

// A file that is not the one that was published is found before anything is to be seen.
func TestMergingComparesChecksums(t *testing.T) {
	whole := splitRun(t)
	m, err := loadManifest(disk{}, whole)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(whole, m.Parts[1].Path)
	for _, c := range []struct {
		name string
		harm func() error
	}{
		{"a flipped bit", func() error { return flip(name, m.Parts[1].Bytes/2) }},
		{"a missing file", func() error { return os.Remove(name) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.harm(); err != nil {
				t.Fatal(err)
			}
			into := filepath.Join(fastDir(t), "into")
			_, err := Copy(t.Context(), Copying{From: []string{whole}, Into: into, How: "merge"})
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), filepath.Base(name)) {
				t.Errorf("%v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(into), "*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestWhereADatasetMayGo(t *testing.T) {
	whole := splitRun(t)
	base := fastDir(t)
	full, empty, plain := filepath.Join(base, "full"), filepath.Join(base, "empty"), filepath.Join(base, "plain")
	for _, dir := range []string{full, empty} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{filepath.Join(full, "mine.txt"), plain} {
		if err := os.WriteFile(name, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, into := range []string{full, plain, whole} {
		if _, err := Copy(t.Context(), Copying{From: []string{whole}, Into: into, How: "merge"}); !errors.Is(err, ErrTaken) {
			t.Errorf("%s: %v", into, err)
		}
	}
	for _, into := range []string{empty, filepath.Join(base, "new", "deep")} {
		mustCopy(t, Copying{From: []string{whole}, Into: into})
		checkDataset(t, into)
	}
	locked, err := NewDataset(DatasetConfig{Dir: filepath.Join(base, "two")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewDataset(DatasetConfig{Dir: filepath.Join(base, "two")}); !errors.Is(err, ErrLocked) {
		t.Errorf("two at once: %v", err)
	}
	if err := locked.Abandon(); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadDir(base); len(got) != 4 {
		t.Errorf("left behind: %v", got)
	}
}

// A merge that dies, or whose disk fails, at any of its operations leaves nothing under the name, or all of it; the same again succeeds.
func TestMergeThatDiesAnywhere(t *testing.T) {
	whole := filepath.Join(fastDir(t), "whole")
	w := mustOpen(t, testConfig(whole))
	m := made{run: "r", group: 2, failing: func(task, sample int) bool { return task == 1 && sample == 1 }}
	for task := range 3 {
		mustWrite(t, w, m.episode(task, 0), m.episode(task, 1))
	}
	mustClose(t, w)
	ids := slices.Sorted(maps.Keys(rowsOf(t, whole)))
	base := fastDir(t)
	pieces := []string{filepath.Join(base, "a"), filepath.Join(base, "b")}
	for i, dir := range pieces {
		mustCopy(t, Copying{From: []string{whole}, Into: dir, Keep: func(id string) bool { at, _ := slices.BinarySearch(ids, id); return at%2 == i }})
	}
	want := inJSON(t, whole)
	for _, dead := range []bool{false, true} {
		step := 6 // every one with TRANCHE_SOAK=1
		if os.Getenv("TRANCHE_SOAK") != "" {
			step = 1
		}
		for failAt := 1; ; failAt += step {
			into := filepath.Join(base, fmt.Sprintf("into-%v-%d", dead, failAt))
			cfg := Copying{From: pieces, Into: into, How: "merge"}
			fsys := newFaultyDisk(failAt, dead)
			_, err := copyOn(context.Background(), fsys, cfg)
			if !fsys.hit {
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d operations", fsys.ops)
				break
			}
			_, serr := os.Stat(into)
			if serr == nil {
				if got := inJSON(t, into); !maps.Equal(got, want) {
					t.Fatalf("operation %d: half of it is to be seen", failAt)
				}
				continue
			}
			if err == nil {
				t.Fatalf("operation %d failed and nobody says so", failAt)
			}
			temp := filepath.Join(base, tempPrefix+filepath.Base(into))
			if _, terr := os.Stat(temp); terr == nil && !dead { // a disk that works again has removed what was made
				t.Fatalf("operation %d: left behind", failAt)
			}
			if !dead {
				continue
			}
			mustCopy(t, cfg)
			if got := inJSON(t, into); !maps.Equal(got, want) {
				t.Fatalf("operation %d: the second time gives %d rows", failAt, len(got))
			}
			if left, _ := filepath.Glob(filepath.Join(base, tempPrefix+"*")); len(left) > 0 {
				t.Fatalf("operation %d: left behind after the second time: %v", failAt, left)
			}
		}
	}
}

// A canceled merge leaves nothing.
func TestCanceledMergeLeavesNothing(t *testing.T) {
	whole := splitRun(t)
	into := filepath.Join(fastDir(t), "into")
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	_, err := Copy(ctx, Copying{From: []string{whole}, Into: into, How: "merge", Progress: func() { cancel(stop) }})
	if !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(into), "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Facts are the row's own, from parts and from the journal; Published leaves the journal out.
func TestFactsAreThoseOfTheRows(t *testing.T) {
	dir := playedRun(t)
	run, err := OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(t, dir)
	seen, answers := 0, 0
	for f, err := range run.Facts() {
		if err != nil {
			t.Fatal(err)
		}
		seen++
		want := FactsOf(rows[f.EpisodeID])
		if got, is := must(json.Marshal(f)), must(json.Marshal(&want)); string(got) != string(is) {
			t.Errorf("%s\n got %s\nwant %s", f.EpisodeID, got, is)
		}
	}
	sums := map[Answer]int{}
	for _, r := range rows {
		sums[answeredOf(r).answer()]++
	}
	for a, err := range run.Answers(nil) {
		if err != nil {
			t.Fatal(err)
		}
		answers++
		if sums[a]--; sums[a] < 0 || a.Sum == 0 {
			t.Errorf("%+v is the answer of no row", a)
		}
	}
	if seen != len(rows) || answers != len(rows) {
		t.Errorf("facts of %d and answers of %d rows, want %d", seen, answers, len(rows))
	}
	chosen := 0
	for _, err := range run.Answers(func(head *Row) bool { return head.DataSource == "source-1" && head.Status != nil }) {
		if chosen++; err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range rows {
		if r.DataSource == "source-1" {
			chosen--
		}
	}
	if chosen != 0 {
		t.Errorf("%d more answers than rows of the source", chosen)
	}
	n := 0
	for _, err := range run.Published(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != len(rows)-1 {
		t.Errorf("%d rows are published, want %d", n, len(rows)-1)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestColumnsAddUpToTheFiles(t *testing.T) {
	dir := splitRun(t)
	run, err := OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := run.Columns()
	if err != nil {
		t.Fatal(err)
	}
	m, _ := run.Manifest()
	var disk, files, ids int64
	for _, c := range columns {
		disk += c.Bytes
		if c.Name == "episode_id" {
			ids = c.Values
		}
	}
	for _, p := range m.files() {
		files += p.Bytes
	}
	if disk == 0 || disk > files || ids != m.Rows+m.FailureRows {
		t.Errorf("columns take %d of %d bytes, %d ids of %d rows", disk, files, ids, m.Rows+m.FailureRows)
	}
}

// docs/format.md names under "Order" what tells how it went that time. A row that differs in one of these is the same; a row that differs in
// anything else is not, and the place is named.
func TestWhatTellsHowItWentIsNoDifference(t *testing.T) {
	base := fullRow()
	sum, err := base.LastingSum()
	if err != nil {
		t.Fatal(err)
	}
	fleeting := map[string]bool{}
	for _, name := range strings.Fields("created_at timing attempt raw turns.queue_ms turns.ttft_ms turns.service_ms turns.retries turns.endpoint turns.cached_tokens " +
		"fault_attempts.began fault_attempts.ended fault_attempts.endpoint actions.wall_ms actions.cpu_ms actions.queue_ms actions.setup_ms actions.peak_memory rewards.wall_ms rewards.cpu_ms") {
		fleeting[name] = false
	}
	doc, err := os.ReadFile("../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, order, _ := strings.Cut(string(doc), "hold the same rows but for\n")
	order, _, _ = strings.Cut(order, "\n\n")
	for name := range fleeting {
		if last := name[strings.LastIndex(name, ".")+1:]; !strings.Contains(order, "`"+last+"`") {
			t.Errorf("docs/format.md, Order, does not name %s", name)
		}
	}
	if n := strings.Count(order, "`") / 2; n != len(fleeting)+1 || !strings.Contains(order, "the flag `resumed`") {
		t.Errorf("docs/format.md, Order, names %d things, want %d fields and the flag resumed", n, len(fleeting))
	}
	resumed := fullRow()
	resumed.Flags = append(resumed.Flags, episode.FlagResumed)
	if now := must(resumed.LastingSum()); now != sum || len(Differences(base, resumed, 3)) != 0 || len(resumed.Flags) != 2 {
		t.Errorf("an episode that was resumed counts as another: %v", Differences(base, resumed, 3))
	}
	eachLeaf(reflect.ValueOf(base).Elem(), "", func(name string, change func() (undo func())) {
		undo := change()
		defer undo()
		now, err := base.LastingSum()
		if err != nil {
			t.Fatal(err)
		}
		passing := strings.HasPrefix(name, "timing") || strings.HasPrefix(name, "raw")
		if _, ok := fleeting[name]; ok || passing {
			if now != sum {
				t.Errorf("%s tells how it went, and the row counts as another", name)
			}
			return
		}
		if now == sum {
			t.Errorf("%s was changed, and the row counts as the same", name)
		}
		if d := Differences(fullRow(), base, 3); len(d) != 1 || !strings.HasPrefix(strings.NewReplacer("[0]", "", "[1]", "").Replace(d[0].Field), name) {
			t.Errorf("%s was changed, found %v", name, d)
		}
	})
	if d := Differences(fullRow(), base, 3); len(d) != 0 {
		t.Errorf("the test left %v behind", d)
	}
}

// fullRow has a value in every field.
func fullRow() *Row {
	r := &Row{}
	fillValue(reflect.ValueOf(r).Elem())
	return r
}

func fillValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)))
			return
		}
		for i := range v.NumField() {
			fillValue(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillValue(v.Index(0))
	case reflect.String:
		v.SetString("a")
	case reflect.Bool:
		v.SetBool(false)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.Uint8:
		v.SetUint(1)
	default:
		v.SetInt(1)
	}
}

// eachLeaf calls do for every field that holds a value, with a change to it.
func eachLeaf(v reflect.Value, name string, do func(name string, change func() func())) {
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	alter := func(f func()) { do(name, func() func() { f(); return func() { v.Set(old) } }) }
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			alter(func() { v.Set(reflect.ValueOf(time.Unix(1, 0).UTC())) })
			return
		}
		for i := range v.NumField() {
			eachLeaf(v.Field(i), strings.TrimPrefix(name+"."+v.Type().Field(i).Tag.Get("json"), "."), do)
		}
	case reflect.Pointer:
		alter(func() { v.SetZero() })
		eachLeaf(v.Elem(), name, do)
	case reflect.Slice:
		alter(func() { v.SetZero() })
		eachLeaf(v.Index(0), name, do)
	case reflect.String:
		alter(func() { v.SetString("b") })
	case reflect.Bool:
		alter(func() { v.SetBool(true) })
	case reflect.Float32, reflect.Float64:
		alter(func() { v.SetFloat(2) })
	case reflect.Uint8:
		alter(func() { v.SetUint(2) })
	default:
		alter(func() { v.SetInt(2) })
	}
}
