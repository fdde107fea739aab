package inference

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tranche/episode"
	"tranche/internal/secret"
)

// Endpoint is one long-lived client of one server. It is safe for concurrent use by any number of goroutines and
// implements episode.Model, episode.Counter and episode.Gauge. Close it when no call is running any more.
type Endpoint struct {
	cfg       Config
	address   address
	facts     facts // fixed once Open returns
	transport *http.Transport
	lanes     *lanes // for calls; nil = the transport has them all
	bearer    string
	key       *regexp.Regexp // our own, in every spelling; nil = there is none
	deflaters deflaters

	desks      desks // where answers are read
	dialect    atomic.Pointer[dialect]
	caps       atomic.Pointer[Capabilities] // replaced by Probe, Recheck and Adopt
	noTokenize atomic.Bool                  // the server has no way to count a prompt
	wordings   atomic.Pointer[[]Wording]    // of prompts over the limit, met or taken from a record; nil = none. See learnWording

	mu       sync.Mutex // guards what follows, and is held while the dialect is replaced
	notes    []string
	lost     map[string]bool      // routes that the server turned out not to have
	closings map[string]rendering // what its template puts behind an answer
}

var (
	_ episode.Model   = (*Endpoint)(nil)
	_ episode.Counter = (*Endpoint)(nil)
	_ episode.Gauge   = (*Endpoint)(nil)
)

// newEndpoint builds the client without asking the server anything.
func newEndpoint(cfg Config) (*Endpoint, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a, err := addressOf(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(a)
	dials := newDialler(cfg.ConnectTimeout, a.socket)
	t, err := newTransport(cfg, dials)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{cfg: cfg, address: a, transport: t, facts: facts{kind: KindGeneric, model: cfg.Model}}
	e.lanes = newLanes(cfg, dials, func() {
		e.note("the server's machine dropped connections before it accepted them (its queue of them is short), and they were opened again: with fewer calls at once (--concurrency) it would not")
	})
	if cfg.APIKey != "" {
		e.bearer, e.key = "Bearer "+cfg.APIKey, secret.Spelled(cfg.APIKey)
	}
	e.dialect.Store(&dialect{})
	return e, nil
}

// Close closes the idle connections.
func (e *Endpoint) Close() {
	e.lanes.close()
	e.transport.CloseIdleConnections()
}

// Name is what the endpoint is called in records.
func (e *Endpoint) Name() string { return e.cfg.Name }

// Kind is what the server turned out to be.
func (e *Endpoint) Kind() Kind { return e.facts.kind }

// Version is the server's own version text, "" where it tells none.
func (e *Endpoint) Version() string { return e.facts.version }

// Model is the model id that is asked for.
func (e *Endpoint) Model() string { return e.facts.model }

// Capacity is what the server can hold, as far as it said or the configuration overrides it.
func (e *Endpoint) Capacity() episode.Capacity { return e.facts.capacity }

// Notes are things about this server a person should know, in order of discovery: what was assumed, what it does not
// offer, which field was given up. The list may grow while calls run.
func (e *Endpoint) Notes() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.notes)
}

// note adds a note once.
func (e *Endpoint) note(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noteLocked(fmt.Sprintf(format, args...))
}

func (e *Endpoint) noteLocked(n string) {
	if !slices.Contains(e.notes, n) {
		e.notes = append(e.notes, n)
	}
}

// Generate makes one attempt of one call. See episode.Model for the contract. Service in the reply runs from here to the
// last byte of the answer.
//
// A server that refuses a field this package added by itself is asked again at once without it: it has done no work, and
// the lesson holds for all later calls.
func (e *Endpoint) Generate(ctx context.Context, c *episode.Call, attempt int, maxTokens int) (*episode.Reply, error) {
	if c.Request != nil {
		return e.pass(ctx, c, attempt)
	}
	ids := &sendings{call: c, attempt: attempt}
	r, err := e.answerTo(ctx, c, maxTokens, ids)
	if err != nil || r.Finish != episode.FinishAbort {
		return r, err
	}
	return e.goOn(ctx, c, r, maxTokens, ids)
}

