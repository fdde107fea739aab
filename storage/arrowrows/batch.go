package arrowrows

import (
	"fmt"
	"reflect"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"tranche/storage"
)

// MaxRowBytes is the largest row that a batch takes, by Row.Bytes: no column of a batch can come near the 2 GiB that Arrow's offsets end at.
const MaxRowBytes = 1 << 30

// Builder collects rows into record batches, one batch after another. It is for one goroutine.
type Builder struct {
	columns []column
	schema  *arrow.Schema
	out     *array.RecordBuilder
	rows    int
	bytes   int64
}

// NewBuilder makes a builder for these columns; none = all. Release it.
func NewBuilder(mem memory.Allocator, columns ...string) (*Builder, error) {
	list, err := rowColumns(columns)
	if err != nil {
		return nil, err
	}
	schema := schemaOf(list)
	return &Builder{columns: list, schema: schema, out: array.NewRecordBuilder(mem, schema)}, nil
}

func schemaOf(columns []column) *arrow.Schema {
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = c.field
	}
	meta := arrow.NewMetadata([]string{"tranche.schema_version"}, []string{fmt.Sprint(storage.SchemaVersion)})
	return arrow.NewSchema(fields, &meta)
}

// Append adds a row; its memory is copied. After ErrTooLarge of a row under MaxRowBytes, which only texts that Row.Bytes does not count can
// bring about, the builder is of no use any more.
func (b *Builder) Append(r *storage.Row) (err error) {
	n := r.Bytes()
	if n > MaxRowBytes {
		return fmt.Errorf("episode %s: %d bytes: %w", r.EpisodeID, n, ErrTooLarge)
	}
	defer func() {
		switch p := recover(); {
		case p == ErrTooLarge:
			err = fmt.Errorf("episode %s: %w", r.EpisodeID, ErrTooLarge)
		case p != nil:
			panic(p)
		}
	}()
	v := reflect.ValueOf(r).Elem()
	for i, c := range b.columns {
		c.put(b.out.Field(i), v.Field(c.index))
	}
	b.rows++
	b.bytes += n
	return nil
}

// Rows and Bytes are what was appended since the last batch; bytes are those of whole rows, by Row.Bytes.
func (b *Builder) Rows() int { return b.rows }

// Bytes is an estimate, of all columns.
func (b *Builder) Bytes() int64 { return b.bytes }

// Batch is what was appended since the last one; it may have no rows. Release it. meta goes with it over IPC.
func (b *Builder) Batch(meta map[string]string) arrow.RecordBatch {
	plain := b.out.NewRecordBatch()
	b.rows, b.bytes = 0, 0
	if len(meta) == 0 {
		return plain
	}
	defer plain.Release()
	return array.NewRecordBatchWithMetadata(b.schema, plain.Columns(), plain.NumRows(), arrow.MetadataFrom(meta))
}

// Release frees what was appended and is in no batch.
func (b *Builder) Release() { b.out.Release() }

// RowsOf reads a batch back. A column that it does not have stays empty; one that a row does not have is an error, as is another type.
func RowsOf(batch arrow.RecordBatch) ([]*storage.Row, error) {
	var names []string
	for _, f := range batch.Schema().Fields() {
		names = append(names, f.Name)
	}
	columns, err := rowColumns(names)
	if err != nil {
		return nil, err
	}
	for i, c := range columns {
		if have := batch.Schema().Field(i).Type; !arrow.TypeEqual(have, c.field.Type) {
			return nil, fmt.Errorf("column %s is %s, expected %s", c.field.Name, have, c.field.Type)
		}
	}
	rows := make([]*storage.Row, batch.NumRows())
	for i := range rows {
		rows[i] = new(storage.Row)
		v := reflect.ValueOf(rows[i]).Elem()
		for k, c := range columns {
			c.take(batch.Column(k), i, v.Field(c.index))
		}
	}
	return rows, nil
}
