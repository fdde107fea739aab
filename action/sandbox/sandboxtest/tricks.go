//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tranche/action/sandbox"
)

// trick is an attack in which the host has a part: it reads, writes, waits or lets go at the wrong moment.
type trick struct {
	name  string
	needs []sandbox.Promise
	play  func(*testing.T, *stage)
}

func tricks() []trick {
	files, kill, net, snapshot := sandbox.PromiseFiles, sandbox.PromiseKill, sandbox.PromiseNet, sandbox.PromiseSnapshot
	need := func(p ...sandbox.Promise) []sandbox.Promise { return p }
	return []trick{
		{"exit codes", nil, exitCodes},
		{"programs that cannot be run", nil, notFound},
		{"input", nil, input},
		{"output that is no text", nil, bytesOut},
		{"output as it comes", nil, streamed},
		{"environment", nil, environment},
		{"private descriptor", nil, privateDescriptor},
		{"interrupt", nil, interrupt},
		{"cancel", nil, cancelled},
		{"close while a program runs", need(kill), closeRunning},
		{"background until Reset", need(kill), background},
		{"Get past links, pipes and sizes", need(files), hostileGet},
		{"Put past links, pipes and sizes", need(files), hostilePut},
		{"Get while a folder is swapped for a link", need(files), swapRace},
		{"snapshot of a hostile tree", need(files, snapshot), hostileSnapshot},
		{"loops are held between calls", nil, loopsAreHeld},
		{"two sandboxes", need(files, net), twoSandboxes},
		{"who it is on the host", need(files, kill), hostIdentity},
		{"the init is killed from outside", need(files, kill), initKilled},
		{"a promise that nobody holds", nil, requireFails},
	}
}

// with opens a sandbox for one trick.
func (s *stage) with(t *testing.T, do func(box sandbox.Sandbox)) {
	t.Helper()
	box := s.open(t)
	defer s.close(t, box)
	do(box)
}

// begin starts a program and waits for the line that says it is ready.
func (s *stage) begin(t *testing.T, ctx context.Context, box sandbox.Sandbox, cmd sandbox.Cmd) sandbox.Process {
	t.Helper()
	p, err := box.Start(ctx, cmd)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	var out, errs []byte
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		stdout, stderr := p.Take()
		out, errs = append(out, text(stdout)...), append(errs, text(stderr)...)
		if bytes.Contains(out, []byte("ready\n")) {
			return p
		}
	}
	t.Fatalf("the program was not ready in time: %s%s", out, errs)
	return nil
}

func exitCodes(t *testing.T, s *stage) {
	step := 1
	if s.brief {
		step = 17
	}
	s.with(t, func(box sandbox.Sandbox) {
		for code := 0; code < 256; code += step {
			r := run(t, box, sandbox.Cmd{Args: []string{"/bin/sh", "-c", "exit " + strconv.Itoa(code)}, Wall: patience})
			want := sandbox.StatusNonzero
			if code == 0 {
				want = sandbox.StatusOK
			}
			if r.Status != want || r.Exit != code || r.Signal != 0 {
				t.Errorf("exit %d: %s", code, summary(r))
			}
		}
	})
}

func notFound(t *testing.T, s *stage) {
	s.with(t, func(box sandbox.Sandbox) {
		put(t, box, sandbox.File{Path: "data", Data: []byte("x")},
			sandbox.File{Path: "script", Data: []byte("#!/no/such/interpreter\n"), Mode: 0o755},
			sandbox.File{Path: "dir/f"})
		for _, name := range []string{"no-such-program", "/no/such/program", "./data", "./script", "./dir", "./data/x"} {
			if r := run(t, box, sandbox.Cmd{Args: []string{name}, Wall: patience}); r.Status != sandbox.StatusNotFound || r.Exit != -1 {
				t.Errorf("%q: %s", name, summary(r))
			}
		}
		if r := run(t, box, sandbox.Cmd{Args: []string{"true"}, Wall: patience}); r.Status != sandbox.StatusOK {
			t.Errorf("true, from PATH: %s", summary(r))
		}
	})
}

