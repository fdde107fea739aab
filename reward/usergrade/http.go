package usergrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"tranche/internal/later"
	"tranche/reward"
)

// KindHTTP is the kind of grader that is a web service.
const KindHTTP = "http"

type webOptions struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"` // ${NAME} in a value stands for an environment variable
	Timeout time.Duration     `json:"timeout"` // of one grading, waits that the service asks for included. Default --score-timeout
	Options json.RawMessage   `json:"options"` // handed on in the case
}

// web is the grader: the case is POSTed, a 2xx is the answer.
type web struct {
	opt    webOptions
	name   string
	put    func(*http.Request)
	hide   func(string) string
	client *http.Client
}

var (
	_ reward.Grader  = (*web)(nil)
	_ reward.Timed   = (*web)(nil)
	_ reward.Decided = (*web)(nil)
)

func newWeb(s reward.Spec, h Host) (*web, error) {
	g := &web{name: s.Name}
	if err := reward.ReadOptions(s, &g.opt); err != nil {
		return nil, err
	}
	var err error
	g.put, g.hide, err = h.Headers(g.opt.Headers)
	errs := []error{err, checkURL(g.opt.URL)}
	if g.opt.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout: %s, expected more than 0s", g.opt.Timeout))
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	g.client = &http.Client{Transport: transport, CheckRedirect: h.Follow}
	return g, errors.Join(errs...)
}

func checkURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil: // it may hold a password: not repeated
		return errors.New("url: is no URL; expected e.g. https://host/grade")
	case u.User != nil:
		return errors.New("url: a user name or password in it would be stored; use headers with ${NAME}")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("url: expected e.g. https://host/grade, found %q", raw)
	}
	return nil
}

// ID is the kind and its version.
func (*web) ID() string { return KindHTTP + "/1" }

// Timeout is the configured one.
func (g *web) Timeout() time.Duration { return g.opt.Timeout }

// Decides is where it asks and what it hands on; headers are how it may.
func (g *web) Decides() string {
	return digestable(struct {
		URL     string
		Options json.RawMessage
	}{g.opt.URL, g.opt.Options})
}

// Grade asks the service. Where it says when to come again, that is waited for, as long as ctx allows.
func (g *web) Grade(ctx context.Context, in reward.Input) (reward.Finding, error) {
	text, err := newCase(g.name, g.opt.Options, in, 0)
	if err != nil {
		return reward.Finding{}, err
	}
	for {
		raw, after, err := g.post(ctx, text)
		if err == nil {
			return g.said(raw)
		}
		var none *reward.Unjudged
		if !errors.As(err, &none) || !none.Retry || !worthWaiting(ctx, after) {
			return reward.Finding{}, err
		}
		if err := sleep(ctx, after); err != nil {
			return reward.Finding{}, err
		}
	}
}

func (g *web) said(raw []byte) (reward.Finding, error) {
	a, err := read(raw)
	if err != nil {
		return reward.Finding{}, errors.New(g.hide(err.Error()))
	}
	return a.finding(g.hide)
}

// worthWaiting: a wait that ends behind the deadline is none.
func worthWaiting(ctx context.Context, after time.Duration) bool {
	until, ok := ctx.Deadline()
	return after > 0 && (!ok || time.Until(until) > after)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// post sends the case once. after is the wait that the service asks for; 0 = none.
func (g *web) post(ctx context.Context, text []byte) (raw []byte, after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.opt.URL, bytes.NewReader(text))
	if err != nil {
		return nil, 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	g.put(r)
	answer, err := g.client.Do(r)
	if err == nil {
		defer answer.Body.Close()
		raw, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		return nil, 0, &reward.Unjudged{Reason: Unable, Detail: g.hide(err.Error()), Retry: true}
	}
	if answer.StatusCode/100 != 2 {
		after = later.Asked(answer.Header, time.Now())
	}
	return raw, after, g.status(answer, raw)
}

// status says what an HTTP status means: nil for an answer.
func (g *web) status(answer *http.Response, raw []byte) error {
	code := answer.StatusCode
	if code/100 == 2 {
		return nil
	}
	text := strings.ToValidUTF8(string(raw[:min(len(raw), 300)]), "")
	what := g.hide(fmt.Sprintf("%s answered HTTP %d: %s", answer.Request.URL.Host, code, text))
	if code >= 500 || slices.Contains([]int{408, 425, 429}, code) {
		return &reward.Unjudged{Reason: Unable, Detail: what, Retry: true}
	}
	return errors.New(what)
}

// Close lets go of idle connections.
func (g *web) Close() error {
	g.client.CloseIdleConnections()
	return nil
}
