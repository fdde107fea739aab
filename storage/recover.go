package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Recovery is what Open found in a run directory.
type Recovery struct {
	Resumed   bool     // the directory held a run
	Published int64    // rows in parts
	Failures  int64    // rows in failure files
	Journal   int64    // rows that were in the journal only
	Damage    []Damage // in the journal; the rows lost to it are done again
	Open      OpenEpisodes
	Removed   []string // temporary and unlisted files that a crash left, relative to the run directory
}

// Damage is a stretch of a journal file that holds no valid record.
type Damage struct {
	File   string // relative to the run directory
	Offset int64  // bytes
	Bytes  int64
	// Torn: the end of the last write before a crash, cut off now; nothing that was acknowledged is lost. Not torn: valid
	// records follow, or a record has all its bytes and another checksum, so that the disk or a person changed the file; it is kept
	// under the name File + ".damaged".
	Torn bool
	// Turns: what is lost are turns of episodes that have no row, and no row.
	Turns bool
}

func (d Damage) String() string {
	if d.Turns {
		return fmt.Sprintf("%s: %d damaged bytes at byte %d; the turns in them are played again", d.File, d.Bytes, d.Offset)
	}
	if d.Torn {
		return fmt.Sprintf("%s: cut off a half-written record of %d bytes at byte %d", d.File, d.Bytes, d.Offset)
	}
	return fmt.Sprintf("%s: %d damaged bytes at byte %d; the rows in them are lost and will be done again", d.File, d.Bytes, d.Offset)
}

// JournalDamage is what a reader found of Damage that is not torn. It is an ErrDamaged; the next Open reports the same, and the rows are done again.
type JournalDamage struct {
	List  []Damage
	Parts bool // files of the dataset are damaged too
}

func (d *JournalDamage) Error() string {
	text := make([]string, len(d.List))
	for i, one := range d.List {
		text[i] = one.String()
	}
	return fmt.Sprintf("%v: %s", ErrDamaged, strings.Join(text, "; "))
}

// Unwrap makes it an ErrDamaged.
func (d *JournalDamage) Unwrap() error { return ErrDamaged }

// prepareDir makes the directory and its folders, and refuses one that holds something else.
func prepareDir(fsys fileSystem, dir string) error {
	entries, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open run directory: %w", err)
	}
	if stray := strayEntry(entries); stray != "" {
		return fmt.Errorf("%s: %w: it holds %q and no %s; expected an empty or a new directory", dir, ErrNotRun, stray, manifestName)
	}
	for _, folder := range []string{partsDir, failuresDir, journalDir} {
		if err := fsys.MakeDir(filepath.Join(dir, folder)); err != nil {
			return fmt.Errorf("make run directory: %w", err)
		}
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := fsys.SyncDir(d); err != nil {
			return fmt.Errorf("make run directory: %w", err)
		}
	}
	return nil
}

// strayEntry names something that a run without a manifest cannot hold; "" when there is nothing such.
func strayEntry(entries []fs.DirEntry) string {
	known := []string{runFileName, summaryName, accountName, lockName, partsDir, failuresDir, journalDir, endpointsDir, rewardsDir, sourcesDir, DrawsName, TaskStatesName, StreamName}
	stray := ""
	for _, e := range entries {
		switch {
		case e.Name() == manifestName:
			return ""
		case !slices.Contains(known, e.Name()) && !strings.HasPrefix(e.Name(), tempPrefix):
			stray = cmp.Or(stray, e.Name())
		}
	}
	return stray
}

// recover brings the books up to what is on disk. It changes nothing that counts before Accept agreed.
func (w *Writer) recover() error {
	if err := w.askAccept(); err != nil {
		return err
	}
	if err := w.loadOrBegin(); err != nil {
		return err
	}
	var err error
	if w.recovery.Removed, err = sweep(w.fs, w.cfg.Dir, w.published); err != nil {
		return err
	}
	if err := checkFiles(w.fs, w.cfg.Dir, w.published); err != nil {
		return err
	}
	found, err := w.replay()
	if err != nil {
		return err
	}
	if err := w.loadParts(found); err != nil {
		return err
	}
	w.enter(found)
	w.openTurns()
	return w.writeRunFile()
}

func (w *Writer) askAccept() error {
	old, err := readFile(w.fs, filepath.Join(w.cfg.Dir, runFileName))
	if errors.Is(err, fs.ErrNotExist) || (err == nil && w.cfg.Accept == nil) {
		return nil
	}
	if err == nil {
		err = w.cfg.Accept(old)
	}
	if err != nil {
		return fmt.Errorf("continue the run in %s: %w", w.cfg.Dir, err)
	}
	return nil
}

