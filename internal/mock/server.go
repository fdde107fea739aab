package mock

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// Handler answers one request. It runs on the connection's own goroutine; many run at once. It may wait: a client that
// goes away, or the end of the test, ends every wait of Reply.
type Handler func(r *Request, w *Reply)

// Config says what the server does.
type Config struct {
	// Model is the id that GET /v1/models lists. Default: "mock".
	Model string
	// Chat answers POST /v1/chat/completions. Default: a short text with usage.
	Chat Handler
	// Routes answers further routes, keyed "GET /path" or "POST /path"; they win over the built-in ones.
	Routes map[string]Handler
	// Idle is how long an idle connection is kept open before the server closes it. Default 0: for ever.
	Idle time.Duration
}

// Server is a running mock.
type Server struct {
	cfg      Config
	listener net.Listener
	http     *http.Server
	stop     chan struct{} // closed when the test ends: releases every hang
	served   chan struct{} // closed by the serving goroutine

	mu       sync.Mutex // guards all below
	requests []*Request
	conns    int
	inFlight int
	peak     int
}

// Request is one request as it arrived.
type Request struct {
	N       int    // order of arrival over all connections, from 0
	ID      string // X-Request-Id
	Session string // X-Session-ID
	Method  string
	Path    string
	Header  http.Header
	Body    []byte
	At      time.Time // when the handler had the whole body
	Conn    int       // connection number, from 0
	NewConn bool      // the first request on its connection

	ctx context.Context
}

// Gone is closed when the client has gone away.
func (r *Request) Gone() <-chan struct{} { return r.ctx.Done() }

// Field returns one raw field of the JSON body, nil when the body lacks it or is no JSON object.
func (r *Request) Field(name string) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(r.Body, &m) != nil {
		return nil
	}
	return m[name]
}

// New starts a server on a free loopback port; it ends with the test.
func New(tb testing.TB, cfg Config) *Server {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("mock: listen on a loopback port: %v", err)
	}
	s := &Server{cfg: cfg, listener: l, stop: make(chan struct{}), served: make(chan struct{})}
	s.http = &http.Server{Handler: s, IdleTimeout: cfg.Idle, ConnContext: s.number}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			tb.Errorf("mock: serve: %v", err)
		}
	}()
	tb.Cleanup(s.close)
	return s
}

// URL is the base URL a client is given, with /v1.
func (s *Server) URL() string { return s.Root() + "/v1" }

// Root is the base URL without /v1.
func (s *Server) Root() string { return "http://" + s.listener.Addr().String() }

// Requests returns what arrived so far on any route, in order of arrival.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Chats returns the chat completion requests that arrived so far.
func (s *Server) Chats() []*Request {
	return slices.DeleteFunc(s.Requests(), func(r *Request) bool { return r.Path != chatPath })
}

// Conns is the number of connections accepted so far.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// Peak is the largest number of requests that were inside a handler at once.
func (s *Server) Peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

const chatPath = "/v1/chat/completions"

type connKey struct{}

type connState struct {
	n    int
	used bool // touched only by the connection's own goroutine
}

func (s *Server) number(ctx context.Context, _ net.Conn) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &connState{n: s.conns}
	s.conns++
	return context.WithValue(ctx, connKey{}, c)
}

func (s *Server) close() {
	close(s.stop)
	s.http.Close()
	<-s.served
}

// ServeHTTP records the request and runs its handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(hr.Body)
	if err != nil {
		return // the client left while sending
	}
	conn := hr.Context().Value(connKey{}).(*connState)
	r := &Request{
		ID: hr.Header.Get("X-Request-Id"), Session: hr.Header.Get("X-Session-ID"),
		Method: hr.Method, Path: hr.URL.Path, Header: hr.Header, Body: body, At: time.Now(),
		Conn: conn.n, NewConn: !conn.used, ctx: hr.Context(),
	}
	conn.used = true
	s.enter(r)
	defer s.leave()
	s.handler(r)(r, &Reply{w: w, gone: r.Gone(), stop: s.stop})
}

func (s *Server) enter(r *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.N = len(s.requests)
	s.requests = append(s.requests, r)
	s.inFlight++
	s.peak = max(s.peak, s.inFlight)
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
}

func (s *Server) handler(r *Request) Handler {
	key := r.Method + " " + r.Path
	if h, ok := s.cfg.Routes[key]; ok {
		return h
	}
	switch key {
	case "POST " + chatPath:
		if s.cfg.Chat != nil {
			return s.cfg.Chat
		}
		return func(_ *Request, w *Reply) { w.JSON(200, Text("ok").Body()) }
	case "GET /v1/models":
		return s.models
	}
	return func(_ *Request, w *Reply) { w.JSON(404, `{"detail":"Not Found"}`) }
}

func (s *Server) models(_ *Request, w *Reply) {
	id := s.cfg.Model
	if id == "" {
		id = "mock"
	}
	w.JSON(200, `{"object":"list","data":[{"id":`+quote(id)+`,"object":"model","owned_by":"mock"}]}`)
}
