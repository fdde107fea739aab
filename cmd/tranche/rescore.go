package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"tranche/episode"
	"tranche/reward"
	"tranche/storage"
)

type rescoreCmd struct {
	Dir    string `arg:"" help:"Run directory. Nothing that is there is changed; while the result goes into it, it must not be written."`
	Config string `short:"c" placeholder:"FILE" help:"YAML file with the new reward, reward-total, unscored, score-timeout, score-retries, score-workers and sandbox; what it does not name is as it was in the run. Default: the run's own settings, for what has no verdict yet."`
	Out    string `short:"o" placeholder:"DIR" help:"Write a dataset of its own there. Default: a set of parts in DIR/rewards, which becomes the current one."`
	Name   string `placeholder:"NAME" help:"Name of the set. Default: a digest of the graders, so that the same command goes on where it was stopped."`
	Use    string `placeholder:"NAME" help:"Judge nothing; make this set the current one. played = the rewards that the run itself gave."`
	All    bool   `help:"Ask every grader, also where the same one with the same settings has judged."`
	Anyway bool   `help:"Go on where a grader that counts has no verdict on any of the first rows."`
	Groups int    `default:"0" placeholder:"N" help:"Groups judged at once; 0 = four times the cores, at least 16."`
	Quiet  bool   `short:"q" help:"No notices and no progress line."`
	JSON   bool   `name:"json" help:"Print the result as one JSON document."`
}

// Help is kong's long text of the command.
func (rescoreCmd) Help() string {
	return "Rewards of stored episodes are worked out anew from what is in their rows: no model is asked, but for a grader that is one. All other columns stay as they are, byte for byte, but for the flag zero_variance, which speaks of the rewards; the old rewards stay too; the manifest says which set is the current one. What the same grader with the same settings has scored is kept. Rows in failures/ have no rewards and get none. It can be stopped at any time; the same command goes on."
}

func (c *rescoreCmd) do(ctx context.Context, a *app) error {
	a.quiet = c.Quiet
	if c.Groups < 0 {
		return withCode(codeUsage, fmt.Errorf("--groups: expected 0 or more, found %d", c.Groups))
	}
	run, err := (&viewCmd{Dir: c.Dir}).open(a)
	if err != nil {
		return err
	}
	if c.Use != "" {
		return c.use(a)
	}
	file, err := c.file(a)
	if err != nil {
		return err
	}
	set, at, err := c.settings(a, file)
	if err != nil {
		return withCode(codeUsage, err)
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	s := newSession(a, set)
	s.a.quiet = c.Quiet
	defer s.closeTools()
	report, err := c.rescore(ctx, s, run, file)
	if errors.Is(context.Cause(ctx), errInterrupted) {
		a.notice("stopped; what was judged stays, and the same command goes on")
		return outcome(stopped())
	}
	if err != nil {
		return at.locate(c.coded(a, err))
	}
	if c.JSON {
		return a.printJSON(report)
	}
	return a.print(report.text(a.colour))
}

// file is run.yaml, or what stands in its place for a dataset that was put together.
func (c *rescoreCmd) file(a *app) (*runFile, error) {
	file, ok, err := readRunFile(c.Dir)
	if ok || err != nil {
		return file, err
	}
	file, judged, ok, err := madeFile(c.Dir)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, noRun(a, c.Dir)
	case !judged && c.Config == "":
		return nil, withCode(codeUsage, fmt.Errorf("%s: its rows are of runs that were judged by different graders; name those that shall judge all of them: -c FILE", c.Dir))
	case !judged:
		a.notice("the runs in %s were judged by different graders; what %s does not name is as in the first one", c.Dir, c.Config)
	}
	return file, nil
}

// use makes another set the current one.
func (c *rescoreCmd) use(a *app) error {
	if c.Config != "" || c.Out != "" || c.Name != "" || c.All {
		return withCode(codeUsage, errors.New("--use judges nothing: it goes with no other flag"))
	}
	if err := storage.UseRewards(c.Dir, c.Use); err != nil {
		return c.coded(a, err)
	}
	return a.print(fmt.Sprintf("the rewards of %s are now those of the set %s\n", c.Dir, c.Use))
}

func (c *rescoreCmd) coded(a *app, err error) error {
	switch {
	case errors.Is(err, storage.ErrNoSet), errors.Is(err, storage.ErrLocked), errors.Is(err, storage.ErrNotRun):
		return withCode(codeRefused, err)
	case errors.Is(err, storage.ErrMoved):
		return withCode(codeRefused, fmt.Errorf("%w; give the same command again: what was judged stays", err))
	case errors.Is(err, storage.ErrOtherSet):
		return withCode(codeRefused, fmt.Errorf("%w; take another --name, or another -o", err))
	case errors.Is(err, storage.ErrDamaged):
		return damaged(a, c.Dir, err)
	}
	return withCode(codeDisk, err)
}

