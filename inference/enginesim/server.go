package enginesim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is an engine on a TCP port.
type Server struct {
	engine   *Engine
	http     *http.Server
	listener net.Listener
	closing  chan struct{} // closed when Close begins: lets go of hanging requests
	served   chan error    // what Serve returned; written once
	gate     gate
	grave    sync.WaitGroup // of bury
	died     chan struct{}  // closed when the port of a killed engine is
}

// gate counts the requests inside, so that Close can wait for the last one: http.Server.Close does not.
type gate struct {
	next   http.Handler
	mu     sync.Mutex
	shut   bool // guarded by mu: nobody enters any more
	inside sync.WaitGroup
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	if g.shut {
		g.mu.Unlock()
		panic(http.ErrAbortHandler) // its connection is closed already
	}
	g.inside.Add(1)
	g.mu.Unlock()
	defer g.inside.Done()
	g.next.ServeHTTP(w, r)
}

func (g *gate) wait() {
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
	g.inside.Wait()
}

// Listen serves the engine on addr ("127.0.0.1:0" = any free port) until Close. Idle connections are closed after
// Config.KeepAlive. An engine serves one port at a time.
func (e *Engine) Listen(addr string) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("enginesim: listen on %s: %w", addr, err)
	}
	s := &Server{engine: e, listener: l, closing: make(chan struct{}), served: make(chan error, 1), died: make(chan struct{})}
	s.gate.next = e.routes(s.closing)
	s.http = &http.Server{Handler: &s.gate, IdleTimeout: e.config.KeepAlive, ReadHeaderTimeout: 30 * time.Second}
	go func() { s.served <- s.http.Serve(l) }()
	s.grave.Go(func() { s.bury(e.jinx.doom, e.config.Faults.Linger) })
	return s, nil
}

// Addr is the address served, host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Died is closed when the engine was killed by a request (FaultKill, FaultCrash) and its port is closed; Close is still to be called.
func (s *Server) Died() <-chan struct{} { return s.died }

// Close stops accepting, lets running answers finish until ctx is done, then cuts them. It returns when nothing of the server
// runs any more, with ctx's error when answers were cut. Call it once.
func (s *Server) Close(ctx context.Context) error {
	close(s.closing)
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("enginesim: answers were cut: %w", err), s.http.Close())
	}
	if serve := <-s.served; !errors.Is(serve, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("enginesim: serve: %w", serve))
	}
	s.gate.wait()
	s.grave.Wait()
	s.engine.loop.Wait()
	return err
}
