package storage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The kill tests run this test binary again as a writer and end it with SIGKILL.
const childEnv = "TRANCHE_STORAGE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := childWrites(dir, os.Getenv(childEnv+"_RETRY") != "", os.Getenv(childEnv+"_MARKS")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	killTasks   = 250
	killSamples = 4
)

// childWrites writes 1,000 episodes in groups of four from many goroutines, passing over what is done, and prints the id of
// each one after it was acknowledged. Small parts, frequent fsyncs and merges put many steps in the way of a kill; into the file marks goes which it is at.
func childWrites(dir string, retry bool, marks string) error {
	m := made{run: "r", group: killSamples, text: 200, failing: killFailing}
	if retry {
		m.failing = nil
	}
	cfg := Config{Dir: dir, SyncInterval: time.Millisecond, MinPartAge: 20 * time.Millisecond, MaxPartAge: 40 * time.Millisecond,
		RowGroupBytes: 16 << 10, PartBytes: 256 << 10, SmallParts: 2, RetryFailed: retry, RunFile: []byte("a: 1\n")}
	d, err := newMarkedDisk(marks)
	if err != nil {
		return err
	}
	w, err := openOn(d, cfg)
	if err != nil {
		return err
	}
	d.running.Store(true)
	fmt.Println("open")
	next := make(chan int)
	var out sync.Mutex
	var wg sync.WaitGroup
	failed := make(chan error, 16)
	for range 16 {
		wg.Go(func() {
			for i := range next {
				e := m.episode(i/killSamples, i%killSamples)
				if w.Done(e.ID) {
					continue
				}
				e.Timing.Total = time.Duration(os.Getpid()) // differs from run to run, as times do
				if err := w.Write(context.Background(), e); err != nil {
					failed <- err
					return
				}
				out.Lock()
				fmt.Println(e.ID)
				out.Unlock()
			}
		})
	}
	for _, i := range rand.Perm(killTasks * killSamples) {
		next <- i
		time.Sleep(200 * time.Microsecond)
	}
	close(next)
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	return w.Close()
}

func killFailing(task, sample int) bool { return (task*killSamples+sample)%17 == 3 }

// kill says when a child is killed: after a while, and where aim is a step, as soon as it is at that one then. The zero value lets it end.
type kill struct {
	after time.Duration
	aim   mark
}

// runChild starts a writer, kills it and returns the marks it left; killed = it did not end before. It adds the acknowledged ids to acked.
func runChild(t *testing.T, dir string, retry bool, k kill, acked map[string]bool) (at [2]mark, killed bool) {
	t.Helper()
	marks := filepath.Join(t.TempDir(), "marks")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir, childEnv+"_MARKS="+marks)
	if retry {
		cmd.Env = append(cmd.Env, childEnv+"_RETRY=1")
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var killer sync.WaitGroup
	ended := make(chan struct{})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if line := lines.Text(); line != "open" {
			acked[line] = true
		} else if k.after > 0 {
			killer.Go(func() { k.strike(marks, cmd.Process, ended) })
		}
	}
	close(ended)
	killer.Wait()
	err = cmd.Wait()
	if k.after == 0 && err != nil {
		t.Fatalf("the writer failed: %v\n%s", err, stderr.String())
	}
	if stderr.Len() > 0 {
		t.Fatalf("the writer says %s", stderr.String())
	}
	return readMarks(marks), err != nil
}

func (k kill) strike(marks string, child *os.Process, ended chan struct{}) {
	select {
	case <-time.After(k.after):
	case <-ended:
		return
	}
	for k.aim != idle {
		at := readMarks(marks)
		if at[0] == k.aim || at[1] == k.aim {
			break
		}
		select {
		case <-ended:
			return
		case <-time.After(50 * time.Microsecond):
		}
	}
	_ = child.Kill() // it may have ended
}

// timeless is a row without the fields that differ between runs.
func timeless(r *Row) Row {
	c := *r
	c.Timing.Total = 0
	return c
}

