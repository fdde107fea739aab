package inference

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deaf makes a listener's machine forget what it is asked for: connections seem to open, and nothing that is written to them arrives, as when the queue
// of those to be accepted is full. The function it returns ends that.
func deaf(t *testing.T, l net.Listener) (hear func()) {
	t.Helper()
	set := func(option int, value *unix.SockFprog) {
		raw, err := l.(*net.TCPListener).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var failed error
		if err := raw.Control(func(fd uintptr) {
			if value == nil {
				failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, 0)
				return
			}
			failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, option, value)
		}); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
	}
	only := []unix.SockFilter{ // of what comes, from the TCP header on: a packet that opens a connection
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: 0x02, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	set(unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(only)), Filter: &only[0]})
	return func() { set(unix.SO_DETACH_FILTER, nil) }
}

// forgetful are lanes to a server whose machine forgets connections until it hears.
func forgetful(t *testing.T) (post func() (string, error), hear func(), told *atomic.Int32) {
	t.Helper()
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // its sockets take no filter
	l, err := plain.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hear = deaf(t, l)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a part of it is not what the test expects
		_, _ = w.Write(body)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	cfg := Config{BaseURL: "http://" + l.Addr().String()}
	a, err := addressOf(cfg.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.withDefaults(a)
	told = &atomic.Int32{}
	lanes := newLanes(cfg, newDialler(cfg.ConnectTimeout, ""), func() {
		if told.Add(1) == 2 {
			hear()
		}
	})
	lanes.heardBy = 100 * time.Millisecond // before the system sends anything a second time
	t.Cleanup(lanes.close)
	return func() (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, cfg.BaseURL+"/x", strings.NewReader("hello"))
		if err != nil {
			return "", err
		}
		resp, err := lanes.RoundTrip(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		out, err := io.ReadAll(resp.Body)
		return string(out), err
	}, hear, told
}

// A connection that the server's machine dropped before it was accepted looks open for ever: the call is made again on another one.
func TestForgottenConnections(t *testing.T) {
	t.Run("for a while", func(t *testing.T) {
		post, _, told := forgetful(t)
		if out, err := post(); out != "hello" || err != nil || told.Load() != 2 {
			t.Fatalf("%q, %v, told %d times", out, err, told.Load())
		}
	})
	t.Run("for good", func(t *testing.T) {
		post, _, told := forgetful(t)
		told.Store(100) // it never hears
		_, err := post()
		var forgotten *forgottenError
		if !errors.As(err, &forgotten) || told.Load() != 100+mostForgotten {
			t.Fatalf("%v, told %d times", err, told.Load()-100)
		}
	})
}

// A server that takes a call and thinks for long is not given up.
func TestSlowServersAreNotForgotten(t *testing.T) {
	s := serve(t, func(_ int, body string) (string, bool) {
		time.Sleep(400 * time.Millisecond)
		return answered(body), false
	})
	l, post := testLanes(t, s, Config{})
	l.heardBy = 50 * time.Millisecond
	if out, err := post(t.Context(), "abc"); out != "abc" || err != nil || s.forgot.Load() != 0 {
		t.Fatalf("%q, %v, told %d times", out, err, s.forgot.Load())
	}
}
