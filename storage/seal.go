package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/parquet-go/parquet-go"
)

// snapshot is what one seal works on.
type snapshot struct {
	ready      []*group
	incomplete []record                 // to be carried into segment number carry
	old        []*segment               // every segment below carry: removed in the end
	carry      int                      // all later rows are in segments above it
	replaced   map[int]map[key]struct{} // published failures that ready rows replace, by number of their file
}

func (s *snapshot) replace(part int, k key) {
	if s.replaced == nil {
		s.replaced = map[int]map[key]struct{}{}
	}
	if s.replaced[part] == nil {
		s.replaced[part] = map[key]struct{}{}
	}
	s.replaced[part][k] = struct{}{}
}

// sealLoop publishes complete groups when sealWait says so, on Flush, and once more on Close. Small parts that have piled up then are made
// into one.
func (w *Writer) sealLoop() {
	defer close(w.sealed)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if wait, ok := w.untilSeal(); ok {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-w.wake:
		case <-due:
			if w.seal() == nil { // else kept in broken, which every Write and Close reports
				w.compactPiledUp()
			}
		case reply := <-w.flushes:
			err := w.seal()
			reply <- err
			if err == nil {
				w.compactPiledUp()
			}
		case <-w.stopSeal:
			if w.seal() == nil {
				w.ensurePart()
				w.compactLeftOver()
			}
			return
		}
	}
}

func (w *Writer) untilSeal() (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil || w.firstReady.IsZero() {
		return 0, false
	}
	return sealWait(w.cfg, w.seals, w.ledger.readyBytes, time.Since(w.firstReady)), true
}

// sealWait decides how long complete groups may still wait to be published: not at all when there is enough for a part, else
// until the oldest is as old as the schedule says: MinPartAge, doubled with every seal, at most MaxPartAge.
func sealWait(cfg Config, seals int, readyBytes int64, age time.Duration) time.Duration {
	if readyBytes >= cfg.PartBytes {
		return 0
	}
	limit := cfg.MinPartAge
	for i := 0; i < seals && limit < cfg.MaxPartAge; i++ {
		limit *= 2
	}
	return max(0, min(limit, cfg.MaxPartAge)-age)
}

// seal publishes every group that is complete now. An error breaks the Writer.
func (w *Writer) seal() error {
	w.mu.Lock()
	idle, err := len(w.ledger.ready) == 0, w.broken
	w.mu.Unlock()
	if err != nil || idle {
		return err
	}
	reply := make(chan snapshot)
	w.rotations <- reply
	snap := <-reply
	done, err := w.publish(snap)
	if err != nil {
		w.mu.Lock()
		w.segments = append(snap.old, w.segments...)
		if done.carried != nil {
			w.segments = append(w.segments, done.carried) // closed with the others
		}
		w.mu.Unlock()
		return w.fail(err)
	}
	w.settle(snap, done)
	if err := w.cleanUp(snap, done); err != nil {
		return w.fail(err)
	}
	return nil
}

// publication is what one seal made.
type publication struct {
	manifest Manifest
	carried  *segment // nil when no group is incomplete
	moved    []record
	removed  []Part      // files that are not in the manifest any more
	placed   map[key]int // failures and the number of their file
	amended  []amendment // rows of groups that got their verdict
}

// amendment is what the books know of a row before its group was judged, and after.
type amendment struct{ before, after digest }

// publish does everything up to the moment that counts, the replacement of the manifest. Until then nothing that exists is
// changed, and what it leaves behind on an error is swept by the next Open.
func (w *Writer) publish(snap snapshot) (publication, error) {
	p := publication{placed: map[key]int{}}
	var err error
	if p.carried, p.moved, err = w.journal.carry(snap.carry, snap.incomplete); err != nil {
		return p, err
	}
	parts, failures, err := w.buildParts(snap, &p)
	if err != nil {
		return p, err
	}
	removed := map[string]bool{}
	for _, old := range w.outdated(snap, len(parts) > 0) {
		removed[old.Path] = true
		p.removed = append(p.removed, old)
	}
	p.manifest = w.published.with(parts, failures, removed, snap.carry)
	return p, saveManifest(w.fs, w.cfg.Dir, p.manifest)
}

