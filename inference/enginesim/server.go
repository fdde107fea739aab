package enginesim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Server is an engine on a TCP port.
type Server struct {
	engine   *Engine
	http     *http.Server
	listener net.Listener
	closing  chan struct{} // closed when Close begins: lets go of hanging requests
	served   chan error    // what Serve returned; written once
}

// Listen serves the engine on addr ("127.0.0.1:0" = any free port) until Close. Idle connections are closed after
// Config.KeepAlive.
func (e *Engine) Listen(addr string) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("enginesim: listen on %s: %w", addr, err)
	}
	s := &Server{engine: e, listener: l, closing: make(chan struct{}), served: make(chan error, 1)}
	s.http = &http.Server{Handler: e.routes(s.closing), IdleTimeout: e.config.KeepAlive, ReadHeaderTimeout: 30 * time.Second}
	go func() { s.served <- s.http.Serve(l) }()
	return s, nil
}

// Addr is the address served, host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

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
	s.engine.loop.Wait()
	return err
}
