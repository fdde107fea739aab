//go:build linux

package output

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
	"tranche/internal/ends"
)

// Pump reads one stream of a program. Its own goroutine reads all the time, so the program never waits for us.
type Pump struct {
	file *os.File // the read end, known to the poller; nil before Begin
	fd   int      // of it
	over func(n int)
	to   io.Writer     // nil = what is read is kept
	done chan struct{} // closed by run at the end of the stream

	mu     sync.Mutex
	kept   ends.Ends // guarded by mu
	keep   int       // bytes
	buf    []byte    // guarded by mu
	closed bool      // likewise
}

// Stream makes a pipe, reads its one end and returns the other, which is the program's: close it here once the program has it. to gets what is
// read, as it comes; where it is nil, keep bytes of it are kept. over, where not nil, is told the number of bytes of every read. Close must
// be called.
func Stream(to io.Writer, keep int, over func(n int)) (p *Pump, w *os.File, err error) {
	if p, w, err = Pipe(to, keep, over); err == nil {
		p.Begin()
	}
	return p, w, err
}

// Pipe is Stream, but nothing is read before Begin, but by Take and Close: until then a program waits once the pipe is full.
func Pipe(to io.Writer, keep int, over func(n int)) (p *Pump, w *os.File, err error) {
	if keep <= 0 {
		keep = sandbox.DefaultKeep
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // this end only: the program's must wait
		return nil, nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	p = &Pump{
		fd: fds[0], over: over, to: to, done: make(chan struct{}),
		keep: keep, kept: ends.Keep(keep), buf: make([]byte, leastRead),
	}
	return p, os.NewFile(uintptr(fds[1]), "output"), nil
}

// HoldsBytes is what a pipe takes while nothing is read.
const HoldsBytes = 64 << 10

const leastRead, mostRead = 512, 32 << 10 // bytes at once: few programs print much

// Begin begins to read all the time. It must not be called after Close; again it does nothing.
func (p *Pump) Begin() {
	if p.file != nil {
		return
	}
	p.file = os.NewFile(uintptr(p.fd), "output")
	go p.run()
}

// run reads until the stream ends or Close makes it.
func (p *Pump) run() {
	defer close(p.done)
	conn, err := p.file.SyscallConn()
	if err != nil {
		return // the file is closed
	}
	for {
		ended := false
		err := conn.Read(func(uintptr) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			n, err := p.read(len(p.buf))
			ended = err == nil && n == 0 || err != nil && !errors.Is(err, unix.EAGAIN)
			return !errors.Is(err, unix.EAGAIN)
		})
		if err != nil || ended {
			return
		}
	}
}

// read takes at most n bytes out of the pipe; mu is held.
func (p *Pump) read(n int) (int, error) {
	for {
		got, err := unix.Read(p.fd, p.buf[:min(n, len(p.buf))])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if got == 0 { // the end; an empty write might never return
			return 0, nil
		}
		p.hand(p.buf[:got])
		if got == len(p.buf) && got < mostRead {
			p.buf = make([]byte, mostRead)
		}
		if p.over != nil {
			p.over(got)
		}
		return got, nil
	}
}

// hand hands on what was read, or keeps it; mu is held.
func (p *Pump) hand(b []byte) {
	if p.to == nil {
		p.kept.Add(b)
		return
	}
	p.kept.Skip(len(b))
	if _, err := p.to.Write(b); err != nil {
		p.to = io.Discard // who reads it is gone; the program need not know
	}
}

// Take returns what came since the last Take, with all that lies in the pipe at this moment.
func (p *Pump) Take() sandbox.Output {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.take()
}

func (p *Pump) take() sandbox.Output {
	if p.closed {
		return sandbox.Output{}
	}
	left, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ) // also called FIONREAD
	for err == nil && left > 0 {
		var n int
		if n, err = p.read(left); n == 0 {
			break
		}
		left -= n
	}
	out := sandbox.Output{Head: p.kept.Head(), Tail: p.kept.Tail(), Total: p.kept.Total()}
	p.kept = ends.Keep(p.keep)
	return out
}

// Close stops reading, whoever still holds the other end, and returns what was not taken. Again it returns nothing.
func (p *Pump) Close() sandbox.Output {
	p.mu.Lock()
	out := p.take()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if p.file == nil {
		if !again {
			_ = unix.Close(p.fd)
		}
		return out
	}
	_ = p.file.Close()
	<-p.done
	return out
}
