package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"tranche/episode"
	"tranche/reward"
	"tranche/reward/audit"
	"tranche/sampler/taskfile"
	"tranche/storage"
)

type auditTasksCmd struct {
	Tasks   []string `arg:"" optional:"" name:"tasks" help:"Task files, as tranche run takes them. Default: those of the settings file."`
	Config  string   `short:"c" placeholder:"FILE" help:"YAML file of the run: its templates and its reward are tried."`
	Sample  int      `short:"n" default:"0" placeholder:"N" help:"Tasks to try, drawn at random; 0 = all. Default: ${default}."`
	Seed    uint64   `default:"1" placeholder:"N" help:"Which tasks are drawn. Default: ${default}."`
	Repeat  int      `default:"1" placeholder:"K" help:"Judge every answer so often: what is judged in two ways is flaky, and the agreement is told. Default: ${default}."`
	Gold    string   `placeholder:"COLUMN" help:"Column with a right answer. Default: the ground truth; for programs the first of gold, canonical_solution, solution, code, reference_solution, patch."`
	Above   float64  `default:"0" placeholder:"SCORE" help:"A task is weak where a wrong answer scores more than this. Default: ${default}."`
	Tricks  int      `name:"exploits" default:"8" placeholder:"N" help:"Programs that cheat to try on each task of a grader of programs, of a list that the tasks take turns through: from 40 on, also those that only end when their time is up. Default: ${default}."`
	Allow   []string `placeholder:"CLASS" help:"weak, impossible or flaky tasks that are no reason for exit code 10; comma separated."`
	History []string `sep:"none" placeholder:"DIR" help:"Run directory whose rewards tell how hard each task was; may be repeated."`
	Quiet   bool     `short:"q" help:"No notices and no progress line."`
	JSON    bool     `name:"json" help:"Print one JSON document: the sums, and every task that is not sound."`
}

// Help is kong's long text of the command.
func (auditTasksCmd) Help() string {
	return "Gives every task's grader answers whose worth is known, before anything is played: its own right answer, which must score 1; and nothing at all, constants, the prompt said again, half of the right answer, lists of every number or option, programs that cheat, which must score nothing. weak: a wrong answer scores. impossible: the right one does not score 1. flaky: the same answer is judged in two ways (--repeat). ungradable: there is no verdict. Graders that are only recorded, that judge groups, or that judge how an answer looks are left out. Ends with 10 where a task is weak, impossible or flaky and --allow does not name that. ctrl-c tells what was found so far."
}

