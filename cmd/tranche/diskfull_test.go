//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tranche/episode"
	"tranche/storage"
)

// A disk that is full, for real: the program runs into it, stops with 7, one clear message and a whole dataset, and goes on to the same rows when there is room.
// Once on a small file system of its own, where the kernel lets us mount one, and once against the limit of a file's size, which any user may set.
func TestFullDiskStopsCleanlyAndIsGoneOnWith(t *testing.T) {
	whole := newRunDir(t)
	if code, _, said := tranche(t, "", append(diskFullRun(t), "-o", whole)...); code != codeOK {
		t.Fatalf("status %d without any limit: %s", code, said)
	}
	want := replayable(t, whole)
	t.Run("a full file system", func(t *testing.T) {
		small := mountSmall(t, "600k")
		dir := filepath.Join(small.dir, "run")
		fullThenFree(t, dir, "", "is full (", small.resize, want)
	})
	t.Run("a limit on files", func(t *testing.T) {
		fullThenFree(t, newRunDir(t), "ulimit -f 256; ", "may not grow any further", func(*testing.T) {}, want)
	})
}

// diskFullRun is a run of 120 episodes, about a megabyte.
func diskFullRun(t *testing.T) []string {
	t.Helper()
	tasks, err := filepath.Abs("../../examples/arithmetic/tasks.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"run", tasks, "-n", "3", "--engine-speed", "0", "--progress", "none", "--small-parts", "2", "-q"}
}

func fullThenFree(t *testing.T, dir, limit, says string, free func(*testing.T), want map[string]string) {
	status, out, said := tranche(t, limit, append(diskFullRun(t), "-o", dir)...)
	if status != codeDisk {
		t.Fatalf("status %d, want %d\n%s", status, codeDisk, said)
	}
	for _, part := range []string{says, "tranche: ", "What was acknowledged before is kept. Then: ", "resume " + quoted(dir)} {
		if strings.Count(said, part) != 1 {
			t.Errorf("%q is not there once in\n%s", part, said)
		}
	}
	if lines := strings.Count(strings.TrimSpace(said), "\n") + 1; lines > 4 || strings.Contains(said, "goroutine") {
		t.Errorf("%d lines\n%s", lines, said)
	}
	if !strings.Contains(out, "the dataset could not be written") && !strings.Contains(out, "the dataset could not be sealed") {
		t.Errorf("the summary does not say why it ended:\n%s", out)
	}
	before := replayable(t, dir)
	if len(before) == 0 || len(before) >= len(want) {
		t.Errorf("%d of %d rows were stored before", len(before), len(want))
	}
	if status, _, said := tranche(t, limit, "view", dir); status != codeOK {
		t.Errorf("view ends with %d\n%s", status, said)
	}
	t.Logf("%d of %d rows were stored; it says\n%s", len(before), len(want), said)
	free(t)
	if status, _, said := tranche(t, "", "resume", dir, "--progress", "none", "-q"); status != codeOK {
		t.Fatalf("resume ends with %d\n%s", status, said)
	}
	after := replayable(t, dir)
	for id, row := range before {
		if after[id] != row {
			t.Fatalf("a row changed\n%s\n%s", row, after[id])
		}
	}
	if !reflect.DeepEqual(after, want) {
		t.Errorf("%d rows, want %d, or they differ", len(after), len(want))
	}
}

// replayable are the rows by id, without what differs from run to run (docs/format.md).
func replayable(t *testing.T, dir string) map[string]string {
	t.Helper()
	run, err := storage.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for r, err := range run.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		flags := slices.DeleteFunc(slices.Clone(r.Flags), func(f string) bool { return f == episode.FlagResumed })
		text, err := json.Marshal([]any{r.Messages, r.TokenIDs, r.Reward, r.Status, r.StopReason, r.GroupID, r.SampleIndex, r.NumTurns, flags, r.Sampling})
		if err != nil || rows[r.EpisodeID] != "" {
			t.Fatalf("%s is there twice, or %v", r.EpisodeID, err)
		}
		rows[r.EpisodeID] = string(text)
	}
	return rows
}

// tranche runs the program as a process of its own, in a shell that is given a command before it.
func tranche(t *testing.T, before string, args ...string) (status code, stdout, stderr string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "tranche") // testscript's main looks at the name
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	cmd := exec.Command("sh", append([]string{"-c", before + `exec "$0" "$@"`, link}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &said
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return code(cmd.ProcessState.ExitCode()), out.String(), said.String()
}

// smallDisk is a file system in memory, in a namespace that a process keeps.
type smallDisk struct {
	dir  string // seen from here
	ask  io.Writer
	says *bufio.Scanner
}

// mountSmall skips the test where the kernel does not let us.
func mountSmall(t *testing.T, size string) *smallDisk {
	t.Helper()
	dir := t.TempDir()
	keeper := exec.Command("sh", "-c", `mount -t tmpfs -o size="$1" tmpfs "$0" && echo ready && while read s; do mount -o remount,size="$s" "$0" && echo resized; done`, dir, size)
	keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	var said bytes.Buffer
	keeper.Stderr = &said
	in, ierr := keeper.StdinPipe()
	out, oerr := keeper.StdoutPipe()
	if err := errors.Join(ierr, oerr); err != nil {
		t.Fatal(err)
	}
	if err := keeper.Start(); err != nil {
		t.Skipf("no namespace of our own, so no small file system: %v", err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = keeper.Wait() })
	d := &smallDisk{fmt.Sprintf("/proc/%d/root%s", keeper.Process.Pid, dir), in, bufio.NewScanner(out)}
	if !d.says.Scan() {
		t.Skipf("no small file system can be mounted here: %s", said.String())
	}
	if _, err := os.Stat(d.dir); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			t.Skipf("the mount of our own process is not to be seen: %v", err)
		}
		t.Fatal(err)
	}
	return d
}

func (d *smallDisk) resize(t *testing.T) {
	fmt.Fprintln(d.ask, "64m")
	if !d.says.Scan() {
		t.Fatal("the file system was not made larger")
	}
}
