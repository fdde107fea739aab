//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Ctrl-c ends the program and all that it started, however deaf they are, and SIGTERM does too.
func TestSandboxRunEndsOnSignal(t *testing.T) {
	for _, c := range []struct {
		name string
		sig  os.Signal
		want code
	}{{"ctrl-c", os.Interrupt, codeInt}, {"SIGTERM", syscall.SIGTERM, codeTerm}, {"SIGHUP", syscall.SIGHUP, codeHup}} {
		t.Run(c.name, func(t *testing.T) {
			s := newShell(t)
			r, w := io.Pipe()
			s.app.stdout = w
			mark := fmt.Sprintf("deaf-%d-%d", os.Getpid(), time.Now().UnixNano())
			script := `trap "" INT TERM HUP; setsid sh -c 'trap "" INT TERM; sleep 300' ` + mark + ` & echo started; while :; do sleep 1; done`
			ended := make(chan code, 1)
			go func() { // ends with the command
				ended <- s.app.main(context.Background(), []string{"sandbox", "run", "--", "sh", "-c", script, mark})
				w.Close()
			}()
			line := make([]byte, len("started\n"))
			if _, err := io.ReadFull(r, line); err != nil || string(line) != "started\n" {
				t.Fatalf("the program said %q, %v: %s", line, err, s.err.String())
			}
			if len(withArgument(t, mark)) < 2 {
				t.Fatal("its processes are not seen, so their end would not be")
			}
			s.signals <- c.sig
			select {
			case got := <-ended:
				if got != c.want {
					t.Errorf("exit code %d, want %d: %s", got, c.want, s.err.String())
				}
			case <-time.After(time.Minute):
				t.Fatal("it did not end")
			}
			if left := withArgument(t, mark); len(left) > 0 {
				t.Errorf("still there: %v", left)
			}
		})
	}
}

// A value that no program could run under is the caller's mistake, told before anything is opened; one that means nothing is no default either.
func TestSandboxFlagsThatAreWrong(t *testing.T) {
	for _, c := range []struct {
		name, flag, said string
	}{
		{"less memory than a program needs", "--memory=1KiB", "--memory: expected 1MiB to "},
		{"no memory", "--memory=0", "--memory: expected more than 0"},
		{"negative memory", "--memory=-5", "expected a size such as 256MiB"},
		{"no size", "--memory=much", "expected a size such as 256MiB"},
		{"more than any number", "--memory=1e300", "expected a size such as 256MiB"},
		{"more memory than there is anywhere", "--memory=2000000TiB", "--memory: expected 1MiB to "},
		{"no disk", "--disk=0", "--disk: expected more than 0"},
		{"a disk of less than a page", "--disk=100", "--disk: expected 4KiB to "},
		{"no time", "--timeout=0s", "--timeout: expected a time over 0, such as 10s, found 0s"},
		{"negative time", "--timeout=-1s", "--timeout: expected a time over 0, such as 10s, found -1s"},
		{"a time without unit", "--timeout=10", "duration"},
		{"no CPU time", "--cpu=0", "--cpu: expected a time over 0"},
		{"negative CPU time", "--cpu=-1ms", "--cpu: expected a time over 0"},
		{"no processes", "--pids=0", "--pids: expected more than 0"},
		{"negative processes", "--pids=-1", "--pids: expected 1 to 4194304, found -1"},
		{"more processes than a kernel has", "--pids=5000000", "--pids: expected 1 to 4194304, found 5000000"},
		{"half a process", "--pids=1.5", "--pids"},
		{"a rootfs that is not there", "--rootfs=/no/such", "--rootfs: stat /no/such: no such file"},
		{"a rootfs that is no tree", "--rootfs=/dev/null", "--rootfs: expected a folder or a tar file"},
		{"a rootfs that is no tar", "--rootfs=/etc/passwd", "--rootfs: unpack /etc/passwd"},
		{"a rootfs of an unset variable", "--rootfs=", "--rootfs: is empty"},
		{"an empty digest", "--rootfs-digest=", "--rootfs-digest"},
		{"a variable without a value", "--env=NAME", "expected KEY=VALUE"},
		{"a variable without a name", "--env==x", "expected KEY=VALUE"},
		{"a variable of no text", "--env=A=\xff\xfe", "is no text in UTF-8"},
		{"a file without a name", "--file=", "--file : "},
		{"a folder as a file", "--file=/", "expected a file"},
		{"no promise", "--require=", "--require: is empty"},
		{"another back end", "--backend=vm", "--backend"},
		{"no back end", "--backend=", "--backend"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			s := newShell(t)
			if got := s.app.main(t.Context(), []string{"sandbox", "run", c.flag, "--", "true"}); got != codeUsage || !strings.Contains(s.err.String(), c.said) {
				t.Errorf("exit code %d, %q; want 2 and %q", got, s.err.String(), c.said)
			}
		})
	}
}

// A reader that is stuck holds the command up for a moment after the program's wall time, not for ever.
func TestSandboxRunOutlivesAStuckReader(t *testing.T) {
	for _, c := range []struct {
		name, script, said string
	}{
		{"a program that writes for ever", "yes", "wall time is used up"},
		{"a program that has ended", "head -c 10000 /dev/zero", "its output was not read to the end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newShell(t)
			r, w := io.Pipe() // nobody reads
			defer r.Close()
			s.app.stdout = w
			ended := make(chan code, 1)
			go func() { // ends with the command
				ended <- s.app.main(context.Background(), []string{"sandbox", "run", "--backend", "plain", "--trust-this-program-with-everything-i-have", "--timeout", "200ms", "--", "sh", "-c", c.script})
			}()
			select {
			case got := <-ended:
				if got != codeTimedOut || !strings.Contains(s.err.String(), c.said) {
					t.Errorf("exit code %d, %q", got, s.err.String())
				}
			case <-time.After(time.Minute):
				t.Fatal("it did not end")
			}
		})
	}
}

// withArgument lists the processes that have a word on their command line.
func withArgument(t *testing.T, word string) []string {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no processes are seen: %v", err)
	}
	var list []string
	for _, p := range paths {
		if line, err := os.ReadFile(p); err == nil && bytes.Contains(line, []byte("\x00"+word+"\x00")) {
			list = append(list, strings.TrimSuffix(p, "/cmdline"))
		}
	}
	return list
}
