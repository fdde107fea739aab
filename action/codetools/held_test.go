//go:build linux

package codetools

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/plain"
	"tranche/episode"
)

// Loops that a call leaves in the background stand still until the next call, which holds a run token again, and are counted.
func TestLoopsAreHeldBetweenCalls(t *testing.T) {
	b := newBench(t, Config{}, nil)
	e := anEpisode("e")
	defer b.set.End(e)
	const loops = 20
	o := b.do(e, code("python", fmt.Sprintf(`import os, time
def count(i):
    n = 0
    while True:
        n += 1
        with open("new%%d" %% i, "w") as f:
            f.write(str(n))
        os.rename("new%%d" %% i, "f%%d" %% i)
        time.sleep(0.02)
for i in range(1, %d + 1):
    if os.fork() == 0:
        count(i)
while not all(os.path.exists("f%%d" %% i) for i in range(1, %d + 1)):
    time.sleep(0.01)`, loops, loops)))[0]
	if o.Status != episode.ActionOK || o.Footprint == nil || o.Footprint.LeftBehind < loops {
		t.Fatalf("%s %q, %+v", o.Status, o.Text, o.Footprint)
	}
	counts := func() (all string) {
		t.Helper()
		for i := range loops {
			f, err := b.desk.room("e").box.Get(context.Background(), fmt.Sprint("f", i+1), 100)
			if err != nil {
				t.Fatal(err)
			}
			all += string(f.Data) + " "
		}
		return all
	}
	for range 2 {
		before := counts()
		time.Sleep(200 * time.Millisecond)
		if now := counts(); now != before {
			t.Errorf("between calls they went from %q to %q", before, now)
		}
		if o := b.do(e, code("read_file", "f1"))[0]; o.Status != episode.ActionOK || counts() != before {
			t.Errorf("reading a file let them go on: %s %q", o.Status, o.Text)
		}
		if o := b.do(e, code("bash", "was=$(cat f1); while [ $(cat f1) = $was ]; do sleep 0.01; done"))[0]; o.Status != episode.ActionOK || counts() == before {
			t.Errorf("they do not go on while a call runs: %s %q", o.Status, o.Text)
		}
	}
}

// restless is a back end whose sandboxes cannot be held any more once they were told so.
type restless struct {
	sandbox.Executor
	box *restlessBox // the last that was opened
}

type restlessBox struct {
	sandbox.Sandbox
	sandbox.Pauser
	fails, closed bool
}

func (x *restless) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	b, err := x.Executor.Open(ctx, spec)
	if err != nil {
		return nil, err
	}
	x.box = &restlessBox{Sandbox: b, Pauser: b.(sandbox.Pauser)}
	return x.box, nil
}

func (b *restlessBox) Pause(ctx context.Context) (others int, err error) {
	others, err = b.Pauser.Pause(ctx)
	if b.fails {
		err = errors.Join(err, errors.New("a loop goes on"))
	}
	return others, err
}

func (b *restlessBox) Close() error {
	b.closed = true
	return b.Sandbox.Close()
}