func put(t *testing.T, box sandbox.Sandbox, files ...sandbox.File) {
	t.Helper()
	if err := box.Put(context.Background(), files...); err != nil {
		t.Fatalf("put: %v", err)
	}
}

func input(t *testing.T, s *stage) {
	large := bytes.Repeat([]byte("ab\xff\x00"), 2<<20)
	const sum = 2 << 20 * ('a' + 'b' + 255)
	for _, c := range []struct {
		name, program string
		stdin         []byte
		want          map[string]string
	}{
		{"none", "stdin_twice", nil, map[string]string{"read": "0", "more": "0"}},
		{"8 MiB", "stdin_twice", large, map[string]string{"read": strconv.Itoa(len(large)), "sum": strconv.Itoa(int(sum)), "more": "0"}},
		{"8 MiB that nobody reads", "ignore_stdin", large, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.with(t, func(box sandbox.Sandbox) {
				cmd := s.command("host", c.program)
				cmd.Stdin = c.stdin
				r := run(t, box, cmd)
				said := outcomes(text(r.Stdout))
				for what, want := range c.want {
					if said[what] != want {
						t.Errorf("%s = %q, want %q", what, said[what], want)
					}
				}
				if r.Status != sandbox.StatusOK {
					t.Error(summary(r))
				}
			})
		})
	}
}

func bytesOut(t *testing.T, s *stage) {
	s.with(t, func(box sandbox.Sandbox) {
		r := run(t, box, s.command("host", "bytes_out"))
		if text(r.Stdout) != "\xff\xfe\x00\xc3\x28 a\r\n" || text(r.Stderr) != "\x80" || r.Stdout.Total != 9 || r.Stderr.Total != 1 {
			t.Errorf("stdout %q, stderr %q", text(r.Stdout), text(r.Stderr))
		}
	})
}

// streamed hands all of a flood to a writer, in order, and keeps none of it.
func streamed(t *testing.T, s *stage) {
	s.with(t, func(box sandbox.Sandbox) {
		digest, errs := sha256.New(), &bytes.Buffer{}
		cmd := s.command("resources", "flood", "8")
		cmd.Stdout, cmd.Stderr = digest, errs
		r := run(t, box, cmd)
		block := make([]byte, 256)
		for i := range block {
			block[i] = byte(i)
		}
		want := sha256.Sum256(bytes.Repeat(block, 8<<20/256))
		if r.Status != sandbox.StatusOK || r.Stdout.Total != 8<<20 || len(text(r.Stdout)) != 0 || !bytes.Equal(digest.Sum(nil), want[:]) {
			t.Errorf("what came is not what was written, or was kept too: %s", summary(r))
		}
		cmd = s.command("resources", "no_such_function")
		cmd.Stdout, cmd.Stderr = nil, errs
		if r := run(t, box, cmd); r.Exit != 1 || int64(errs.Len()) != r.Stderr.Total || !strings.Contains(errs.String(), "KeyError") {
			t.Errorf("stderr %q, %s", errs.String(), summary(r))
		}
	})
}

func environment(t *testing.T, s *stage) {
	s.with(t, func(box sandbox.Sandbox) {
		r := run(t, box, sandbox.Cmd{Args: []string{"/usr/bin/env"}, Env: []string{"GIVEN=a=b\nc", "HOME=/tmp"}, Wall: patience})
		got := text(r.Stdout)
		for _, want := range []string{"GIVEN=a=b\nc\n", "HOME=/tmp\n", "PATH="} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in the environment:\n%s", want, got)
			}
		}
		for _, e := range os.Environ() {
			name, value, _ := strings.Cut(e, "=")
			if len(value) > 3 && strings.Contains(got, "\n"+name+"="+value+"\n") && name != "LANG" && name != "TZ" && name != "PATH" {
				t.Errorf("%s of the host came along", name)
			}
		}
		if strings.Contains(got, planted) || strings.Count(got, "HOME=") != 1 {
			t.Errorf("environment:\n%s", got)
		}
	})
}

