package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tranche/action"
	"tranche/bucketing"
	"tranche/episode"
	"tranche/reward"
	"tranche/sampler"
	"tranche/sampler/taskfile"
	"tranche/scheduler"
	"tranche/storage"
)

// session is one invocation of run or resume: the parts, built from the settings in the order of the methods below.
type session struct {
	a           *app
	set         Settings
	dir         string
	resumed     bool // the directory held a run before
	retryFailed bool

	tasks  taskfile.Report
	draws  draws
	fleet  *fleet
	kit    toolkit
	judges judges         // who judges for graders that ask a model
	actor  *action.Set    // nil until episodes are played
	scorer *reward.Scorer // likewise
	groups *reward.Scorer // judges groups when they are published; nil = no grader does. It lives as long as the writer
	// Samples of groups that were judged in this session, and those of them on which graders failed.
	groupsGraded, groupsFailed atomic.Int64
	file                       runFile
	writer                     *storage.Writer
	closed                     bool // the writer is
	feed                       runFeed
	publishing                 publishing
	before                     int64 // episodes settled by earlier invocations
	began                      time.Time

	tally   tally
	hedges  hedges
	cutting cutting
	goneOn  goneOn
	open    atomic.Int64
	account *account // of all sessions, once this one has played
	totals  scheduler.Totals
	stopped stopState
	back    chan string // endpoints that answer again, to be looked at; never closed
}

func newSession(a *app, set Settings) *session {
	a.quiet = set.Quiet
	return &session{a: a, set: set, kit: toolkit{boxes: newGraderBoxes()}, stopped: stopState{stop: make(chan struct{})}, back: make(chan string, 16)}
}

// stopState is what a signal does to a run.
type stopState struct {
	mu      sync.Mutex // guards signal and playing
	signal  os.Signal  // the first one
	playing bool       // episodes are running: drain them; else just end
	stop    chan struct{}
}

// errInterrupted ends what runs before the first episode.
var errInterrupted = errors.New("stopped before the first episode")

// watchSignals turns the first signal into a drain and the second into an exit at once. The returned function ends and
// awaits the watcher.
func (s *session) watchSignals(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	var w sync.WaitGroup
	w.Go(func() {
		for n := 0; ; n++ {
			select {
			case sig := <-s.a.signals:
				if n > 0 {
					s.a.exit(int(codeOfSignal(sig)))
					return
				}
				s.interrupt(sig, cancel)
			case <-over:
				return
			}
		}
	})
	return ctx, func() { close(over); w.Wait(); cancel(nil) }
}

func (s *session) interrupt(sig os.Signal, cancel context.CancelCauseFunc) {
	s.stopped.mu.Lock()
	defer s.stopped.mu.Unlock()
	s.stopped.signal = sig
	close(s.stopped.stop)
	if !s.stopped.playing {
		cancel(withCode(codeOfSignal(sig), errInterrupted))
		return
	}
	fmt.Fprintf(s.a.stderr, "\nstopping: no new episodes, waiting up to %s for those whose first call was sent; ctrl-c again stops at once\n", s.set.DrainTimeout)
}

// begin says that episodes run from now on; false when a signal came first.
func (s *session) begin() bool {
	s.stopped.mu.Lock()
	defer s.stopped.mu.Unlock()
	s.stopped.playing = true
	return s.stopped.signal == nil
}

func (s *session) signal() os.Signal {
	s.stopped.mu.Lock()
	defer s.stopped.mu.Unlock()
	return s.stopped.signal
}

func codeOfSignal(sig os.Signal) code {
	if sig == syscall.SIGTERM {
		return codeTerm
	}
	return codeInt
}

// taskConfig is how the task files are read, at the check and at the run alike.
func (s *session) taskConfig() taskfile.Config {
	return taskfile.Config{
		Paths: s.set.Tasks, Format: taskfile.Format(s.set.Format), SkipBad: s.set.SkipBad, Limit: int64(s.set.Limit), Offset: int64(s.set.Offset),
		Templates: taskfile.Templates{
			ID: s.set.ID, Prompt: s.set.Prompt, System: s.set.System, Answer: s.set.Answer, DataSource: s.set.DataSource, EnvClass: s.set.EnvClass,
		},
		OpenRows: storage.ReadObjects, Sound: s.samplerConfig().Sound,
	}
}

