// Package sessiontest is the one suite of tests for sessions and zygotes, run over every back end that can hold them.
package sessiontest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/session"
)

// Run runs the suite. open returns a clean sandbox, which the suite closes.
func Run(t *testing.T, open func(t *testing.T) sandbox.Sandbox) {
	s := suite{open}
	for _, c := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"python keeps state", s.pythonState}, {"python output", s.pythonOutput}, {"python errors", s.pythonErrors}, {"python streams", s.pythonStreams},
		{"python is not fooled", s.pythonForgery}, {"python ends", s.pythonEnds}, {"python modules", s.pythonModules},
		{"bash keeps state", s.bashState}, {"bash output", s.bashOutput}, {"bash is not fooled", s.bashForgery}, {"bash ends", s.bashEnds},
		{"interrupt keeps the session", s.interrupted}, {"what does not stop is lost", s.lost}, {"cpu limit", s.cpu}, {"canceled", s.canceled},
		{"side by side", s.sideBySide}, {"flood", s.flood}, {"zygote", s.zygote}, {"zygote limits", s.zygoteLimits},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t)
		})
	}
}

type suite struct {
	open func(t *testing.T) sandbox.Sandbox
}

// long bounds calls that should end by themselves.
const long = time.Minute

func (s suite) session(t *testing.T, opt session.Options) *session.Session {
	t.Helper()
	box := s.open(t)
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	return begin(t, box, opt)
}

func begin(t *testing.T, box sandbox.Sandbox, opt session.Options) *session.Session {
	t.Helper()
	se, err := session.New(box, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := se.Close(); err != nil {
			t.Error(err)
		}
	})
	return se
}

func do(t *testing.T, se *session.Session, code string, lim session.Limits) session.Result {
	t.Helper()
	if lim.Wall == 0 {
		lim.Wall = long
	}
	r, err := se.Do(context.Background(), code, lim)
	if err != nil {
		t.Fatalf("%q: %v", code, err)
	}
	return r
}

func printed(r session.Result) string { return string(r.Output.Head) + string(r.Output.Tail) }

// step is one call and what it must print; a want that begins with "~" is a part of it.
type step struct {
	code string
	want string
	exit int
}

func walk(t *testing.T, se *session.Session, steps []step) {
	t.Helper()
	for _, c := range steps {
		r := do(t, se, c.code, session.Limits{})
		part, loose := strings.CutPrefix(c.want, "~")
		if got := printed(r); got != c.want && !(loose && strings.Contains(got, part)) {
			t.Errorf("%q printed %q, want %q", c.code, got, c.want)
		}
		if ok := c.exit == 0; r.Exit != c.exit || ok != (r.Status == sandbox.StatusOK) || r.Lost {
			t.Errorf("%q: %s, exit %d, lost %v; want exit %d", c.code, r.Status, r.Exit, r.Lost, c.exit)
		}
	}
}

func (s suite) pythonState(t *testing.T) {
	walk(t, s.session(t, session.Options{Kind: session.Python}), []step{
		{"x = 41", "", 0},
		{"x + 1", "42\n", 0},
		{"_ + 1", "43\n", 0},
		{"def f(n):\n    return n * x\n\nclass A:\n    pass\nf(2)", "82\n", 0},
		{"import os; os.mkdir('d'); os.chdir('d'); open('f','w').write('hi')", "2\n", 0},
		{"open('f').read()", "'hi'\n", 0},
		{"import pickle; type(pickle.loads(pickle.dumps(A()))).__name__", "'A'\n", 0},
		{"__name__, [n for n in dir() if not n.startswith('__')]", "('__main__', ['A', 'f', 'os', 'pickle', 'x'])\n", 0},
		{"None", "", 0},
		{"", "", 0},
		{"# nothing", "", 0},
		{"for i in range(3): print(i)", "0\n1\n2\n", 0},
		{"'é☃'", "'é☃'\n", 0},
		{"print('\\ud800')", "\\ud800\n", 0},
	})
}

func (s suite) pythonOutput(t *testing.T) {
	walk(t, s.session(t, session.Options{Kind: session.Python}), []step{
		{"import os, subprocess, sys\nprint('a'); os.write(1, b'b\\n'); subprocess.run(['echo', 'c']); print('d', file=sys.stderr)\nos.system('echo e >&2'); print('f', end='')", "a\nb\nc\nd\ne\nf", 0},
		{"input()", "~EOFError", 1},
		{"sys.stdin.read()", "''\n", 0},
		{"import builtins; builtins.print = None", "", 0},
		{"sys.stdout.write('still\\n')", "still\n6\n", 0},
	})
}

