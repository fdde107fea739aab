//go:build linux

package codetools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tranche/action"
	"tranche/action/sandbox"
	"tranche/action/sandbox/plain"
	"tranche/action/sandbox/session"
	"tranche/episode"
)

func TestMain(m *testing.M) {
	plain.Init()
	goleak.VerifyTestMain(m)
}

// bench is a set of code tools on the plain back end.
type bench struct {
	desk  *Desk
	set   *action.Set
	calls atomic.Int64 // makes ids
}

func newBench(t testing.TB, cfg Config, open func() (sandbox.Executor, error)) *bench {
	t.Helper()
	if open == nil {
		dir := t.TempDir()
		open = func() (sandbox.Executor, error) { return plain.New(plain.Config{Dir: dir}) }
	}
	cfg.Spec.Trusted = true
	d, err := New(open, cfg)
	if err != nil {
		t.Fatal(err)
	}
	set, err := action.New(action.Config{Tools: []string{"python", "bash", "read_file", "write_file"}, Workers: 8}, d.Tools()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(set.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return &bench{desk: d, set: set}
}

// use is one tool call.
type use struct{ tool, args string }

func code(tool, text string) use {
	key := map[string]string{"python": "code", "bash": "command", "read_file": "path"}[tool]
	args, _ := json.Marshal(map[string]string{key: text})
	return use{tool, string(args)}
}

func file(path, text string) use {
	args, _ := json.Marshal(map[string]string{"path": path, "content": text})
	return use{"write_file", string(args)}
}

func (b *bench) do(e *episode.Episode, uses ...use) []episode.Observation {
	var acts []episode.Action
	for i, u := range uses {
		acts = append(acts, episode.Action{ID: fmt.Sprint("a", b.calls.Add(1)), Call: episode.ToolCall{ID: fmt.Sprint("c", i), Function: episode.Function{Name: u.tool, Arguments: u.args}}})
	}
	return b.set.Do(context.Background(), e, acts)
}

func anEpisode(id string) *episode.Episode {
	return &episode.Episode{ID: id, Task: &episode.Task{ID: "t"}}
}

func TestToolsShareOneSandboxAnEpisode(t *testing.T) {
	b := newBench(t, Config{}, nil)
	one, two := anEpisode("one"), anEpisode("two")
	steps := []struct {
		e      *episode.Episode
		use    use
		status string
		text   string // a part of it
		exit   int32  // -1 = none
	}{
		{one, file("src/m.py", "def f(): return 42\n"), "ok", "wrote 19 bytes to src/m.py", -1},
		{one, code("bash", "cd src; ls; x=1"), "ok", "m.py\n", 0},
		{one, code("bash", "pwd; echo $x"), "ok", "/src\n1\n", 0},
		{one, code("python", "import sys; sys.path.append('src'); import m; m.f()"), "ok", "42\n", 0},
		{one, code("python", "m.f() + 1"), "ok", "43\n", 0},
		{one, code("python", "open('out.txt', 'w').write('from python')"), "ok", "11\n", 0},
		{one, code("read_file", "out.txt"), "ok", "from python", -1},
		{two, code("read_file", "out.txt"), "error", `error: there is no file "out.txt"`, -1},
		{two, code("python", "m"), "error", "error: the code raised NameError", 1},
		{one, code("bash", "false"), "error", "error: exit code 1", 1},
		{one, code("bash", "exit 3"), "error", "error: the bash session has ended (it exited with code 3) and its state is gone; files are still there", 3},
		{one, code("bash", "echo ${x:-gone}; ls"), "ok", "gone\nout.txt\nsrc\n", 0},
		{one, code("read_file", "../secret"), "error", "leads out of the work folder", -1},
		{one, code("read_file", "/etc/passwd"), "error", "leads out of the work folder", -1},
		{one, code("bash", "ln -s /etc/passwd link; head -c 100 /dev/zero > bin; mkfifo pipe"), "ok", "", 0},
		{one, code("read_file", "link"), "error", "symbolic link", -1},
		{one, code("read_file", "bin"), "error", "no text", -1},
		{one, code("read_file", "pipe"), "error", "is no regular file", -1},
		{one, code("read_file", "src"), "error", "is a folder", -1},
		{one, file("link/x", ""), "error", "error: ", -1},
		{one, use{"python", `{"cod":"1"}`}, "bad_args", "code", -1},
		{one, code("bash", "a\x00b"), "error", "zero byte", -1},
	}
	for _, c := range steps {
		o := b.do(c.e, c.use)[0]
		if o.Status != c.status || !strings.Contains(o.Text, c.text) {
			t.Errorf("%v: %s %q, want %s %q", c.use, o.Status, o.Text, c.status, c.text)
		}
		if (o.ExitCode == nil) != (c.exit == -1) || o.ExitCode != nil && *o.ExitCode != c.exit {
			t.Errorf("%v: exit code %v, want %d", c.use, o.ExitCode, c.exit)
		}
		if o.Tier != "none" && o.Status == "ok" || (o.CPU == nil) != (o.ExitCode == nil) {
			t.Errorf("%v: tier %q, cpu %v", c.use, o.Tier, o.CPU)
		}
	}
	b.set.End(one)
	b.set.End(two)
	if n := len(b.desk.rooms); n != 0 || len(b.set.Troubles()) != 0 {
		t.Errorf("%d rooms are left, troubles %v", n, b.set.Troubles())
	}
}

// The calls of one reply run one after the other, in their order.
func TestCallsOfOneReplyKeepTheirOrder(t *testing.T) {
	b := newBench(t, Config{Spec: sandbox.Spec{RootfsDigest: "digest"}}, nil)
	e := anEpisode("e")
	defer b.set.End(e)
	obs := b.do(e, code("python", "import time; time.sleep(0.3); open('f', 'w').write('1')"), code("bash", "cat f"), file("f", "2"), code("read_file", "f"))
	for i, want := range []string{"1\n", "1", "wrote 1 bytes to f", "2"} {
		if obs[i].Text != want || obs[i].Rootfs != "digest" {
			t.Errorf("call %d: %q in %q, want %q", i, obs[i].Text, obs[i].Rootfs, want)
		}
	}
}

func TestTimeoutIsToldWithWhatBecameOfTheSession(t *testing.T) {
	cfg := Config{Wall: 3 * time.Second / 2, Grace: time.Minute, CPU: time.Minute} // a busy machine takes its time with an interrupt
	b := newBench(t, cfg, nil)
	e := anEpisode("e")
	defer b.set.End(e)
	b.do(e, code("python", "x = 1"))
	o := b.do(e, code("python", "print('in')\nimport time; time.sleep(60)"))[0]
	if o.Status != episode.ActionTimeout || !strings.HasPrefix(o.Text, "in\n") || !strings.HasSuffix(o.Text, "error: it was stopped after 1.5s, the time limit of one call; the session goes on with its state") {
		t.Errorf("%s %q", o.Status, o.Text)
	}
	if o = b.do(e, code("python", "x"))[0]; o.Text != "1\n" {
		t.Errorf("after an interrupt: %q", o.Text)
	}
	cfg.Grace = time.Second / 2
	b = newBench(t, cfg, nil)
	deaf := anEpisode("deaf")
	defer b.set.End(deaf)
	b.do(deaf, code("python", "x = 1"))
	o = b.do(deaf, code("python", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"))[0]
	if o.Status != episode.ActionTimeout || !strings.Contains(o.Text, "the python session has ended (it did not stop and was killed) and its state is gone") {
		t.Errorf("%s %q", o.Status, o.Text)
	}
	if o = b.do(deaf, code("python", "'x' in dir()"))[0]; o.Text != "False\n" {
		t.Errorf("after the loss: %q", o.Text)
	}
}

func TestFloodIsCutAndCounted(t *testing.T) {
	b := newBench(t, Config{Keep: 1000}, nil)
	e := anEpisode("e")
	defer b.set.End(e)
	o := b.do(e, code("bash", "head -c 3000000 /dev/zero | tr '\\0' x; echo end"))[0]
	if !o.Truncated || o.OutBytes != 3_000_004 || !strings.Contains(o.Text, "\n… 2999004 bytes cut …\n") || !strings.HasSuffix(o.Text, "xend\n") {
		t.Errorf("truncated %v, %d bytes, %d shown", o.Truncated, o.OutBytes, len(o.Text))
	}
}

// balky is a back end that cannot open a sandbox for some of its callers, and counts those that are open.
type balky struct {
	sandbox.Executor
	mu         sync.Mutex
	opened     int
	open, most int // now, and at once
	fails      func(n int) bool
	full       func(ctx context.Context, n int) // waits for room; nil = there is room
}

type counted struct {
	sandbox.Sandbox
	owner *balky
}

func (x *balky) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.opened++
	if n := x.opened; x.full != nil {
		x.mu.Unlock()
		x.full(ctx, n)
		x.mu.Lock()
	}
	if x.fails != nil && x.fails(x.opened) {
		return nil, errors.New("no slot could be built")
	}
	x.open++
	x.most = max(x.most, x.open)
	b, err := x.Executor.Open(ctx, spec)
	return &counted{b, x}, err
}

func (c *counted) Close() error {
	c.owner.mu.Lock()
	c.owner.open--
	c.owner.mu.Unlock()
	return c.Sandbox.Close()
}

func newBalky(t *testing.T, fails func(n int) bool) *balky {
	t.Helper()
	p, err := plain.New(plain.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return &balky{Executor: p, fails: fails}
}

// Two sandboxes fit into the memory: six episodes take turns, each waits outside of its time limit, and none fails.
func TestMemoryBudgetIsBackPressure(t *testing.T) {
	x := newBalky(t, nil)
	cfg := Config{Memory: 1 << 30, Wall: 20 * time.Second}
	cfg.Spec.Limits.Memory = 512 << 20
	b := newBench(t, cfg, func() (sandbox.Executor, error) { return x, nil })
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			e := anEpisode(fmt.Sprint("e", i))
			for range 2 {
				o := b.do(e, code("bash", "sleep 0.2; echo hi"))[0]
				if o.Status != "ok" || o.Text != "hi\n" || o.Wall > 15*time.Second {
					t.Errorf("%s %q after %v", o.Status, o.Text, o.Wall)
				}
			}
			b.set.End(e)
		})
	}
	all.Wait()
	if x.most != 2 || x.open != 0 || x.opened != 6 {
		t.Errorf("%d sandboxes were open at once, %d are left, %d in all; want 2, 0, 6", x.most, x.open, x.opened)
	}
}

// One run token: calls of different episodes never overlap, but both sessions are open.
func TestRunTokenIsHeldOnlyByCalls(t *testing.T) {
	b := newBench(t, Config{Runs: 1}, nil)
	shared := t.TempDir() + "/busy"
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			e := anEpisode(fmt.Sprint("e", i))
			for range 3 {
				if o := b.do(e, code("bash", "mkdir "+shared+" && sleep 0.05 && rmdir "+shared))[0]; o.Status != "ok" {
					t.Errorf("two calls at once: %q", o.Text)
				}
			}
			defer b.set.End(e)
		})
	}
	all.Wait()
}

