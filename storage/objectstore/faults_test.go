package objectstore

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tranche/internal/fakestore"
)

// sometimes has do answer every n-th request, and lets the others pass.
func sometimes(n int64, do func(w http.ResponseWriter, r *http.Request)) func(http.ResponseWriter, *http.Request) bool {
	var count atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) bool {
		if count.Add(1)%n != 0 {
			return false
		}
		do(w, r)
		return true
	}
}

func status(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(code)
	}
}

// What passes is tried again: every object arrives whole.
func TestTroubleThatPasses(t *testing.T) {
	trouble := map[string]func(http.ResponseWriter, *http.Request){
		"500": status(500), "503": status(503), "429": status(429),
		"reset at once":               func(w http.ResponseWriter, r *http.Request) { fakestore.Break(w, r, 0) },
		"reset in the midst of bytes": func(w http.ResponseWriter, r *http.Request) { fakestore.Break(w, r, 300_000) },
	}
	for _, scheme := range []string{"s3", "gs", "az"} {
		for name, do := range trouble {
			t.Run(scheme+" "+name, func(t *testing.T) {
				server, url := useFake(t, scheme)
				cfg := quick(url)
				cfg.Attempts = 12 // a third of the requests fail, and those of one upload are many at once
				s := mustStore(t, cfg)
				server.Intercept(sometimes(3, do))
				small, large := noise(400_000), noise(leastPartBytes+77)
				mustPut(t, s, "small", small)
				mustPut(t, s, "large", large)
				mustHold(t, s, "small", small)
				mustHold(t, s, "large", large)
				if got := keys(t, s); len(got) != 2 {
					t.Errorf("list: %q", got)
				}
			})
		}
	}
}

// An answer that is lost on its way back makes nobody believe that another was faster.
func TestALostAnswerIsNoConflict(t *testing.T) {
	for _, scheme := range []string{"s3", "gs", "az"} {
		t.Run(scheme, func(t *testing.T) {
			server, url := useFake(t, scheme)
			s := mustStore(t, quick(url))
			var lost atomic.Bool
			lose := func(this func(r *http.Request) bool) {
				lost.Store(false)
				server.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method != http.MethodPut && r.Method != http.MethodPost || !this(r) || !lost.CompareAndSwap(false, true) {
						return false
					}
					rec := &swallowed{header: http.Header{}}
					server.Serve(rec, r) // it is done, and nobody hears of it
					fakestore.Break(w, r, 0)
					return true
				})
			}
			comes := func(key string, b []byte) {
				t.Helper()
				if _, err := put(t.Context(), s, key, b, Condition{Absent: true}); err != nil {
					t.Fatal(err)
				}
				if !lost.Load() {
					t.Fatal("no answer was lost: nothing was tried")
				}
				mustHold(t, s, key, b)
			}
			lose(func(*http.Request) bool { return true })
			comes(manifestKey, []byte("the manifest"))
			if scheme == "az" { // commits the blocks that are committed once more
				return
			}
			lose(func(r *http.Request) bool { // what makes an object of the parts
				return r.Method == http.MethodPost && r.URL.Query().Has("uploadId") || strings.HasSuffix(r.Header.Get("Content-Range"), fmt.Sprintf("-%d/%d", leastPartBytes, leastPartBytes+1))
			})
			comes("large", noise(leastPartBytes+1))
		})
	}
}

type swallowed struct{ header http.Header }

func (s *swallowed) Header() http.Header         { return s.header }
func (s *swallowed) Write(b []byte) (int, error) { return len(b), nil }
func (s *swallowed) WriteHeader(int)             {}

// What does not pass is said at once, with what it is.
func TestTroubleThatStays(t *testing.T) {
	cases := []struct {
		name  string
		do    func(http.ResponseWriter, *http.Request)
		kind  error
		again bool // MayPass
	}{
		{"denied", status(403), ErrDenied, false},
		{"down", status(503), nil, true},
		{"no connection", func(w http.ResponseWriter, r *http.Request) { fakestore.Break(w, r, 0) }, nil, true},
		{"nonsense", status(418), nil, false},
	}
	for _, scheme := range []string{"s3", "gs", "az"} {
		for _, c := range cases {
			t.Run(scheme+" "+c.name, func(t *testing.T) {
				server, url := useFake(t, scheme)
				s := mustStore(t, quick(url))
				var requests atomic.Int64
				server.Intercept(func(w http.ResponseWriter, r *http.Request) bool { requests.Add(1); c.do(w, r); return true })
				_, err := put(t.Context(), s, "x", []byte("x"), Condition{})
				var e *Error
				if !errors.As(err, &e) || c.kind != nil && !errors.Is(err, c.kind) || MayPass(err) != c.again {
					t.Errorf("%v (may pass: %v), want %v, %v", err, MayPass(err), c.kind, c.again)
				}
				if n := requests.Load(); !c.again && n > 2 || c.again && n < 4 {
					t.Errorf("%d requests", n)
				}
			})
		}
		t.Run(scheme+" no bucket", func(t *testing.T) {
			_, url := useFake(t, scheme)
			s := mustStore(t, quick(strings.Replace(url, "//bucket", "//another", 1)))
			if _, err := s.List(t.Context()); !errors.Is(err, ErrNoBucket) {
				t.Errorf("list: %v", err)
			}
		})
	}
}

// A server that takes a request and never answers does not hold anybody for ever.
func TestASilentServerIsLeft(t *testing.T) {
	for _, scheme := range []string{"s3", "gs", "az"} {
		server, url := useFake(t, scheme)
		cfg := quick(url)
		cfg.Idle, cfg.Attempts = 50*time.Millisecond, 2
		s := mustStore(t, cfg)
		server.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return true
		})
		done := make(chan error, 1)
		go func() {
			_, err := put(t.Context(), s, "x", noise(1000), Condition{})
			done <- err
		}()
		select {
		case err := <-done:
			if !MayPass(err) {
				t.Errorf("%s: %v", scheme, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: it still waits", scheme)
		}
	}
}

// What a killed upload left is swept, and nothing else.
func TestSweep(t *testing.T) {
	server, url := useFake(t, "s3")
	s := mustStore(t, quick(url)).(*bucket)
	mustPut(t, s, "kept", []byte("x"))
	for range 3 {
		var id string
		err := s.tries.do(t.Context(), func() (err error) {
			id, err = s.core.NewMultipartUpload(t.Context(), s.bucket, s.name("half"), putOptions("00"))
			return err
		})
		if err != nil || id == "" {
			t.Fatal(err)
		}
	}
	if server.Uploads() != 3 {
		t.Fatalf("%d uploads were begun", server.Uploads())
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if server.Uploads() != 0 || server.Data("runs/place of ä+b/x/kept") == nil {
		t.Errorf("%d uploads are left; objects: %q", server.Uploads(), server.Names())
	}
}

// Messages hold no key and no token.
func TestSecretsStayOut(t *testing.T) {
	const secret = "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "")
	t.Setenv("AZURE_STORAGE_ACCOUNT", "nobody")
	t.Setenv("AZURE_STORAGE_SERVICE_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "?sig="+secret)
	t.Setenv("AZURE_STORAGE_KEY", "")
	s := mustStore(t, quick("az://bucket/x"))
	_, err := s.List(t.Context())
	if err == nil || strings.Contains(err.Error(), secret) || strings.Contains(s.String(), secret) {
		t.Errorf("%s: %v", s, err)
	}
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountKey="+secret)
	if _, err := Open(t.Context(), quick("az://bucket/x")); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("%v", err)
	}
}
