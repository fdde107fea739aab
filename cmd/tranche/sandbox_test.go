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
	}{{"ctrl-c", os.Interrupt, codeInt}, {"SIGTERM", syscall.SIGTERM, codeTerm}} {
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