// A sandbox that waits for room holds up nobody who has one, and a call that needs no core waits for none.
func TestWaitingForRoomHoldsNothing(t *testing.T) {
	x := newBalky(t, nil)
	room, asked := make(chan struct{}), make(chan struct{})
	x.full = func(_ context.Context, n int) {
		if n == 2 {
			close(asked)
			<-room
		}
	}
	b := newBench(t, Config{Runs: 1}, func() (sandbox.Executor, error) { return x, nil })
	one, two := anEpisode("one"), anEpisode("two")
	defer b.set.End(one)
	defer b.set.End(two)
	b.do(one, code("bash", ":"))
	second := make(chan episode.Observation, 1)
	go func() { second <- b.do(two, code("bash", "echo 2"))[0] }()
	<-asked
	first := make(chan episode.Observation, 1)
	go func() { first <- b.do(one, code("bash", "echo 1"))[0] }()
	select {
	case o := <-first:
		if o.Text != "1\n" {
			t.Errorf("%s %q", o.Status, o.Text)
		}
	case <-time.After(time.Minute):
		t.Error("an open session had to wait for a sandbox that could not open")
	}
	close(room)
	if o := <-second; o.Text != "2\n" {
		t.Errorf("%s %q", o.Status, o.Text)
	}
}

// What a call needs is there when its time begins.
func TestCallFindsItsSessionBegun(t *testing.T) {
	b := newBench(t, Config{Modules: []string{"json"}}, nil)
	done, err := b.desk.wait(t.Context(), "e", session.Python)
	if err != nil {
		t.Fatal(err)
	}
	if s := b.desk.room("e").sessions[session.Python]; s == nil || !s.Open() {
		t.Error("the session begins in the call")
	}
	if b.desk.runs.free != int64(b.desk.cfg.Runs)-1 {
		t.Error("it has no core")
	}
	if err := b.desk.runs.take(t.Context(), b.desk.runs.free); err != nil {
		t.Fatal(err)
	}
	file, err := b.desk.wait(t.Context(), "other", "")
	if err != nil {
		t.Fatal(err)
	}
	queued, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.desk.runs.take(queued, 1) }()
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		b.desk.runs.mu.Lock()
		waiting = len(b.desk.runs.waiting)
		b.desk.runs.mu.Unlock()
	}
	soon, late := context.WithTimeout(t.Context(), time.Minute)
	defer late()
	another, err := b.desk.wait(soon, "third", "")
	if err != nil {
		t.Fatalf("reading a file waits for a core: %v", err)
	}
	cancel()
	<-ended
	for _, f := range []func(){done, file, another} {
		f()
	}
	for _, e := range []string{"e", "other", "third"} {
		if err := b.desk.end(t.Context(), e); err != nil {
			t.Error(err)
		}
	}
}

