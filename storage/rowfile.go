package storage

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

// RowFile writes rows into one Parquet file outside of a run: the schema, encodings and checksums are those of a part. It is for one goroutine.
type RowFile struct {
	out     *parquet.GenericWriter[Row]
	batch   []Row
	queued  int64 // raw bytes in batch
	inGroup int64 // raw bytes in the open row group, those of batch included
	last    string
	rows    int64
}

// rowFileGroup closes a row group of a RowFile, bytes of raw rows: the default of parts.
const rowFileGroup = 8 << 20

// NewRowFile begins a file.
func NewRowFile(w io.Writer) *RowFile {
	return &RowFile{out: parquet.NewGenericWriter[Row](w, partOptions()...)}
}

// Add appends a row, which must not change before Close. Rows of one group that follow one another stay in one row group.
func (f *RowFile) Add(r *Row) error {
	n := r.rawBytes()
	if f.inGroup > 0 && f.inGroup+n > rowFileGroup && (r.GroupID == "" || r.GroupID != f.last) {
		if err := f.endRowGroup(); err != nil {
			return err
		}
	}
	f.batch = append(f.batch, *r)
	f.last, f.queued, f.inGroup, f.rows = r.GroupID, f.queued+n, f.inGroup+n, f.rows+1
	if len(f.batch) >= batchRows || f.queued >= batchBytes {
		return f.write()
	}
	return nil
}

func (f *RowFile) write() error {
	if _, err := f.out.Write(f.batch); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	clear(f.batch)
	f.batch, f.queued = f.batch[:0], 0
	return nil
}

func (f *RowFile) endRowGroup() error {
	if err := f.write(); err != nil {
		return err
	}
	if err := f.out.Flush(); err != nil {
		return fmt.Errorf("write Parquet: close a row group: %w", err)
	}
	f.inGroup = 0
	return nil
}

// Rows is how many were added.
func (f *RowFile) Rows() int64 { return f.rows }

// Close writes what is left and the footer. It does not close the writer below.
func (f *RowFile) Close() error {
	if err := f.write(); err != nil {
		return err
	}
	if err := f.out.Close(); err != nil {
		return fmt.Errorf("write Parquet: finish the file: %w", err)
	}
	return nil
}
