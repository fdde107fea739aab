//go:build linux

package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// puppet is an interpreter that ends every call at once; the time it used is what the test says.
type puppet struct {
	sandbox.Process
	control *os.File
	used    func() sandbox.Usage
	end     sandbox.Result // of Wait
}

func (p *puppet) Control() *os.File                     { return p.control }
func (p *puppet) Usage() sandbox.Usage                  { return p.used() }
func (p *puppet) Take() (stdout, stderr sandbox.Output) { return stdout, stderr }

func (p *puppet) Wait(context.Context) (sandbox.Result, error) { return p.end, nil }

// newPuppet has frames answered until the test ends.
func newPuppet(t *testing.T, used func() sandbox.Usage, answer func(from *bufio.Reader) (string, error)) *puppet {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	host, theirs := os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "program")
	program, err := net.FileConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	done := make(chan struct{})
	go func() { // ends with the host's end
		defer close(done)
		from := bufio.NewReader(program)
		for {
			text, err := answer(from)
			if err != nil {
				return
			}
			_, _ = io.WriteString(program, text)
		}
	}()
	t.Cleanup(func() {
		host.Close()
		<-done
		program.Close()
	})
	return &puppet{control: host, used: used}
}

// bashOK says of every call that it ended well.
func bashOK(from *bufio.Reader) (string, error) {
	_, err := from.ReadString(0) // the code
	nonce, nerr := from.ReadString(0)
	if err := errors.Join(err, nerr); err != nil {
		return "", err
	}
	return nonce[:len(nonce)-1] + " ok 0 -\n", nil
}

// What the sandbox's counters got between two calls is not the second one's: where all of a slot are counted together it was another program.
func TestCallPaysForItselfOnly(t *testing.T) {
	var used sandbox.Usage
	p := newPuppet(t, func() sandbox.Usage { return used }, bashOK)
	in := &interpreter{opt: Options{Kind: Bash, Grace: time.Second}, proc: p, from: bufio.NewReader(p.control)}
	for range 2 {
		used.CPU += time.Minute // beside it
		used.OOMKills++
		used.RefusedForks++
		r, err := in.do(context.Background(), "true", Limits{CPU: time.Second, Wall: time.Minute})
		if err != nil || r.Status != sandbox.StatusOK || r.Usage.CPU != 0 || r.Usage.OOMKills != 0 || r.Usage.RefusedForks != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// A kill for memory is charged to the run it was in, whatever ended that; and no later one is blamed for it.
func TestRunPaysForItselfOnly(t *testing.T) {
	var used sandbox.Usage // guarded by the order of a run: set before it, or before its answer
	type run struct {
		exit, signal, kills, forks int
		want                       sandbox.Status
	}
	runs := []run{
		{exit: 0, kills: 1, want: sandbox.StatusOK}, // a child's
		{exit: -1, signal: 9, want: sandbox.StatusSignaled},
		{exit: -1, signal: 9, kills: 2, forks: 1, want: sandbox.StatusMemoryLimit},
		{exit: -1, signal: 11, kills: 1, want: sandbox.StatusSignaled},
		{exit: 3, forks: 2, want: sandbox.StatusNonzero},
		{exit: -1, signal: 9, want: sandbox.StatusSignaled},
	}
	at := 0
	p := newPuppet(t, func() sandbox.Usage { return used }, func(from *bufio.Reader) (string, error) {
		var head [16]byte
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return "", err
		}
		var length int
		if _, err := fmt.Sscanf(string(head[1:]), "%d", &length); err != nil {
			return "", err
		}
		if _, err := from.Discard(length); err != nil {
			return "", err
		}
		nonce, err := from.ReadString('\n')
		if err != nil {
			return "", err
		}
		r := runs[at]
		used.OOMKills, used.RefusedForks = used.OOMKills+r.kills, used.RefusedForks+r.forks
		return fmt.Sprintf("%s ran %d %d 0 0\n", nonce[:len(nonce)-1], r.exit, r.signal), nil
	})
	z := NewZygote(nil, Options{})
	z.live = &interpreter{opt: z.opt, proc: p, from: bufio.NewReader(p.control)}
	for ; at < len(runs); at++ {
		used.OOMKills++ // beside it
		want := runs[at]
		r, err := z.Run(context.Background(), "pass", nil, Limits{Wall: time.Minute})
		if err != nil || r.Status != want.want || r.Usage.OOMKills != want.kills || r.Usage.RefusedForks != want.forks {
			t.Errorf("%+v: %+v, %v", want, r, err)
		}
	}
	p.end = sandbox.Result{Status: sandbox.StatusMemoryLimit, Signal: 9, Usage: used}
	if r, err := z.died(nil, ""); err != nil || r.Status != sandbox.StatusSignaled || r.Usage.OOMKills != 0 {
		t.Errorf("a zygote that was killed: %+v, %v", r, err)
	}
}
