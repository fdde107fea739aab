package enginesim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// FaultHeader asks for a fault on one request: its value is the fault's name.
const FaultHeader = "X-Sim-Fault"

// Fault names. Those of an answer leave the connection whole.
const (
	FaultRateLimit       = "429"        // 429 with Retry-After, as proxies in front of engines answer
	FaultRateLimitBare   = "429-bare"   // 429 that asks for no time
	FaultInternal        = "500"        // 500 with the nested body of vLLM
	FaultInternalFlat    = "500-flat"   // 500 with the flat body of SGLang
	FaultInternalString  = "500-string" // 500 whose error is a string
	FaultGateway         = "502-html"   // 502 with a proxy's page
	FaultUnavailable     = "503"        // 503 with Retry-After
	FaultUnavailableBare = "503-bare"   // 503 that asks for no time
	FaultBadRequest      = "400"        // the request is refused as wrong
	FaultUnauthorized    = "401"        // the key is refused
	FaultNotFound        = "404"        // no such model
	FaultOverflow        = "overflow"   // 400, the context is too short, with the numbers
	FaultEmpty           = "empty"      // 200 with nothing in it
	FaultPage            = "page"       // 200 with a page for people, text/html
	FaultNoChoices       = "no-choices" // 200, an answer without choices
	FaultError           = "error"      // 200 with an error object: in a stream after two events

	FaultReset        = "reset"         // connection reset before any byte of the answer
	FaultClose        = "close"         // connection closed in order before any byte of the answer
	FaultResetHeaders = "reset-headers" // connection reset after the headers
	FaultCut          = "cut"           // connection closed in the middle of the answer
	FaultHalf         = "half"          // the answer ends in its middle as if that were its end
	FaultHang         = "hang"          // no answer at all until the client gives up
	FaultHangHeaders  = "hang-headers"  // nothing after the headers
	FaultHangMiddle   = "hang-middle"   // nothing after the middle of the answer
	FaultPings        = "pings"         // after the middle only signs of life: comments in a stream, else white space
	FaultDrip         = "drip"          // the right answer, a few bytes at a time
	FaultMalformed    = "malformed"     // 200 with broken JSON
	FaultTwice        = "twice"         // a second event says that the answer is finished
	FaultEndless      = "endless"       // the stream's end marker never comes, the connection stays
	FaultBadText      = "bad-text"      // bytes in the text that are no UTF-8
	FaultHuge         = "huge"          // a line of 1 MiB
	FaultGone         = "gone"          // the right answer; then the connection, said to stay, is closed

	FaultKill  = "kill"  // the engine dies of it: 500 to all in flight and for Faults.Linger to all that come, then the port is closed
	FaultCrash = "crash" // the process dies of it: all connections are closed at once, and the port
)

func faultNames() []string {
	return []string{
		FaultRateLimit, FaultRateLimitBare, FaultInternal, FaultInternalFlat, FaultInternalString, FaultGateway, FaultUnavailable, FaultUnavailableBare,
		FaultBadRequest, FaultUnauthorized, FaultNotFound, FaultOverflow, FaultEmpty, FaultPage, FaultNoChoices, FaultError,
		FaultReset, FaultClose, FaultResetHeaders, FaultCut, FaultHalf, FaultHang, FaultHangHeaders, FaultHangMiddle, FaultPings, FaultDrip,
		FaultMalformed, FaultTwice, FaultEndless, FaultBadText, FaultHuge, FaultGone, FaultKill, FaultCrash,
	}
}

// Faults says what goes wrong. Which requests are hit depends on the engine's seed and on the request alone: its X-Request-Id, else its
// body and how often that body came before. So a retry that sends the same thing again draws again.
type Faults struct {
	Rules []FaultRule
	// RetryAfter is what 429 and 503 answers ask for; sent in whole seconds, rounded up. Default 1 s.
	RetryAfter time.Duration
	// DripPause is the real time between two pieces of 7 bytes of a dripped answer, and between two signs of life. Default 20 ms.
	DripPause time.Duration
	// Linger is the real time for which a killed engine's server still says so, before its port is closed. Default 100 ms.
	Linger time.Duration
}

// FaultRule injects one fault into some requests; the first rule that hits wins.
type FaultRule struct {
	Fault string  // one of the fault names
	Rate  float64 // share of matching requests that are hit, above 0, up to 1
	First int     // only the first so many matching requests; 0 = all
	Match string  // only requests whose body, X-Request-Id or X-Session-ID holds this; "" = all
}

