package action

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"tranche/internal/later"
	"tranche/internal/redirect"
)

// HTTPConfig is a web service that models may call.
type HTTPConfig struct {
	Name        string            // what the model calls it by
	Description string            // told to the model
	Parameters  json.RawMessage   // JSON schema of the arguments; empty = any object
	URL         string            // {NAME} in its path or query stands for that argument, escaped
	Method      string            // default GET where the URL holds an argument, else POST
	Headers     map[string]string // ${NAME} in a value stands for an environment variable
	Timeout     time.Duration     // of one call; 0 = that of all tools
	Idempotent  bool              // safe to call twice; GET is by itself
	Stateless   bool              // the service keeps nothing of an episode between calls; GET is taken to keep nothing
	MaxBytes    int64             // of an answer that are read. Default 1 MiB
}

// HTTP is an HTTPConfig as a tool. Arguments that the URL does not hold are the query of a GET, and the JSON body of any other method.
//
// 2xx is a result. 4xx is an error for the model, with the answer's text. 401, 407, 408, 425, 429, 5xx, a redirect to another host and a
// connection that fails are no fault of the model: the service could not do its job.
type HTTP struct {
	cfg     HTTPConfig
	def     json.RawMessage
	headers Headers
	client  *http.Client
	held    []string // arguments in the URL
}

const defaultMaxBytes = 1 << 20

var (
	_ Tool       = (*HTTP)(nil)
	_ Repeatable = (*HTTP)(nil)
	_ Timed      = (*HTTP)(nil)
	_ Keeper     = (*HTTP)(nil)
)

var argument = regexp.MustCompile(`\{([^{}]*)\}`)

// NewHTTP checks the configuration and makes the tool. Nothing is sent.
func NewHTTP(cfg HTTPConfig) (*HTTP, error) {
	t := &HTTP{cfg: cfg}
	for _, m := range argument.FindAllStringSubmatch(cfg.URL, -1) {
		t.held = append(t.held, m[1])
	}
	if cfg.Method == "" {
		t.cfg.Method = http.MethodPost
		if len(t.held) > 0 {
			t.cfg.Method = http.MethodGet
		}
	}
	if cfg.MaxBytes == 0 {
		t.cfg.MaxBytes = defaultMaxBytes
	}
	var errs [3]error
	t.def, errs[0] = Define(cfg.Name, cfg.Description, cfg.Parameters)
	t.headers, errs[1] = ReadHeaders(cfg.Headers)
	errs[2] = t.check()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	t.client = &http.Client{Transport: transport, CheckRedirect: redirect.SameHost}
	return t, errors.Join(errs[:]...)
}

func (t *HTTP) check() error {
	var errs []error
	u, err := url.Parse(argument.ReplaceAllString(t.cfg.URL, "x"))
	switch {
	case err != nil: // it may hold a password: not repeated
		errs = append(errs, errors.New("url: is no URL; expected e.g. https://host/search?q={query}"))
	case u.User != nil:
		errs = append(errs, errors.New("url: a user name or password in it would be stored; use headers with ${NAME}"))
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		errs = append(errs, fmt.Errorf("url: expected e.g. https://host/search?q={query}, found %q", t.cfg.URL))
	case strings.Contains(authority(t.cfg.URL), "{"):
		errs = append(errs, errors.New("url: an argument may stand in the path and the query, not in the host: the model would choose where to send"))
	}
	if methods := []string{"GET", "POST", "PUT", "PATCH", "DELETE"}; !slices.Contains(methods, t.cfg.Method) {
		errs = append(errs, fmt.Errorf("method: expected one of %s, found %q", strings.Join(methods, ", "), t.cfg.Method))
	}
	var args shape
	if len(t.cfg.Parameters) > 0 && json.Unmarshal(t.cfg.Parameters, &args) == nil {
		for _, name := range t.held {
			if !slices.Contains(args.Required, name) {
				errs = append(errs, fmt.Errorf("url: {%s} is not among the parameters that are required", name))
			}
		}
	} else if len(t.held) > 0 {
		errs = append(errs, fmt.Errorf("parameters: is missing; expected a JSON schema that requires {%s} of the url", t.held[0]))
	}
	if t.cfg.Timeout < 0 || t.cfg.MaxBytes < 0 {
		errs = append(errs, errors.New("timeout, max-bytes: expected 0 or more"))
	}
	return errors.Join(errs...)
}

