package storage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"

	"github.com/parquet-go/parquet-go"
)

// Compaction makes one file of small neighbours. A part is small below half of Config.PartBytes, so any two have room in one file.
//
// A row is written again twice at most, on average over the rows of any file: a file knows how many bytes were written again to make it, and a merge that would bring
// that above twice its size is left undone. With the first writing that is three times, whatever the run does.
// A failure file that lets go of rows that were retried is written again for that too, which does not count: its rows keep the average they had.
const (
	maxRewrites = 2
	mergeWidth  = 32 // files in one merge
	// What Close may write again, in parts: who stopped a run waits for it.
	closingParts = 2
)

// stretch is the neighbours list[from:to] of one kind of files.
type stretch struct{ from, to int }

// bytes are what the files of a stretch hold, and what was written again to make them; raw.
func (s stretch) bytes(list []Part) (raw, rewritten int64) {
	for _, p := range list[s.from:s.to] {
		raw += p.RawBytes
		rewritten += p.Rewritten
	}
	return raw, rewritten
}

// affordable says that a merge keeps to maxRewrites.
func (s stretch) affordable(list []Part) bool {
	raw, rewritten := s.bytes(list)
	return raw+rewritten <= maxRewrites*raw
}

// level is how often the rows of a file were written again, on average, rounded up.
func (p Part) level() int {
	if p.Rewritten == 0 || p.RawBytes == 0 {
		return 0
	}
	return int((p.Rewritten + p.RawBytes - 1) / p.RawBytes)
}

// runsOf lists the longest stretches of neighbours that all are as wanted.
func runsOf(list []Part, wanted func(Part) bool) (runs []stretch) {
	from := 0
	for i := range len(list) + 1 {
		if i < len(list) && wanted(list[i]) {
			continue
		}
		if i > from {
			runs = append(runs, stretch{from, i})
		}
		from = i + 1
	}
	return runs
}

// fit shortens a stretch from its end until one file can hold it.
func (s stretch) fit(list []Part, partBytes int64) stretch {
	raw, to := int64(0), s.from
	for to < s.to && to-s.from < mergeWidth && raw+list[to].RawBytes <= partBytes {
		raw += list[to].RawBytes
		to++
	}
	return stretch{s.from, to}
}

// plan chooses what is merged next; not ok = nothing. It is asked again until then.
type plan func(list []Part, mayMerge func(Part) bool, partBytes int64) (s stretch, ok bool)

// piledUp is the plan of a run that goes on: so many small neighbours of one level make one file of the next. So a run of n small parts has about
// n/least² files in the end, and never more than 2·least small ones besides.
func piledUp(least int) plan {
	return func(list []Part, mayMerge func(Part) bool, partBytes int64) (stretch, bool) {
		for level := range maxRewrites {
			for _, s := range runsOf(list, func(p Part) bool { return mayMerge(p) && small(p, partBytes) && p.level() == level }) {
				if s.to-s.from < least {
					continue
				}
				if s = s.fit(list, partBytes); s.to-s.from > 1 {
					return s, true
				}
			}
		}
		return stretch{}, false
	}
}

// leftOver is the plan at the end of a run: whatever small neighbours can be merged within maxRewrites.
func leftOver(list []Part, mayMerge func(Part) bool, partBytes int64) (stretch, bool) {
	return firstOf(list, mayMerge, partBytes, func(s stretch) bool { return s.affordable(list) })
}

// allSmall is the plan of a person who asks for it: what it costs does not count.
func allSmall(list []Part, mayMerge func(Part) bool, partBytes int64) (stretch, bool) {
	return firstOf(list, mayMerge, partBytes, func(stretch) bool { return true })
}

func firstOf(list []Part, mayMerge func(Part) bool, partBytes int64, good func(stretch) bool) (stretch, bool) {
	for _, run := range runsOf(list, func(p Part) bool { return mayMerge(p) && small(p, partBytes) }) {
		for ; run.to-run.from > 1; run.from++ {
			for s := run.fit(list, partBytes); s.to-s.from > 1; s.to-- {
				if good(s) {
					return s, true
				}
			}
		}
	}
	return stretch{}, false
}

func small(p Part, partBytes int64) bool { return p.RawBytes < partBytes/2 }

