package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"tranche/storage"
)

type mergeCmd struct {
	Dirs   []string `arg:"" name:"run" help:"Run directories, and datasets that merge, sample or rescore made."`
	Out    string   `short:"o" required:"" placeholder:"DIR" help:"New directory for the dataset."`
	Prefer string   `enum:"none,first,last" default:"none" help:"Which of several different rows of one episode is taken: that of the run that is named first, or last. Default: none, merging is refused and the episodes are named."`
	Quiet  bool     `short:"q" help:"No notices and no progress line."`
	JSON   bool     `name:"json" help:"Print the result as one JSON document."`
}

// Help is kong's long text of the command.
func (mergeCmd) Help() string {
	return "The new dataset has every episode once. Rows that are the same in every column count as one. Groups are whole in one row group, also where their rows came from several runs; failures go to failures/. Rewards are those that each run shows now (rescore). Checksums of all files are compared while they are read. What each run was (run.yaml, account, draws, endpoints) is kept in DIR/sources. Rows of groups that a run has not completed are left out and counted. Nothing is seen under DIR before all is there; what a killed merge left goes when it is done again. view, stats, diff, export, verify and rescore read the result as they read a run; it cannot be resumed."
}

func (c *mergeCmd) do(ctx context.Context, a *app) error {
	a.quiet = c.Quiet
	prefer := storage.Preference(c.Prefer)
	if c.Prefer == "none" {
		prefer = storage.PreferNone
	}
	return copyRows(ctx, a, storage.Copying{From: c.Dirs, Into: c.Out, How: "merge", Prefer: prefer}, "merged", c.JSON)
}

// copied is what merge and sample tell.
type copied struct {
	Dir        string           `json:"dir"`
	How        string           `json:"how"`
	Choice     string           `json:"choice,omitempty"`
	ID         string           `json:"id"`
	Rows       int64            `json:"rows"` // in parts
	Failed     int64            `json:"failure_rows"`
	Parts      int              `json:"parts"`
	Alike      int64            `json:"rows_alike"`     // left out: the same row was there
	Preferred  int64            `json:"rows_preferred"` // left out for a different one of the same episode
	Gathered   int64            `json:"groups_gathered"`
	Unfinished int64            `json:"rows_unfinished"` // left out: in a journal, of groups that are not complete
	Reward     storage.Mean     `json:"reward"`
	Sources    []storage.Source `json:"sources"`
	program    string
}

// copyRows makes a dataset and tells what came of it.
func copyRows(ctx context.Context, a *app, cfg storage.Copying, doing string, json bool) error {
	if err := newPlace(cfg.Into); err != nil {
		return withCode(codeUsage, err)
	}
	for _, dir := range cfg.From {
		if _, err := (&viewCmd{Dir: dir}).open(a); err != nil {
			return err
		}
	}
	return whileWaiting(ctx, a, func(ctx context.Context) error {
		var rows atomic.Int64
		var done storage.Copied
		cfg.Progress = func() { rows.Add(1) }
		err := withLine(ctx, a, func() string { return fmt.Sprintf("%s %d rows", doing, rows.Load()) }, func() (err error) {
			done, err = storage.Copy(ctx, cfg)
			return err
		})
		if err != nil {
			return copyFault(a, err)
		}
		r := reportOf(cfg, done, a.program)
		if json {
			return a.printJSON(r)
		}
		return a.print(r.text(a.colour))
	})
}

// newPlace says why a dataset cannot be made under that name, before anything is read.
func newPlace(dir string) error {
	if err := (storage.DatasetConfig{Dir: dir}).Validate(); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	return nil
}

// copyFault gives an error its exit status and says what to do.
func copyFault(a *app, err error) error {
	var conflict *storage.ConflictError
	switch {
	case errors.Is(err, errInterrupted):
		return err
	case errors.As(err, &conflict):
		return withCode(codeRefused, fmt.Errorf("%w\nnothing was written; --prefer first or --prefer last takes the row of the run that is named first or last", err))
	case errors.Is(err, storage.ErrTaken), errors.Is(err, storage.ErrLocked), errors.Is(err, storage.ErrNotRun):
		return withCode(codeRefused, err)
	case errors.Is(err, storage.ErrMoved):
		return withCode(codeRefused, fmt.Errorf("%w; nothing was written: do it again, best when the run rests", err))
	case errors.Is(err, storage.ErrDamaged):
		return withCode(codeDisk, fmt.Errorf("%w\nnothing was written; `%s view` shows what can still be read of a run", err, a.program))
	}
	return withCode(codeDisk, err)
}

func reportOf(cfg storage.Copying, done storage.Copied, program string) *copied {
	made := done.Manifest.Made
	r := &copied{
		Dir: cfg.Into, How: made.How, Choice: made.Choice, ID: made.ID, Rows: done.Manifest.Rows, Failed: done.Manifest.FailureRows, Parts: len(done.Manifest.Parts) + len(done.Manifest.Failures),
		Alike: done.Alike, Preferred: done.Preferred, Gathered: done.Gathered, Reward: done.Summary.Reward, Sources: made.Sources, program: program,
	}
	for _, s := range made.Sources {
		r.Unfinished += s.Unfinished
	}
	return r
}