func (s suite) pythonErrors(t *testing.T) {
	se := s.session(t, session.Options{Kind: session.Python})
	walk(t, se, []step{
		{"x = 1\ny = x / 0", "~Traceback (most recent call last):\n  File \"<call 1>\", line 2, in <module>\n    y = x / 0\n", 1},
		{"if", "~  File \"<call 2>\", line 1\n    if\n", 1},
		{"def g():\n    raise ValueError('v')\ng()", "~in g\n    raise ValueError('v')\nValueError: v\n", 1},
		{"try:\n    g()\nexcept ValueError as e:\n    raise KeyError('k') from e", "~The above exception was the direct cause", 1},
		{"def r(): r()\nr()", "~RecursionError", 1},
		{"x", "1\n", 0},
		{"class Bad:\n    def __repr__(self): raise RuntimeError('no repr')\nBad()", "~no repr", 1},
		{"import sys; sys.excepthook = None; del sys.modules['traceback'], sys.modules['linecache']", "", 0},
		{"x + 1", "2\n", 0},
	})
	if r := do(t, se, "raise KeyboardInterrupt", session.Limits{}); r.Raised != "KeyboardInterrupt" || r.Lost {
		t.Errorf("%+v", r)
	}
	if r := do(t, se, "1/0", session.Limits{}); r.Raised != "ZeroDivisionError" || strings.Contains(printed(r), "driver") {
		t.Errorf("raised %q: %s", r.Raised, printed(r))
	}
	if r := do(t, se, "raise type('E' * 9000, (Exception,), {})", session.Limits{Wall: long}); r.Raised != strings.Repeat("E", 200) {
		t.Errorf("a class of a long name: %+v", r)
	}
}

func (s suite) pythonStreams(t *testing.T) {
	walk(t, s.session(t, session.Options{Kind: session.Python}), []step{
		{"import sys, os\nsys.stdout.close()", "", 0},
		{"print('again')", "again\n", 0},
		{"os.close(1); os.close(2)", "", 0},
		{"print('and again')", "and again\n", 0},
		{"del sys.stdout, sys.stderr", "", 0},
		{"print('there')", "there\n", 0},
		{"open('random.py', 'w').write('raise SystemError'); open('traceback.py', 'w').write('raise SystemError')", "17\n", 0},
		{"1/0", "~ZeroDivisionError: division by zero", 1},
		{"if os.fork() == 0: print('child')\nelse: os.wait(); print('parent')", "child\nparent\n", 0},
		{"import threading; t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()", "thread\n", 0},
	})
}

func (s suite) pythonForgery(t *testing.T) {
	forge := `
import os
for fd in range(3, 256):
    try:
        os.write(fd, b"\n" + b"0" * 32 + b" ok 0 -\n" + b"x" * 10000)
    except OSError:
        pass
print("\n" + "0" * 32 + " ok 0 -")
1/0`
	walk(t, s.session(t, session.Options{Kind: session.Python}), []step{
		{forge, "~ZeroDivisionError", 1},
		{"'next'", "'next'\n", 0},
		{"import subprocess; subprocess.run(['sh', '-c', 'ls /proc/self/fd | wc -l'], close_fds=False)", "~4\n", 0},
	})
}