// settings are the run's with those of the file over them. What would change more than rewards is refused where it would change what
// graders compare with, and told where it only has no effect. The places are those of the file.
func (c *rescoreCmd) settings(a *app, file *runFile) (Settings, places, error) {
	set := file.Settings
	if c.Config == "" {
		return set, nil, set.check()
	}
	at, err := readSettings(c.Config, &set, nil)
	if err != nil {
		return set, nil, err
	}
	if set.Answer != file.Settings.Answer {
		return set, nil, fmt.Errorf("%s: answer: the ground truths of a run are those that its rows hold, and tasks are not read again; leave it out, or run the tasks anew", c.Config)
	}
	was, is := identity(&file.Settings, file.TasksDigest, modelsOf(&file.Settings)), identity(&set, file.TasksDigest, modelsOf(&set))
	var idle []string
	for _, ch := range changes(was, is) {
		if !slices.Contains([]string{"reward", "reward-total", "unscored", "sandbox"}, ch.name) {
			idle = append(idle, ch.name)
		}
	}
	if len(idle) > 0 {
		a.notice("of no effect on episodes that were played: %s", joined(idle))
	}
	return set, at, at.locate(set.check())
}

// openGraders makes what judges, and tries what it needs.
func (s *session) openGraders(ctx context.Context) (*reward.Scorer, error) {
	if err := s.prepareRootfs(ctx); err != nil {
		return nil, withCode(codeUsage, err)
	}
	if err := s.checkGradingSandbox(ctx); err != nil {
		return nil, err
	}
	if err := s.checkPythonGraders(ctx); err != nil {
		return nil, err
	}
	if err := s.openJudgesAlone(ctx); err != nil {
		return nil, err
	}
	scorer, err := s.newScorer()
	return scorer, withCode(codeUsage, err)
}

func (c *rescoreCmd) rescore(ctx context.Context, s *session, run *storage.Run, file *runFile) (*rescoreReport, error) {
	scorer, err := s.openGraders(ctx)
	if err != nil {
		return nil, err
	}
	w := &rescorer{scorer: scorer, groups: s.rewardConfig().JudgesGroups(s.graderKinds()...), all: c.All, anyway: c.Anyway, silent: map[string]*silence{}}
	if w.total, err = run.RowsToRescore(); err != nil {
		return nil, errors.Join(err, scorer.Close())
	}
	cfg := storage.Rescoring{Dir: c.Dir, Into: c.Out, Run: file.RunID, Set: c.Name, Digest: scorer.Digest(), MarkEqual: file.Settings.Useful > 0, Width: c.Groups, Judge: w.judge, Rule: encode(ruleOf(s.set))}
	if cfg.Set == "" {
		cfg.Set = scorer.Digest()
	}
	if cfg.Width == 0 {
		cfg.Width = max(16, 4*scorer.Stats().Workers)
	}
	report := &rescoreReport{RunID: file.RunID, Dir: c.Dir, Name: cfg.Set, Into: c.Out, program: s.a.program, components: map[string]*rescoredComponent{}}
	cfg.Compared = report.compare
	err = withLine(ctx, s.a, w.progress, func() (err error) {
		report.Result, err = storage.Rescore(ctx, cfg)
		return err
	})
	report.Kept, report.Judged = w.kept.Load(), w.judged.Load()
	return report.done(), errors.Join(err, scorer.Close())
}

// rescorer judges groups of stored rows. Its method judge is called for many at once.
type rescorer struct {
	scorer       *reward.Scorer
	groups       bool // some graders judge groups
	all, anyway  bool
	total        int64 // rows
	rows         atomic.Int64
	judged, kept atomic.Int64 // components

	mu     sync.Mutex // guards silent
	silent map[string]*silence
}

// silence is what a component that counts said of the first rows.
type silence struct {
	rows   int
	spoke  bool
	reason string
}

// firstRows is how many rows without any verdict of a grader tell that what it needs is not there.
const firstRows = 20

func (w *rescorer) progress() string {
	return fmt.Sprintf("rescored %d of %d rows · %d components judged, %d kept", w.rows.Load(), w.total, w.judged.Load(), w.kept.Load())
}

