//go:build linux

package remote

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"tranche/action/sandbox"
)

// A far side that sends on to another host gets neither the key nor a program there.
func TestNoKeyForAnotherHost(t *testing.T) {
	for _, client := range []*http.Client{nil, {}} {
		for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			var told atomic.Int64
			other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { told.Add(1) }))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, other.URL+r.URL.Path, status)
			}))
			x, err := New(Config{URL: server.URL, Dialect: SWEReX, Key: "key", Client: client})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := x.Open(context.Background(), sandbox.Spec{}); err == nil {
				t.Error("it was opened")
			}
			if err := x.Close(); err != nil {
				t.Error(err)
			}
			if n := told.Load(); n > 0 {
				t.Errorf("HTTP %d: another host was asked %d times", status, n)
			}
			server.Close()
			other.Close()
		}
	}
}

// Close of many sandboxes on a far side that has fallen silent takes its patience once, not once for each.
func TestCloseOnASilentFarSide(t *testing.T) {
	var silent atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that nobody waits any more
		if silent.Load() {
			<-r.Context().Done()
		}
		_, _ = w.Write([]byte(`{"stdout":"/nonexistent","exit_code":0}`))
	}))
	defer server.Close()
	const patience, many = 2 * time.Second, 2 * closedAtOnce
	x, err := New(Config{URL: server.URL, Dialect: SWEReX, Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	for range many {
		if _, err := x.Open(context.Background(), sandbox.Spec{}); err != nil {
			t.Fatal(err)
		}
	}
	silent.Store(true)
	began := time.Now()
	if err := x.Close(); err == nil || time.Since(began) > many/4*patience {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

// What the caller has behind the arguments of a program stays the caller's.
func TestArgumentsAreOnlyRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "none", http.StatusTeapot) }))
	defer server.Close()
	x, err := New(Config{URL: server.URL, Dialect: SandboxFusion})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}()
	b, err := x.Open(context.Background(), sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"true", "the caller's"}
	p, err := b.Start(context.Background(), sandbox.Cmd{Args: all[:1], Env: []string{"A=1"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(context.Background()); err == nil {
		t.Error("it ran")
	}
	if all[1] != "the caller's" {
		t.Errorf("it is %q now", all[1])
	}
}