func privateDescriptor(t *testing.T, s *stage) {
	s.with(t, func(box sandbox.Sandbox) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		cmd := s.command("host", "control")
		cmd.Control = true
		p, err := box.Start(ctx, cmd)
		if err != nil {
			t.Fatal(err)
		}
		_, sent := p.Control().WriteString("hello")
		answer := make([]byte, 5)
		_, received := io.ReadFull(p.Control(), answer)
		r, err := p.Wait(ctx)
		if err := errors.Join(sent, received, err); err != nil || string(answer) != "HELLO" {
			t.Errorf("answer %q, %v", answer, err)
		}
		if said := outcomes(text(r.Stdout)); said["type"] != "True" || said["descriptors"] != "0 1 2 3" {
			t.Errorf("%v, %s", said, summary(r))
		}
	})
}

func interrupt(t *testing.T, s *stage) {
	s.with(t, func(box sandbox.Sandbox) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		p := s.begin(t, ctx, box, s.command("host", "interrupted"))
		if err := p.Interrupt(); err != nil {
			t.Error(err)
		}
		if r, err := p.Wait(ctx); err != nil || r.Exit != 5 || text(r.Stdout) != "interrupted\n" {
			t.Errorf("%v, %s", err, summary(r))
		}
	})
}

func cancelled(t *testing.T, s *stage) {
	s.with(t, func(box sandbox.Sandbox) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		p := s.begin(t, ctx, box, s.command("host", "wait"))
		cancel()
		r, err := p.Wait(ctx)
		if err != nil || r.Status != sandbox.StatusCanceled {
			t.Errorf("%v, %s", err, summary(r))
		}
	})
}

// closeRunning lets go of a sandbox in the middle: Wait must return, with whatever it has, and nothing stay.
func closeRunning(t *testing.T, s *stage) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	box := s.open(t)
	p := s.begin(t, ctx, box, s.command("host", "wait"))
	s.close(t, box)
	if r, err := p.Wait(ctx); err != nil || r.Status != sandbox.StatusSignaled && r.Status != sandbox.StatusCanceled {
		t.Errorf("%v, %s", err, summary(r))
	}
	if err := box.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

func background(t *testing.T, s *stage) {
	s.with(t, func(box sandbox.Sandbox) {
		cmd := s.command("host", "background")
		cmd.Background = true
		run(t, box, cmd)
		size := func() int {
			f, err := box.Get(context.Background(), "alive", 1<<20)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			return len(f.Data)
		}
		if !eventually(func() bool { return size() > 2 }) {
			t.Error("what was started in the background did not go on")
		}
		if err := box.Reset(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Millisecond)
		if _, err := box.Get(context.Background(), "alive", 1<<20); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after Reset it is still there: %v", err)
		}
	})
}

func eventually(holds func() bool) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return true
		}
	}
	return false
}

func hostileGet(t *testing.T, s *stage) {
	s.with(t, func(box sandbox.Sandbox) {
		run(t, box, s.command("host", "links"))
		escape := func(err error) bool { var e *sandbox.EscapeError; return errors.As(err, &e) }
		large := func(err error) bool { var e *sandbox.TooLargeError; return errors.As(err, &e) }
		missing := func(err error) bool { return errors.Is(err, fs.ErrNotExist) }
		some := func(err error) bool { return err != nil }
		for path, right := range map[string]func(error) bool{
			"shadow": escape, "etc/passwd": escape, "environ": escape, "up": escape, "a": escape, "inside": escape, "here/plain": escape,
			"magic": escape, "outside": escape, "../etc/passwd": escape, "/etc/passwd": escape, "x/../../etc/passwd": escape, "..": escape,
			"folder/../../tmp/outside": escape, "no/such": missing, "none": missing, "fifo": some, "socket": some, "folder": some, ".": some, "": some,
			"plain/x": some, "sparse": large, "plain\x00": some, strings.Repeat("d/", 4000) + "x": some,
		} {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			f, err := box.Get(ctx, path, 1<<20)
			if !right(err) || ctx.Err() != nil {
				t.Errorf("Get %.60q: %.40q, %v", path, f.Data, err)
			}
			cancel()
		}
		if f, err := box.Get(context.Background(), "plain", 5); err != nil || string(f.Data) != "plain" {
			t.Errorf("a plain file: %q, %v", f.Data, err)
		}
		if _, err := box.Get(context.Background(), "plain", 4); !large(err) {
			t.Errorf("a plain file that is a byte too large: %v", err)
		}
	})
}

