package inference

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tranche/episode"
)

// script is a server that answers every request of a connection by what it says for it.
type script struct {
	addr   string
	conns  atomic.Int32
	calls  atomic.Int32
	gone   atomic.Int32 // connections that have ended
	forgot atomic.Int32 // connections that the lanes were told to be forgotten
}

// serve plays a script: the n-th request of a connection, from 1 on, is answered by these bytes; close = the connection ends then.
func serve(t *testing.T, answer func(n int, body string) (bytes string, close bool)) *script {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{addr: l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			all.Go(func() { s.talk(conn, answer) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return s
}

func (s *script) talk(conn net.Conn, answer func(int, string) (string, bool)) {
	defer s.gone.Add(1)
	defer conn.Close()
	r := bufio.NewReader(conn)
	for n := 1; ; n++ {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		s.calls.Add(1)
		out, end := answer(n, string(body))
		if _, err := io.WriteString(conn, out); err != nil || end {
			return
		}
	}
}

func answered(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// testLanes are lanes to a script, and what posts a body and reads the answer whole.
func testLanes(t *testing.T, s *script, cfg Config) (*lanes, func(ctx context.Context, body string) (string, error)) {
	t.Helper()
	cfg.BaseURL = "http://" + s.addr
	a, err := addressOf(cfg.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.withDefaults(a)
	l := newLanes(cfg, newDialler(cfg.ConnectTimeout, a.socket), func() { s.forgot.Add(1) })
	t.Cleanup(l.close)
	return l, func(ctx context.Context, body string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, cfg.BaseURL+"/v1/x?y=z", strings.NewReader(body))
		if err != nil {
			return "", err
		}
		if !l.takes(req) {
			return "", fmt.Errorf("not taken: %d bytes", len(body))
		}
		resp, err := l.RoundTrip(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		out, err := io.ReadAll(resp.Body)
		return string(out), err
	}
}

// Whatever frames an answer, it is read to its end, and the connection is used again where its state is known.
func TestLaneAnswers(t *testing.T) {
	const chunkedBody = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
	for name, c := range map[string]struct {
		answer string
		close  bool
		want   string
		conns  int32 // for three calls
		fails  bool
	}{
		"a length":                    {answered("abc"), false, "abc", 1, false},
		"no body":                     {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, "", 1, false},
		"chunks":                      {chunkedBody, false, "abc", 1, false},
		"up to the end":               {"HTTP/1.1 200 OK\r\n\r\nabc", true, "abc", 3, false},
		"HTTP/1.0":                    {"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", false, "abc", 3, false},
		"a connection that is closed": {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc", false, "abc", 3, false},
		"more than an answer":         {answered("abc") + "HTTP/1.1 200 OK\r\n", false, "abc", 3, false},
		"an interim answer":           {"HTTP/1.1 102 Processing\r\nX: y\r\n\r\n" + answered("abc"), false, "abc", 1, false},
		"closed without a word":       {answered("abc"), true, "abc", 3, false},
		"cut":                         {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", true, "abc", 3, true},
		"cut chunks":                  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc", true, "abc", 3, true},
		"nothing":                     {"", true, "", 3, true},
		"no answer":                   {"SSH-2.0\r\n\r\n", false, "", 3, true},
		"204 that says chunks":        {"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", false, "", 1, false},
		"304 that says chunks":        {"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", false, "", 1, false},
		"interim answers without end": {strings.Repeat("HTTP/1.1 102 Processing\r\nX: "+strings.Repeat("y", 100_000)+"\r\n\r\n", 15) + answered("abc"), false, "", 3, true},
		"a head without an end":       {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 2000), false, "", 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(int, string) (string, bool) { return c.answer, c.close })
			l, post := testLanes(t, s, Config{})
			for i := range 3 {
				got, err := post(t.Context(), "hello")
				if got != c.want || (err != nil) != c.fails {
					t.Fatalf("call %d: %q, %v; want %q", i, got, err, c.want)
				}
				time.Sleep(5 * time.Millisecond) // a connection that the server ends has ended
			}
			if n := s.conns.Load(); n != c.conns || len(l.slots) != 0 {
				t.Errorf("%d connections for three calls, want %d; %d slots are taken", n, c.conns, len(l.slots))
			}
			if n := s.calls.Load(); n != 3 {
				t.Errorf("%d calls came, want 3: none is sent twice", n)
			}
		})
	}
}

// The request is what was asked for: its target, its body, its length.
func TestLaneRequest(t *testing.T) {
	s := serve(t, func(_ int, body string) (string, bool) { return answered(body), false })
	_, post := testLanes(t, s, Config{})
	for _, body := range []string{"x", strings.Repeat("é", 5000), strings.Repeat("z", mostCarried), "short again"} {
		if got, err := post(t.Context(), body); got != body || err != nil {
			t.Fatalf("%d bytes came back as %d: %v", len(body), len(got), err)
		}
	}
	if _, err := post(t.Context(), strings.Repeat("z", mostCarried+1)); err == nil {
		t.Error("a body over the bound was taken")
	}
}

// What a lane cannot carry goes by net/http, and arrives as well.
func TestLongRequestsArrive(t *testing.T) {
	s := serve(t, func(_ int, body string) (string, bool) {
		if strings.Contains(body, "messages") {
			return answered(fmt.Sprintf(`{"choices":[{"message":{"content":"%d"},"finish_reason":"stop"}]}`, strings.Count(body, "long"))), false
		}
		return answered(`{"data":[{"id":"m"}]}`), false
	})
	e, err := newEndpoint(Config{BaseURL: "http://" + s.addr, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, n := range []int{1, 100, 50_000} {
		if r := generate(t, e, call(strings.Repeat("long ", n))); r.Message.Text() != fmt.Sprint(n) {
			t.Errorf("%d words came as %s", n, r.Message.Text())
		}
	}
}

// Connections end well before the server would end them, and all of them when the endpoint is closed.
func TestLanesEnd(t *testing.T) {
	s := serve(t, func(_ int, body string) (string, bool) { return answered(body), false })
	_, post := testLanes(t, s, Config{ServerIdle: 200 * time.Millisecond})
	if _, err := post(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "an idle connection ends", func() bool { return s.gone.Load() == 1 })
	l, post := testLanes(t, s, Config{})
	if _, err := post(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	l.close()
	waitFor(t, "closing ends it", func() bool { return s.gone.Load() == 2 })
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 12_000 { // a minute
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s: it did not", what)
}

// A call that is given up ends its connection, wherever it was, and gives its place to the next.
func TestLaneCancel(t *testing.T) {
	hold := make(chan struct{})
	s := serve(t, func(_ int, body string) (string, bool) {
		switch body {
		case "head":
			<-hold
		case "body":
			return "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", false
		}
		return answered(body), false
	})
	defer close(hold)
	l, post := testLanes(t, s, Config{Concurrency: 1})
	for _, body := range []string{"head", "body"} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if _, err := post(ctx, body); err == nil {
			t.Errorf("%s: no error", body)
		}
		cancel()
	}
	if got, err := post(t.Context(), "next"); got != "next" || err != nil || len(l.slots) != 0 {
		t.Errorf("%q, %v; %d slots are taken", got, err, len(l.slots))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := post(ctx, "x"); err == nil {
		t.Error("a call that was over before it began")
	}
}

// There are never more connections than calls may be on their way.
func TestLanesAreBounded(t *testing.T) {
	s := serve(t, func(_ int, body string) (string, bool) {
		time.Sleep(time.Millisecond)
		return answered(body), false
	})
	l, post := testLanes(t, s, Config{Concurrency: 4})
	burst(40, 400, func() {
		if got, err := post(t.Context(), "x"); got != "x" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
	if n := int(s.conns.Load()); n > cap(l.slots) {
		t.Errorf("%d connections for at most %d calls", n, cap(l.slots))
	}
}

// Calls by lane and those by net/http dial under one limit: a server's accept queue is one.
func TestOneLimitOfDials(t *testing.T) {
	s := serve(t, func(int, string) (string, bool) { return answered("{}"), false })
	e, err := newEndpoint(Config{BaseURL: "http://" + s.addr, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for range maxDials {
		e.lanes.dials.slots <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.Generate(ctx, call("x"), 0, 8); err == nil {
		t.Error("a call was made over the limit")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if status, _, err := e.ask(ctx, http.MethodGet, e.address.api+"/models", nil); err == nil || s.conns.Load() > 0 {
		t.Errorf("a question was asked over the limit: status %d, %d connections", status, s.conns.Load())
	}
}

// A fault on a lane has the class it has always had.
func TestLaneFaults(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   episode.Class
	}{
		"closed before the head": {"", episode.ClassReset},
		"no HTTP":                {"SSH-2.0\r\n\r\n", episode.ClassReset},
		"cut in the body":        {"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{\"choices\":", episode.ClassTruncatedStream},
		"a malformed chunk":      {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nxx\r\n", episode.ClassTruncatedStream},
	} {
		s := serve(t, func(int, string) (string, bool) { return c.answer, true })
		e, err := newEndpoint(Config{BaseURL: "http://" + s.addr, Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Generate(t.Context(), call("x"), 0, 8); faultOf(t, err).Class != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		e.Close()
	}
}