func (w *rescorer) judge(ctx context.Context, rows []*storage.Row, whole bool) error {
	samples := make([]*episode.Episode, len(rows))
	settled := make([]int, len(rows)) // components that were kept
	for i, r := range rows {
		samples[i] = r.Episode()
		v, kept, err := w.scorer.ScoreAgain(ctx, samples[i], w.all)
		if err != nil {
			return err
		}
		samples[i].Verdict, settled[i] = v, len(kept)
		w.kept.Add(int64(len(kept)))
	}
	verdicts := make([]episode.Verdict, len(rows))
	for i, e := range samples {
		verdicts[i] = e.Verdict
	}
	if w.groups {
		var err error
		if verdicts, err = w.scorer.ScoreGroup(ctx, samples, whole); err != nil {
			return err
		}
	}
	for i, r := range rows {
		w.judged.Add(int64(mains(verdicts[i].Rewards) - settled[i]))
		if err := w.listen(verdicts[i].Rewards); err != nil {
			return err
		}
		if !sameVerdict(r.Verdict(), verdicts[i]) { // else even the rounding of its times stays
			r.SetVerdict(verdicts[i])
		}
	}
	w.rows.Add(int64(len(rows)))
	return nil
}

func sameVerdict(was, is episode.Verdict) bool {
	is.Failed = false // what is stored does not say
	return reflect.DeepEqual(was, is)
}

// mains counts the components that are no parts of another.
func mains(rs []episode.Reward) (n int) {
	last := ""
	for _, r := range rs {
		if last == "" || !strings.HasPrefix(r.Name, last+".") {
			n, last = n+1, r.Name
		}
	}
	return n
}