func (f Faults) validate() error {
	var errs []error
	for i, r := range f.Rules {
		if !slices.Contains(faultNames(), r.Fault) {
			errs = append(errs, fmt.Errorf("enginesim: Faults.Rules[%d].Fault is %q, must be one of %s", i, r.Fault, strings.Join(faultNames(), ", ")))
		}
		if !(r.Rate > 0 && r.Rate <= 1) {
			errs = append(errs, fmt.Errorf("enginesim: Faults.Rules[%d].Rate is %g, must be above 0 and at most 1", i, r.Rate))
		}
		if r.First < 0 {
			errs = append(errs, fmt.Errorf("enginesim: Faults.Rules[%d].First is %d, must not be negative", i, r.First))
		}
	}
	if f.RetryAfter < 0 || f.DripPause < 0 || f.Linger < 0 {
		errs = append(errs, fmt.Errorf("enginesim: Faults.RetryAfter (%v), Faults.DripPause (%v) and Faults.Linger (%v) must not be negative", f.RetryAfter, f.DripPause, f.Linger))
	}
	return errors.Join(errs...)
}

// jinx decides which requests are hit.
type jinx struct {
	Faults
	seed uint64
	doom doom

	mu     sync.Mutex
	hits   []int          // requests each rule has matched; guarded by mu
	bodies map[uint64]int // how often a body without X-Request-Id came; guarded by mu
}

func newJinx(f Faults, seed int64) *jinx {
	return &jinx{Faults: f, seed: mix(uint64(seed) ^ 0xfa17), doom: newDoom(), hits: make([]int, len(f.Rules)), bodies: map[uint64]int{}}
}

// fault names what shall go wrong with a request, "" for nothing.
func (j *jinx) fault(h http.Header, body []byte) (string, error) {
	if name := h.Get(FaultHeader); name != "" {
		if !slices.Contains(faultNames(), name) {
			return "", fmt.Errorf("header %s is %q, must be one of %s", FaultHeader, name, strings.Join(faultNames(), ", "))
		}
		return name, nil
	}
	if len(j.Rules) == 0 {
		return "", nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	key := j.key(h.Get("X-Request-Id"), body)
	for i, r := range j.Rules {
		if !r.matches(h, body) {
			continue
		}
		j.hits[i]++
		if r.First > 0 && j.hits[i] > r.First {
			continue
		}
		if unit(mix(key+uint64(i))) < r.Rate {
			return r.Fault, nil
		}
	}
	return "", nil
}

func (j *jinx) key(id string, body []byte) uint64 {
	if id != "" {
		return hashText(j.seed, id)
	}
	k := hashText(j.seed, string(body))
	j.bodies[k]++
	return mix(k + uint64(j.bodies[k]))
}

func (r FaultRule) matches(h http.Header, body []byte) bool {
	return r.Match == "" || bytes.Contains(body, []byte(r.Match)) ||
		strings.Contains(h.Get("X-Request-Id"), r.Match) || strings.Contains(h.Get("X-Session-ID"), r.Match)
}

// strike carries out the faults that need no answer; false = the request is to be answered, through the writer it returns.
func (j *jinx) strike(name string, w http.ResponseWriter, r *http.Request, closing <-chan struct{}) (http.ResponseWriter, bool) {
	if name == FaultKill || name == FaultCrash {
		j.doom.come(name == FaultCrash)
	}
	if c, ok := j.canned(name); ok {
		c.write(w)
		return nil, true
	}
	over := &life{client: r.Context().Done(), server: closing, pause: j.DripPause}
	switch name {
	case FaultReset:
		reset(w)
	case FaultClose:
		panic(http.ErrAbortHandler)
	case FaultHang, FaultCrash:
		over.wait()
	default:
		return j.bewitch(name, w, over)
	}
	return nil, true
}

// bewitch is the writer through which an answer goes wrong; true = it went wrong at once.
func (j *jinx) bewitch(name string, w http.ResponseWriter, over *life) (http.ResponseWriter, bool) {
	switch name {
	case FaultResetHeaders, FaultHangHeaders:
		return &headWriter{ResponseWriter: w, over: over, hangs: name == FaultHangHeaders}, false
	case FaultCut, FaultHalf, FaultHangMiddle, FaultPings, FaultError:
		return &cutWriter{ResponseWriter: w, how: name, over: over}, false
	case FaultMalformed:
		return &manglingWriter{ResponseWriter: w}, false
	case FaultTwice, FaultEndless, FaultBadText, FaultHuge, FaultGone:
		return &oddWriter{ResponseWriter: w, how: name, over: over}, false
	case FaultDrip:
		return &dripWriter{ResponseWriter: w, over: over}, false
	}
	return w, false
}

// canned is an answer that depends on nothing.
type canned struct {
	status int
	kind   string // of the content; "" = JSON
	body   string
	after  int // Retry-After, seconds; 0 = none
}

func (c canned) write(w http.ResponseWriter) {
	if c.kind == "" {
		c.kind = "application/json"
	}
	if c.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(c.after))
	}
	w.Header().Set("Content-Type", c.kind)
	w.WriteHeader(c.status)
	_, _ = io.WriteString(w, c.body) // a client that is gone needs no answer
}

