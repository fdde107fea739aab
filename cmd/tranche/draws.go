package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"tranche/episode"
	"tranche/sampler"
	"tranche/sampler/taskfile"
	"tranche/storage"
)

// draws is what chooses the tasks of a session, and what is known of the groups. Where neither domains nor results have a say, that is a
// sampler.Source alone.
type draws struct {
	plan    *sampler.Plan // nil = a Source does
	late    lateRecord
	text    []byte        // what the record held at the start
	whole   int64         // episodes of the whole run where only its record tells; 0 = not known yet
	done    bool          // everything was drawn and played
	loaded  bool          // stats hold what earlier sessions stored
	command commandSource // around the others where a command gives the tasks
	stats   groupTally
}

// planDraws reads the tasks where they are to be held.
func (s *session) planDraws(ctx context.Context) error {
	cfg := s.samplerConfig()
	s.draws.stats.init(&s.set, s.a)
	if !cfg.Planned() {
		return nil
	}
	priors, err := s.priors()
	if err != nil {
		return withCode(codeUsage, err)
	}
	s.draws.plan, err = sampler.NewPlan(ctx, cfg, sampler.PlanParts{Open: s.openTasks, Record: &s.draws.late, Priors: priors, Ended: s.endGroup})
	if err != nil {
		return withCode(codeTasks, err)
	}
	_, held, _ := s.draws.plan.Size()
	s.draws.stats.heldOut = held
	return nil
}

// endGroup is told of a group that ended with fewer samples than it might have had.
func (s *session) endGroup(task string, round, samples int) {
	id := episode.GroupID(s.file.RunID, task, round)
	s.writer.EndGroup(id, samples)
	s.draws.stats.end(id, samples)
}

// openTasks is one pass over the tasks.
func (s *session) openTasks(ctx context.Context) (sampler.Tasks, error) {
	cfg := s.taskConfig()
	if s.set.TasksCommand != "" {
		cmd, tasks, err := openTasksCommand(ctx, cfg, s.set.TasksCommand, s.dir, s.draws.plan != nil, s.a.stderr)
		if err != nil {
			return nil, err
		}
		s.draws.command.started(cmd)
		return tasks, nil
	}
	cfg.Distinct = s.tasks.Distinct()
	return taskfile.Open(ctx, cfg)
}

// taskStates is task-states.json.
type taskStates struct {
	Tasks map[string]sampler.TaskState `json:"tasks"` // by content hash
}

// priors is what was known of the tasks when the run began: from its own directory where it began before.
func (s *session) priors() (map[string]sampler.Belief, error) {
	var own taskStates
	ok, err := storage.ReadTaskStates(cmp.Or(s.dir, s.set.Out), &own)
	if err != nil {
		return nil, err
	}
	priors := map[string]sampler.Belief{}
	if ok {
		for hash, t := range own.Tasks {
			priors[hash] = t.Prior
		}
		return priors, nil
	}
	for _, dir := range s.set.History {
		if err := addHistory(priors, dir); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
	}
	return priors, nil
}

// addHistory adds the rewards that a run stored.
func addHistory(priors map[string]sampler.Belief, dir string) error {
	run, err := storage.OpenRun(dir)
	if err != nil {
		return err
	}
	for o, err := range run.Outcomes() {
		if err != nil {
			return err
		}
		if o.Reward != nil {
			priors[o.TaskHash] = priors[o.TaskHash].After([]*float64{o.Reward}, 1)
		}
	}
	return nil
}

// open opens the record of a run whose directory is locked now.
func (d *draws) open(s *session) (err error) {
	if d.plan == nil || !d.plan.Decides() {
		return nil
	}
	var sum sampler.Recorded
	if d.late.drawRecord, d.text, sum, err = openDrawRecord(s.dir); err != nil {
		return withCode(codeDisk, err)
	}
	d.measure(sum)
	for _, g := range sum.Short { // also where nothing is played any more
		s.endGroup(g.Task, g.Round, g.Samples)
	}
	var own taskStates
	if there, err := storage.ReadTaskStates(s.dir, &own); err != nil || !there {
		d.keepStates(s)
	}
	return nil
}

// measure finds out whether the record knows how many episodes the run has.
func (d *draws) measure(sum sampler.Recorded) {
	if sum.Ended {
		d.whole = sum.Episodes + int64(sum.Evals)*d.stats.perEvaluation()
	}
}

// order is what a run draws from.
type order interface {
	episode.Source
	io.Closer
}

