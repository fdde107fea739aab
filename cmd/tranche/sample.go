package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tranche/episode"
	"tranche/storage"
)

type sampleCmd struct {
	Dir    string   `arg:"" name:"run" help:"Run directory, or a dataset that merge, sample or rescore made."`
	Out    string   `short:"o" xor:"what" placeholder:"DIR" help:"New directory for the dataset."`
	IDs    bool     `name:"ids" xor:"what" help:"Print the ids of the chosen episodes, one a line, and write nothing."`
	Rows   int      `short:"n" name:"rows" xor:"size" placeholder:"N" help:"How many rows, or groups with --groups."`
	By     string   `enum:"none,data_source,split,task,class,endpoint,model,variant" default:"none" help:"With --per: draw from each data_source, split, task, class, endpoint, model or variant by itself. Default: ${default}."`
	Per    int      `xor:"size" placeholder:"N" help:"How many rows (groups) of each."`
	Seed   int64    `default:"0" placeholder:"N" help:"Another seed is another draw. Default: ${default}."`
	Groups bool     `help:"Draw whole groups: with all rows that ended well, also where not every one is what the other flags choose."`
	Filter rowFlags `embed:""`
	Quiet  bool     `short:"q" help:"No notices and no progress line."`
	JSON   bool     `name:"json" help:"Print the result as one JSON document."`
}

// Help is kong's long text of the command.
func (sampleCmd) Help() string {
	return "Every row has the same chance. What is drawn follows from the ids of the episodes and the seed alone: the same command draws the same rows, whatever their order, and of a run that has grown mostly the same. The new dataset has the schema and the files of a run and is made as merge makes one. A group of which only some rows are drawn keeps its group_size. Rows of groups that are not complete yet are not drawn."
}

func (c *sampleCmd) do(ctx context.Context, a *app, given map[string]bool) error {
	a.quiet = c.Quiet
	if err := c.check(given); err != nil {
		return withCode(codeUsage, err)
	}
	var ids map[string]struct{}
	err := whileWaiting(ctx, a, func(ctx context.Context) (err error) { ids, err = c.draw(ctx, a); return err })
	if err != nil {
		return err
	}
	if c.IDs {
		return c.print(a, ids)
	}
	keep := func(id string) bool { _, ok := ids[id]; return ok }
	return copyRows(ctx, a, storage.Copying{From: []string{c.Dir}, Into: c.Out, How: "sample", Choice: c.choice(given), Keep: keep}, "drawn", c.JSON)
}

func (c *sampleCmd) check(given map[string]bool) error {
	var errs []error
	if c.Out == "" && !c.IDs {
		errs = append(errs, errors.New("expected -o DIR or --ids"))
	}
	if !given["rows"] && !given["per"] {
		errs = append(errs, errors.New("expected how many: -n N, or --by NAME --per N"))
	}
	if given["rows"] && c.Rows < 1 || given["per"] && c.Per < 1 {
		errs = append(errs, errors.New("-n and --per: expected 1 or more"))
	}
	if given["per"] != (c.By != "none") {
		errs = append(errs, errors.New("--by and --per go together"))
	}
	if c.Groups && slices.Contains([]string{"class", "endpoint", "model", "variant"}, c.By) {
		errs = append(errs, fmt.Errorf("--groups with --by %s: the rows of a group may differ in it; expected data_source, split or task", c.By))
	}
	if c.Out != "" {
		errs = append(errs, newPlace(c.Out))
	}
	return errors.Join(append(errs, c.Filter.filter().Validate())...)
}

func (c *sampleCmd) print(a *app, ids map[string]struct{}) error {
	list := slices.Sorted(maps.Keys(ids))
	if c.JSON {
		return a.printJSON(map[string]any{"episodes": list})
	}
	var b strings.Builder
	for _, id := range list {
		b.WriteString(visibleLine(id) + "\n")
	}
	return a.print(b.String())
}

// choice is what was asked for, for the manifest.
func (c *sampleCmd) choice(given map[string]bool) string {
	what := "rows"
	if c.Groups {
		what = "whole groups"
	}
	text := fmt.Sprintf("%d %s", c.Rows, what)
	if c.By != "none" {
		text = fmt.Sprintf("%d %s of each %s", c.Per, what, c.By)
	}
	return fmt.Sprintf("%s, seed %d%s", text, c.Seed, c.Filter.text(given))
}

// draw chooses the ids. What is drawn is units: rows, or groups.
func (c *sampleCmd) draw(ctx context.Context, a *app) (map[string]struct{}, error) {
	filter := c.Filter.filter()
	strata := map[string]*lot{}
	err := c.each(ctx, a, func(f *storage.Facts) {
		if !filter.Match(f.Head()) {
			return
		}
		name := ""
		if c.By != "none" {
			name = part(c.By, c.Dir, f)
		}
		if strata[name] == nil {
			strata[name] = &lot{most: cmp.Or(c.Rows, c.Per)}
		}
		unit := c.unit(f)
		strata[name].add(ticket{c.rank(unit), unit})
	})
	if err != nil {
		return nil, err
	}
	units := map[string]struct{}{}
	for _, name := range slices.Sorted(mapKeys(strata)) {
		drawn := strata[name].drawn()
		if n := cmp.Or(c.Rows, c.Per); len(drawn) > 0 && len(drawn) < n {
			a.notice("there are only %d%s, fewer than %d: all of them are taken", len(drawn), label(" of ", name), n)
		}
		for _, t := range drawn {
			units[t.unit] = struct{}{}
		}
	}
	if len(units) == 0 {
		a.notice("no row is one that the flags choose: nothing is drawn")
	}
	if !c.Groups {
		return units, nil
	}
	ids := map[string]struct{}{}
	err = c.each(ctx, a, func(f *storage.Facts) {
		if _, ok := units[c.unit(f)]; ok && (!f.Failed() || c.Filter.Failures) {
			ids[f.EpisodeID] = struct{}{}
		}
	})
	return ids, err
}

// rank is the place of a unit in the draw: as good as by chance, and the same every time.
func (c *sampleCmd) rank(unit string) string {
	return episode.ID("sample", strconv.FormatInt(c.Seed, 10), unit)
}

func (c *sampleCmd) unit(f *storage.Facts) string {
	if c.Groups {
		return cmp.Or(f.GroupID, f.EpisodeID)
	}
	return f.EpisodeID
}

func (c *sampleCmd) each(ctx context.Context, a *app, do func(*storage.Facts)) error {
	run, err := (&viewCmd{Dir: c.Dir}).open(a)
	if err != nil {
		return err
	}
	for f, err := range run.Published(ctx) {
		if err != nil {
			return copyFault(a, err)
		}
		do(f)
	}
	return nil
}

// ticket is a unit with its place in the draw.
type ticket struct {
	rank string
	unit string
}

func (t ticket) compare(o ticket) int {
	return cmp.Or(cmp.Compare(t.rank, o.rank), cmp.Compare(t.unit, o.unit))
}

// lot keeps the first few units by rank. It holds about twice as many.
type lot struct {
	most    int
	tickets []ticket
}

func (l *lot) add(t ticket) {
	l.tickets = append(l.tickets, t)
	if len(l.tickets) > 2*l.most+1000 {
		l.tickets = l.drawn()
	}
}

// drawn are the first ones; a unit that was added several times is one.
func (l *lot) drawn() []ticket {
	slices.SortFunc(l.tickets, ticket.compare)
	l.tickets = slices.Compact(l.tickets)
	return l.tickets[:min(l.most, len(l.tickets))]
}