func (s suite) pythonEnds(t *testing.T) {
	se := s.session(t, session.Options{Kind: session.Python})
	for _, c := range []struct {
		code   string
		status sandbox.Status
		exit   int
		prints string
		why    string
	}{
		{"x = 1; print('bye'); exit(3)", sandbox.StatusNonzero, 3, "bye\n", "it exited with code 3"},
		{"import sys; sys.exit('message')", sandbox.StatusNonzero, 1, "message\n", "it exited with code 1"},
		{"raise SystemExit", sandbox.StatusOK, 0, "", "it exited with code 0"},
		{"import os; print('x'); os._exit(5)", sandbox.StatusNonzero, 5, "x\n", "it exited with code 5"},
		{"import os; os.kill(os.getpid(), 9)", sandbox.StatusSignaled, -1, "", "it was ended by signal 9 (signaled)"},
		{"import os; os.execvp('sh', ['sh', '-c', 'sleep 0.1; echo sh; exit 4'])", sandbox.StatusNonzero, 4, "sh\n", "it exited with code 4"},
	} {
		r := do(t, se, c.code, session.Limits{})
		if !r.Lost || r.Status != c.status || r.Exit != c.exit || printed(r) != c.prints || r.Why != c.why || se.Open() {
			t.Errorf("%q: %+v printed %q", c.code, r, printed(r))
		}
		walk(t, se, []step{{"'x' in dir()", "False\n", 0}}) // a new one
	}
	r := do(t, se, "import os; os.execvp('sleep', ['sleep', '100'])", session.Limits{Wall: time.Second / 2})
	if !r.Lost || r.Status != sandbox.StatusWallLimit {
		t.Errorf("another program in its place: %+v", r)
	}
}

func (s suite) pythonModules(t *testing.T) {
	walk(t, s.session(t, session.Options{Kind: session.Python, Modules: []string{"decimal", "json"}}), []step{
		{"import sys; 'decimal' in sys.modules, 'json' in dir()", "(True, False)\n", 0},
	})
	se := s.session(t, session.Options{Kind: session.Python, Modules: []string{"no_such_module"}})
	if _, err := se.Do(context.Background(), "1", session.Limits{}); err == nil || !strings.Contains(err.Error(), "No module named 'no_such_module'") {
		t.Errorf("a module that is not there: %v", err)
	}
}

func (s suite) bashState(t *testing.T) {
	walk(t, s.session(t, session.Options{Kind: session.Bash}), []step{
		{"x=1; mkdir d; cd d; f() { echo in f $1; }; declare -A m; m[k]=v; export E=e", "", 0},
		{"echo $x ${PWD##*/} ${m[k]}; f 2; sh -c 'echo $E'", "1 d v\nin f 2\ne\n", 0},
		{"false", "", 1},
		{"(exit 255)", "", 255},
		{"no-such-command", "~command not found", 127},
		{"if then", "~line 1: syntax error", 2},
		{"", "", 0},
		{"# nothing", "", 0},
		{"set -o pipefail; shopt -s extglob; alias a=b", "", 0},
		{"false | true", "", 1},
		{"set +o pipefail", "", 0},
		{"IFS=,; set -f", "", 0},
		{"v='a,b'; for i in $v; do echo $i; done", "a\nb\n", 0},
		{"cat <<X\nx is $x\nX", "x is 1\n", 0},
		{"for i in 1 2; do echo $i; break; done; break; echo not reached", "1\n", 0},
		{"while :; do continue 2; done", "", 0},
		{"trap 'echo trapped' USR1; kill -USR1 $$", "trapped\n", 0},
		{"echo $x", "1\n", 0},
	})
}

func (s suite) bashOutput(t *testing.T) {
	se := s.session(t, session.Options{Kind: session.Bash})
	walk(t, se, []step{
		{"echo a; echo b >&2; printf c; python3 -c 'print(\"d\")'", "a\nb\ncd\n", 0},
		{"read y; echo $?", "1\n", 0},
		{"cat", "", 0},
		{"sleep 300 & (setsid sleep 300 &) ; echo now", "now\n", 0},
		{"printf '\\377\\n'", "\xff\n", 0},
		{"set -x; echo seen; set +x", "~seen\n", 0},
	})
	if _, err := se.Do(context.Background(), "echo \x00", session.Limits{}); !errors.As(err, new(*session.InputError)) {
		t.Errorf("a zero byte: %v", err)
	}
	walk(t, se, []step{{"(sleep 0.3; echo late) & echo soon", "soon\n", 0}, {"sleep 1", "late\n", 0}})
}

func (s suite) bashForgery(t *testing.T) {
	walk(t, s.session(t, session.Options{Kind: session.Bash}), []step{
		{"echo x >&3", "~Bad file descriptor", 1},
		{"for i in {3..255}; do { printf '\\n%032d ran 0\\n' 0 >&$i; } 2>/dev/null; done; false", "~", 1},
		{"exec 3>f; echo y >&3; cat f", "y\n", 0},
		{"echo next", "next\n", 0},
		{"ls /proc/self/fd | wc -l", "~4\n", 0},
	})
}

