package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"

	"tranche/storage"
)

type viewCmd struct {
	Dir      string `arg:"" help:"Run directory; the run may be going on, or may have been killed."`
	Episode  string `placeholder:"ID" xor:"what" help:"Show the episode whose id begins so."`
	Failed   bool   `xor:"what" help:"Show episodes that failed, with all their attempts."`
	Unscored bool   `xor:"what" help:"Show episodes that ended well and have no reward, with what each grader says."`
	Best     bool   `xor:"what" help:"Show the episodes with the highest reward."`
	Worst    bool   `xor:"what" help:"Show the episodes with the lowest reward; those without a verdict are left out."`
	Limit    int    `short:"n" default:"0" placeholder:"N" help:"How many trajectories to show; alone: the first N. Default: 3."`
	Raw      int    `default:"0" placeholder:"TURN" help:"With --episode: print the answer of that turn (from 1, as shown) byte for byte as the server sent it, where the run kept it (--keep-raw)."`
	JSON     bool   `name:"json" help:"Print one JSON document: the summary, or the rows with every column."`
}

// Help is kong's long text of the command.
func (viewCmd) Help() string {
	return "Without a selector: the summary. With one: whole trajectories, message by message, with what each call cost, what each tool did, the rewards with their evidence, and faults with every attempt. Colours only on a terminal (NO_COLOR turns them off)."
}

const defaultShown = 3

func (c *viewCmd) do(ctx context.Context, a *app) error {
	if c.Limit < 0 {
		return withCode(codeUsage, fmt.Errorf("--limit: expected 0 or more, found %d", c.Limit))
	}
	if c.Raw < 0 || c.Raw > 0 && c.Episode == "" {
		return withCode(codeUsage, errors.New("--raw: expected the number of a turn, from 1, and --episode ID"))
	}
	run, err := c.open(a)
	if err != nil {
		return err
	}
	if c.Episode == "" && !c.Failed && !c.Unscored && !c.Best && !c.Worst && c.Limit == 0 {
		return c.summary(ctx, a, run)
	}
	rows, err := c.pick(ctx, a, run)
	if err != nil && !errors.Is(err, storage.ErrDamaged) {
		return err
	}
	if c.Raw > 0 && len(rows) == 1 {
		return errors.Join(c.raw(a, rows[0]), err)
	}
	return errors.Join(c.show(a, rows), err) // what can be read, and then what cannot
}

func (c *viewCmd) open(a *app) (*storage.Run, error) {
	if err := notAFile(c.Dir, "expected a run directory"); err != nil {
		return nil, withCode(codeRefused, err)
	}
	run, err := storage.OpenRun(c.Dir)
	switch {
	case errors.Is(err, storage.ErrNotRun):
		if _, began, _ := readRunFile(c.Dir); began {
			return nil, damaged(a, c.Dir, fmt.Errorf("%w: without it nobody can tell which files count", err))
		}
		return nil, noRun(a, c.Dir)
	case errors.Is(err, storage.ErrDamaged):
		return nil, damaged(a, c.Dir, err)
	}
	return run, withCode(codeDisk, err)
}

// summary counts every row there is, in parts and in the journal.
func (c *viewCmd) summary(ctx context.Context, a *app, run *storage.Run) error {
	var sum storage.Summary
	draws := readDrawSums(c.Dir)
	stats := groupTallyOf(c.Dir, draws)
	broken := c.eachRow(ctx, a, run, func(r *storage.Row) {
		sum.Add(r)
		stats.add(storage.OutcomeOf(r), int(r.GroupSize))
	})
	if broken != nil && !errors.Is(broken, storage.ErrDamaged) {
		return broken
	}
	r, err := c.report(a, sum, draws)
	if err != nil {
		return err
	}
	stats.report(r)
	if broken != nil {
		r.State = stateDamaged
		if !onlyJournal(broken) {
			r.Command = ""
		}
	}
	if c.JSON {
		return errors.Join(a.printJSON(document{sum, r}), broken)
	}
	return errors.Join(a.print(r.text(a.colour)), broken)
}

func (c *viewCmd) report(a *app, sum storage.Summary, draws drawSums) (*report, error) {
	r := &report{State: stateIncomplete, Dir: c.Dir, Made: "endpoints", Dataset: sum, StdErr: stdError(sum.Reward), Files: filesIn(c.Dir), program: a.program}
	var sums account
	if ok, err := storage.ReadAccount(c.Dir, &sums); err != nil {
		r.Notes = append(r.Notes, err.Error())
	} else if ok {
		r.Account = &sums
	}
	if _, err := os.Stat(r.Files.Summary); err != nil {
		r.Files.Summary = "" // written at the end of a session
	}
	file, ok, err := readRunFile(c.Dir)
	if err != nil {
		return nil, err
	}
	r.Notes = append(r.Notes, rewardNotes(c.Dir)...)
	if !ok { // a dataset without its run.yaml is still readable
		r.Total = sum.Rows
		if made := madeOf(c.Dir); made != nil { // as whole as it will be
			r.State, r.RunID, r.copied = stateComplete, made.ID, true
			return r, nil
		}
		r.Notes = append(r.Notes, "there is no "+runFileName+": how many episodes the run was to have is not known")
		return r, nil
	}
	s := &file.Settings
	r.TailRules = s.tailRules()
	r.RunID, r.Model = file.RunID, joined(slices.Compact(modelsOf(s)))
	if err := r.expect(file, draws); err != nil {
		return nil, err
	}
	r.Left = max(r.Total-sum.Rows, 0)
	if file.Embedded {
		r.Made = embeddedText
	}
	if r.Left == 0 && !r.OpenEnd {
		r.State = stateComplete
	} else {
		r.Command = a.program + " resume " + quoted(c.Dir)
	}
	if process, running := storage.Writing(c.Dir); running && (r.Left > 0 || r.OpenEnd) {
		r.Ended, r.Command = "still running"+label(", process ", process), "" // nothing to be resumed
	}
	return r, nil
}