// source makes what the run draws from, as far as it was drawn before.
func (d *draws) source(ctx context.Context, s *session) (from order, knobs *sampler.Knobs, err error) {
	if d.plan == nil {
		src, err := sampler.New(s.samplerConfig().Config, s.openTasks)
		if err != nil {
			return nil, nil, withCode(codeUsage, err)
		}
		src.Begin(s.file.Created)
		from, knobs = src, &src.Knobs
	} else {
		from, knobs = closer{d.plan, d}, &d.plan.Knobs
		if err := d.plan.Begin(s.file.Created); err != nil {
			return nil, nil, withCode(codeTasks, err)
		}
		if err := d.plan.Restore(ctx, d.text); err != nil {
			return nil, nil, withCode(codeRefused, fmt.Errorf("go on from %s: %w", storage.DrawsName, err))
		}
	}
	if err := d.load(s); err != nil {
		return nil, nil, err
	}
	if s.set.TasksCommand != "" {
		d.command.order = from
		from = &d.command
	}
	return from, knobs, nil
}

// closer is a Plan with its record.
type closer struct {
	*sampler.Plan
	d *draws
}

// Close ends both.
func (c closer) Close() error {
	err := c.Plan.Close()
	if c.d.late.drawRecord != nil {
		err = errors.Join(err, c.d.late.close())
	}
	return err
}

// load goes through what earlier sessions stored, for the statistics and for the groups that are still open.
func (d *draws) load(s *session) error {
	if d.loaded || !s.resumed || !d.stats.on() && (d.plan == nil || !d.plan.Decides()) {
		return nil
	}
	d.loaded = true
	run, err := storage.OpenRun(s.dir)
	if err != nil {
		return withCode(codeDisk, err)
	}
	for o, err := range run.Outcomes() {
		var damage *storage.JournalDamage
		if errors.As(err, &damage) && !damage.Parts {
			break // the writer has told of it, and the rows that are lost are played again
		}
		if err != nil {
			return withCode(codeDisk, err)
		}
		if !s.writer.Done(o.EpisodeID) { // to be played again
			continue
		}
		d.stats.add(o, int(o.GroupSize))
		if d.plan != nil {
			d.plan.Learn(episode.Outcome{TaskID: o.TaskID, Round: int(o.Round), Sample: int(o.SampleIndex), Reward: o.Reward})
		}
	}
	return nil
}

// keepStates writes down what is known of the tasks.
func (d *draws) keepStates(s *session) {
	if d.plan == nil || !d.plan.Decides() {
		return
	}
	if states := d.plan.States(); states != nil {
		if err := s.writer.WriteTaskStates(taskStates{states}); err != nil {
			s.a.notice("warning: %v", err)
		}
	}
}

// total is the number of episodes of the whole run; 0 = not known.
func (s *session) total() int64 {
	plan := s.draws.plan
	switch {
	case plan == nil && s.set.TasksCommand != "", plan != nil && s.set.openEnded():
		return s.draws.whole
	case plan == nil:
		return s.tasks.Tasks * int64(s.set.drawn()) * int64(s.set.Rounds)
	}
	groups, _, evals := plan.Size()
	return groups*int64(s.set.drawn()) + evals*s.draws.stats.perEvaluation()
}

// most is the number of episodes that the run has at most; 0 = there is no such number.
func (s *session) most() int64 {
	if n := s.total(); n > 0 {
		return n
	}
	plan, groups, evals := s.draws.plan, int64(0), int64(0)
	if plan != nil {
		groups, _, evals = plan.Size()
	}
	if groups == 0 {
		groups = s.tasks.Tasks * int64(s.set.Rounds)
	}
	return groups*int64(s.set.drawn()) + evals*s.draws.stats.perEvaluation()
}

// openEnded says that results, or a command, decide how many episodes there are.
func (s *Settings) openEnded() bool {
	return s.Useful > 0 || s.Grow != "" || s.TasksCommand != ""
}

// known says whether the number of episodes is.
func (d *draws) known(s *session) bool { return !s.set.openEnded() || d.whole > 0 || d.done }

// size is the run's size in words.
func (s *session) size() string {
	what := fmt.Sprintf("%d tasks", s.tasks.Tasks)
	if s.set.TasksCommand != "" {
		what = "tasks of a command"
	}
	if n := s.total(); n > 0 {
		return fmt.Sprintf("%s, %d episodes", what, n)
	}
	return what + ", as many episodes as it takes"
}