func hostilePut(t *testing.T, s *stage) {
	s.with(t, func(box sandbox.Sandbox) {
		run(t, box, s.command("host", "links"))
		for _, path := range []string{"etc/x", "up/x", "here/x", "../x", "/tmp/x", "folder/../../tmp/x", "outside/x"} {
			var escape *sandbox.EscapeError
			if err := box.Put(context.Background(), sandbox.File{Path: path, Data: []byte("forged")}); !errors.As(err, &escape) {
				t.Errorf("Put %q: %v, want an EscapeError", path, err)
			}
		}
		// A last element that is a link or a pipe may be refused or replaced. It is never followed and never waited for.
		for _, path := range []string{"outside", "new", "fifo", "socket", "a", "folder", ""} {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			_ = box.Put(ctx, sandbox.File{Path: path, Data: []byte("forged")})
			if ctx.Err() != nil {
				t.Errorf("Put %q waited", path)
			}
			cancel()
		}
		r := run(t, box, sandbox.Cmd{Args: []string{"/bin/sh", "-c", "cat /tmp/outside; ls /tmp"}, Wall: patience})
		if text(r.Stdout) != "outsideoutside\n" {
			t.Errorf("files outside the work folder: %q", text(r.Stdout))
		}
		if err := box.Put(context.Background(), sandbox.File{Path: "huge", Data: make([]byte, limits().FileSize+1)}); err == nil {
			t.Error("a file larger than FileSize was put")
		}
		if err := box.Put(context.Background(), sandbox.File{Path: "sub/setuid", Data: []byte("x"), Mode: fs.ModeSetuid | 0o755}); err == nil {
			if f, err := box.Get(context.Background(), "sub/setuid", 10); err != nil || f.Mode&fs.ModeSetuid != 0 || f.Mode.Perm() != 0o755 {
				t.Errorf("mode %v, %v", f.Mode, err)
			}
		}
	})
	s.with(t, func(box sandbox.Sandbox) { // more than fits, in files that are each small enough
		var err error
		for i := 0; i < 10 && err == nil; i++ {
			err = box.Put(context.Background(), sandbox.File{Path: fmt.Sprint(i), Data: make([]byte, 8<<20)})
		}
		if err == nil {
			t.Error("80 MiB were put into a folder of 32 MiB")
		}
	})
}

// swapRace reads and writes while a folder is exchanged for a link and back: what comes is always the folder's, what goes never leaves.
func swapRace(t *testing.T, s *stage) {
	s.with(t, func(box sandbox.Sandbox) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		p := s.begin(t, ctx, box, s.command("host", "swap", "0.6"))
		done, refused := [2]int{}, [2]int{}
		count := func(i int, err error) {
			var escape *sandbox.EscapeError
			var path *sandbox.PathError // it was a link when the folder was to be opened
			switch {
			case err == nil:
				done[i]++
			case errors.As(err, &escape), errors.As(err, &path):
				refused[i]++
			default:
				t.Errorf("neither done nor refused: %v", err)
			}
		}
		for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
			f, err := box.Get(ctx, "x/passwd", 1<<20)
			if err == nil && string(f.Data) != "mine" {
				t.Errorf("read %.40q through the link", f.Data)
			}
			count(0, err)
			count(1, box.Put(ctx, sandbox.File{Path: "x/put", Data: []byte("x")}))
		}
		r, err := p.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		said := outcomes(text(r.Stdout))
		t.Logf("%s swaps; %d reads done, %d refused; %d writes done, %d refused", said["swaps"], done[0], refused[0], done[1], refused[1])
		if said["target"] != "['passwd']" {
			t.Errorf("where the link leads there is now %s: %s", said["target"], summary(r))
		}
		if done[0] == 0 || done[1] == 0 || refused[0] == 0 || refused[1] == 0 {
			t.Error("the race was never both won and lost: it proves nothing")
		}
	})
}

