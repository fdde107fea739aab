package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"tranche/storage"
)

// keptText is kept rows in memory.
type keptText struct {
	bytes.Buffer
	synced int // bytes that were synced
}

func (k *keptText) Sync() error  { k.synced = k.Len(); return nil }
func (k *keptText) Close() error { return nil }

func TestFreshLines(t *testing.T) {
	lost := errors.New("lost")
	for name, c := range map[string]struct {
		earlier string
		from    io.Reader
		want    string
		err     string
	}{
		"each once":              {"", strings.NewReader("a\nb\n\na\n  b \nc\n"), "a\nb\nc\n", ""},
		"what was there before":  {"a\nb\n", strings.NewReader("a\nb\nc\n"), "c\n", ""},
		"byte by byte":           {"", iotest.OneByteReader(strings.NewReader("a\nb\na\nc")), "a\nb\nc\n", ""},
		"a last one without end": {"", strings.NewReader("a\nb"), "a\nb\n", ""},
		"longer than allowed":    {"", io.MultiReader(strings.NewReader("a\n"), strings.NewReader(strings.Repeat("x", 1<<20))), "a\n", "longer than 100000 bytes"},
		"an error":               {"", io.MultiReader(strings.NewReader("a\nb\nhal"), iotest.ErrReader(lost)), "a\nb\n", "lost"},
		"a program that failed":  {"", io.MultiReader(strings.NewReader("a\nb\nhal"), iotest.ErrReader(errCutOff)), "a\nb\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			kept := &keptText{}
			got, err := io.ReadAll(newFreshLines(c.from, kept, []byte(c.earlier), 100_000))
			if string(got) != c.want || c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%q, %v, want %q and %q", got, err, c.want, c.err)
			}
			if kept.String() != c.want || kept.synced != kept.Len() {
				t.Errorf("kept %q, %d bytes of it synced", kept.String(), kept.synced)
			}
		})
	}
}

// Endless repetition is no endless wait: its end is told, and nothing of it is kept.
func TestEndlessRepetitionEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("ten million lines")
	}
	kept := &keptText{}
	_, err := io.ReadAll(newFreshLines(repeating("a\n"), kept, nil, 100))
	if err == nil || !strings.Contains(err.Error(), "in a row") || kept.String() != "a\n" {
		t.Errorf("%v, kept %q", err, kept.String())
	}
}

// repeating is a text without end.
type repeating string

func (r repeating) Read(p []byte) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], r)
	}
	return n, nil
}

// A command that fails is no end of the run: what it gave is played first, and the run can be resumed. What a command left running, and what it
// repeats, does not matter.
func TestATasksCommandThatFails(t *testing.T) {
	dir, count := newRunDir(t), filepath.Join(t.TempDir(), "count")
	command := fmt.Sprintf(`for i in 1 2 3 4 5; do echo "{\"id\":\"t$i\",\"prompt\":\"Task $i\"}"; done; sleep 300 & echo x >> %s; [ $(wc -l < %[1]s) -gt 1 ] || exit 3`, count)
	s := newShell(t)
	s.do(codeTasks, "run", "-o", dir, "--reward", "none", "--tasks-command", command)
	if n := len(rowsIn(t, dir)); n != 5 || !strings.Contains(s.err.String(), "exit status 3") || !strings.Contains(s.err.String(), "resume "+dir) {
		t.Errorf("%d rows, said %s", n, s.err.String())
	}
	again := newShell(t)
	again.do(codeOK, "resume", dir)
	text, err := os.ReadFile(filepath.Join(dir, storage.StreamName))
	if n := len(rowsIn(t, dir)); err != nil || n != 5 || bytes.Count(text, []byte("\n")) != 5 {
		t.Errorf("%d rows, kept %q, %v", n, text, err)
	}
}

// All that a command wrote is read, however long after its end.
func TestATasksCommandIsReadToItsEnd(t *testing.T) {
	c := &tasksCommand{kept: &keptText{}, over: make(chan error, 1)}
	if err := c.start("for i in 1 2 3; do echo $i; done; sleep 300 &", 0, io.Discard); err != nil {
		t.Fatal(err)
	}
	defer c.close()
	ended := <-c.over
	c.over <- ended
	time.Sleep(1500 * time.Millisecond) // longer than any wait of ours for more
	text, err := io.ReadAll(c)
	if string(text) != "1\n2\n3\n" || err != nil || ended != nil {
		t.Errorf("%q, %v, %v", text, err, ended)
	}
}
