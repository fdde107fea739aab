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
// Rows of one group that follow one another stay in one row group.
func WriteRows(w io.Writer, rows iter.Seq2[*Row, error]) (n int64, err error) {
	f := rowFile{out: parquet.NewGenericWriter[Row](w, partOptions()...)}
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
	out     *parquet.GenericWriter[Row]
	batch   []Row
	queued  int64  // raw bytes in batch
	inGroup int64  // raw bytes in the open row group, those of batch included
	last    string // group
}

func (f *rowFile) add(r *Row) error {
	n := r.rawBytes()
	if f.inGroup > 0 && f.inGroup+n > rowFileGroup && (r.GroupID == "" || r.GroupID != f.last) {
		if err := f.endRowGroup(); err != nil {
			return err
		}
	}
	f.batch = append(f.batch, *r)
	f.last, f.queued, f.inGroup = r.GroupID, f.queued+n, f.inGroup+n
	if len(f.batch) >= batchRows || f.queued >= batchBytes {
		return f.write()
	}
	return nil
}

func (f *rowFile) write() error {
	if _, err := f.out.Write(f.batch); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	clear(f.batch)
	f.batch, f.queued = f.batch[:0], 0
	return nil
}

func (f *rowFile) endRowGroup() error {
	if err := f.write(); err != nil {
		return err
	}
	if err := f.out.Flush(); err != nil {
		return fmt.Errorf("write Parquet: close a row group: %w", err)
	}
	f.inGroup = 0
	return nil
}

func (f *rowFile) close() error {
	if err := f.write(); err != nil {
		return err
	}
	if err := f.out.Close(); err != nil {
		return fmt.Errorf("write Parquet: finish the file: %w", err)
	}
	return nil
}
