package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"tranche/storage"
)

type compactCmd struct {
	Dir           string `arg:"" help:"Run directory. It must not be written while this goes on."`
	PartBytes     Bytes  `placeholder:"SIZE" help:"Files below half of this are small, and none that is made is larger. Default: that of the run."`
	RowGroupBytes Bytes  `placeholder:"SIZE" help:"Row groups of the files that are made are closed at this size. Default: that of the run."`
	Quiet         bool   `short:"q" help:"No notices and no progress line."`
	JSON          bool   `name:"json" help:"Print the result as one JSON document."`
}

// Help is kong's long text of the command.
func (compactCmd) Help() string {
	return "Small files that lie side by side are made into one, parts and failures each for themselves: every row stays as it is, a group stays in one row group, and groups of one task come together. A run does the same for itself at its end and while it goes on (--small-parts), within bounds on what is written again; this has none. Parts that rescored rewards stand on stay as they are. It can be stopped at any time; what was made stays."
}

func (c *compactCmd) do(ctx context.Context, a *app, given map[string]bool) error {
	a.quiet = c.Quiet
	if _, err := (&viewCmd{Dir: c.Dir}).open(a); err != nil {
		return err
	}
	cfg, err := c.config(given)
	if err != nil {
		return err
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	done, err := c.compact(ctx, a, cfg)
	if err != nil && errors.Is(context.Cause(ctx), errInterrupted) {
		a.notice("stopped; %d files were made into %d, and that stays", done.Files, done.Into)
		return outcome(stopped())
	}
	return errors.Join(c.print(a, done, err), c.coded(a, err))
}

// config takes the sizes of the run where none is given.
func (c *compactCmd) config(given map[string]bool) (storage.Compaction, error) {
	file, ok, err := readRunFile(c.Dir)
	if err != nil {
		return storage.Compaction{}, err
	}
	set := defaults()
	if ok {
		set = file.Settings
	}
	if given["part-bytes"] {
		set.PartBytes = c.PartBytes
	}
	if given["row-group-bytes"] {
		set.RowGroupBytes = c.RowGroupBytes
	}
	if set.PartBytes < 1 || set.RowGroupBytes < 1 {
		return storage.Compaction{}, withCode(codeUsage, errors.New("--part-bytes, --row-group-bytes: expected a size over 0"))
	}
	cfg := storage.Compaction{Dir: c.Dir, PartBytes: int64(set.PartBytes), RowGroupBytes: int64(set.RowGroupBytes)}
	return cfg, withCode(codeUsage, storage.Config{Dir: c.Dir, PartBytes: cfg.PartBytes, RowGroupBytes: cfg.RowGroupBytes}.Validate())
}

func (c *compactCmd) compact(ctx context.Context, a *app, cfg storage.Compaction) (storage.Compacted, error) {
	var files, rows atomic.Int64
	cfg.Made = func(done storage.Compacted) { files.Store(int64(done.Files)); rows.Store(done.Rows) }
	var done storage.Compacted
	err := withLine(ctx, a, func() string {
		return fmt.Sprintf("%d small files with %d rows were merged", files.Load(), rows.Load())
	}, func() (err error) {
		done, err = storage.Compact(ctx, cfg)
		return err
	})
	if err == nil { // files that could not be read are the outcome, and told with it
		err = damageIn(done.Left)
	}
	return done, err
}

// damageIn is what of the reasons to leave files alone is damage.
func damageIn(left []error) error {
	var damage []error
	for _, err := range left {
		if errors.Is(err, storage.ErrDamaged) {
			damage = append(damage, err)
		}
	}
	return errors.Join(damage...)
}

func (c *compactCmd) coded(a *app, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, storage.ErrLocked), errors.Is(err, storage.ErrNotRun), errors.Is(err, storage.ErrMirror):
		return withCode(codeRefused, err)
	case errors.Is(err, storage.ErrDamaged):
		return damaged(a, c.Dir, err)
	}
	if said := troubleOf(err, c.Dir, "as much as the files that become one take (--part-bytes at most)"); said != "" {
		kept := "Nothing was lost:"
		if errors.Is(err, fs.ErrNotExist) {
			kept = "Rows that were in them alone are lost. What is left:"
		}
		err = fmt.Errorf("%w\n%s\n%s %s view %s", err, said, kept, a.program, quoted(c.Dir))
	}
	return withCode(codeDisk, err)
}

// compactReport is what --json prints.
type compactReport struct {
	Dir    string   `json:"dir"`
	Files  int      `json:"files"` // that were made into others
	Into   int      `json:"into"`  // others
	Rows   int64    `json:"rows"`  // in those
	Before int64    `json:"bytes_before"`
	After  int64    `json:"bytes_after"`
	Left   []string `json:"left"` // why files were left as they are
}

// print tells what was done; after an error only where something was.
func (c *compactCmd) print(a *app, done storage.Compacted, err error) error {
	if err != nil && done.Into == 0 && len(done.Left) == 0 {
		return nil
	}
	r := compactReport{Dir: c.Dir, Files: done.Files, Into: done.Into, Rows: done.Rows, Before: done.Before, After: done.After, Left: []string{}}
	for _, e := range done.Left {
		r.Left = append(r.Left, e.Error())
	}
	if c.JSON {
		return a.printJSON(r)
	}
	return a.print(r.text())
}

func (r compactReport) text() string {
	p := &printer{width: 100}
	if r.Into == 0 {
		p.line("%s: no small files lie side by side", r.Dir)
	} else {
		p.line("%s: %d small files with %d rows were made into %d, %s into %s", r.Dir, r.Files, r.Rows, r.Into, roughBytes(r.Before), roughBytes(r.After))
	}
	for _, why := range r.Left {
		p.line("  left: %s", why)
	}
	return p.b.String()
}
