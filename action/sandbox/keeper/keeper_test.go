//go:build linux

package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

func TestMain(m *testing.M) {
	Init()
	goleak.VerifyTestMain(m)
}

// trusting is a back end without confinement.
func trusting(dir string) (*Executor, error) {
	can := sandbox.Capabilities{Backend: "plain", Tier: sandbox.TierNone, Promises: map[sandbox.Promise]sandbox.Strength{}, Why: map[sandbox.Promise]string{}}
	for _, p := range []sandbox.Promise{sandbox.PromiseMemory, sandbox.PromisePids, sandbox.PromiseNet, sandbox.PromiseFiles, sandbox.PromiseDisk, sandbox.PromiseSyscalls} {
		can.Promises[p], can.Why[p] = sandbox.Absent, "plain runs programs without isolation"
	}
	for _, p := range []sandbox.Promise{sandbox.PromiseCPU, sandbox.PromiseKill} {
		can.Promises[p], can.Why[p] = sandbox.BestEffort, "as far as is seen"
	}
	can.Promises[sandbox.PromiseSnapshot] = sandbox.Enforced
	return New(dir, Kind{Can: can, Trusted: true})
}

func open(t *testing.T) sandbox.Sandbox {
	t.Helper()
	x, err := trusting(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(x.dir); len(left) != 0 {
			t.Errorf("left in the folder of work folders: %v", left)
		}
	})
	b, err := x.Open(context.Background(), sandbox.Spec{Trusted: true})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func start(t *testing.T, b sandbox.Sandbox, cmd sandbox.Cmd) sandbox.Process {
	t.Helper()
	p, err := b.Start(context.Background(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func run(t *testing.T, b sandbox.Sandbox, cmd sandbox.Cmd) sandbox.Result {
	t.Helper()
	r, err := start(t, b, cmd).Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sh(script string) sandbox.Cmd { return sandbox.Cmd{Args: []string{"sh", "-c", script}} }

// alive tells whether a process that wrote its number into a file of the work folder goes on.
func alive(t *testing.T, b sandbox.Sandbox, file string) bool {
	t.Helper()
	var f sandbox.File
	for range 6000 { // a minute
		if f, _ = b.Get(context.Background(), file, 20); len(f.Data) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(f.Data)))
	if err != nil {
		t.Fatalf("no process wrote its number: %v", err)
	}
	r, lives := look(pid)
	return lives && r.pid == pid
}

func TestStatuses(t *testing.T) {
	b := open(t)
	if err := b.Put(context.Background(), sandbox.File{Path: "text", Data: []byte("no program"), Mode: 0o755}, sandbox.File{Path: "bits", Data: []byte("#!/bin/sh\n")}); err != nil {
		t.Fatal(err)
	}
	second := time.Second
	for _, c := range []struct {
		name string
		cmd  sandbox.Cmd
		want sandbox.Status
		exit int
	}{
		{"ok", sh("exit 0"), sandbox.StatusOK, 0},
		{"exit code", sh("exit 255"), sandbox.StatusNonzero, 255},
		{"SIGKILL by itself", sh("kill -9 $$"), sandbox.StatusSignaled, -1},
		{"no such program", sandbox.Cmd{Args: []string{"no-such-program"}}, sandbox.StatusNotFound, -1},
		{"no program", sandbox.Cmd{Args: []string{"./text"}}, sandbox.StatusNotFound, -1},
		{"not executable", sandbox.Cmd{Args: []string{"./bits"}}, sandbox.StatusNotFound, -1},
		{"wall", sandbox.Cmd{Args: []string{"sleep", "60"}, Wall: second / 5}, sandbox.StatusWallLimit, -1},
		{"wall, signals ignored", sandbox.Cmd{Args: []string{"sh", "-c", "trap '' INT TERM HUP; sleep 60 & sleep 60"}, Wall: second / 5}, sandbox.StatusWallLimit, -1},
		{"cpu", sandbox.Cmd{Args: []string{"sh", "-c", "while :; do :; done"}, CPU: second / 5, Wall: 60 * second}, sandbox.StatusCPULimit, -1},
		{"cpu of children", sandbox.Cmd{Args: []string{"sh", "-c", "for i in 1 2 3 4; do (while :; do :; done)& done; wait"}, CPU: second / 5, Wall: 60 * second}, sandbox.StatusCPULimit, -1},
		{"output", sandbox.Cmd{Args: []string{"sh", "-c", "while :; do echo xxxxxxxxxxxxxxx; done"}, OutputLimit: 1 << 16}, sandbox.StatusOutputLimit, -1},
		{"file size", sandbox.Cmd{Args: []string{"dd", "if=/dev/zero", "of=big", "bs=1M", "count=200"}}, sandbox.StatusFileLimit, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, b, c.cmd)
			if r.Status != c.want || r.Exit != c.exit || !r.Trusted || r.Tier != sandbox.TierNone {
				t.Errorf("got %+v, want %s with exit code %d", r, c.want, c.exit)
			}
		})
	}
}

// Case SB-o1: a child that holds the output and outlives its parent delays nothing and does not live on.
func TestCaseSBo1TimeoutKillsTheTree(t *testing.T) {
	b := open(t)
	began := time.Now()
	r := run(t, b, sandbox.Cmd{Args: []string{"sh", "-c", "sleep 300 & echo $! > child; echo hi; sleep 300"}, Wall: time.Second})
	if took := time.Since(began); r.Status != sandbox.StatusWallLimit || string(r.Stdout.Head) != "hi\n" || took > time.Minute {
		t.Errorf("%+v after %v", r, took)
	}
	if alive(t, b, "child") {
		t.Error("the child lives")
	}
}

// Case SB-o2: what a program prints is counted, not stored.
func TestCaseSBo2FloodIsCounted(t *testing.T) {
	size := 1 << 30
	if testing.Short() {
		size = 64 << 20
	}
	b := open(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := run(t, b, sandbox.Cmd{Args: []string{"head", "-c", strconv.Itoa(size), "/dev/zero"}, Keep: 1 << 20})
	runtime.ReadMemStats(&after)
	if r.Status != sandbox.StatusOK || r.Stdout.Total != int64(size) || len(r.Stdout.Head)+len(r.Stdout.Tail) != 1<<20 {
		t.Errorf("%s, %d bytes of which %d + %d are kept", r.Status, r.Stdout.Total, len(r.Stdout.Head), len(r.Stdout.Tail))
	}
	if grown := int64(after.Sys) - int64(before.Sys); grown > 50<<20 {
		t.Errorf("memory grew by %d bytes", grown)
	}
}

// A process that left its session, its group and its parents is still of the program.
func TestNothingIsLeftBehind(t *testing.T) {
	b := open(t)
	began := time.Now()
	r := run(t, b, sh("(setsid sh -c 'echo $$ > far; exec sleep 300' &) ; while ! [ -s far ]; do sleep 0.01; done; echo done"))
	if r.Status != sandbox.StatusOK || r.LeftBehind != 1 || string(r.Stdout.Head) != "done\n" || time.Since(began) > time.Minute {
		t.Errorf("%+v", r)
	}
	if alive(t, b, "far") {
		t.Error("it lives")
	}
}

func TestForkBombEnds(t *testing.T) {
	b := open(t)
	r := run(t, b, sandbox.Cmd{Args: []string{"sh", "-c", "i=0; while [ $i -lt 60 ]; do (sleep 300 & sleep 300) & i=$((i+1)); done; wait"}, Wall: 2 * time.Second})
	if r.Status != sandbox.StatusWallLimit || r.LeftBehind < 10 {
		t.Errorf("%s, %d left behind", r.Status, r.LeftBehind)
	}
}

func TestBackgroundGoesOnUntilReset(t *testing.T) {
	b := open(t)
	r := run(t, b, sandbox.Cmd{Args: []string{"sh", "-c", "sleep 300 & echo $! > child"}, Background: true})
	if r.Status != sandbox.StatusOK || r.LeftBehind != 1 || !alive(t, b, "child") {
		t.Errorf("%+v", r)
	}
	f, _ := b.Get(context.Background(), "child", 10)
	if err := b.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(f.Data)))
	if _, lives := look(pid); lives {
		t.Error("it lives after Reset")
	}
	if _, err := b.Get(context.Background(), "child", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there after Reset: %v", err)
	}
}

