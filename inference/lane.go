package inference

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// lanes carry calls over plain HTTP/1.1, one at a time on each connection. The goroutine that makes a call writes it and reads its answer:
// net/http has two more for each connection, and what the three tell one another costs more than all the rest of a short call.
//
// They carry what nearly every call is, a POST of moderate size to an http address, without a proxy. All else is net/http's (see takes), and so
// is reading the head and the framing of an answer.
type lanes struct {
	dials   *dialler
	slots   chan struct{} // one for each call on its way; with those that are idle there are never more connections
	idleFor time.Duration // how long a connection may be idle and be used again
	heardBy time.Duration // when something written to a new connection is to have been acknowledged
	forgot  func()        // is told of each connection that the server's machine forgot

	mu     sync.Mutex // guards what follows
	idle   []*lane    // the one that was used last is the last
	sweep  *time.Timer
	closed bool
}

// lane is one connection. It is its own reader: of the head of an answer it gives a limited number of bytes.
type lane struct {
	conn   net.Conn
	socket syscall.RawConn // nil = it is none that can be asked
	r      *bufio.Reader
	out    []byte // the request; used again, unless it is a long one
	head   int    // bytes that the head may still have, with the interim answers before it; negative = no bound
	reused bool
	since  time.Time // it is idle
	lost   atomic.Bool
}

const (
	// mostCarried is the longest body that goes by lane, bytes: one that fits into a socket's buffers. A longer one would have to be written while
	// the server may already be answering.
	mostCarried = 64 << 10
	// mostOut is the longest request whose memory stays with its connection, bytes: there may be thousands.
	mostOut = 16 << 10
	// heardBy is how long the other machine may take to acknowledge the first bytes: by then they have been sent four or five times.
	heardBy = 4 * time.Second
	// mostForgotten is how often a call may be given to a connection that is forgotten. It costs no attempt: the server had not a byte of it.
	mostForgotten = 5
	// mostHead is the longest head of an answer, bytes, with the interim answers before it.
	mostHead = 1 << 20
)

// newLanes are the lanes of an endpoint; nil where there are none to be had.
func newLanes(cfg Config, d *dialler, forgot func()) *lanes {
	if cfg.ProxyFromEnvironment && d.socket == "" {
		return nil
	}
	return &lanes{dials: d, slots: make(chan struct{}, maxConns(cfg.Concurrency)), idleFor: clientIdle(cfg.ServerIdle), heardBy: heardBy, forgot: forgot}
}

// takes reports whether a request can go by lane.
func (l *lanes) takes(req *http.Request) bool {
	if l == nil || req.URL.Scheme != "http" || req.Method != http.MethodPost || req.ContentLength <= 0 || req.ContentLength > mostCarried {
		return false
	}
	for name, list := range req.Header {
		if len(list) != 1 || !isPlainASCII(name) || !isPlainASCII(list[0]) {
			return false
		}
	}
	return isPlainASCII(req.URL.Host) && !strings.Contains(req.URL.Host, "%") // a zone is not for the server
}

func isPlainASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// RoundTrip sends a request and reads the head of its answer, whose body is to be read to its end or closed. An error after a connection was there
// says nothing of what the server has done.
func (l *lanes) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	resp, err := l.carry(ctx, req)
	if err != nil {
		<-l.slots
		return nil, err
	}
	return resp, nil
}

// forgottenError says that no connection came to be accepted: the server had not a byte of the call.
type forgottenError struct{ tries int }

func (e *forgottenError) Error() string {
	return fmt.Sprintf("%d connections were opened and nothing written to them was acknowledged: the server's queue of connections to be accepted is full", e.tries)
}

// carry makes the call on a connection. One that the server had closed before a byte of the call was written is replaced, and so is one that its machine
// forgot.
func (l *lanes) carry(ctx context.Context, req *http.Request) (*http.Response, error) {
	for forgotten := 0; ; {
		c := l.rested()
		if c == nil {
			var err error
			if c, err = l.open(ctx, req); err != nil {
				return nil, err
			}
		}
		if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GotConn != nil {
			trace.GotConn(httptrace.GotConnInfo{Conn: c.conn, Reused: c.reused})
		}
		if err := c.compose(req); err != nil {
			c.conn.Close()
			return nil, err
		}
		release := context.AfterFunc(ctx, c.interrupt)
		heard := c.listen(l.heardBy)
		resp, wrote, err := c.exchange(req)
		heard()
		if err == nil {
			resp.Body = &laneBody{body: resp.Body, lanes: l, lane: c, release: release, reuse: !resp.Close && !req.Close}
			return resp, nil
		}
		release()
		c.conn.Close()
		if cause := ctx.Err(); cause != nil {
			return nil, cause
		}
		switch {
		case c.lost.Load():
			l.forgot()
			if forgotten++; forgotten == mostForgotten {
				return nil, &forgottenError{forgotten}
			}
		case wrote || !c.reused:
			return nil, err
		}
		if req.Body, err = req.GetBody(); err != nil {
			return nil, fmt.Errorf("send the request again: %w", err)
		}
	}
}

// rested is a connection that is open and idle; nil = there is none.
func (l *lanes) rested() *lane {
	for {
		c := l.pop(time.Now())
		if c == nil || c.isQuiet() {
			return c
		}
		c.conn.Close()
	}
}

// pop takes the connection that was used last. Where that is too long ago it is so of all, and they are closed.
func (l *lanes) pop(now time.Time) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.idle) - 1
	if last < 0 {
		return nil
	}
	c := l.idle[last]
	if now.Sub(c.since) >= l.idleFor {
		l.closeIdle(last + 1)
		return nil
	}
	l.idle[last] = nil
	l.idle = l.idle[:last]
	return c
}

