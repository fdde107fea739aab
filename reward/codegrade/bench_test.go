//go:build linux && (amd64 || arm64)

package codegrade

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/ns"
	"tranche/episode"
	"tranche/reward"
)

func TestMain(m *testing.M) {
	ns.Init()
	os.Exit(m.Run())
}

// backEnd opens one back end for a test; a machine that cannot have one skips it.
func backEnd(t testing.TB) func(context.Context) (sandbox.Executor, error) {
	t.Helper()
	x, err := ns.New(ns.Config{})
	if err != nil {
		t.Skipf("no sandbox can be opened on this machine: %v", err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return func(context.Context) (sandbox.Executor, error) { return x, nil }
}

// small is a sandbox of modest size.
func small() sandbox.Spec {
	return sandbox.Spec{Limits: sandbox.Limits{Memory: 256 << 20, Pids: 16, Disk: 16 << 20, FileSize: 8 << 20}}
}

func newGrader(t testing.TB, o Options) *Grader {
	t.Helper()
	g, err := New(backEnd(t), small(), o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// task makes a task of a row's columns; truth is its ground truth, "" = none.
func task(id string, columns map[string]any, truth string) *episode.Task {
	extra, err := json.Marshal(columns)
	if err != nil {
		panic(err)
	}
	t := &episode.Task{ID: id, Extra: extra}
	if truth != "" {
		t.Answer = &truth
	}
	return t
}

// judge asks again where that may help, as the Scorer does.
func (g *Grader) judge(t *episode.Task, answer string) (f reward.Finding, err error) {
	for range 3 {
		f, err = g.Grade(context.Background(), reward.Input{Task: t, Text: answer, Said: answer != ""})
		var u *reward.Unjudged
		if !errors.As(err, &u) || !u.Retry {
			break
		}
	}
	return f, err
}

// question is an answer to a task, and the score that it has to get.
type question struct {
	name   string
	task   *episode.Task
	answer string
	want   float64
	waits  bool // it goes on until a time is up: a machine that is too busy may give no verdict
}

// settle judges all and tells what got another score.
func (g *Grader) settle(t *testing.T, list []question, workers int) []reward.Finding {
	t.Helper()
	found := make([]reward.Finding, len(list))
	next := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range next {
				f, err := g.judge(list[i].task, list[i].answer)
				if list[i].waits && reason(err) == SandboxFailed && busy() {
					t.Logf("%s: no verdict, on a busy machine: %v", list[i].name, err)
				} else if err != nil {
					t.Errorf("%s: no verdict: %v", list[i].name, err)
				} else if f.Score != list[i].want {
					t.Errorf("%s: score %v, want %v: %s", list[i].name, f.Score, list[i].want, f.Evidence)
				}
				found[i] = f
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	all.Wait()
	return found
}

// busy tells whether this machine gives somebody who works less than three quarters of the time: only then a sandbox may be too slow to tell.
func busy() bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const probe = 300 * time.Millisecond
	began, used := time.Now(), threadCPU()
	for time.Since(began) < probe { // it works
	}
	return threadCPU()-used < probe*3/4
}

// threadCPU is the CPU time of the calling thread.
func threadCPU() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func score(f reward.Finding, part string) float64 {
	for _, p := range f.Parts {
		if p.Name == part && p.Score != nil {
			return *p.Score
		}
	}
	return -1
}

func reason(err error) string {
	var u *reward.Unjudged
	if errors.As(err, &u) {
		return u.Reason
	}
	return ""
}