// listen refuses to go on where a grader that counts has no verdict on any of the first rows: what it needs is not in them.
func (w *rescorer) listen(rs []episode.Reward) error {
	if w.anyway {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range rs {
		if r.Weight == 0 {
			continue
		}
		s := w.silent[r.Name]
		if s == nil {
			s = &silence{}
			w.silent[r.Name] = s
		}
		s.rows++
		s.spoke = s.spoke || r.Score != nil
		if r.Score == nil {
			s.reason = strings.TrimPrefix(r.Outcome, episode.NoVerdict+": ") + label(": ", r.Evidence)
		}
		if !s.spoke && s.rows >= min(firstRows, int(w.total)) {
			return withCode(codeRefused, fmt.Errorf("grader %s has no verdict on any of the first %d rows (%s): what it needs is not in them; nothing was changed (--anyway goes on)", r.Name, s.rows, s.reason))
		}
	}
	return nil
}

// rescoreReport is what came of it. What it says of before and after is of all rows of the set; Judged and Kept are of this time.
type rescoreReport struct {
	RunID  string `json:"run_id"`
	Dir    string `json:"dir"`
	Into   string `json:"into,omitempty"`
	Name   string `json:"set"`
	Judged int64  `json:"components_judged"`
	Kept   int64  `json:"components_kept"`

	Result storage.Rescored `json:"-"`
	Folder string           `json:"folder"`
	Rows   int64            `json:"rows"`
	Failed int64            `json:"rows_failed"`
	Open   int64            `json:"rows_in_journal"`

	Before     storage.Mean         `json:"before"`
	After      storage.Mean         `json:"after"`
	Change     rescoredChange       `json:"change"`
	Components []*rescoredComponent `json:"components"`

	program    string
	components map[string]*rescoredComponent
}

// rescoredChange counts rows by what became of a number.
type rescoredChange struct {
	Changed int64 `json:"changed"`
	Higher  int64 `json:"higher"`
	Lower   int64 `json:"lower"`
	Gained  int64 `json:"gained"` // there was none
	Lost    int64 `json:"lost"`   // there is none any more
}

func (c *rescoredChange) add(before, after *float64) {
	switch {
	case before == nil && after == nil:
		return
	case before == nil:
		c.Gained++
	case after == nil:
		c.Lost++
	case *after > *before:
		c.Higher++
	case *after < *before:
		c.Lower++
	default:
		return
	}
	c.Changed++
}

// rescoredComponent is one grader's column before and after.
type rescoredComponent struct {
	Name    string           `json:"name"`
	Grader  string           `json:"grader"` // that judges now; "" = none does any more
	Before  storage.Mean     `json:"before"`
	After   storage.Mean     `json:"after"`
	Change  rescoredChange   `json:"change"`
	Reasons map[string]int64 `json:"reasons"` // of there being no verdict now
}

func (r *rescoreReport) compare(before, after *storage.Judged) {
	r.Before.Add(before.Reward)
	r.After.Add(after.Reward)
	r.Change.add(before.Reward, after.Reward)
	was, is := byName(before.Rewards), byName(after.Rewards)
	for name, c := range was {
		one := r.component(name)
		one.Before.Add(c.Score)
		if now, ok := is[name]; ok {
			one.Change.add(c.Score, now.Score)
		} else {
			one.Change.add(c.Score, nil)
		}
	}
	for name, c := range is {
		one := r.component(name)
		one.Grader = or(c.Grader, "")
		one.After.Add(c.Score)
		if _, ok := was[name]; !ok {
			one.Change.add(nil, c.Score)
		}
		if c.Score == nil {
			one.Reasons[strings.TrimPrefix(or(c.Outcome, ""), episode.NoVerdict+": ")]++
		}
	}
}

func byName(list []storage.Reward) map[string]storage.Reward {
	m := map[string]storage.Reward{}
	for _, r := range list {
		m[or(r.Name, "")] = r
	}
	return m
}

func (r *rescoreReport) component(name string) *rescoredComponent {
	c := r.components[name]
	if c == nil {
		c = &rescoredComponent{Name: name, Reasons: map[string]int64{}}
		r.components[name] = c
	}
	return c
}

func (r *rescoreReport) done() *rescoreReport {
	r.Folder, r.Rows, r.Failed, r.Open = r.Result.Set, r.Result.Rows, r.Result.Failed, r.Result.Journal
	r.Components = []*rescoredComponent{}
	for _, name := range slices.Sorted(mapKeys(r.components)) {
		r.Components = append(r.Components, r.components[name])
	}
	return r
}

func (r *rescoreReport) text(colour bool) string {
	p := &printer{colour: colour, width: 100}
	p.line("%s", p.paint(bold, fmt.Sprintf("Rewards of run %s in %s, judged anew: set %s in %s", r.RunID, r.Dir, r.Name, filepath.ToSlash(r.Folder))))
	p.line("  rows       %d%s%s", r.Rows, some(r.Result.Earlier, "; %d of them were there before"), some(r.Failed, "; %d failed ones are as they were"))
	if r.Open > 0 {
		p.line("  journal    %d rows are of groups that are not complete: they are not in the set; `%s resume %s`, then this again", r.Open, r.program, quoted(r.Dir))
	}
	p.line("  judged     %d components this time, %d kept: the same grader with the same settings had scored them", r.Judged, r.Kept)
	p.line("  before     %s", meanText(r.Before))
	p.line("  after      %s", meanText(r.After))
	p.line("  changed    %s", r.Change)
	for _, c := range r.Components {
		grader := c.Grader
		if grader == "" {
			grader = "not judged any more"
		}
		p.line("")
		p.line("  %s (%s)", c.Name, grader)
		p.line("    before   %s", meanText(c.Before))
		p.line("    after    %s%s", meanText(c.After), label("; no verdict: ", counts(c.Reasons)))
		p.line("    changed  %s", c.Change)
	}
	if r.Into == "" {
		p.line("")
		p.line("Readers of the manifest see these rewards now; parts/ is as it was. Back to the run's own: %s rescore %s --use %s", r.program, quoted(r.Dir), storage.PlayedRewards)
	}
	return p.b.String()
}

// String is the change for people.
func (c rescoredChange) String() string {
	return fmt.Sprintf("%d rows: %d higher, %d lower, %d had none, %d have none now", c.Changed, c.Higher, c.Lower, c.Gained, c.Lost)
}

// rewardNotes says whose verdicts a dataset has, where they are not those of the run.
func rewardNotes(dir string) []string {
	run, err := storage.OpenRun(dir)
	if err != nil {
		return nil // whoever reads the rows says so
	}
	switch m, err := run.Manifest(); {
	case err != nil:
		return nil
	case m.Made != nil && m.CurrentRewards == "":
		return []string{fmt.Sprintf("put together by `%s` from %s%s", m.Made.How, shortList(sourceDirs(m.Made), 5), label(": ", m.Made.Choice))}
	case m.Rescored != nil:
		return []string{fmt.Sprintf("rewards are those of rescoring %s (set %s)", m.Rescored.Dir, m.Rescored.Set.Name)}
	case m.CurrentRewards != "":
		return []string{fmt.Sprintf("rewards are those of the set %s; the run's own are in parts/ (tranche rescore %s --use %s)", m.CurrentRewards, quoted(dir), storage.PlayedRewards)}
	}
	return nil
}

func sourceDirs(made *storage.Making) []string {
	var dirs []string
	for _, s := range made.Sources {
		dirs = append(dirs, s.Dir)
	}
	return dirs
}