func (c *auditTasksCmd) do(ctx context.Context, a *app) (told error) {
	if err := c.check(); err != nil {
		return withCode(codeUsage, err)
	}
	set := defaults()
	given := map[string]bool{"tasks": len(c.Tasks) > 0}
	if c.Config != "" {
		at, err := readSettings(c.Config, &set, given)
		if err != nil {
			return withCode(codeUsage, err)
		}
		defer func() { told = at.locate(told) }()
	}
	if len(c.Tasks) > 0 {
		set.Tasks = c.Tasks
	}
	set.Quiet = c.Quiet
	if err := set.check(); err != nil {
		return withCode(codeUsage, err)
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	s := newSession(a, set)
	defer s.closeTools()
	report, err := c.audit(ctx, s)
	switch {
	case report == nil:
		return err
	case errors.Is(context.Cause(ctx), errInterrupted):
		err = outcome(stopped())
	case err == nil && report.bad(c.Allow):
		err = outcome(codeAudit)
	}
	if c.JSON {
		return errors.Join(a.printJSON(report), err)
	}
	return errors.Join(a.print(report.text(a.colour)), err)
}

func (c *auditTasksCmd) check() error {
	f := &faults{}
	if c.Sample < 0 {
		f.add("--sample: expected 0 or more, found %d", c.Sample)
	}
	if c.Repeat < 1 {
		f.add("--repeat: expected 1 or more, found %d", c.Repeat)
	}
	if c.Tricks < 0 {
		f.add("--exploits: expected 0 or more, found %d", c.Tricks)
	}
	if !(c.Above >= 0 && c.Above < 1) {
		f.add("--above: expected 0 to 1, found %v", c.Above)
	}
	for _, class := range c.Allow {
		if !slices.Contains(blamed(), class) {
			f.add("--allow: %q, expected weak, impossible or flaky", class)
		}
	}
	return f.err()
}

// blamed are the classes that end an audit with a code of its own.
func blamed() []string { return []string{audit.Weak, audit.Impossible, audit.Flaky} }

// audit is nil where nothing could be tried.
func (c *auditTasksCmd) audit(ctx context.Context, s *session) (*taskAudit, error) {
	if err := s.checkTasks(ctx); err != nil {
		return nil, err
	}
	if err := s.openJudgesAlone(ctx); err != nil {
		return nil, err
	}
	report := &taskAudit{OfTasks: s.tasks.Tasks, Repeat: c.Repeat, Classes: map[string]int64{}, grades: map[string]*graderAudit{}}
	trials, err := c.trials(ctx, s, report)
	defer func() {
		for _, t := range trials {
			_ = t.Scorer.(*reward.Scorer).Close() // what was abandoned is no fault of the tasks
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := report.readHistory(ctx, s.a, c.History); err != nil {
		return nil, err
	}
	total := s.tasks.Tasks
	if c.Sample > 0 {
		total = min(total, int64(c.Sample))
	}
	err = withLine(ctx, s.a, func() string { return report.progress(total) }, func() error {
		return c.each(ctx, s, drawn(s.tasks.Tasks, c.Sample, c.Seed), func(t *episode.Task) error { return report.try(ctx, trials, t) }, report.meet)
	})
	report.settle()
	return report, err
}

// trials makes a scorer for each grader that is to be tried, alone and with a weight.
func (c *auditTasksCmd) trials(ctx context.Context, s *session, report *taskAudit) (list []audit.Trial, err error) {
	cfg := s.rewardConfig()
	tricks := audit.Tricks{Each: c.Tricks, Held: s.holdsExploits(ctx)}
	for _, spec := range cfg.Graders {
		kind := cmp.Or(spec.Kind, reward.KindAuto)
		name := cmp.Or(spec.Name, kind)
		alone := reward.Config{Graders: []reward.Spec{spec}, Timeout: cfg.Timeout, Retries: cfg.Retries}
		weight := 1.0
		only := spec.Weight != nil && *spec.Weight == 0 && spec.Threshold == nil
		switch {
		case only:
			report.Left = append(report.Left, name+" (only recorded)")
			continue
		case alone.JudgesGroups(s.graderKinds()...):
			report.Left = append(report.Left, name+" (judges groups)")
			continue
		case !audit.Tries(kind):
			report.Left = append(report.Left, name+" (judges how an answer looks)")
			continue
		}
		alone.Graders[0].Weight, alone.Graders[0].Threshold = &weight, nil
		scorer, err := reward.New(alone, s.graderKinds()...)
		if err != nil {
			return list, withCode(codeUsage, fmt.Errorf("reward: %w", err))
		}
		list = append(list, audit.Trial{Name: name, Kind: kind, Scorer: scorer, Gold: c.Gold, Above: c.Above, Repeat: c.Repeat, Tricks: tricks})
		report.grades[name] = &graderAudit{Name: name, Kind: kind, answers: map[string]*answerSum{}}
		report.Graders = append(report.Graders, report.grades[name])
	}
	if len(list) == 0 {
		return nil, withCode(codeUsage, fmt.Errorf("reward: no grader can be tried: %s", joined(report.Left)))
	}
	return list, nil
}

// drawn picks n of the tasks by their number among all, each as likely as any other; nil = all of them.
func drawn(total int64, n int, seed uint64) map[int64]bool {
	if n == 0 || int64(n) >= total {
		return nil
	}
	dice := rand.New(rand.NewPCG(seed, 2))
	picked := make(map[int64]bool, n)
	for i := total - int64(n); i < total; i++ { // Floyd's
		at := dice.Int64N(i + 1)
		if picked[at] {
			at = i
		}
		picked[at] = true
	}
	return picked
}

// tryAtOnce is how many tasks are tried at once for each worker of a scorer.
const tryAtOnce = 2

// each walks the task files; meet sees every task, in order, and try those that were drawn, several at once.
func (c *auditTasksCmd) each(ctx context.Context, s *session, picked map[int64]bool, try func(*episode.Task) error, meet func(*episode.Task)) error {
	cfg := s.taskConfig()
	cfg.Distinct = s.tasks.Distinct()
	tasks, err := taskfile.Open(ctx, cfg)
	if err != nil {
		return withCode(codeTasks, err)
	}
	defer tasks.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	room := make(chan struct{}, tryAtOnce*runtime.NumCPU())
	var all sync.WaitGroup
	for n := int64(0); ctx.Err() == nil; n++ {
		t, err := tasks.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			cancel(withCode(codeTasks, err))
			break
		}
		meet(t)
		if picked != nil && !picked[n] {
			continue
		}
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if err := try(t); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// taskAudit is what came of it.
type taskAudit struct {
	Tasks   int64            `json:"tasks"` // tried
	OfTasks int64            `json:"of_tasks"`
	Repeat  int              `json:"repeat"`
	Sound   int64            `json:"sound"`
	Classes map[string]int64 `json:"classes"`      // tasks; one may have several
	NoGold  int64            `json:"gold_unknown"` // nothing says what a right answer is
	Graders []*graderAudit   `json:"graders"`
	Left    []string         `json:"graders_left_out"`
	Twins   []audit.Twin     `json:"twins"`
	Bands   map[string]int64 `json:"bands,omitempty"`
	Found   []audit.Finding  `json:"findings"`
	Hard    []taskHistory    `json:"history,omitempty"` // of tasks that were always or never solved

	done atomic.Int64

	mu      sync.Mutex // guards all but done
	twins   audit.Twins
	grades  map[string]*graderAudit
	history map[string]*taskHistory
}

// graderAudit is what one grader said over all tasks.
type graderAudit struct {
	Name      string      `json:"name"`
	Kind      string      `json:"kind"`
	Answers   []answerSum `json:"answers"`
	Agreement *float64    `json:"agreement"` // share of answers that were always judged in the same way; null = each was judged once
	Kappa     *float64    `json:"kappa"`     // Fleiss'; null where it is not defined

	answers map[string]*answerSum
	agree   audit.Agreement
}

// answerSum is what one answer got over all tasks.
type answerSum struct {
	Answer string `json:"answer"`
	Tasks  int64  `json:"tasks"`
	None   int64  `json:"no_verdict"`
	Scores int64  `json:"scores"` // more than nothing
	Full   int64  `json:"full"`

	right bool
}

// taskHistory is how a task went in earlier runs.
type taskHistory struct {
	Task string  `json:"task"`
	N    int64   `json:"n"`
	Mean float64 `json:"mean"`
}

func (r *taskAudit) meet(t *episode.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if twin, ok := r.twins.Add(t); ok {
		r.Twins = append(r.Twins, twin)
	}
	if h := r.history[t.ID]; h != nil {
		band := bandOf(h.Mean / float64(h.N))
		r.Bands[band]++
		if band == bandNever || band == bandAlways {
			r.Hard = append(r.Hard, taskHistory{t.ID, h.N, h.Mean / float64(h.N)})
		}
	} else if r.history != nil {
		r.Bands[bandUnknown]++
	}
}

func (r *taskAudit) try(ctx context.Context, trials []audit.Trial, t *episode.Task) error {
	classes, noGold := map[string]bool{}, false
	for _, trial := range trials {
		f, err := trial.Task(ctx, t)
		if err != nil {
			return err
		}
		noGold = noGold || f.Gold == nil
		for _, class := range f.Classes {
			classes[class] = true
		}
		r.add(f, r.grades[trial.Name])
	}
	r.count(classes, noGold)
	return nil
}

// count counts a task once, whatever number of graders found the same.
func (r *taskAudit) count(classes map[string]bool, noGold bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for class := range classes {
		r.Classes[class]++
	}
	if noGold {
		r.NoGold++
	}
	r.done.Add(1)
}

func (r *taskAudit) add(f audit.Finding, g *graderAudit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range f.All {
		sum := g.answers[j.Probe]
		if sum == nil {
			sum = &answerSum{Answer: j.Probe, right: j.Right}
			g.answers[j.Probe] = sum
		}
		sum.add(j.Score)
		g.agree.Add(j.Verdicts)
	}
	if f.All = nil; len(f.Classes) > 0 {
		r.Found = append(r.Found, f)
	}
}

func (s *answerSum) add(score *float64) {
	s.Tasks++
	switch {
	case score == nil:
		s.None++
	case *score >= 1:
		s.Full++
		s.Scores++
	case *score > 0:
		s.Scores++
	}
}

// settle puts what came in any order into one order.
func (r *taskAudit) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Tasks = r.done.Load()
	slices.SortFunc(r.Found, func(a, b audit.Finding) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Grader, b.Grader))
	})
	unsound := map[int64]bool{}
	for _, f := range r.Found {
		unsound[f.Index] = true
	}
	r.Sound = max(r.Tasks-int64(len(unsound)), 0)
	for _, g := range r.Graders {
		g.settle()
	}
}

