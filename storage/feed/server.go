package feed

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"tranche/storage"
	"tranche/storage/arrowrows"
)

// Server serves one run. It owns two goroutines, the one that looks for new rows and, after Serve, the one that accepts connections; End and
// Close wait for them.
type Server struct {
	cfg   Config
	order *storage.Order
	http  *http.Server

	places  chan struct{} // one for each stream that runs; its capacity is the bound
	ending  chan struct{} // closed by End: what waits for more rows ends
	stopped chan struct{} // closed by Close: every stream ends behind its batch
	work    sync.WaitGroup
	once    struct{ end, close sync.Once }
	closed  error

	mu     sync.Mutex // guards everything below
	news   chan struct{}
	sent   int64 // rows, by all streams
	drops  map[string]int64
	served map[string]int64 // the furthest cursor that each consumer was sent
}

// Open opens the feed of a run; Serve makes it reachable. Errors: those of storage.OpenOrder.
func Open(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(func() bool { _, writing := storage.Writing(cfg.Dir); return writing })
	order, err := storage.OpenOrder(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, order: order, places: make(chan struct{}, cfg.Streams), ending: make(chan struct{}), stopped: make(chan struct{}),
		news: make(chan struct{}), drops: map[string]int64{}, served: map[string]int64{}}
	s.http = &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	s.work.Go(s.watch)
	return s, nil
}

// Serve answers on a listener, which it closes, until End or Close.
func (s *Server) Serve(l net.Listener) {
	s.work.Go(func() { _ = s.http.Serve(l) }) // it ends with ErrServerClosed, or with the listener
}

// End lets streams go on to the last row that is published, and takes no new ones. When all have ended it waits for the consumers to
// acknowledge what they were sent, at most Config.AckWait: they do so on connections of their own, after the training. It returns then, or
// with ctx.
func (s *Server) End(ctx context.Context) error {
	s.once.end.Do(func() { close(s.ending) })
	if s.idle(ctx) {
		s.awaitAcks(ctx)
	}
	return s.http.Shutdown(ctx) // it closes the listener first
}

// idle waits until no stream runs; false when ctx ends before.
func (s *Server) idle(ctx context.Context) bool {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for len(s.places) > 0 {
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// awaitAcks waits for consumers that have not acknowledged what they were sent.
func (s *Server) awaitAcks(ctx context.Context) {
	bound := time.NewTimer(s.cfg.AckWait)
	defer bound.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for s.owed() {
		select {
		case <-look.C:
		case <-bound.C:
			return
		case <-s.stopped:
			return
		case <-ctx.Done():
			return
		}
	}
}

// owed says whether there is something that was sent and not acknowledged.
func (s *Server) owed() bool {
	acked := s.order.Consumers()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, index := range s.served {
		if acked[name] < index {
			return true
		}
	}
	return false
}

// Close ends every stream behind its batch, properly, and waits for that; with ctx, connections that are still written to are cut.
func (s *Server) Close(ctx context.Context) error {
	s.once.close.Do(func() {
		close(s.stopped)
		err := s.End(ctx)
		if err != nil {
			err = errors.Join(fmt.Errorf("streams were cut: %w", err), s.http.Close())
		}
		s.work.Wait()
		s.fill() // handlers that were cut
		s.closed = errors.Join(err, s.order.Close())
	})
	return s.closed
}

// fill waits until no stream runs any more.
func (s *Server) fill() {
	for range cap(s.places) {
		s.places <- struct{}{}
	}
}

// watch looks for new rows and wakes the streams that wait for them, until Close.
func (s *Server) watch() {
	last := int64(-1)
	for {
		err := s.order.Update()
		if n := s.order.Len(); n != last || err != nil {
			last = n
			s.wake()
		}
		wait := s.cfg.Poll
		if err != nil { // streams tell of it; the file may come back
			wait = max(wait, 2*time.Second)
		}
		select {
		case <-time.After(wait):
		case <-s.stopped:
			return
		}
	}
}

func (s *Server) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.news)
	s.news = make(chan struct{})
}

// changed is closed when there may be new rows. Ask for it before looking.
func (s *Server) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.news
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.about)
	mux.HandleFunc("GET /v1/rows", s.rows)
	mux.HandleFunc("POST /v1/ack", s.ack)
	mux.HandleFunc("GET /v1/stats", s.stats)
	return s.guard(mux)
}

