package storage

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
)

const (
	// No column of a row group may come near 2^31 bytes: readers count them in 32 bits. A group of samples that is larger is cut between its rows.
	maxRowGroup = 1 << 30
	// Parquet pages are cut only between Write calls, so the writer is fed small batches: rows, or bytes for long rows.
	batchRows  = 16
	batchBytes = 1 << 20
	pageBytes  = 256 << 10
)

// partWriter builds one Parquet file under a temporary name. Nobody sees it before publish.
type partWriter struct {
	fs     fileSystem
	dir    string // run directory
	part   Part
	temp   string
	file   file
	buffer *bufio.Writer
	sum    hash.Hash
	out    *parquet.GenericWriter[Row]
	batch  []Row
	queued int64                     // raw bytes in batch
	open   bool                      // the row group has rows
	bytes  int64                     // raw, in the row group
	most   int64                     // of bytes: maxRowGroup
	ids    []key                     // of all rows, to check what was written
	also   func(*parquet.File) error // one more check of what was written; nil = none
}

func newPartWriter(fsys fileSystem, dir, name string, options []parquet.WriterOption) (*partWriter, error) {
	folder, base := filepath.Split(filepath.FromSlash(name))
	// The temporary name has no .parquet at its end: a reader that globs must not find it.
	temp := filepath.Join(dir, folder, tempPrefix+strings.TrimSuffix(base, ".parquet"))
	f, err := fsys.Create(temp)
	if err != nil {
		return nil, fmt.Errorf("begin part %s: %w", name, err)
	}
	w := &partWriter{fs: fsys, dir: dir, temp: temp, file: f, sum: sha256.New(), most: maxRowGroup,
		part: Part{Path: name, SchemaVersion: SchemaVersion}}
	w.buffer = bufio.NewWriterSize(io.MultiWriter(f, w.sum), 256<<10)
	w.out = parquet.NewGenericWriter[Row](w.buffer, options...)
	return w, nil
}

// makePart makes one file: fill adds its rows. After an error nothing of it is left, or, where only the last sync failed, all of it.
func makePart(fsys fileSystem, dir, name string, options []parquet.WriterOption, fill func(*partWriter) error) (Part, error) {
	w, err := newPartWriter(fsys, dir, name, options)
	if err != nil {
		return Part{}, err
	}
	if err := fill(w); err != nil {
		w.abandon()
		return Part{}, err
	}
	return w.publish()
}

// partOptions are the encodings that docs/format.md names. The parts of a Writer share one list, and with it the compressor's
// buffers. Free text and token columns carry no min and max: nobody looks
// for a message by range, and the footer would hold whole texts.
func partOptions() []parquet.WriterOption {
	options := []parquet.WriterOption{
		parquet.Compression(newZstdCodec()),
		parquet.PageBufferSize(pageBytes),
		parquet.CreatedBy("tranche", "", ""),
		parquet.BloomFilters(parquet.SplitBlockFilter(10, "task_id"), parquet.SplitBlockFilter(10, "episode_id")),
		parquet.KeyValueMetadata("tranche.schema_version", fmt.Sprint(SchemaVersion)),
	}
	for _, path := range parquet.SchemaOf(Row{}).Columns() {
		switch {
		case unbounded(path):
			options = append(options, parquet.SkipPageBounds(path...), parquet.SkipPageStatistics(path...))
		case path[0] == "versions": // the page index says the same, and to count twice what is as long as the tokens costs time
			options = append(options, parquet.SkipPageStatistics(path...))
		}
	}
	return options
}

func unbounded(path []string) bool {
	switch path[0] {
	case "messages", "tools", "token_ids", "loss_mask", "logprobs", "breaks", "actions", "rewards", "turn_credit", "credits", "fault_detail", "fault_attempts",
		"partial", "submitted", "sampling", "reward_model", "extra_info", "raw":
		return true
	}
	return false
}

// add appends one row to the open row group. The row must not change until the writer is idle.
func (w *partWriter) add(r *Row) error {
	n := r.rawBytes()
	if w.open && w.bytes+n > w.most {
		if err := w.endRowGroup(); err != nil {
			return err
		}
	}
	w.bytes += n
	w.batch = append(w.batch, *r)
	w.queued += n
	w.part.note(r, n)
	w.ids = append(w.ids, keyOf(r.EpisodeID))
	w.open = true
	if len(w.batch) >= batchRows || w.queued >= batchBytes {
		return w.write()
	}
	return nil
}

func (w *partWriter) addAll(rows []*Row) error {
	for _, r := range rows {
		if err := w.add(r); err != nil {
			return err
		}
	}
	return nil
}

func (p *Part) note(r *Row, raw int64) {
	id := r.EpisodeID
	if p.Rows == 0 {
		p.FirstEpisode, p.MinEpisode = id, id
	}
	p.LastEpisode = id
	p.MinEpisode, p.MaxEpisode = min(p.MinEpisode, id), max(p.MaxEpisode, id)
	p.Rows++
	p.RawBytes += raw
}

// idle says that all rows that were added are written, so that nobody needs what they point to.
func (w *partWriter) idle() bool { return len(w.batch) == 0 }

func (w *partWriter) write() error {
	if _, err := w.out.Write(w.batch); err != nil {
		return fmt.Errorf("write %s: %w", w.part.Path, err)
	}
	clear(w.batch)
	w.batch, w.queued = w.batch[:0], 0
	return nil
}

// endRowGroup closes the open row group, if it has rows.
func (w *partWriter) endRowGroup() error {
	if !w.open {
		return nil
	}
	w.open, w.bytes = false, 0
	if err := w.write(); err != nil {
		return err
	}
	if err := w.out.Flush(); err != nil {
		return fmt.Errorf("close a row group of %s: %w", w.part.Path, err)
	}
	w.part.RowGroups++
	return nil
}

