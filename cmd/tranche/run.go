package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tranche/storage/objectstore"
)

type runCmd struct {
	Tasks    []string `arg:"" optional:"" name:"tasks" help:"Task files: JSON Lines (plain or gzip) or Parquet."`
	Config   string   `short:"c" placeholder:"FILE" help:"YAML file with the same keys as the flags; flags win. A run.yaml of an earlier run is taken too."`
	Settings `embed:""`
}

// Help is kong's long text of the command.
func (runCmd) Help() string {
	return "Every sample of every task becomes one episode: model call, tool calls, their results, and so on until the answer; then it is scored and written. The result is a folder of Parquet files that pyarrow, DuckDB and Hugging Face datasets open as one table.\n\nctrl-c once stops cleanly, `tranche resume` goes on; kill -9 loses nothing that was written."
}

func (c *runCmd) do(ctx context.Context, a *app, given map[string]bool) error {
	set, at, err := c.settings(given)
	if err != nil {
		return withCode(codeUsage, err)
	}
	if err := notAFile(set.Out, "-o: expected a directory, a new one or that of the run to go on with"); err != nil {
		return withCode(codeUsage, err)
	}
	return at.locate(newSession(a, set).start(ctx))
}

// settings merges defaults, file and flags, and checks the result. It also says where in the file stands what that decides.
func (c *runCmd) settings(given map[string]bool) (set Settings, at places, err error) {
	set = c.Settings
	set.Tasks = nil
	given["tasks"] = len(c.Tasks) > 0
	if c.Config != "" {
		if at, err = readSettings(c.Config, &set, given); err != nil {
			return set, nil, err
		}
	}
	if given["tasks"] {
		set.Tasks = c.Tasks
	}
	return set, at, at.locate(set.check())
}

// defaultOut names a run after its first task file and the time.
func defaultOut(s *Settings, now time.Time) string {
	name := s.Name
	if name == "" && len(s.Tasks) == 0 {
		name = "command-" + now.Format("20060102-150405")
	}
	if name == "" {
		base := filepath.Base(s.Tasks[0])
		base, _, _ = strings.Cut(base, ".")
		if parent := filepath.Base(filepath.Dir(s.Tasks[0])); base == "tasks" && parent != "." && parent != "/" {
			base = parent // examples/arithmetic/tasks.jsonl is "arithmetic"
		}
		name = base + "-" + now.Format("20060102-150405")
	}
	return filepath.Join("runs", name)
}

// start is the whole of `tranche run`.
func (s *session) start(ctx context.Context) error {
	ctx, stop := s.watchSignals(ctx)
	defer stop()
	defer s.closeTools()
	if err := s.checkTasks(ctx); err != nil {
		return err
	}
	if s.set.DryRun {
		return s.dryRun(ctx)
	}
	if s.set.Out == "" {
		s.set.Out = defaultOut(&s.set, s.a.started)
	}
	s.dir = s.set.Out
	if err := s.refuseEarly(); err != nil {
		return err
	}
	defer s.closeFeed()
	if err := s.listenFeed(); err != nil {
		return err
	}
	defer s.dropPublishing()
	if err := s.openPublishing(ctx); err != nil {
		return err
	}
	if err := s.openFleet(ctx); err != nil {
		return err
	}
	defer s.fleet.close()
	s.identify()
	if err := s.tryJudges(ctx); err != nil {
		return err
	}
	if err := s.openStorage(); err != nil {
		return err
	}
	defer s.closeStorage()
	if err := s.openFeed(); err != nil {
		return err
	}
	if s.resumed && s.finished() {
		return s.alreadyFinished()
	}
	s.proveFleet(ctx)
	return s.play(ctx)
}

// refuseEarly compares with the run that is in the directory already, before any endpoint is asked; what only an endpoint
// can tell (the model) is compared again under the lock.
func (s *session) refuseEarly() error {
	old, ok, err := readRunFile(s.dir)
	if err != nil || !ok {
		return err
	}
	s.resumed = true
	if s.set.Model == "" && len(modelsOf(&old.Settings)) == 1 {
		s.set.Model = modelsOf(&old.Settings)[0]
	}
	if err := s.accept(old); err != nil {
		return err
	}
	s.a.notice("%s holds this run already: going on with it", s.dir)
	return nil
}