// open dials.
func (l *lanes) open(ctx context.Context, req *http.Request) (*lane, error) {
	addr := req.URL.Host
	if req.URL.Port() == "" {
		addr = net.JoinHostPort(req.URL.Hostname(), "80")
	}
	conn, err := l.dials.dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &lane{conn: conn, socket: socketOf(conn)}
	c.r = bufio.NewReaderSize(c, 16<<10)
	return c, nil
}

// socketOf is what can be asked of a connection; nil = nothing.
func socketOf(conn net.Conn) syscall.RawConn {
	if s, ok := conn.(syscall.Conn); ok {
		if socket, err := s.SyscallConn(); err == nil {
			return socket
		}
	}
	return nil
}

// put takes a connection back.
func (l *lanes) put(c *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.conn.Close()
		return
	}
	c.reused, c.since = true, time.Now()
	l.idle = append(l.idle, c)
	if l.sweep == nil {
		l.sweep = time.AfterFunc(l.idleFor, l.sweepIdle)
	}
}

// sweepIdle closes what has been idle for long, well before the server does, and comes again while there is anything idle.
func (l *lanes) sweepIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, old := time.Now(), 0
	for old < len(l.idle) && now.Sub(l.idle[old].since) >= l.idleFor {
		old++
	}
	l.closeIdle(old)
	if len(l.idle) == 0 {
		l.sweep = nil
		return
	}
	l.sweep.Reset(l.idle[0].since.Add(l.idleFor).Sub(now))
}

// closeIdle closes the n connections that have been idle longest. mu is held.
func (l *lanes) closeIdle(n int) {
	for _, c := range l.idle[:n] {
		c.conn.Close()
	}
	left := copy(l.idle, l.idle[n:])
	clear(l.idle[left:])
	l.idle = l.idle[:left]
}

// close closes the idle connections, and those that will be.
func (l *lanes) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.sweep != nil {
		l.sweep.Stop()
	}
	l.closeIdle(len(l.idle))
}

// compose writes down the request.
func (c *lane) compose(req *http.Request) error {
	b := append(c.out[:0], "POST "...)
	b = append(b, req.URL.RequestURI()...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, req.URL.Host...)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, req.ContentLength, 10)
	for name, list := range req.Header {
		b = append(append(append(append(b, "\r\n"...), name...), ": "...), list[0]...)
	}
	if req.Close {
		b = append(b, "\r\nConnection: close"...)
	}
	b = append(b, "\r\n\r\n"...)
	head := len(b)
	b = append(b, make([]byte, req.ContentLength)...)
	c.out = b
	if _, err := io.ReadFull(req.Body, b[head:]); err != nil {
		return fmt.Errorf("read the request's body: %w", err)
	}
	return req.Body.Close()
}

// exchange writes the request and reads the head of the answer. wrote says that some of it may have reached the server.
func (c *lane) exchange(req *http.Request) (resp *http.Response, wrote bool, err error) {
	n, writeErr := c.conn.Write(c.out)
	if cap(c.out) > mostOut {
		c.out = nil
	}
	if writeErr != nil && n == 0 {
		return nil, false, writeErr
	}
	c.head = mostHead // interim answers included: there may be any number
	for {
		resp, err = http.ReadResponse(c.r, req)
		switch {
		case err != nil && writeErr != nil:
			return nil, true, writeErr
		case err != nil:
			return nil, true, fmt.Errorf("read the answer's head: %w", err)
		case resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols:
			c.head = -1
			if t := resp.TransferEncoding; len(t) == 1 && t[0] == "chunked" && resp.Body != http.NoBody { // a 204 has none, whatever it says
				resp.Body = io.NopCloser(&chunks{r: c.r})
			}
			resp.Close = resp.Close || writeErr != nil || resp.StatusCode == http.StatusSwitchingProtocols
			return resp, true, nil
		}
		// an interim answer: another one follows
	}
}

var errLongHead = errors.New("the head of the answer has no end")

// Read reads from the connection.
func (c *lane) Read(p []byte) (int, error) {
	if c.head == 0 {
		return 0, errLongHead
	}
	if c.head > 0 {
		p = p[:min(len(p), c.head)]
	}
	n, err := c.conn.Read(p)
	if c.head > 0 {
		c.head -= n
	}
	return n, err
}

// listen gives a new connection up where nothing of what is written to it was acknowledged after a while. The function it returns ends that.
func (c *lane) listen(after time.Duration) (heard func() bool) {
	if c.reused || c.socket == nil {
		return func() bool { return true }
	}
	return time.AfterFunc(after, func() {
		if forgotten(c.socket) {
			c.lost.Store(true)
			c.interrupt()
		}
	}).Stop
}

// interrupt ends whatever the connection is waiting for.
func (c *lane) interrupt() { _ = c.conn.SetDeadline(time.Unix(1, 0)) }

// laneBody is the body of an answer. At its end the connection is free again.
type laneBody struct {
	body    io.ReadCloser
	lanes   *lanes
	lane    *lane
	release func() bool // from the end of the context; false = it has come
	reuse   bool
	done    bool
}

func (b *laneBody) Read(p []byte) (int, error) {
	if b.done {
		return 0, io.EOF
	}
	n, err := b.body.Read(p)
	if err != nil {
		b.end(err == io.EOF) // readers of net/http give it bare
	}
	return n, err
}

// Close closes the connection, unless the body was read to its end.
func (b *laneBody) Close() error {
	b.end(false)
	return nil
}

func (b *laneBody) end(whole bool) {
	if b.done {
		return
	}
	b.done = true
	if undisturbed := b.release(); undisturbed && whole && b.reuse && b.lane.r.Buffered() == 0 {
		b.lanes.put(b.lane)
	} else {
		b.lane.conn.Close()
	}
	<-b.lanes.slots
}
