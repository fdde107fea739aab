//go:build linux && (amd64 || arm64)

package docker

import (
	"context"
	"debug/elf"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/ns"
)

// engineOf answers at a socket of its own until the end of the test.
func engineOf(t *testing.T, handlers map[string]http.HandlerFunc) string {
	folder, err := os.MkdirTemp("", "engine") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	socket := filepath.Join(folder, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for pattern, h := range handlers {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+apiPath+path, h)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	server.Start()
	t.Cleanup(server.Close)
	return socket
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// silence ends with the request.
func silence(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that nobody waits any more
	<-r.Context().Done()
}

const briefly = 100 * time.Millisecond

// An engine that does not answer, or a container that does not call, holds nobody up who has given up.
func TestGivingUp(t *testing.T) {
	silent := map[string]http.HandlerFunc{"GET /info": silence}
	config := Config{Image: "x", Socket: engineOf(t, silent), Program: program(t, elf.PT_LOAD), Dir: t.TempDir()}
	given := func(what string, do func(context.Context) error) {
		ctx, stop := context.WithTimeout(t.Context(), briefly)
		defer stop()
		began := time.Now()
		if err := do(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > connectWithin/2 {
			t.Errorf("%s: after %v: %v", what, time.Since(began), err)
		}
	}
	given("New", func(ctx context.Context) error { _, err := New(ctx, config); return err })
	removed := make(chan string, 10)
	handlers := map[string]http.HandlerFunc{
		"POST /containers/create": silence,
		"DELETE /containers/{id}": func(w http.ResponseWriter, r *http.Request) { removed <- r.PathValue("id"); w.WriteHeader(204) },
	}
	start := func(ctx context.Context) error {
		l := &launcher{config: config, engine: newEngine(engineOf(t, handlers))}
		_, err := l.start(ctx, ns.LaunchOrder{Spec: sandbox.Spec{Limits: sandbox.DefaultLimits()}})
		return err
	}
	given("create", start)
	handlers["POST /containers/create"], handlers["POST /containers/{id}/start"] = says(201, `{"Id":"made"}`), silence
	given("start", start)
	handlers["POST /containers/{id}/start"] = says(204, "")
	given("call", start)
	close(removed)
	var names []string
	for name := range removed {
		names = append(names, name)
	}
	if len(names) < 2 {
		t.Errorf("removed were %q, want what was started and what did not call", names)
	}
}