func (w *Writer) writeRunFile() error {
	if w.cfg.RunFile == nil {
		return nil
	}
	return replaceFile(w.fs, filepath.Join(w.cfg.Dir, runFileName), w.cfg.RunFile)
}

// loadOrBegin reads the manifest. A new run gets one before it gets a row, so that data without a manifest is never ours to guess.
func (w *Writer) loadOrBegin() error {
	m, err := loadManifest(w.fs, w.cfg.Dir)
	if err == nil && (m.Made != nil || m.Rescored != nil) {
		return fmt.Errorf("%s: %w: it holds rows of other runs, put together by `%s`, and nothing can be played into it", w.cfg.Dir, ErrNotRun, m.how())
	}
	if err == nil {
		w.published = m
		w.recovery.Resumed = true
		w.recovery.Published, w.recovery.Failures = m.Rows, m.FailureRows
		return nil
	}
	if !errors.Is(err, ErrNotRun) {
		return err
	}
	for _, folder := range []string{partsDir, failuresDir, journalDir} {
		entries, err := w.fs.ReadDir(filepath.Join(w.cfg.Dir, folder))
		if err != nil {
			return fmt.Errorf("open run directory: %w", err)
		}
		if len(entries) > 0 {
			return fmt.Errorf("%w: %s is missing though %s has files", ErrDamaged, filepath.Join(w.cfg.Dir, manifestName), folder)
		}
	}
	w.published = Manifest{SchemaVersion: SchemaVersion, Parts: []Part{}, Failures: []Part{}}
	return saveManifest(w.fs, w.cfg.Dir, w.published)
}

// sweep removes what crashes left, and names it: temporary files, parts that no manifest came to list (their rows are in the journal, or in the parts
// they were made of), parts that were made into others, and segments whose rows are all in parts.
func sweep(fsys fileSystem, dir string, m Manifest) (removed []string, err error) {
	listed := map[string]bool{}
	for _, p := range m.files() {
		listed[p.Path] = true
	}
	for _, folder := range []string{"", partsDir, failuresDir, journalDir} {
		entries, err := fsys.ReadDir(filepath.Join(dir, folder))
		if err != nil {
			return removed, fmt.Errorf("open run directory: %w", err)
		}
		for _, e := range entries {
			name := filepath.ToSlash(filepath.Join(folder, e.Name()))
			if !useless(m, folder, e.Name()) || listed[name] {
				continue
			}
			if err := fsys.Remove(filepath.Join(dir, folder, e.Name())); err != nil {
				return removed, fmt.Errorf("remove a leftover of the last run: %w", err)
			}
			removed = append(removed, name)
		}
	}
	return removed, nil
}

// useless reports whether a file is of a kind that only a manifest can make worth keeping.
func useless(m Manifest, folder, name string) bool {
	if strings.HasPrefix(name, tempPrefix) {
		return true
	}
	switch folder {
	case partsDir, failuresDir:
		_, ok := partNumber(name)
		return ok
	case journalDir:
		n, ok := segmentNumber(name)
		return ok && n < m.FirstSegment
	}
	return false
}

func checkFiles(fsys fileSystem, dir string, m Manifest) error {
	var errs []error
	for _, p := range m.files() {
		info, err := fsys.Stat(filepath.Join(dir, filepath.FromSlash(p.Path)))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%w: %s is listed in the manifest: %w", ErrDamaged, filepath.Join(dir, filepath.FromSlash(p.Path)), err))
		case info.Size() != p.Bytes:
			errs = append(errs, fmt.Errorf("%w: %s has %d bytes, the manifest says %d", ErrDamaged, filepath.Join(dir, filepath.FromSlash(p.Path)), info.Size(), p.Bytes))
		}
	}
	return errors.Join(errs...)
}

// found is a row in the journal.
type found struct {
	rec record
	dig digest
}

// replay reads the journal: of each key its latest row. Torn ends are cut.
func (w *Writer) replay() (map[key]found, error) {
	rows := map[key]found{}
	segments, err := openJournal(w.fs, w.cfg.Dir, w.published.FirstSegment)
	w.segments = segments
	if err != nil {
		return nil, err
	}
	w.journal.next = w.published.FirstSegment
	for _, s := range segments {
		w.journal.next = s.number + 1
		gaps, err := scanFrames(s.file, s.bytes, func(offset int64, frame []byte) error { return w.replayRow(s, offset, frame, rows) })
		if err != nil {
			return nil, fmt.Errorf("read journal %s: %w", s.path, err)
		}
		if err := w.mend(s, gaps); err != nil {
			return nil, err
		}
	}
	w.recovery.Journal = int64(len(rows))
	return rows, nil
}

