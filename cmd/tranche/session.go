package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tranche/action"
	"tranche/reward"
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

// ungraded tells that the run wants no rewards at all.
func (s *Settings) ungraded() bool {
	return len(s.Reward) == 1 && s.Reward[0].Kind == reward.KindNone
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
