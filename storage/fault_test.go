package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"tranche/episode"
)

// faultyDisk is a disk that fails at its k-th changing operation: a write is cut short with ENOSPC, anything else fails whole.
// With dead set every later operation fails too, as when the process died there. It also knows what was never synced, and
// loseUnsynced takes that away, as a loss of power does.
type faultyDisk struct {
	fileSystem
	failAt int  // 1-based; 0 = never
	dead   bool // stay failed

	mu      sync.Mutex
	ops     int
	hit     bool
	synced  map[string]int64 // durable length of files that were written
	pending []rename         // renames whose folder was not synced
	created map[string]bool  // names whose folder was not synced
}

type rename struct {
	from, to string
	old      []byte // what to held before; nil = nothing
	had      bool
}

func newFaultyDisk(failAt int, dead bool) *faultyDisk {
	return &faultyDisk{fileSystem: disk{}, failAt: failAt, dead: dead, synced: map[string]int64{}, created: map[string]bool{}}
}

var errInjected = fmt.Errorf("injected: %w", syscall.ENOSPC)

// step counts an operation and says whether it fails.
func (d *faultyDisk) step() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops++
	if d.hit && d.dead {
		return errInjected
	}
	if d.ops == d.failAt {
		d.hit = true
		return errInjected
	}
	return nil
}

func (d *faultyDisk) MakeDir(path string) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.fileSystem.MakeDir(path)
}

func (d *faultyDisk) Create(path string) (file, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	f, err := d.fileSystem.Create(path)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.synced[path], d.created[path] = 0, true
	d.mu.Unlock()
	return &faultyFile{file: f, disk: d, path: path}, nil
}

func (d *faultyDisk) Rename(from, to string) error {
	if err := d.step(); err != nil {
		return err
	}
	old, oldErr := readFile(disk{}, to)
	if err := d.fileSystem.Rename(from, to); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending = append(d.pending, rename{from, to, old, oldErr == nil})
	d.synced[to] = d.synced[from]
	delete(d.synced, from)
	delete(d.created, from)
	return nil
}

func (d *faultyDisk) Remove(path string) error {
	if err := d.step(); err != nil {
		return err
	}
	d.mu.Lock()
	delete(d.synced, path)
	delete(d.created, path)
	d.mu.Unlock()
	return d.fileSystem.Remove(path)
}

func (d *faultyDisk) Truncate(path string, size int64) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.fileSystem.Truncate(path, size)
}