// Compacted is what compaction did.
type Compacted struct {
	Files         int     // that were made into others
	Into          int     // others
	Rows          int64   // in those
	RawBytes      int64   // of these rows, before encoding
	Before, After int64   // bytes of the files and of the others
	Left          []error // why files were left as they are; each is named
}

func (c *Compacted) add(from []Part, one Part) {
	c.Files += len(from)
	c.Into++
	c.Rows += one.Rows
	c.RawBytes += one.RawBytes
	c.After += one.Bytes
	for _, p := range from {
		c.Before += p.Bytes
	}
}

// compactor compacts one run directory, for its writer or for a person. It is used by one goroutine.
type compactor struct {
	merger
	partBytes int64
	aside     map[string]bool // files not to be touched again, by path
	done      Compacted
}

func newCompactor(fsys fileSystem, dir string, options []parquet.WriterOption, groupBytes, partBytes int64) *compactor {
	return &compactor{merger: merger{fs: fsys, dir: dir, options: options, groupBytes: groupBytes}, partBytes: partBytes, aside: map[string]bool{}}
}

// step is one merge that was carried out and is in no manifest yet.
type step struct {
	folder   string
	from     []Part
	one      merged
	manifest Manifest // with it
}

// next makes the next file that a plan wants; nil = there is none. A file that cannot be read, or would lose something, is left as it is, and the
// reason noted. Any other error is returned; nothing has changed then.
func (c *compactor) next(ctx context.Context, m Manifest, want plan) (*step, error) {
	for {
		folder, s, ok := c.choose(m, want)
		if !ok {
			return nil, nil
		}
		list, number := m.Parts, m.NextPart
		if folder == failuresDir {
			list, number = m.Failures, m.NextFailure
		}
		from := list[s.from:s.to]
		one, err := merged{}, c.room(from)
		if err == nil {
			one, err = c.merge(ctx, partName(folder, number), from)
		}
		if err == nil {
			return &step{folder, from, one, m.merged(folder, s, one.part)}, nil
		}
		bad := (*sourceError)(nil)
		if !errors.As(err, &bad) {
			return nil, fmt.Errorf("make one file of %s to %s: %w", from[0].Path, path.Base(from[len(from)-1].Path), err)
		}
		c.aside[bad.part] = true
		c.done.Left = append(c.done.Left, fmt.Errorf("%s was not merged with its neighbours: %w", bad.part, err))
	}
}

// room looks whether the file that is made of others can stand beside them.
func (c *compactor) room(from []Part) error {
	var need int64
	for _, p := range from {
		need += p.again()
	}
	return hasRoom(c.fs, c.dir, need)
}

func (c *compactor) choose(m Manifest, want plan) (folder string, s stretch, ok bool) {
	mayMerge := func(p Part) bool {
		return p.Rows > 0 && p.SchemaVersion == SchemaVersion && !c.aside[p.Path] && !m.mirrored(p)
	}
	if s, ok := want(m.Parts, mayMerge, c.partBytes); ok {
		return partsDir, s, true
	}
	s, ok = want(m.Failures, mayMerge, c.partBytes)
	return failuresDir, s, ok
}

// mirrored says that a set of rewards stands on this part: its counterpart has the same name and the same rows.
func (m Manifest) mirrored(p Part) bool {
	for _, set := range m.RewardSets {
		if _, ok := set.counterpart(p); ok && path.Dir(p.Path) == partsDir {
			return true
		}
	}
	return false
}

// remove takes the files away that a step replaced, once a manifest says so.
func (c *compactor) remove(s *step) error {
	c.done.add(s.from, s.one.part)
	var errs []error
	for _, p := range s.from {
		errs = append(errs, c.fs.Remove(filepath.Join(c.dir, filepath.FromSlash(p.Path))))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what was made into %s: %w", s.one.part.Path, err)
	}
	return nil
}

// compactPiledUp is the sealer's step after a seal, as long as few rows wait to be published.
func (w *Writer) compactPiledUp() {
	w.mu.Lock()
	busy := w.ledger.readyBytes > w.cfg.PartBytes/4
	w.mu.Unlock()
	if w.cfg.SmallParts > 0 && !busy {
		w.compact(piledUp(w.cfg.SmallParts))
	}
}