// nested is an error in vLLM's form.
func nested(status int, kind, message string) canned {
	return canned{status: status, body: fmt.Sprintf(`{"error":{"message":%q,"type":%q,"param":null,"code":%d}}`, message, kind, status)}
}

func (j *jinx) canned(name string) (canned, bool) {
	after := int((j.RetryAfter + time.Second - 1) / time.Second)
	c := canned{}
	switch name {
	case FaultRateLimit:
		c = nested(http.StatusTooManyRequests, "RateLimitError", "Rate limit exceeded (injected fault).")
		c.after = after
	case FaultRateLimitBare:
		c = nested(http.StatusTooManyRequests, "RateLimitError", "Rate limit exceeded (injected fault).")
	case FaultUnavailable:
		c = nested(http.StatusServiceUnavailable, "ServiceUnavailableError", "Service unavailable (injected fault).")
		c.after = after
	case FaultUnavailableBare:
		c = nested(http.StatusServiceUnavailable, "ServiceUnavailableError", "Service unavailable (injected fault).")
	case FaultInternal:
		c = nested(http.StatusInternalServerError, "InternalServerError", "Internal server error (injected fault).")
	case FaultInternalFlat:
		c = canned{status: http.StatusInternalServerError, body: `{"object":"error","message":"Internal server error (injected fault).","type":"InternalServerError","param":null,"code":500}`}
	case FaultInternalString:
		c = canned{status: http.StatusInternalServerError, body: `{"error":"Internal server error (injected fault)."}`}
	case FaultGateway:
		c = canned{status: http.StatusBadGateway, kind: "text/html", body: "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1><hr>injected fault</body></html>"}
	case FaultBadRequest:
		c = nested(http.StatusBadRequest, "BadRequestError", "top_p must be in (0, 1] (injected fault).")
	case FaultUnauthorized:
		c = canned{status: http.StatusUnauthorized, body: `{"error":"Unauthorized"}`}
	case FaultNotFound:
		c = nested(http.StatusNotFound, "NotFoundError", "The model does not exist (injected fault).")
	case FaultOverflow:
		c = nested(http.StatusBadRequest, "BadRequestError", "This model's maximum context length is 64 tokens. However, you requested 80 tokens (70 in the messages, 10 in the completion).")
	case FaultEmpty:
		c = canned{status: http.StatusOK}
	case FaultPage:
		c = canned{status: http.StatusOK, kind: "text/html", body: "<html><body>Please sign in (injected fault).</body></html>"}
	case FaultNoChoices:
		c = canned{status: http.StatusOK, body: `{"id":"x","object":"chat.completion","model":"sim","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}}`}
	case FaultKill:
		c = engineDead()
	default:
		return c, false
	}
	return c, true
}

// reset breaks the connection so that the client sees a reset, not a clean end.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // no connection to take over (HTTP/2, a recorder): the nearest thing
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // close sends RST
	}
	_ = conn.Close()
}

// life is how long a hanging answer hangs.
type life struct {
	client, server <-chan struct{}
	pause          time.Duration
}

func (l *life) wait() {
	select {
	case <-l.client:
	case <-l.server:
	}
}

// sleep is one pause; false = it is over.
func (l *life) sleep() bool {
	select {
	case <-l.client:
		return false
	case <-l.server:
		return false
	case <-time.After(l.pause):
		return true
	}
}

// headWriter sends the headers of an answer and nothing of it: then it hangs, or the connection is reset.
type headWriter struct {
	http.ResponseWriter
	over  *life
	hangs bool
}

func (h *headWriter) Unwrap() http.ResponseWriter { return h.ResponseWriter }

func (h *headWriter) Write([]byte) (int, error) {
	_ = http.NewResponseController(h.ResponseWriter).Flush()
	if h.hangs {
		h.over.wait()
	} else {
		time.Sleep(20 * time.Millisecond) // else the reset may overtake the headers
		reset(h.ResponseWriter)
	}
	panic(http.ErrAbortHandler)
}

// cutWriter goes wrong in the middle: after half of a single body, or two events into a stream, and never after a finish reason.
type cutWriter struct {
	http.ResponseWriter
	how    string
	over   *life
	writes int
	ended  bool
}