// answerTo makes the call by token ids where it has some to go on from and the server a way to take them, else by messages.
func (e *Endpoint) answerTo(ctx context.Context, c *episode.Call, maxTokens int, ids *sendings) (*episode.Reply, error) {
	if e.byIDs(c) {
		r, err := e.generateIDs(ctx, c, maxTokens, ids)
		switch {
		case !errors.Is(err, errNoWay):
			return r, err
		case e.cfg.Exchange == episode.ExchangeIDs:
			return nil, e.fault(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest, Cause: fmt.Errorf("exact token ids were asked for: %w", err)})
		}
		e.note("later turns go as messages, not as exact token ids: the server has no way to go on from ids with such calls")
	}
	return e.generateChat(ctx, c, maxTokens, ids)
}

// generateChat makes the call by messages.
func (e *Endpoint) generateChat(ctx context.Context, c *episode.Call, maxTokens int, ids *sendings) (*episode.Reply, error) {
	for again, bare := 0, false; ; again++ {
		d := e.dialect.Load()
		if bare {
			without, _ := d.without(fieldLogprobs)
			d = &without
		}
		body, err := render(c, maxTokens, e.cfg, e.facts, *d)
		if err != nil {
			return nil, e.fault(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest,
				Cause: fmt.Errorf("the request was not sent: %w", err)})
		}
		a, service, f := e.attempt(ctx, sending{id: ids.next(), session: c.Episode, route: "/chat/completions", body: body, close: e.closesAfter(c),
			keep: e.cfg.KeepRaw}, e.cfg.limits(c.PromptTokens, maxTokens))
		if f != nil {
			if again <= len(droppable) && e.learn(d, f, body, c.Sampling.Extra) {
				continue
			}
			if !bare && c.Sampling.Logprobs && f.infinite() { // for this call alone: its row is flagged
				e.note("the server cannot write the logprobs of some answers, which are minus infinity: such a call is made again without them (flag logprobs_missing)")
				bare = true
				continue
			}
			return nil, e.failed(*f)
		}
		r, err := e.finish(ctx, c, a, maxTokens, service)
		e.clear(a)
		return r, err
	}
}

// sending is one request as it goes out.
type sending struct {
	id, session string
	route       string                            // behind the version
	to          string                            // the whole address, in the place of route
	shape       func([]byte) (*wireAnswer, error) // reads an answer that has a form of its own; nil = OpenAI's
	body        []byte
	close       bool // the connection is not to be used again
	timed       bool // note when each token of a stream comes
	keep        bool // keep the body of the answer
	whole       bool // the answer is wanted as it comes
}

// closesAfter reports whether the server will close the connection after its answer without saying so: llama-server does
// after a stream, and the next request on that connection would be lost.
func (e *Endpoint) closesAfter(c *episode.Call) bool {
	return e.facts.kind == KindLlama && wantStream(e.cfg, KindLlama, c)
}

// requestID names one sending of one attempt; no two sendings share one.
func requestID(c *episode.Call, attempt, again int) string {
	id := c.ID + "/" + strconv.Itoa(attempt)
	if again > 0 {
		id += "." + strconv.Itoa(again)
	}
	return id
}

// fault names the endpoint in the cause.
func (e *Endpoint) fault(f *episode.Fault) *episode.Fault {
	if e.key != nil {
		f.Partial = strings.ReplaceAll(f.Partial, e.cfg.APIKey, keyRemoved)
	}
	f.Cause = fmt.Errorf("endpoint %s: %w", e.cfg.Name, f.Cause)
	return f
}

// failed is the fault of an attempt, with the answer that it was.
func (e *Endpoint) failed(f failure) *episode.Fault {
	out := e.judged(f)
	if f.answer != nil {
		out.Raw = f.answer.rawOf(out.Class)
	}
	return out
}

