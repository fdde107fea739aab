// Package mcptools offers the tools of MCP servers (Model Context Protocol) to episodes: a server is started or reached, its tools are
// listed once, and each becomes an action.Tool.
//
// A server is the user's own: it runs on the host with the environment it is given and is trusted. Its prompts, resources and requests to
// the client (sampling, elicitation, roots) are not used. Open server.go.
package mcptools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tranche/action"
	"tranche/internal/offspring"
	"tranche/internal/redirect"
)

// Config is one MCP server.
type Config struct {
	Name         string            // names it in messages, and its tools where their names collide
	Run          []string          // program and arguments of a server that speaks over stdio; or
	Dir          string            // where the program runs. Default here
	URL          string            // where a server speaks streamable HTTP
	Env          []string          // names of environment variables the program gets (see action.Environment)
	Headers      map[string]string // of every request to URL; ${NAME} in a value stands for an environment variable
	Tools        []string          // those that are taken, by the server's own names. Default all
	PerEpisode   bool              // a connection (and a process) for each episode that calls a tool, in the place of one for all
	Idempotent   bool              // all its tools are safe to call twice. Default: those that the server says so of
	Stateless    bool              // its tools keep nothing of an episode between calls
	Timeout      time.Duration     // of one call; 0 = that of all tools
	StartTimeout time.Duration     // from start to the list of tools. Default 1m
}

// Validate reports every fault of the configuration at once. It starts nothing.
func (c Config) Validate() error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	want(serverName(c.Name), "name: expected 1 to 32 letters, digits, _ and -, found %q", c.Name)
	want((len(c.Run) > 0) != (c.URL != ""), "run, url: expected one of them: a program with its arguments, or where the server is")
	want(len(c.Headers) == 0 || c.URL != "", "headers: have no meaning without url")
	want(len(c.Env) == 0 || len(c.Run) > 0, "env: has no meaning without run")
	want(c.Timeout >= 0 && c.StartTimeout >= 0, "timeout, start-timeout: expected 0 or more")
	if len(c.Run) > 0 {
		errs = append(errs, action.CanStart(c.Run[0], c.Dir))
		_, _, err := action.Environment(c.Env)
		errs = append(errs, err)
	}
	if c.URL != "" {
		u, err := url.Parse(c.URL)
		want(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil,
			"url: expected e.g. http://host:8080/mcp, without user name and password")
		_, err = action.ReadHeaders(c.Headers)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func serverName(name string) bool {
	return name != "" && len(name) <= 32 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// Server is a connected server. Its methods may be called from many episodes at once.
type Server struct {
	cfg     Config
	env     []string
	headers action.Headers
	secrets action.Secrets  // in env and headers
	web     *http.Transport // nil without URL
	tell    func(format string, args ...any)
	listed  []*mcp.Tool
	shared  slot        // of all episodes, unless PerEpisode
	older   atomic.Bool // it speaks the protocol of beforeDiscover

	mu       sync.Mutex
	episodes map[string]*slot // guarded by mu
	closed   bool             // guarded by mu
}

// slot is the place of one connection, which may be made anew.
type slot struct {
	mu   sync.Mutex // held while a connection is made
	conn *connection
	over bool // no more are made
}

// Open starts or reaches the server and lists its tools. tell takes notices for people; nil = none. Close the Server in the end.
func Open(ctx context.Context, cfg Config, tell func(format string, args ...any)) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if tell == nil {
		tell = func(string, ...any) {}
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = time.Minute
	}
	s := &Server{cfg: cfg, tell: tell, episodes: make(map[string]*slot)}
	s.env, s.secrets, _ = action.Environment(cfg.Env) // both were
	s.headers, _ = action.ReadHeaders(cfg.Headers)    // checked above
	s.secrets = s.secrets.With(s.headers.Secrets)
	if cfg.URL != "" {
		s.web = http.DefaultTransport.(*http.Transport).Clone()
		s.web.MaxIdleConnsPerHost = 64
	}
	if err := s.begin(ctx); err != nil {
		s.Close()
		return nil, err
	}
	if cfg.PerEpisode { // the first was for the list
		s.shared.end()
	}
	return s, nil
}

// begin connects and lists the tools, both within StartTimeout.
func (s *Server) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	c, err := s.reach(ctx, &s.shared)
	if err == nil {
		s.listed, err = s.list(ctx, c)
	}
	return err
}

// silence is what to say of a server that did not answer within StartTimeout, in the place of "deadline exceeded".
func (s *Server) silence(ctx context.Context, asked string, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("it did not answer %s within %v (start-timeout): %w", asked, s.cfg.StartTimeout, context.DeadlineExceeded)
	}
	return s.secrets.Hide(err)
}