// checkTasks reads every row once: whatever is wrong is said before the first request.
func (s *session) checkTasks(ctx context.Context) error {
	cfg := s.taskConfig()
	err := errors.Join(s.checkTaskConfig(cfg), s.samplerConfig().Validate(), s.checkGraders(), s.checkGroupGraders())
	if terr := s.openTools(ctx); terr != nil {
		return withCode(codeUsage, errors.Join(err, terr))
	}
	if serr := errors.Join(s.checkSandbox(ctx), s.checkGradingSandbox(ctx), s.checkPythonGraders(ctx)); serr != nil {
		return errors.Join(err, serr)
	}
	actor, aerr := s.newActor()
	if err = errors.Join(err, aerr); err != nil {
		return withCode(codeUsage, err)
	}
	defer actor.Close()
	if s.set.TasksCommand != "" { // what it gives is checked as it comes
		s.tasks.SHA256 = digestOf(map[string]string{"tasks-command": s.set.TasksCommand})
		return s.planDraws(ctx)
	}
	var wanted wantedColumns
	wanted.want("priority-column", s.set.PriorityColumn)
	wanted.want("deadline-column", s.set.DeadlineColumn)
	cfg.Sound = wanted.watch(cfg.Sound)
	if s.tasks, err = taskfile.Check(ctx, cfg); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return withCode(codeTasks, err)
	}
	if err := wanted.missing(s.tasks.First); err != nil {
		return withCode(codeUsage, err)
	}
	s.tellTasks()
	return errors.Join(s.checkTools(ctx, actor), s.checkTests(ctx), s.planDraws(ctx))
}

// checkTaskConfig checks how the tasks are read; a command names no files.
func (s *session) checkTaskConfig(cfg taskfile.Config) error {
	if s.set.TasksCommand != "" {
		cfg.Paths = []string{"tasks command"}
	}
	return cfg.Validate()
}

func (s *session) newActor() (*action.Set, error) {
	return action.New(s.actionConfig(), slices.Concat(action.Builtins(), s.a.tools, s.kit.tools)...)
}

func (s *session) newScorer() (*reward.Scorer, error) {
	scorer, err := reward.New(s.rewardConfig(), s.graderKinds()...)
	if err != nil {
		return nil, fmt.Errorf("reward: %w", err)
	}
	return scorer, nil
}

func (s *session) checkGraders() error {
	scorer, err := s.newScorer()
	if err != nil {
		return err
	}
	return scorer.Close()
}

// maxToolFaults bounds the faults that are listed.
const maxToolFaults = 20

// checkTools asks for every task whether its tools are known. It is a second pass over the files, made only when one of them
// names tools.
func (s *session) checkTools(ctx context.Context, actor *action.Set) error {
	if s.tasks.WithTools == 0 {
		return nil
	}
	tasks, err := taskfile.Open(ctx, s.taskConfig())
	if err != nil {
		return withCode(codeTasks, err)
	}
	f := &faults{}
	for len(f.list) < maxToolFaults {
		t, err := tasks.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.list = append(f.list, err)
			break
		}
		if _, _, err := actor.Tools(t); err != nil {
			f.list = append(f.list, err)
		}
	}
	f.list = append(f.list, tasks.Close())
	return withCode(codeTasks, f.err())
}

// tellTasks names what was left out, so that nothing is lost silently.
func (s *session) tellTasks() {
	if n := s.tasks.Bad.Rows; n > 0 {
		s.a.notice("skipped %d bad rows (--skip-bad):", n)
		for i, b := range s.tasks.Bad.Listed {
			if i == 20 {
				s.a.notice("  … and more")
				break
			}
			s.a.notice("  %v", b)
		}
	}
	if n := s.tasks.Duplicates; n > 0 {
		s.a.notice("dropped %d rows that repeat an earlier one (same id, same content)", n)
	}
	if n := s.tasks.NoAnswer; n > 0 && s.wantsAnswers() {
		s.a.notice("%d of %d tasks state no answer: their reward will be null (--reward none says that this is meant)", n, s.tasks.Tasks)
	}
	if said := s.set.oversampled(s.tasks.Tasks); said != "" {
		s.a.notice("%s", said)
	}
	for name, n := range s.tasks.Ignored {
		s.a.notice("field %q in %d rows has no meaning here and is not sent", name, n)
	}
}

