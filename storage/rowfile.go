package storage

import (
	"fmt"
	"io"
	"iter"

	"github.com/parquet-go/parquet-go"
)

// rowFileGroup closes a row group, bytes of raw rows: the default of parts.
const rowFileGroup = 8 << 20

// WriteRows writes rows as one Parquet file outside of a run, and returns how many: the schema, encodings and checksums are those of a part.
// Rows of one group that follow one another stay in one row group, as far as readers take it.
func WriteRows(w io.Writer, rows iter.Seq2[*Row, error]) (n int64, err error) {
	f := newRowFile(w)
	for r, err := range rows {
		if err == nil {
			err = f.add(r)
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, f.close()
}

type rowFile struct {
	partWriter
	last string // group
}

func newRowFile(w io.Writer) *rowFile {
	return &rowFile{partWriter: partWriter{out: parquet.NewGenericWriter[Row](w, partOptions()...), most: maxRowGroup, part: Part{Path: "Parquet"}}}
}

func (f *rowFile) add(r *Row) error {
	if f.bytes+r.rawBytes() > rowFileGroup && (r.GroupID == "" || r.GroupID != f.last) {
		if err := f.endRowGroup(); err != nil {
			return err
		}
	}
	f.last = r.GroupID
	err := f.partWriter.add(r)
	f.ids = f.ids[:0] // nobody reads the file back by them
	return err
}

func (f *rowFile) close() error {
	if err := f.endRowGroup(); err != nil {
		return err
	}
	if err := f.out.Close(); err != nil {
		return fmt.Errorf("write Parquet: finish the file: %w", err)
	}
	return nil
}
