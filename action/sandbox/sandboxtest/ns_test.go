//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/bwrap"
	"tranche/action/sandbox/landlock"
	"tranche/action/sandbox/ns"
	"tranche/action/sandbox/plain"
)

// victimVariable makes this test binary a parent that is to be killed.
const victimVariable = "SANDBOXTEST_VICTIM"

func TestMain(m *testing.M) {
	ns.Init()
	plain.Init()
	landlock.Init()
	if os.Getenv(victimVariable) != "" {
		victim()
		return
	}
	os.Exit(m.Run())
}

// nsOf makes the back end with the limits held by one tier.
func nsOf(tier sandbox.Tier) func() (sandbox.Executor, error) {
	return func() (sandbox.Executor, error) { return ns.New(ns.Config{Tier: tier}) }
}

// The whole table with the best tier that there is, and what a tier decides on with each other, which -short leaves out.
func TestNS(t *testing.T) {
	eachTier(t, Run, !testing.Short(), nsOf, Except{})
}

// eachTier plays a table with the best tier that a back end has here and, where lower, what a tier decides on with each other.
func eachTier(t *testing.T, do func(*testing.T, func() (sandbox.Executor, error), ...Except), lower bool, open func(sandbox.Tier) func() (sandbox.Executor, error), except Except) {
	played := 0
	for _, tier := range []sandbox.Tier{sandbox.TierCgroup2, sandbox.TierCgroup1, sandbox.TierRlimit} {
		t.Run(string(tier), func(t *testing.T) {
			if played > 0 && !lower {
				t.Skip("the best tier was played; the others take long")
			}
			executor, err := open(tier)()
			if err != nil {
				t.Skipf("this machine has no tier %s: %v", tier, err)
			}
			if err := executor.Close(); err != nil {
				t.Fatal(err)
			}
			do(t, open(tier), except)
			do = RunLimits
			played++
		})
	}
	if played == 0 && os.Geteuid() == 0 && !t.Failed() {
		t.Error("root, and no tier of this machine was tried")
	}
}

// And as a user who may nothing.
func TestNSAsNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("the table once more; left out by -short")
	}
	asNobody(t, "^TestNS$")
}

func TestNSReferences(t *testing.T) { References(t, nsOf("")) }

// TRANCHE_MIXED_RUNS=10000 plays the long form.
func TestNSMixed(t *testing.T) {
	runs := 1000
	if testing.Short() {
		runs = 200
	}
	if n, err := strconv.Atoi(os.Getenv("TRANCHE_MIXED_RUNS")); err == nil {
		runs = n
	}
	Mixed(t, runs, 64, nsOf(""))
}

func BenchmarkNS(b *testing.B) { Bench(b, nsOf("")) }

func BenchmarkNSOpen(b *testing.B) { BenchOpen(b, 1000, nsOf("")) }

// asNobody runs a test of this binary as an ordinary user.
func asNobody(t *testing.T, test string) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the test without a user of its own is this one")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "sandboxtest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "test") // the build's own folder is closed to others
	if err := copyFile(program, exe); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run", test, "-test.v")
	cmd.Dir = folder
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + folder, "HOME=" + folder, wholeVariable + "=" + os.Getenv(wholeVariable)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	report := t.Log
	if played := strings.Contains(string(out), "--- PASS: "+strings.Trim(test, "^$")+"/"); err != nil || !played { // the test itself passes where all is skipped
		report = t.Error
	}
	report(fmt.Sprintf("as nobody: %v\n%s", err, unindented(string(out))))
}

// unindented leaves of a test's output what failed, was skipped or logged.
func unindented(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(strings.TrimSpace(line), "=== ") && !strings.HasPrefix(strings.TrimSpace(line), "--- PASS") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

// victim opens sandboxes, has programs in them that will not end, says so and waits to be killed.
func victim() {
	backend, mark, _ := strings.Cut(os.Getenv(victimVariable), "/")
	executor, err := victims()[backend]()
	s := &stage{executor: executor, spec: sandbox.Spec{Limits: limits()}, mark: mark}
	for range 3 {
		var box sandbox.Sandbox
		if err == nil {
			box, err = executor.Open(context.Background(), s.spec)
		}
		if err == nil {
			_, err = box.Start(context.Background(), s.command("resources", "deaf"))
		}
		if err == nil {
			cmd := s.command("resources", "daemons")
			cmd.Background = true
			_, err = box.Start(context.Background(), cmd)
		}
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready")
	time.Sleep(patience)
}

// victims are the back ends whose parents are killed.
func victims() map[string]func() (sandbox.Executor, error) {
	return map[string]func() (sandbox.Executor, error){
		"ns": nsOf(""), "landlock": openLandlock, "bwrap": func() (sandbox.Executor, error) { return bwrap.New(bwrap.Config{}) },
	}
}

// Kill -9 of the parent leaves nothing running, and what cannot go by itself goes at the next start.
func TestParentKilled(t *testing.T) {
	for backend, open := range victims() {
		t.Run(backend, func(t *testing.T) {
			executor, err := open()
			if err != nil {
				t.Skip(err)
			}
			if err := executor.Close(); err != nil {
				t.Fatal(err)
			}
			parentKilled(t, backend, open)
		})
	}
}

func parentKilled(t *testing.T, backend string, open func() (sandbox.Executor, error)) {
	temp := t.TempDir()
	if err := os.Chmod(filepath.Dir(temp), 0o711); err != nil { // programs of other users pass through it
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	mark := "victim" + strconv.Itoa(os.Getpid())
	before, err := look(mark)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), victimVariable+"="+backend+"/"+mark)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	var running footprint
	if line == "ready\n" {
		eventually(func() bool { // a daemon begins, too
			running, err = look(mark)
			return err != nil || len(running.processes) >= 3*4
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if line != "ready\n" || len(running.processes) < 3*4 {
		t.Fatalf("the parent said %q and had %d processes", line, len(running.processes))
	}
	left, err := settled(mark, settling, func(footprint) []string { return alive(running) })
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range left {
		t.Errorf("left after kill -9: %s", what)
	}
	executor, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if err := executor.Close(); err != nil {
		t.Error(err)
	}
	left, err = settled(mark, settling, func(now footprint) []string { return now.since(before) })
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range left {
		t.Errorf("left after the next start: %s", what)
	}
}

// alive lists those of a footprint that are still there.
func alive(f footprint) []string {
	var list []string
	for pid, was := range f.processes {
		if p, ok := readProcess(pid); ok && p.started == was.started && !p.zombie {
			list = append(list, p.String())
		}
	}
	return list
}