// publish makes the file whole and durable, reads it back, and gives it its name. It is in the dataset when a manifest lists it.
func (w *partWriter) publish() (Part, error) {
	err := w.finish()
	if err == nil {
		err = verifyPart(w.fs, w.temp, w.part, w.ids, w.also)
	}
	if err != nil {
		w.abandon()
		return Part{}, err
	}
	to := filepath.Join(w.dir, filepath.FromSlash(w.part.Path))
	if err := w.fs.Rename(w.temp, to); err != nil {
		w.abandon()
		return Part{}, fmt.Errorf("publish part %s: %w", w.part.Path, err)
	}
	if err := w.fs.SyncDir(filepath.Dir(to)); err != nil {
		return Part{}, fmt.Errorf("publish part %s: %w", w.part.Path, err)
	}
	return w.part, nil
}

func (w *partWriter) finish() error {
	if err := w.endRowGroup(); err != nil {
		return err
	}
	err := w.out.Close()
	err = cmp.Or(err, w.buffer.Flush())
	err = cmp.Or(err, w.file.Sync())
	if err != nil {
		return fmt.Errorf("finish part %s: %w", w.part.Path, err)
	}
	info, err := w.file.Stat()
	if err != nil {
		return fmt.Errorf("finish part %s: %w", w.part.Path, err)
	}
	w.part.Bytes = info.Size()
	w.part.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	w.part.Published = time.Now().UTC().Truncate(time.Millisecond)
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("finish part %s: %w", w.part.Path, err)
	}
	return nil
}

// abandon removes what was begun. Its own failure does not matter: Open sweeps temporary files.
func (w *partWriter) abandon() {
	_ = w.file.Close()
	_ = w.fs.Remove(w.temp)
}

// verifyPart reads a finished file back: its footer, its number of rows, that the four token columns have equally many values,
// which episodes it holds, in order, and what else there is to check.
func verifyPart(fsys fileSystem, name string, want Part, ids []key, also func(*parquet.File) error) error {
	fail := func(err error) error { return fmt.Errorf("read part %s back: %w", want.Path, err) }
	f, err := fsys.Open(name)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	pf, err := openParquet(f)
	if err != nil {
		return fail(err)
	}
	if pf.NumRows() != want.Rows || len(pf.RowGroups()) != want.RowGroups {
		return fail(fmt.Errorf("it has %d rows in %d row groups, written were %d in %d", pf.NumRows(), len(pf.RowGroups()), want.Rows, want.RowGroups))
	}
	if err := equalLengths(pf); err != nil {
		return fail(err)
	}
	if also != nil {
		if err := also(pf); err != nil {
			return fail(err)
		}
	}
	var got []key
	err = eachID(pf, func(id string) { got = append(got, keyOf(id)) })
	if err == nil && !slices.Equal(got, ids) {
		err = errors.New("its episodes are not the ones that were written")
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// is says in what a file is not the one that was listed, as far as its footer tells.
func (p *Part) is(pf *parquet.File) error {
	if pf.Size() != p.Bytes || pf.NumRows() != p.Rows {
		return fmt.Errorf("it has %d bytes and %d rows, the manifest says %d and %d", pf.Size(), pf.NumRows(), p.Bytes, p.Rows)
	}
	return nil
}

type idOnly struct {
	EpisodeID string `parquet:"episode_id"`
}

// eachID reads the episodes of a file from the pages of their column: eachRow would make the other columns up row by row.
func eachID(pf *parquet.File, do func(id string)) (err error) {
	defer guard(&err) // broken pages can make the library panic
	column, ok := pf.Schema().Lookup("episode_id")
	if !ok {
		return errors.New("it has no column episode_id")
	}
	for _, g := range pf.RowGroups() {
		if err := eachText(g.ColumnChunks()[column.ColumnIndex], do); err != nil {
			return located(pf, err)
		}
	}
	return nil
}

func eachText(c parquet.ColumnChunk, do func(string)) error {
	pages := c.Pages()
	defer pages.Close()
	values := make([]parquet.Value, 256)
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		in := page.Values()
		for err == nil {
			var n int
			n, err = in.ReadValues(values)
			for _, v := range values[:n] {
				do(string(v.ByteArray()))
			}
		}
		parquet.Release(page)
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
}

func equalLengths(pf *parquet.File) error {
	for i, g := range pf.Metadata().RowGroups {
		count := map[string]int64{}
		for _, c := range g.Columns {
			switch top := c.MetaData.PathInSchema[0]; top {
			case "token_ids", "loss_mask", "logprobs", "versions":
				count[top] = c.MetaData.NumValues
			}
		}
		n := count["token_ids"]
		if count["loss_mask"] != n || count["logprobs"] != n || count["versions"] != n {
			return fmt.Errorf("row group %d has token columns of unequal length: %v", i, count)
		}
	}
	return nil
}

func openParquet(f file) (*parquet.File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return parquet.OpenFile(f, info.Size())
}

// eachRow reads the columns that T names, a few rows at a time. The row is only valid during the call; what it points to stays.
func eachRow[T any](pf *parquet.File, do func(*T) error) error {
	in := parquet.NewGenericReader[T](pf)
	defer in.Close()
	batch := make([]T, batchRows)
	for {
		clear(batch)
		n, err := readBatch(in, batch)
		for i := range n {
			if err := do(&batch[i]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return located(pf, err)
		}
	}
}

// readBatch turns a panic of the decoder into an error: broken pages behind an intact footer are a damaged file, not a bug here.
func readBatch[T any](in *parquet.GenericReader[T], batch []T) (n int, err error) {
	defer func() {
		if p := recover(); p != nil {
			n, err = 0, fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return in.Read(batch)
}