func (r *copied) text(colour bool) string {
	p := &printer{colour: colour, width: 100}
	p.line("%s", p.paint(bold, fmt.Sprintf("Dataset in %s: %d rows%s in %d files", r.Dir, r.Rows, some(r.Failed, ", %d failures"), r.Parts)))
	if r.Choice != "" {
		p.labelled("choice", r.Choice)
	}
	for i, s := range r.Sources {
		if i == maxListed {
			p.line("             … %d more", len(r.Sources)-i)
			break
		}
		p.labelled("from", fmt.Sprintf("%s (run %s): %d rows%s%s", s.Dir, orDash(s.RunID), s.Rows, some(s.Failures, ", %d failures"), label(", rewards of the set ", s.Rewards)))
	}
	p.line("  reward     %s", meanText(r.Reward))
	if r.Alike+r.Preferred > 0 {
		p.labelled("twice", fmt.Sprintf("%d rows were there already, the same in every column; %d were left out for a different one", r.Alike, r.Preferred))
	}
	if r.Gathered > 0 {
		p.line("  groups     %d were apart and are together now", r.Gathered)
	}
	if r.Unfinished > 0 {
		p.labelled("left out", fmt.Sprintf("%d rows of groups that are not complete: `%s resume` ends them", r.Unfinished, r.program))
	}
	p.line("next:")
	p.line("  %s stats %s", r.program, quoted(r.Dir))
	return p.b.String()
}

// madeOf is what the manifest of a dataset says of how it came about; nil for a run, and where there is none.
func madeOf(dir string) *storage.Making {
	run, err := storage.OpenRun(dir)
	if err != nil {
		return nil
	}
	m, err := run.Manifest()
	if err != nil {
		return nil
	}
	return m.Made
}

// madeFile stands in the place of run.yaml for a dataset that was put together: the settings of its first source. judged says whether all
// sources were judged by the same graders.
func madeFile(dir string) (file *runFile, judged, ok bool, err error) {
	made := madeOf(dir)
	if made == nil {
		return nil, false, false, nil
	}
	var files []*runFile
	err = eachPlayed(dir, made, func(_ string, f *runFile) error { files = append(files, f); return nil })
	if err != nil || len(files) == 0 {
		return nil, false, false, err
	}
	judged = true
	for _, f := range files[1:] {
		judged = judged && sameGraders(files[0], f)
	}
	own := *files[0]
	own.RunID = made.ID
	return &own, judged, true, nil
}

// origins are the settings of the runs whose rows a dataset has, by run id.
type origins map[string]*origin

type origin struct {
	file *runFile
	rule *rewardRule // that all its rows follow here; nil = there is no such one, or it is not known
}

func originsOf(dir string) (origins, error) {
	o := origins{}
	made := madeOf(dir)
	if made == nil {
		return o, nil
	}
	return o, o.add(dir, made, nil)
}

// rejudged says that rows have rewards of a rescored set, and by which rule; nil = it is not known.
type rejudged struct{ rule *rewardRule }

// add enters the sources of a dataset; all are rescored where the dataset is.
func (o origins) add(dir string, made *storage.Making, all *rejudged) error {
	for i, s := range made.Sources {
		folder, by := storage.SourceFolder(dir, i), all
		if by == nil && s.Rewards != "" {
			by = &rejudged{readRule(s.Rule)}
		}
		if s.Made != nil {
			if err := o.add(folder, s.Made, by); err != nil {
				return err
			}
			continue
		}
		file, ok, err := readRunFile(folder)
		if err != nil {
			return err
		}
		if ok {
			if by == nil {
				by = &rejudged{ruleOf(file.Settings)}
			}
			o.enter(file, by.rule)
		}
	}
	return nil
}

func (o origins) enter(file *runFile, rule *rewardRule) {
	was := o[file.RunID]
	switch {
	case was == nil:
		o[file.RunID] = &origin{file, rule}
	case !was.rule.same(rule):
		was.rule = nil
	}
}

// eachPlayed tells of the runs whose rows a directory has, with the folder that holds what each knew of itself: the run itself, or where it was put
// together (made is not nil) each of its sources that was a run.
func eachPlayed(dir string, made *storage.Making, do func(folder string, file *runFile) error) error {
	if made == nil {
		file, ok, err := readRunFile(dir)
		if err != nil || !ok {
			return err
		}
		return do(dir, file)
	}
	for i, s := range made.Sources {
		if err := eachPlayed(storage.SourceFolder(dir, i), s.Made, do); err != nil {
			return err
		}
	}
	return nil
}

// sameGraders says whether two runs judge alike.
func sameGraders(a, b *runFile) bool {
	for _, k := range keys() {
		switch k.name {
		case "reward", "reward-total", "unscored", "score-timeout", "score-retries", "sandbox":
			if string(encode(plain(&a.Settings, k))) != string(encode(plain(&b.Settings, k))) {
				return false
			}
		}
	}
	return true
}

// madeText says of a dataset that was put together why nothing can be played there; "" for a run.
func madeText(dir string) string {
	made := madeOf(dir)
	if made == nil {
		return ""
	}
	sources := filepath.Dir(storage.SourceFolder(dir, 0))
	text := fmt.Sprintf("holds rows of other runs, put together by `%s`: no run is to be gone on with or explained here", made.How)
	if _, err := os.Stat(sources); err == nil {
		text += "; what each of them was is in " + sources
	}
	return text
}
