package storage

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"
)

// replaced is a list of files after a merge that was only planned.
func (s stretch) replaced(list []Part, path string) ([]Part, Part) {
	raw, rewritten := s.bytes(list)
	one := Part{Path: path, Rows: 1, RawBytes: raw, Rewritten: raw + rewritten}
	return slices.Concat(list[:s.from], []Part{one}, list[s.to:]), one
}

// Laws of the plans, over any sizes of parts: no row is written more than three times on average, no file passes PartBytes, files that may not be
// merged or are not small stay, and so does the order; it ends; and small files do not pile up.
func TestPlansLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const partBytes = 1 << 20
		least := rapid.IntRange(2, 20).Draw(t, "least")
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(1, 2000), rapid.Int64Range(1, partBytes)), 1, 150).Draw(t, "sizes")
		fixed := map[string]bool{}
		may := func(p Part) bool { return !fixed[p.Path] }
		var list []Part
		published, written := int64(0), int64(0)
		apply := func(s stretch) {
			for _, p := range list[s.from:s.to] {
				if fixed[p.Path] || !small(p, partBytes) {
					t.Fatalf("%+v was merged", p)
				}
			}
			var one Part
			list, one = s.replaced(list, list[s.from].Path)
			written += one.RawBytes
			if one.RawBytes > partBytes || s.to-s.from < 2 || s.to-s.from > mergeWidth {
				t.Fatalf("%d files made one of %d bytes", s.to-s.from, one.RawBytes)
			}
			if one.Rewritten > maxRewrites*one.RawBytes {
				t.Fatalf("%d bytes were written again for a file of %d", one.Rewritten, one.RawBytes)
			}
		}
		all := func(want plan) {
			for {
				s, ok := want(list, may, partBytes)
				if !ok {
					return
				}
				apply(s)
			}
		}
		for i, n := range sizes {
			p := Part{Path: fmt.Sprintf("%05d", i), Rows: 1, RawBytes: n}
			fixed[p.Path] = rapid.IntRange(0, 20).Draw(t, "fixed") == 0
			list = append(list, p)
			published += n
			all(piledUp(least))
			for level := range maxRewrites {
				for _, s := range runsOf(list, func(p Part) bool { return may(p) && small(p, partBytes) && p.level() == level }) {
					if s.to-s.from >= least {
						t.Fatalf("%d files of level %d are left", s.to-s.from, level)
					}
				}
			}
		}
		all(leftOver)
		if sum, _ := (stretch{0, len(list)}).bytes(list); sum != published || published+written > 3*published {
			t.Fatalf("%d bytes in files, %d published, %d written again", sum, published, written)
		}
		if !slices.IsSortedFunc(list, func(a, b Part) int { return strings.Compare(a.Path, b.Path) }) {
			t.Fatal("the order changed")
		}
		for _, s := range runsOf(list, func(p Part) bool { return may(p) && small(p, partBytes) }) {
			for from := s.from; from+1 < s.to; from++ {
				if (stretch{from, from + 2}).affordable(list) {
					t.Fatalf("two neighbours are left: %+v", list[from:from+2])
				}
			}
		}
		before, merges := len(list), 0
		for s, ok := allSmall(list, may, partBytes); ok; s, ok = allSmall(list, may, partBytes) {
			list, _ = s.replaced(list, list[s.from].Path)
			merges++
		}
		if merges >= before {
			t.Fatalf("%d merges of %d files", merges, before)
		}
	})
}

// What a slow run keeps of its parts, one every five minutes, with the sizes the program has.
func TestSlowRunKeepsFewFiles(t *testing.T) {
	const partBytes = 64 << 20
	for _, c := range []struct {
		days int
		raw  int64 // of a part
		most int   // files before the run is closed
	}{
		{1, 10 << 10, 35}, {1, 1 << 20, 35}, {1, 20 << 20, 110}, {7, 10 << 10, 45}, {7, 1 << 20, 80}, {30, 10 << 10, 70},
	} {
		var list []Part
		written := int64(0)
		for range c.days * 288 {
			list = append(list, Part{Path: "x", Rows: 1, RawBytes: c.raw})
			written += c.raw
			for s, ok := piledUp(16)(list, func(Part) bool { return true }, partBytes); ok; s, ok = piledUp(16)(list, func(Part) bool { return true }, partBytes) {
				var one Part
				list, one = s.replaced(list, "x")
				written += one.RawBytes
			}
		}
		published := int64(c.days) * 288 * c.raw
		t.Logf("%d days, %d KiB every 5 min: %d parts became %d files, %.2f bytes written a byte", c.days, c.raw>>10, c.days*288, len(list), float64(written)/float64(published))
		if len(list) > c.most {
			t.Errorf("%d files are left of %d days with %d bytes every 5 min, want at most %d", len(list), c.days, c.raw, c.most)
		}
	}
}