func (c *cutWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutWriter) Write(b []byte) (int, error) {
	if c.ended {
		return len(b), nil
	}
	c.writes++
	if streaming(c) && c.writes <= 2 && !bytes.Contains(b, []byte(`"finish_reason":"`)) {
		return c.ResponseWriter.Write(b)
	}
	c.ended = true
	if !streaming(c) && c.how != FaultError {
		_, _ = c.ResponseWriter.Write(b[:len(b)/2])
	}
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	switch c.how {
	case FaultHalf:
		return len(b), nil
	case FaultError:
		return len(b), c.fail()
	case FaultPings:
		for c.over.sleep() {
			c.ping()
		}
	case FaultHangMiddle:
		c.over.wait()
	}
	panic(http.ErrAbortHandler)
}

// fail puts an error where the rest of the answer belongs.
func (c *cutWriter) fail() error {
	text := nested(http.StatusInternalServerError, "InternalServerError", "It broke (injected fault).").body
	if streaming(c) {
		text = "data: " + text + "\n\ndata: [DONE]\n\n"
	}
	_, err := io.WriteString(c.ResponseWriter, text)
	return err
}

func (c *cutWriter) ping() {
	text := " "
	if streaming(c) {
		text = ": ping\n\n"
	}
	_, _ = io.WriteString(c.ResponseWriter, text)
	_ = http.NewResponseController(c.ResponseWriter).Flush()
}

// oddWriter gives an answer that is odd in one way.
type oddWriter struct {
	http.ResponseWriter
	how    string
	over   *life
	writes int
}

func (o *oddWriter) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *oddWriter) Write(b []byte) (int, error) {
	o.writes++
	out := b
	switch {
	case o.how == FaultTwice && streaming(o) && bytes.Contains(b, []byte(`"finish_reason":"`)):
		out = append(bytes.Clone(b), `data: {"object":"chat.completion.chunk","model":"sim","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n"...)
	case o.how == FaultEndless && bytes.HasPrefix(b, []byte("data: [DONE]")):
		_ = http.NewResponseController(o.ResponseWriter).Flush()
		o.over.wait()
		panic(http.ErrAbortHandler)
	case o.how == FaultBadText:
		out = bytes.ReplaceAll(b, []byte(`"content":"`), []byte("\"content\":\"\xff\xfe"))
	case o.how == FaultHuge && o.writes == 1:
		out = append(bytes.Repeat([]byte(" "), 1<<20), b...)
		if streaming(o) {
			out = append([]byte("data:"), append(out[:1<<20:1<<20], bytes.TrimPrefix(b, []byte("data:"))...)...)
		}
	case o.how == FaultGone && o.last(b):
		return len(b), o.leave(b)
	}
	if _, err := o.ResponseWriter.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// last says whether b ends the answer.
func (o *oddWriter) last(b []byte) bool {
	return !streaming(o) || bytes.HasPrefix(b, []byte("data: [DONE]"))
}

// leave ends the answer and closes the connection behind it, which the headers did not say.
func (o *oddWriter) leave(b []byte) error {
	if _, err := o.ResponseWriter.Write(b); err != nil {
		return err
	}
	c := http.NewResponseController(o.ResponseWriter)
	if err := c.Flush(); err != nil {
		return err
	}
	conn, out, err := c.Hijack()
	if err != nil {
		return err
	}
	_, _ = out.WriteString("0\r\n\r\n") // the end of a chunked body
	_ = out.Flush()
	return conn.Close()
}

// manglingWriter breaks the JSON of a single body or of a stream's second event.
type manglingWriter struct {
	http.ResponseWriter
	writes int
}

func (m *manglingWriter) Unwrap() http.ResponseWriter { return m.ResponseWriter }

func (m *manglingWriter) Write(b []byte) (int, error) {
	m.writes++
	broken := b
	switch {
	case !streaming(m):
		broken = b[:len(b)*2/3]
	case m.writes == 2:
		broken = append(bytes.Clone(b[:len(b)*2/3]), "\n\n"...)
	}
	if _, err := m.ResponseWriter.Write(broken); err != nil {
		return 0, err
	}
	return len(b), nil
}

// dripWriter sends seven bytes at a time.
type dripWriter struct {
	http.ResponseWriter
	over *life
}

func (d *dripWriter) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func (d *dripWriter) Write(b []byte) (int, error) {
	sent := 0
	for piece := range slices.Chunk(b, 7) {
		n, err := d.ResponseWriter.Write(piece)
		sent += n
		if err != nil {
			return sent, err
		}
		_ = http.NewResponseController(d.ResponseWriter).Flush()
		if !d.over.sleep() {
			return sent, io.ErrClosedPipe
		}
	}
	return sent, nil
}

func streaming(w http.ResponseWriter) bool {
	return strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
}