// RD-o1, and every step that a kill can fall into. The child keeps the step it is at in a file, so that what is said of the kills can be wrong. Half of them come at a
// random time alone, half at a random time at a chosen step. TRANCHE_KILLS=200 for so many.
func TestKilledTwentyTimesEveryKeyIsThereOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("kills 20 processes: skipped with -short")
	}
	want := 20
	if s := os.Getenv("TRANCHE_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("TRANCHE_KILLS=%s: expected a number", s)
		}
		want = n
	}
	whole, began := t.TempDir(), time.Now()
	runChild(t, whole, false, kill{}, map[string]bool{})
	span := max(120*time.Millisecond, time.Since(began)/5) // a busy machine takes longer to come to its merges
	aims := []mark{atJournal, atSeal, atManifest, atMerge}
	hits, blind := map[mark]int{}, map[mark]int{}
	missed := func() bool { return slices.ContainsFunc(aims, func(m mark) bool { return hits[m] == 0 }) }
	kills, runs := 0, 0
	for tries := 0; kills < want || missed() && tries < 4*want; runs++ {
		dir, acked := t.TempDir(), map[string]bool{}
		for begun := tries; tries < begun+10; tries++ {
			k := kill{after: time.Millisecond + rand.N(span)}
			if tries%2 == 1 {
				k.aim = aims[tries/2%len(aims)]
			}
			at, killed := runChild(t, dir, false, k, acked)
			rows := rowsOf(t, dir)
			for id := range acked {
				if rows[id] == nil {
					t.Fatalf("kill %d at %v: %s was acknowledged and is not in the dataset", kills, at, id)
				}
			}
			if !killed { // it had ended
				break
			}
			kills++
			for i, m := range at {
				if m == idle || i > 0 && m == at[0] {
					continue
				}
				hits[m]++
				if k.aim == idle {
					blind[m]++
				}
			}
		}
		runChild(t, dir, false, kill{}, acked)
		compareRuns(t, whole, dir, killTasks*killSamples)
		checkFolders(t, dir)
	}
	for _, m := range append(aims, atRemoval) {
		t.Logf("%d of %d kills fell into: %s (%d of them at a time that was not chosen)", hits[m], kills, m, blind[m])
	}
	t.Logf("%d runs were gone on with to their end and compared", runs)
	if missed() {
		t.Errorf("of %d kills none fell into one of the steps: %v", kills, hits)
	}
}

func compareRuns(t *testing.T, whole, dir string, rows int) {
	t.Helper()
	want, got := rowsOf(t, whole), rowsOf(t, dir)
	if len(want) != rows || len(got) != len(want) {
		t.Fatalf("%d rows, uninterrupted %d, want %d", len(got), len(want), rows)
	}
	for id, w := range want {
		if got[id] == nil || !reflect.DeepEqual(timeless(w), timeless(got[id])) {
			t.Fatalf("row %s differs from the uninterrupted run\n got %+v\nwant %+v", id, got[id], w)
		}
	}
	good, failed := published(t, dir)
	for id, w := range want {
		g, f := good[id], failed[id]
		if g+f != 1 || (f == 1) != w.failed() {
			t.Errorf("%s is %d times in parts and %d times in failures", id, g, f)
		}
	}
	groups := map[string]string{} // good rows of one group are in one part
	m, _ := loadManifest(disk{}, dir)
	for _, p := range m.Parts {
		for _, r := range partRows(t, filepath.Join(dir, p.Path)) {
			if at, ok := groups[r.GroupID]; ok && at != p.Path {
				t.Errorf("group %s is in %s and in %s", r.GroupID, at, p.Path)
			}
			groups[r.GroupID] = p.Path
		}
	}
}

