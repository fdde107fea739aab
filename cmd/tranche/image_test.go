//go:build linux && (amd64 || arm64)

package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// engineOfImages is a container engine that knows one image, python:3, by a digest that may change. It returns its socket.
func engineOfImages(t *testing.T, digest *string) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "engine") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	listener, err := net.Listen("unix", filepath.Join(folder, "s"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1.41/images/python:3/json", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"Id":"` + *digest + `"}`)) })
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	server.Start()
	t.Cleanup(server.Close)
	return filepath.Join(folder, "s")
}

// The image's digest is part of the run's identity, whatever its name, and another one under the same name is refused.
func TestImageIsPinned(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	socket := engineOfImages(t, &digest)
	s := &session{set: Settings{Sandbox: SandboxSpec{Backend: backendDocker, Options: Headers{"image": "python:3", "socket": socket}}}}
	if err := s.prepareRootfs(t.Context()); err != nil || s.set.Sandbox.RootfsDigest != digest || s.gradingSpec().RootfsDigest != digest {
		t.Errorf("%v: %+v", err, s.set.Sandbox)
	}
	f := &faults{}
	if s.set.Sandbox.check(f); f.err() != nil { // as a resumed run reads it
		t.Error(f.err())
	}
	digest = "sha256:" + strings.Repeat("b", 64)
	if err := s.prepareRootfs(t.Context()); err == nil || !strings.Contains(err.Error(), "rootfs-digest: the image python:3 has the digest "+digest) {
		t.Error(err)
	}
}