// ungraded tells that the run wants no rewards at all.
func (s *Settings) ungraded() bool {
	return len(s.Reward) == 1 && s.Reward[0].Kind == reward.KindNone
}

func (s *session) actionConfig() action.Config {
	calls, _ := s.set.Calls.format() // the settings were checked
	return action.Config{
		Calls: calls, Tools: s.kit.offered, Workers: s.set.ActionWorkers, Timeout: s.set.ActionTimeout, MaxObservationBytes: int(s.set.MaxObservation),
	}
}

func (s *session) openFleet(ctx context.Context) (err error) {
	answers, err := s.answers(ctx)
	if err != nil {
		return withCode(codeTasks, err)
	}
	if s.fleet, err = openFleet(ctx, s.a, &s.set, answers); err == nil {
		s.fleet.describe(s.a)
		s.fleet.tellPriority(s.a, s.set.Priority)
		s.tellOtherModels()
		if err = withCode(codeUsage, s.fleet.checkFiles(openFiles())); err == nil {
			err = s.openJudges(ctx)
		}
		if err != nil {
			s.fleet.close()
		}
	}
	return err
}

// tellOtherModels says that rows which name a model of their own are answered by the run's.
func (s *session) tellOtherModels() {
	ours := s.fleet.models()
	rows, others := int64(0), []string{}
	for _, name := range slices.Sorted(mapKeys(s.tasks.Models)) {
		if !slices.Contains(ours, name) {
			rows += s.tasks.Models[name]
			others = append(others, name)
		}
	}
	if rows > 0 {
		s.a.notice("%d rows name another model in body.model (%s); this run's model answers them: %s", rows, short(joined(others), 120), joined(slices.Compact(slices.Sorted(slices.Values(ours)))))
	}
}

// maxAnswers bounds the questions the embedded engine is told the answers of, bytes.
const maxAnswers = 64 << 20

// answers gives the embedded engine the ground truths of the tasks, so that it solves some and rewards vary; nil with real
// endpoints.
func (s *session) answers(ctx context.Context) (func(string) (string, bool), error) {
	if len(s.set.Endpoint) > 0 || s.set.TasksCommand != "" {
		return nil, nil
	}
	if s.tasks.PromptBytes.Total > maxAnswers {
		s.a.notice("the embedded engine is not told the answers of so many tasks: most will be answered wrong")
		return nil, nil
	}
	return answersOf(ctx, s.taskConfig())
}

// modelsOf lists the model each endpoint of resolved settings asks for.
func modelsOf(s *Settings) []string {
	if len(s.Endpoint) == 0 {
		return []string{s.Model}
	}
	var list []string
	for _, e := range s.Endpoint {
		list = append(list, or(nonEmpty(e.Model), s.Model))
	}
	return list
}

// identify settles the model names the endpoints told and derives the run's id.
func (s *session) identify() {
	s.resolveModels()
	id := identity(&s.set, s.tasks.SHA256, modelsOf(&s.set))
	digest := digestOf(id)
	s.file = runFile{
		RunID: runIDOf(digest), Digest: digest, TasksDigest: s.tasks.SHA256, TasksCount: s.tasks.Tasks, Created: s.a.started,
		Version: versionText(), Go: runtime.Version(), Settings: absolute(s.set), Embedded: s.fleet.embedded != nil, Episodes: s.total(),
	}
}

// resolveModels puts the names the servers told into the settings: one name where all serve the same, else one an endpoint.
func (s *session) resolveModels() {
	models := s.fleet.models()
	same := true
	for _, m := range models {
		same = same && m == models[0]
	}
	if same {
		s.set.Model = models[0]
		return
	}
	byURL := map[string]string{}
	for _, m := range s.fleet.members {
		byURL[m.url] = m.endpoint.Model()
	}
	for i, e := range s.set.Endpoint {
		if name, ok := byURL[e.URL]; ok {
			s.set.Endpoint[i].Model = name
		}
	}
}

// accept refuses a run whose results the settings or tasks would change, or whose run.yaml was changed itself.
func (s *session) accept(old *runFile) error {
	if err := old.refuseEdited(s.dir, s.a.program); err != nil {
		return err
	}
	was := identity(&old.Settings, old.TasksDigest, modelsOf(&old.Settings))
	is := identity(&s.set, s.tasks.SHA256, modelsOf(&s.set))
	if err := refuseChanges(s.dir, changes(was, is)); err != nil {
		return err
	}
	return refuseOtherTools(s.dir, old.Settings.MCPServer, s.set.MCPServer)
}

