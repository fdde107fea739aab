package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"tranche/storage"
	"tranche/storage/arrowrows"
	"tranche/storage/export"
)

// Exports in the schema of the dataset itself: no shape, but a format.
const (
	formatArrow = "arrow"
	shapeOfARow = "rows"
)

// ownRows reports whether rows are to be written as they are.
func (c *exportCmd) ownRows() bool {
	return c.To == "" && (slices.Contains([]string{formatArrow, export.Parquet}, c.Format) || c.Format == "" && filepath.Ext(c.Out) == ".arrow")
}

// checkOwn says what makes no sense for rows as they are.
func (c *exportCmd) checkOwn(given map[string]bool) error {
	f := &faults{}
	for _, name := range []string{"tool-arguments", "tools", "max-length", "whole-groups", "drop-broken", "no-logprobs", "pairs", "min-gap"} {
		if given[name] {
			f.add("--%s is about a shape (--to); rows in the schema of the dataset are written as they are", name)
		}
	}
	switch ext := filepath.Ext(c.Out); {
	case c.Out == "":
		f.add("-o: expected a file, or - for stdout")
	case c.Out == "-" && c.Format == export.Parquet:
		f.add("-o -: Parquet goes into a file")
	case ext == ".jsonl" || ext == ".json" || c.Format == formatArrow && ext == ".parquet" || c.Format == export.Parquet && ext == ".arrow":
		f.add("-o %s: the ending says %s and --format %s: loaders go by the ending", c.Out, strings.TrimPrefix(ext, "."), c.Format)
	}
	f.at("", c.Rows.filter().Validate())
	return f.err()
}

// exportRows writes rows in the schema of the dataset: an Arrow IPC file, on stdout a stream; or one Parquet file.
func (c *exportCmd) exportRows(ctx context.Context, a *app, given map[string]bool) error {
	if c.Format == "" {
		c.Format = formatArrow
	}
	if err := c.checkOwn(given); err != nil {
		return withCode(codeUsage, err)
	}
	run, err := (&viewCmd{Dir: c.Dir}).open(a)
	if err != nil {
		return err
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	report := exportReport{export.Report{Shape: shapeOfARow, Format: c.Format, LeftOut: map[string]int64{}}, c.Out}
	err = c.publishRows(a, chosenRows(ctx, run, c.Rows.filter(), &report.Report), &report)
	if err != nil && errors.Is(context.Cause(ctx), errInterrupted) {
		return outcome(stopped())
	}
	if err != nil {
		return c.coded(a, err)
	}
	return c.tell(a, report)
}

func (c *exportCmd) publishRows(a *app, rows iter.Seq2[*storage.Row, error], report *exportReport) error {
	var write func(io.Writer) error
	check := func(path string) error { return arrowrows.CheckFile(path, report.Records) }
	arrow := func(to func(io.Writer, iter.Seq2[*storage.Row, error], arrowrows.Config) (int64, error)) func(io.Writer) error {
		return func(w io.Writer) (err error) {
			report.Records, err = to(w, rows, arrowrows.Config{})
			return err
		}
	}
	switch {
	case c.Out == "-":
		return arrow(arrowrows.WriteStream)(a.stdout)
	case c.Format == formatArrow:
		write = arrow(arrowrows.WriteFile)
	default:
		write = func(w io.Writer) (err error) { report.Records, err = storage.WriteRows(w, rows); return err }
		check = func(path string) error { return storage.CheckTable(path, report.Records) }
	}
	return storage.PublishFile(c.Out, c.Force, write, check)
}

// chosenRows yields the rows that a filter takes, and counts.
func chosenRows(ctx context.Context, run *storage.Run, filter storage.Filter, report *export.Report) iter.Seq2[*storage.Row, error] {
	return func(yield func(*storage.Row, error) bool) {
		for r, err := range run.Rows() {
			if err = errors.Join(err, context.Cause(ctx)); err != nil {
				yield(nil, err)
				return
			}
			report.RowsRead++
			if why := filter.Refusal(r); why != "" {
				report.LeftOut[fmt.Sprint("filter:", why)]++
				continue
			}
			report.RowsTaken++
			if !yield(r, nil) {
				return
			}
		}
	}
}