// report adds what the sampler knows.
func (d *draws) report(s *session, r *report) {
	sums := readDrawSums(s.dir)
	if d.late.drawRecord != nil {
		d.measure(sums.Recorded)
	}
	err := errors.Join(sums.err, d.load(s))
	if err == nil {
		r.recorded(s.dir, sums)
	}
	stats := &d.stats
	if s.groups != nil && err == nil { // verdicts came after the rows
		var stored *groupTally
		if stored, err = storedTally(s.dir, sums); err == nil {
			stats = stored
		}
	}
	if err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	stats.report(r)
}

// storedTally counts what is stored.
func storedTally(dir string, sums drawSums) (*groupTally, error) {
	t := groupTallyOf(dir, sums)
	if !t.on() {
		return t, nil
	}
	run, err := storage.OpenRun(dir)
	if err != nil {
		return nil, err
	}
	for o, err := range run.Outcomes() {
		if err != nil {
			return nil, err
		}
		t.add(o, int(o.GroupSize))
	}
	return t, nil
}

// groupTally counts what came of the groups and evaluations of a run, over all its sessions. A run of single samples counts none.
type groupTally struct {
	samples int    // of a group
	label   string // split of the held-out tasks; "" = there are none
	each    int    // samples of each at an evaluation
	heldOut int64  // tasks held out; 0 = not known
	seed    uint64
	tell    func(format string, args ...any) // nil = nothing is told of evaluations

	mu     sync.Mutex // guards everything below
	groups sampler.Groups
	evals  sampler.Evaluations
}

func (t *groupTally) init(set *Settings, a *app) {
	c, _ := set.plan() // the settings were checked
	t.samples, t.seed, t.each = set.drawn(), uint64(set.Seed), max(c.Held.Samples, 1)
	t.groups.Again = set.Rounds > 1 || c.Holds()
	if c.Held.On() {
		t.label = c.Held.Label()
	}
	if a != nil {
		t.tell = a.notice
	}
}

// groupTallyOf is the tally of a run that is only looked at.
func groupTallyOf(dir string, sums drawSums) *groupTally {
	t := &groupTally{}
	file, ok, err := readRunFile(dir)
	if !ok || err != nil {
		return t
	}
	t.init(&file.Settings, nil)
	_ = sums.eachEnded(file.RunID, t.end) // a fault in it is in the report
	return t
}

// eachEnded tells of the groups of a run that ended with fewer samples than they might have had.
func (s drawSums) eachEnded(runID string, do func(group string, samples int)) error {
	if s.err != nil {
		return s.err
	}
	for _, g := range s.Short {
		do(episode.GroupID(runID, g.Task, g.Round), g.Samples)
	}
	return nil
}

// end is told of a group that ended with fewer samples than it might have had.
func (t *groupTally) end(group string, samples int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.groups.End(group, samples, t.samples)
}

func (t *groupTally) on() bool { return t.samples > 1 || t.label != "" }

// perEvaluation is the episodes of one evaluation.
func (t *groupTally) perEvaluation() int64 { return t.heldOut * int64(t.each) }

// add takes one stored row of a group of size. It returns the evaluation that is whole with it, if any.
func (t *groupTally) add(o storage.Outcome, size int) (whole sampler.Pair, ok bool) {
	if !t.on() {
		return whole, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.label == "" || o.Split != t.label {
		if t.samples > 1 {
			t.groups.Add(o.GroupID, o.TaskID, sampler.DomainName(o.DataSource), size, o.Reward)
		}
		return whole, false
	}
	round := int(o.Round)
	if int64(t.evals.Add(round, o.TaskID, o.Reward)) != t.perEvaluation() {
		return whole, false
	}
	return t.evals.Against(round)
}

// addEpisode takes one that is durable now, and tells of an evaluation that is whole with it.
func (t *groupTally) addEpisode(e *episode.Episode) {
	o := storage.Outcome{GroupID: e.GroupID, TaskID: e.Task.ID, Round: int32(e.Round), DataSource: e.Task.DataSource, Split: e.Task.Split, Reward: e.Verdict.Total}
	if whole, ok := t.add(o, e.GroupSize); ok && t.tell != nil {
		t.tell("%s", evaluationText(whole.Evaluation(t.seed)))
	}
}

func (t *groupTally) report(r *report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Groups, r.Evaluations = t.groups.Stats(t.seed), t.evals.List(t.seed)
	if len(r.Groups) == 2 { // one domain, which is all
		for name := range r.Groups {
			if name != sampler.Overall {
				delete(r.Groups, name)
			}
		}
	}
}