// A session that cannot begin is the harness's fault in a fresh sandbox only: later the episode may have brought it about.
func TestSessionThatDoesNotBegin(t *testing.T) {
	b := newBench(t, Config{Modules: []string{"broken"}}, nil)
	fresh, spoilt := anEpisode("fresh"), anEpisode("spoilt")
	defer b.set.End(fresh)
	defer b.set.End(spoilt)
	if o := b.do(fresh, code("python", "1"))[0]; o.Status != episode.ActionHarness || !strings.Contains(o.Fault.Cause.Error(), "broken") {
		t.Errorf("in a fresh sandbox: %s %q", o.Status, o.Text)
	}
	b.do(spoilt, file("broken.py", "import os; os.kill(os.getpid(), 9)"))
	for range 2 {
		if o := b.do(spoilt, code("python", "1"))[0]; o.Status != "error" || !strings.Contains(o.Text, "the python session could not begin") {
			t.Errorf("after a call: %s %q %v", o.Status, o.Text, o.Fault)
		}
	}
	b.do(spoilt, file("broken.py", "x = 1"))
	if o := b.do(spoilt, code("python", "1"))[0]; o.Text != "1\n" {
		t.Errorf("mended: %s %q", o.Status, o.Text)
	}
}

// Case SB-o3, at the tools: a sandbox that does not open is the harness's failure, not the model's.
func TestSandboxThatDoesNotOpenIsHarness(t *testing.T) {
	x := newBalky(t, func(n int) bool { return n%2 == 0 })
	b := newBench(t, Config{}, func() (sandbox.Executor, error) { return x, nil })
	for i, want := range []string{episode.ActionOK, episode.ActionHarness, episode.ActionOK} {
		e := anEpisode(fmt.Sprint("e", i))
		o := b.do(e, code("python", "1"))[0]
		if o.Status != want || (o.Fault != nil) != (want == episode.ActionHarness) {
			t.Errorf("episode %d: %+v, want %s", i, o, want)
		}
		b.set.End(e)
	}
	if x.open != 0 {
		t.Errorf("%d are open", x.open)
	}
}