// RR-o4, across kills
func TestKilledRetryReplacesEachFailureOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("kills 8 processes: skipped with -short")
	}
	dir := t.TempDir()
	runChild(t, dir, false, kill{}, map[string]bool{})
	before, failures := published(t, dir)
	acked := map[string]bool{}
	for range 8 {
		runChild(t, dir, true, kill{after: time.Duration(1+rand.IntN(100)) * time.Millisecond}, acked)
		rowsOf(t, dir)
	}
	runChild(t, dir, true, kill{}, acked)
	good, failed := published(t, dir)
	if len(failed) != 0 || len(good) != len(before)+len(failures) {
		t.Errorf("%d good and %d failed rows after the retry, want %d and 0", len(good), len(failed), len(before)+len(failures))
	}
	for id, n := range good {
		if n != 1 {
			t.Errorf("%s is in parts %d times", id, n)
		}
	}
	for id := range acked { // a row that was durable and not yet acknowledged is not written again, so that some may be missing
		if failures[id] == 0 {
			t.Errorf("%s was written again and was no failure", id)
		}
	}
}

// RD-o2, and damage in the middle of a journal
func TestDamagedJournal(t *testing.T) {
	m := made{run: "r", group: 2} // one sample of each: nothing is published
	write := func(t *testing.T) (dir, segment string, offsets []int64) {
		dir = t.TempDir()
		w := mustOpen(t, testConfig(dir))
		for task := range 10 {
			mustWrite(t, w, m.episode(task, 0))
		}
		mustClose(t, w)
		segment = filepath.Join(dir, journalDir, segmentName(0))
		f, _ := disk{}.Open(segment)
		defer f.Close()
		info, _ := f.Stat()
		if _, err := scanFrames(f, info.Size(), func(at int64, _ []byte) error { offsets = append(offsets, at); return nil }); err != nil {
			t.Fatal(err)
		}
		return dir, segment, append(offsets, info.Size())
	}
	for name, c := range map[string]struct {
		harm       func(path string, at []int64) error
		lost       []int // tasks
		torn       bool
		from, upTo int // offsets of the damage, in records
	}{
		"half a record at the end": {func(p string, at []int64) error { return os.Truncate(p, (at[9]+at[10])/2) }, []int{9}, true, 9, 0},
		"half a head at the end":   {func(p string, at []int64) error { return os.Truncate(p, at[9]+4) }, []int{9}, true, 9, 0},
		"zeros at the end":         {func(p string, at []int64) error { return os.Truncate(p, at[10]+4096) }, nil, true, 10, 0},
		"a flipped bit":            {func(p string, at []int64) error { return flip(p, (at[4]+at[5])/2) }, []int{4}, false, 4, 5},
		"a wrong length":           {func(p string, at []int64) error { return flip(p, at[4]+2) }, []int{4}, false, 4, 5},
		// The last record: damage where all its bytes are there, as far as can be known.
		"a flipped bit in the last record": {func(p string, at []int64) error { return flip(p, (at[9]+at[10])/2) }, []int{9}, false, 9, 10},
		"a wrong checksum at the end":      {func(p string, at []int64) error { return flip(p, at[9]+5) }, []int{9}, false, 9, 10},
		"a wrong kind at the end":          {func(p string, at []int64) error { return flip(p, at[9]+8) }, []int{9}, false, 9, 10},
		"a wrong length at the end":        {func(p string, at []int64) error { return flip(p, at[9]+2) }, []int{9}, false, 9, 10},
		"the last record is zeros": {func(p string, at []int64) error {
			return errors.Join(os.Truncate(p, at[9]), os.Truncate(p, at[10]))
		}, []int{9}, true, 9, 10},
		"no magic": {func(p string, at []int64) error { return flip(p, 0) }, nil, false, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir, segment, at := write(t)
			if err := c.harm(segment, at); err != nil {
				t.Fatal(err)
			}
			wantOffset := int64(0)
			if c.from >= 0 {
				wantOffset = at[c.from]
			}
			checkReader(t, dir, wantOffset, 10-len(c.lost), c.torn)
			w := mustOpen(t, testConfig(dir))
			damage := w.Recovery().Damage
			if len(damage) != 1 || damage[0].Offset != wantOffset || damage[0].Torn != c.torn || !strings.Contains(damage[0].String(), fmt.Sprint(wantOffset)) {
				t.Fatalf("damage %v, want one at byte %d, torn=%v", damage, wantOffset, c.torn)
			}
			if c.upTo > 0 && damage[0].Bytes != at[c.upTo]-wantOffset {
				t.Errorf("%d bytes are damaged, want %d", damage[0].Bytes, at[c.upTo]-wantOffset)
			}
			for task := range 10 {
				done, lost := w.Done(m.episode(task, 0).ID), false
				for _, l := range c.lost {
					lost = lost || l == task
				}
				if done == lost {
					t.Errorf("task %d: done=%v, want %v", task, done, !lost)
				}
				if lost {
					mustWrite(t, w, m.episode(task, 0))
				}
				mustWrite(t, w, m.episode(task, 1))
			}
			mustClose(t, w)
			if good, _ := published(t, dir); len(good) != 20 {
				t.Errorf("%d rows in the end, want 20", len(good))
			}
			_, err := os.Stat(segment + damagedSuffix)
			if kept := err == nil; kept == c.torn {
				t.Errorf("damaged file kept: %v, torn: %v", kept, c.torn)
			}
			w = mustOpen(t, testConfig(dir))
			if d := w.Recovery().Damage; len(d) != 0 {
				t.Errorf("reported again: %v", d)
			}
		})
	}
}