// learn gives up a field the server refused, and reports whether the call is worth sending again. One that the user set is no field of ours.
func (e *Endpoint) learn(sent *dialect, f *failure, body []byte, extra map[string]json.RawMessage) bool {
	field := refusedField(f.status, f.body, body)
	if field == "" || field != fieldMaxTokens && (extra[field] != nil || e.cfg.ExtraBody[field] != nil) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	next, changed := e.dialect.Load().without(field)
	if changed {
		e.dialect.Store(&next)
		switch field {
		case fieldMaxTokens:
			e.noteLocked("the server refuses max_tokens: max_completion_tokens is sent instead")
		case fieldLogprobs:
			e.noteLocked("the server refuses the field logprobs: it is no longer sent, and rows have none (flag logprobs_missing); --no-logprobs asks for none")
		default:
			e.noteLocked(fmt.Sprintf("the server refuses the field %s: it is no longer sent", field))
		}
	}
	// Another call may have learned it while ours was on its way.
	_, stillSent := sent.without(field)
	return stillSent
}

// finish makes the reply of a good answer and adds the token ids that take more questions.
func (e *Endpoint) finish(ctx context.Context, c *episode.Call, a *answer, maxTokens int, service time.Duration) (*episode.Reply, error) {
	r, err := a.reply(c.Sampling, maxTokens)
	if err := e.accept(a, r, err, service); err != nil {
		return nil, err
	}
	if a.first > 0 {
		r.TTFT = episode.Ptr(a.first)
	}
	if c.Sampling.TokenIDs {
		e.completeIDs(ctx, c, a, r)
	}
	r.Exchange = episode.ExchangeText
	if r.SampledIDs != nil {
		r.Exchange = episode.ExchangeChat
	}
	if r.Finish == episode.FinishAbort && !e.canGoOn(c, r) {
		return nil, e.fault(aborted(r, a))
	}
	return r, nil
}

// accept takes what was made of an answer as this endpoint's, unless it could not be read (err) or ended with an error. One that
// was aborted may be gone on with: that is for the caller to see to.
func (e *Endpoint) accept(a *answer, r *episode.Reply, err error, service time.Duration) error {
	switch {
	case err != nil:
		return e.failed(failure{reach: reachAnswer, status: http.StatusOK, err: &malformedError{err}, answer: a})
	case r.RawEnd == "error":
		return e.fault(aborted(r, a))
	}
	r.Service = service
	e.sign(r)
	return nil
}

// sign says whose answer it is, and what is known of all answers of this endpoint. A mode of logprobs that is only claimed is none: servers are
// started with another by a flag.
func (e *Endpoint) sign(r *episode.Reply) {
	e.hideKey(&r.Message)
	r.Endpoint = e.cfg.Name
	if r.Model == "" {
		r.Model = e.facts.model
	}
	if caps := e.caps.Load(); caps != nil && r.Logprobs != nil && caps.LogprobsMode.Sure() {
		r.LogprobsOf = caps.LogprobsMode.Value
	}
}

// aborted is an answer the server itself broke off, though it came with status 200: what it holds is no answer.
func aborted(r *episode.Reply, a *answer) *episode.Fault {
	class := episode.ClassAborted
	if r.RawEnd == "error" {
		class = episode.ClassServerError
	}
	return &episode.Fault{Stage: episode.StageModel, Class: class, Retry: true, Partial: a.said(), Wasted: a.generated(), Raw: a.rawOf(class),
		Cause: fmt.Errorf("the server ended the answer with finish_reason %q", r.RawEnd)}
}

