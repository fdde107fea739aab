package export

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"tranche/storage"
)

// Export writes one run in one shape. The order of the records is that of the dataset (parts as the manifest lists them, failures/, the journal);
// a group comes where its last row does. The same run in the same state gives the same bytes.
type Export struct {
	cfg    Config
	shape  Shape
	maker  maker
	report Report
}

// New checks the configuration.
func New(cfg Config) (*Export, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	shape, err := Named(cfg.Shape)
	if err != nil {
		return nil, err
	}
	e := &Export{cfg: cfg.withDefaults(shape), shape: shape}
	e.report = Report{Shape: shape.Name, Format: e.cfg.Format, LeftOut: map[string]int64{}}
	e.maker = shape.open(&e.cfg)
	return e, nil
}

// Report counts what Write did.
func (e *Export) Report() Report { return e.report }

// Write reads the run, once or twice, and writes the records. Rows are held one at a time, or a group; what grows with the run is the keys of rows that were
// read, and less than a hundred bytes of each group or task where a shape looks at them as a whole. An error, a damaged dataset too, leaves w half written.
// It is called once.
func (e *Export) Write(ctx context.Context, run *storage.Run, w io.Writer) error {
	out, err := e.sink(ctx, run, w)
	if err != nil {
		return err
	}
	err = e.gather(ctx, run, func(rows []*storage.Row) error { return e.add(rows, out) })
	if err != nil {
		return err
	}
	return out.close()
}

// add makes the records of a unit and accounts for each of its rows.
func (e *Export) add(rows []*storage.Row, out sink) error {
	records, left := e.maker.make(rows)
	if len(left) != len(rows) {
		panic(fmt.Sprintf("export: %s accounts for %d of %d rows", e.shape.Name, len(left), len(rows)))
	}
	for _, why := range left {
		if why == "" {
			e.report.RowsTaken++
		} else {
			e.report.leave(why)
		}
	}
	for _, rec := range records {
		if err := out.add(rec); err != nil {
			return err
		}
		e.report.record(rec)
	}
	return nil
}

// Check reads back a file that holds what Write wrote.
func (e *Export) Check(path string) error {
	if e.cfg.Format == Parquet {
		return storage.CheckTable(path, e.report.Records)
	}
	return checkLines(path, e.report.Records)
}

func checkLines(path string, want int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 256<<10)
	for n := int64(0); ; n++ {
		line, err := in.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0 && n == want:
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("it has %d lines, written were %d", n, want)
		case err != nil:
			return err
		case !json.Valid(line):
			return fmt.Errorf("line %d is no JSON", n+1)
		}
	}
}
