package main

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"tranche/inference/enginesim"
)

func TestRunOverTLSWithAnAuthorityOfOnesOwn(t *testing.T) {
	engine, err := enginesim.New(enginesim.Config{LengthMean: 10})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(engine.Handler())
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	ca := write(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	tasks := taskFile(t, 8, "")
	newShell(t).do(codeOK, "run", tasks, "--endpoint", server.URL, "--ca-file", ca, "-o", newRunDir(t), "-q")
	newShell(t).do(codeOK, "run", "-c", write(t, "run.yaml", "tasks: "+tasks+"\nendpoint:\n  - url: "+server.URL+"\n    ca-file: "+ca+"\n"), "-o", newRunDir(t), "-q")
	newShell(t).do(codeEndpoint, "run", tasks, "--endpoint", server.URL, "-o", newRunDir(t), "-q")
	newShell(t).do(codeUsage, "run", tasks, "--endpoint", server.URL, "--ca-file", filepath.Join(t.TempDir(), "absent.pem"), "-o", newRunDir(t), "-q")
}

func TestRunOverASocket(t *testing.T) {
	engine, err := enginesim.New(enginesim.Config{LengthMean: 10})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "t") // short: the path of a socket has a limit of about 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s.sock"))
	if err != nil {
		t.Skipf("no unix sockets here: %v", err)
	}
	server := &http.Server{Handler: engine.Handler()}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	defer func() { _ = server.Close(); served.Wait() }()
	run := newRunDir(t)
	newShell(t).do(codeOK, "run", taskFile(t, 8, ""), "--endpoint", "unix://"+l.Addr().String(), "-o", run, "-q")
	if rows := rowsIn(t, run); len(rows) != 8 {
		t.Errorf("%d rows, want 8", len(rows))
	}
	newShell(t).do(codeUsage, "run", taskFile(t, 1, ""), "--endpoint", "unix://s.sock", "-o", newRunDir(t), "-q")
}
