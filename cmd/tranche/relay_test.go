//go:build unix

package main

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// relay is a port in front of a server that can be made to refuse connections, or to take none.
type relay struct {
	addr string
	l    net.Listener
	all  sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

// newRelay listens with room for a single connection that nobody has accepted, so that a few fill it.
func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "relay")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{l: l, addr: l.Addr().String()}
	r.all.Go(func() { r.serve(to) })
	t.Cleanup(func() { r.refuse(); r.all.Wait() })
	return r
}

func (r *relay) serve(to string) {
	for {
		in, err := r.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			_ = in.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, in, out)
		r.mu.Unlock()
		r.all.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
		r.all.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
	}
}

// refuse closes the port and every connection.
func (r *relay) refuse() {
	_ = r.l.Close()
	r.cut()
}

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

// hang stops accepting, cuts what there is and fills the queue, so that the next connection gets no answer to its first packet.
func (r *relay) hang(t *testing.T) {
	if err := r.l.(*net.TCPListener).SetDeadline(time.Now()); err != nil { // ends Accept, not the port
		t.Error(err)
	}
	r.cut()
	for range 8 {
		c, err := net.DialTimeout("tcp", r.addr, 200*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Log("the system queues connections without end: this is a server that takes the request and hangs")
}
