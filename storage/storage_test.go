package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"tranche/episode"
)

// made is what the tests write: a deterministic episode for every (task, sample), with tokens, turns and rewards.
type made struct {
	run     string
	group   int                         // samples a task
	failing func(task, sample int) bool // nil = none
	text    int                         // bytes of the answer; 0 = a few
	created time.Time
}

func (m made) episode(task, sample int) *episode.Episode {
	rng := rand.New(rand.NewPCG(uint64(task), uint64(sample)))
	if m.created.IsZero() {
		m.created = time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)
	}
	t := &episode.Task{
		ID: fmt.Sprintf("task-%04d", task), Hash: episode.ID("hash", fmt.Sprint(task)), DataSource: fmt.Sprintf("source-%d", task%3),
		Messages: []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr(fmt.Sprintf("How much is %d + 1?", task))}},
		Answer:   episode.Ptr(fmt.Sprint(task + 1)), Extra: []byte(fmt.Sprintf(`{"n":%d}`, task)),
	}
	e := episode.New(m.run, episode.Draw{Task: t, Samples: max(m.group, 1)}, sample,
		episode.Sampling{Temperature: episode.Ptr(0.0), TokenIDs: true, Logprobs: true}, episode.Budget{}, m.created)
	n := int32(3 + rng.IntN(20))
	ids, lps := make([]int32, n), make([]episode.Logprob, n)
	for i := range ids {
		ids[i] = rng.Int32N(100_000)
		lps[i] = episode.Logprob{Value: -rng.Float32(), Known: i != 1}
	}
	answer := fmt.Sprintf("It is %d.", task+1+sample%2) + strings.Repeat("x", m.text)
	e.AddReply(&episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, Content: &answer}, Finish: episode.FinishStop,
		PromptIDs: []int32{1, 2, int32(task)}, SampledIDs: ids, Logprobs: lps, Version: episode.Ptr[int32](7)},
		episode.Turn{PromptTokens: episode.Ptr[int32](3), CompletionTokens: &n, Finish: "stop", Endpoint: "a", Class: int16(task % 4),
			Queue: time.Millisecond, Service: time.Duration(rng.IntN(1000)) * time.Millisecond})
	score := float64((sample + 1) % 2)
	e.Verdict = episode.Verdict{Total: &score, Rewards: []episode.Reward{{Name: "exact", Score: &score, Weight: 1, Outcome: episode.Scored}}}
	if m.failing != nil && m.failing(task, sample) {
		e.Verdict = episode.Verdict{}
		e.Fail(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassTimeout, Cause: errors.New("no answer in 2s"), Partial: "It",
			Attempts: []episode.Attempt{{Endpoint: "a", Class: episode.ClassTimeout, Began: m.created, Ended: m.created, Cause: "slow"}}})
	}
	return e
}

func testConfig(dir string) Config {
	return Config{Dir: dir, SyncInterval: time.Microsecond, MinPartAge: time.Hour, MaxPartAge: time.Hour}
}