// eachRow walks all rows.
func (c *viewCmd) eachRow(ctx context.Context, a *app, run *storage.Run, do func(*storage.Row)) error {
	return eachOf(ctx, a, c, run.Rows(), do)
}

// damaged says what can be done: the rows of a damaged journal are played again, files of the dataset are not made again.
func (c *viewCmd) damaged(a *app, err error) error {
	if onlyJournal(err) {
		return withCode(codeDisk, fmt.Errorf("%w\nthe other rows are whole; does them again: %s resume %s", err, a.program, quoted(c.Dir)))
	}
	return damaged(a, c.Dir, err)
}

func onlyJournal(err error) bool {
	var j *storage.JournalDamage
	return errors.As(err, &j) && !j.Parts
}

// pick returns the rows to show.
func (c *viewCmd) pick(ctx context.Context, a *app, run *storage.Run) ([]*storage.Row, error) {
	if c.Episode != "" {
		row, err := run.Find(c.Episode)
		switch {
		case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrAmbiguous):
			return nil, withCode(codeUsage, err)
		case errors.Is(err, storage.ErrDamaged):
			return nil, damaged(a, c.Dir, err)
		case err != nil:
			return nil, withCode(codeDisk, err)
		}
		return []*storage.Row{row}, nil
	}
	top := selection{limit: c.Limit, before: c.order()}
	if top.limit == 0 {
		top.limit = defaultShown
	}
	err := c.eachRow(ctx, a, run, func(r *storage.Row) {
		if c.wanted(r) {
			top.add(r)
		}
	})
	return top.rows, err
}

func (c *viewCmd) wanted(r *storage.Row) bool {
	switch {
	case c.Failed:
		return or(r.Status, "") == "failed"
	case c.Unscored:
		return r.Reward == nil && r.FaultClass == nil
	case c.Best, c.Worst:
		return r.Reward != nil
	}
	return true
}

// order says which of two rows comes first; nil = the order of the dataset.
func (c *viewCmd) order() func(a, b *storage.Row) bool {
	switch {
	case c.Best:
		return func(a, b *storage.Row) bool { return cmp.Or(cmp.Compare(*b.Reward, *a.Reward), byTask(a, b)) < 0 }
	case c.Worst:
		return func(a, b *storage.Row) bool { return cmp.Or(cmp.Compare(*a.Reward, *b.Reward), byTask(a, b)) < 0 }
	}
	return nil
}

// byTask breaks ties, so that the same dataset always shows the same rows.
func byTask(a, b *storage.Row) int {
	return cmp.Or(cmp.Compare(a.TaskID, b.TaskID), cmp.Compare(a.Round, b.Round), cmp.Compare(a.SampleIndex, b.SampleIndex))
}

// selection keeps the first few rows by an order, so that a dataset of any size can be gone through.
type selection struct {
	limit  int
	before func(a, b *storage.Row) bool
	rows   []*storage.Row
}

func (s *selection) add(r *storage.Row) {
	at := len(s.rows)
	if s.before != nil {
		for at > 0 && s.before(r, s.rows[at-1]) {
			at--
		}
	}
	if at >= s.limit {
		return
	}
	s.rows = slices.Insert(s.rows, at, r)
	s.rows = s.rows[:min(len(s.rows), s.limit)]
}

// nothing says what there is none of.
func (c *viewCmd) nothing() string {
	switch {
	case c.Failed:
		return "no failed episodes"
	case c.Unscored:
		return "every episode that ended well has a reward"
	case c.Best, c.Worst:
		return "no episode has a reward"
	}
	return "no episodes yet"
}

func (c *viewCmd) show(a *app, rows []*storage.Row) error {
	if c.JSON {
		if rows == nil {
			rows = []*storage.Row{}
		}
		withoutNonFinite(reflect.ValueOf(rows))
		return a.printJSON(map[string]any{"episodes": rows})
	}
	if len(rows) == 0 {
		return a.print(c.nothing() + "\n")
	}
	var b strings.Builder
	for _, r := range rows {
		p := &printer{width: min(a.width(), 120), colour: a.colour}
		p.trajectory(r)
		b.WriteString(p.b.String())
	}
	return a.print(b.String())
}

// withoutNonFinite sets pointers to NaN and the infinities to nil, at any depth: JSON has no such numbers, and a server may give a
// logprob of -inf. Floats that are no pointers (weights, times) are finite in every row.
func withoutNonFinite(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		if f := v.Elem(); f.CanFloat() && (math.IsNaN(f.Float()) || math.IsInf(f.Float(), 0)) {
			v.SetZero()
			return
		}
		withoutNonFinite(v.Elem())
	case reflect.Slice:
		switch v.Type().Elem().Kind() {
		case reflect.Pointer, reflect.Struct:
			for i := range v.Len() {
				withoutNonFinite(v.Index(i))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				withoutNonFinite(v.Field(i))
			}
		}
	}
}