// list asks for all tools and keeps those that are wanted.
func (s *Server) list(ctx context.Context, c *connection) ([]*mcp.Tool, error) {
	var all []*mcp.Tool
	var names []string
	for t, err := range c.session.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("list the tools: %w%s", s.silence(ctx, "with its tools", err), c.said())
		}
		if t == nil || len(all) >= maxTools {
			continue
		}
		names = append(names, t.Name)
		if len(s.cfg.Tools) == 0 || slices.Contains(s.cfg.Tools, t.Name) {
			all = append(all, t)
		}
	}
	var errs []error
	for i, want := range s.cfg.Tools {
		if !slices.Contains(names, want) {
			errs = append(errs, fmt.Errorf("tools[%d]: the server has no tool %q; it has: %s", i, want, strings.Join(names, ", ")))
		}
	}
	return all, errors.Join(errs...)
}

// maxTools bounds a list that has no end.
const maxTools = 1000

// slotOf is where an episode's connection lies.
func (s *Server) slotOf(episode string) (*slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errors.New("the tools were closed")
	case !s.cfg.PerEpisode:
		return &s.shared, nil
	case s.episodes[episode] == nil:
		s.episodes[episode] = &slot{}
	}
	return s.episodes[episode], nil
}

// End closes an episode's own connection.
func (s *Server) End(episode string) {
	s.mu.Lock()
	own := s.episodes[episode]
	delete(s.episodes, episode)
	s.mu.Unlock()
	if own != nil {
		own.end()
	}
}

// Close closes every connection and ends what was started.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	open := make([]*slot, 0, len(s.episodes)+1)
	for _, own := range s.episodes {
		open = append(open, own)
	}
	clear(s.episodes)
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, own := range append(open, &s.shared) {
		all.Go(own.end)
	}
	all.Wait()
	if s.web != nil {
		s.web.CloseIdleConnections()
	}
}

func (p *slot) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.conn != nil {
		p.conn.close()
		p.conn = nil
	}
}

// reach returns the slot's connection, making it where there is none, and once anew where the one there was is gone. A call is never sent
// again by this: it is looked at between calls.
func (s *Server) reach(ctx context.Context, p *slot) (*connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.over:
		return nil, errors.New("the connection was closed")
	case p.conn != nil && p.conn.alive(ctx):
		return p.conn, nil
	case p.conn != nil:
		s.tell("MCP server %s is gone%s; it is %s anew", s.cfg.Name, p.conn.said(), s.how())
		p.conn.close()
		p.conn = nil
	}
	c, err := s.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: MCP server %s could not be %s: %w", action.ErrNotRun, s.cfg.Name, s.how(), err)
	}
	p.conn = c
	return c, nil
}

// how is the word for making a connection.
func (s *Server) how() string {
	if s.cfg.URL != "" {
		return "reached"
	}
	return "started"
}

// connection is one session with the server.
type connection struct {
	session *mcp.ClientSession
	cmd     *exec.Cmd      // nil over HTTP
	errors  *action.Spool  // what the program wrote to standard error
	secrets action.Secrets // the server's
	ended   chan struct{}  // closed when the session is over; whoever made the connection waits for it in close
	suspect atomic.Bool    // a call failed in a way that may have been the connection's
	late    atomic.Int32   // calls in a row that ended by their time
}

// beforeDiscover is the last version of the protocol whose sessions begin with initialize alone. Since 2026-07-28 they begin with server/discover, which older servers
// refuse, as they should, or do not answer, or end at.
const beforeDiscover = "2025-11-25"

// discoverWait is how long a server has at most to answer the first request of the newest protocol, its start included, until it is started anew and spoken to in an older one.
const discoverWait = 10 * time.Second

// connect makes a session. It outlives ctx, which bounds the making. A server that takes part in none of the newest protocol gets the one before; one that refuses that,
// and was only slow, the newest again.
func (s *Server) connect(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	if !s.older.Load() {
		first, enough := context.WithTimeout(ctx, min(discoverWait, s.cfg.StartTimeout/3))
		c, err := s.session(first, "")
		enough()
		if err == nil || ctx.Err() != nil || answered(err) {
			return c, err
		}
	}
	c, err := s.session(ctx, beforeDiscover)
	switch {
	case err == nil:
		s.older.Store(true)
	case answered(err):
		return s.session(ctx, "")
	}
	return c, err
}

