package inference

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/episode"
)

// oneAnswer is a server of one model that gives one answer and notes how it was asked.
type oneAnswer struct {
	mu     sync.Mutex
	protos map[string]int // guarded by mu
	hosts  map[string]bool
}

func (o *oneAnswer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	if o.protos == nil {
		o.protos, o.hosts = map[string]int{}, map[string]bool{}
	}
	o.protos[r.Proto]++
	o.hosts[r.Host] = true
	o.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/v1/models":
		fmt.Fprint(w, `{"object":"list","data":[{"id":"m","object":"model","owned_by":"me"}]}`)
	case "/v1/chat/completions":
		time.Sleep(20 * time.Millisecond)
		fmt.Fprint(w, `{"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	default:
		http.NotFound(w, r)
	}
}

// ask opens the server and has it answer so many calls at once.
func (o *oneAnswer) ask(t *testing.T, cfg Config, calls int) {
	t.Helper()
	e, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			if r, err := e.Generate(t.Context(), call("hello"), 1, 8); err != nil || text1(r.Message.Content) != "hi" {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	all.Wait()
}

func TestHTTP2WhereTLSOffersIt(t *testing.T) {
	for name, h2 := range map[string]bool{"offered": true, "not offered": false} {
		t.Run(name, func(t *testing.T) {
			var o oneAnswer
			conns := 0
			var mu sync.Mutex
			s := httptest.NewUnstartedServer(&o)
			s.EnableHTTP2 = h2
			s.Config.ConnState = func(_ net.Conn, c http.ConnState) {
				mu.Lock()
				defer mu.Unlock()
				if c == http.StateNew {
					conns++
				}
			}
			s.StartTLS()
			defer s.Close()
			ca := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
			o.ask(t, Config{BaseURL: s.URL, CAFile: ca, Concurrency: 16}, 16)
			want := map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"}[h2]
			o.mu.Lock()
			defer o.mu.Unlock()
			if len(o.protos) != 1 || o.protos[want] == 0 {
				t.Errorf("asked by %v, want %s alone", o.protos, want)
			}
			mu.Lock()
			defer mu.Unlock()
			if h2 && conns > 2 {
				t.Errorf("%d connections for calls that share one", conns)
			}
		})
	}
}

func TestHTTP2CancelLeavesTheConnection(t *testing.T) {
	gone := make(chan struct{})
	var o oneAnswer
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Session-Id") == "hangs" {
			<-r.Context().Done() // the server is told at once
			close(gone)
			return
		}
		o.ServeHTTP(w, r)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := Open(t.Context(), Config{BaseURL: s.URL, CAFile: ca, AttemptTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	c := call("hello")
	c.Episode = "hangs"
	_, err = e.Generate(t.Context(), c, 1, 8)
	if f := faultOf(t, err); f.Class != episode.ClassTimeout {
		t.Errorf("class %s, want timeout", f.Class)
	}
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Error("the server was not told that the attempt is over")
	}
	generate(t, e, call("hello"))
}

func TestUnknownAuthorityIsNotTriedAgain(t *testing.T) {
	s := httptest.NewTLSServer(&oneAnswer{})
	defer s.Close()
	e, err := newEndpoint(Config{BaseURL: s.URL, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = e.Generate(t.Context(), call("hello"), 1, 8)
	if f := faultOf(t, err); f.Class != episode.ClassConnect || f.Retry {
		t.Errorf("class %s, retry %v", f.Class, f.Retry)
	}
}

func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "t") // short: the path of a socket has a limit of about 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Skipf("no unix sockets here: %v", err)
	}
	var o oneAnswer
	s := &http.Server{Handler: &o}
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) })
	defer func() { _ = s.Close(); served.Wait() }()
	o.ask(t, Config{BaseURL: "unix://" + path, Concurrency: 4}, 8)
	e, err := newEndpoint(Config{BaseURL: "unix://" + path})
	if err != nil || e.Name() != path {
		t.Errorf("name %q, %v; want the path", e.Name(), err)
	}
	for _, bad := range []string{"unix://", "unix://run/s.sock"} {
		if err := (Config{BaseURL: bad}).Validate(); err == nil || !strings.Contains(err.Error(), "absolute path") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestNoProxyUnlessAsked(t *testing.T) {
	for _, asked := range []bool{false, true} {
		tr, err := newTransport(Config{ProxyFromEnvironment: asked}, newDialler(0, ""))
		if err != nil || (tr.Proxy != nil) != asked {
			t.Errorf("asked %v: a proxy is looked for: %v, %v", asked, tr.Proxy != nil, err)
		}
	}
	if tr, err := newTransport(Config{ProxyFromEnvironment: true}, newDialler(0, "/s.sock")); err != nil || tr.Proxy != nil {
		t.Errorf("a socket is reached through a proxy: %v", err)
	}
}