func (w *Writer) replayRow(s *segment, offset int64, frame []byte, rows map[key]found) error {
	seq, k, err := payloadKey(frame[frameHead:])
	if err != nil {
		return fmt.Errorf("at byte %d: %w", offset, err)
	}
	w.nextSeq = max(w.nextSeq, seq)
	if old, ok := rows[k]; ok && old.rec.seq > seq {
		return nil
	}
	row, err := decodeRow(frame[frameHead:])
	if err != nil {
		return fmt.Errorf("at byte %d: %w", offset, err)
	}
	rec := recordOf(row, seq)
	rec.seg, rec.offset, rec.bytes = s, offset, int64(len(frame))
	rows[k] = found{rec, digestOf(row)}
	return nil
}

// mend cuts a torn end off, reports what is damaged and marks the segment to be kept if records follow the damage.
func (w *Writer) mend(s *segment, gaps []gap) error {
	for _, g := range gaps {
		w.recovery.Damage = append(w.recovery.Damage, s.damage(g))
		if !g.torn {
			s.damaged = true
			continue
		}
		if err := w.fs.Truncate(s.path, g.offset); err != nil {
			return fmt.Errorf("cut the torn end of %s at byte %d: %w", s.path, g.offset, err)
		}
		s.bytes = g.offset
	}
	return nil
}

func (s *segment) damage(g gap) Damage {
	return Damage{File: path.Join(journalDir, filepath.Base(s.path)), Offset: g.offset, Bytes: g.bytes, Torn: g.torn}
}

// openJournal opens the segments that count, in order. On an error it returns those it opened.
func openJournal(fsys fileSystem, dir string, first int) ([]*segment, error) {
	entries, err := fsys.ReadDir(filepath.Join(dir, journalDir))
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	var segments []*segment
	for _, e := range entries {
		n, ok := segmentNumber(e.Name())
		if !ok || n < first {
			continue
		}
		s, err := openSegment(fsys, filepath.Join(dir, journalDir, e.Name()), n)
		if err != nil {
			return segments, err
		}
		segments = append(segments, s)
	}
	slices.SortFunc(segments, func(a, b *segment) int { return cmp.Compare(a.number, b.number) })
	return segments, nil
}

func openSegment(fsys fileSystem, name string, number int) (*segment, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the journal: %w", err), f.Close())
	}
	return &segment{number: number, path: name, file: f, bytes: info.Size()}, nil
}

// loadParts enters the keys and counts of every published row. A row that the journal holds a newer version of is not counted.
func (w *Writer) loadParts(journal map[key]found) error {
	for _, p := range w.published.Parts {
		err := w.eachDigest(p, func(k key, d digest) {
			delete(journal, k) // a good row is never replaced
			w.ledger.count(k, false, d)
		})
		if err != nil {
			return err
		}
	}
	for _, p := range w.published.Failures {
		n, _ := partNumber(p.Path)
		err := w.eachDigest(p, func(k key, d digest) {
			w.ledger.placed[k] = n
			if _, newer := journal[k]; newer {
				return
			}
			w.countFailure(k, d)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) countFailure(k key, d digest) {
	if w.cfg.RetryFailed {
		w.ledger.countRetry(k, d)
		return
	}
	w.ledger.count(k, true, d)
}

func (w *Writer) eachDigest(p Part, do func(key, digest)) error {
	name := filepath.Join(w.cfg.Dir, filepath.FromSlash(p.Path))
	f, err := w.fs.Open(name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer f.Close()
	return digests(f, name, do)
}

// digests reads the few columns of a part that books and summaries need.
func digests(f file, name string, do func(key, digest)) error {
	pf, err := openParquet(f)
	if err == nil {
		err = eachRow(pf, func(d *digest) error { do(keyOf(d.EpisodeID), *d); return nil })
	}
	if err != nil {
		return fmt.Errorf("%w: read %s: %w", ErrDamaged, name, err)
	}
	return nil
}

// enter books the rows of the journal, in the order they were written.
func (w *Writer) enter(rows map[key]found) {
	for _, f := range slices.SortedFunc(maps.Values(rows), func(a, b found) int { return bySeq(a.rec, b.rec) }) {
		w.ledger.hold(f.rec)
		if f.rec.failed {
			w.countFailure(f.rec.key, f.dig)
		} else {
			w.ledger.count(f.rec.key, false, f.dig)
		}
	}
	if len(w.ledger.ready) > 0 {
		w.firstReady = time.Now()
	}
}

// ReadRunFile returns run.yaml of a run directory; fs.ErrNotExist when there is none.
func ReadRunFile(dir string) ([]byte, error) {
	b, err := readFile(disk{}, filepath.Join(dir, runFileName))
	if err != nil {
		return nil, fmt.Errorf("read the configuration of run %s: %w", dir, err)
	}
	return b, nil
}
