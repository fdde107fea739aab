//go:build linux

package session

import (
	"bufio"
	"context"
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
}

func (p *puppet) Control() *os.File                     { return p.control }
func (p *puppet) Usage() sandbox.Usage                  { return p.used() }
func (p *puppet) Take() (stdout, stderr sandbox.Output) { return stdout, stderr }

// newPuppet answers bash frames until the test ends.
func newPuppet(t *testing.T, used func() sandbox.Usage) *puppet {
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
			_, err := from.ReadString(0) // the code
			nonce, nerr := from.ReadString(0)
			if err != nil || nerr != nil {
				return
			}
			_, _ = io.WriteString(program, nonce[:len(nonce)-1]+" ok 0 -\n")
		}
	}()
	t.Cleanup(func() {
		host.Close()
		<-done
		program.Close()
	})
	return &puppet{control: host, used: used}
}

// What the sandbox's counters got between two calls is not the second one's: where all of a slot are counted together it was another program.
func TestCallPaysForItselfOnly(t *testing.T) {
	var used sandbox.Usage
	p := newPuppet(t, func() sandbox.Usage { return used })
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
