package taskfile

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tranche/episode"
)

// Report is what a first pass found.
type Report struct {
	Tasks      int64  // tasks a Reader with the same Config gives
	Rows       int64  // rows read, blank lines not counted; with a limit only those before it was reached
	Bytes      int64  // bytes of those rows, uncompressed
	Duplicates int64  // rows with an id and content that were there before; dropped
	Bad        Bad    // rows skipped because SkipBad says so
	SHA256     string // hex digest over ids and contents of the tasks, in order; a run and its resume must agree on it

	First       *episode.Task // the first task, for a dry run; nil when there is none
	NoAnswer    int64         // tasks that state no ground truth
	WithTools   int64         // tasks that name or define tools
	PromptBytes Sizes         // text bytes of the prompts

	// Ignored counts fields of messages and request bodies that have no meaning here and are not sent, by name. Their columns are
	// kept in Task.Extra. At most 100 names.
	Ignored map[string]int64

	// Models counts the batch rows that name a model, by its name; the run's own model answers them all. At most 100 names.
	Models map[string]int64
}

// Distinct reports whether every id that was seen was seen once.
func (r Report) Distinct() bool { return r.Duplicates == 0 && r.Bad.Rows == 0 }

// Bad counts and lists skipped rows. One row may have several faults.
type Bad struct {
	Rows   int64
	Listed []*RowError // the first MaxListedBad faults
}

// Sizes sums up a series of sizes.
type Sizes struct{ Max, Total int64 }

// Check reads all task files once, from the first row to the last that a run would use, and validates everything. With bad rows
// and no SkipBad, or with a file that cannot be read, or with no task at all, it returns an *InputError that lists all faults;
// other errors are faulty settings and a cancelled ctx. The Report holds what was counted in any case.
func Check(ctx context.Context, cfg Config) (Report, error) {
	s, err := newScanner(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer s.close()
	c := checker{skip: cfg.SkipBad}
	if err := c.scan(s); err != nil {
		return c.report(s), err
	}
	rep := c.report(s)
	if c.faults.Total == 0 && rep.Tasks == 0 {
		c.faults.add(&RowError{Where: episode.Position{File: cfg.Paths[0]}, Problem: nothingLeft(rep, cfg)})
	}
	if c.faults.Total == 0 {
		return rep, nil
	}
	if err := locate(ctx, cfg, c.faults.Listed); err != nil {
		return rep, err
	}
	return rep, &c.faults
}

// checker collects what a pass finds.
type checker struct {
	skip   bool
	rep    Report
	faults InputError
}

func (c *checker) scan(s *scanner) error {
	for {
		row, err := s.next()
		var file *RowError
		switch {
		case err == io.EOF:
			return nil
		case errors.As(err, &file):
			c.faults.add(file)
		case err != nil:
			return err
		case len(row.bad) > 0:
			c.bad(row.bad)
		case row.task != nil:
			c.good(row.task)
		}
	}
}

func (c *checker) bad(faults []*RowError) {
	if !c.skip {
		c.faults.add(faults...)
		return
	}
	c.rep.Bad.Rows++
	for _, f := range faults {
		if len(c.rep.Bad.Listed) < MaxListedBad {
			c.rep.Bad.Listed = append(c.rep.Bad.Listed, f)
		}
	}
}

func (c *checker) good(t *episode.Task) {
	if c.rep.First == nil {
		c.rep.First = t
	}
	c.rep.Tasks++
	if t.Answer == nil {
		c.rep.NoAnswer++
	}
	if t.Tools != nil {
		c.rep.WithTools++
	}
	var n int64
	for _, m := range t.Messages {
		n += int64(m.Bytes())
	}
	c.rep.PromptBytes.Total += n
	c.rep.PromptBytes.Max = max(c.rep.PromptBytes.Max, n)
}

func (c *checker) report(s *scanner) Report {
	rep := c.rep
	rep.Rows, rep.Bytes, rep.Duplicates, rep.SHA256, rep.Ignored = s.rows, s.bytes, s.duplicates, s.sum(), s.parse.ignored
	rep.Models = s.parse.models
	return rep
}

func nothingLeft(rep Report, cfg Config) string {
	switch {
	case rep.Bad.Rows > 0 && rep.Bad.Rows == rep.Rows:
		return fmt.Sprintf("no task is left: all %d rows are bad, the first one: %s", rep.Rows, rep.Bad.Listed[0])
	case cfg.Offset > 0:
		return fmt.Sprintf("no task is left after offset %d: the input has %d rows", cfg.Offset, rep.Rows)
	}
	return fmt.Sprintf("no task is left of %d rows", rep.Rows)
}

// locate finds where the ids of conflicting rows were used first and says so in their faults. It is a second pass that only an
// input with such faults pays for; the table of ids holds no positions, to stay small.
func locate(ctx context.Context, cfg Config, faults []*RowError) error {
	wanted := map[string][]*RowError{}
	for _, f := range faults {
		if f.conflict != "" {
			wanted[f.conflict] = append(wanted[f.conflict], f)
		}
	}
	cfg.Offset, cfg.Limit = 0, 0
	s, err := newScanner(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.close()
	for len(wanted) > 0 {
		row, err := s.next()
		var file *RowError
		switch {
		case err == io.EOF:
			return nil
		case err != nil && !errors.As(err, &file):
			return err
		case row.task != nil:
			for _, f := range wanted[row.task.ID] {
				f.Problem = fmt.Sprintf("%q was used at %s for a task with other content; expected ids that are unique", f.conflict, row.task.Where)
			}
			delete(wanted, row.task.ID)
		}
	}
	return nil
}
