package storage

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// Table writes one Parquet file of records that are no rows of a run: what an export makes of them. T is a struct whose `parquet` tags name the columns.
// It is not safe for concurrent use.
type Table[T any] struct {
	out    *parquet.GenericWriter[T]
	schema *parquet.Schema // of records whose type is known at run time alone; nil = T says it
	row    parquet.Row
	queued int64 // raw bytes in the open row group
}

// tableGroupBytes closes a row group of a Table, bytes of raw values.
const tableGroupBytes = 8 << 20

// NewTable begins a file.
func NewTable[T any](w io.Writer) *Table[T] {
	var record T
	schema := parquet.SchemaOf(record)
	return &Table[T]{out: parquet.NewGenericWriter[T](w, tableOptions(schema)...)}
}

// NewTableOf begins a file of records of the model's type, which may be made at run time. It is slower than NewTable.
func NewTableOf(w io.Writer, model any) *Table[any] {
	schema := parquet.SchemaOf(model)
	return &Table[any]{out: parquet.NewGenericWriter[any](w, append(tableOptions(schema), schema)...), schema: schema}
}

func tableOptions(schema *parquet.Schema) []parquet.WriterOption {
	options := []parquet.WriterOption{parquet.Compression(newZstdCodec()), parquet.PageBufferSize(pageBytes), parquet.CreatedBy("tranche", "", "")}
	for _, path := range schema.Columns() { // the footer would hold whole texts
		options = append(options, parquet.SkipPageBounds(path...), parquet.SkipPageStatistics(path...))
	}
	return options
}

// Add appends a record, which is the caller's again when Add returns.
func (t *Table[T]) Add(record T) error {
	if err := t.write(record); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	if t.queued += rawSize(reflect.ValueOf(record)); t.queued < tableGroupBytes {
		return nil
	}
	t.queued = 0
	if err := t.out.Flush(); err != nil {
		return fmt.Errorf("write Parquet: close a row group: %w", err)
	}
	return nil
}

func (t *Table[T]) write(record T) error {
	if t.schema == nil {
		_, err := t.out.Write([]T{record})
		return err
	}
	t.row = t.schema.Deconstruct(t.row[:0], record)
	_, err := t.out.WriteRows([]parquet.Row{t.row})
	clear(t.row) // its texts
	return err
}

// rawSize is about what a record's values take before encoding, bytes.
func rawSize(v reflect.Value) (n int64) {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer:
		if !v.IsNil() {
			return rawSize(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += rawSize(v.Field(i))
		}
		return n
	case reflect.Slice:
		switch v.Type().Elem().Kind() {
		case reflect.String, reflect.Pointer, reflect.Struct, reflect.Slice:
			for i := range v.Len() {
				n += rawSize(v.Index(i))
			}
			return n
		}
		return int64(v.Len()) * int64(v.Type().Elem().Size())
	}
	return 8
}

// Close writes what is left and the footer. It does not close the writer below.
func (t *Table[T]) Close() error {
	if err := t.out.Close(); err != nil {
		return fmt.Errorf("write Parquet: finish the file: %w", err)
	}
	return nil
}

// CheckTable reads every page of a file of a Table and compares the number of its rows.
func CheckTable(path string, rows int64) error {
	f, err := disk{}.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	pf, err := openParquet(f)
	if err != nil {
		return err
	}
	if pf.NumRows() != rows {
		return fmt.Errorf("it has %d rows, written were %d", pf.NumRows(), rows)
	}
	for _, g := range pf.RowGroups() {
		for _, c := range g.ColumnChunks() {
			if err := readPages(c, g.NumRows()); err != nil {
				return fmt.Errorf("column %s: %w", strings.Join(pf.Schema().Columns()[c.Column()], "."), located(pf, err))
			}
		}
	}
	return nil
}

// readPages decodes all pages of a column, which compares their checksums, and counts their rows.
func readPages(c parquet.ColumnChunk, rows int64) error {
	pages := c.Pages()
	defer pages.Close()
	var found int64
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		found += page.NumRows()
		parquet.Release(page)
	}
	if found != rows {
		return fmt.Errorf("it has %d rows, its row group %d", found, rows)
	}
	return nil
}
