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

// table writes Parquet, by a layout where the records have a column whose type the rows decide.
type table struct {
	out    *storage.Table
	layout *layout // nil = the records are as they are written
}

func (e *Export) table(ctx context.Context, run *storage.Run, w io.Writer) (sink, error) {
	l, err := e.layout(ctx, run)
	if err != nil {
		return nil, err
	}
	model := e.maker.model()
	if l != nil {
		model = l.model()
	}
	return &table{storage.NewTable(w, model), l}, nil
}

func (t *table) add(record any) error {
	if t.layout != nil {
		laid, err := t.layout.lay(record)
		if err != nil {
			return err
		}
		record = laid
	}
	return t.out.Add(record)
}

func (t *table) close() error { return t.out.Close() }
