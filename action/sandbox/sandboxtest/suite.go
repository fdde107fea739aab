//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"context"
	"crypto/rand"
	"embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tranche/action/sandbox"
)

//go:embed testdata/*.py
var programs embed.FS

// python is what the attacks are written in; it is looked for inside the sandbox.
const python = "/usr/bin/python3"

// patience bounds everything that has no shorter bound of its own. It is long, because a busy machine is no fault of a back end.
const patience = time.Minute

// settling is how long what ended may still be seen.
const settling = 20 * time.Second

// planted is what no program may find: in our environment, in a file that is open without close-on-exec.
const planted = "planted-c0ffee"

// limits are those of every sandbox of the suite, small so that attacks are cheap.
func limits() sandbox.Limits {
	return sandbox.Limits{Memory: 256 << 20, Pids: 48, Disk: 32 << 20, FileSize: 16 << 20, OpenFiles: 128}
}

// stage is one executor with what the suite knows of it.
type stage struct {
	executor sandbox.Executor
	caps     sandbox.Capabilities
	spec     sandbox.Spec
	mark     string
	idle     footprint // with the warm slots that two sandboxes leave, and nothing else
	fresh    string    // what the canary finds in a new sandbox
	except   Except
	brief    bool // one code in many is enough
	checks   int  // made so far
}

// Except are the attacks, probes ("probe: outcome") and tricks that a back end does not stand though it holds their promise, with the
// reason, which its documentation must have too.
type Except map[string]string

// ownTree stands in Except for all that needs folders that are the sandbox's alone, /w before all: the programs know those.
const ownTree = "a tree of its own"

// Run tries every attack on the executor that open makes. It sets variables of the environment, so it runs alone.
func Run(t *testing.T, open func() (sandbox.Executor, error), except ...Except) {
	run1in(t, 1, open, except...)
}

// wholeVariable, where it is set, has the optional back ends play all of the suite, in each tier and as each user, instead of a part of it.
const wholeVariable = "TRANCHE_ALL_BACKENDS"

// RunOptional is Run for a back end that is not the default one: every probe, and one attack and trick in twenty unless all of them are asked for
// (TRANCHE_ALL_BACKENDS=1). The default back end plays all of them on the same programs, and in CI each minute counts.
func RunOptional(t *testing.T, open func() (sandbox.Executor, error), except ...Except) {
	step := 20
	if os.Getenv(wholeVariable) != "" {
		step = 1
	}
	run1in(t, step, open, except...)
}

// RunBrief is RunOptional for a back end that is slow, or shares its programs' surroundings with another: without being asked for all, it
// opens two sandboxes, holds them against one another, and looks at what is left of them.
func RunBrief(t *testing.T, open func() (sandbox.Executor, error), except ...Except) {
	if os.Getenv(wholeVariable) != "" {
		run1in(t, 1, open, except...)
		return
	}
	s := newStage(t, open, except...)
	s.checkNextIsClean(t)
	s.checkNothingLeft(t)
}

// needWhole skips what is played only where all is.
func needWhole(t *testing.T) {
	t.Helper()
	if os.Getenv(wholeVariable) == "" {
		t.Skipf("takes long: set %s=1", wholeVariable)
	}
}

// run1in plays one attack and one trick in so many.
func run1in(t *testing.T, step int, open func() (sandbox.Executor, error), except ...Except) {
	s := newStage(t, open, except...)
	s.brief = step > 1 || testing.Short()
	t.Run("attack", func(t *testing.T) { s.tryAll(t, each(step, attacks(soon))) })
	t.Run("probe", func(t *testing.T) {
		for _, p := range probes() {
			t.Run(p.name, func(t *testing.T) { s.probe(t, p) })
		}
	})
	for _, trick := range each(step, tricks()) {
		t.Run(trick.name, func(t *testing.T) {
			s.need(t, trick.name, trick.needs...)
			trick.play(t, s)
			s.checkNothingLeft(t)
			s.checkNextIsClean(t)
		})
	}
}

// RunLimits tries only what a tier decides on: memory, processes and CPU time. It is for the lower tiers of a back end that stands
// the rest with its best one.
func RunLimits(t *testing.T, open func() (sandbox.Executor, error), except ...Except) {
	s := newStage(t, open, except...)
	s.tryAll(t, slices.DeleteFunc(attacks(soon), func(a attack) bool { return !a.ofTier() }))
}