// authority is the part of a URL before its path.
func authority(raw string) string {
	scheme, rest, _ := strings.Cut(raw, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	return scheme + rest
}

// Name is the configured one.
func (t *HTTP) Name() string { return t.cfg.Name }

// Definition tells name, description and parameters.
func (t *HTTP) Definition() json.RawMessage { return t.def }

// Repeatable tells what was declared; a GET declares it itself.
func (t *HTTP) Repeatable() bool { return t.cfg.Idempotent || t.cfg.Method == http.MethodGet }

// Keeps tells what was declared; a GET changes nothing.
func (t *HTTP) Keeps(string) bool { return !t.cfg.Stateless && t.cfg.Method != http.MethodGet }

// Timeout is the configured one.
func (t *HTTP) Timeout() time.Duration { return t.cfg.Timeout }

// Run sends the call and reads the answer.
func (t *HTTP) Run(ctx context.Context, args json.RawMessage, env Env) (Result, error) {
	r, err := t.request(ctx, args)
	if err != nil {
		return Result{}, err
	}
	t.headers.Put(r)
	r.Header.Set("Tranche-Episode", env.Episode)
	r.Header.Set("Tranche-Action", env.Action)
	answer, err := t.client.Do(r)
	if err != nil {
		return Result{}, t.unreached(err)
	}
	defer answer.Body.Close()
	text, whole, err := t.read(answer.Body)
	if err != nil {
		return Result{}, fmt.Errorf("read the answer of %s: %w", r.URL.Host, err)
	}
	result, err := t.result(r.URL.Host, answer.StatusCode, text, whole)
	if wait := later.Asked(answer.Header, time.Now()); err != nil && wait > 0 {
		err = &laterError{err, wait}
	}
	return result, err
}

// laterError is a failure that its service says goes away.
type laterError struct {
	error
	after time.Duration
}

func (e *laterError) Unwrap() error { return e.error }

// request puts the arguments where they go.
func (t *HTTP) request(ctx context.Context, args json.RawMessage) (*http.Request, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(args, &all); err != nil {
		return nil, fmt.Errorf("read the arguments: %w", err)
	}
	path, query, asked := strings.Cut(t.cfg.URL, "?")
	target := fill(path, all, url.PathEscape)
	if asked {
		target += "?" + fill(query, all, url.QueryEscape)
	}
	for _, name := range t.held {
		delete(all, name)
	}
	if t.cfg.Method == http.MethodGet {
		return http.NewRequestWithContext(ctx, t.cfg.Method, withQuery(target, all), nil)
	}
	body, err := plainJSON(all)
	if err != nil {
		return nil, fmt.Errorf("write the arguments: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, t.cfg.Method, target, bytes.NewReader(body))
	if err == nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, err
}

// fill puts arguments in the place of {NAME}. A path segment of dots would climb: the dots are escaped too.
func fill(template string, args map[string]json.RawMessage, escape func(string) string) string {
	return argument.ReplaceAllStringFunc(template, func(ref string) string {
		value := plainText(args[ref[1:len(ref)-1]])
		if strings.Trim(value, ".") == "" {
			return strings.ReplaceAll(value, ".", "%2E")
		}
		return escape(value)
	})
}

// plainText is a value as it stands in a URL: a string without its quotes, all else as JSON.
func plainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

func withQuery(target string, args map[string]json.RawMessage) string {
	if len(args) == 0 {
		return target
	}
	q := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		q.Set(name, plainText(args[name]))
	}
	if strings.Contains(target, "?") {
		return target + "&" + q.Encode()
	}
	return target + "?" + q.Encode()
}

// unreached says why no answer came; a connection that was never made is a call that was never sent.
func (t *HTTP) unreached(err error) error {
	var dial *net.OpError
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err // without the URL, which holds what the model wrote
	}
	if errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("%w: %w", ErrNotRun, err)
	}
	return t.headers.Secrets.Hide(err)
}

// read takes the answer up to the cap.
func (t *HTTP) read(body io.Reader) (text string, whole bool, err error) {
	raw, err := io.ReadAll(io.LimitReader(body, t.cfg.MaxBytes+1))
	if int64(len(raw)) > t.cfg.MaxBytes {
		return string(raw[:t.cfg.MaxBytes]), false, nil
	}
	return string(raw), true, err
}

// result is what a status and a text mean.
func (t *HTTP) result(host string, status int, text string, whole bool) (Result, error) {
	text = t.headers.Secrets.redactPart(text, false, !whole)
	r := Result{OutBytes: int64(len(text)), Truncated: !whole}
	switch {
	case status/100 == 2:
		r.Text = text
		return r, nil
	case status/100 == 4 && !slices.Contains([]int{401, 407, 408, 425, 429}, status):
		return r, Reject("HTTP status %d (%s)\n%s", status, http.StatusText(status), text)
	}
	return r, fmt.Errorf("%s answered HTTP %d: %s", host, status, clip(valid(text), 300))
}

// Close lets go of idle connections.
func (t *HTTP) Close() { t.client.CloseIdleConnections() }
