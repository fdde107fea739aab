//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/landlock"
)

func openLandlock() (sandbox.Executor, error) { return landlock.New(landlock.Config{}) }

// The back end for hosts without user namespaces stands what it promises, as root and as a user who may nothing.
func TestLandlock(t *testing.T) {
	executor, err := openLandlock()
	if err != nil {
		t.Skip(err)
	}
	if err := executor.Close(); err != nil {
		t.Fatal(err)
	}
	const noSockets = "programs have no sockets but pairs"
	RunOptional(t, openLandlock, Except{
		ownTree:               "programs see the host's paths and processes; test confined plays what they may do among them",
		"a port in TIME_WAIT": noSockets, "the same port again": noSockets, "network: own server": noSockets,
		"network: interfaces": "the names of the host's interfaces are seen; none can be used",
	})
	t.Run("confined", confined)
}

func TestLandlockAsNobody(t *testing.T) {
	needWhole(t)
	asNobody(t, "^TestLandlock$")
}

// The disk is what this back end cannot bound: it says so, refuses where it is required, and a program shows that it is true.
func TestLandlockSaysThatTheDiskIsNotBounded(t *testing.T) {
	x, err := openLandlock()
	if err != nil {
		t.Skip(err)
	}
	defer func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}()
	if caps := x.Capabilities(); caps.Promises[sandbox.PromiseDisk] != sandbox.Absent || caps.Why[sandbox.PromiseDisk] == "" {
		t.Errorf("it promises the disk: %v, %q", caps.Promises[sandbox.PromiseDisk], caps.Why[sandbox.PromiseDisk])
	}
	var refused *sandbox.RequireError
	if _, err := x.Open(t.Context(), sandbox.Spec{Require: []sandbox.Promise{sandbox.PromiseDisk}}); !errors.As(err, &refused) || !slices.Contains(refused.Missing, sandbox.PromiseDisk) {
		t.Errorf("required, it is opened all the same: %v", err)
	}
	box, err := x.Open(t.Context(), sandbox.Spec{Limits: sandbox.Limits{Disk: 1 << 20, FileSize: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	}()
	r := run(t, box, sandbox.Cmd{Args: []string{"/bin/sh", "-c", "for n in 1 2 3; do head -c 1000000 /dev/zero >$n || exit 3; done; wc -c 1 2 3 | tail -n 1"}})
	if r.Status != sandbox.StatusOK || !strings.Contains(text(r.Stdout), "3000000") {
		t.Errorf("three files of 1 MB under a limit of 1 MiB: %s; if that is bounded now, promise it", summary(r))
	}
}

// confined plays what the suite has no place for: this back end has no tree of its own, so its programs are among the host's files and processes.
func confined(t *testing.T) {
	s := newStage(t, openLandlock, Except{ownTree: "see above"})
	host := filepath.Join(t.TempDir(), "host")
	if err := errors.Join(os.WriteFile(host, []byte("#!/bin/sh\n"+planted), 0o777), os.Chmod(host, 0o777), os.Chmod(filepath.Dir(host), 0o777), os.Chmod(filepath.Dir(filepath.Dir(host)), 0o711)); err != nil {
		t.Fatal(err)
	}
	s.with(t, func(other sandbox.Sandbox) {
		put(t, other, sandbox.File{Path: "secret", Data: []byte(planted)})
		theirs := strings.TrimSpace(text(run(t, other, sandbox.Cmd{Args: []string{"pwd"}}).Stdout))
		s.with(t, func(box sandbox.Sandbox) {
			t.Run("tries", func(t *testing.T) { s.tries(t, box, host, theirs) })
			t.Run("hostile folders", func(t *testing.T) { hostileFolders(t, box) })
		})
		if f, err := other.Get(context.Background(), "secret", 100); err != nil || string(f.Data) != planted {
			t.Errorf("another sandbox's file is now %q, %v", f.Data, err)
		}
	})
	if text, err := os.ReadFile(host); err != nil || !bytes.Contains(text, []byte(planted)) {
		t.Errorf("the host's file is now %q, %v", text, err)
	}
	s.checkNothingLeft(t)
}

// tries holds each outcome to a refusal, but for what a program may do.
func (s *stage) tries(t *testing.T, box sandbox.Sandbox, host, other string) {
	cmd := s.command("confined", host, other, strconv.Itoa(os.Getpid()))
	r := run(t, box, cmd)
	got := outcomes(text(r.Stdout))
	if r.Status != sandbox.StatusOK || len(got) < 100 || strings.Contains(text(r.Stdout), planted) {
		t.Errorf("%d outcomes: %s", len(got), summary(r))
	}
	wants := map[string]string{"own folders": "ok", "NoNewPrivs": "1", "Seccomp": "2", "CapInh": "True", "CapPrm": "True", "CapEff": "True", "CapAmb": "True"}
	if os.Geteuid() == 0 {
		wants["groups"] = ""
		if id, err := strconv.Atoi(got["user"]); err != nil || known(id) {
			t.Errorf("the program is user %s of this host", got["user"])
		}
	}
	delete(got, "user")
	if os.Geteuid() != 0 {
		delete(got, "groups")                         // an ordinary user cannot drop them
		delete(got, "list descriptors of the tester") // how many a process of the same user has; what they are is refused
	}
	for _, what := range slices.Sorted(maps.Keys(got)) {
		want, listed := wants[what]
		if listed && got[what] != want || !listed && !slices.Contains(append(refusals(), "EXDEV"), got[what]) { // EXDEV: what Landlock says of a move between folders
			t.Errorf("%s: %s", what, got[what])
		}
	}
}

// hostileFolders has a program leave what is hard to read past and hard to remove, and limits that hold in the work folder.
func hostileFolders(t *testing.T, box sandbox.Sandbox) {
	ctx := context.Background()
	sh := func(script string) sandbox.Result {
		return run(t, box, sandbox.Cmd{Args: []string{"/bin/sh", "-c", script}, Wall: patience})
	}
	sh("ln -s /etc/shadow shadow; ln -s /etc etc; mkfifo fifo; mkdir folder; echo plain > plain")
	escape := func(err error) bool { var e *sandbox.EscapeError; return errors.As(err, &e) }
	for _, path := range []string{"shadow", "etc/passwd", "../x", "/etc/passwd"} {
		if f, err := box.Get(ctx, path, 1<<20); !escape(err) {
			t.Errorf("Get %q: %.20q, %v", path, f.Data, err)
		}
	}
	for _, path := range []string{"etc/x", "../x", "/tmp/x"} {
		if err := box.Put(ctx, sandbox.File{Path: path, Data: []byte("forged")}); !escape(err) {
			t.Errorf("Put %q: %v", path, err)
		}
	}
	if f, err := box.Get(ctx, "plain", 10); err != nil || string(f.Data) != "plain\n" {
		t.Errorf("a plain file: %q, %v", f.Data, err)
	}
	put(t, box, sandbox.File{Path: "in/given", Data: []byte("given")})
	if r := sh("echo more >> in/given && echo new > in/new && cat in/given"); text(r.Stdout) != "givenmore\n" {
		t.Errorf("a program cannot work on what it was given: %s", summary(r))
	}
	if r := sh("exec head -c 100000000 /dev/zero > large"); r.Status != sandbox.StatusFileLimit {
		t.Errorf("a file larger than allowed: %s", summary(r))
	}
	began := time.Now()
	sh("mkdir -p a/b/c; echo x > a/b/c/f; chmod 0 a/b/c/f a/b/c a/b a; mkdir d; chmod 1000 d; chmod 0 .")
	if err := box.Reset(ctx); err != nil {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
	if _, err := box.Get(ctx, "plain", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Reset: %v", err)
	}
	if r := sh("ls -A . \"$TMPDIR\"; stat -c %a ."); text(r.Stdout) != ".:\n\n"+strings.TrimSpace(text(sh(`echo "$TMPDIR"`).Stdout))+":\n700\n" {
		t.Errorf("after Reset: %s", summary(r))
	}
}
