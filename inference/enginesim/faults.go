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

// Fault names.
const (
	FaultRateLimit   = "429"       // 429 with Retry-After, as proxies in front of engines answer
	FaultInternal    = "500"       // a dead engine's answer
	FaultUnavailable = "503"       // 503 with Retry-After
	FaultReset       = "reset"     // connection reset before any byte of the answer
	FaultCut         = "cut"       // connection closed in the middle of the answer
	FaultHang        = "hang"      // no answer at all until the client gives up
	FaultDrip        = "drip"      // the right answer, a few bytes at a time
	FaultMalformed   = "malformed" // 200 with broken JSON
)

func faultNames() []string {
	return []string{FaultRateLimit, FaultInternal, FaultUnavailable, FaultReset, FaultCut, FaultHang, FaultDrip, FaultMalformed}
}

// Faults says what goes wrong. Which requests are hit depends on the engine's seed and on the request alone: its X-Request-Id, else its
// body and how often that body came before. So a retry that sends the same thing again draws again.
type Faults struct {
	Rules []FaultRule
	// RetryAfter is what 429 and 503 answers ask for; sent in whole seconds, rounded up. Default 1 s.
	RetryAfter time.Duration
	// DripPause is the real time between two pieces of 7 bytes of a dripped answer. Default 20 ms.
	DripPause time.Duration
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
	if f.RetryAfter < 0 || f.DripPause < 0 {
		errs = append(errs, fmt.Errorf("enginesim: Faults.RetryAfter (%v) and Faults.DripPause (%v) must not be negative", f.RetryAfter, f.DripPause))
	}
	return errors.Join(errs...)
}

// jinx decides which requests are hit.
type jinx struct {
	Faults
	seed uint64

	mu     sync.Mutex
	hits   []int          // requests each rule has matched; guarded by mu
	bodies map[uint64]int // how often a body without X-Request-Id came; guarded by mu
}

func newJinx(f Faults, seed int64) *jinx {
	return &jinx{Faults: f, seed: mix(uint64(seed) ^ 0xfa17), hits: make([]int, len(f.Rules)), bodies: map[uint64]int{}}
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
	switch name {
	case FaultRateLimit:
		j.retryLater(w)
		writeError(w, &apiError{Message: "Rate limit exceeded (injected fault).", Type: "RateLimitError", Code: http.StatusTooManyRequests})
	case FaultUnavailable:
		j.retryLater(w)
		writeError(w, &apiError{Message: "Service unavailable (injected fault).", Type: "ServiceUnavailableError", Code: http.StatusServiceUnavailable})
	case FaultInternal:
		writeError(w, &apiError{Message: "EngineCore encountered an issue (injected fault).", Type: "InternalServerError", Code: http.StatusInternalServerError})
	case FaultReset:
		reset(w)
	case FaultHang:
		select {
		case <-r.Context().Done():
		case <-closing:
		}
	case FaultCut:
		return &cutWriter{ResponseWriter: w}, false
	case FaultMalformed:
		return &manglingWriter{ResponseWriter: w}, false
	case FaultDrip:
		return &dripWriter{ResponseWriter: w, pause: j.DripPause, done: r.Context().Done()}, false
	default:
		return w, false
	}
	return nil, true
}

func (j *jinx) retryLater(w http.ResponseWriter) {
	seconds := (j.RetryAfter + time.Second - 1) / time.Second
	w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
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

// cutWriter ends the connection in the middle: half of a single body, or two events into a stream, and never after a finish
// reason.
type cutWriter struct {
	http.ResponseWriter
	writes int
}

func (c *cutWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutWriter) Write(b []byte) (int, error) {
	c.writes++
	if streaming(c) && c.writes <= 2 && !bytes.Contains(b, []byte(`"finish_reason":"`)) {
		return c.ResponseWriter.Write(b)
	}
	if !streaming(c) {
		_, _ = c.ResponseWriter.Write(b[:len(b)/2])
	}
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
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
	pause time.Duration
	done  <-chan struct{}
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
		select {
		case <-d.done:
			return sent, io.ErrClosedPipe
		case <-time.After(d.pause):
		}
	}
	return sent, nil
}

func streaming(w http.ResponseWriter) bool {
	return strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
}