type resumeCmd struct {
	Dir         string   `arg:"" help:"Run directory."`
	Tasks       []string `name:"tasks" sep:"none" placeholder:"FILE" help:"Where the task files are now, when they were moved; their content must be the same."`
	RetryFailed bool     `help:"Play failed episodes again; a new result takes the place of the failure."`
	Settings    `embed:""`
}

// Help is kong's long text of the command.
func (resumeCmd) Help() string {
	return "Settings come from DIR/run.yaml. Flags may change what does not alter results (endpoints, concurrency, timeouts, sizes); any other change is refused by name. Finished episodes are never repeated."
}

func (c *resumeCmd) do(ctx context.Context, a *app, given map[string]bool) error {
	a.quiet = c.Quiet
	if given["out"] || given["dry-run"] || given["name"] {
		return withCode(codeUsage, errors.New("resume: --out, --name and --dry-run make no sense here: the run has its directory, and it goes on at once"))
	}
	if err := notAFile(c.Dir, "expected a run directory"); err != nil {
		return withCode(codeRefused, err)
	}
	old, ok, err := readRunFile(c.Dir)
	if err != nil {
		return err
	}
	if !ok {
		return noRun(a, c.Dir)
	}
	set := old.Settings
	overlay(&set, &c.Settings, given)
	if len(c.Tasks) > 0 {
		set.Tasks = c.Tasks
	}
	for _, k := range keys() { // this invocation's own
		if k.scope == scopeSession {
			set.field(k).Set(c.Settings.field(k))
		}
	}
	if err := set.check(); err != nil {
		return withCode(codeUsage, err)
	}
	s := newSession(a, set)
	s.dir, s.resumed, s.retryFailed = c.Dir, true, c.RetryFailed
	return s.resume(ctx, old)
}

// resume is the whole of `tranche resume`. Endpoints are opened only when there is something to do.
func (s *session) resume(ctx context.Context, old *runFile) error {
	ctx, stop := s.watchSignals(ctx)
	defer stop()
	defer s.closeTools()
	if err := s.checkTasks(ctx); err != nil {
		return err
	}
	if err := s.accept(old); err != nil {
		return err
	}
	s.file = *old
	defer s.closeFeed()
	if err := s.listenFeed(); err != nil {
		return err
	}
	defer s.dropPublishing()
	if err := s.openPublishing(ctx); err != nil {
		return err
	}
	if err := s.openStorage(); err != nil {
		return err
	}
	defer s.closeStorage()
	if err := s.openFeed(); err != nil {
		return err
	}
	if s.finished() {
		return s.alreadyFinished()
	}
	if err := s.openFleet(ctx); err != nil {
		return err
	}
	defer s.fleet.close()
	s.proveFleet(ctx)
	return s.play(ctx)
}

// notAFile refuses a path that is, or goes through, something that is no directory; a path that leads nowhere is fine.
func notAFile(path, expected string) error {
	if path == "" {
		return nil
	}
	if objectstore.IsURL(path) {
		return fmt.Errorf("%s: %s on a disk; `tranche pull %s DIR` makes one of a run in an object store", path, expected, quoted(path))
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s: %s; a part of this path is a file", path, expected)
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s: %s; this is a file", path, expected)
	}
	return nil
}

// noRun is the error for a directory in which no run was started.
func noRun(a *app, dir string) error {
	if made := madeText(dir); made != "" {
		return withCode(codeRefused, fmt.Errorf("%s: %s", dir, made))
	}
	what := "holds no " + runFileName + ": no run was started here"
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		what = "there is no such directory"
	}
	return withCode(codeRefused, fmt.Errorf("%s: %s; start it with `%s run … -o %s`", dir, what, a.program, quoted(dir)))
}

// damaged says what can be done about files that were published and are not there as they were any more.
func damaged(a *app, dir string, err error) error {
	return withCode(codeDisk, fmt.Errorf("%w\nrestore the file from a copy, or start a new run: %s run -c %s -o NEWDIR", err, a.program, quoted(filepath.Join(dir, runFileName))))
}
