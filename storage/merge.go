package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// merger makes several published files into one. It lists nothing in a manifest and removes nothing.
type merger struct {
	fs         fileSystem
	dir        string // run directory
	options    []parquet.WriterOption
	groupBytes int64 // of a row group, raw
}

// merged is a file that was made of others.
type merged struct {
	part Part
	keys []key // of its rows, in order
}

// sourceError says which file cannot be merged: it stays as it is.
type sourceError struct {
	part string // Part.Path
	err  error
}

func (e *sourceError) Error() string { return e.err.Error() }

// Unwrap is the cause.
func (e *sourceError) Unwrap() error { return e.err }

// errNewer: a file has columns that this program would lose.
var errNewer = errors.New("it has columns that this program does not know: it was written by a newer one")

// merge writes the rows of parts, which are of one kind, into one file of that name, reads it back and publishes it. The rows of a group
// stay together in one row group, in sample order, also where the parts had them apart; the groups of a task follow one another by round; else the order of
// the parts is kept. Memory is that of a row group, a page of each file that is being read, and about 150 bytes a row.
func (m merger) merge(ctx context.Context, name string, parts []Part) (merged, error) {
	in := &sources{fs: m.fs, dir: m.dir, list: make([]source, len(parts)), values: map[string]int64{}}
	defer in.close()
	groups, err := in.index(parts)
	if err != nil {
		return merged{}, err
	}
	var one merged
	one.part, err = makePart(m.fs, m.dir, name, m.options, func(pw *partWriter) error {
		pw.also = in.sameValues
		for _, p := range parts {
			pw.part.Rewritten += p.Rewritten + p.RawBytes
		}
		for _, g := range ordered(groups) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := in.copy(g, pw, m.groupBytes); err != nil {
				return err
			}
		}
		one.keys = pw.ids
		return nil
	})
	if err != nil {
		m.discard(name)
		return merged{}, err
	}
	return one, nil
}

// discard removes a file that no manifest lists. What it cannot remove, the next Open or Compact does.
func (m merger) discard(name string) { _ = m.fs.Remove(filepath.Join(m.dir, filepath.FromSlash(name))) }

// rowPlace is where a row belongs.
type rowPlace struct {
	EpisodeID   string `parquet:"episode_id"`
	GroupID     string `parquet:"group_id"`
	TaskID      string `parquet:"task_id"`
	Round       int32  `parquet:"round"`
	SampleIndex int32  `parquet:"sample_index"`
}

// record is the row at one place of one source: seq says which, and orders rows as the sources have them.
func (p *rowPlace) record(source, row int64) record {
	r := Row{EpisodeID: p.EpisodeID, GroupID: p.GroupID, TaskID: p.TaskID, Round: p.Round, SampleIndex: p.SampleIndex}
	rec := recordOf(&r, uint64(source)<<40|uint64(row))
	rec.raw = 0
	return rec
}

func placeOf(r record) (source int, row int64) { return int(r.seq >> 40), int64(r.seq & (1<<40 - 1)) }

// sources are the files that are merged.
type sources struct {
	fs     fileSystem
	dir    string
	list   []source
	values map[string]int64 // values in all of them together, by column; of columns that all have
}

// source is one of them. It is open from its first row to its last.
type source struct {
	part Part
	left int64 // rows that were not read yet
	file file
	pf   *parquet.File
	in   *parquet.GenericReader[Row]
	at   int64 // row that in reads next
}

