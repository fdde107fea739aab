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
	"tranche/sampler"
	"tranche/storage"
)

type statsCmd struct {
	Dirs    []string `arg:"" name:"run" help:"Run directories; several are counted as one."`
	By      string   `enum:"none,run,data_source,split,task,class,endpoint,model,variant" default:"none" help:"A table by: run, data_source, split, task, class (length class of the last turn), endpoint (of the last turn), model, variant. Default: ${default}."`
	Answers bool     `negatable:"" default:"true" help:"Find answers that come twice in a group, which takes reading the messages. Default: yes."`
	Limit   int      `short:"n" default:"20" placeholder:"N" help:"Most lines of a table; the JSON has them all. Default: ${default}."`
	JSON    bool     `name:"json" help:"Print one JSON document."`

	Rows rowConditions `embed:""`
}

// Help is kong's long text of the command.
func (statsCmd) Help() string {
	return "Distributions over the rows of runs: rewards with an interval (95 %, by Student's t over the tasks, because the samples of one task are alike), pass@k, tokens, turns, times, what the actions did, how episodes ended, groups that tell a trainer nothing, answers that come twice, and what each column takes on disk. Means and quantiles are of rows that ended well; a reward of null is no verdict and in no mean. Flags that choose rows leave the others out of all of it, failed rows are counted where no flag speaks against them, and what columns take is not told then. Only the columns that are needed are read."
}

func (c *statsCmd) do(ctx context.Context, a *app, given map[string]bool) error {
	f := &faults{}
	if c.Limit < 1 {
		f.add("--limit: expected 1 or more")
	}
	filter := c.Rows.filter()
	filter.Failures = true
	f.at("", filter.Validate())
	if err := f.err(); err != nil {
		return withCode(codeUsage, err)
	}
	return whileWaiting(ctx, a, func(ctx context.Context) error {
		s := newStatistics(c.By)
		if s.Choice = strings.TrimPrefix(c.Rows.text(given), ", "); s.Choice != "" {
			s.chosen = &filter
		}
		var broken error
		for _, dir := range c.Dirs {
			err := c.count(ctx, a, s, dir)
			if err != nil && !errors.Is(err, storage.ErrDamaged) {
				return err
			}
			broken = cmp.Or(broken, err)
		}
		s.Dirs, s.Answers = c.Dirs, c.Answers
		s.finish()
		if c.JSON {
			return errors.Join(a.printJSON(s), broken)
		}
		return errors.Join(a.print(s.text(a.colour, c.Limit)), broken)
	})
}

// count counts a run. Damage is told after all that can be read.
func (c *statsCmd) count(ctx context.Context, a *app, s *statistics, dir string) error {
	if _, err := (&viewCmd{Dir: dir}).open(a); err != nil {
		return err
	}
	var broken error
	if err := s.begin(dir); err != nil {
		broken = withCode(codeDisk, fmt.Errorf("%w: %w", storage.ErrDamaged, err))
	}
	steps := []func() error{func() error {
		return eachFact(ctx, a, dir, func(f *storage.Facts) {
			if s.takes(f.Head) {
				s.add(dir, f)
			}
		})
	}}
	if c.Answers {
		steps = append(steps, func() error { return s.addAnswers(ctx, a, dir) })
	}
	if s.chosen == nil {
		steps = append(steps, func() error { return s.addColumns(a, dir) })
	}
	for _, step := range steps {
		err := step()
		if err != nil && !errors.Is(err, storage.ErrDamaged) {
			return err
		}
		broken = cmp.Or(broken, err)
	}
	return broken
}

// statistics is what `tranche stats` tells.
type statistics struct {
	Dirs   []string `json:"runs"`
	Choice string   `json:"choice,omitempty"` // flags that choose rows; "" = all
	slice
	Cut        int64                       `json:"cut"` // of failed: by a quorum
	Tasks      int                         `json:"tasks"`
	Components map[string]*component       `json:"components"`
	Spreads    map[string]*spread          `json:"distributions"` // by name, of good rows
	Pass       []sampler.KChance           `json:"pass"`          // a sample passes with a reward of 1; of tasks that are not held out
	HeldOut    []sampler.KChance           `json:"pass_held_out,omitempty"`
	Groups     groupShares                 `json:"groups"`
	Status     map[string]int64            `json:"status"`
	Stops      map[string]int64            `json:"stops"`
	Faults     map[string]int64            `json:"faults"` // "stage/class" of failed rows
	Flags      map[string]int64            `json:"flags"`
	Actions    map[string]*actionStatistic `json:"actions"` // by name
	Versions   versionSpan                 `json:"versions"`
	Breaks     int64                       `json:"rows_with_prefix_break"`
	Columns    []storage.ColumnSize        `json:"columns"`
	Disk       int64                       `json:"column_bytes"`  // sum of those of the columns
	Encoded    int64                       `json:"encoded_bytes"` // the same before compression
	Answers    bool                        `json:"answers_compared"`
	By         string                      `json:"by,omitempty"`
	Table      []*slice                    `json:"table,omitempty"`

	tasks  map[uint64]struct{}
	chosen *storage.Filter   // nil = every row
	held   map[string]string // by run id: the split of the tasks that it holds out
	passes [2]sampler.Groups // of held-out tasks in the second
	open   map[uint64]*openGroup
	table  map[string]*slice
}

