package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/internal/mock"
	"tranche/sampler"
	"tranche/storage"
)

// shell runs command lines in this process, with a signal channel of its own.
type shell struct {
	t       *testing.T
	app     *app
	signals chan os.Signal
	out     bytes.Buffer
	err     lockedBuffer
}

// lockedBuffer takes writes of several goroutines, as a terminal does.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newShell(t *testing.T) *shell {
	s := &shell{t: t, signals: make(chan os.Signal, 2)}
	s.app = &app{stdout: &s.out, stderr: &s.err, signals: s.signals, exit: func(c int) { t.Errorf("exited at once with %d", c) },
		started: time.Now(), width: func() int { return 100 }, program: "tranche"}
	return s
}

// do runs a command line and expects its exit status. A run asks its endpoints nothing but who they are, unless told otherwise: tests count requests.
func (s *shell) do(want code, args ...string) {
	s.t.Helper()
	if len(args) > 0 && args[0] == "run" && !slices.Contains(args, "--probe") {
		args = append(slices.Clone(args), "--probe", "quick")
	}
	if got := s.app.main(context.Background(), args); got != want {
		s.t.Fatalf("tranche %s: exit status %d, want %d\n%s%s", strings.Join(args, " "), got, want, s.out.String(), s.err.String())
	}
}

// document is the JSON on stdout.
func (s *shell) document() (d struct {
	Dataset struct {
		Rows, Good, Failed int64
		Failures           map[string]int64
		Flags              map[string]int64
		Stops              map[string]int64
		Reward             struct {
			N, Rows  int64
			Coverage float64
			Mean     *float64
		}
		Tokens storage.Tokens
	}
	Run struct {
		State   string
		Session sessionReport
		Groups  map[string]sampler.GroupStats
	}
}) {
	s.t.Helper()
	if err := json.Unmarshal(s.out.Bytes(), &d); err != nil {
		s.t.Fatalf("stdout is no JSON document: %v\n%s", err, s.out.String())
	}
	return d
}

// taskFile writes n tasks "task 0", "task 1", …; more is put into every row.
func taskFile(t *testing.T, n int, more string) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"t%d\",\"prompt\":\"task %d\"%s}\n", i, i, more)
	}
	return write(t, "tasks.jsonl", b.String())
}

// rowsIn reads a dataset whole, by task id; two rows of one episode fail the test.
func rowsIn(t *testing.T, dir string) map[string]*storage.Row {
	t.Helper()
	run, err := storage.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]*storage.Row{}
	for row, err := range run.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("%s/%d", row.TaskID, row.SampleIndex)
		if rows[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		rows[key] = row
	}
	return rows
}

// userText is the last user message of a request.
func userText(r *mock.Request) string {
	var messages []struct{ Role, Content string }
	if err := json.Unmarshal(r.Field("messages"), &messages); err != nil {
		return ""
	}
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == "user" {
			return messages[i].Content
		}
	}
	return ""
}

// answering is a mock that gives every task the same answer after a while.
func answering(t *testing.T, after time.Duration) *mock.Server {
	return mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if after > 0 && !w.Delay(after) {
			return
		}
		mock.Text("#### 7").Send(r, w)
	}})
}

func newRunDir(t *testing.T) string { return filepath.Join(t.TempDir(), "run") }
