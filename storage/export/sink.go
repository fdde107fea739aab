package export

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"tranche/storage"
)

// sink is where records go.
type sink interface {
	add(record any) error
	close() error // writes what is left; the writer below stays open
}

func (e *Export) sink(ctx context.Context, run *storage.Run, w io.Writer) (sink, error) {
	if e.cfg.Format == Parquet {
		return e.table(ctx, run, w)
	}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	return lines{out}, nil
}

// lines writes a JSON object a line.
type lines struct{ out *json.Encoder }

func (l lines) add(record any) error {
	if err := l.out.Encode(record); err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	return nil
}

func (lines) close() error { return nil }

// table writes Parquet of one type of records.
type table[T any] struct{ out *storage.Table[T] }

func tableOf[T any](w io.Writer) sink { return table[T]{storage.NewTable[T](w)} }

func (t table[T]) add(record any) error { return t.out.Add(record.(T)) }

func (t table[T]) close() error { return t.out.Close() }

// laidTable writes Parquet of records with a column whose type the rows decide.
type laidTable struct {
	out    *storage.Table[any]
	layout *layout
}

func (e *Export) table(ctx context.Context, run *storage.Run, w io.Writer) (sink, error) {
	if e.shape.table != nil {
		return e.shape.table(w), nil
	}
	l, err := e.layout(ctx, run)
	if err != nil {
		return nil, err
	}
	return laidTable{storage.NewTableOf(w, l.model()), l}, nil
}

func (t laidTable) add(record any) error {
	laid, err := t.layout.lay(record)
	if err != nil {
		return err
	}
	return t.out.Add(laid)
}

func (t laidTable) close() error { return t.out.Close() }
