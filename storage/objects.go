package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	parquetfile "github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// objectRows is how many rows of a foreign file are decoded at once.
const objectRows = 64

// ReadObjects reads any Parquet file row by row, as JSON objects with the columns in the file's order; lists and structs stay
// nested, the keys of a struct in alphabetical order. Memory does not grow with the file. An error names the file and ends the iteration.
//
// Values JSON has no form for: binary is base64, times and dates are text, NaN and the infinities are strings.
func ReadObjects(path string) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		row := 0
		err := eachObject(path, func(o json.RawMessage) bool { row++; return yield(o, nil) })
		if err != nil && !errors.Is(err, errStop) {
			yield(nil, fmt.Errorf("read Parquet file %s after row %d: %w", path, row, err))
		}
	}
}

func eachObject(path string, do func(json.RawMessage) bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	records, closeAll, err := openObjects(f)
	if err != nil {
		return err
	}
	defer closeAll()
	for {
		objects, err := nextObjects(records)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, o := range objects {
			if !do(o) {
				return errStop
			}
		}
	}
}

// guard turns a panic of the decoder into an error: a broken file must not end the program.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", ErrDamaged, p)
	}
}

func openObjects(f *os.File) (records pqarrow.RecordReader, closeAll func(), err error) {
	defer guard(&err)
	props := parquet.NewReaderProperties(memory.DefaultAllocator)
	props.BufferedStreamEnabled = true // else a whole column chunk is read into memory
	in, err := parquetfile.NewParquetReader(f, parquetfile.WithReadProps(props))
	if err != nil {
		return nil, nil, err
	}
	chunks, err := checkOffsets(in, f)
	if err == nil {
		err = checkPages(f, chunks)
	}
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	arrows, err := pqarrow.NewFileReader(in, pqarrow.ArrowReadProperties{BatchSize: objectRows}, memory.DefaultAllocator)
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	records, err = arrows.GetRecordReader(context.Background(), nil, nil)
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	return records, func() { records.Release(); _ = in.Close() }, nil
}

// checkPages compares every page with its checksum, where it has one: the decoder does not, and would hand out changed text.
func checkPages(f *os.File, chunks []chunk) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := brokenPage(f, info.Size(), chunks); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// checkOffsets demands that every column chunk lies inside the file, and lists them. The reader opens the columns of a struct in goroutines of
// its own, where a panic over a negative length cannot be caught.
func checkOffsets(in *parquetfile.Reader, f *os.File) ([]chunk, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var all []chunk
	for g := range in.NumRowGroups() {
		group := in.MetaData().RowGroup(g)
		for c := range group.NumColumns() {
			meta, err := group.ColumnChunk(c)
			if err != nil {
				return nil, err
			}
			start, bytes := meta.DataPageOffset(), meta.TotalCompressedSize()
			if meta.HasDictionaryPage() && meta.DictionaryPageOffset() > 0 {
				start = min(start, meta.DictionaryPageOffset())
			}
			if start < 0 || bytes < 0 || start > info.Size()-bytes {
				return nil, fmt.Errorf("%w: column %s of row group %d lies outside the file: %d bytes at byte %d", ErrDamaged,
					meta.PathInSchema(), g, bytes, start)
			}
			if meta.CryptoMetadata() == nil { // else its pages are no pages to us
				all = append(all, chunk{meta.PathInSchema().String(), g, start, meta.NumValues()})
			}
		}
	}
	return all, nil
}

func nextObjects(records pqarrow.RecordReader) (objects []json.RawMessage, err error) {
	defer guard(&err)
	if !records.Next() {
		if err := records.Err(); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, io.EOF
	}
	batch := records.RecordBatch()
	for i := range int(batch.NumRows()) {
		o, err := objectAt(batch, i)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

func objectAt(batch arrow.RecordBatch, row int) (json.RawMessage, error) {
	out := []byte{'{'}
	for i, column := range batch.Columns() {
		name, err := json.Marshal(batch.ColumnName(i))
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(column.GetOneForMarshal(row))
		if bad := (*json.UnsupportedValueError)(nil); errors.As(err, &bad) { // NaN in a type that arrow does not care for
			value, err = json.Marshal(column.ValueStr(row))
		}
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", batch.ColumnName(i), err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), value...)
	}
	return append(out, '}'), nil
}
