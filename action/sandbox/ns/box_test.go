//go:build linux && (amd64 || arm64)

package ns

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

func TestFilesGoInAndOut(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	ctx := t.Context()
	big := bytes.Repeat([]byte{1, 2, 3}, mib)
	if err := b.Put(ctx, sandbox.File{Path: "a/b.py", Data: []byte("print(open('big','rb').read()[:3])")}, sandbox.File{Path: "big", Data: big, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if res := run(t, b, sandbox.Cmd{Args: []string{"python3", "a/b.py"}}); string(res.Stdout.Head) != "b'\\x01\\x02\\x03'\n" {
		t.Errorf("%+v", res)
	}
	if res := run(t, b, sandbox.Cmd{Args: sh("echo more >>a/b.py && ln -s /etc/passwd link && mkfifo pipe && chmod 0 big && ls -l a"), Dir: ""}); res.Status != sandbox.StatusOK {
		t.Errorf("%+v", res)
	}
	if f, err := b.Get(ctx, "a/b.py", mib); err != nil || !strings.HasSuffix(string(f.Data), "more\n") || f.Mode != 0o644 {
		t.Errorf("%q, %o, %v", f.Data, f.Mode, err)
	}
	var escape *sandbox.EscapeError
	var large *sandbox.TooLargeError
	var path *sandbox.PathError
	for _, c := range []struct {
		name string
		err  error
		as   any
	}{
		{"up", second(b.Get(ctx, "../etc/passwd", mib)), &escape},
		{"link", second(b.Get(ctx, "link", mib)), &escape},
		{"pipe", second(b.Get(ctx, "pipe", mib)), &path},
		{"large", second(b.Get(ctx, "a/b.py", 3)), &large},
		{"put up", b.Put(ctx, sandbox.File{Path: "../x"}), &escape},
		{"put through a link", b.Put(ctx, sandbox.File{Path: "link/x"}), &escape},
		{"a long path", second(b.Get(ctx, strings.Repeat("a", 17_000), mib)), &path},
		{"a long way up", second(b.Get(ctx, strings.Repeat("../", 2800)+"x", mib)), &path},
		{"put by a long path", b.Put(ctx, sandbox.File{Path: strings.Repeat("a", 17_000)}), &path},
		{"put a large one", b.Put(ctx, sandbox.File{Path: "x", Data: make([]byte, 9*mib)}), &large},
	} {
		if !errors.As(c.err, c.as) {
			t.Errorf("%s: %v", c.name, c.err)
		}
	}
	if _, err := b.Get(ctx, "nothing", mib); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	var full *sandbox.FullError
	var err error
	for i := range 4 {
		err = errors.Join(err, b.Put(ctx, sandbox.File{Path: fmt.Sprint("full", i), Data: make([]byte, 8*mib)}))
	}
	if !errors.As(err, &full) {
		t.Errorf("a full sandbox: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestSnapshotBranches(t *testing.T) {
	e := newExecutor(t, Config{})
	a, b := open(t, e, spec()), open(t, e, spec())
	ctx := t.Context()
	run(t, a, sandbox.Cmd{Args: sh("mkdir -p d/e; echo one >d/e/f; ln -s f d/e/l; echo two >/tmp/t; chmod 700 d")})
	s, err := a.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	run(t, a, sandbox.Cmd{Args: sh("rm -rf d; echo other >g")})
	for _, to := range []sandbox.Sandbox{b, a} {
		if err := to.Restore(ctx, s); err != nil {
			t.Fatal(err)
		}
		res := run(t, to, sandbox.Cmd{Args: sh("cat d/e/l /tmp/t; ls")})
		if string(res.Stdout.Head) != "one\ntwo\nd\n" {
			t.Errorf("%q %q", res.Stdout.Head, res.Stderr.Head)
		}
		again, err := to.Snapshot(ctx)
		if err != nil || again.Digest != s.Digest {
			t.Errorf("digest %v, %v, want %s", again, err, s.Digest)
		}
		n := int64(len(s.Tar))
		if digest, bytes, err := to.(sandbox.Digester).Digest(ctx, n); err != nil || digest != s.Digest || bytes != n {
			t.Errorf("digest alone %s of %d bytes, %v, want %s of %d", digest, bytes, err, s.Digest, n)
		}
		var large *sandbox.TooLargeError
		if _, _, err := to.(sandbox.Digester).Digest(ctx, n-1); !errors.As(err, &large) {
			t.Errorf("digest of a byte less: %v", err)
		}
	}
}

// TestNextRunIsClean leaves all kinds of things behind, and looks for them after a reset and in the next sandbox of the slot.
func TestNextRunIsClean(t *testing.T) {
	e := newExecutor(t, Config{})
	b := open(t, e, spec())
	look := sandbox.Cmd{Args: sh("find /w /tmp /dev/shm; stat -c '%a %u' /w /tmp /dev/shm; cat /proc/sysvipc/*; id -G; ulimit -n")}
	clean := run(t, b, look)
	dirt := []string{
		"touch /w/a /tmp/b /dev/shm/c", "mkdir -p $(seq -s/ 500)", "mkdir d && chmod 000 d", "chmod 000 /w", "chmod 777 /w", "chmod 000 /tmp /dev/shm",
		"head -c 15000000 /dev/zero >/tmp/big", "for i in $(seq 3000); do : >f$i; done", "mkfifo p", "setsid sleep 50 &", "ln -s /etc /w/etc",
		"python3 -c 'import ctypes; c = ctypes.CDLL(None); print(c.shmget(7, 4096, 0o1666), c.semget(8, 2, 0o1666), c.semget(9, 2, 0o1666), c.msgget(7, 0o1666))'", "python3 -c 'import os; os.setxattr(\"/w\", \"user.x\", b\"y\")'",
	}
	for _, d := range dirt {
		run(t, b, sandbox.Cmd{Args: sh(d)})
		if err := b.Reset(t.Context()); err != nil {
			t.Errorf("reset after %q: %v", d, err)
		}
		if n := countProcesses(t, b); n != 0 {
			t.Errorf("%d processes are left after %q", n, d)
		}
		if now := run(t, b, look); !bytes.Equal(now.Stdout.Head, clean.Stdout.Head) {
			t.Errorf("after %q:\n%s\nwant\n%s", d, now.Stdout.Head, clean.Stdout.Head)
		}
	}
}

// TestTwoProgramsSideBySide: the end of one program ends what it left, and nothing of the other.
func TestTwoProgramsSideBySide(t *testing.T) {
	for _, tier := range tiersHere(t) {
		e := newExecutor(t, Config{Tier: tier})
		b := open(t, e, spec())
		long, err := b.Start(t.Context(), sandbox.Cmd{Args: sh("sleep 77 & while read l; do echo got $l; done; kill $!"), Control: true, Stdin: nil})
		if err != nil {
			t.Fatal(err)
		}
		session, err := b.Start(t.Context(), sandbox.Cmd{Args: sh("sleep 78 & cat <&3; echo after; ps -ef >&2; kill %1"), Control: true})
		if err != nil {
			t.Fatal(err)
		}
		if res, err := long.Wait(t.Context()); err != nil || res.Status != sandbox.StatusOK {
			t.Errorf("%v: %+v, %v", tier, res, err)
		}
		for i := range 3 {
			res := run(t, b, sandbox.Cmd{Args: sh("sleep 79 & setsid sh -c 'sleep 79 & sleep 79' & while [ $(pgrep -c sleep) -lt 4 ]; do :; done"), CPU: 5 * time.Second})
			if res.Status != sandbox.StatusOK || res.LeftBehind < 3 {
				t.Errorf("%v run %d: %+v", tier, i, res)
			}
		}
		if _, err := fmt.Fprintln(session.Control(), "hello"); err != nil {
			t.Error(err)
		}
		session.Control().Close()
		res, err := session.Wait(t.Context())
		if err != nil || string(res.Stdout.Head) != "hello\nafter\n" || strings.Contains(string(res.Stderr.Head), "79") || !strings.Contains(string(res.Stderr.Head), "sleep 78") {
			t.Errorf("%v session: %v, %v, %q\n%s", tier, res.Status, err, res.Stdout.Head, res.Stderr.Head)
		}
	}
}

func TestControlIsAllThatIsInherited(t *testing.T) {
	planted, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer planted.Close()
	t.Setenv("SECRET", "x")
	b := open(t, newExecutor(t, Config{}), spec())
	p, err := b.Start(t.Context(), sandbox.Cmd{Args: py("import os\nprint(sorted(os.listdir('/proc/self/fd')), 'SECRET' in os.environ, flush=True)\nf = os.fdopen(3, 'rb+', 0)\nwhile l := f.readline(): f.write(l.upper())"), Control: true})
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(p.Control())
	for _, word := range []string{"one\n", "two\n"} {
		if _, err := p.Control().WriteString(word); err != nil {
			t.Fatal(err)
		}
		if got, err := r.ReadString('\n'); err != nil || got != strings.ToUpper(word) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	out, _ := p.Take()
	if string(out.Head) != "['0', '1', '2', '3', '4'] False\n" { // 4 is that of listdir
		t.Errorf("%q", out.Head)
	}
	if err := p.Interrupt(); err != nil {
		t.Error(err)
	}
	res, err := p.Wait(t.Context())
	if err != nil || !strings.Contains(string(res.Stderr.Head), "KeyboardInterrupt") {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestBackgroundGoesOnUntilReset(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	run(t, b, sandbox.Cmd{Args: sh("(sleep 0.3; echo late >late; sleep 60) & echo now"), Background: true})
	res := run(t, b, sandbox.Cmd{Args: sh("until [ -s late ]; do sleep 0.05; done; cat late"), Wall: 10 * time.Second})
	if string(res.Stdout.Head) != "late\n" {
		t.Errorf("%+v", res)
	}
	if err := b.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countProcesses(t, b); n != 0 {
		t.Errorf("%d processes after the reset", n)
	}
}

func TestResetEndsWhatRuns(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	p, err := b.Start(t.Context(), sandbox.Cmd{Args: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(t.Context()); err != nil || res.Status != sandbox.StatusSignaled {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestInitCannotBeHarmed: whatever a program does to the init of its slot, the next run is as ever.
func TestInitCannotBeHarmed(t *testing.T) {
	for _, tier := range tiersHere(t) {
		b := open(t, newExecutor(t, Config{Tier: tier}), spec())
		res := run(t, b, sandbox.Cmd{Args: py(`
import ctypes, os, resource, signal, fcntl, socket
c = ctypes.CDLL(None, use_errno=True)
tried, through = 0, []
def attempt(name, f, refused=False):
    global tried
    tried += 1
    try: f()
    except (OSError, ValueError) as e:
        if not refused or e.errno == 1: return
    through.append(name)
def syscall(nr, *args):
    def f():
        if c.syscall(nr, *args) < 0: raise OSError(ctypes.get_errno(), 'refused')
    return f
for pid in range(1, 100): # refused, whether there is such a thread or not
    for s in range(1, 65):
        attempt(f'kill {pid} {s}', lambda: os.kill(pid, s), True)
    attempt(f'tgkill {pid}', syscall(234, 1, pid, 11), True)
    attempt(f'prlimit {pid}', lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)), True)
    attempt(f'nice {pid}', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19), True)
    attempt(f'idle {pid}', lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)), True)
    attempt(f'affinity {pid}', lambda: os.sched_setaffinity(pid, {0}), True)
attempt('nice user', lambda: os.setpriority(os.PRIO_USER, 0, 19))
attempt('ptrace', syscall(101, 16, 1, 0, 0))
attempt('pidfd', lambda: signal.pidfd_send_signal(os.open('/proc/1', os.O_RDONLY), 11))
a, b = socket.socketpair()
attempt('owner', lambda: fcntl.fcntl(a.fileno(), fcntl.F_SETOWN, 1))
for f in ('mem', 'environ', 'exe', 'maps', 'fd/3', 'root/etc'):
    attempt(f, lambda: os.open('/proc/1/' + f, os.O_RDONLY))
try: os.kill(-1, 9)
except OSError: pass
print(tried, through)
`)})
		if res.Status != sandbox.StatusOK || string(res.Stdout.Head) != "6841 []\n" {
			t.Errorf("%s: %s %q\n%s", tier, res.Status, res.Stdout.Head, res.Stderr.Tail)
		}
		if res := run(t, b, sandbox.Cmd{Args: []string{"true"}}); res.Status != sandbox.StatusOK {
			t.Errorf("%s, the next run: %+v", tier, res)
		}
	}
}

// TestInitThatDiesIsAnErrorOfTheExecutor, says nothing about the program, and the pool heals.
func TestInitThatDiesIsAnErrorOfTheExecutor(t *testing.T) {
	e := newExecutor(t, Config{})
	b, err := e.Open(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.Start(t.Context(), sandbox.Cmd{Args: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	b.(*box).slot.kill()
	if res, err := p.Wait(t.Context()); err == nil {
		t.Errorf("no error, but %+v", res)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	run(t, open(t, e, spec()), sandbox.Cmd{Args: []string{"true"}})
}

// TestWarmInitThatDiedIsNotUsed: it shows at once, whether or not anybody has waited for it yet.
func TestWarmInitThatDiedIsNotUsed(t *testing.T) {
	e := newExecutor(t, Config{})
	for range 8 {
		b, err := e.Open(t.Context(), spec())
		if err != nil {
			t.Fatal(err)
		}
		init := b.(*box).slot.process.(*os.Process)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if err := init.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for ended := false; !ended; { // or was waited for already
			var info unix.Siginfo
			err := unix.Waitid(unix.P_PID, init.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
			ended = err == nil || errors.Is(err, unix.ECHILD)
		}
		run(t, open(t, e, spec()), sandbox.Cmd{Args: []string{"true"}})
	}
}

func TestInitThatIsSilentIsKilled(t *testing.T) {
	e := newExecutor(t, Config{Patience: 300 * time.Millisecond})
	b, err := e.Open(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.(*box).slot.process.(*os.Process).Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p, err := b.Start(t.Context(), sandbox.Cmd{Args: []string{"true"}})
	if err == nil {
		_, err = p.Wait(t.Context())
	}
	if err == nil || time.Since(began) > 30*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	run(t, open(t, e, spec()), sandbox.Cmd{Args: []string{"true"}})
}

// TestInitThatIsLate: a host that leaves it waiting for a processor is no fault of it, and the time before a program began is not its own.
func TestInitThatIsLate(t *testing.T) {
	const patience = 2 * time.Second
	b := open(t, newExecutor(t, Config{Patience: patience}), spec())
	init := b.(*box).slot.process.(*os.Process)
	if err := init.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for stopped := false; !stopped; { // each of its threads, or it may still begin the program
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", init.Pid))
		if err != nil {
			t.Fatal(err)
		}
		stopped = true
		for _, task := range tasks {
			text, err := os.ReadFile(task)
			stopped = stopped && err == nil && strings.Contains(string(text), ") T ")
		}
	}
	time.AfterFunc(patience+patience/4, func() { _ = init.Signal(syscall.SIGCONT) }) // an error: the run fails
	res := run(t, b, sandbox.Cmd{Args: []string{"sleep", "0.1"}, Wall: time.Second})
	if res.Status != sandbox.StatusOK || res.Setup < patience {
		t.Errorf("%+v", res)
	}
	if d := (Config{}).withDefaults().Patience; d < 30*time.Second {
		t.Errorf("by default it is lost after %v", d)
	}
}

// TestOrphansAreReaped: what has ended keeps no place among the permitted processes, while the program runs.
func TestOrphansAreReaped(t *testing.T) {
	for _, tier := range tiersHere(t) {
		b := open(t, newExecutor(t, Config{Tier: tier}), spec())
		res := run(t, b, sandbox.Cmd{Args: py(`
import os, time
def fork():
    for _ in range(2000):
        try: return os.fork()
        except BlockingIOError: time.sleep(0.01)
    os._exit(1)
for _ in range(200):
    child = fork()
    if child == 0:
        fork()
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0: os._exit(1)
`)})
		if res.Status != sandbox.StatusOK {
			t.Errorf("%s: %+v", tier, res)
		}
	}
}

// TestRootfs uses a folder as the root: one that only its owner may reach.
func TestRootfs(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	for dir, file := range map[string]string{"etc": "etc/motd", "opt/data": "opt/data/f"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), []byte("of the rootfs\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	copyProgram(t, "/bin/sh", root, "bin/sh")
	b := open(t, newExecutor(t, Config{}), sandbox.Spec{Rootfs: root, RootfsDigest: "abc"})
	res := run(t, b, sandbox.Cmd{Args: sh("read l </etc/motd; echo $l; cd /; echo *; echo no >/etc/motd; echo yes >/w/f && echo written")})
	if got := string(res.Stdout.Head); got != "of the rootfs\nbin dev etc lib lib64 opt proc tmp w\nwritten\n" || res.Rootfs != "abc" {
		t.Errorf("%+v\n%s%s", res, got, res.Stderr.Head)
	}
}

// copyProgram copies a program with the libraries it needs into a root.
func copyProgram(t *testing.T, program, root, as string) {
	t.Helper()
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Skipf("ldd %s: %v", program, err)
	}
	files := map[string]string{program: as}
	for _, f := range strings.Fields(string(out)) {
		if strings.HasPrefix(f, "/") {
			files[f] = f
		}
	}
	for from, to := range files {
		data, err := os.ReadFile(from)
		to = filepath.Join(root, to)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRequireFailsClosed(t *testing.T) {
	e := newExecutor(t, Config{Tier: sandbox.TierRlimit})
	_, err := e.Open(t.Context(), sandbox.Spec{Require: []sandbox.Promise{sandbox.PromiseMemory, sandbox.PromiseNet}})
	var require *sandbox.RequireError
	if !errors.As(err, &require) || len(require.Missing) != 1 || require.Missing[0] != sandbox.PromiseMemory || require.Why[sandbox.PromiseMemory] == "" {
		t.Errorf("%v", err)
	}
	if _, err := e.Open(t.Context(), sandbox.Spec{Require: []sandbox.Promise{"gravity"}}); err == nil {
		t.Error("a promise that nobody knows is held")
	}
}

// Only sandboxes that are built here can let programs change their root file system: another program would show it read-only in silence.
func TestLaunchedSandboxesKeepTheirRootfs(t *testing.T) {
	e, err := New(Config{Launch: &Launch{Backend: "other", Command: func(LaunchOrder) ([]string, []*os.File, error) { return nil, nil, errors.New("none") }}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := e.Open(t.Context(), sandbox.Spec{Rootfs: t.TempDir(), RootfsWritable: true}); err == nil || !strings.Contains(err.Error(), "back end other cannot let programs change a root file system") {
		t.Errorf("got %v", err)
	}
}

// TestOpenAndCloseAtOnce closes an executor while sandboxes are opened and closed: nothing panics, and nothing of them is left.
func TestOpenAndCloseAtOnce(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	opened := make(chan sandbox.Sandbox, 8)
	for range cap(opened) {
		all.Go(func() {
			b, err := e.Open(t.Context(), spec())
			if err != nil {
				if !errors.Is(err, errClosed) {
					t.Error(err)
				}
				return
			}
			opened <- b
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	first := <-opened
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-first.(*box).slot.dead:
	default:
		t.Error("the executor is closed, and a slot goes on")
	}
	all.Wait()
	if _, err := e.Open(t.Context(), spec()); !errors.Is(err, errClosed) {
		t.Errorf("open after Close: %v", err)
	}
	e.starter.do(func() { t.Error("a job after the end") })
}

// TestStartsWhileAllIsStopped: a program that stops whatever there is does not stop one that is being started, and with it the init.
func TestStartsWhileAllIsStopped(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	run(t, b, sandbox.Cmd{Background: true, Args: sh(`python3 -c "
import os
n = 0
while True:
    n += 1
    for s in (19, 20, 21, 22):
        try: os.kill(-1, s)
        except OSError: pass
" & :`)})
	for range 15 {
		if res := run(t, b, sandbox.Cmd{Args: []string{"true"}}); res.Status != sandbox.StatusOK {
			t.Errorf("%+v", res)
		}
	}
}

// TestStartWhileAnotherEnds: what a program leaves is killed, not the program that begins at that moment.
func TestStartWhileAnotherEnds(t *testing.T) {
	for _, tier := range tiersHere(t) {
		b := open(t, newExecutor(t, Config{Tier: tier}), spec())
		for i := range 30 {
			first, err := b.Start(t.Context(), sandbox.Cmd{Args: sh("sleep 60 & sleep 60 & sleep 60 & sleep 60 & :")})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(i) * 200 * time.Microsecond)
			if res := run(t, b, sandbox.Cmd{Args: sh("echo there")}); res.Status != sandbox.StatusOK || string(res.Stdout.Head) != "there\n" {
				t.Errorf("%s %d: %+v", tier, i, res)
			}
			if res, err := first.Wait(t.Context()); err != nil || res.Status != sandbox.StatusOK || res.LeftBehind > 4 {
				t.Errorf("%s %d: %+v, %v", tier, i, res, err)
			}
		}
	}
}

// TestSecondProgramIsNotChargedTheFirst: a time limit is of one program, whatever ran before it in the same sandbox.
func TestSecondProgramIsNotChargedTheFirst(t *testing.T) {
	burn := py("import time\nwhile time.process_time() < 0.4: pass")
	for _, tier := range tiersHere(t) {
		b := open(t, newExecutor(t, Config{Tier: tier}), spec())
		run(t, b, sandbox.Cmd{Args: burn})
		for range 2 {
			p, err := b.Start(t.Context(), sandbox.Cmd{Args: []string{"sleep", "0.1"}, CPU: 300 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if u := p.Usage(); u.CPU > 200*time.Millisecond {
				t.Errorf("%s: it has used %v at its start", tier, u.CPU)
			}
			if res, err := p.Wait(t.Context()); err != nil || res.Status != sandbox.StatusOK {
				t.Errorf("%s: %+v, %v", tier, res, err)
			}
		}
	}
}

// TestKillsForMemoryAreWhose: a program beside one that the kernel kills for memory has nothing to do with it.
func TestKillsForMemoryAreWhose(t *testing.T) {
	e := newExecutor(t, Config{})
	if e.can.Tier == sandbox.TierRlimit {
		t.Skip("nothing counts kills here")
	}
	b := open(t, e, spec())
	first, err := b.Start(t.Context(), sandbox.Cmd{Args: sh("read l <&3; echo $l"), Control: true})
	if err != nil {
		t.Fatal(err)
	}
	if res := run(t, b, sandbox.Cmd{Args: py("b = bytearray(500 << 20)")}); res.Status != sandbox.StatusMemoryLimit || res.Usage.OOMKills != 1 {
		t.Errorf("%+v", res)
	}
	if _, err := fmt.Fprintln(first.Control(), "on"); err != nil {
		t.Error(err)
	}
	if res, err := first.Wait(t.Context()); err != nil || res.Status != sandbox.StatusOK || res.Usage.OOMKills != 0 || string(res.Stdout.Head) != "on\n" {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestStuckSlotIsGivenUp: an init that does not go away, as one whose process the kernel holds, makes nobody wait for ever.
func TestStuckSlotIsGivenUp(t *testing.T) {
	e := newExecutor(t, Config{})
	s := &slot{number: 7, patience: 10 * time.Millisecond, dead: make(chan struct{}), stuck: make(chan struct{}), process: &os.Process{Pid: -1}}
	if err := e.discard(s); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("%v", err)
	}
	if slices.Contains(e.numbers, 7) {
		t.Error("the number of a slot that is still there is used again")
	}
}

// TestSparseFilesDoNotFillTheHost: a snapshot is bounded by what a sandbox may hold, not by what its files say.
func TestSparseFilesDoNotFillTheHost(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	run(t, b, sandbox.Cmd{Args: sh("for i in 1 2 3 4 5 6; do truncate -s 8388608 /w/$i; done")})
	var large *sandbox.TooLargeError
	if s, err := b.Snapshot(t.Context()); !errors.As(err, &large) {
		t.Errorf("%v, %v", s != nil, err)
	}
}

// TestInitKeepsNothingOfTheHost: what a careless host has open without close-on-exec is closed.
func TestInitKeepsNothingOfTheHost(t *testing.T) {
	if !privileged() {
		t.Skip("not root: nobody may look at an init")
	}
	fd, err := syscall.Open("/etc/passwd", syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	b := open(t, newExecutor(t, Config{}), spec())
	folder := fmt.Sprintf("/proc/%d/fd", b.(*box).slot.process.(*os.Process).Pid)
	names, err := os.ReadDir(folder)
	if err != nil || len(names) == 0 {
		t.Fatalf("%d descriptors, %v", len(names), err)
	}
	for _, n := range names {
		if to, err := os.Readlink(filepath.Join(folder, n.Name())); err == nil && to == "/etc/passwd" {
			t.Errorf("the init has %s as %s", to, n.Name())
		}
	}
}

func TestOpenWaitsForRoom(t *testing.T) {
	e := newExecutor(t, Config{MaxOpen: 1})
	first, err := e.Open(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := e.Open(ctx, spec()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	asked := time.Now()
	var room time.Time
	time.AfterFunc(100*time.Millisecond, func() { room = time.Now(); first.Close() })
	b := open(t, e, spec()) // after Close, which knows when there was room
	if res := run(t, b, sandbox.Cmd{Args: []string{"true"}}); res.Queue < room.Sub(asked)/2 {
		t.Errorf("queued for %v, and there was room after %v", res.Queue, room.Sub(asked))
	}
}

func TestSocketsOfFewKinds(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	res := run(t, b, sandbox.Cmd{Args: py(`
import errno, socket
for family, kind, protocol in ((1, 1, 0), (2, 1, 0), (2, 1, 6), (10, 2, 17), (2, 1, 132), (2, 1, 262), (16, 3, 0), (17, 3, 3), (40, 1, 0), (31, 1, 0), (0, 1, 0)):
    try: socket.socket(family, kind, protocol); print('ok')
    except OSError as e: print(errno.errorcode[e.errno])
server = socket.create_server(('127.0.0.1', 8080))
client = socket.create_connection(('127.0.0.1', 8080)); client.sendall(b'x')
print(server.accept()[0].recv(1))
`)})
	want := "ok\nok\nok\nok\n" + strings.Repeat("EPROTONOSUPPORT\n", 2) + strings.Repeat("EAFNOSUPPORT\n", 5) + "b'x'\n"
	if string(res.Stdout.Head) != want {
		t.Errorf("%s\nwant\n%s%s", res.Stdout.Head, want, res.Stderr.Head)
	}
}

// TestPidsLimitIsExact: as many processes as the limit says, whoever the init is.
func TestPidsLimitIsExact(t *testing.T) {
	for _, tier := range tiersHere(t) {
		b := open(t, newExecutor(t, Config{Tier: tier}), spec())
		for range 2 {
			res := run(t, b, sandbox.Cmd{Args: py("import os, time\nn = 1\ntry:\n while True:\n  if os.fork() == 0: time.sleep(60)\n  n += 1\nexcept BlockingIOError: print(n)")})
			if got := strings.TrimSpace(string(res.Stdout.Head)); got != "32" || res.LeftBehind != 31 {
				t.Errorf("%s: %s processes, %d left behind, %s", tier, got, res.LeftBehind, res.Status)
			}
		}
	}
}

// BenchmarkOpenAtOnce opens many sandboxes and tells what each takes of the host's memory, kernel's included.
func BenchmarkOpenAtOnce(b *testing.B) {
	const most = 1000
	e := newExecutor(b, Config{MaxIdle: -1})
	before := available(b)
	n := 0
	for b.Loop() {
		if n == most {
			b.Fatalf("%d are enough: -benchtime %dx", most, most)
		}
		n++
		open(b, e, sandbox.Spec{})
	}
	b.ReportMetric(float64(before-available(b))/float64(n)/1024, "KiB/slot")
}

// available is how many bytes of memory the host has left.
func available(b *testing.B) int64 {
	b.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "MemAvailable:")
	var n int64
	if _, err := fmt.Sscan(rest, &n); err != nil {
		b.Fatal(err)
	}
	return n << 10
}

// What a program is said to have used at most is its own, not what the init had that it was forked from.
func TestPeakMemoryIsTheProgramsOwn(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	small := run(t, b, sandbox.Cmd{Args: []string{"true"}})
	if !strings.HasPrefix(string(small.Tier), "cgroup") {
		t.Skipf("tier %s: nothing tells the memory of what the init begins with from a program's", small.Tier)
	}
	if peak := small.Usage.PeakMemory; peak <= 0 || peak > 16*mib {
		t.Errorf("true used %d bytes at most", peak)
	}
	if large := run(t, b, sandbox.Cmd{Args: []string{"python3", "-c", "bytearray(100 << 20)"}}); large.Usage.PeakMemory < 100*mib {
		t.Errorf("100 MiB and more are told as %d bytes", large.Usage.PeakMemory)
	}
}