func (d *faultyDisk) SyncDir(path string) error {
	if err := d.step(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := d.pending[:0]
	for _, r := range d.pending {
		if filepath.Dir(r.to) != filepath.Clean(path) {
			kept = append(kept, r)
		}
	}
	d.pending = kept
	for name := range d.created {
		if filepath.Dir(name) == filepath.Clean(path) {
			delete(d.created, name)
		}
	}
	return d.fileSystem.SyncDir(path)
}

// loseUnsynced leaves on disk only what was made durable.
func (d *faultyDisk) loseUnsynced(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := len(d.pending) - 1; i >= 0; i-- {
		r := d.pending[i]
		if r.had {
			if err := writeNew(disk{}, r.to, r.old); err != nil {
				t.Fatal(err)
			}
		} else {
			_ = disk{}.Remove(r.to)
		}
		delete(d.synced, r.to)
	}
	for name := range d.created {
		_ = disk{}.Remove(name)
		delete(d.synced, name)
	}
	for name, n := range d.synced {
		if info, err := (disk{}).Stat(name); err == nil && info.Size() > n {
			if err := (disk{}).Truncate(name, n); err != nil {
				t.Fatal(err)
			}
		}
	}
}

type faultyFile struct {
	file
	disk *faultyDisk
	path string
}

func (f *faultyFile) Write(b []byte) (int, error) {
	if err := f.disk.step(); err != nil {
		n, _ := f.file.Write(b[:len(b)/2])
		return n, err
	}
	return f.file.Write(b)
}

func (f *faultyFile) Sync() error {
	if err := f.disk.step(); err != nil {
		return err
	}
	info, err := f.file.Stat()
	if err == nil {
		f.disk.mu.Lock()
		if _, ok := f.disk.synced[f.path]; ok {
			f.disk.synced[f.path] = info.Size()
		}
		f.disk.mu.Unlock()
	}
	return f.file.Sync()
}

func (f *faultyFile) Truncate(n int64) error {
	if err := f.disk.step(); err != nil {
		return err
	}
	return f.file.Truncate(n)
}

var _ fileSystem = (*faultyDisk)(nil)

// faultScript is a whole life of a run: a first process that writes and publishes, and a second that retries failures. It
// returns what was acknowledged, with the status it was acknowledged with, and whether it got to its end.
func faultScript(fsys fileSystem, dir string) (acked map[string]bool, done bool) {
	acked = map[string]bool{}
	bad := func(task, sample int) bool { return task%3 == 0 && sample == 1 }
	write := func(w *Writer, m made, task, sample int) bool {
		e := m.episode(task, sample)
		if w.Done(e.ID) {
			return true
		}
		if w.Write(context.Background(), e) != nil {
			return false
		}
		acked[e.ID] = e.Status == episode.StatusFailed
		return true
	}
	cfg := testConfig(dir)
	cfg.RunFile = []byte("a: 1\n")
	m := made{run: "r", group: 2, failing: bad}
	w, err := openOn(fsys, cfg)
	if err != nil {
		return acked, false
	}
	ok := true
	for task := range 4 {
		ok = ok && write(w, m, task, 0) && write(w, m, task, 1)
		if task == 1 {
			ok = ok && write(w, m, 9, 0) && w.Flush() == nil // group 9 is incomplete and carried over
		}
	}
	if err := w.Close(); err != nil || !ok {
		return acked, false
	}
	cfg.RetryFailed = true
	w, err = openOn(fsys, cfg)
	if err != nil {
		return acked, false
	}
	ok = write(w, made{run: "r", group: 2}, 0, 1) && w.Flush() == nil && write(w, m, 3, 1)
	return acked, w.Close() == nil && ok
}

// checkAfterFault opens what a fault left and demands that every acknowledged key is there once, with its last status, and
// that the run can be finished.
func checkAfterFault(t *testing.T, dir string, acked map[string]bool) {
	t.Helper()
	cfg := testConfig(dir)
	w, err := Open(cfg)
	if err != nil {
		t.Fatalf("reopen: %v", err)
	}
	for id := range acked {
		if !w.Done(id) {
			t.Errorf("%s was acknowledged and is lost", id)
		}
	}
	for _, d := range w.Recovery().Damage {
		if !d.Torn {
			t.Errorf("a crash left damage in the middle: %v", d)
		}
	}
	summary := w.Summary()
	m := made{run: "r", group: 2, failing: func(task, sample int) bool { return task%3 == 0 && sample == 1 }}
	for _, task := range []int{0, 1, 2, 3, 9} {
		for sample := range 2 {
			if e := m.episode(task, sample); !w.Done(e.ID) {
				summary.Rows++
				if err := w.Write(context.Background(), e); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if summary.Rows != 10 {
		t.Errorf("the summary counts %d rows, want 10", summary.Rows)
	}
	good, failed := published(t, dir)
	if len(good)+len(failed) != 10 {
		t.Errorf("%d good and %d failed rows, want 10 in all", len(good), len(failed))
	}
	for id, n := range good {
		if n != 1 || failed[id] > 0 {
			t.Errorf("%s is %d times in parts and %d times in failures", id, n, failed[id])
		}
	}
	for id, n := range failed {
		if n != 1 {
			t.Errorf("%s is %d times in failures", id, n)
		}
	}
	for id, bad := range acked {
		// A retry that was cut off before its acknowledgement may be there or not; anything else is as it was acknowledged.
		if retried := id == m.episode(0, 1).ID || id == m.episode(3, 1).ID; (failed[id] == 1) != bad && !(bad && retried) {
			t.Errorf("%s: acknowledged as failed=%v, stored as failed=%v", id, bad, failed[id] == 1)
		}
	}
	rowsOf(t, dir)
	for _, folder := range []string{"", partsDir, failuresDir, journalDir} {
		entries, _ := disk{}.ReadDir(filepath.Join(dir, folder))
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), tempPrefix) || folder == journalDir {
				t.Errorf("left over: %s/%s", folder, e.Name())
			}
		}
	}
}

// fastDir is a temporary directory in memory where there is one: these tests sync thousands of times and look at no device.
func fastDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "storage")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestNothingAcknowledgedIsLostWhateverFails(t *testing.T) {
	clean := newFaultyDisk(0, false)
	acked, done := faultScript(clean, fastDir(t))
	if !done || len(acked) != 9 {
		t.Fatalf("the script does not end without faults: %d acknowledged", len(acked))
	}
	stride := 1
	switch {
	case raceEnabled: // what runs at once is the same at every operation
		stride = 20
	case testing.Short():
		stride = 5
	}
	for _, mode := range []struct {
		name       string
		dead, lose bool
	}{
		{"one operation fails", false, false},
		{"the process dies there", true, false},
		{"power is lost there", true, true},
	} {
		t.Run(mode.name, func(t *testing.T) {
			unfinished := 0
			for k := 1; k <= clean.ops; k++ {
				if k%stride != 0 {
					continue
				}
				dir := fastDir(t)
				d := newFaultyDisk(k, mode.dead)
				acked, done := faultScript(d, dir)
				if !done {
					unfinished++
				}
				if mode.lose {
					d.loseUnsynced(t)
				}
				checkAfterFault(t, dir, acked)
				if t.Failed() {
					t.Fatalf("fault at operation %d of %d", k, clean.ops)
				}
			}
			if unfinished < clean.ops*9/10 && stride == 1 {
				t.Errorf("only %d of %d faults were noticed", unfinished, clean.ops)
			}
			t.Logf("%d operations, %d faults stopped the run", clean.ops, unfinished)
		})
	}
}

func TestDiskFullStopsWritingAndKeepsWhatWasDurable(t *testing.T) {
	dir := t.TempDir()
	d := newFaultyDisk(0, true)
	w, err := openOn(d, testConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	m := made{run: "r"}
	mustWrite(t, w, m.episode(1, 0), m.episode(2, 0))
	d.mu.Lock()
	d.failAt = d.ops + 1
	d.dead = false // the disk can still truncate
	d.mu.Unlock()
	first := w.Write(context.Background(), m.episode(3, 0))
	second := w.Write(context.Background(), m.episode(4, 0))
	for _, err := range []error{first, second} {
		var f *episode.Fault
		if !errors.As(err, &f) || f.Class != episode.ClassDisk || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("got %v", err)
		}
	}
	if err := w.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close: %v", err)
	}
	w = mustOpen(t, testConfig(dir))
	if r := w.Recovery(); len(r.Damage) != 0 || r.Journal != 2 {
		t.Errorf("the journal was not rolled back: %+v", r)
	}
	if w.Done(m.episode(3, 0).ID) {
		t.Error("a refused episode is done")
	}
}
