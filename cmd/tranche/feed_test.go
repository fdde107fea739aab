package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"

	"tranche/storage/feed"
)

// A signal at the end of a run cuts the wait for what consumers acknowledge.
func TestASignalCutsTheWaitOfARunsFeed(t *testing.T) {
	shell := newShell(t)
	dir := newRunDir(t)
	shell.do(codeOK, "run", taskFile(t, 1, ""), "-o", dir, "--engine-speed", "0", "--probe", "quick", "-q")
	s := newSession(shell.app, Settings{})
	s.dir = dir
	var err error
	if s.feed.server, err = openFeed(s.a, feed.Config{Dir: dir, AckWait: time.Minute}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.feed.server.Serve(l)
	resp, err := http.Get("http://" + l.Addr().String() + "/v1/rows?consumer=trainer")
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	cut := time.AfterFunc(20*time.Millisecond, func() { s.interrupt(os.Interrupt, func(error) {}) })
	defer cut.Stop()
	s.closeFeed()
	if took := time.Since(began); took > feedDrain { // without a signal it is feedAck and more
		t.Errorf("it took %v", took)
	}
}

type closed struct{}

func (closed) Close(context.Context) error { return nil }

// What comes when a server has ended is somebody else's signal.
func TestCloseServerTakesNoLaterSignal(t *testing.T) {
	signals := make(chan os.Signal, 1)
	for range 50 {
		closeServer(t.Context(), &app{signals: signals}, closed{}, time.Minute)
		signals <- os.Interrupt
		runtime.Gosched()
		if len(signals) != 1 {
			t.Fatal("a signal is gone")
		}
		<-signals
	}
}
