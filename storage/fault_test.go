package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"

	"tranche/episode"
)

// faultyDisk is a disk that fails at its k-th changing operation: a write is cut short, anything else fails whole.
// With dead set every later operation fails too, as when the process died there. It also knows what was never synced, and
// loseUnsynced takes that away, as a loss of power does; and how many files are open.
type faultyDisk struct {
	fileSystem
	failAt int   // 1-based; 0 = never
	dead   bool  // stay failed
	err    error // what failing is

	mu      sync.Mutex
	fails   func(op, path string) bool // besides failAt; nil = none
	hidden  func(op, path string) bool // what cannot be opened or read; nil = nothing
	log     []string                   // operations since fails was set
	handles int                        // files that are open
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
	return &faultyDisk{fileSystem: disk{}, failAt: failAt, dead: dead, err: errInjected, synced: map[string]int64{}, created: map[string]bool{}}
}

var errInjected = fmt.Errorf("injected: %w", syscall.ENOSPC)

// step counts an operation and says whether it fails.
func (d *faultyDisk) step(op, path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops++
	if d.hit && d.dead {
		return d.err
	}
	if d.fails != nil {
		d.log = append(d.log, op+" "+filepath.Base(path))
	}
	if d.ops == d.failAt || d.fails != nil && d.fails(op, path) {
		d.hit = true
		return d.err
	}
	return nil
}

