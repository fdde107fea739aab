package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// Run reads a run directory. It takes no lock: another process may be writing it.
type Run struct {
	dir string
	fs  fileSystem
}

// OpenRun checks that dir is a run directory; ErrNotRun when it is not.
func OpenRun(dir string) (*Run, error) {
	r := &Run{dir: dir, fs: disk{}}
	if _, err := r.Manifest(); err != nil {
		return nil, err
	}
	return r, nil
}

// Manifest reads what is published at this moment.
func (r *Run) Manifest() (Manifest, error) { return loadManifest(r.fs, r.dir) }

// errStop ends a walk that the caller of an iterator left.
var errStop = errors.New("stopped")

// Rows yields every row once: parts, then failures, then what is in the journal only, incomplete groups included. Rows that
// a writer adds meanwhile are yielded too, as long as the iteration runs. A yielded row is the caller's. An error ends the
// iteration; the row is nil then. ErrDamaged comes after all rows that can be read in spite of it.
func (r *Run) Rows() iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		w := walk[Row]{run: r, id: func(row *Row) string { return row.EpisodeID },
			failed: (*Row).failed,
			decode: decodeRow,
			yield:  func(row *Row) bool { c := *row; return yield(&c, nil) }}
		if err := w.all(); err != nil && !errors.Is(err, errStop) {
			yield(nil, fmt.Errorf("read run %s: %w", r.dir, err))
		}
	}
}

// Summary counts the rows of this moment from their few columns.
func (r *Run) Summary() (Summary, error) {
	var s Summary
	w := walk[digest]{run: r, id: func(d *digest) string { return d.EpisodeID },
		failed: (*digest).failed,
		decode: func(payload []byte) (*digest, error) {
			row, err := decodeRow(payload)
			if err != nil {
				return nil, err
			}
			d := digestOf(row)
			return &d, nil
		},
		yield: func(d *digest) bool { s.add(d); return true }}
	if err := w.all(); err != nil {
		return s, fmt.Errorf("read run %s: %w", r.dir, err)
	}
	return s.clone(), nil
}

// walk visits every key of a run once while the run may be written. T names the columns that are read.
//
// Rows move from the journal into parts under its feet. It therefore notes the manifest, indexes the journal, reads the parts,
// reads the journal, and begins again with what is new until the manifest stood still; keys already seen are passed over.
type walk[T any] struct {
	run    *Run
	seen   keySet
	id     func(*T) string
	failed func(*T) bool
	decode func(payload []byte) (*T, error)
	yield  func(*T) bool
}

func (w *walk[T]) all() error {
	read := map[string]bool{}
	for {
		m, err := w.run.Manifest()
		if err != nil {
			return err
		}
		err = w.once(m, read)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrDamaged) {
			return err
		}
		after, merr := w.run.Manifest()
		if merr != nil {
			return merr
		}
		if after.Generation == m.Generation {
			return err // nil, or files that really are missing or damaged
		}
	}
}

func (w *walk[T]) once(m Manifest, read map[string]bool) error {
	segments, err := openJournal(w.run.fs, w.run.dir, m.FirstSegment)
	defer func() {
		for _, s := range segments {
			_ = s.file.Close()
		}
	}()
	if err != nil {
		return err
	}
	journal, spoilt, err := indexJournal(segments)
	if err != nil {
		return err
	}
	var broken []error // the parts after a damaged one are read all the same
	for _, p := range m.read() {
		if read[p.Path] {
			continue
		}
		switch err := w.part(p, journal); {
		case err == nil:
			read[p.Path] = true
		case errors.Is(err, ErrDamaged):
			broken = append(broken, err)
		default:
			return err
		}
	}
	if len(spoilt) > 0 {
		broken = append(broken, &JournalDamage{spoilt, len(broken) > 0})
	}
	return errors.Join(append(broken, w.journal(journal))...)
}