func (g *graderAudit) settle() {
	g.Answers = []answerSum{}
	for _, name := range slices.Sorted(mapKeys(g.answers)) {
		g.Answers = append(g.Answers, *g.answers[name])
	}
	slices.SortStableFunc(g.Answers, func(a, b answerSum) int { return cmp.Or(b2i(b.right)-b2i(a.right), cmp.Compare(b.Full, a.Full)) })
	if share, ok := g.agree.Share(); ok {
		g.Agreement = &share
	}
	if kappa, ok := g.agree.Kappa(); ok {
		g.Kappa = &kappa
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// bad tells whether there is a class that is no part of allowed.
func (r *taskAudit) bad(allowed []string) bool {
	return slices.ContainsFunc(blamed(), func(class string) bool { return r.Classes[class] > 0 && !slices.Contains(allowed, class) })
}

func (r *taskAudit) progress(total int64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("tried %d of %d tasks · %d weak, %d impossible, %d flaky, %d ungradable",
		r.done.Load(), total, r.Classes[audit.Weak], r.Classes[audit.Impossible], r.Classes[audit.Flaky], r.Classes[audit.Ungradable])
}

// Bands of difficulty, by the mean reward.
const (
	bandNever   = "never (0)"
	bandHard    = "hard (up to 0.2)"
	bandMiddle  = "middle"
	bandEasy    = "easy (0.8 and over)"
	bandAlways  = "always (1)"
	bandUnknown = "not played"
)

func bands() []string {
	return []string{bandNever, bandHard, bandMiddle, bandEasy, bandAlways, bandUnknown}
}

func bandOf(mean float64) string {
	switch {
	case mean <= 0:
		return bandNever
	case mean <= 0.2:
		return bandHard
	case mean < 0.8:
		return bandMiddle
	case mean < 1:
		return bandEasy
	}
	return bandAlways
}

// readHistory sums the rewards that tasks got in earlier runs.
func (r *taskAudit) readHistory(ctx context.Context, a *app, dirs []string) error {
	for _, dir := range dirs {
		if r.history == nil {
			r.history, r.Bands = map[string]*taskHistory{}, map[string]int64{}
		}
		err := eachFact(ctx, a, dir, func(f *storage.Facts) {
			if f.Reward == nil {
				return
			}
			h := r.history[f.TaskID]
			if h == nil {
				h = &taskHistory{}
				r.history[f.TaskID] = h
			}
			h.N++
			h.Mean += *f.Reward // the sum, until it is told
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// shownFindings is how many tasks of a class are told of; --json has all.
const shownFindings = 8

func (r *taskAudit) text(colour bool) string {
	p := &printer{colour: colour, width: 120}
	p.line("%s", p.paint(bold, fmt.Sprintf("%d of %d tasks tried", r.Tasks, r.OfTasks)))
	p.line("  sound       %d (%s)", r.Sound, share(int(r.Sound), int(r.Tasks)))
	for _, k := range []struct{ class, means string }{
		{audit.Weak, "a wrong answer scores"},
		{audit.Impossible, "the right answer does not score 1"},
		{audit.Flaky, "the same answer is judged in two ways"},
		{audit.Ungradable, "there is no verdict"},
	} {
		n := int(r.Classes[k.class])
		told := k.means
		if k.class == audit.Flaky && r.Repeat < 2 {
			told += "; not looked at: --repeat"
		}
		p.line("  %-11s %d (%s) %s", k.class, n, share(n, int(r.Tasks)), told)
	}
	if r.NoGold > 0 {
		p.line("  no gold     %d: nothing says what a right answer is, so whether it scores is not known (--gold)", r.NoGold)
	}
	conflicts := 0
	for _, t := range r.Twins {
		conflicts += b2i(t.Conflict)
	}
	p.line("  twins       %d of all tasks ask what an earlier one asks; %d of them with another ground truth", len(r.Twins), conflicts)
	if r.Bands != nil {
		p.line("  difficulty  by the mean reward in earlier runs, of all tasks:")
		for _, b := range bands() {
			p.line("              %-20s %d", b, r.Bands[b])
		}
	}
	if len(r.Left) > 0 {
		p.line("  not tried   %s", joined(r.Left))
	}
	for _, g := range r.Graders {
		g.text(p)
	}
	r.findingsText(p)
	return p.b.String()
}

func (g *graderAudit) text(p *printer) {
	p.line("")
	p.line("  %s: what each answer got", p.paint(bold, fmt.Sprintf("%s (%s)", g.Name, g.Kind)))
	p.line("    %-34s %7s %7s %7s %10s", "answer", "tasks", "1", "over 0", "no verdict")
	for _, s := range g.Answers {
		p.line("    %-34s %7d %7d %7d %10d", s.Answer, s.Tasks, s.Full, s.Scores, s.None)
	}
	if g.Agreement != nil {
		kappa := "not defined: every verdict is the same"
		if g.Kappa != nil {
			kappa = fmt.Sprintf("%.3f", *g.Kappa)
		}
		p.line("    agreement with itself: %.2f %% of %d answers; Fleiss' kappa %s", 100**g.Agreement, g.agree.Answers, kappa)
	}
}

func (r *taskAudit) findingsText(p *printer) {
	for _, class := range []string{audit.Weak, audit.Impossible, audit.Flaky, audit.Ungradable} {
		shown := 0
		for _, f := range r.Found {
			if !f.Is(class) {
				continue
			}
			if shown == 0 {
				p.line("")
			}
			if shown++; shown <= shownFindings {
				p.line("  %s: task %s, grader %s: %s", class, f.Task, f.Grader, told(f, class))
			}
		}
		if shown > shownFindings {
			p.line("  … %d more %s findings; --json has them all", shown-shownFindings, class)
		}
	}
}

// told is why a task is of a class.
func told(f audit.Finding, class string) string {
	switch class {
	case audit.Weak:
		w := f.Wrong[0]
		return fmt.Sprintf("%s scores %v (%s), truth %q%s", w.Probe, *w.Score, w.Evidence, f.Truth, some(int64(len(f.Wrong)-1), "; and %d others"))
	case audit.Flaky:
		o := f.Flaky[0]
		return fmt.Sprintf("%s: %s, and %s", o.Probe, scoreText(o), joined(o.Others))
	}
	return fmt.Sprintf("%s: %s, truth %q", cmp.Or(f.Gold.Text, f.Gold.Probe), scoreText(*f.Gold), f.Truth)
}

func scoreText(o audit.Outcome) string {
	if o.Score == nil {
		return "no verdict: " + o.Reason + label(": ", o.Evidence)
	}
	return fmt.Sprintf("%v%s", *o.Score, label(" ", o.Evidence))
}