// manyParts writes tasks of four samples, a part for each so many, some of them failing, and every third part again as a second round of the
// tasks of the one before.
func manyParts(t *testing.T, cfg Config, parts, tasks int) made {
	t.Helper()
	m := made{run: "r", group: 4, text: 300, failing: killFailing}
	w := mustOpen(t, cfg)
	for p := range parts {
		for task := range tasks {
			for sample := range 4 {
				e := m.episode(p*tasks+task, sample)
				if !w.Done(e.ID) {
					mustWrite(t, w, e)
				}
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, w)
	return m
}

func copyRun(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// checkFolders demands that the folders hold what the manifest lists and nothing else, that each file is as it is listed, and that each group is in one
// row group.
func checkFolders(t *testing.T, dir string) Manifest {
	t.Helper()
	m, err := loadManifest(disk{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkFiles(disk{}, dir, m); err != nil {
		t.Error(err)
	}
	if m.Rows != rowsIn(m.Parts) || m.FailureRows != rowsIn(m.Failures) {
		t.Errorf("%d and %d rows, the files have %d and %d", m.Rows, m.FailureRows, rowsIn(m.Parts), rowsIn(m.Failures))
	}
	listed := map[string]bool{}
	for _, p := range m.files() {
		listed[p.Path] = true
		if b, err := os.ReadFile(filepath.Join(dir, p.Path)); err != nil || fmt.Sprintf("%x", sha256.Sum256(b)) != p.SHA256 {
			t.Errorf("%s is not the file that was listed (%v)", p.Path, err)
		}
		checkGroups(t, dir, p)
	}
	for _, folder := range []string{partsDir, failuresDir} {
		entries, _ := os.ReadDir(filepath.Join(dir, folder))
		for _, e := range entries {
			if name := folder + "/" + e.Name(); !listed[name] {
				t.Errorf("%s is left over", name)
			}
		}
	}
	return m
}

func checkGroups(t *testing.T, dir string, p Part) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, p.Path))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, _ := f.Stat()
	pf, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	if len(pf.RowGroups()) != p.RowGroups || pf.NumRows() != p.Rows {
		t.Errorf("%s: %d rows in %d row groups, listed are %d in %d", p.Path, pf.NumRows(), len(pf.RowGroups()), p.Rows, p.RowGroups)
	}
	rows := partRows(t, filepath.Join(dir, p.Path))
	ended := map[string]bool{}
	at := 0
	for _, g := range pf.RowGroups() {
		last := ""
		for _, r := range rows[at : at+int(g.NumRows())] {
			if r.GroupID != last && ended[r.GroupID] {
				t.Errorf("%s: group %s is in two places", p.Path, r.GroupID)
			}
			last = r.GroupID
			ended[last] = true
		}
		at += int(g.NumRows())
	}
}

// sameRows compares two runs row by row.
func sameRows(t *testing.T, wantDir, gotDir string) {
	t.Helper()
	want, got := rowsOf(t, wantDir), rowsOf(t, gotDir)
	if len(want) != len(got) {
		t.Errorf("%d rows, want %d", len(got), len(want))
	}
	for id, w := range want {
		if !reflect.DeepEqual(w, got[id]) {
			t.Fatalf("row %s differs\n got %+v\nwant %+v", id, got[id], w)
		}
	}
}

func TestSmallPartsBecomeOne(t *testing.T) {
	plain, dir, asked := fastDir(t), fastDir(t), filepath.Join(fastDir(t), "copy")
	manyParts(t, testConfig(plain), 14, 2)
	cfg := testConfig(dir)
	cfg.SmallParts = 4
	manyParts(t, cfg, 14, 2)
	copyRun(t, plain, asked)
	before := checkFolders(t, plain)
	if len(before.Parts) != 14 {
		t.Fatalf("%d parts, want 14", len(before.Parts))
	}
	after := checkFolders(t, dir)
	if len(after.Parts) > 3 || len(after.Failures) > 3 || after.NextPart <= 14 {
		t.Errorf("%d parts and %d failure files are left, the next is %d", len(after.Parts), len(after.Failures), after.NextPart)
	}
	for _, p := range after.files() {
		if p.Rewritten > maxRewrites*p.RawBytes {
			t.Errorf("%s: %d bytes were written again for %d", p.Path, p.Rewritten, p.RawBytes)
		}
	}
	sameRows(t, plain, dir)
	var seen []int
	done, err := Compact(t.Context(), Compaction{Dir: asked, Made: func(c Compacted) { seen = append(seen, c.Into) }})
	if err != nil || done.Into != 2 || done.Files != len(before.Parts)+len(before.Failures) || done.Rows != before.Rows+before.FailureRows || len(done.Left) > 0 || !slices.Equal(seen, []int{1, 2}) {
		t.Errorf("%+v, %v, told %v", done, err, seen)
	}
	if done.After >= done.Before {
		t.Errorf("%d bytes became %d", done.Before, done.After)
	}
	if m := checkFolders(t, asked); len(m.Parts) != 1 || len(m.Failures) != 1 {
		t.Errorf("%d parts, %d failure files", len(m.Parts), len(m.Failures))
	}
	sameRows(t, plain, asked)
	again, err := Compact(t.Context(), Compaction{Dir: asked})
	if err != nil || again.Into != 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
	w := mustOpen(t, testConfig(dir)) // the books of a compacted run are those of the other
	if s := w.Summary(); s.Rows != 112 || w.Manifest().Generation != after.Generation {
		t.Errorf("%d rows at generation %d", s.Rows, w.Manifest().Generation)
	}
}

// Groups of one task come together, by round, and a group that a retry had split is whole again.
func TestMergeBringsTasksAndGroupsTogether(t *testing.T) {
	dir := fastDir(t)
	m := made{run: "r", group: 2}
	row := func(task, round, sample int) Row {
		r := RowOf(m.episode(task*100+round, sample))
		r.TaskID, r.Round = fmt.Sprint("task", task), int32(round)
		return r
	}
	options := partOptions()
	var list []Part
	for i, rows := range [][]Row{
		{row(1, 0, 0), row(1, 0, 1), row(2, 0, 1)},
		{row(3, 0, 0), row(3, 0, 1), row(2, 1, 0), row(2, 1, 1)},
		{row(2, 0, 0), row(1, 1, 0), row(1, 1, 1)},
	} {
		list = append(list, madePart(t, dir, i, options, rows))
	}
	one, err := (merger{fs: disk{}, dir: dir, options: options, groupBytes: 1}).merge(t.Context(), partName(partsDir, 9), list)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range partRows(t, filepath.Join(dir, one.part.Path)) {
		got = append(got, fmt.Sprintf("%s%d%d", r.TaskID[4:], r.Round, r.SampleIndex))
	}
	if want := strings.Fields("100 101 110 111 200 201 210 211 300 301"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if one.part.RowGroups != 5 {
		t.Errorf("%d row groups, want one a group", one.part.RowGroups)
	}
}

func madePart(t *testing.T, dir string, number int, options []parquet.WriterOption, rows []Row) Part {
	t.Helper()
	if err := (disk{}).MakeDir(filepath.Join(dir, partsDir)); err != nil {
		t.Fatal(err)
	}
	pw, err := newPartWriter(disk{}, dir, partName(partsDir, number), options)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if err := pw.add(&rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	part, err := pw.publish()
	if err != nil {
		t.Fatal(err)
	}
	return part
}

// A reader in the middle of its walk, and one that looks for a row, while everything is put into other files under them.
func TestReadersSeeEachRowOnceWhileFilesAreMerged(t *testing.T) {
	dir := fastDir(t)
	m := manyParts(t, testConfig(dir), 12, 2)
	run, err := OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for r, err := range run.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		if seen[r.EpisodeID]++; len(seen) == 13 { // in the second file
			done, err := Compact(t.Context(), Compaction{Dir: dir})
			if err != nil || done.Into != 2 {
				t.Fatalf("%+v, %v", done, err)
			}
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was read %d times", id, n)
		}
	}
	if len(seen) != 96 {
		t.Errorf("%d rows were read, want 96", len(seen))
	}
	if r, err := run.Find(m.episode(7, 1).ID); err != nil || r.TaskID != "task-0007" {
		t.Errorf("%v, %v", r, err)
	}
	stale := &Run{dir: dir, fs: &movingDisk{fileSystem: disk{}, dir: dir, t: t}}
	if r, err := stale.Find(m.episode(7, 1).ID); err != nil || r.TaskID != "task-0007" {
		t.Errorf("while it moves: %v, %v", r, err)
	}
}

// movingDisk merges two parts into one when the first part is opened.
type movingDisk struct {
	fileSystem
	dir   string
	t     *testing.T
	moved bool
}

func (d *movingDisk) Open(path string) (file, error) {
	if strings.Contains(path, partsDir+string(filepath.Separator)+"part-") && !d.moved {
		d.moved = true
		cfg := testConfig(d.dir)
		w := mustOpen(d.t, cfg)
		mustWrite(d.t, w, made{run: "r"}.episode(9000, 0))
		mustClose(d.t, w)
		if done, err := Compact(d.t.Context(), Compaction{Dir: d.dir}); err != nil || done.Into != 1 {
			d.t.Errorf("%+v, %v", done, err)
		}
	}
	return d.fileSystem.Open(path)
}

// A retry after compaction replaces its failure in the file where it is by then.
func TestRetryFindsFailuresThatWereMerged(t *testing.T) {
	dir := fastDir(t)
	m := manyParts(t, testConfig(dir), 12, 3)
	cfg := testConfig(dir)
	cfg.RetryFailed, cfg.SmallParts = true, 2
	w := mustOpen(t, cfg)
	mustWrite(t, w, made{run: "r"}.episode(9000, 0))
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		if len(w.Manifest().Failures) == 1 {
			break
		}
		mustWrite(t, w, made{run: "r"}.episode(9001+int(w.Counts().Good), 0))
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.Manifest().Failures); n != 1 {
		t.Fatalf("%d failure files: they were not merged", n)
	}
	merged, failures := w.Manifest().Failures[0], w.Manifest().FailureRows
	m.failing = nil
	retried := 0
	for i := range 12 * 3 * 4 {
		if e := m.episode(i/4, i%4); killFailing(i/4, i%4) {
			mustWrite(t, w, e)
			if retried++; retried == 2 {
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
				if left := w.Manifest().Failures; len(left) != 1 || left[0].level() != merged.level() {
					t.Errorf("%+v is left of %+v: its rows were written again as often", left, merged)
				}
			}
		}
	}
	mustClose(t, w)
	if int64(retried) != failures || failures == 0 {
		t.Fatalf("%d retried, %d failures", retried, failures)
	}
	man := checkFolders(t, dir)
	good, failed := published(t, dir)
	if man.FailureRows != 0 || len(failed) != 0 {
		t.Errorf("%d failures are left", len(failed))
	}
	for id, n := range good {
		if n != 1 {
			t.Errorf("%s is in parts %d times", id, n)
		}
	}
}

// Parts that a set of rewards stands on stay as they are; others are merged, and readers see each row once, with its new verdict.
func TestPartsOfRewardSetsAreLeft(t *testing.T) {
	dir := playedRun(t)
	if _, err := Rescore(t.Context(), toRescore(dir)); err != nil {
		t.Fatal(err)
	}
	m := made{run: "r", group: 3}
	for task := 20; task < 24; task++ { // parts behind the set
		w := mustOpen(t, testConfig(dir))
		mustWrite(t, w, m.episode(task, 0), m.episode(task, 1), m.episode(task, 2))
		mustClose(t, w)
	}
	before, _ := loadManifest(disk{}, dir)
	rows := rowsOf(t, dir)
	done, err := Compact(t.Context(), Compaction{Dir: dir})
	if err != nil || done.Into != 1 || done.Files != 4 {
		t.Fatalf("%+v, %v", done, err)
	}
	after := checkFolders(t, dir)
	if !reflect.DeepEqual(after.Parts[:3], before.Parts[:3]) || !reflect.DeepEqual(after.RewardSets, before.RewardSets) {
		t.Errorf("what the set stands on changed: %+v", after)
	}
	if got := rowsOf(t, dir); !reflect.DeepEqual(got, rows) {
		t.Error("rows differ")
	}
	if _, err := Rescore(t.Context(), toRescore(dir)); err != nil {
		t.Fatal(err)
	}
	for _, r := range rowsOf(t, dir) {
		if !r.failed() && r.TaskID != "task-0010" && *r.Rewards[0].Name != "place" {
			t.Errorf("%s has the old verdict", r.EpisodeID)
		}
	}
}

// A copy with other rewards follows a run whose parts were made into one, and is not compacted itself.
func TestRescoredCopyFollowsCompaction(t *testing.T) {
	dir := playedRun(t)
	cfg := toRescore(dir)
	cfg.Into = filepath.Join(t.TempDir(), "y")
	first, err := Rescore(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := rowsOf(t, cfg.Into)
	if _, err := Compact(t.Context(), Compaction{Dir: cfg.Into}); !errors.Is(err, ErrMirror) {
		t.Errorf("a copy is compacted: %v", err)
	}
	if done, err := Compact(t.Context(), Compaction{Dir: dir}); err != nil || done.Into != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	again, err := Rescore(t.Context(), cfg)
	if err != nil || again.Rows != first.Rows || again.Earlier != 0 {
		t.Errorf("%+v, %v", again, err)
	}
	if m := checkFolders(t, cfg.Into); len(m.Parts) != 1 || !m.Rescored.Set.Complete {
		t.Errorf("%+v", m)
	}
	if got := rowsOf(t, cfg.Into); !reflect.DeepEqual(got, want) {
		t.Error("the copy has other rows now")
	}
}

// A part that cannot be read, or has columns of a newer program, stays as it is, and the run goes on.
func TestFilesThatCannotBeMergedStay(t *testing.T) {
	type later struct {
		Row
		New *string `parquet:"new_column,optional"`
	}
	for name, harm := range map[string]func(t *testing.T, path string){
		"a flipped bit": func(t *testing.T, path string) {
			if err := flip(path, inside(t, path, "messages")); err != nil {
				t.Fatal(err)
			}
		},
		"a column of a newer program": func(t *testing.T, path string) {
			var rows []later
			for _, r := range partRows(t, path) {
				rows = append(rows, later{Row: *r})
			}
			if err := parquet.WriteFile(path, rows, parquet.Compression(newZstdCodec())); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := fastDir(t)
			m := manyParts(t, testConfig(dir), 6, 2)
			before, _ := loadManifest(disk{}, dir)
			bad := before.Parts[2].Path
			harm(t, filepath.Join(dir, bad))
			info, _ := os.Stat(filepath.Join(dir, bad))
			before.Parts[2].Bytes = info.Size()
			if err := saveManifest(disk{}, dir, before); err != nil {
				t.Fatal(err)
			}
			cfg := testConfig(dir)
			cfg.SmallParts = 2
			w := mustOpen(t, cfg)
			mustWrite(t, w, m.episode(500, 0), m.episode(500, 1), m.episode(500, 2), m.episode(500, 3))
			mustClose(t, w)
			done := w.Compacted()
			if len(done.Left) != 1 || !strings.Contains(done.Left[0].Error(), bad) {
				t.Errorf("%+v", done)
			}
			after, _ := loadManifest(disk{}, dir)
			if !slices.ContainsFunc(after.Parts, func(p Part) bool { return p.Path == bad }) {
				t.Errorf("%s was merged", bad)
			}
			if after.Rows != before.Rows+4 || len(after.Parts) != 3 || done.Into < 2 {
				t.Errorf("%d rows in %d parts, %+v", after.Rows, len(after.Parts), done)
			}
		})
	}
}

// inside is an offset in the data of a column that Open does not read.
func inside(t *testing.T, path, column string) int64 {
	t.Helper()
	f, err := disk{}.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pf, err := openParquet(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range pf.Metadata().RowGroups[0].Columns {
		if m := c.MetaData; m.PathInSchema[0] == column && m.TotalCompressedSize > 60 {
			return m.DataPageOffset + m.TotalCompressedSize - 5
		}
	}
	t.Fatalf("%s has no column %s", path, column)
	return 0
}

// TestCompactRefuses: what is no run, one that is written, a wrong size, and a stop before anything was made.
func TestCompactRefuses(t *testing.T) {
	dir := fastDir(t)
	manyParts(t, testConfig(dir), 4, 1)
	if _, err := Compact(t.Context(), Compaction{Dir: t.TempDir()}); !errors.Is(err, ErrNotRun) {
		t.Errorf("no run: %v", err)
	}
	if _, err := Compact(t.Context(), Compaction{Dir: dir, PartBytes: -1, RowGroupBytes: -1}); err == nil || !strings.Contains(err.Error(), "PartBytes") || !strings.Contains(err.Error(), "RowGroupBytes") {
		t.Errorf("sizes: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if done, err := Compact(ctx, Compaction{Dir: dir}); !errors.Is(err, context.Canceled) || done.Into != 0 {
		t.Errorf("stopped: %+v, %v", done, err)
	}
	if m := checkFolders(t, dir); len(m.Parts) != 4 {
		t.Errorf("%d parts", len(m.Parts))
	}
	w := mustOpen(t, testConfig(dir))
	if _, err := Compact(t.Context(), Compaction{Dir: dir}); !errors.Is(err, ErrLocked) {
		t.Errorf("while it is written: %v", err)
	}
	mustClose(t, w)
	if err := os.WriteFile(filepath.Join(dir, partsDir, "part-00900.parquet"), nil, 0o644); err != nil { // left by a crash
		t.Fatal(err)
	}
	if _, err := Compact(t.Context(), Compaction{Dir: dir}); err != nil {
		t.Error(err)
	}
	checkFolders(t, dir)
}

// PQ4, PQ5, PQ6: no row group comes near 2^31 bytes, whatever is in it, and a record that could make one is refused.
func TestNoRowGroupIsTooLargeForReaders(t *testing.T) {
	dir := fastDir(t)
	if err := (disk{}).MakeDir(filepath.Join(dir, partsDir)); err != nil {
		t.Fatal(err)
	}
	pw, err := newPartWriter(disk{}, dir, partName(partsDir, 0), partOptions())
	if err != nil {
		t.Fatal(err)
	}
	if pw.most != maxRowGroup || maxRowGroup+maxPayload > 1<<31 {
		t.Errorf("a row group takes %d bytes and a row of %d", pw.most, maxPayload)
	}
	pw.most = 10_000
	m := made{run: "r", group: 8, text: 3000}
	for sample := range 8 { // one group
		r := RowOf(m.episode(1, sample))
		if err := pw.add(&r); err != nil {
			t.Fatal(err)
		}
	}
	part, err := pw.publish()
	if err != nil || part.RowGroups != 4 || part.Rows != 8 {
		t.Errorf("%+v, %v", part, err)
	}
	// The memory of the record is never touched.
	_, err = appendFrame(nil, frameRow, func([]byte) ([]byte, error) { return make([]byte, frameHead+maxPayload+1), nil })
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxPayload)) {
		t.Errorf("a record that is too large: %v", err)
	}
}

// BenchmarkCompact: parts of 20 groups of 8 samples, 500 tokens and some text each, made into one: how fast, and what the files lose. Once where every task comes once,
// and once where every part has the same tasks, one sample of each, so that merging brings equal prompts together.
func BenchmarkCompact(b *testing.B) {
	for _, c := range []struct {
		name           string
		groups, rounds bool
	}{{"groups", true, false}, {"rounds", false, true}} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				dir := b.TempDir()
				options := partOptions()
				var list []Part
				words := func(rng *rand.Rand, n int) string {
					var s strings.Builder
					for s.Len() < n {
						fmt.Fprintf(&s, "%x ", rng.Uint32N(1<<20))
					}
					return s.String()
				}
				if err := (disk{}).MakeDir(filepath.Join(dir, partsDir)); err != nil {
					b.Fatal(err)
				}
				for p := range 16 {
					pw, err := newPartWriter(disk{}, dir, partName(partsDir, p), options)
					if err != nil {
						b.Fatal(err)
					}
					for i := range 160 {
						task, sample, round := p*20+i/8, i%8, 0
						if c.rounds {
							task, sample, round = i, 0, p
						}
						e := benchRow(task, sample+round*10, 500)
						r := RowOf(e)
						r.Round = int32(round)
						prompt := words(rand.New(rand.NewPCG(uint64(task), 9)), 2000)
						answer := words(rand.New(rand.NewPCG(uint64(task), uint64(10+sample+round))), 2000)
						r.Messages[0].Content, r.Messages[1].Content = &prompt, &answer
						if err := pw.add(&r); err != nil {
							b.Fatal(err)
						}
					}
					part, err := pw.publish()
					if err != nil {
						b.Fatal(err)
					}
					list = append(list, part)
				}
				var before, raw int64
				for _, p := range list {
					before += p.Bytes
					raw += p.RawBytes
				}
				b.StartTimer()
				began := time.Now()
				one, err := (merger{fs: disk{}, dir: dir, options: options, groupBytes: 8 << 20}).merge(context.Background(), partName(partsDir, 99), list)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(raw)/time.Since(began).Seconds()/1e6, "rawMB/s")
				b.ReportMetric(float64(one.part.Bytes)/float64(before), "size")
			}
		})
	}
}