// failWhen makes operations fail from now on; nil = none does.
func (d *faultyDisk) failWhen(fails func(op, path string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails, d.log = fails, nil
}

// hide makes operations that change nothing fail from now on, "open" and "read".
func (d *faultyDisk) hide(hidden func(op, path string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hidden = hidden
}

func (d *faultyDisk) look(op, path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hidden != nil && d.hidden(op, path) {
		return d.err
	}
	return nil
}

// opened keeps count of a file handle.
func (d *faultyDisk) opened(f file, path string) file {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handles++
	return &faultyFile{file: f, disk: d, path: path}
}

func (d *faultyDisk) Open(path string) (file, error) {
	if err := d.look("open", path); err != nil {
		return nil, err
	}
	f, err := d.fileSystem.Open(path)
	if err != nil {
		return nil, err
	}
	return d.opened(f, path), nil
}

func (d *faultyDisk) MakeDir(path string) error {
	if err := d.step("makedir", path); err != nil {
		return err
	}
	return d.fileSystem.MakeDir(path)
}

func (d *faultyDisk) Create(path string) (file, error) {
	if err := d.step("create", path); err != nil {
		return nil, err
	}
	f, err := d.fileSystem.Create(path)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.synced[path], d.created[path] = 0, true
	d.mu.Unlock()
	return d.opened(f, path), nil
}

func (d *faultyDisk) Rename(from, to string) error {
	if err := d.step("rename", to); err != nil {
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
	if err := d.step("remove", path); err != nil {
		return err
	}
	d.mu.Lock()
	delete(d.synced, path)
	delete(d.created, path)
	d.mu.Unlock()
	return d.fileSystem.Remove(path)
}

func (d *faultyDisk) Truncate(path string, size int64) error {
	if err := d.step("truncate", path); err != nil {
		return err
	}
	return d.fileSystem.Truncate(path, size)
}

func (d *faultyDisk) SyncDir(path string) error {
	if err := d.step("syncdir", path); err != nil {
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
	disk   *faultyDisk
	path   string
	closed bool // the disk's mu guards it
}

func (f *faultyFile) Close() error {
	f.disk.mu.Lock()
	if !f.closed {
		f.disk.handles--
	}
	f.closed = true
	f.disk.mu.Unlock()
	return f.file.Close()
}

func (f *faultyFile) ReadAt(b []byte, at int64) (int, error) {
	if err := f.disk.look("read", f.path); err != nil {
		return 0, err
	}
	return f.file.ReadAt(b, at)
}

func (f *faultyFile) Write(b []byte) (int, error) {
	if err := f.disk.step("write", f.path); err != nil {
		n, _ := f.file.Write(b[:len(b)/2])
		return n, err
	}
	return f.file.Write(b)
}

func (f *faultyFile) Sync() error {
	if err := f.disk.step("sync", f.path); err != nil {
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
	if err := f.disk.step("truncate", f.path); err != nil {
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
	checkFolders(t, dir)
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
	if !done || len(acked) != 9 || clean.handles != 0 {
		t.Fatalf("the script does not end without faults: %d acknowledged, %d files open", len(acked), clean.handles)
	}
	failEverywhere(t, clean.ops, func(t *testing.T, d *faultyDisk, lose func()) (noticed bool) {
		dir := fastDir(t)
		acked, done := faultScript(d, dir)
		lose()
		checkAfterFault(t, dir, acked)
		return !done
	})
}

// The same while small parts and failure files are made into one of each: every row is there once, as it was, whatever fails.
func TestNothingIsLostWhateverFailsInAMerge(t *testing.T) {
	template := fastDir(t)
	m := manyParts(t, testConfig(template), 2, 3)
	want := rowsOf(t, template)
	script := func(d *faultyDisk, dir string) (done Compacted, finished bool) {
		copyRun(t, template, dir)
		cfg := testConfig(dir)
		cfg.SmallParts = 2
		w, err := openOn(d, cfg)
		if err != nil {
			return done, false
		}
		err = w.Close()
		return w.Compacted(), err == nil
	}
	clean := newFaultyDisk(0, false)
	if done, ok := script(clean, fastDir(t)); !ok || done.Into != 2 || done.Files != 4 || len(done.Left) > 0 || clean.handles != 0 {
		t.Fatalf("without faults: %+v, %v, %d files open", done, ok, clean.handles)
	}
	failEverywhere(t, clean.ops, func(t *testing.T, d *faultyDisk, lose func()) (noticed bool) {
		dir := fastDir(t)
		done, finished := script(d, dir)
		lose()
		w := mustOpen(t, testConfig(dir))
		for i := range 2 * 3 * 4 {
			if !w.Done(m.episode(i/4, i%4).ID) {
				t.Errorf("row %d is lost", i)
			}
		}
		mustClose(t, w)
		if got := rowsOf(t, dir); !reflect.DeepEqual(got, want) {
			t.Error("rows differ")
		}
		checkFolders(t, dir)
		return !finished || len(done.Left) > 0
	})
}

// failEverywhere plays a script on a disk that fails at each of its operations, in each way, and demands that the faults are noticed and every file is
// closed. lose takes away what was not durable, where that is the way.
func failEverywhere(t *testing.T, ops int, one func(t *testing.T, d *faultyDisk, lose func()) (noticed bool)) {
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
			noticed := 0
			for k := 1; k <= ops; k++ {
				if k%stride != 0 {
					continue
				}
				d := newFaultyDisk(k, mode.dead)
				lose := func() {
					if mode.lose {
						d.loseUnsynced(t)
					}
				}
				if one(t, d, lose) {
					noticed++
				}
				if d.handles != 0 {
					t.Errorf("%d files are still open", d.handles)
				}
				if t.Failed() {
					t.Fatalf("fault at operation %d of %d", k, ops)
				}
			}
			if noticed < ops*9/10 && stride == 1 {
				t.Errorf("only %d of %d faults were noticed", noticed, ops)
			}
			t.Logf("%d operations, %d faults were noticed", ops, noticed)
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

// A disk that is full, over quota, read-only or broken, at each place where something is made durable: the run stops, says so by the class of its fault, keeps what was
// acknowledged, and takes nothing more, also when the disk works again. Above all a failed fsync is not tried again as if it had not failed: the kernel
// may have dropped what it could not write, and the next fsync would succeed.
func TestDiskFaultsAreFinal(t *testing.T) {
	in := func(folder string) func(string) bool {
		return func(path string) bool { return filepath.Base(filepath.Dir(path)) == folder }
	}
	base := func(name string) func(string) bool {
		return func(path string) bool { return filepath.Base(path) == name }
	}
	for _, place := range []struct {
		name, op string
		at       func(path string) bool
		flush    bool // it fails in publishing, else in Write
	}{
		{"write to the journal", "write", in(journalDir), false},
		{"sync the journal", "sync", in(journalDir), false},
		{"begin a part", "create", in(partsDir), true},
		{"write a part", "write", in(partsDir), true},
		{"sync a part", "sync", in(partsDir), true},
		{"name a part", "rename", in(partsDir), true},
		{"sync the folder of parts", "syncdir", base(partsDir), true},
		{"write the manifest", "write", base(tempPrefix + manifestName), true},
		{"sync the manifest", "sync", base(tempPrefix + manifestName), true},
		{"replace the manifest", "rename", base(manifestName), true},
	} {
		errnos := []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS}
		if raceEnabled { // what runs at once is the same
			errnos = errnos[:1]
		}
		for _, errno := range errnos {
			t.Run(place.name+": "+errno.Error(), func(t *testing.T) {
				dir := fastDir(t)
				d := newFaultyDisk(0, false)
				d.err = fmt.Errorf("injected: %w", errno)
				w, err := openOn(d, testConfig(dir))
				if err != nil {
					t.Fatal(err)
				}
				m := made{run: "r"}
				mustWrite(t, w, m.episode(1, 0), m.episode(2, 0))
				d.failWhen(func(op, path string) bool { return op == place.op && place.at(path) })
				act := func() error { return w.Write(context.Background(), m.episode(3, 0)) }
				if place.flush {
					act = w.Flush
				}
				err = act()
				log := strings.Join(d.log, ", ")
				d.failWhen(func(string, string) bool { return false }) // the disk works again
				for _, err := range []error{err, act(), w.Write(context.Background(), m.episode(4, 0)), w.Close()} {
					var f *episode.Fault
					if !errors.As(err, &f) || f.Class != episode.ClassDisk || f.Stage != episode.StageStorage || !errors.Is(err, errno) {
						t.Errorf("%v", err)
					}
				}
				for _, op := range d.log {
					if !strings.HasPrefix(op, "remove ") {
						t.Errorf("after the fault: %s", op)
					}
				}
				if place.op == "sync" && strings.Contains(log[strings.LastIndex(log, "sync "):], "rename") {
					t.Errorf("what could not be synced got its name: %s", log)
				}
				if d.handles != 0 {
					t.Errorf("%d files are still open", d.handles)
				}
				w = mustOpen(t, testConfig(dir))
				for task, done := range map[int]bool{1: true, 2: true, 3: false, 4: false} {
					if w.Done(m.episode(task, 0).ID) != done {
						t.Errorf("task %d: done=%v", task, !done)
					}
				}
				mustWrite(t, w, m.episode(3, 0), m.episode(4, 0))
				mustClose(t, w)
				if len(rowsOf(t, dir)) != 4 {
					t.Error("rows are missing")
				}
				checkFolders(t, dir)
			})
		}
	}
}

// Without room for a merge a run goes on with small parts and says so; nothing is left over. A manifest that cannot be replaced stops it.
func TestMergesThatFail(t *testing.T) {
	template := fastDir(t)
	manyParts(t, testConfig(template), 4, 1)
	before := rowsOf(t, template)
	for _, c := range []struct {
		name, op string
		at       string // in the name of the file
		stops    bool
	}{
		{"no room", "write", tempPrefix + "part-00004", false},
		{"its fsync fails", "sync", tempPrefix + "part-00004", false},
		{"it gets no name", "rename", "part-00004", false},
		{"the manifest", "rename", manifestName, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(fastDir(t), "copy")
			copyRun(t, template, dir)
			d := newFaultyDisk(0, false)
			cfg := testConfig(dir)
			cfg.SmallParts = 2
			w, err := openOn(d, cfg)
			if err != nil {
				t.Fatal(err)
			}
			d.failWhen(func(op, path string) bool { return op == c.op && strings.HasPrefix(filepath.Base(path), c.at) })
			err = w.Close()
			done := w.Compacted()
			if c.stops {
				if !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("%v", err)
				}
			} else if err != nil || done.Into > 1 || len(done.Left) != 1 || !errors.Is(done.Left[0], syscall.ENOSPC) {
				t.Errorf("%v, %+v", err, done)
			}
			if d.handles != 0 {
				t.Errorf("%d files are still open", d.handles)
			}
			if !c.stops {
				checkFolders(t, dir)
			}
			if got := rowsOf(t, dir); !reflect.DeepEqual(got, before) {
				t.Error("rows differ")
			}
			if _, err := Compact(t.Context(), Compaction{Dir: dir}); err != nil {
				t.Error(err)
			}
			if got := rowsOf(t, dir); !reflect.DeepEqual(got, before) {
				t.Error("rows differ after another try")
			}
			checkFolders(t, dir)
		})
	}
}

// A journal that cannot be read is neither torn nor damaged: it stays as it is, for the next start.
func TestUnreadableJournalIsLeftAlone(t *testing.T) {
	dir := fastDir(t)
	w := mustOpen(t, testConfig(dir))
	m := made{run: "r", group: 2}
	mustWrite(t, w, m.episode(1, 0))
	mustClose(t, w)
	d := newFaultyDisk(0, false)
	d.hide(func(op, path string) bool { return op == "read" && strings.Contains(path, "segment-") })
	if w, err := openOn(d, testConfig(dir)); !errors.Is(err, errInjected) || d.handles != 0 {
		t.Errorf("opened: %v, %v; %d files open", w != nil, err, d.handles)
	}
	if w = mustOpen(t, testConfig(dir)); !w.Done(m.episode(1, 0).ID) || len(w.Recovery().Damage) > 0 {
		t.Errorf("afterwards: %+v", w.Recovery())
	}
}

// A journal that is taken away under a writer: a file without a name takes everything and keeps nothing, so nothing more may be acknowledged.
func TestRemovedJournalStopsTheRun(t *testing.T) {
	for name, harm := range map[string]func(dir, segment string) error{
		"the folder is removed": func(dir, _ string) error { return os.RemoveAll(filepath.Join(dir, journalDir)) },
		"the folder is moved": func(dir, _ string) error {
			return os.Rename(filepath.Join(dir, journalDir), filepath.Join(dir, "elsewhere"))
		},
		"the file is replaced": func(_, segment string) error {
			return errors.Join(os.Remove(segment), os.WriteFile(segment, []byte(segmentMagic), 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(fastDir(t), "x")
			w := mustOpen(t, testConfig(dir))
			m := made{run: "r", group: 2}
			mustWrite(t, w, m.episode(1, 0), m.episode(1, 1))
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, w, m.episode(2, 0))
			segments, _ := os.ReadDir(filepath.Join(dir, journalDir))
			if err := harm(dir, filepath.Join(dir, journalDir, segments[0].Name())); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				var f *episode.Fault
				if err := w.Write(context.Background(), m.episode(3, 0)); !errors.As(err, &f) || f.Class != episode.ClassDisk || !strings.Contains(err.Error(), "while it was written") {
					t.Errorf("%v", err)
				}
			}
			if err := w.Close(); err == nil {
				t.Error("Close says nothing")
			}
			w = mustOpen(t, testConfig(dir))
			if w.Done(m.episode(3, 0).ID) || !w.Done(m.episode(1, 1).ID) {
				t.Error("the wrong rows are done")
			}
			mustWrite(t, w, m.episode(3, 0), m.episode(3, 1))
			mustClose(t, w)
		})
	}
}