func (s suite) bashEnds(t *testing.T) {
	se := s.session(t, session.Options{Kind: session.Bash})
	for _, c := range []struct {
		code   string
		status sandbox.Status
		exit   int
		prints string
	}{
		{"x=1; echo bye; exit 3", sandbox.StatusNonzero, 3, "bye\n"},
		{"exit", sandbox.StatusOK, 0, ""},
		{"set -e; false; echo no", sandbox.StatusNonzero, 1, ""},
		{"kill -9 $$", sandbox.StatusSignaled, -1, ""},
		{"exec sh -c 'echo sh; exit 4'", sandbox.StatusNonzero, 4, "sh\n"},
	} {
		r := do(t, se, c.code, session.Limits{})
		if !r.Lost || r.Status != c.status || r.Exit != c.exit || printed(r) != c.prints || r.Why == "" {
			t.Errorf("%q: %+v printed %q", c.code, r, printed(r))
		}
		walk(t, se, []step{{"echo ${x:-none}", "none\n", 0}})
	}
}

// A call that is interrupted ends; what the session held before is there.
func (s suite) interrupted(t *testing.T) {
	short := session.Limits{Wall: time.Second / 2}
	se := s.session(t, session.Options{Kind: session.Python, Grace: long})
	walk(t, se, []step{{"x = 1", "", 0}})
	for _, code := range []string{"import time; print('in'); time.sleep(100)", "print('in')\nwhile True: pass", "import os; print('in'); os.system('sleep 100')"} {
		if r := do(t, se, code, short); r.Lost || r.Status != sandbox.StatusWallLimit || !strings.HasPrefix(printed(r), "in\n") {
			t.Errorf("%q: %+v printed %q", code, r, printed(r))
		}
		walk(t, se, []step{{"x", "1\n", 0}})
	}
	se = s.session(t, session.Options{Kind: session.Bash, Grace: long})
	walk(t, se, []step{{"x=1; g() { while true; do sleep 1; done; }", "", 0}})
	for _, code := range []string{"echo in; sleep 100; echo no", "echo in; while :; do :; done", "echo in; while :; do sleep 1; done", "echo in; g", "echo in; sleep 100 | sleep 100"} {
		if r := do(t, se, code, short); r.Lost || r.Status != sandbox.StatusWallLimit || printed(r) != "in\n" {
			t.Errorf("%q: %+v printed %q", code, r, printed(r))
		}
		walk(t, se, []step{{"echo $x", "1\n", 0}})
	}
}

func (s suite) lost(t *testing.T) {
	lim := session.Limits{Wall: time.Second / 2}
	for kind, code := range map[session.Kind]string{
		session.Python: "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('in')\nwhile True: pass",
		session.Bash:   "trap '' INT; echo in; while :; do :; done",
	} {
		se := s.session(t, session.Options{Kind: kind, Grace: time.Second / 4})
		walk(t, se, []step{{"x=1", "", 0}})
		began := time.Now()
		r := do(t, se, code, lim)
		if took := time.Since(began); !r.Lost || r.Status != sandbox.StatusWallLimit || printed(r) != "in\n" || took > 20*time.Second {
			t.Errorf("%s: %+v printed %q after %v", kind, r, printed(r), took)
		}
		if r = do(t, se, map[session.Kind]string{session.Python: "'x' in dir()", session.Bash: "echo ${x-False}"}[kind], session.Limits{}); printed(r) != "False\n" {
			t.Errorf("%s after the loss: %q", kind, printed(r))
		}
	}
}

func (s suite) cpu(t *testing.T) {
	se := s.session(t, session.Options{Kind: session.Python, Grace: long})
	r := do(t, se, "while True: pass", session.Limits{CPU: time.Second / 5})
	if r.Status != sandbox.StatusCPULimit || r.Lost || r.Usage.CPU < time.Second/5 {
		t.Errorf("%+v", r)
	}
	if r = do(t, se, "'ok'", session.Limits{CPU: time.Second / 5}); r.Status != sandbox.StatusOK || r.Usage.CPU > time.Second/5 {
		t.Errorf("the next call: %+v", r)
	}
}

func (s suite) canceled(t *testing.T) {
	se := s.session(t, session.Options{Kind: session.Bash, Grace: long})
	walk(t, se, []step{{":", "", 0}})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second/5)
	defer cancel()
	r, err := se.Do(ctx, "echo in; sleep 100", session.Limits{})
	if err != nil || r.Status != sandbox.StatusCanceled || !r.Lost || printed(r) != "in\n" {
		t.Errorf("%+v, %v", r, err)
	}
}