func hostileSnapshot(t *testing.T, s *stage) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var shot *sandbox.Snapshot
	s.with(t, func(box sandbox.Sandbox) {
		run(t, box, s.command("host", "links"))
		var err error
		if shot, err = box.Snapshot(ctx); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(shot.Tar, []byte("root:")) {
			t.Error("the snapshot followed a link")
		}
		if again, err := box.Snapshot(ctx); err != nil || again.Digest != shot.Digest {
			t.Errorf("a second snapshot differs: %v", err)
		}
	})
	s.with(t, func(box sandbox.Sandbox) {
		run(t, box, s.command("resources", "odd_names"))
		if err := box.Restore(ctx, shot); err != nil {
			t.Fatal(err)
		}
		if again, err := box.Snapshot(ctx); err != nil || again.Digest != shot.Digest {
			t.Errorf("the restored tree differs: %v", err)
		}
		if f, err := box.Get(ctx, "plain", 10); err != nil || string(f.Data) != "plain" {
			t.Errorf("%q, %v", f.Data, err)
		}
	})
}

func twoSandboxes(t *testing.T, s *stage) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	secret := "s" + rand.Text()
	s.with(t, func(hidden sandbox.Sandbox) {
		p := s.begin(t, ctx, hidden, s.command("host", "hide", secret, "8643"))
		s.with(t, func(seeker sandbox.Sandbox) {
			r := run(t, seeker, s.command("host", "seek", secret, "8643"))
			said := outcomes(text(r.Stdout))
			for what, want := range map[string]string{"abstract socket": "ECONNREFUSED", "port": "ECONNREFUSED", "files": "", "others": "0"} {
				if got, ok := said[what]; !ok || got != want {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			if strings.HasPrefix(said["shm"], "ok") {
				t.Error("a shared memory segment is seen")
			}
		})
		if err := p.Interrupt(); err != nil {
			t.Error(err)
		}
		if _, err := p.Wait(ctx); err != nil {
			t.Error(err)
		}
	})
}

// hostIdentity looks at a running program from outside.
func hostIdentity(t *testing.T, s *stage) {
	s.with(t, func(box sandbox.Sandbox) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		p := s.begin(t, ctx, box, s.command("host", "wait"))
		seen := 0
		for _, program := range s.look(t).processes {
			if !program.nested() || program.inner == 1 || program.zombie {
				continue
			}
			seen++
			if os.Geteuid() != 0 {
				continue
			}
			if known(program.uid) {
				t.Errorf("%s runs as somebody of this host", program)
			}
			for _, g := range program.groups {
				if g != program.uid && g != 65534 {
					t.Errorf("%s has the group %d", program, g)
				}
			}
		}
		if seen == 0 {
			t.Error("no program in a namespace of its own was seen")
		}
		if err := p.Interrupt(); err != nil {
			t.Error(err)
		}
		if _, err := p.Wait(ctx); err != nil {
			t.Error(err)
		}
	})
}

// known says that a user id is root or has an entry in /etc/passwd.
func known(uid int) bool {
	passwd, err := os.ReadFile("/etc/passwd")
	return uid == 0 || err != nil || bytes.Contains(passwd, fmt.Appendf(nil, ":%d:", uid))
}