func mustOpen(t *testing.T, cfg Config) *Writer {
	t.Helper()
	w, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func mustWrite(t *testing.T, w *Writer, episodes ...*episode.Episode) {
	t.Helper()
	for _, e := range episodes {
		if err := w.Write(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
}

func mustClose(t *testing.T, w *Writer) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// rowsOf reads a run by key and fails on a key that comes twice.
func rowsOf(t *testing.T, dir string) map[string]*Row {
	t.Helper()
	run, err := OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]*Row{}
	for r, err := range run.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		if rows[r.EpisodeID] != nil {
			t.Fatalf("episode %s is in the dataset twice", r.EpisodeID)
		}
		rows[r.EpisodeID] = r
	}
	return rows
}

// published reads the files of the manifest alone, as a foreign reader would, duplicates and all.
func published(t *testing.T, dir string) (good, failed map[string]int) {
	t.Helper()
	m, err := loadManifest(disk{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	count := func(parts []Part) map[string]int {
		ids := map[string]int{}
		for _, p := range parts {
			for _, r := range partRows(t, filepath.Join(dir, p.Path)) {
				ids[r.EpisodeID]++
			}
		}
		return ids
	}
	return count(m.Parts), count(m.Failures)
}

func partRows(t *testing.T, path string) []*Row {
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
	var rows []*Row
	if err := eachRow(pf, func(r *Row) error { c := *r; rows = append(rows, &c); return nil }); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "run")
	m := made{run: "r", group: 4, failing: func(task, sample int) bool { return task%5 == 0 && sample == 2 }}
	cfg := testConfig(dir)
	cfg.RunFile = []byte("model: sim\n")
	w := mustOpen(t, cfg)
	want := map[string]Row{}
	var wg sync.WaitGroup
	for task := range 20 {
		for sample := range 4 {
			e := m.episode(task, sample)
			want[e.ID] = RowOf(e)
			wg.Go(func() {
				if err := w.Write(context.Background(), e); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	partial := m.episode(99, 0) // its group stays incomplete
	mustWrite(t, w, partial)
	want[partial.ID] = RowOf(partial)

	check := func(when string) {
		t.Helper()
		got := rowsOf(t, dir)
		if len(got) != len(want) {
			t.Fatalf("%s: %d rows, want %d", when, len(got), len(want))
		}
		for id, r := range want {
			if !reflect.DeepEqual(*got[id], r) {
				t.Fatalf("%s: row differs\n got %+v\nwant %+v", when, *got[id], r)
			}
		}
	}
	check("from the journal, while open")
	mustClose(t, w)
	check("after Close")

	man := w.Manifest()
	if man.Rows != 76 || man.FailureRows != 4 || len(man.Parts) != 1 || len(man.Failures) != 1 {
		t.Errorf("manifest: %d rows in %d parts, %d failures in %d", man.Rows, len(man.Parts), man.FailureRows, len(man.Failures))
	}
	if b, err := ReadRunFile(dir); err != nil || string(b) != "model: sim\n" {
		t.Errorf("run.yaml: %q, %v", b, err)
	}
	w = mustOpen(t, testConfig(dir))
	if rec := w.Recovery(); !rec.Resumed || rec.Published != 76 || rec.Failures != 4 || rec.Journal != 1 || len(rec.Damage) != 0 {
		t.Errorf("recovery: %+v", rec)
	}
	for id := range want {
		if !w.Done(id) {
			t.Errorf("%s is not done after resume", id)
		}
	}
	if w.Done(m.episode(99, 1).ID) {
		t.Error("an episode that was never written is done")
	}
	mustWrite(t, w, m.episode(99, 1), m.episode(99, 2), m.episode(99, 3))
	mustClose(t, w)
	if n := w.Manifest().Rows; n != 80 {
		t.Errorf("%d rows after the group was completed, want 80", n)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, journalDir)); len(left) != 0 {
		t.Errorf("journal files are left when everything is published: %v", left)
	}
}

func TestRowsOfATaskAreAdjacentAndGroupsWhole(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(dir)
	cfg.RowGroupBytes, cfg.PartBytes = 8<<10, 40<<10
	m := made{run: "r", group: 4}
	w := mustOpen(t, cfg)
	order := rand.New(rand.NewPCG(1, 1)).Perm(200)
	for _, i := range order {
		mustWrite(t, w, m.episode(i/4, i%4))
	}
	mustClose(t, w)
	for _, p := range w.Manifest().Parts {
		f, err := disk{}.Open(filepath.Join(dir, p.Path))
		if err != nil {
			t.Fatal(err)
		}
		pf, err := openParquet(f)
		if err != nil {
			t.Fatal(err)
		}
		rows := partRows(t, filepath.Join(dir, p.Path))
		from := 0
		for g, rg := range pf.RowGroups() {
			n := int(rg.NumRows())
			if n%4 != 0 {
				t.Errorf("%s row group %d holds %d rows: a group is cut", p.Path, g, n)
			}
			for i, r := range rows[from : from+n] {
				if int(r.SampleIndex) != i%4 || r.GroupID != rows[from+i/4*4].GroupID {
					t.Fatalf("%s row group %d row %d: sample %d of %s", p.Path, g, i, r.SampleIndex, r.TaskID)
				}
			}
			from += n
		}
		f.Close()
	}
	if n := len(w.Manifest().Parts); n < 2 {
		t.Errorf("%d parts: PartBytes cut nothing", n)
	}
}

func TestWriteRefuses(t *testing.T) {
	w := mustOpen(t, testConfig(t.TempDir()))
	m := made{run: "r"}
	mustWrite(t, w, m.episode(1, 0))
	cancelled := m.episode(2, 0)
	cancelled.Status = episode.StatusCancelled
	open := m.episode(3, 0)
	open.Status = episode.StatusOpen
	crooked := m.episode(4, 0)
	crooked.Tokens.Mask = crooked.Tokens.Mask[1:]
	for name, c := range map[string]struct {
		e    *episode.Episode
		want error
	}{
		"a key twice": {m.episode(1, 0), ErrDone}, "cancelled": {cancelled, ErrCancelled}, "open": {open, nil}, "unequal lengths": {crooked, nil},
	} {
		err := w.Write(context.Background(), c.e)
		if err == nil || (c.want != nil && !errors.Is(err, c.want)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if c := w.Counts(); c.Good != 1 || c.Journal != 1 {
		t.Errorf("a refused episode was counted: %+v", c)
	}
}

// PQ-o4
func TestCloseTwiceWriteAfterCloseEmptyRun(t *testing.T) {
	dir := t.TempDir()
	w := mustOpen(t, testConfig(dir))
	mustClose(t, w)
	mustClose(t, w)
	m := made{run: "r"}
	if err := w.Write(context.Background(), m.episode(1, 0)); !errors.Is(err, ErrClosed) {
		t.Errorf("Write after Close: %v", err)
	}
	if err := w.Flush(); !errors.Is(err, ErrClosed) {
		t.Errorf("Flush after Close: %v", err)
	}
	man := w.Manifest()
	if len(man.Parts) != 1 || man.Parts[0].Rows != 0 {
		t.Fatalf("a run without rows leaves %+v", man.Parts)
	}
	f, _ := disk{}.Open(filepath.Join(dir, man.Parts[0].Path))
	defer f.Close()
	pf, err := openParquet(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := pf.Schema().String(), parquet.SchemaOf(Row{}).String(); got != want {
		t.Errorf("the empty part has the schema\n%s\nwant\n%s", got, want)
	}
	if rows := rowsOf(t, dir); len(rows) != 0 {
		t.Errorf("%d rows in an empty run", len(rows))
	}
	w = mustOpen(t, testConfig(dir))
	mustWrite(t, w, m.episode(1, 0))
	mustClose(t, w)
	if man := w.Manifest(); len(man.Parts) != 1 || man.Parts[0].Rows != 1 {
		t.Errorf("the empty part stays beside real ones: %+v", man.Parts)
	}
}

// RD-o5
func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	w := mustOpen(t, testConfig(dir))
	_, err := Open(testConfig(dir)) // flock is per open file: a second Open in this process is as foreign as another process
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second Open: %v", err)
	}
	mustClose(t, w)
	mustClose(t, mustOpen(t, testConfig(dir)))
}

func TestOpenRefusesWhatIsNoRun(t *testing.T) {
	stray := t.TempDir()
	os.WriteFile(filepath.Join(stray, "thesis.tex"), []byte("x"), 0o644)
	headless := t.TempDir()
	mustClose(t, mustOpen(t, testConfig(headless)))
	os.Remove(filepath.Join(headless, manifestName))
	shrunk := t.TempDir()
	mustClose(t, mustOpen(t, testConfig(shrunk)))
	os.Truncate(filepath.Join(shrunk, "parts/part-00000.parquet"), 100)
	for name, c := range map[string]struct {
		dir, says string
		is        error
	}{
		"another folder": {stray, "thesis.tex", ErrNotRun},
		"no manifest":    {headless, "manifest.json", ErrDamaged},
		"a short part":   {shrunk, "part-00000.parquet", ErrDamaged},
	} {
		_, err := Open(testConfig(c.dir))
		if !errors.Is(err, c.is) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := OpenRun(stray); !errors.Is(err, ErrNotRun) {
		t.Errorf("OpenRun: %v", err)
	}
	if entries, _ := os.ReadDir(stray); len(entries) != 1 {
		t.Errorf("Open left something in a folder it refused: %v", entries)
	}
	if _, err := Open(Config{SyncInterval: -1, RowGroupBytes: -1}); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("Validate must report all three faults: %v", err)
	}
}

func TestAcceptDecidesUnderTheLock(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(dir)
	cfg.RunFile = []byte("temperature: 0\n")
	cfg.Accept = func([]byte) error { t.Error("asked for a new run"); return nil }
	mustClose(t, mustOpen(t, cfg))
	refused := errors.New("temperature changed")
	cfg.RunFile = []byte("temperature: 1\n")
	cfg.Accept = func(old []byte) error {
		if string(old) != "temperature: 0\n" {
			t.Errorf("asked about %q", old)
		}
		return refused
	}
	if _, err := Open(cfg); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	if b, _ := ReadRunFile(dir); string(b) != "temperature: 0\n" {
		t.Errorf("a refused resume changed run.yaml to %q", b)
	}
	cfg.Accept = nil
	mustClose(t, mustOpen(t, cfg))
}

// RR-o4 without the crash.
func TestRetryReplacesFailures(t *testing.T) {
	dir := t.TempDir()
	bad := func(task, sample int) bool { return task%2 == 0 && sample == 1 }
	m := made{run: "r", group: 2, failing: bad}
	w := mustOpen(t, testConfig(dir))
	for task := range 10 {
		mustWrite(t, w, m.episode(task, 0), m.episode(task, 1))
		if task == 5 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustClose(t, w)
	if good, failed := published(t, dir); len(good) != 15 || len(failed) != 5 {
		t.Fatalf("%d good, %d failed", len(good), len(failed))
	}

	cfg := testConfig(dir)
	w = mustOpen(t, cfg)
	if !w.Done(m.episode(0, 1).ID) {
		t.Error("without RetryFailed a failure is not done")
	}
	mustClose(t, w)

	cfg.RetryFailed = true
	w = mustOpen(t, cfg)
	if c := w.Counts(); c.Retry != 5 {
		t.Errorf("counts: %+v", c)
	}
	still := made{run: "r", group: 2, failing: func(task, _ int) bool { return task == 2 }}
	for task := 0; task < 6; task += 2 { // 0, 2, 4 of 0, 2, 4, 6, 8
		e := still.episode(task, 1)
		if w.Done(e.ID) {
			t.Errorf("failure of task %d counts as done", task)
		}
		mustWrite(t, w, e)
		if !w.Done(e.ID) {
			t.Errorf("retried task %d is not done", task)
		}
		if err := w.Write(context.Background(), still.episode(task, 1)); !errors.Is(err, ErrDone) {
			t.Errorf("a second retry: %v", err)
		}
	}
	if s := w.Summary(); s.Rows != 20 || s.Good != 17 || s.Failed != 3 {
		t.Errorf("before the seal: %+v", s)
	}
	if rows := rowsOf(t, dir); len(rows) != 20 || rows[m.episode(0, 1).ID].failed() {
		t.Errorf("%d rows; the reader must see the retry that is in the journal", len(rows))
	}
	mustClose(t, w)
	good, failed := published(t, dir)
	if len(good) != 17 || len(failed) != 3 {
		t.Errorf("%d good, %d failed", len(good), len(failed))
	}
	for id, n := range good {
		if n != 1 || failed[id] != 0 {
			t.Errorf("%s is %d times in parts, %d times in failures", id, n, failed[id])
		}
	}
	w = mustOpen(t, testConfig(dir))
	if s := w.Summary(); s.Rows != 20 || s.Good != 17 || s.Failed != 3 || s.Failures["timeout"] != 3 {
		t.Errorf("after reopening: %+v", s)
	}
	mustClose(t, w)
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	m := made{run: "r", group: 2, failing: func(task, _ int) bool { return task == 3 }}
	w := mustOpen(t, testConfig(dir))
	for i := range 40 {
		mustWrite(t, w, m.episode(i/2, i%2))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, w, m.episode(50, 0))
	run, err := OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]*episode.Episode{"in a part": m.episode(7, 1), "failed": m.episode(3, 0), "in the journal": m.episode(50, 0)} {
		for _, prefix := range []string{e.ID, e.ID[:16]} {
			row, err := run.Find(prefix)
			if err != nil || !reflect.DeepEqual(*row, RowOf(e)) {
				t.Errorf("%s, %q: %v", name, prefix, err)
			}
		}
	}
	if _, err := run.Find("zz"); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := run.Find(""); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("ambiguous: %v", err)
	}
}

// Damage in one part hides none of the rows elsewhere, and is told after them, by the file's name.
func TestRowsPastADamagedPartAreRead(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"cut short": func(path string) error { return os.Truncate(path, 100) },
		"gone":      os.Remove,
		"that of another run": func(path string) error {
			dir := t.TempDir()
			w := mustOpen(t, testConfig(dir))
			for i := range 5 {
				mustWrite(t, w, made{run: "another"}.episode(i, 0))
			}
			mustClose(t, w)
			return os.Rename(filepath.Join(dir, "parts", "part-00000.parquet"), path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m := made{run: "r"}
			w := mustOpen(t, testConfig(dir))
			for i := range 3 {
				mustWrite(t, w, m.episode(i, 0))
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			mustClose(t, w)
			run, err := OpenRun(dir)
			if err != nil {
				t.Fatal(err)
			}
			broken := filepath.Join(dir, "parts", "part-00000.parquet")
			if err := harm(broken); err != nil {
				t.Fatal(err)
			}
			var ids []string
			var damage error
			for row, err := range run.Rows() {
				if damage = err; err == nil {
					ids = append(ids, row.EpisodeID)
				}
			}
			if want := []string{m.episode(1, 0).ID, m.episode(2, 0).ID}; !reflect.DeepEqual(ids, want) {
				t.Errorf("rows %v, want %v", ids, want)
			}
			_, found := run.Find(m.episode(0, 0).ID)
			for how, err := range map[string]error{"Rows": damage, "Find": found} {
				if !errors.Is(err, ErrDamaged) || !strings.Contains(fmt.Sprint(err), broken) {
					t.Errorf("%s: %v", how, err)
				}
			}
		})
	}
}