// session makes one in a version of the protocol; "" = the newest.
func (s *Server) session(ctx context.Context, version string) (*connection, error) {
	c := &connection{ended: make(chan struct{}), errors: action.NewSpool(keptErrors), secrets: s.secrets}
	client := mcp.NewClient(&mcp.Implementation{Name: "tranche", Version: "1"}, &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{}, // it can ask nothing of us
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	var err error
	if c.session, err = client.Connect(ctx, s.transport(c), &mcp.ClientSessionOptions{ProtocolVersion: version}); err != nil {
		if c.cmd != nil {
			offspring.End(c.cmd)
		}
		return nil, fmt.Errorf("%w%s", s.silence(ctx, "its first request", err), c.said())
	}
	go func() {
		defer close(c.ended)
		_ = c.session.Wait() // why it ended is told by the call that it broke
	}()
	return c, nil
}

// stopWait is how long a program is given to end by itself once its input is closed, and again once it was told to.
const stopWait = 200 * time.Millisecond

func (s *Server) transport(c *connection) mcp.Transport {
	if s.cfg.URL != "" {
		client := &http.Client{Transport: secretly{s.headers, s.web}, CheckRedirect: redirect.SameHost}
		return &mcp.StreamableClientTransport{Endpoint: s.cfg.URL, HTTPClient: client, MaxRetries: -1, DisableStandaloneSSE: true}
	}
	c.cmd = exec.Command(s.cfg.Run[0], s.cfg.Run[1:]...)
	c.cmd.Dir, c.cmd.Env, c.cmd.Stderr = s.cfg.Dir, s.env, c.errors
	offspring.Bind(c.cmd)
	return &mcp.CommandTransport{Command: c.cmd, TerminateDuration: stopWait}
}

// secretly puts the configured headers on every request.
type secretly struct {
	headers action.Headers
	next    http.RoundTripper
}

func (t secretly) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	t.headers.Put(r)
	answer, err := t.next.RoundTrip(r)
	if err == nil && !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") { // whose events are bounded one by one
		answer.Body = &bounded{answer.Body, mostAnswer}
	}
	return answer, err
}

// mostAnswer is how long a server's answer may be, bytes: as long as a line on stdio and an event of a stream.
const mostAnswer = 16 << 20

// bounded is a body that fails where it goes on for too long: it is read into memory as a whole.
type bounded struct {
	io.ReadCloser
	left int64 // bytes that may still come
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 { // one byte more may be its end
		var more [1]byte
		if n, err := b.ReadCloser.Read(more[:]); n == 0 {
			return 0, err
		}
		return 0, fmt.Errorf("the answer is longer than %d bytes", mostAnswer)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// mostLate is how many calls in a row may end by their time until the server is asked whether it is there at all.
const mostLate = 3

// pingWait is how long a server may take to say that it is there, when a call to it has failed.
const pingWait = 5 * time.Second

// alive reports whether calls can be made. That a connection is broken is noticed late: one under suspicion is asked.
func (c *connection) alive(ctx context.Context) bool {
	select {
	case <-c.ended:
		return false
	default:
	}
	if !c.suspect.Load() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	if err := c.session.Ping(ctx, nil); err != nil && !answered(err) {
		return false
	}
	c.suspect.Store(false)
	return true
}

// answered reports whether an error is what the server answered.
func answered(err error) bool {
	var said *jsonrpc.Error
	return errors.As(err, &said)
}

// closeWait is how long a session may take to be closed in order.
const closeWait = 2 * time.Second

// close ends the session, and the program. One that has stopped reading holds whoever writes to it: it is killed then.
func (c *connection) close() {
	closed := make(chan struct{})
	go func() { // ends with the program at the latest, or with the connection
		defer close(closed)
		_ = c.session.Close() // a server that died is no news here
	}()
	select {
	case <-closed:
	case <-time.After(closeWait):
		if c.cmd == nil { // it is left to answer when it likes
			return
		}
	}
	if c.cmd != nil {
		offspring.End(c.cmd)
	}
	<-closed
	<-c.ended
}

// keptErrors is how much is kept of what a program writes to standard error, bytes: a half of it of the beginning.
const keptErrors = 2 << 10

// said is what the program wrote to standard error, for the end of a message.
func (c *connection) said() string {
	if text := strings.TrimSpace(strings.ToValidUTF8(c.errors.Text(c.secrets), "")); text != "" {
		return fmt.Sprintf(" (it wrote: %s)", text)
	}
	return ""
}

// schemaOf is a tool's parameters as JSON.
func schemaOf(t *mcp.Tool) (json.RawMessage, error) {
	if t.InputSchema == nil {
		return nil, nil
	}
	return json.Marshal(t.InputSchema)
}