// attempt sends one body and reads the answer, whole or streamed. Exactly one of the answer and the failure is set.
func (e *Endpoint) attempt(ctx context.Context, out sending, l limits) (*answer, time.Duration, *failure) {
	began := time.Now()
	w := newWatch(ctx, l)
	defer w.stop()

	f := &failure{sent: out.body}
	var connected atomic.Bool // the transport may call the hook after RoundTrip gave up
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	req, err := e.newRequest(httptrace.WithClientTrace(w.ctx, trace), http.MethodPost, cmp.Or(out.to, e.address.api+out.route), out.body)
	if err != nil {
		f.err = err
		return nil, 0, f
	}
	req.Header["X-Request-Id"] = []string{out.id}
	req.Header["X-Session-Id"] = []string{out.session}
	req.Close = out.close

	resp, err := e.roundTrip(req)
	if err != nil {
		var forgotten *forgottenError
		if connected.Load() && !errors.As(err, &forgotten) {
			f.reach = reachSent
		}
		f.err = w.why(err)
		return nil, 0, f
	}
	unzip(resp)
	defer resp.Body.Close()
	f.reach, f.status, f.header = reachAnswer, resp.StatusCode, resp.Header
	f.answer = &answer{timed: out.timed, wantWhole: out.whole, shape: out.shape}
	if out.keep {
		k := &keeper{r: resp.Body, most: maxRawBytes}
		resp.Body = struct {
			io.Reader
			io.Closer
		}{k, resp.Body}
		defer func() { f.answer.raw = e.raw(k, resp.StatusCode) }()
	}
	if err := e.read(resp, w, began, f); err != nil {
		f.err = w.why(err)
		return nil, 0, f
	}
	if f.body != nil {
		f.answer.takeFailed(f.body)
		return nil, 0, f
	}
	return f.answer, time.Since(began), nil
}

// roundTrip sends a call by the cheapest way that takes it.
func (e *Endpoint) roundTrip(req *http.Request) (*http.Response, error) {
	if e.lanes.takes(req) {
		return e.lanes.RoundTrip(req)
	}
	return e.transport.RoundTrip(req)
}

// read takes the answer into f.answer, or the server's error into f.body.
func (e *Endpoint) read(resp *http.Response, w *watch, began time.Time, f *failure) error {
	limited := &limitedReader{r: w.reader(resp.Body), left: e.cfg.MaxReplyBytes, limit: e.cfg.MaxReplyBytes}
	if resp.StatusCode != http.StatusOK {
		return e.readError(resp, limited, w, f)
	}
	body := &bytes.Buffer{} // it is kept where the answer is wanted as it comes
	if !f.answer.wantWhole {
		body = &e.deskFor(f.answer).body
		if f.stream = isStream(resp.Header); f.stream {
			return e.readStream(limited, w, began, f)
		}
	}
	raw, err := readAll(body, limited, resp.ContentLength)
	if err != nil {
		return err
	}
	if !f.answer.wantWhole && looksStreamed(raw) { // a stream under another content type
		err := e.readStream(bytes.NewReader(raw), w, began, f)
		f.stream, f.answer.first, f.answer.stamps = true, 0, nil // when its pieces came was not seen
		return err
	}
	f.answer.still = true
	said, err := f.answer.takeBody(raw, resp.Header)
	if err != nil {
		return &malformedError{describe(raw, err)}
	}
	if said != nil {
		f.body = e.redact(said)
	}
	return nil
}

const maxErrorBytes = 1 << 20

// readError reads the body of a refusal. A body that breaks off is still the server's word: the status says enough.
func (e *Endpoint) readError(resp *http.Response, r io.Reader, w *watch, f *failure) error {
	raw, err := io.ReadAll(io.LimitReader(r, maxErrorBytes))
	if err != nil && w.ctx.Err() != nil {
		return err
	}
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
		raw = []byte("the server redirects to " + to + "; use that address as the base URL")
	}
	f.body = notNil(e.redact(raw))
	return nil
}

// redact takes our own key out of what a server sent back, however it spells it.
func (e *Endpoint) redact(raw []byte) []byte {
	if e.key == nil {
		return raw
	}
	return e.key.ReplaceAllLiteral(raw, []byte(keyRemoved))
}

const keyRemoved = "[API key]"