// initKilled takes the namespace away under a running program: that is no verdict on the program, and the next one is fine.
func initKilled(t *testing.T, s *stage) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	box := s.open(t)
	p := s.begin(t, ctx, box, s.command("host", "wait"))
	var inits []process
	for _, init := range s.look(t).processes {
		if init.nested() && init.inner == 1 {
			inits = append(inits, init)
			if err := syscall.Kill(init.pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
	if r, err := p.Wait(ctx); err == nil {
		t.Errorf("the sandbox is gone and the program has a verdict: %s", summary(r))
	}
	for _, init := range inits { // those that nobody waited for die in their own time
		if !eventually(func() bool {
			now, there := readProcess(init.pid)
			return !there || now.started != init.started
		}) {
			t.Errorf("killed, and still there: %s", init)
		}
	}
	_ = box.Close() // may say that it was gone
}

func requireFails(t *testing.T, s *stage) {
	spec := s.spec
	spec.Require = []sandbox.Promise{"no such promise"}
	for p, strength := range s.caps.Promises {
		if strength != sandbox.Enforced {
			spec.Require = append(spec.Require, p)
		}
	}
	box, err := s.executor.Open(context.Background(), spec)
	var missing *sandbox.RequireError
	if !errors.As(err, &missing) || len(missing.Missing) != len(spec.Require) {
		t.Errorf("Open with %v required: %v", spec.Require, err)
	}
	if err == nil {
		s.close(t, box)
	}
	spec.Require = nil
	for p, strength := range s.caps.Promises {
		if strength == sandbox.Enforced {
			spec.Require = append(spec.Require, p)
		}
	}
	box, err = s.executor.Open(context.Background(), spec)
	if err != nil {
		t.Fatalf("Open with what is enforced required: %v", err)
	}
	s.close(t, box)
}

// loopsAreHeld leaves loops in the background, one of them with every signal ignored and one in a session of its own: while the sandbox is paused
// none uses CPU time or makes another, and afterwards all go on. That it is over, the suite sees as after every trick.
func loopsAreHeld(t *testing.T, s *stage) {
	s.with(t, func(box sandbox.Sandbox) {
		pauser, ok := box.(sandbox.Pauser)
		if !ok {
			t.Skipf("back end %s cannot pause", s.caps.Backend)
		}
		const loops = 20
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		script := `i=0; while [ $i -lt 17 ]; do (while :; do :; done) & i=$((i+1)); done
			(trap "" TSTP TTIN TTOU INT TERM HUP CONT; while :; do :; done) & setsid sh -c 'while :; do :; done' & (while :; do (:); done) & echo ready; wait`
		p := s.begin(t, ctx, box, sandbox.Cmd{Args: []string{"sh", "-c", script}, Wall: patience})
		used := func() time.Duration { return p.Usage().CPU }
		waitFor := func(why string, done func() bool) {
			t.Helper()
			for ; !done(); time.Sleep(5 * time.Millisecond) {
				if ctx.Err() != nil {
					t.Fatal(why)
				}
			}
		}
		waitFor("the loops do not run", func() bool { return used() > 100*time.Millisecond })
		for round := range 3 {
			others, err := pauser.Pause(ctx)
			if err != nil || others < loops {
				t.Fatalf("%d are held besides the program, want at least %d; %v", others, loops, err)
			}
			before := used()
			if err := box.Put(ctx, sandbox.File{Path: "f", Data: []byte("x")}); err != nil {
				t.Errorf("a file while it is paused: %v", err)
			}
			time.Sleep(200 * time.Millisecond)
			if again, err := pauser.Pause(ctx); err != nil || again > others || again < loops { // one that was about to end when it was stopped has ended
				t.Errorf("paused again: %d, then %d are held; %v", others, again, err)
			}
			if got := used() - before; got > 20*time.Millisecond { // two ticks: what was running when the time was read
				t.Errorf("round %d: while they were held they used %v of CPU time", round, got)
			}
			if err := pauser.Resume(ctx); err != nil {
				t.Fatal(err)
			}
			waitFor("they do not go on", func() bool { return used() > before+50*time.Millisecond })
		}
		if _, err := pauser.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		if err := box.Reset(ctx); err != nil {
			t.Errorf("reset while it is paused: %v", err)
		}
		if r, err := p.Wait(ctx); err != nil || r.Signal != 9 {
			t.Errorf("%s, %v", summary(r), err)
		}
	})
}