// compactLeftOver is the sealer's last step.
func (w *Writer) compactLeftOver() {
	until := w.compactor.done.RawBytes + closingParts*w.cfg.PartBytes
	for w.cfg.SmallParts > 0 && w.compactor.done.RawBytes < until && w.compact(leftOver) {
	}
}

// compact makes at most one file. A merge that fails changes nothing, so the run goes on without any further one, and says so in Compacted. Where the
// manifest itself cannot be replaced, nothing more can be written.
func (w *Writer) compact(want plan) bool {
	w.mu.Lock()
	err := w.broken
	w.mu.Unlock()
	if err != nil || w.uncompacted {
		return false
	}
	s, err := w.compactor.next(context.Background(), w.published, want)
	if err != nil {
		w.uncompacted = true
		w.compactor.done.Left = append(w.compactor.done.Left, err)
	}
	if err == nil && s != nil {
		err = w.list(s)
	}
	w.mu.Lock()
	w.compacted = w.compactor.done
	w.mu.Unlock()
	return err == nil && s != nil
}

// list publishes a step.
func (w *Writer) list(s *step) error {
	if err := saveManifest(w.fs, w.cfg.Dir, s.manifest); err != nil {
		return w.fail(err)
	}
	w.mu.Lock()
	w.published = s.manifest
	if n, ok := partNumber(s.one.part.Path); ok && s.folder == failuresDir {
		for _, k := range s.one.keys {
			w.ledger.placed[k] = n
		}
	}
	w.mu.Unlock()
	if err := w.compactor.remove(s); err != nil {
		return w.fail(err)
	}
	return nil
}

// Compacted tells what this writer made of small parts, those of Close included.
func (w *Writer) Compacted() Compacted {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.compacted
}

// Compaction makes the small files of a run that nobody writes into larger ones.
type Compaction struct {
	Dir string
	// RowGroupBytes and PartBytes are as in Config. A file below half of PartBytes is small.
	RowGroupBytes, PartBytes int64
	// Made, where it is not nil, is told after every file that was made.
	Made func(Compacted)
}

// ErrMirror: the directory holds a copy of a run with other rewards, part by part, and is gone on with by these parts.
var ErrMirror = errors.New("it is a copy that rescoring made, and follows the parts of its run")

// Compact makes the small neighbours of a run into files of PartBytes, whatever was written again before; parts that a set of rewards stands on
// stay as they are. It takes the run's lock, and removes what a crash left. What it made stays when it is stopped. Errors: those of Config.Validate, ErrNotRun,
// ErrLocked, ErrMirror, ctx, a failing disk.
func Compact(ctx context.Context, cfg Compaction) (Compacted, error) {
	return compactOn(ctx, disk{}, cfg)
}

func compactOn(ctx context.Context, fsys fileSystem, cfg Compaction) (done Compacted, err error) {
	sizes := Config{Dir: cfg.Dir, RowGroupBytes: cfg.RowGroupBytes, PartBytes: cfg.PartBytes}
	if err := sizes.Validate(); err != nil {
		return done, err
	}
	sizes = sizes.withDefaults()
	if _, err := loadManifest(fsys, cfg.Dir); err != nil { // before a lock file is made where no run is
		return done, err
	}
	lock, err := fsys.Lock(filepath.Join(cfg.Dir, lockName))
	if err != nil {
		return done, fmt.Errorf("run directory %s: %w", cfg.Dir, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	m, err := loadManifest(fsys, cfg.Dir)
	if err != nil {
		return done, err
	}
	if m.Rescored != nil {
		return done, fmt.Errorf("%s: %w", cfg.Dir, ErrMirror)
	}
	if _, err := sweep(fsys, cfg.Dir, m); err != nil {
		return done, err
	}
	c := newCompactor(fsys, cfg.Dir, partOptions(), sizes.RowGroupBytes, sizes.PartBytes)
	err = c.all(ctx, m, cfg.Made)
	return c.done, err
}

func (c *compactor) all(ctx context.Context, m Manifest, made func(Compacted)) error {
	for {
		s, err := c.next(ctx, m, allSmall)
		if err != nil || s == nil {
			return err
		}
		if err := saveManifest(c.fs, c.dir, s.manifest); err != nil {
			return err
		}
		m = s.manifest
		if err := c.remove(s); err != nil {
			return err
		}
		if made != nil {
			made(c.done)
		}
	}
}
