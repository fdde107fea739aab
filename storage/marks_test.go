package storage

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// mark is the step that a writer is at, as its disk sees it.
type mark byte

const (
	idle mark = iota
	atJournal
	atSeal     // a part or a carried segment is being made of journal rows
	atManifest // it is being replaced
	atMerge    // a part is being made of parts
	atRemoval  // of what a manifest has replaced
)

func (m mark) String() string {
	return [...]string{"idle", "journal", "seal", "manifest", "merge", "removal"}[m]
}

// markedDisk keeps the steps of the committer and the sealer in the two bytes of a file, which outlives the process. Steps that are too short to
// be hit by chance are drawn out a little.
type markedDisk struct {
	fileSystem
	marks   *os.File
	running atomic.Bool // Open is over
	sealer  atomic.Uint32
}

func newMarkedDisk(marks string) (*markedDisk, error) {
	f, err := os.OpenFile(marks, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
	return &markedDisk{fileSystem: disk{}, marks: f}, err
}

func readMarks(path string) (at [2]mark) {
	if b, err := os.ReadFile(path); err == nil {
		for i := range min(len(b), len(at)) {
			at[i] = mark(b[i])
		}
	}
	return at
}

func (d *markedDisk) set(i int64, m mark) {
	if !d.running.Load() {
		return
	}
	if i == 1 {
		d.sealer.Store(uint32(m))
	}
	_, _ = d.marks.WriteAt([]byte{byte(m)}, i)
}

func (d *markedDisk) linger() {
	if d.running.Load() {
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	}
}

func (d *markedDisk) Open(path string) (file, error) {
	if filepath.Base(filepath.Dir(path)) == partsDir && strings.HasPrefix(filepath.Base(path), "part-") {
		d.set(1, atMerge) // nobody else reads a published part
	}
	return d.fileSystem.Open(path)
}

func (d *markedDisk) Create(path string) (file, error) {
	name, folder := filepath.Base(path), filepath.Base(filepath.Dir(path))
	segment := folder == journalDir && !strings.HasPrefix(name, tempPrefix)
	switch {
	case segment:
	case name == tempPrefix+manifestName:
		d.set(1, atManifest)
		d.linger()
	case mark(d.sealer.Load()) != atMerge:
		d.set(1, atSeal)
		d.linger()
	}
	f, err := d.fileSystem.Create(path)
	if err == nil && segment {
		f = &markedFile{f, d}
	}
	return f, err
}

func (d *markedDisk) Rename(from, to string) error {
	d.linger()
	return d.fileSystem.Rename(from, to)
}

func (d *markedDisk) SyncDir(path string) error {
	err := d.fileSystem.SyncDir(path)
	if mark(d.sealer.Load()) == atManifest && filepath.Base(path) != journalDir { // the committer syncs that
		d.linger()
		d.set(1, idle)
	}
	return err
}

func (d *markedDisk) Remove(path string) error {
	d.set(1, atRemoval)
	d.linger()
	err := d.fileSystem.Remove(path)
	d.set(1, idle)
	return err
}

// markedFile is a journal segment.
type markedFile struct {
	file
	disk *markedDisk
}

func (f *markedFile) Write(b []byte) (int, error) {
	f.disk.set(0, atJournal)
	return f.file.Write(b)
}

func (f *markedFile) Sync() error {
	defer f.disk.set(0, idle)
	return f.file.Sync()
}

var (
	_ fileSystem = (*markedDisk)(nil)
	_ io.Writer  = (*markedFile)(nil)
)