// hideKey takes our own key out of an answer that repeats it.
func (e *Endpoint) hideKey(m *episode.Message) {
	if e.key == nil {
		return
	}
	out := func(s string) string { return strings.ReplaceAll(s, e.cfg.APIKey, keyRemoved) }
	for _, text := range [...]*string{m.Content, m.ReasoningContent} {
		if text != nil {
			*text = out(*text)
		}
	}
	for i := range m.ToolCalls {
		f := &m.ToolCalls[i].Function
		f.Name, f.Arguments = out(f.Name), e.key.ReplaceAllLiteralString(f.Arguments, keyRemoved)
	}
}

// looksStreamed reports whether a body is a stream, by the line that it begins with: data, an event's name, or a comment.
func looksStreamed(raw []byte) bool {
	return slices.ContainsFunc([]string{"data:", "event:", ":"}, func(begins string) bool { return bytes.HasPrefix(raw, []byte(begins)) })
}

const eventStream = "text/event-stream"

func isStream(h http.Header) bool {
	is := h.Get("Content-Type")
	if is == "application/json" || is == eventStream || is == eventStream+"; charset=utf-8" { // what servers write
		return is != "application/json"
	}
	kind, _, _ := mime.ParseMediaType(is)
	return kind == eventStream
}

func isError(raw []byte) bool {
	s := strings.TrimSpace(string(raw))
	return s != "" && s != "null" && s != "{}" && s != `""` && s != "false"
}

// describe adds the start of a body that is no JSON, or the field that has the wrong type.
func describe(raw []byte, err error) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return errors.New("its body is empty")
	}
	return fmt.Errorf("%w; it begins with %q", err, clip(plain(raw), 200))
}

// newRequest builds a request with the headers every request has.
func (e *Endpoint) newRequest(ctx context.Context, method, to string, body []byte) (*http.Request, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, to, r)
	if err != nil {
		return nil, fmt.Errorf("build a request to %s: %w", to, err)
	}
	req.Header["User-Agent"] = []string{"tranche"}
	if body != nil {
		req.Header["Content-Type"] = []string{"application/json"}
	}
	if e.bearer != "" {
		req.Header["Authorization"] = []string{e.bearer}
	}
	return req, nil
}

// limitedReader fails, instead of ending, when more than its limit comes.
type limitedReader struct {
	r           io.Reader
	left, limit int
}

func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if n > l.left {
		return 0, &tooLargeError{limit: l.limit}
	}
	l.left -= n
	return n, err
}

// postTimeout bounds the small questions beside generation: probes, counting, gauges.
const postTimeout = 30 * time.Second

// ask sends a small request and returns status and body. Its errors name what was asked. All such requests may be
// repeated, and net/http does so when a kept connection turns out to be closed.
func (e *Endpoint) ask(ctx context.Context, method, to string, body []byte) (int, []byte, error) {
	s := e.exchange(ctx, method, to, body, postTimeout)
	return s.status, s.body, s.err
}

// said is the answer to a small request.
type said struct {
	label  string // method and path
	status int
	header http.Header
	body   []byte
	err    error // no whole answer came
}

func (e *Endpoint) exchange(ctx context.Context, method, to string, body []byte, within time.Duration) said {
	s := said{label: method + " " + pathOf(to)}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := e.newRequest(ctx, method, to, body)
	if err != nil {
		s.err = err
		return s
	}
	req.Header["Idempotency-Key"] = []string{} // tells net/http; an empty list is not sent
	resp, err := e.transport.RoundTrip(req)
	if err != nil {
		s.err = fmt.Errorf("%s: %w", s.label, err)
		return s
	}
	unzip(resp)
	defer resp.Body.Close()
	s.status, s.header = resp.StatusCode, resp.Header
	if s.body, err = readAll(&bytes.Buffer{}, &limitedReader{r: resp.Body, left: e.cfg.MaxReplyBytes, limit: e.cfg.MaxReplyBytes}, resp.ContentLength); err != nil {
		s.body, s.err = nil, fmt.Errorf("%s: read the answer: %w", s.label, err)
	}
	return s
}

func pathOf(to string) string {
	u, err := url.Parse(to)
	if err != nil {
		return to
	}
	return u.Path
}
