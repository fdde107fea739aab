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

// ReadObjects reads any Parquet file row by row, as JSON objects with columns and members of structs in the file's order; lists and
// structs stay nested, a map is a list of its keys and values. Memory does not grow with the file. An error names the file and ends the iteration.
//
// A JSON column is the value that its text holds, or the text where it holds none. Values JSON has no form for: binary is base64, times,
// dates, decimals and UUIDs are text, NaN and the infinities are strings. Text that is no valid UTF-8 stays as it is.
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
	file, err := openObjects(f)
	if err != nil {
		return err
	}
	defer file.close()
	for {
		rows, err := file.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, row := range rows {
			if !do(row) {
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

// objects are the rows of an open file, some at a time.
type objects struct {
	in       *parquetfile.Reader
	records  pqarrow.RecordReader
	readings []reading
}

func openObjects(f *os.File) (o *objects, err error) {
	defer guard(&err)
	props := parquet.NewReaderProperties(memory.DefaultAllocator)
	props.BufferedStreamEnabled = true // else a whole column chunk is read into memory
	in, err := parquetfile.NewParquetReader(f, parquetfile.WithReadProps(props))
	if err != nil {
		return nil, err
	}
	forgetArrowTypes(in)
	chunks, err := checkOffsets(in, f)
	if err == nil {
		err = checkPages(f, chunks)
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	arrows, err := pqarrow.NewFileReader(in, pqarrow.ArrowReadProperties{BatchSize: objectRows}, memory.DefaultAllocator)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	records, err := arrows.GetRecordReader(context.Background(), nil, nil)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return &objects{in, records, readingsOf(arrows.Manifest.Fields, in.MetaData().Schema)}, nil
}

// forgetArrowTypes takes away what the writer's Arrow types were. Of those that the decoder does not know it would refuse the file, and the same rows
// are to be the same objects whoever wrote them: the file's own schema says all that JSON can.
func forgetArrowTypes(in *parquetfile.Reader) {
	for _, kv := range in.MetaData().KeyValueMetadata() {
		if kv.Key == "ARROW:schema" {
			kv.Key = ""
		}
	}
}

func (o *objects) close() {
	o.records.Release()
	_ = o.in.Close()
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

// next returns the next rows, io.EOF after the last.
func (o *objects) next() (rows []json.RawMessage, err error) {
	defer guard(&err)
	if !o.records.Next() {
		if err := o.records.Err(); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, io.EOF
	}
	batch := o.records.RecordBatch()
	for i := range int(batch.NumRows()) {
		row, err := o.row(batch, i)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (o *objects) row(batch arrow.RecordBatch, i int) (json.RawMessage, error) {
	out := []byte{'{'}
	for c, column := range batch.Columns() {
		if c > 0 {
			out = append(out, ',')
		}
		out = append(appendQuoted(out, batch.ColumnName(c)), ':')
		var err error
		if out, err = o.readings[c].appendValue(out, column, i); err != nil {
			return nil, fmt.Errorf("column %s: %w", batch.ColumnName(c), err)
		}
	}
	return append(out, '}'), nil
}
