//go:build linux && (amd64 || arm64)

package ns

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// stream reads one pipe of a program as long as somebody may write to it, and keeps its beginning and end. A program never waits for
// us, and however much it writes costs no memory.
type stream struct {
	f       *os.File
	raw     syscall.RawConn
	buffers *sync.Pool
	wrote   func(n int) // told of every piece
	done    chan struct{}

	mu      sync.Mutex // guards what follows
	half    int        // bytes kept of each end
	head    []byte
	tail    []byte    // up to twice half: it is cut when it is full
	total   int64     // since the last take
	to      io.Writer // where set, what is read goes there and is not kept
	stopped bool
}

const readBytes = 64 << 10

func newBuffers() *sync.Pool {
	return &sync.Pool{New: func() any { return new([readBytes]byte) }}
}

// newStream begins to read. The caller must call stop.
func newStream(f *os.File, to io.Writer, keep int, buffers *sync.Pool, wrote func(int)) (*stream, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &stream{f: f, to: to, raw: raw, buffers: buffers, wrote: wrote, half: max(keep/2, 1), done: make(chan struct{})}
	go s.drain()
	return s, nil
}

func (s *stream) drain() {
	defer close(s.done)
	_ = s.raw.Read(func(fd uintptr) bool { // an error: stop has closed the file
		for {
			n, more := s.pull(int(fd), readBytes)
			if !more {
				return true
			}
			if n == 0 {
				return false // wait for more
			}
		}
	})
}

// pull reads once. more is false at the end of the stream.
func (s *stream) pull(fd, most int) (n int, more bool) {
	buf := s.buffers.Get().(*[readBytes]byte)
	defer s.buffers.Put(buf)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return 0, false
	}
	for {
		n, err := unix.Read(fd, buf[:min(most, readBytes)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, true
		case err != nil || n == 0:
			return 0, false
		}
		s.keep(buf[:n])
		s.wrote(n)
		return n, true
	}
}

// keep adds a piece. The lock is held.
func (s *stream) keep(b []byte) {
	s.total += int64(len(b))
	if s.to != nil {
		if _, err := s.to.Write(b); err != nil {
			s.to = io.Discard // who reads it is gone; the program need not know
		}
		return
	}
	if room := s.half - len(s.head); room > 0 {
		n := min(room, len(b))
		s.head = append(s.head, b[:n]...)
		b = b[n:]
	}
	if len(b) > s.half {
		b = b[len(b)-s.half:]
	}
	if len(s.tail)+len(b) > 2*s.half {
		n := copy(s.tail, s.tail[len(s.tail)-s.half:])
		s.tail = s.tail[:n]
	}
	s.tail = append(s.tail, b...)
}

// take returns what came since the last take, with what lies in the pipe at this moment.
func (s *stream) take() sandbox.Output {
	s.pullWaiting()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := sandbox.Output{Head: s.head, Tail: s.tail, Total: s.total}
	if len(out.Tail) > s.half {
		out.Tail = out.Tail[len(out.Tail)-s.half:]
	}
	s.head, s.tail, s.total = nil, nil, 0
	return out
}

// pullWaiting reads as many bytes as are there now: who writes on and on does not keep us.
func (s *stream) pullWaiting() {
	_ = s.raw.Control(func(fd uintptr) { // an error: the file is closed, and all was read
		left, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		for err == nil && left > 0 {
			n, more := s.pull(int(fd), left)
			if n == 0 || !more {
				return
			}
			left -= n
		}
	})
}

// stop ends the reading, whoever still holds the other end.
func (s *stream) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.f.Close()
	<-s.done
}