// Both kinds in one sandbox share its files, and the end of one is not the other's.
func (s suite) sideBySide(t *testing.T) {
	box := s.open(t)
	t.Cleanup(func() { _ = box.Close() })
	a, b := begin(t, box, session.Options{Kind: session.Python}), begin(t, box, session.Options{Kind: session.Bash})
	walk(t, a, []step{{"open('f', 'w').write('from python')", "11\n", 0}})
	walk(t, b, []step{{"cat f; x=1", "from python", 0}})
	if r := do(t, a, "exit()", session.Limits{}); !r.Lost {
		t.Errorf("%+v", r)
	}
	walk(t, b, []step{{"echo $x", "1\n", 0}})
	walk(t, a, []step{{"2", "2\n", 0}})
}

func (s suite) flood(t *testing.T) {
	se := s.session(t, session.Options{Kind: session.Python, Keep: 1000})
	r := do(t, se, "import os\nfor i in range(160): os.write(1, b'x' * 65536)\nprint('end')", session.Limits{})
	if r.Status != sandbox.StatusOK || r.Output.Total != 160*65536+4 || len(printed(r)) != 1000 || !strings.HasSuffix(printed(r), "xend\n") {
		t.Errorf("%s, %d bytes, kept %d", r.Status, r.Output.Total, len(printed(r)))
	}
}

func (s suite) newZygote(t *testing.T, modules ...string) *session.Zygote {
	t.Helper()
	box := s.open(t)
	z := session.NewZygote(box, session.Options{Modules: modules})
	t.Cleanup(func() {
		if err := errors.Join(z.Close(), box.Close()); err != nil {
			t.Error(err)
		}
	})
	return z
}

func (s suite) zygote(t *testing.T) {
	z := s.newZygote(t, "json", "random")
	for i, c := range []struct {
		code, stdin string
		want        string
		status      sandbox.Status
		exit        int
	}{
		{"import sys; print('json' in sys.modules, __name__, 'x' in dir()); x = 1; 5", "", "True __main__ False\n", sandbox.StatusOK, 0},
		{"print('x' in dir())", "", "False\n", sandbox.StatusOK, 0},
		{"print(input(), input())", "a\nb\n", "a b\n", sandbox.StatusOK, 0},
		{"import sys; print(len(sys.stdin.read()))", strings.Repeat("x", 300_000), "300000\n", sandbox.StatusOK, 0},
		{"import sys; sys.exit(7)", "", "", sandbox.StatusNonzero, 7},
		{"1/0", "", "~ZeroDivisionError: division by zero\n", sandbox.StatusNonzero, 1},
		{"import os; os.kill(os.getpid(), 9)", "", "", sandbox.StatusSignaled, -1},
		{"import atexit; atexit.register(print, 'bye')", "", "bye\n", sandbox.StatusOK, 0},
		{"import os\nfor fd in range(3, 256):\n    try: os.write(fd, b'\\n' + b'0' * 32 + b' ran 0 0 0 0\\n'); print(fd)\n    except OSError: pass\nos._exit(3)", "", "~", sandbox.StatusNonzero, 3},
	} {
		r, err := z.Run(context.Background(), c.code, []byte(c.stdin), session.Limits{Wall: long})
		got := string(r.Stdout.Head)
		part, loose := strings.CutPrefix(c.want, "~")
		if err != nil || r.Status != c.status || r.Exit != c.exit || got != c.want && !(loose && strings.Contains(got, part)) {
			t.Errorf("run %d: %+v printed %q, %v", i, r, got, err)
		}
	}
	seen := map[string]bool{}
	for range 3 {
		r, err := z.Run(context.Background(), "import random; print(random.random())", nil, session.Limits{Wall: long})
		if err != nil || seen[string(r.Stdout.Head)] {
			t.Errorf("random numbers repeat: %v, %v", seen, err)
		}
		seen[string(r.Stdout.Head)] = true
	}
}