// openStorage locks the directory; a run that is there already is compared under the lock.
func (s *session) openStorage() (err error) {
	cfg := storage.Config{
		Dir: s.dir, RetryFailed: s.retryFailed, MarkEqual: s.set.Useful > 0, SyncInterval: s.set.JournalSync, RowGroupBytes: int64(s.set.RowGroupBytes), PartBytes: int64(s.set.PartBytes),
		MaxPartAge: s.set.MaxPartAge, SmallParts: s.set.SmallParts,
		Accept: func(text []byte) error {
			old := &runFile{}
			if err := old.parse(s.dir+"/"+runFileName, text); err != nil {
				return withCode(codeRefused, err)
			}
			s.resumed, s.file = true, *old
			return s.accept(old)
		},
	}
	if !s.resumed {
		cfg.RunFile = s.file.bytes()
	}
	if err := s.openGroups(); err != nil {
		return err
	}
	if s.groups != nil {
		cfg.GroupVerdicts = s.judgeGroup
	}
	if s.writer, err = storage.Open(cfg); err != nil {
		s.closeGroups()
	}
	switch {
	case errors.Is(err, storage.ErrLocked), errors.Is(err, storage.ErrNotRun):
		return withCode(codeRefused, err)
	case errors.Is(err, storage.ErrDamaged):
		if _, closed := storage.OpenRun(s.dir); closed == nil {
			err = fmt.Errorf("%w\n`%s view %s` shows what can still be read", err, s.a.program, quoted(s.dir))
		}
		return damaged(s.a, s.dir, err)
	case err != nil:
		return withCode(codeDisk, s.diskTrouble(err))
	}
	s.before = settled(s.writer.Counts())
	s.tellRecovery()
	s.beginPublishing()
	return s.draws.open(s)
}

// tellRecovery says what was found in a directory that held a run.
func (s *session) tellRecovery() {
	rec := s.writer.Recovery()
	for _, d := range rec.Damage {
		s.a.notice("recovered: %s", d)
	}
	for _, f := range rec.Removed {
		s.a.notice("recovered: removed %s, left by a crash", f)
	}
	if rec.Resumed {
		s.a.notice("resuming %s: %d rows and %d failed rows in files, %d rows in the journal", s.dir, rec.Published, rec.Failures, rec.Journal)
	}
	if said := openText(rec.Open); said != "" {
		s.a.notice("%s", said)
	}
}

// closeStorage seals what is complete and lets go of the directory.
func (s *session) closeStorage() error {
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.writer.Close()
	s.closeGroups()
	if err != nil {
		return withCode(codeDisk, fmt.Errorf("close the dataset: %w", err))
	}
	return nil
}

// play builds the pipeline, runs it to its end and reports.
func (s *session) play(ctx context.Context) error {
	if err := s.settleRecords(ctx); err != nil {
		return err
	}
	line, err := s.build(ctx)
	if err != nil {
		return err
	}
	if !s.begin() {
		_ = line.close() // nothing ran
		return withCode(codeOfSignal(s.signal()), errInterrupted)
	}
	s.a.notice("run %s into %s: %s, %d already done, %d open at once", s.file.RunID, s.dir, s.size(), s.before, s.openEpisodes())
	s.began = time.Now()
	books, err := openBooks(s, line.run.Rollout.Sched)
	if err != nil {
		s.a.notice("warning: %v; the account of earlier sessions is lost", err)
	}
	show, hide := context.WithCancel(ctx)
	var display sync.WaitGroup
	display.Go(func() { newProgress(s.a, &s.set, s.snapshot).run(show) })
	display.Go(func() { books.keep(show) })
	display.Go(func() { s.recheck(show) })
	var runErr error
	s.totals, runErr = scheduler.Run(ctx, line.run)
	hide()
	display.Wait()
	s.keepRecords()
	s.draws.keepStates(s)
	sum := books.sum() // before the scheduler is closed
	sum.Tail = books.earlier.Tail.plus(s.tailSums())
	s.account = &sum
	if err := line.close(); err != nil {
		s.a.notice("warning: %v", err)
	}
	return s.conclude(runErr)
}

