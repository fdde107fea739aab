//go:build linux

package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
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

// held is a far side that keeps programs waiting until it is let go.
func held(t *testing.T) (x *Executor, let func()) {
	t.Helper()
	gate := make(chan struct{})
	let = sync.OnceFunc(func() { close(gate) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask runCode
		var asked request
		if json.NewDecoder(r.Body).Decode(&ask) != nil || json.Unmarshal(ask.Files[requestFile], &asked) != nil {
			t.Error("it is no request")
		}
		_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that nobody waits any more
		if asked.Op == "run" {
			select {
			case <-gate:
			case <-r.Context().Done():
			}
		}
		_ = json.NewEncoder(w).Encode(ranCode{Files: map[string][]byte{answerFile: []byte(`{"status":0}`), treeFile: {}}})
	}))
	x, err := New(Config{URL: server.URL, Dialect: SandboxFusion})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		let()
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return x, let
}

func begun(t *testing.T, b sandbox.Sandbox) sandbox.Process {
	t.Helper()
	p, err := b.Start(context.Background(), sandbox.Cmd{Args: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Behind a program that goes on nobody waits longer than they want to, and who gave up has touched nothing.
func TestNobodyWaitsBehindAProgramForEver(t *testing.T) {
	x, let := held(t)
	b, err := x.Open(context.Background(), sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	first := begun(t, b)
	for len(b.(*box).turn) == 0 {
		time.Sleep(time.Millisecond)
	}
	defer time.AfterFunc(10*time.Second, let).Stop()
	began := time.Now()
	soon, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer stop()
	if err := b.Put(soon, sandbox.File{Path: "f"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Put: %v", err)
	}
	if _, err := b.Get(soon, "f", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Get: %v", err)
	}
	if r, err := begun(t, b).Wait(soon); err != nil || r.Status != sandbox.StatusCanceled {
		t.Errorf("a second program: %s, %v", r.Status, err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	let()
	if r, err := first.Wait(context.Background()); err != nil || r.Status != sandbox.StatusOK {
		t.Errorf("the program: %s, %v", r.Status, err)
	}
	if err := b.Put(context.Background(), sandbox.File{Path: "f"}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// What ends a sandbox ends a program and those that wait behind it.
func TestEndsWhatWaitsBehindAProgram(t *testing.T) {
	for name, end := range map[string]func(sandbox.Sandbox) error{
		"reset": func(b sandbox.Sandbox) error { return b.Reset(context.Background()) }, "close": sandbox.Sandbox.Close,
	} {
		x, let := held(t)
		b, err := x.Open(context.Background(), sandbox.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(10*time.Second, let)
		var all []sandbox.Process
		for range 5 {
			all = append(all, begun(t, b))
		}
		if err := end(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !late.Stop() {
			t.Errorf("%s waited for the program", name)
		}
		for _, p := range all {
			if r, err := p.Wait(context.Background()); err != nil || r.Status != sandbox.StatusCanceled {
				t.Errorf("%s: %s, %v", name, r.Status, err)
			}
		}
	}
}

// A folder that could not be filled is removed, though its maker waits no more; so is one whose executor was closed meanwhile.
func TestNoFolderIsLeft(t *testing.T) {
	for name, broken := range map[string]bool{"write": true, "closed": false} {
		var x *Executor
		var removed atomic.Int64
		ctx, cancel := context.WithCancel(context.Background())
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			said := "{}" // of the aide
			switch {
			case bytes.Contains(text, []byte("mkdtemp(prefix")):
				said = "/far"
			case bytes.Contains(text, []byte("shutil.rmtree(sys.argv")):
				removed.Add(1)
			case r.URL.Path == "/write_file" && broken:
				cancel()
				http.Error(w, "no room", http.StatusInsufficientStorage)
				return
			case bytes.Contains(text, []byte("os.chmod(sys.argv")), bytes.Contains(text, []byte("request.json")):
				_ = x.Close() // also while it removes, when nobody may hold what Close needs
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"stdout": said, "exit_code": 0})
		}))
		var err error
		if x, err = New(Config{URL: server.URL, Dialect: SWEReX, Patience: 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
		_, err = x.Open(ctx, sandbox.Spec{})
		if err == nil || errors.Is(err, context.DeadlineExceeded) || removed.Load() != 1 || !broken && !errors.Is(err, errClosed) {
			t.Errorf("%s: %v; removed: %d times", name, err, removed.Load())
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		server.Close()
	}
}
