package storage

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// Table writes one Parquet file of records that are no rows of a run: what an export makes of them. It is not safe for concurrent use.
type Table struct {
	schema *parquet.Schema
	out    *parquet.GenericWriter[any]
	row    parquet.Row
	queued int64 // raw bytes in the open row group
}

// tableGroupBytes closes a row group of a Table, bytes of raw values.
const tableGroupBytes = 8 << 20

// NewTable begins a file. model is a struct of the records' type, whose `parquet` tags name the columns.
func NewTable(w io.Writer, model any) *Table {
	schema := parquet.SchemaOf(model)
	options := []parquet.WriterOption{
		schema, parquet.Compression(newZstdCodec()), parquet.PageBufferSize(pageBytes), parquet.CreatedBy("tranche", "", ""),
	}
	for _, path := range schema.Columns() { // the footer would hold whole texts
		options = append(options, parquet.SkipPageBounds(path...), parquet.SkipPageStatistics(path...))
	}
	return &Table{schema: schema, out: parquet.NewGenericWriter[any](w, options...)}
}

// Add appends a record of the model's type, which is the caller's again when Add returns.
func (t *Table) Add(record any) error {
	t.row = t.schema.Deconstruct(t.row[:0], record)
	if _, err := t.out.WriteRows([]parquet.Row{t.row}); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	for _, v := range t.row {
		t.queued += 8
		if v.Kind() == parquet.ByteArray {
			t.queued += int64(len(v.ByteArray()))
		}
	}
	clear(t.row) // its texts
	if t.queued < tableGroupBytes {
		return nil
	}
	t.queued = 0
	if err := t.out.Flush(); err != nil {
		return fmt.Errorf("write Parquet: close a row group: %w", err)
	}
	return nil
}

// Close writes what is left and the footer. It does not close the writer below.
func (t *Table) Close() error {
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