// outdated lists the published files that this seal replaces: failure files with rows that were retried, and the part without
// rows that an earlier Close left, once there are rows.
func (w *Writer) outdated(snap snapshot, haveRows bool) []Part {
	var out []Part
	for _, f := range w.published.Failures {
		if n, _ := partNumber(f.Path); snap.replaced[n] != nil {
			out = append(out, f)
		}
	}
	for _, f := range w.published.Parts {
		if f.Rows == 0 && haveRows {
			out = append(out, f)
		}
	}
	return out
}

func (w *Writer) buildParts(snap snapshot, p *publication) (parts, failures []Part, err error) {
	parts, err = w.buildLayouts(partsDir, w.published.NextPart, arrange(snap.ready, record.good, w.cfg.RowGroupBytes, w.cfg.PartBytes), p)
	if err != nil {
		return nil, nil, err
	}
	kept, err := w.buildKept(snap, p)
	if err != nil {
		return nil, nil, err
	}
	next := after(w.published.NextFailure, kept)
	failures, err = w.buildLayouts(failuresDir, next, arrange(snap.ready, record.bad, w.cfg.RowGroupBytes, w.cfg.PartBytes), p)
	return parts, append(kept, failures...), err
}

func (w *Writer) buildLayouts(folder string, number int, layouts []layout, p *publication) ([]Part, error) {
	var parts []Part
	var judge func(rows []*Row, whole bool)
	if w.cfg.GroupVerdicts != nil && folder != failuresDir {
		judge = func(rows []*Row, whole bool) { p.amended = append(p.amended, w.judge(rows, whole)...) }
	}
	for i, l := range layouts {
		part, err := w.buildPart(folder, number+i, p, func(pw *partWriter) error { return l.fill(pw, judge) })
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// buildKept rewrites the failure files that lose rows to a retry.
func (w *Writer) buildKept(snap snapshot, p *publication) ([]Part, error) {
	var parts []Part
	for _, old := range w.outdated(snap, false) {
		n, _ := partNumber(old.Path)
		without := snap.replaced[n]
		if int64(len(without)) == old.Rows {
			continue
		}
		number := after(w.published.NextFailure, parts)
		part, err := w.buildPart(failuresDir, number, p, func(pw *partWriter) error {
			err := w.copyRows(pw, old, without)
			pw.part.Rewritten = int64(float64(old.Rewritten) / float64(max(old.RawBytes, 1)) * float64(pw.part.RawBytes))
			return err
		})
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

func (w *Writer) buildPart(folder string, number int, p *publication, fill func(*partWriter) error) (Part, error) {
	return makePart(w.fs, w.cfg.Dir, partName(folder, number), w.options, func(pw *partWriter) error {
		if err := fill(pw); err != nil || folder != failuresDir {
			return err
		}
		for _, k := range pw.ids {
			p.placed[k] = number
		}
		return nil
	})
}

// judge has a group's verdicts completed.
func (w *Writer) judge(rows []*Row, whole bool) []amendment {
	list := make([]amendment, len(rows))
	for i, r := range rows {
		list[i].before = digestOf(r)
	}
	w.cfg.GroupVerdicts(rows, whole)
	if w.cfg.MarkEqual && whole {
		markEqual(rows)
	}
	for i, r := range rows {
		list[i].after = digestOf(r)
	}
	return list
}

// row reads a record's row from the journal, its tokens into those lists; buf is used again and returned.
func (r *record) row(buf []byte, lists *tokenLists) (*Row, []byte, error) {
	frame, err := r.seg.readFrame(*r, buf)
	if err != nil {
		return nil, buf, err
	}
	row, err := decodeRowInto(frame[frameHead:], lists)
	if err != nil {
		return nil, buf, fmt.Errorf("%s at byte %d: %w", r.seg.path, r.offset, err)
	}
	r.amend(row)
	return row, frame, nil
}

// fill reads the rows of a layout from the journal into a part: one at a time, or a whole group at a time for judge to see.
func (l layout) fill(pw *partWriter, judge func(rows []*Row, whole bool)) error {
	var in rowReader
	for _, records := range l {
		for len(records) > 0 {
			n := 1
			for judge != nil && n < len(records) && records[n].group == records[0].group && !records[n].alone && !records[0].alone {
				n++
			}
			rows, err := in.read(records[:n])
			if err != nil {
				return err
			}
			if judge != nil {
				judge(rows, !records[0].alone)
			}
			if err := pw.addAll(rows); err != nil {
				return err
			}
			if pw.idle() {
				in.release()
			}
			records = records[n:]
		}
		if err := pw.endRowGroup(); err != nil {
			return err
		}
		in.release()
	}
	return nil
}

// rowReader reads rows of the journal and uses their memory again when they are in a part.
type rowReader struct {
	buf        []byte
	rows       []*Row
	held, free []*tokenLists
}

// read returns rows that are valid until the next read, and their tokens until release.
func (in *rowReader) read(records []*record) ([]*Row, error) {
	in.rows = in.rows[:0]
	for _, rec := range records {
		lists := new(tokenLists)
		if n := len(in.free); n > 0 {
			in.free, lists = in.free[:n-1], in.free[n-1]
		}
		in.held = append(in.held, lists)
		row, buf, err := rec.row(in.buf, lists)
		if err != nil {
			return nil, err
		}
		in.rows, in.buf = append(in.rows, row), buf
	}
	return in.rows, nil
}

func (in *rowReader) release() {
	in.free = append(in.free, in.held...)
	in.held = in.held[:0]
}

// copyRows copies a published failure file but for the rows that were replaced.
func (w *Writer) copyRows(pw *partWriter, old Part, without map[key]struct{}) error {
	err := openPart(w.fs, w.cfg.Dir, old, func(pf *parquet.File) error {
		return eachRow(pf, func(r *Row) error {
			if _, gone := without[keyOf(r.EpisodeID)]; gone {
				return nil
			}
			return pw.addGroup([]*Row{r}, w.cfg.RowGroupBytes)
		})
	})
	if err != nil {
		return fmt.Errorf("rewrite %s: %w", old.Path, err)
	}
	return nil
}

// settle enters a publication in the books.
func (w *Writer) settle(snap snapshot, p publication) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published = p.manifest
	for _, g := range snap.ready {
		for _, r := range g.records {
			if !r.failed {
				delete(w.ledger.placed, r.key)
			}
		}
	}
	for k, n := range p.placed {
		w.ledger.placed[k] = n
	}
	for _, a := range p.amended {
		w.ledger.amend(a)
	}
	for _, r := range p.moved {
		w.ledger.move(r)
	}
	if p.carried != nil {
		w.segments = append([]*segment{p.carried}, w.segments...)
	}
	w.sealing = 0
	w.seals++
	w.freeRoom()
}

// cleanUp removes what the manifest has just made useless.
func (w *Writer) cleanUp(snap snapshot, p publication) error {
	var errs []error
	for _, s := range snap.old {
		errs = append(errs, w.journal.drop(s))
	}
	for _, old := range p.removed {
		errs = append(errs, w.fs.Remove(filepath.Join(w.cfg.Dir, filepath.FromSlash(old.Path))))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what is published: %w", err)
	}
	return nil
}

// ensurePart leaves a part without rows in a dataset that has none, so that readers find the schema.
func (w *Writer) ensurePart() {
	if len(w.published.Parts) > 0 {
		return
	}
	part, err := w.buildPart(partsDir, w.published.NextPart, nil, func(*partWriter) error { return nil })
	if err != nil {
		_ = w.fail(err)
		return
	}
	m := w.published.with([]Part{part}, nil, nil, w.published.FirstSegment)
	if err := saveManifest(w.fs, w.cfg.Dir, m); err != nil {
		_ = w.fail(err)
		return
	}
	w.mu.Lock()
	w.published = m
	w.mu.Unlock()
}