func (w *walk[T]) part(p Part, journal map[key]record) error {
	path := filepath.Join(w.run.dir, filepath.FromSlash(p.Path))
	f, err := w.run.fs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is listed in the manifest: %w", ErrDamaged, path, err)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	pf, err := openParquet(f)
	if err == nil {
		err = p.is(pf)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	err = eachRow(pf, func(row *T) error {
		k := keyOf(w.id(row))
		if _, newer := journal[k]; newer && w.failed(row) {
			return nil // the journal holds its retry
		}
		return w.visit(k, row)
	})
	if err != nil && !errors.Is(err, errStop) {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	return err
}

func (w *walk[T]) visit(k key, row *T) error {
	if !w.seen.add(k) {
		return nil
	}
	if !w.yield(row) {
		return errStop
	}
	return nil
}

func (w *walk[T]) journal(journal map[key]record) error {
	rows := make([]record, 0, len(journal))
	for _, rec := range journal {
		rows = append(rows, rec)
	}
	slices.SortFunc(rows, bySeq)
	var buf []byte
	for _, rec := range rows {
		if w.seen.has(rec.key) {
			continue
		}
		frame, err := rec.seg.readFrame(rec, buf)
		if err != nil {
			return err
		}
		buf = frame
		row, err := w.decode(frame[frameHead:])
		if err != nil {
			return fmt.Errorf("%s at byte %d: %w", rec.seg.path, rec.offset, err)
		}
		if err := w.visit(rec.key, row); err != nil {
			return err
		}
	}
	return nil
}

// indexJournal finds the latest record of each key, and what is damaged. What is torn is in neither: a writer may be at it.
func indexJournal(segments []*segment) (index map[key]record, spoilt []Damage, err error) {
	index = map[key]record{}
	for _, s := range segments {
		gaps, err := scanFrames(s.file, s.bytes, func(offset int64, frame []byte) error {
			seq, k, err := payloadKey(frame[frameHead:])
			if err != nil {
				return err
			}
			if old, ok := index[k]; !ok || seq >= old.seq {
				index[k] = record{key: k, seq: seq, seg: s, offset: offset, bytes: int64(len(frame))}
			}
			return nil
		})
		if err != nil {
			return nil, nil, fmt.Errorf("read journal %s: %w", s.path, err)
		}
		for _, g := range gaps {
			if !g.torn {
				spoilt = append(spoilt, s.damage(g))
			}
		}
	}
	return index, spoilt, nil
}

// Find returns the row of an episode by its id, or by a prefix of the id that no other episode shares. Errors: ErrNotFound,
// ErrAmbiguous.
func (r *Run) Find(prefix string) (*Row, error) {
	m, err := r.Manifest()
	if err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		row, err := r.findOnce(m, prefix)
		if err == nil {
			return row, nil
		}
		// The row may have moved from the journal to a part, or to another part, while we looked.
		after, merr := r.Manifest()
		if merr != nil || after.Generation == m.Generation || tries == findTries {
			return nil, fmt.Errorf("episode %q in run %s: %w", prefix, r.dir, err)
		}
		m = after
	}
}

// findTries bounds how often Find looks again while a run is being written: an id that is not there could be looked for as long as that.
const findTries = 5

// hit is a row that was found: its id, and how to read the rest.
type hit struct {
	id   string
	read func() (*Row, error)
}

func (r *Run) findOnce(m Manifest, prefix string) (*Row, error) {
	hits, err := r.findInJournal(m, prefix)
	if err != nil {
		return nil, err
	}
	for _, p := range m.read() {
		if p.Rows == 0 || prefix > p.MaxEpisode || (prefix < p.MinEpisode && !strings.HasPrefix(p.MinEpisode, prefix)) {
			continue
		}
		more, err := r.findInPart(p, prefix)
		if err != nil {
			return nil, err
		}
		hits = append(hits, more...)
	}
	return pick(hits, prefix)
}

// pick chooses the one row that is meant. An exact id wins over longer ones; the journal's row comes first and wins over a
// published one of the same id, which it replaces.
func pick(hits []hit, prefix string) (*Row, error) {
	ids := map[string]bool{}
	for _, h := range hits {
		if h.id == prefix {
			return h.read()
		}
		ids[h.id] = true
	}
	switch len(ids) {
	case 0:
		return nil, ErrNotFound
	case 1:
		return hits[0].read()
	}
	return nil, fmt.Errorf("%w: %s", ErrAmbiguous, strings.Join(someKeys(ids, 5), ", "))
}

func someKeys(ids map[string]bool, most int) []string {
	var out []string
	for id := range ids {
		out = append(out, id)
	}
	slices.Sort(out)
	if len(out) > most {
		out = append(out[:most], "…")
	}
	return out
}

func (r *Run) findInJournal(m Manifest, prefix string) ([]hit, error) {
	segments, err := openJournal(r.fs, r.dir, m.FirstSegment)
	defer func() {
		for _, s := range segments {
			_ = s.file.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	type latest struct {
		seq uint64
		row *Row
	}
	rows := map[key]latest{}
	for _, s := range segments {
		_, err := scanFrames(s.file, s.bytes, func(_ int64, frame []byte) error {
			seq, k, err := payloadKey(frame[frameHead:])
			if err != nil {
				return err
			}
			row, err := decodeRow(frame[frameHead:])
			if err == nil && strings.HasPrefix(row.EpisodeID, prefix) && seq >= rows[k].seq {
				rows[k] = latest{seq, row}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	var hits []hit
	for _, l := range rows {
		hits = append(hits, hit{l.row.EpisodeID, func() (*Row, error) { return l.row, nil }})
	}
	slices.SortFunc(hits, func(a, b hit) int { return cmp.Compare(a.id, b.id) })
	return hits, nil
}

func (r *Run) findInPart(p Part, prefix string) ([]hit, error) {
	path := filepath.Join(r.dir, filepath.FromSlash(p.Path))
	f, err := r.fs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is listed in the manifest: %w", ErrDamaged, path, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	pf, err := openParquet(f)
	if err == nil {
		err = p.is(pf)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	var hits []hit
	at := int64(0)
	err = eachID(pf, func(id string) {
		if n := at; strings.HasPrefix(id, prefix) {
			hits = append(hits, hit{id, func() (*Row, error) { return r.rowAt(path, n) }})
		}
		at++
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	return hits, nil
}

func (r *Run) rowAt(path string, n int64) (*Row, error) {
	f, err := r.fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	pf, err := openParquet(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	in := parquet.NewGenericReader[Row](pf)
	defer in.Close()
	if err := seekTo(in, n); err != nil {
		return nil, fmt.Errorf("read row %d of %s: %w", n, path, err)
	}
	rows := make([]Row, 1)
	if got, err := readBatch(in, rows); got == 0 {
		return nil, fmt.Errorf("%w: read row %d of %s: %w", ErrDamaged, n, path, located(pf, err))
	}
	return &rows[0], nil
}