// guard asks for the key, and refuses web pages: a browser on this machine must not be led to acknowledge rows.
func (s *Server) guard(next http.Handler) http.Handler {
	want := []byte("Bearer " + s.cfg.Key)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.cfg.Key != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "this feed asks for a key: Authorization: Bearer KEY")
		case r.Header.Get("Origin") != "", !slices.Contains([]string{"", "none", "same-origin"}, r.Header.Get("Sec-Fetch-Site")):
			refuse(w, http.StatusForbidden, "this feed is not for web pages")
		case s.cfg.Key == "" && onLoopback(r) && !ownName(r.Host):
			refuse(w, http.StatusForbidden, "%.100q is no name of this machine here: ask for localhost or an address, or give the feed a key", r.Host)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// onLoopback says whether a request came to an address that only this machine reaches.
func onLoopback(r *http.Request) bool {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// ownName says whether a Host cannot be a name that a web page made point here (DNS rebinding).
func ownName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.EqualFold(host, "localhost") || net.ParseIP(strings.Trim(host, "[]")) != nil
}

// refuse answers with one sentence.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	fmt.Fprintf(w, format+"\n", args...)
}

// refuseError answers with what an error means to a client.
func refuseError(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, storage.ErrCursorGone):
		refuse(w, http.StatusGone, "%v; begin anew without a cursor", err)
	case errors.Is(err, storage.ErrDamaged), errors.Is(err, storage.ErrNotRun):
		refuse(w, http.StatusServiceUnavailable, "%v", err)
	case errors.Is(err, errQuery), errors.Is(err, storage.ErrCursor), errors.Is(err, storage.ErrConsumer):
		refuse(w, http.StatusBadRequest, "%v", err)
	default:
		refuse(w, http.StatusInternalServerError, "%v", err)
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // a client that is gone
}

// about tells what there is.
func (s *Server) about(w http.ResponseWriter, r *http.Request) {
	answer(w, map[string]any{
		"what":    "rows of a tranche run as Arrow IPC streams, in the order in which they were published",
		"read":    "import pyarrow, urllib.request; pyarrow.ipc.open_stream(urllib.request.urlopen('http://" + r.Host + "/v1/rows?follow=1'))",
		"routes":  map[string]any{"GET /v1/rows": parameters(), "POST /v1/ack": []string{"consumer", "cursor"}, "GET /v1/stats": []string{}},
		"columns": arrowrows.ColumnNames(),
	})
}

// ack makes durable how far a consumer has come. One that is behind what was acknowledged changes nothing.
func (s *Server) ack(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(10 * time.Second)) // of a body that nobody reads
	q, err := valuesOf(r, "consumer", "cursor")
	if err == nil && q.Get("cursor") == "" {
		err = badQuery("cursor: expected the one that came with a batch")
	}
	if err == nil {
		err = storage.CheckConsumer(q.Get("consumer"))
	}
	if err != nil {
		refuseError(w, err)
		return
	}
	index, err := s.order.Index(q.Get("cursor"))
	if err == nil {
		index, err = s.order.Ack(q.Get("consumer"), index)
	}
	if err != nil {
		refuseError(w, err)
		return
	}
	answer(w, progress{s.order.Cursor(index), s.order.Len() - index})
}

// progress is where a consumer stands.
type progress struct {
	Cursor string `json:"cursor"`
	Behind int64  `json:"behind"` // rows
}

// statistics is the answer of /v1/stats.
type statistics struct {
	Rows      int64               `json:"rows"` // published, replaced ones included
	Cursor    string              `json:"cursor"`
	Writing   bool                `json:"writing"`
	Consumers map[string]progress `json:"consumers"`
	Streams   int                 `json:"streams"`
	Sent      int64               `json:"sent"`    // rows since this server began
	Dropped   map[string]int64    `json:"dropped"` // rows since this server began, by the filter that did not take them
	Damage    string              `json:"damage,omitempty"`
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (s *Server) stats(w http.ResponseWriter, r *http.Request) {
	if _, err := valuesOf(r); err != nil {
		refuseError(w, err)
		return
	}
	damage := s.order.Update()
	n := s.order.Len()
	out := statistics{Rows: n, Damage: said(damage), Cursor: s.order.Cursor(n), Writing: s.cfg.Writing(), Consumers: map[string]progress{}, Streams: len(s.places), Dropped: map[string]int64{}}
	for name, index := range s.order.Consumers() {
		out.Consumers[name] = progress{s.order.Cursor(index), n - index}
	}
	s.mu.Lock()
	out.Sent = s.sent
	for name, n := range s.drops {
		out.Dropped[name] = n
	}
	s.mu.Unlock()
	answer(w, out)
}

// note keeps what a consumer was sent.
func (s *Server) note(consumer string, index int64) {
	if consumer == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served[consumer] = max(s.served[consumer], index)
}

// count adds what a stream did, for the statistics.
func (s *Server) count(sent int64, dropped map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent += sent
	for name, n := range dropped {
		s.drops[name] += n
	}
}