// each is one in so many of a list.
func each[T any](step int, list []T) []T {
	var some []T
	for i := 0; i < len(list); i += step {
		some = append(some, list[i])
	}
	return some
}

func (s *stage) tryAll(t *testing.T, list []attack) {
	for _, a := range list {
		t.Run(a.name, func(t *testing.T) { s.try(t, a) })
	}
}

// newStage opens the executor among planted secrets, and has it closed and looked after at the end of the test.
func newStage(t testing.TB, open func() (sandbox.Executor, error), except ...Except) *stage {
	s := &stage{mark: rand.Text(), spec: sandbox.Spec{Limits: limits(), Trusted: true}}
	for _, e := range except {
		s.except = e
	}
	temp := t.TempDir()
	if err := os.Chmod(filepath.Dir(temp), 0o711); err != nil { // programs of other users pass through it
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	t.Setenv("SANDBOXTEST_SECRET", planted)
	plant(t)
	before := s.look(t)
	executor, err := open()
	if err != nil {
		t.Fatalf("open the executor: %v", err)
	}
	s.executor, s.caps = executor, executor.Capabilities()
	t.Logf("back end %s, tier %s, promises %v", s.caps.Backend, s.caps.Tier, s.caps.Promises)
	t.Cleanup(func() {
		if err := executor.Close(); err != nil {
			t.Errorf("close the executor: %v", err)
		}
		s.report(t, "after Close", func(now footprint) []string { return now.since(before) })
	})
	s.warm(t)
	return s
}

// plant opens what a careless program holds open: nothing of it is marked close-on-exec.
func plant(t testing.TB) {
	path := filepath.Join(t.TempDir(), "planted")
	if err := os.WriteFile(path, []byte(planted), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := syscall.Open(path, syscall.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, fd := range []int{file, pair[0], pair[1]} {
			_ = syscall.Close(fd)
		}
	})
}

// warm takes the measure of clean sandboxes: two at once, as the tricks open no more.
func (s *stage) warm(t testing.TB) {
	first, second := s.open(t), s.open(t)
	s.fresh = s.canary(t, first)
	if other := s.canary(t, second); other != s.fresh {
		t.Fatalf("two new sandboxes differ:\n%s", difference(s.fresh, other))
	}
	s.close(t, first)
	s.close(t, second)
	s.idle = s.look(t)
}

func (s *stage) look(t testing.TB) footprint {
	t.Helper()
	f, err := look(s.mark)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (s *stage) report(t testing.TB, when string, left func(footprint) []string) {
	t.Helper()
	found, err := settled(s.mark, settling, left)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range found {
		t.Errorf("%s there is left: %s", when, what)
	}
}

// need skips what the back end does not promise.
func (s *stage) need(t *testing.T, what string, promises ...sandbox.Promise) {
	t.Helper()
	except := []string{what}
	if slices.Contains(promises, sandbox.PromiseFiles) {
		except = append(except, ownTree)
	}
	for _, e := range except {
		if why := s.except[e]; why != "" {
			t.Skipf("back end %s has not: %s: %s", s.caps.Backend, e, why)
		}
	}
	for _, p := range promises {
		if s.caps.Promises[p] == sandbox.Absent || s.caps.Promises[p] == "" {
			t.Skipf("back end %s does not promise %s: %s", s.caps.Backend, p, s.caps.Why[p])
		}
	}
}

// holds says that a promise is enforced, not best effort.
func (s *stage) holds(p sandbox.Promise) bool { return s.caps.Promises[p] == sandbox.Enforced }

func (s *stage) open(t testing.TB) sandbox.Sandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	box, err := s.executor.Open(ctx, s.spec)
	if err != nil {
		t.Fatalf("open a sandbox: %v", err)
	}
	return box
}

func (s *stage) close(t testing.TB, box sandbox.Sandbox) {
	t.Helper()
	if err := box.Close(); err != nil {
		t.Errorf("close a sandbox: %v", err)
	}
}

// command is a program of testdata with its arguments.
func (s *stage) command(program string, arguments ...string) sandbox.Cmd {
	return sandbox.Cmd{
		Args: append([]string{python, "-I", "-S", "-c", source("prelude") + source(program)}, arguments...),
		Env:  []string{markVariable + "=" + s.mark},
		Wall: patience,
	}
}

func source(program string) string {
	text, err := programs.ReadFile("testdata/" + program + ".py")
	if err != nil {
		panic(err) // a name in the tables that is no file
	}
	return string(text)
}

// run plays one program to its end.
func run(t testing.TB, box sandbox.Sandbox, cmd sandbox.Cmd) sandbox.Result {
	t.Helper()
	r, err := play(box, cmd)
	if err != nil {
		t.Fatalf("the executor failed: %v", err)
	}
	return r
}

func play(box sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	p, err := box.Start(ctx, cmd)
	if err != nil {
		return sandbox.Result{}, err
	}
	return p.Wait(ctx)
}

// try plays an attack, then looks at what it left.
func (s *stage) try(t *testing.T, a attack) {
	s.need(t, a.name, a.needs...)
	if a.long && testing.Short() {
		t.Skip("takes long")
	}
	box := s.open(t)
	cmd := s.command("resources", append([]string{a.program}, a.arguments...)...)
	if a.shape != nil {
		a.shape(&cmd)
	}
	r := run(t, box, cmd)
	for _, fault := range a.faults(s, r) {
		t.Error(fault)
	}
	if t.Failed() {
		t.Logf("%+v", summary(r))
	}
	s.checkClean(t, box)
}

// checkClean holds a used sandbox to its promises: clean for who gets its slot next or, every other time, after Reset; and nothing is
// left beside it.
func (s *stage) checkClean(t *testing.T, box sandbox.Sandbox) {
	t.Helper()
	defer s.checkNothingLeft(t)
	if s.checks++; s.checks%2 == 0 {
		s.close(t, box)
		s.checkNextIsClean(t)
		return
	}
	defer s.close(t, box)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := box.Reset(ctx); err != nil {
		t.Errorf("reset: %v", err)
	} else if found := s.canary(t, box); found != s.fresh {
		t.Errorf("after Reset the sandbox is not clean:\n%s", difference(s.fresh, found))
	}
}

func (s *stage) checkNextIsClean(t *testing.T) {
	t.Helper()
	box := s.open(t)
	if found := s.canary(t, box); found != s.fresh {
		t.Errorf("the next sandbox is not clean:\n%s", difference(s.fresh, found))
	}
	s.close(t, box)
}

func (s *stage) checkNothingLeft(t *testing.T) {
	t.Helper()
	s.report(t, "after it", func(now footprint) []string { return now.sinceIdle(s.idle) })
}

// canary is what a program finds in a sandbox.
func (s *stage) canary(t testing.TB, box sandbox.Sandbox) string {
	t.Helper()
	var arguments []string
	if p := s.caps.Promises[sandbox.PromiseFiles]; p == sandbox.Absent || s.except[ownTree] != "" {
		arguments = []string{"here"} // only the work folder is ours
	}
	r := run(t, box, s.command("canary", arguments...))
	if r.Status != sandbox.StatusOK {
		t.Errorf("the canary: %s", summary(r))
	}
	return text(r.Stdout)
}

// difference shows the lines that two canaries do not share.
func difference(want, got string) string {
	wants, gots := outcomes(want), outcomes(got)
	var b strings.Builder
	keys := map[string]bool{}
	for k := range wants {
		keys[k] = true
	}
	for k := range gots {
		keys[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if wants[k] != gots[k] {
			fmt.Fprintf(&b, "  %s: %s, want %s\n", k, gots[k], wants[k])
		}
	}
	return b.String()
}

// outcomes reads the lines "what=outcome" that the programs say.
func outcomes(text string) map[string]string {
	said := map[string]string{}
	for line := range strings.Lines(text) {
		if what, outcome, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			said[what] = outcome
		}
	}
	return said
}

func text(o sandbox.Output) string { return string(o.Head) + string(o.Tail) }

// summary is a result on a few lines, for messages.
func summary(r sandbox.Result) string {
	return fmt.Sprintf("status %s, exit %d, signal %d, wall %v, usage %+v, left behind %d, tier %s\nstdout (%d): %.2000s\nstderr (%d): %.2000s",
		r.Status, r.Exit, r.Signal, r.Wall, r.Usage, r.LeftBehind, r.Tier, r.Stdout.Total, text(r.Stdout), r.Stderr.Total, text(r.Stderr))
}
