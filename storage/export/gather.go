package export

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"tranche/storage"
)

// gather hands the rows that the filter takes to do, in the units that the shape wants.
func (e *Export) gather(ctx context.Context, run *storage.Run, do func([]*storage.Row) error) error {
	switch {
	case e.shape.unit == eachTask:
		return e.byTask(ctx, run, do)
	case e.shape.unit == eachGroup, e.cfg.WholeGroups:
		return e.byGroup(ctx, run, do)
	}
	return e.taken(ctx, run, func(r *storage.Row) error {
		if e.tooLong(r) {
			return nil
		}
		return do([]*storage.Row{r})
	})
}

// taken walks the rows that the filter takes, and accounts for the others.
func (e *Export) taken(ctx context.Context, run *storage.Run, do func(*storage.Row) error) error {
	for r, err := range run.Rows() {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		e.report.RowsRead++
		if why := e.cfg.Filter.Refusal(r); why != "" {
			e.report.leave(leftFilter + why)
			continue
		}
		if err := do(r); err != nil {
			return err
		}
	}
	return nil
}

// heads walks the same rows in little.
func (e *Export) heads(ctx context.Context, run *storage.Run, do func(*storage.Row)) error {
	for r, err := range run.Heads() {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if e.cfg.Filter.Match(r) {
			do(r)
		}
	}
	return nil
}

// tooLong leaves a row out for its length. It looks at every sequence of the row.
func (e *Export) tooLong(r *storage.Row) bool {
	longest := len(r.TokenIDs)
	for _, b := range r.Breaks {
		longest = max(longest, int(b.At)+len(b.TokenIDs))
	}
	switch {
	case e.cfg.MaxLength == 0:
		return false
	case longest == 0:
		e.report.leave(leftUnmeasured)
	case longest > e.cfg.MaxLength:
		e.report.leave(leftLong)
	default:
		return false
	}
	return true
}

// byGroup hands over whole groups. A first pass counts the rows of each; the second holds a group's rows until the last is there, which is at once
// in parts, where they are adjacent, and later for groups of the journal and for failures that were retried.
func (e *Export) byGroup(ctx context.Context, run *storage.Run, do func([]*storage.Row) error) error {
	missing := map[storage.Key]int32{}
	if err := e.heads(ctx, run, func(r *storage.Row) { missing[storage.KeyOf(r.GroupID)]++ }); err != nil {
		return err
	}
	waiting := map[storage.Key][]*storage.Row{}
	err := e.taken(ctx, run, func(r *storage.Row) error {
		g := storage.KeyOf(r.GroupID)
		if missing[g] == 0 {
			e.report.leave(leftLate)
			return nil
		}
		if !e.tooLong(r) {
			waiting[g] = append(waiting[g], r)
		}
		if missing[g]--; missing[g] > 0 {
			return nil
		}
		rows := waiting[g]
		delete(missing, g)
		delete(waiting, g)
		return e.group(rows, do)
	})
	if err != nil {
		return err
	}
	for _, rows := range waiting {
		return fmt.Errorf("rows of group %s went away while the export ran", rows[0].GroupID)
	}
	return nil
}

// group hands over the rows of one group in sample order, together or one by one, unless not all are there and all are wanted.
func (e *Export) group(rows []*storage.Row, do func([]*storage.Row) error) error {
	slices.SortFunc(rows, func(a, b *storage.Row) int {
		return cmp.Or(cmp.Compare(a.SampleIndex, b.SampleIndex), cmp.Compare(a.BranchIndex, b.BranchIndex))
	})
	switch {
	case len(rows) == 0:
		return nil
	case e.cfg.WholeGroups && len(rows) != int(rows[0].GroupSize):
		for range rows {
			e.report.leave(leftGroup)
		}
		return nil
	case e.shape.unit == eachGroup:
		return do(rows)
	}
	for _, r := range rows {
		if err := do([]*storage.Row{r}); err != nil {
			return err
		}
	}
	return nil
}

// standing is what the rows of a task come to.
type standing struct {
	samples, scored int32
	sum             float64
	passed          int32 // with a reward of 1 or more
}

// byTask hands over the first row of each task that the filter takes, when a first pass knows what all its rows came to.
func (e *Export) byTask(ctx context.Context, run *storage.Run, do func([]*storage.Row) error) error {
	tasks, known := map[storage.Key]*standing{}, e.maker.(knower)
	err := e.heads(ctx, run, func(r *storage.Row) {
		k := taskOf(r)
		if tasks[k] == nil {
			tasks[k] = &standing{}
		}
		tasks[k].count(r)
	})
	if err != nil {
		return err
	}
	done := map[storage.Key]bool{}
	return e.taken(ctx, run, func(r *storage.Row) error {
		k := taskOf(r)
		s := tasks[k]
		switch {
		case s == nil:
			e.report.leave(leftLate)
			return nil
		case done[k]:
			e.report.leave(leftSameTask)
			return nil
		}
		known.know(*s)
		before := e.report.RowsTaken
		err := do([]*storage.Row{r})
		done[k] = e.report.RowsTaken > before
		return err
	})
}

// knower is a maker of tasks: it is told of a task before it gets its row.
type knower interface{ know(standing) }

func taskOf(r *storage.Row) storage.Key { return storage.KeyOf(r.TaskID + "\x00" + r.TaskHash) }

func (s *standing) count(r *storage.Row) {
	s.samples++
	if r.Reward == nil {
		return
	}
	s.scored++
	s.sum += *r.Reward
	if *r.Reward >= 1 {
		s.passed++
	}
}
