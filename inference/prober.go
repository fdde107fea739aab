package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// MostCalls is how many requests a probe sends to one server at most, those of Open included.
const MostCalls = 12

// errNoCalls is why a question was not asked.
var errNoCalls = fmt.Errorf("not asked: a probe sends at most %d requests", MostCalls)

// prober asks one server and keeps what it learned. It sends in rounds: what is independent goes out at once, and the answers
// are read one after the other when all are there.
type prober struct {
	e       *Endpoint
	caps    Capabilities
	limit   time.Duration   // of one request
	got     map[string]said // answers of GET routes
	sources string          // where the capacity is from
	metrics bool            // GET /metrics has figures we know
	loads   bool            // GET /v1/loads answers

	finds // of Probe
}

func newProber(e *Endpoint, limit time.Duration) *prober {
	return &prober{e: e, caps: newCapabilities(e.cfg.Name, e.cfg.BaseURL), limit: limit, got: map[string]said{}}
}

// asking is one request of a round, and what reads its answer.
type asking struct {
	method, to string
	body       []byte
	read       func(said)
	of         []Question // that are not asked while it has no answer
	long       bool       // its prompt is over the limit on purpose
}

// about says whose questions these requests are.
func about(list []asking, of ...Question) []asking {
	for i := range list {
		list[i].of = of
	}
	return list
}

// round sends these requests at once, as far as there are calls left, the first ones first.
func (p *prober) round(ctx context.Context, list ...asking) {
	answers := make([]said, len(list))
	var all sync.WaitGroup
	for i, a := range list {
		if p.caps.Calls >= MostCalls {
			answers[i] = said{label: a.method + " " + pathOf(a.to), err: errNoCalls}
			continue
		}
		p.caps.Calls++
		all.Go(func() { answers[i] = p.e.exchange(ctx, a.method, a.to, a.body, p.limit) })
	}
	all.Wait()
	p.caps.Taken = time.Now()
	for i, a := range list {
		answers[i].body = p.e.redact(answers[i].body)
		if !answers[i].came() {
			p.missed = append(p.missed, a.of...)
		}
		if !a.long && answers[i].refused() { // before any is read: the words of an overflow are held against all of them
			p.refusals = append(p.refusals, readRefusal(answers[i].body).Message)
		}
	}
	for i, a := range list {
		a.read(answers[i])
	}
}

// get asks one GET route.
func (p *prober) get(ctx context.Context, to string) (answer said) {
	p.round(ctx, asking{method: http.MethodGet, to: to, read: func(s said) { answer = s }})
	return answer
}

// getAll asks those of the routes that were not asked yet.
func (p *prober) getAll(ctx context.Context, routes ...string) {
	var list []asking
	for _, r := range routes {
		if _, asked := p.got[r]; !asked {
			list = append(list, asking{method: http.MethodGet, to: p.e.at(r), read: func(s said) { p.got[r] = s }})
		}
	}
	p.round(ctx, list...)
}

// at is the whole address of a route.
func (e *Endpoint) at(route string) string {
	if behind, ok := strings.CutPrefix(route, "/v1/"); ok {
		return e.address.api + "/" + behind
	}
	return e.address.root + route
}

// read decodes what a GET route said; false means that the server does not have it in this form.
func (p *prober) read(route string, v any) bool {
	s, asked := p.got[route]
	return asked && s.ok() && json.Unmarshal(s.body, v) == nil
}

func (s said) ok() bool { return s.err == nil && s.status == http.StatusOK }

// why says in few words why an answer tells nothing.
func (s said) why() string {
	switch {
	case errors.Is(s.err, errNoCalls):
		return errNoCalls.Error()
	case errors.Is(s.err, context.DeadlineExceeded):
		return "no answer in time"
	case s.err != nil:
		return clip(strings.TrimPrefix(s.err.Error(), s.label+": "), 120)
	case s.status != http.StatusOK:
		if m := readRefusal(s.body).Message; m != "" {
			return fmt.Sprintf("HTTP %d: %s", s.status, clip(strings.Join(strings.Fields(m), " "), 90))
		}
		return fmt.Sprintf("HTTP %d", s.status)
	}
	return "the answer does not hold it"
}

// answers reports whether the server took up the question, in whatever way: it was not too busy, ill or slow.
func (s said) answers() bool {
	return s.err == nil && s.status < 500 && s.status != http.StatusTooManyRequests && s.status != http.StatusRequestTimeout
}

// came reports whether the question need not be sent again: the server took it up, or failed at it by itself, or it was one too many.
func (s said) came() bool {
	switch {
	case s.err != nil:
		return errors.Is(s.err, errNoCalls)
	case s.status == http.StatusInternalServerError || s.status == http.StatusNotImplemented:
		return true // what this request did to it
	}
	return s.answers()
}

// lacks notes that an answer does not show these. What servers of the kind usually do is then no longer taken of this one; of one that did not
// come to answer it is.
func (p *prober) lacks(s said, facts ...factual) {
	for _, f := range facts {
		if why := s.label + ": " + s.why(); s.answers() {
			f.doubt(why)
		} else {
			f.wonder(why)
		}
	}
}

// absent reports whether the server said that it has no such route.
func (s said) absent() bool {
	switch s.status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusGone:
		return s.err == nil
	}
	return false
}

// refused reports whether the server took the route and not this request.
func (s said) refused() bool {
	return s.err == nil && (s.status == http.StatusBadRequest || s.status == http.StatusUnprocessableEntity)
}

// refusedPrompt reports a refusal that is about the form of the prompt.
func (s said) refusedPrompt() bool {
	said := readRefusal(s.body)
	about := strings.ToLower(said.Message)
	if said.Param != nil {
		about += " " + *said.Param
	}
	return s.refused() && (strings.Contains(about, "prompt") || strings.Contains(about, "string") || strings.Contains(about, "token") || strings.Contains(about, "input"))
}