// index learns where every row belongs, from a few columns.
func (s *sources) index(parts []Part) ([]*group, error) {
	var groups []*group
	byID := map[key]*group{}
	rows, seen := int64(0), int64(0)
	for i, p := range parts {
		s.list[i] = source{part: p, left: p.Rows}
		rows += p.Rows
		at := int64(0)
		err := s.reading(p, func(pf *parquet.File) error {
			if err := s.count(pf, i == 0); err != nil {
				return err
			}
			return eachRow(pf, func(row *rowPlace) error {
				r := row.record(int64(i), at)
				at++
				g := byID[r.group]
				if g == nil {
					g = &group{}
					byID[r.group] = g
					groups = append(groups, g)
				}
				g.put(r)
				return nil
			})
		})
		if err == nil && at != p.Rows {
			err = &sourceError{p.Path, fmt.Errorf("%w: %s has %d rows, the manifest says %d", ErrDamaged, p.Path, at, p.Rows)}
		}
		if err != nil {
			return nil, err
		}
	}
	for _, g := range groups {
		seen += int64(len(g.records))
	}
	if seen != rows {
		last := parts[len(parts)-1].Path
		return nil, &sourceError{last, fmt.Errorf("%w: %d rows of %s to %s are there twice", ErrDamaged, rows-seen, parts[0].Path, last)}
	}
	return groups, nil
}

// count adds up the values of a file, column by column.
func (s *sources) count(pf *parquet.File, first bool) error {
	known := map[string]bool{}
	for _, path := range parquet.SchemaOf(Row{}).Columns() {
		known[strings.Join(path, ".")] = true
	}
	here := valuesOf(pf)
	for column := range here {
		if !known[column] {
			return fmt.Errorf("column %s: %w", column, errNewer)
		}
	}
	if first {
		maps.Copy(s.values, here)
		return nil
	}
	maps.DeleteFunc(s.values, func(column string, _ int64) bool { _, ok := here[column]; return !ok })
	for column := range s.values {
		s.values[column] += here[column]
	}
	return nil
}

// valuesOf counts the values of each column, nulls and empty lists among them: rows that lost one do not come to the same.
func valuesOf(pf *parquet.File) map[string]int64 {
	n := map[string]int64{}
	for _, g := range pf.Metadata().RowGroups {
		for _, c := range g.Columns {
			n[strings.Join(c.MetaData.PathInSchema, ".")] += c.MetaData.NumValues
		}
	}
	return n
}

// sameValues holds what was written against what was read.
func (s *sources) sameValues(pf *parquet.File) error {
	got := valuesOf(pf)
	for column, want := range s.values {
		if got[column] != want {
			return fmt.Errorf("column %s has %d values, the files it was made of have %d", column, got[column], want)
		}
	}
	return nil
}

// reading opens one file for do. What goes wrong there is a fault of that file.
func (s *sources) reading(p Part, do func(*parquet.File) error) error {
	c := source{part: p}
	if err := c.open(s); err != nil {
		return err
	}
	defer c.close()
	return c.fault(s, do(c.pf))
}

// copy writes the rows of a group. They are held until all were read, so that a row group can be closed before them; those of a group that
// fills a row group by itself are not.
func (s *sources) copy(g *group, pw *partWriter, limit int64) error {
	if s.estimate(g) > limit {
		if err := pw.endRowGroup(); err != nil {
			return err
		}
		if err := s.each(g, pw.addAll); err != nil {
			return err
		}
		return pw.endRowGroup()
	}
	var held []*Row
	if err := s.each(g, func(rows []*Row) error { held = append(held, rows...); return nil }); err != nil {
		return err
	}
	return pw.addGroup(held, limit)
}

// each reads the rows of a group, a few at a time.
func (s *sources) each(g *group, do func([]*Row) error) error {
	for records := g.records; len(records) > 0; {
		rows, err := s.read(records)
		if err == nil {
			err = do(rows)
		}
		if err != nil {
			return err
		}
		records = records[len(rows):]
	}
	return nil
}

// estimate is about what a group holds, raw bytes.
func (s *sources) estimate(g *group) (bytes int64) {
	for _, r := range g.records {
		from, _ := placeOf(r)
		p := s.list[from].part
		bytes += p.RawBytes / p.Rows
	}
	return bytes
}