// checkReader reads a run with a harmed journal: all that is whole, and then the damage, which a torn end is not.
func checkReader(t *testing.T, dir string, offset int64, whole int, torn bool) {
	t.Helper()
	r, err := OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	var broken error
	n := 0
	for row, err := range r.Rows() {
		if err != nil {
			broken = err
		} else if row != nil {
			n++
		}
	}
	var found *JournalDamage
	if damaged := errors.As(broken, &found); n != whole || damaged == torn || damaged && (found.Parts || len(found.List) != 1 || found.List[0].Offset != offset || !errors.Is(broken, ErrDamaged)) {
		t.Errorf("%d rows read and %v, want %d, and damage unless it is torn (%v)", n, broken, whole, torn)
	}
}

func flip(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	b[0] ^= 0x10
	_, err = f.WriteAt(b, at)
	return err
}

// A writer that merges small parts and a reader at once: every iteration sees each key once, and everything that was acknowledged before it began.
func TestReadingWhileAnotherWrites(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(dir)
	cfg.MinPartAge, cfg.MaxPartAge = 5*time.Millisecond, 10*time.Millisecond
	cfg.SmallParts = 3
	episodes := 1200
	if raceEnabled {
		episodes = 400
	}
	w := mustOpen(t, cfg)
	m := made{run: "r", group: 2, failing: killFailing}
	var mu sync.Mutex
	acked := map[string]bool{}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range episodes {
			e := m.episode(i/2, i%2)
			if err := w.Write(context.Background(), e); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			acked[e.ID] = true
			mu.Unlock()
		}
	}()
	reads := 0
	for running := true; running; reads++ {
		select {
		case <-written:
			running = false
		default:
		}
		mu.Lock()
		before := make([]string, 0, len(acked))
		for id := range acked {
			before = append(before, id)
		}
		mu.Unlock()
		rows := rowsOf(t, dir)
		for _, id := range before {
			if rows[id] == nil {
				t.Fatalf("read %d: %s was acknowledged before and is missing", reads, id)
			}
		}
	}
	mustClose(t, w)
	done := w.Compacted()
	t.Logf("%d reads over %d parts, after %d small ones became %d", reads, len(w.Manifest().Parts), done.Files, done.Into)
	if done.Into == 0 || len(done.Left) > 0 {
		t.Errorf("%+v", done)
	}
	s, err := (&Run{dir: dir, fs: disk{}}).Summary()
	if err != nil || !sameJSON(s, w.Summary()) {
		t.Errorf("the reader's summary %+v (%v) differs from the writer's %+v", s, err, w.Summary())
	}
}

// sameJSON compares summaries as people read them: sums of floats in another order differ in the last bit.
func sameJSON(a, b Summary) bool {
	a.Time, b.Time = Timing{}, Timing{}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return round(string(x)) == round(string(y))
}

func round(s string) string { return regexp.MustCompile(`(\.\d{6})\d+`).ReplaceAllString(s, "$1") }