// pipeline is the parts between source and sink, with what has to be closed afterwards.
type pipeline struct {
	run    scheduler.RunConfig
	closes []func() error
}

func (p *pipeline) onClose(f func() error) { p.closes = append(p.closes, f) }

// close ends the parts, the last one built first.
func (p *pipeline) close() error {
	var errs []error
	for _, f := range slices.Backward(p.closes) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// openEpisode makes the episode of one sample. A task whose own parameters are faulty was refused by the source already.
func (s *session) openEpisode(knobs *sampler.Knobs, d episode.Draw, sample int) *episode.Episode {
	params, err := knobs.Params(d, sample)
	budget, berr := sampler.Budget(d.Task, s.budget())
	e := episode.New(s.file.RunID, d, sample, params, budget, time.Now())
	e.Due = knobs.Due(d.Task)
	if name, prompt := knobs.Vary(d); name != "" {
		e.Variant, e.Messages, e.NumPrompt = name, prompt, len(prompt)
	}
	if err = errors.Join(err, berr); err != nil {
		e.Fail(&episode.Fault{Stage: episode.StageInput, Class: episode.ClassInternal, Cause: err})
	}
	return e
}

func (s *session) build(ctx context.Context) (*pipeline, error) {
	p := &pipeline{}
	order, knobs, err := s.draws.source(ctx, s)
	if err != nil {
		return nil, err
	}
	p.onClose(order.Close)
	actor, err := s.newActor()
	if err != nil {
		return nil, errors.Join(withCode(codeUsage, err), p.close())
	}
	p.onClose(actor.Close)
	s.actor = actor
	scorer, err := s.newScorer()
	if err != nil {
		return nil, errors.Join(withCode(codeUsage, err), p.close())
	}
	p.onClose(scorer.Close)
	s.scorer = scorer
	sched, err := scheduler.New(s.schedulerConfig())
	if err != nil {
		return nil, errors.Join(withCode(codeUsage, err), p.close())
	}
	s.judges.lend(sched)
	p.onClose(func() error { s.judges.lend(nil); sched.Close(); return nil })
	p.run = scheduler.RunConfig{
		Source: order, Done: s.writer.Done, Good: s.writer.Good, Quorum: s.quorum(), Sink: &countingSink{Sink: s.writer, tally: &s.tally, stats: &s.draws.stats}, MaxOpen: s.openEpisodes(),
		Open: func(d episode.Draw, sample int) *episode.Episode {
			e := s.openEpisode(knobs, d, sample)
			e.Begun = s.writer.Begun(e.ID)
			return e
		},
		Rollout:        &scheduler.Rollout{Sched: sched, Actor: actor, Scorer: scorer, Turns: s.writer, EpisodeTimeout: s.set.EpisodeTimeout},
		Stop:           s.stopped.stop,
		Drain:          s.set.DrainTimeout,
		MaxFailedShare: s.set.StopOnFailedShare, MaxUnscoredShare: s.set.StopOnUnscoredShare, Unscored: s.groupsUnscored, MinSettled: 100,
		Trace: scheduler.Trace{
			Opened: func(*episode.Episode) { s.open.Add(1) },
			Closed: func(*episode.Episode) { s.open.Add(-1) },
		},
	}
	return p, nil
}

func (s *session) budget() episode.Budget {
	return episode.Budget{
		TurnTokens: s.set.MaxTokens, EpisodeTokens: s.set.MaxEpisodeTokens, ContextTokens: s.set.MaxContext, Turns: s.set.MaxTurns, MinUseful: s.set.MinUseful,
	}
}

// openEpisodes is how many episodes are open at once: more than calls, because an episode in a tool holds no call, and far more where
// batches are padded: like calls for one are found only among many.
func (s *session) openEpisodes() int {
	if s.set.OpenEpisodes > 0 {
		return s.set.OpenEpisodes
	}
	return max(64, 2*s.fleet.calls(), 16*s.fleet.rows())
}

func (s *session) samplerConfig() sampler.PlanConfig {
	c, _ := s.set.plan() // the settings were checked
	c.Samples, c.Order, c.Seed, c.Window, c.Rounds = s.set.drawn(), sampler.Order(s.set.Order), s.set.Seed, s.set.Window, s.set.Rounds
	c.SendSeed, c.Tasks, c.Sampling, c.Began = s.set.SendSeed, s.tasks.Tasks, s.sampling(), s.file.Created
	return c
}

func (s *session) sampling() episode.Sampling {
	return episode.Sampling{
		Temperature: s.set.Temperature, TopP: s.set.TopP, TopK: s.set.TopK, MinP: s.set.MinP, Stop: s.set.Stop,
		Priority: s.set.Priority, Logprobs: s.set.Logprobs, TokenIDs: s.set.TokenIDs, Extra: s.set.ExtraBody,
	}
}

func (s *session) schedulerConfig() scheduler.Config {
	meters := s.fleet.meters()
	return scheduler.Config{
		Endpoints: s.fleet.endpoints(), Rules: s.rules(),
		Trace: scheduler.Trace{
			Launched: func(endpoint string, l scheduler.Launch) {
				meters[endpoint].launched()
				if l.Hedge {
					s.hedges.launched.Add(1)
				}
			},
			Won:       func(string) { s.hedges.won.Add(1) },
			Lost:      func(_ string, took time.Duration) { s.hedges.lose(took) },
			Wasted:    func(_ string, tokens int) { s.hedges.wasted.Add(int64(tokens)) },
			Continued: s.cutting.continued,
			Remade:    func(_ string, tokens int) { s.cutting.remade.Add(int64(tokens)) },
			Settled:   func(endpoint string, d time.Duration, f *episode.Fault) { meters[endpoint].settled(d, f) },
			Retrying:  func(endpoint string, f *episode.Fault) { s.tellLimited(meters[endpoint], f) },
			Down:      s.tellDown,
			Up:        s.tellUp,
			Began:     s.tellBegan,
			Resumed:   s.goneOn.tell,
		},
	}
}

func (s *session) rules() scheduler.Rules {
	ladder, _ := ladderOf(&s.set) // the settings were checked
	return scheduler.Rules{
		Ladder: ladder, MaxAttempts: s.set.MaxAttempts, Patience: patience, Seed: rand.Uint64(), EarlyYield: s.set.EarlyYield || s.set.cuts(),
		Hedge: s.set.Hedge,
	}
}

// patience is how long a call waits while no endpoint that could take it is alive; then the run ends and can be resumed.
const patience = 2 * time.Minute

// tellDown says what became of an endpoint and what comes next. The scheduler calls it once for each change.
func (s *session) tellDown(endpoint string, why *episode.Fault, again time.Duration) {
	cause := "no answer"
	if why != nil {
		cause = string(why.Class)
		if why.Cause != nil {
			cause += ": " + short(visibleLine(why.Cause.Error()), 300)
		}
	}
	s.a.notice("endpoint %s is taken for down: %s; it is tried again in %s; with no endpoint left the run ends after %s and can be resumed",
		endpoint, cause, max(again.Round(100*time.Millisecond), 100*time.Millisecond), patience)
}

// tellLimited says, once an endpoint, that it refuses calls for their rate: such attempts do not count, so nothing else would tell.
func (s *session) tellLimited(m *meter, why *episode.Fault) {
	if why == nil || why.Class != episode.ClassRateLimited {
		return
	}
	m.limited.Do(func() {
		asks := "names no time to wait (no Retry-After)"
		if why.After > 0 {
			asks = fmt.Sprintf("asks for %s (Retry-After)", why.After)
		}
		s.a.notice("endpoint %s refuses calls with HTTP 429 and %s; they are sent again until --episode-timeout (%s) and do not count as --max-attempts; fewer at once (--concurrency) may help",
			m.name, asks, s.set.EpisodeTimeout)
	})
}

// ladderOf makes the length classes; none given means the default ones.
func ladderOf(s *Settings) (bucketing.Ladder, error) {
	if len(s.Classes) == 0 {
		return bucketing.NewLadder(nil)
	}
	return bucketing.NewLadder(s.Classes)
}

// snapshot is what the progress line shows.
func (s *session) snapshot() snapshot {
	v := snapshot{
		total: s.total(), skipped: s.before, open: s.open.Load(), elapsed: time.Since(s.began), stopping: s.signal() != nil,
	}
	s.tally.read(&v)
	for _, m := range s.fleet.members {
		v.endpoints = append(v.endpoints, endpointLoad{m.meter.name, m.meter.inFlight.Load()})
	}
	return v
}