// What a program left in the background is held though the program itself has ended, and counted without it.
func TestPauseHoldsWhatWasLeft(t *testing.T) {
	b := open(t)
	pauser := b.(sandbox.Pauser)
	if n, err := pauser.Pause(t.Context()); n != 0 || err != nil {
		t.Errorf("an empty sandbox: %d are held, %v", n, err)
	}
	run(t, b, sandbox.Cmd{Args: sh("while :; do :; done & echo $! > loop; sleep 300 &").Args, Background: true})
	file, err := b.Get(t.Context(), "loop", 20)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(file.Data)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n, err := pauser.Pause(t.Context()); n != 2 || err != nil {
			t.Errorf("%d are held, %v; want 2", n, err)
		}
		if r, alive := look(pid); !alive || !r.stopped {
			t.Errorf("the loop: alive %v, %+v", alive, r)
		}
	}
	if err := pauser.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if r, alive := look(pid); alive && !r.stopped {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the loop does not go on")
		}
	}
}

// Who cannot stop all says so.
func TestPauseThatDoesNotHoldIsAnError(t *testing.T) {
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	p := &process{box: open(t).(*box), cmd: sh("true"), link: ours, paused: make(chan report, 1), gone: make(chan struct{})}
	go func() { // ends with the command, or with the descriptor
		var c command
		if json.NewDecoder(theirs).Decode(&c) == nil {
			p.paused <- report{Kind: "paused", Left: 3, Going: 2}
		}
	}()
	if n, err := p.pause(t.Context()); n != 3 || err == nil || !strings.Contains(err.Error(), "2 processes go on") {
		t.Errorf("%d are held, %v", n, err)
	}
	for _, c := range []struct {
		r          relative
		told, goes bool
	}{
		{relative{}, false, true}, {relative{}, true, true}, {relative{stopped: true}, false, false}, {relative{stopped: true}, true, false},
		{relative{blocked: true}, false, true}, {relative{blocked: true}, true, false},
	} {
		if c.r.goes(c.told) != c.goes {
			t.Errorf("%+v, told: %v: goes is not %v", c.r, c.told, c.goes)
		}
	}
}