// read reads the rows of records as far as they follow one another in one file, a batch at most.
func (s *sources) read(records []record) ([]*Row, error) {
	n := 1
	for n < len(records) && n < batchRows && records[n].seq == records[0].seq+uint64(n) {
		n++
	}
	from, at := placeOf(records[0])
	rows, err := s.list[from].read(s, at, n)
	if err != nil {
		return nil, err
	}
	for i, r := range rows {
		if keyOf(r.EpisodeID) != records[i].key {
			name := s.list[from].part.Path
			return nil, &sourceError{name, fmt.Errorf("%w: row %d of %s is not the episode that stood there", ErrDamaged, at+int64(i), name)}
		}
	}
	return rows, nil
}

func (c *source) read(s *sources, at int64, n int) ([]*Row, error) {
	if c.file == nil {
		if err := c.open(s); err != nil {
			return nil, err
		}
		c.in, c.at = parquet.NewGenericReader[Row](c.pf), 0
	}
	if c.at != at {
		if err := seekTo(c.in, at); err != nil {
			return nil, c.fault(s, err)
		}
	}
	batch := make([]Row, n)
	for have := 0; have < n; {
		got, err := readBatch(c.in, batch[have:])
		if have += got; got == 0 {
			return nil, c.fault(s, fmt.Errorf("row %d cannot be read: %w", at+int64(have), located(c.pf, err)))
		}
	}
	c.at = at + int64(n)
	if c.left -= int64(n); c.left == 0 {
		c.close()
	}
	rows := make([]*Row, n)
	for i := range batch {
		rows[i] = &batch[i]
	}
	return rows, nil
}

// seekTo turns a panic over broken pages into an error, as readBatch does.
func seekTo(in *parquet.GenericReader[Row], row int64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return in.SeekToRow(row)
}

func (c *source) open(s *sources) error {
	f, err := s.fs.Open(c.path(s))
	if errors.Is(err, fs.ErrNotExist) {
		return c.fault(s, fmt.Errorf("it is listed in the manifest: %w", err))
	}
	if err != nil { // too many open files, say: nothing is wrong with this one
		return fmt.Errorf("open %s: %w", c.path(s), err)
	}
	if c.pf, err = openParquet(f); err != nil {
		return errors.Join(c.fault(s, err), f.Close())
	}
	c.file = f
	return nil
}

func (c *source) path(s *sources) string {
	return filepath.Join(s.dir, filepath.FromSlash(c.part.Path))
}

// fault names the file in front of what is wrong with it. All but a column of a newer program is damage.
func (c *source) fault(s *sources, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNewer):
		return &sourceError{c.part.Path, fmt.Errorf("%s: %w", c.path(s), err)}
	}
	return &sourceError{c.part.Path, fmt.Errorf("%w: %s: %w", ErrDamaged, c.path(s), err)}
}

func (c *source) close() {
	if c.in != nil {
		_ = c.in.Close() // it was only read
	}
	if c.file != nil {
		_ = c.file.Close()
	}
	c.in, c.pf, c.file = nil, nil, nil
}

func (s *sources) close() {
	for i := range s.list {
		s.list[i].close()
	}
}

// addGroup keeps rows in one row group, and closes the open one before they take it past limit bytes.
func (w *partWriter) addGroup(rows []*Row, limit int64) error {
	var n int64
	for _, r := range rows {
		n += r.rawBytes()
	}
	if w.bytes+n > limit {
		if err := w.endRowGroup(); err != nil {
			return err
		}
	}
	return w.addAll(rows)
}

// merged is the manifest in which one file stands in the place of several neighbours of its kind.
func (m Manifest) merged(folder string, s stretch, one Part) Manifest {
	put := func(list []Part) []Part { return slices.Concat(list[:s.from], []Part{one}, list[s.to:]) }
	if folder == failuresDir {
		m.Failures = put(m.Failures)
		m.NextFailure = after(m.NextFailure, []Part{one})
	} else {
		m.Parts = put(m.Parts)
		m.NextPart = after(m.NextPart, []Part{one})
	}
	m.Rows, m.FailureRows = rowsIn(m.Parts), rowsIn(m.Failures)
	m.Generation++
	return m
}