// What cannot be held between two calls is ended, and both calls say so.
func TestWhatCannotBeHeldIsEnded(t *testing.T) {
	inner, err := plain.New(plain.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	x := &restless{Executor: inner}
	b := newBench(t, Config{}, func() (sandbox.Executor, error) { return x, nil })
	e := anEpisode("e")
	defer b.set.End(e)
	if o := b.do(e, code("bash", "true"))[0]; o.Status != episode.ActionOK || x.box.closed {
		t.Fatalf("%s %q", o.Status, o.Text)
	}
	x.box.fails = true
	for _, u := range []use{code("bash", "true"), code("bash", "true"), code("read_file", "f")} {
		if o := b.do(e, u)[0]; o.Status != episode.ActionHarness || o.Fault == nil {
			t.Errorf("%v: %s %q, %v", u, o.Status, o.Text, o.Fault)
		}
		if !x.box.closed {
			t.Error("the sandbox is open")
		}
	}
}

// What a call waited for and needed is told apart from what it took.
func TestFootprint(t *testing.T) {
	b := newBench(t, Config{Runs: 1}, nil)
	one, two := anEpisode("one"), anEpisode("two")
	defer b.set.End(one)
	defer b.set.End(two)
	first := b.do(one, code("python", "1"))[0].Footprint
	if first == nil || first.Setup <= 0 || first.Queue < 0 || first.Queue > first.Setup {
		t.Fatalf("the first call: %+v", first)
	}
	second := b.do(one, file("f", "x"))[0].Footprint
	if second == nil || second.Setup > first.Setup || second.LeftBehind != 0 {
		t.Errorf("writing a file: %+v after %+v", second, first)
	}
	slow := make(chan episode.Observation)
	go func() { slow <- b.do(one, code("python", "import time; open('on', 'w'); time.sleep(0.4)"))[0] }() // ends with its call
	for {                                                                                                 // until it has the only run token
		if _, err := b.desk.room("one").box.Get(context.Background(), "on", 1); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	waited := b.do(two, code("bash", "true"))[0].Footprint
	if o := <-slow; waited == nil || waited.Queue < 100*time.Millisecond || o.Status != episode.ActionOK {
		t.Errorf("behind a slow call: %+v; that: %s %q", waited, o.Status, o.Text)
	}
	lost := b.do(one, code("bash", "sleep 100 & exit 3"))[0].Footprint
	if lost == nil || lost.LeftBehind != 1 {
		t.Errorf("a session that ended: %+v", lost)
	}
}

// With `once` each python call is a program of its own: it has the modules and the files, and nothing else of the calls before.
func TestPythonCallsThatAreProgramsOfTheirOwn(t *testing.T) {
	b := newBench(t, Config{Once: true, Modules: []string{"json"}, Wall: 2 * time.Second, Grace: time.Second}, nil)
	e := anEpisode("e")
	defer b.set.End(e)
	for _, c := range []struct {
		use    use
		status string
		text   string // a part of it
		exit   int32  // -1 = none
	}{
		{code("python", "x = 1\nopen('f', 'w').write('kept')\nprint('done')\n2"), "ok", "done\n", 0},
		{code("python", "print('x' in dir(), open('f').read())\nimport sys; print('json' in sys.modules)"), "ok", "False kept\nTrue\n", 0},
		{code("bash", "cat f"), "ok", "kept", 0},
		{code("python", "1/0"), "error", "ZeroDivisionError", 1},
		{code("python", "exit(3)"), "error", "error: exit code 3", 3},
		{code("python", "import os; os.kill(os.getpid(), 11)"), "error", "error: the program was ended by signal 11", -1},
		{code("python", "print('in', flush=True)\nwhile True: pass"), "timeout", "error: it was stopped after 2s, the time limit of one call", -1},
		{code("python", "import os; os.kill(os.getppid(), 9)\nimport time; time.sleep(60)"), "error", "ended by signal 9", -1},
		{code("python", "print('on again')"), "ok", "on again\n", 0},
	} {
		o := b.do(e, c.use)[0]
		if o.Status != c.status || !strings.Contains(o.Text, c.text) || strings.Contains(o.Text, "state") {
			t.Errorf("%v: %s %q, want %s %q", c.use, o.Status, o.Text, c.status, c.text)
		}
		if (o.ExitCode == nil) != (c.exit == -1) || o.ExitCode != nil && *o.ExitCode != c.exit {
			t.Errorf("%v: exit code %v, want %d", c.use, o.ExitCode, c.exit)
		}
	}
}

// What a program leaves is found without a copy of it in this process: it may be as large as the disk that the program has.
func TestLargeFilesAreFoundAndNotCopied(t *testing.T) {
	b := newBench(t, Config{Once: true, Spec: sandbox.Spec{Limits: sandbox.Limits{FileSize: 256 << 20}}}, nil)
	e := anEpisode("e")
	defer b.set.End(e)
	if o := b.do(e, code("python", "print(1)"))[0]; o.Text != "1\n" || b.desk.keeps("e") {
		t.Fatalf("%q; it keeps something: %v", o.Text, b.desk.keeps("e"))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o := b.do(e, code("python", "open('f', 'w').truncate(200 << 20)\nprint(2)"))[0]
	runtime.ReadMemStats(&after)
	if o.Text != "2\n" || !b.desk.keeps("e") {
		t.Errorf("%q; it keeps something: %v", o.Text, b.desk.keeps("e"))
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("%d MiB were allocated", took>>20)
	}
}

// A process with threads cannot be forked: modules that start some are refused before anything runs.
func TestModulesWithThreadsAreNotForked(t *testing.T) {
	b := newBench(t, Config{Once: true, Modules: []string{"threaded"}}, nil)
	e := anEpisode("e")
	defer b.set.End(e)
	b.do(e, file("threaded.py", "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"))
	o := b.do(e, code("python", "print(1)"))[0]
	if o.Status != episode.ActionError || !strings.Contains(o.Text, "a process with threads cannot be forked") {
		t.Errorf("%s %q", o.Status, o.Text)
	}
}

// BenchmarkPython compares a call of a session, one that is a program of its own, and the start of such a program without anything before.
func BenchmarkPython(b *testing.B) {
	call := code("python", "import json, decimal, datetime; print(1)")
	for _, c := range []struct {
		name string
		cfg  Config
		use  use
	}{
		{"session", Config{Modules: []string{"json", "decimal", "datetime"}}, call},
		{"once", Config{Once: true, Modules: []string{"json", "decimal", "datetime"}}, call},
		{"start", Config{}, code("bash", "python3 -c 'import json, decimal, datetime; print(1)'")},
	} {
		b.Run(c.name, func(b *testing.B) {
			set := newBench(b, c.cfg, nil)
			e := anEpisode("e")
			defer set.set.End(e)
			set.do(e, c.use)
			for b.Loop() {
				if o := set.do(e, c.use)[0]; o.Text != "1\n" {
					b.Fatal(o.Text)
				}
			}
		})
	}
}
