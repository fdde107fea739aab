//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A leak check that cannot fail is none: every kind of leak is planted, must be found, and must be gone when it is cleared away.
func TestCaseSB2(t *testing.T) {
	for _, leak := range []struct {
		name  string
		shown string // what the report says
		plant func(t *testing.T, mark string) (clear func())
	}{
		{"child", "process", func(t *testing.T, _ string) func() { return start(t, exec.Command("sleep", "60")) }},
		{"orphan in a session of its own", "process", plantOrphan},
		{"child in a pid namespace", "in its namespace", plantNested},
		{"descriptor", "descriptors of kind file", plantDescriptor},
		{"socket", "descriptors of kind socket", plantSocket},
		{"temporary file", "file ", plantFile},
		{"cgroup", "cgroup ", plantCgroup},
		{"mount", "mount ", plantMount},
		{"goroutine", "goroutines", plantGoroutine},
	} {
		t.Run(leak.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			mark := rand.Text()
			before, err := look(mark)
			if err != nil {
				t.Fatal(err)
			}
			left := func(wait time.Duration) []string {
				found, err := settled(mark, wait, func(now footprint) []string { return now.since(before) })
				if err != nil {
					t.Fatal(err)
				}
				return found
			}
			if found := left(settling); len(found) != 0 {
				t.Fatalf("before anything was planted: %v", found)
			}
			clear := leak.plant(t, mark)
			found := left(0)
			clear()
			if !slices.ContainsFunc(found, func(line string) bool { return strings.Contains(line, leak.shown) }) {
				t.Errorf("the planted leak was not found, only %v", found)
			}
			if found := left(settling); len(found) != 0 {
				t.Errorf("after it was cleared away: %v", found)
			}
		})
	}
}

// The looser check, with warm slots open, finds the process that is no init and the namespace that is one too many.
func TestIdleCheckBites(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // each look lists it
	mark := rand.Text()
	before, err := look(mark)
	if err != nil {
		t.Fatal(err)
	}
	defer plantNested(t, mark)()
	text := ""
	if !eventually(func() bool { // once the shell has started its child
		found, err := settled(mark, 0, func(now footprint) []string { return now.sinceIdle(before) })
		if err != nil {
			t.Fatal(err)
		}
		text = strings.Join(found, "\n")
		return strings.Contains(text, "namespaces, 0 before") && strings.Contains(text, "2 in its namespace")
	}) {
		t.Errorf("found only %q", text)
	}
}

func start(t *testing.T, cmd *exec.Cmd) (clear func()) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Skipf("cannot be planted here: %v", err)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// plantOrphan leaves a process whose parent is gone, in a session of its own: only its mark tells that it is ours.
func plantOrphan(t *testing.T, mark string) func() {
	cmd := exec.Command("setsid", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), markVariable + "=" + mark}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	pid := number(strings.Fields(string(out)), 0)
	return func() { _ = syscall.Kill(pid, syscall.SIGKILL) }
}

func plantNested(t *testing.T, _ string) func() {
	cmd := exec.Command("sh", "-c", "sleep 60 & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWUSER}
	return start(t, cmd)
}

func plantDescriptor(t *testing.T, _ string) func() {
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = f.Close() }
}

func plantSocket(t *testing.T, _ string) func() {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = syscall.Close(pair[0]); _ = syscall.Close(pair[1]) }
}

func plantFile(t *testing.T, _ string) func() {
	path := filepath.Join(os.TempDir(), "left")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() { _ = os.Remove(path) }
}

func plantCgroup(t *testing.T, _ string) func() {
	for _, root := range cgroupRoots() {
		path := fmt.Sprintf("%s/tranche-test-%d", root, os.Getpid())
		if os.Mkdir(path, 0o755) == nil {
			return func() { _ = os.Remove(path) }
		}
	}
	t.Skip("no cgroup can be made here")
	return nil
}

func plantMount(t *testing.T, _ string) func() {
	path := t.TempDir()
	if err := syscall.Mount("none", path, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	return func() { _ = syscall.Unmount(path, 0) }
}

func plantGoroutine(*testing.T, string) func() {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // ends when stop is closed
		<-stop
		close(done)
	}()
	return func() { close(stop); <-done }
}