// A call that outlives its episode's end gives its sandbox back when it ends.
func TestEndDuringACall(t *testing.T) {
	x := newBalky(t, nil)
	b := newBench(t, Config{}, func() (sandbox.Executor, error) { return x, nil })
	e := anEpisode("e")
	b.do(e, code("bash", ":"))
	done := make(chan struct{})
	go func() { defer close(done); b.do(e, code("bash", "sleep 2")) }()
	for r := b.desk.room("e"); len(r.turn) == 0; time.Sleep(time.Millisecond) { // until the call has its turn
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := b.desk.end(ctx, "e"); err == nil {
		t.Error("the end did not say that a call goes on")
	}
	<-done
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		x.mu.Lock()
		open := x.open
		x.mu.Unlock()
		if open == 0 {
			return
		}
	}
	t.Error("its sandbox is open")
}

func TestConfigIsChecked(t *testing.T) {
	var small Config
	small.Memory, small.Spec.Limits.Memory = 1<<20, 1<<30
	for want, cfg := range map[string]Config{
		"Wall is -1":                    {Wall: -1},
		"Runs is -2":                    {Wall: -1, Runs: -2},
		"memory: one sandbox may use 1": small,
	} {
		if _, err := New(nil, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}

func TestBudgetIsFair(t *testing.T) {
	b := newBudget(2)
	ctx := context.Background()
	if err := b.take(ctx, 2); err != nil {
		t.Fatal(err)
	}
	order := make(chan int, 3)
	var all sync.WaitGroup
	for i, n := range []int64{2, 1, 1} {
		all.Go(func() {
			if err := b.take(ctx, n); err != nil {
				t.Error(err)
			}
			order <- i
			b.give(n)
		})
		for waiting := 0; waiting <= i; time.Sleep(time.Millisecond) {
			b.mu.Lock()
			waiting = len(b.waiting)
			b.mu.Unlock()
		}
	}
	impatient, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := b.take(impatient, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the fourth in the queue: %v", err)
	}
	b.give(2)
	all.Wait()
	if first := <-order; first != 0 || b.free != 2 || len(b.waiting) != 0 {
		t.Errorf("number %d was first, %d free, %d waiting", first, b.free, len(b.waiting))
	}
}
