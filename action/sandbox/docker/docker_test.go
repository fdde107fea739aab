//go:build linux && (amd64 || arm64)

package docker

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// Who is not the container is not taken for it: nobody of this machine can reach the socket, and who does must be the container's user.
func TestAnotherCaller(t *testing.T) {
	for _, native := range []bool{false, true} {
		var folder string
		socket := engineOf(t, map[string]http.HandlerFunc{
			"POST /containers/create": func(w http.ResponseWriter, r *http.Request) {
				var c container
				if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
					t.Error(err)
				}
				i := slices.IndexFunc(c.HostConfig.Binds, func(b string) bool { return strings.HasSuffix(b, ownFolder+"/s:ro") })
				folder, _, _ = strings.Cut(c.HostConfig.Binds[max(i, 0)], ":")
				w.WriteHeader(201)
				_, _ = w.Write([]byte(`{"Id":"made"}`))
			},
			"POST /containers/{id}/start": func(w http.ResponseWriter, _ *http.Request) {
				if st, err := os.Stat(filepath.Dir(folder)); err != nil || st.Mode().Perm() != 0o700 {
					t.Errorf("the folder around the socket: %v, %v", st, err)
				}
				conn, err := net.Dial("unixpacket", filepath.Join(folder, "socket"))
				if err != nil {
					t.Error(err)
				} else {
					t.Cleanup(func() { _ = conn.Close() })
				}
				w.WriteHeader(204)
			},
			"DELETE /containers/{id}": says(204, ""),
		})
		ctx, stop := context.WithTimeout(t.Context(), 5*briefly)
		defer stop()
		l := &launcher{config: Config{Image: "x", Dir: t.TempDir()}, engine: newEngine(socket), native: native}
		started, err := l.start(ctx, ns.LaunchOrder{Spec: sandbox.Spec{Limits: sandbox.DefaultLimits()}})
		if native && (err == nil || !strings.Contains(err.Error(), "expected one of user")) || !native && err != nil {
			t.Errorf("native %v: %v", native, err)
		}
		if err == nil {
			if err := errors.Join(started.Kill(), started.Wait(), started.Socket.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// What a process left that was killed is removed by the next, and nobody else's.
func TestSweep(t *testing.T) {
	me, err := ownOwner()
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*owner)) string { o := me; change(&o); return o.String() }
	now, long := time.Now().Unix(), time.Now().Add(-2*longestStart).Unix()
	cases := []struct {
		name, label, state string
		created            int64
		gone               bool
	}{
		{"own", me.String(), "running", long, false},
		{"of a process that is gone", with(func(o *owner) { o.pid = 1 << 30 }), "created", now, true},
		{"of one that is gone, running", with(func(o *owner) { o.pid = 1 << 30 }), "running", now, true},
		{"of one whose id is another's now", with(func(o *owner) { o.started += "0" }), "created", now, true},
		{"of another space of ids", with(func(o *owner) { o.space++; o.pid = 1 << 30 }), "running", long, false},
		{"of another space, just created", with(func(o *owner) { o.space++; o.pid = 1 << 30 }), "created", now, false},
		{"of another space, created long ago", with(func(o *owner) { o.space++ }), "created", long, true},
		{"of before a restart", with(func(o *owner) { o.boot = "x" }), "created", long, true},
		{"a label of somebody else", "7", "running", long, false},
	}
	var all []left
	var want []string
	for i, c := range cases {
		all = append(all, left{ID: strconv.Itoa(i), Labels: map[string]string{ownerLabel: c.label}, State: c.state, Created: c.created})
		if c.gone {
			want = append(want, c.name)
		}
	}
	var removed []string
	l := &launcher{owner: me, engine: newEngine(engineOf(t, map[string]http.HandlerFunc{
		"GET /containers/json": func(w http.ResponseWriter, r *http.Request) {
			if q := r.URL.Query(); q.Get("all") != "true" || q.Get("filters") != `{"label":["tranche.owner"]}` {
				t.Errorf("asked for %v", q)
			}
			_ = json.NewEncoder(w).Encode(all)
		},
		"DELETE /containers/{id}": func(w http.ResponseWriter, r *http.Request) {
			i, _ := strconv.Atoi(r.PathValue("id"))
			removed = append(removed, cases[i].name)
			w.WriteHeader(500) // also then the others go
		},
	}))}
	if err := l.sweep(t.Context()); err != nil || !slices.Equal(removed, want) {
		t.Errorf("%v; removed are %q, want %q", err, removed, want)
	}
}

// A container that the engine does not remove is not silently taken for gone.
func TestRemovalFails(t *testing.T) {
	l := &launcher{config: Config{Dir: t.TempDir()}}
	l.engine = newEngine(engineOf(t, map[string]http.HandlerFunc{
		"POST /containers/create": func(w http.ResponseWriter, r *http.Request) {
			var c container
			_ = json.NewDecoder(r.Body).Decode(&c)
			for _, b := range c.HostConfig.Binds {
				if folder, ok := strings.CutSuffix(b, ":"+ownFolder+"/s:ro"); ok {
					conn, err := net.Dial("unixpacket", filepath.Join(folder, socket))
					if err != nil {
						t.Error(err)
						continue
					}
					t.Cleanup(func() { _ = conn.Close() })
				}
			}
			w.WriteHeader(201)
			_, _ = w.Write([]byte(`{"Id":"made"}`))
		},
		"POST /containers/{id}/start": says(204, ""), "DELETE /containers/{id}": says(500, `{"message":"busy"}`),
	}))
	started, err := l.start(t.Context(), ns.LaunchOrder{Spec: sandbox.Spec{Limits: sandbox.DefaultLimits()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(started.Kill(), started.Socket.Close()); err != nil {
		t.Error(err)
	}
	if err := started.Wait(); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Error(err)
	}
}

func TestSweepFolders(t *testing.T) {
	dir, old := t.TempDir(), time.Now().Add(-2*longestStart)
	for _, name := range []string{"tranche-docker-old/s", "tranche-docker-new/s", "other/s"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if folder := filepath.Dir(name); folder != "tranche-docker-new" {
			if err := os.Chtimes(filepath.Join(dir, folder), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	sweepFolders(dir, time.Now())
	var names []string
	all, err := os.ReadDir(dir)
	for _, e := range all {
		names = append(names, e.Name())
	}
	if err != nil || !slices.Equal(names, []string{"other", "tranche-docker-new"}) {
		t.Errorf("%v; there are %q", err, names)
	}
}

// A container is made of the image that the name stood for at first, and a sandbox that wants another one is refused.
func TestImage(t *testing.T) {
	made := make(chan string, 10)
	socket := engineOf(t, map[string]http.HandlerFunc{
		"GET /images/python:3/json": says(200, `{"Id":"sha256:a"}`), "GET /images/odd/json": says(200, "{}"),
		"POST /containers/create": func(w http.ResponseWriter, r *http.Request) {
			var c container
			_ = json.NewDecoder(r.Body).Decode(&c)
			made <- c.Image
			w.WriteHeader(500)
		},
	})
	id, err := ImageID(t.Context(), Config{Socket: socket, Image: "python:3"})
	if err != nil || id != "sha256:a" {
		t.Errorf("%q, %v", id, err)
	}
	for name, want := range map[string]string{"none": "docker pull none", "odd": "does not say"} {
		if _, err := ImageID(t.Context(), Config{Socket: socket, Image: name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l := &launcher{config: Config{Image: "python:3", Dir: t.TempDir()}, engine: newEngine(socket), image: id}
	for _, digest := range []string{"", id, "sha256:b"} {
		_, err := l.start(t.Context(), ns.LaunchOrder{Spec: sandbox.Spec{RootfsDigest: digest, Limits: sandbox.DefaultLimits()}})
		if refused := err != nil && strings.Contains(err.Error(), "expected sha256:b"); refused != (digest == "sha256:b") {
			t.Errorf("%q: %v", digest, err)
		}
	}
	close(made)
	var images []string
	for image := range made {
		images = append(images, image)
	}
	if !slices.Equal(images, []string{id, id}) {
		t.Errorf("made of %q", images)
	}
}