func TestCancelKills(t *testing.T) {
	b := open(t)
	p := start(t, b, sh("sleep 300 & echo $! > child; wait"))
	alive(t, b, "child")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, err := p.Wait(ctx)
	if err != nil || r.Status != sandbox.StatusCanceled || alive(t, b, "child") {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	b := open(t)
	p := start(t, b, sandbox.Cmd{Args: []string{"sleep", "300"}})
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Wait(context.Background()); err != nil || r.Status != sandbox.StatusCanceled {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := b.Start(context.Background(), sh("true")); err == nil {
		t.Error("a closed sandbox runs programs")
	}
}

// A keeper whose host is gone ends all that it keeps: here the host is this test, which lets go of the link.
func TestHostGoneEndsAll(t *testing.T) {
	b := open(t)
	p := start(t, b, sh("sleep 300 & echo $! > child; wait")).(*process)
	alive(t, b, "child")
	conn, err := p.link.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(context.Background()); err != nil {
		t.Log(err)
	}
	if alive(t, b, "child") {
		t.Error("it lives")
	}
}

func TestProgramGetsWhatWasNamed(t *testing.T) {
	t.Setenv("TRANCHE_SECRET", "x")
	extra, err := os.Open("/dev/null") // and one more that is inherited by whoever forgets
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	if _, err := unix.FcntlInt(extra.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	b := open(t)
	if err := b.Put(context.Background(), sandbox.File{Path: "sub/x"}); err != nil {
		t.Fatal(err)
	}
	r := run(t, b, sandbox.Cmd{
		Args: []string{"sh", "-c", "cat; echo $A $TRANCHE_SECRET $TZ; basename $PWD; ls /proc/$$/fd"}, Stdin: []byte("in\n"), Env: []string{"A=b", "TZ=CET"}, Dir: "sub",
	})
	if want := "in\nb CET\nsub\n0\n1\n2\n"; string(r.Stdout.Head) != want {
		t.Errorf("got %q, want %q", r.Stdout.Head, want)
	}
	if _, err := b.Start(context.Background(), sandbox.Cmd{Args: []string{"true"}, Dir: "../.."}); err == nil {
		t.Error("it runs outside of its folder")
	}
}

func TestControlIsPrivate(t *testing.T) {
	b := open(t)
	p := start(t, b, sandbox.Cmd{Args: []string{"sh", "-c", "read x <&3; echo got $x >&3"}, Control: true})
	if _, err := p.Control().WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := p.Control().Read(buf)
	if err != nil || string(buf[:n]) != "got hello\n" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if r, err := p.Wait(context.Background()); err != nil || r.Status != sandbox.StatusOK || r.Stdout.Total != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestUsageAndInterrupt(t *testing.T) {
	b := open(t)
	p := start(t, b, sh("trap 'exit 7' INT; echo $$ > up; while :; do :; done"))
	for alive(t, b, "up"); p.Usage().CPU < 50*time.Millisecond; {
		time.Sleep(10 * time.Millisecond)
	}
	if err := p.Interrupt(); err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait(context.Background())
	if err != nil || r.Exit != 7 || r.Usage.CPU < 50*time.Millisecond || r.Usage.PeakMemory == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if p.Usage().CPU != r.Usage.CPU {
		t.Error("usage changes after the end")
	}
}

func TestSnapshotsBranch(t *testing.T) {
	ctx := context.Background()
	b := open(t)
	run(t, b, sh("mkdir a; echo one > a/f; ln -s f a/l; echo t > $TMPDIR/t"))
	s, err := b.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	run(t, b, sh("echo two > a/f; echo x > new"))
	c, err := b.(*box).owner.Open(ctx, sandbox.Spec{Trusted: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range []sandbox.Sandbox{b, c} {
		if err := x.Restore(ctx, s); err != nil {
			t.Fatal(err)
		}
		again, err := x.Snapshot(ctx)
		if err != nil || !bytes.Equal(again.Tar, s.Tar) {
			t.Errorf("sandbox %d: not the same tree after Restore, %v", i, err)
		}
		n := int64(len(s.Tar))
		if digest, bytes, err := x.(sandbox.Digester).Digest(ctx, n); err != nil || digest != s.Digest || bytes != n {
			t.Errorf("sandbox %d: digest alone %s of %d bytes, %v, want %s of %d", i, digest, bytes, err, s.Digest, n)
		}
		var large *sandbox.TooLargeError
		if _, _, err := x.(sandbox.Digester).Digest(ctx, n-1); !errors.As(err, &large) {
			t.Errorf("sandbox %d: digest of a byte less: %v", i, err)
		}
		if r := run(t, x, sh("cat a/l $TMPDIR/t; ls")); string(r.Stdout.Head) != "one\nt\na\n" {
			t.Errorf("sandbox %d: %q", i, r.Stdout.Head)
		}
	}
}

func TestRefusals(t *testing.T) {
	ctx := context.Background()
	b := open(t).(*box)
	if _, err := b.owner.Open(ctx, sandbox.Spec{}); err == nil {
		t.Error("an untrusted spec was taken")
	}
	var require *sandbox.RequireError
	_, err := b.owner.Open(ctx, sandbox.Spec{Trusted: true, Require: []sandbox.Promise{sandbox.PromiseSnapshot, sandbox.PromiseKill, sandbox.PromiseNet}})
	if !errors.As(err, &require) || len(require.Missing) != 2 || !strings.Contains(err.Error(), "net (plain runs") {
		t.Errorf("requirements it cannot hold: %v", err)
	}
	if _, err := b.owner.Open(ctx, sandbox.Spec{Trusted: true, Require: []sandbox.Promise{sandbox.PromiseSnapshot}}); err != nil {
		t.Error(err)
	}
	if _, err := b.owner.Open(ctx, sandbox.Spec{Trusted: true, Rootfs: "/"}); err == nil {
		t.Error("a root file system was taken")
	}
	if err := b.Put(ctx, sandbox.File{Path: "big", Data: make([]byte, sandbox.DefaultLimits().FileSize+1)}); err == nil {
		t.Error("a file larger than a program may write was put")
	}
	for p := range b.owner.Capabilities().Promises {
		if strength := b.owner.Capabilities().Promises[p]; (strength != sandbox.Enforced) != (b.owner.Capabilities().Why[p] != "") {
			t.Errorf("promise %s is %s because %q", p, strength, b.owner.Capabilities().Why[p])
		}
	}
	if err := b.owner.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.owner.Open(ctx, sandbox.Spec{Trusted: true}); err == nil {
		t.Error("opened after Close")
	}
	if _, err := os.Stat(filepath.Join(b.base)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is there: %v", err)
	}
}

// A program can stop its keeper, which is a process of the same user. What waits for the keeper ends even so, with the program.
func TestStoppedKeeperHoldsNobodyUp(t *testing.T) {
	x, err := trusting(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	x.patience = time.Second / 5
	defer x.Close()
	b, err := x.Open(context.Background(), sandbox.Spec{Trusted: true})
	if err != nil {
		t.Fatal(err)
	}
	const script = "echo $$ > pid; until [ -e go ]; do sleep 0.01; done; kill -STOP $PPID; sleep 300"
	stopped := func(wall time.Duration) sandbox.Process {
		p := start(t, b, sandbox.Cmd{Args: []string{"sh", "-c", script}, Wall: wall})
		if err := b.Put(context.Background(), sandbox.File{Path: "go"}); err != nil {
			t.Fatal(err)
		}
		keeper := p.(*process).keeper.Process.Pid
		for state := ""; state != "T"; time.Sleep(10 * time.Millisecond) {
			text, err := os.ReadFile("/proc/" + strconv.Itoa(keeper) + "/stat")
			if err != nil {
				t.Fatal(err)
			}
			state = strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[0]
		}
		return p
	}
	p := stopped(2 * time.Second)
	began := time.Now()
	_, err = p.Wait(context.Background())
	if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "keeper") || took > time.Minute {
		t.Errorf("it ended after %v with %v", took, err)
	}
	if alive(t, b, "pid") {
		t.Error("the program goes on")
	}
	if err := b.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	p = stopped(0)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.Wait(context.Background()); err == nil {
		t.Error("the keeper was not missed")
	}
}

// What a process left that was killed is removed by the next one; what is in use is not.
func TestLeftFoldersAreRemoved(t *testing.T) {
	dir := t.TempDir()
	left, lock, err := makeBase(dir, "plain")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(left, "w", "closed", "in"), 0o700), os.Chmod(filepath.Join(left, "w", "closed"), 0), lock.Close()); err != nil {
		t.Fatal(err)
	}
	used, lock, err := makeBase(dir, "plain")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	others := filepath.Join(dir, "others")
	if err := os.Mkdir(others, 0o700); err != nil {
		t.Fatal(err)
	}
	x, err := trusting(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder that was left: %v", err)
	}
	for _, path := range []string{used, others} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