func (s suite) zygoteLimits(t *testing.T) {
	z := s.newZygote(t)
	ctx := context.Background()
	for name, c := range map[string]struct {
		lim  session.Limits
		want sandbox.Status
	}{
		"wall": {session.Limits{Wall: time.Second / 4}, sandbox.StatusWallLimit},
		"cpu":  {session.Limits{Wall: long, CPU: time.Second / 4}, sandbox.StatusCPULimit},
	} {
		r, err := z.Run(ctx, "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('in')\nwhile True: pass", nil, c.lim)
		if err != nil || r.Status != c.want || string(r.Stdout.Head) != "in\n" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	// One that goes into the zygote's own group is ended all the same: else it could choose to be the harness's fault.
	r, err := z.Run(ctx, "import os\nos.setpgid(0, os.getpgid(os.getppid()))\nprint('in')\nwhile True: pass", nil, session.Limits{Wall: time.Second / 2})
	if err != nil || r.Status != sandbox.StatusWallLimit {
		t.Errorf("a run in its zygote's group: %+v, %v", r, err)
	}
	r, err = z.Run(ctx, "print(1)", nil, session.Limits{Wall: long})
	if err != nil || string(r.Stdout.Head) != "1\n" {
		t.Errorf("after the limits: %+v, %v", r, err)
	}
	for _, c := range []struct {
		signal string
		wall   time.Duration
		want   sandbox.Status
	}{{"SIGKILL", long, sandbox.StatusSignaled}, {"SIGTERM", long, sandbox.StatusSignaled}, {"SIGSTOP", time.Second / 2, sandbox.StatusWallLimit}} {
		code := "import os, signal, time; os.kill(os.getppid(), signal." + c.signal + "); time.sleep(60)"
		r, err := z.Run(ctx, code, nil, session.Limits{Wall: c.wall})
		// A back end may refuse SIGSTOP, which is an error of the code's own then.
		refused := c.signal == "SIGSTOP" && r.Status == sandbox.StatusNonzero && bytes.Contains(r.Stdout.Head, []byte("PermissionError"))
		if err != nil || !refused && (r.Status != c.want || r.Exit != -1) {
			t.Errorf("a run that sends its zygote %s: %+v, %v", c.signal, r, err)
		}
		if r, err := z.Run(ctx, "print(2)", nil, session.Limits{Wall: long}); err != nil || string(r.Stdout.Head) != "2\n" {
			t.Errorf("a new zygote: %+v, %v", r, err)
		}
	}
}

// Bench measures one statement of a session, a run of a zygote and a plain start of python, per operation.
func Bench(b *testing.B, open func() (sandbox.Sandbox, error)) {
	box, err := open()
	if err != nil {
		b.Fatal(err)
	}
	defer box.Close()
	b.Run("python call", func(b *testing.B) { benchSession(b, box, session.Python, "print(1)") })
	b.Run("bash call", func(b *testing.B) { benchSession(b, box, session.Bash, "echo 1") })
	benchStarts(b, box, "json")
	b.Run("more modules", func(b *testing.B) { benchStarts(b, box, "json", "re", "decimal", "asyncio") })
}

// benchStarts holds programs that are forked off a zygote with modules against those that import them.
func benchStarts(b *testing.B, box sandbox.Sandbox, modules ...string) {
	ctx := context.Background()
	b.Run("zygote run", func(b *testing.B) {
		z := session.NewZygote(box, session.Options{Modules: modules})
		defer z.Close()
		for range b.N {
			if r, err := z.Run(ctx, "print(1)", nil, session.Limits{}); err != nil || string(r.Stdout.Head) != "1\n" {
				b.Fatalf("%+v, %v", r, err)
			}
		}
	})
	b.Run("python start", func(b *testing.B) {
		for range b.N {
			p, err := box.Start(ctx, sandbox.Cmd{Args: []string{"python3", "-c", "import " + strings.Join(modules, ", ") + "; print(1)"}})
			if err != nil {
				b.Fatal(err)
			}
			if r, err := p.Wait(ctx); err != nil || string(r.Stdout.Head) != "1\n" {
				b.Fatalf("%+v, %v", r, err)
			}
		}
	})
}

func benchSession(b *testing.B, box sandbox.Sandbox, kind session.Kind, code string) {
	se, err := session.New(box, session.Options{Kind: kind})
	if err != nil {
		b.Fatal(err)
	}
	defer se.Close()
	for range b.N {
		r, err := se.Do(context.Background(), code, session.Limits{})
		if err != nil || string(r.Output.Head) != "1\n" {
			b.Fatalf("%+v, %v", r, err)
		}
	}
}