// component is one of a verdict.
type component struct {
	Reward *sampler.Estimate `json:"score"`
	Of     int64             `json:"rows"` // that have it
	scores sampler.Clusters
}

// spread is a distribution.
type spread struct {
	N         int64      `json:"n"`
	Mean      *float64   `json:"mean"`
	Quantiles *quantiles `json:"quantiles"`
	Error     float64    `json:"relative_error"` // of the quantiles; 0 = they are exact
	values    sampler.Spread
}

type quantiles struct {
	Min float64 `json:"min"`
	P10 float64 `json:"p10"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// groupShares are of groups of two or more samples; those of held-out tasks are not among them.
type groupShares struct {
	Groups       int64 `json:"groups"`
	Told         int64 `json:"with_verdicts"` // two or more
	ZeroVariance int64 `json:"zero_variance"` // of those: all the same
	Answered     int64 `json:"with_answers"`  // two or more
	Twins        int64 `json:"with_twins"`    // of those: an answer comes twice
	Answers      int64 `json:"answers"`       // in them
	Distinct     int64 `json:"distinct_answers"`
}

type actionStatistic struct {
	Calls    int64            `json:"calls"`
	Episodes int64            `json:"episodes"` // with one or more
	Status   map[string]int64 `json:"status"`
	Wall     *spread          `json:"wall_ms"`
}

// versionSpan is of the weight versions that servers named.
type versionSpan struct {
	Low     *int32 `json:"low"`
	High    *int32 `json:"high"`
	Mixed   int64  `json:"rows_of_several"`
	Unknown int64  `json:"rows_without"` // good ones
}

// openGroup is a group that is being counted.
type openGroup struct {
	rows, told int
	first      float64
	differ     bool
}

func newStatistics(by string) *statistics {
	s := &statistics{
		Components: map[string]*component{}, Spreads: map[string]*spread{}, Status: map[string]int64{}, Stops: map[string]int64{}, Faults: map[string]int64{}, Flags: map[string]int64{},
		Actions: map[string]*actionStatistic{}, tasks: map[uint64]struct{}{}, held: map[string]string{}, open: map[uint64]*openGroup{}, table: map[string]*slice{},
	}
	if by != "none" {
		s.By = by
	}
	return s
}

// begin learns from the settings and the draws of the runs in a directory which tasks are held out, and which groups have ended early: the other
// samples of those would have been like the ones they have.
func (s *statistics) begin(dir string) error {
	return eachPlayed(dir, madeOf(dir), func(folder string, file *runFile) error {
		plan, err := file.Settings.plan()
		if err != nil {
			return err
		}
		if plan.Held.On() {
			s.held[file.RunID] = plan.Held.Label()
		}
		return readDrawSums(folder).eachEnded(file.RunID, func(group string, samples int) {
			s.passes[0].End(groupIn(dir, group), samples, file.Settings.drawn())
		})
	})
}

func groupIn(dir, group string) string { return dir + "\x00" + group }

func (s *statistics) takes(head func() *storage.Row) bool {
	return s.chosen == nil || s.chosen.Match(head())
}

func (s *statistics) heldOut(run, split string) bool {
	label := s.held[run]
	return label != "" && split == label
}

func (s *statistics) add(dir string, f *storage.Facts) {
	s.slice.add(f)
	s.tasks[hashOf(f.TaskID)] = struct{}{}
	s.Status[or(f.Status, "unknown")]++
	s.Stops[or(f.StopReason, "unknown")]++
	for _, flag := range f.Flags {
		s.Flags[flag]++
	}
	if f.FaultClass != nil {
		s.Faults[or(f.FaultStage, "unknown")+"/"+*f.FaultClass]++
	}
	if or(f.Status, "") == string(episode.StatusCancelled) {
		s.Cut++
	}
	s.addComponents(f)
	s.addActions(f)
	if !f.Failed() {
		s.addSpreads(f)
		s.addVersions(f)
	}
	if s.heldOut(f.RunID, f.Split) {
		s.passes[1].Add(groupIn(dir, f.GroupID), f.TaskID, "rows", int(f.GroupSize), f.Reward)
	} else {
		s.passes[0].Add(groupIn(dir, f.GroupID), f.TaskID, "rows", int(f.GroupSize), f.Reward)
		s.addToGroup(dir, f)
	}
	s.addToTable(dir, f)
}

func (s *statistics) addComponents(f *storage.Facts) {
	for _, r := range f.Rewards {
		name := or(r.Name, "(none)")
		c := s.Components[name]
		if c == nil {
			c = &component{}
			s.Components[name] = c
		}
		c.Of++
		if r.Score != nil {
			c.scores.Add(f.TaskID, *r.Score, 1)
		}
	}
}

func (s *statistics) addActions(f *storage.Facts) {
	met := map[string]bool{}
	for _, act := range f.Actions {
		name := or(act.Name, "(none)")
		one := s.Actions[name]
		if one == nil {
			one = &actionStatistic{Status: map[string]int64{}, Wall: &spread{}}
			s.Actions[name] = one
		}
		one.Calls++
		one.Status[or(act.Status, "unknown")]++
		if !met[name] {
			one.Episodes++
		}
		met[name] = true
		if act.WallMS != nil {
			one.Wall.values.Add(float64(*act.WallMS))
		}
	}
}

// Names of distributions, in the order in which they are shown.
func spreadNames() []string {
	return []string{"reward", "tokens in", "tokens out", "turns", "actions", "wall s", "queue s", "model s", "action s", "score s"}
}

func (s *statistics) addSpreads(f *storage.Facts) {
	add := func(name string, v *float64) {
		if v == nil {
			return
		}
		one := s.Spreads[name]
		if one == nil {
			one = &spread{}
			s.Spreads[name] = one
		}
		one.values.Add(*v)
	}
	turns, actions := float64(f.NumTurns), float64(len(f.Actions))
	for i, v := range []*float64{f.Reward, asFloat(f.NumInputTokens), asFloat(f.NumOutputTokens), &turns, &actions,
		&f.Timing.Total, &f.Timing.Queue, &f.Timing.Model, &f.Timing.Action, &f.Timing.Score} {
		add(spreadNames()[i], v)
	}
	if f.PrefixBreak != nil {
		s.Breaks++
	}
}

func (s *statistics) addVersions(f *storage.Facts) {
	var low, high *int32
	for _, t := range f.Turns {
		for _, v := range []*int32{t.VersionStart, t.VersionEnd} {
			if v == nil {
				continue
			}
			if low == nil || *v < *low {
				low = v
			}
			if high == nil || *v > *high {
				high = v
			}
		}
	}
	if low == nil {
		s.Versions.Unknown++
		return
	}
	if *low != *high {
		s.Versions.Mixed++
	}
	if v := &s.Versions; v.Low == nil || *low < *v.Low {
		v.Low = low
	}
	if v := &s.Versions; v.High == nil || *high > *v.High {
		v.High = high
	}
}

// addToGroup counts a row in its group, and the group when it is whole.
func (s *statistics) addToGroup(dir string, f *storage.Facts) {
	if f.GroupSize < 2 {
		return
	}
	id := hashOf(dir, f.GroupID)
	g := s.open[id]
	if g == nil {
		g = &openGroup{}
		s.open[id] = g
	}
	g.rows++
	if f.Reward != nil {
		if g.told == 0 {
			g.first = *f.Reward
		}
		g.told++
		g.differ = g.differ || *f.Reward != g.first
	}
	if g.rows >= int(f.GroupSize) {
		delete(s.open, id)
		s.Groups.add(g)
	}
}

func (t *groupShares) add(g *openGroup) {
	t.Groups++
	if g.told >= 2 {
		t.Told++
		if !g.differ {
			t.ZeroVariance++
		}
	}
}

// openAnswers are the answers of a group that is being counted.
type openAnswers struct {
	rows, answers int
	distinct      map[uint64]struct{}
}

func (t *groupShares) addAnswers(g *openAnswers) {
	if g.answers < 2 {
		return
	}
	t.Answered++
	t.Answers += int64(g.answers)
	t.Distinct += int64(len(g.distinct))
	if len(g.distinct) < g.answers {
		t.Twins++
	}
}

// addAnswers counts the answers of a run's groups.
func (s *statistics) addAnswers(ctx context.Context, a *app, dir string) error {
	view := &viewCmd{Dir: dir}
	run, err := view.open(a)
	if err != nil {
		return err
	}
	open := map[uint64]*openAnswers{}
	take := func(head *storage.Row) bool {
		return !s.heldOut(head.RunID, head.Split) && s.takes(func() *storage.Row { return head })
	}
	err = eachOf(ctx, a, view, run.Answers(take), func(answer storage.Answer) {
		if answer.GroupSize < 2 {
			return
		}
		id := hashOf(answer.GroupID)
		g := open[id]
		if g == nil {
			g = &openAnswers{distinct: map[uint64]struct{}{}}
			open[id] = g
		}
		g.rows++
		if !answer.Failed && answer.Sum != 0 {
			g.answers++
			g.distinct[answer.Sum] = struct{}{}
		}
		if g.rows >= int(answer.GroupSize) {
			delete(open, id)
			s.Groups.addAnswers(g)
		}
	})
	for _, g := range open { // groups that are not whole
		s.Groups.addAnswers(g)
	}
	return err
}

func (s *statistics) addToTable(dir string, f *storage.Facts) {
	if s.By == "" {
		return
	}
	name := part(s.By, dir, f)
	one := s.table[name]
	if one == nil {
		one = &slice{Name: name, single: s.By == "task"}
		s.table[name] = one
	}
	one.add(f)
}

// part is the line of the table that a row counts in.
func part(by, dir string, f *storage.Facts) string {
	name := ""
	switch by {
	case "run":
		name = dir
	case "data_source":
		name = f.DataSource
	case "split":
		name = f.Split
	case "task":
		name = f.TaskID
	case "class":
		if n := len(f.Turns); n > 0 {
			name = strconv.Itoa(int(f.Turns[n-1].Class))
		}
	case "endpoint":
		if n := len(f.Turns); n > 0 {
			name = or(f.Turns[n-1].Endpoint, "")
		}
	case "model":
		name = or(f.Model, "")
	case "variant":
		name = or(f.Variant, "")
	}
	return cmp.Or(name, "(none)")
}

func (s *statistics) addColumns(a *app, dir string) error {
	view := &viewCmd{Dir: dir}
	run, err := view.open(a)
	if err != nil {
		return err
	}
	columns, err := run.Columns()
	switch {
	case errors.Is(err, storage.ErrDamaged):
		return view.damaged(a, err)
	case err != nil:
		return withCode(codeDisk, err)
	}
	for _, c := range columns {
		i := slices.IndexFunc(s.Columns, func(o storage.ColumnSize) bool { return o.Name == c.Name })
		if i < 0 {
			s.Columns = append(s.Columns, c)
			continue
		}
		o := &s.Columns[i]
		o.Bytes, o.Raw, o.Values = o.Bytes+c.Bytes, o.Raw+c.Raw, o.Values+c.Values
	}
	return nil
}

func (s *statistics) finish() {
	s.slice.finish()
	s.Tasks = len(s.tasks)
	for _, g := range s.open { // groups that are not whole
		s.Groups.add(g)
	}
	for _, c := range s.Components {
		c.Reward = c.scores.Estimate()
	}
	for _, d := range s.Spreads {
		d.finish()
	}
	for _, act := range s.Actions {
		act.Wall.finish()
	}
	for i, pass := range []*[]sampler.KChance{&s.Pass, &s.HeldOut} {
		if all, ok := s.passes[i].Stats(0)[sampler.Overall]; ok {
			*pass = all.Pass
		}
	}
	slices.SortFunc(s.Columns, func(a, b storage.ColumnSize) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	for _, c := range s.Columns {
		s.Disk, s.Encoded = s.Disk+c.Bytes, s.Encoded+c.Raw
	}
	for _, one := range s.table {
		s.Table = append(s.Table, one.finish())
	}
	slices.SortFunc(s.Table, func(a, b *slice) int { return cmp.Or(cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.Name, b.Name)) })
}

func (d *spread) finish() {
	d.N, d.Error = d.values.N(), d.values.Error()
	if d.N == 0 {
		return
	}
	mean := d.values.Mean()
	d.Mean = &mean
	q := d.values.Quantiles(0, 0.1, 0.5, 0.9, 0.99, 1)
	d.Quantiles = &quantiles{q[0], q[1], q[2], q[3], q[4], q[5]}
}

// shownActions are the actions by how often they were called.
func (s *statistics) shownActions() []string {
	return slices.SortedFunc(maps.Keys(s.Actions), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Actions[b].Calls, s.Actions[a].Calls), cmp.Compare(a, b))
	})
}
