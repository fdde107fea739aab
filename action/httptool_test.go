package action

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tranche/episode"
)

// webTool is an HTTP tool against a handler.
func webTool(t *testing.T, path string, handle http.HandlerFunc, change func(*HTTPConfig)) *HTTP {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	cfg := HTTPConfig{Name: "web", URL: server.URL + path, Parameters: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"},"n":{"type":"integer"}},"required":["q"]}`)}
	if change != nil {
		change(&cfg)
	}
	tool, err := NewHTTP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tool.Close)
	return tool
}

// echo answers with what it was sent.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), body)
}

func TestHTTPToolSends(t *testing.T) {
	for _, c := range []struct{ name, path, method, args, want string }{
		{"arguments in the path and the query", "/of/{q}", "", `{"q":"a b/../c?d","n":3}`, "GET /of/a%20b%2F..%2Fc%3Fd?n=3 "},
		{"arguments in the template's query", "/s?k=1&q={q}", "", `{"q":"a&b=c"}`, "GET /s?k=1&q=a%26b%3Dc "},
		{"dots climb nowhere", "/of/{q}/x", "", `{"q":".."}`, "GET /of/%2E%2E/x "},
		{"a body", "/do", "", `{"q":"<x>","n":1}`, `POST /do {"n":1,"q":"<x>"}`},
		{"a body beside the path", "/do/{q}", "PUT", `{"q":"x","n":1}`, `PUT /do/x {"n":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tool := webTool(t, c.path, echo, func(cfg *HTTPConfig) { cfg.Method = c.method })
			if o := called(t, Config{}, tool, c.args); o.Status != episode.ActionOK || o.Text != c.want {
				t.Errorf("%s %q (%v), want %q", o.Status, o.Text, o.Fault, c.want)
			}
		})
	}
}

func TestHTTPToolReadsStatuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		method  string
		declare bool
		want    string
		text    string
		sent    int32
	}{
		{name: "good", status: 200, method: "POST", want: episode.ActionOK, text: "said", sent: 1},
		{name: "the model's mistake", status: 404, method: "GET", want: episode.ActionError, text: "error: HTTP status 404 (Not Found)\nsaid", sent: 1},
		{name: "not the model's: a GET is repeated", status: 500, method: "GET", want: episode.ActionHarness, sent: 2},
		{name: "not the model's: a POST is not", status: 503, method: "POST", want: episode.ActionHarness, sent: 1},
		{name: "not the model's: a POST that is declared safe is", status: 503, method: "POST", declare: true, want: episode.ActionHarness, sent: 2},
		{name: "our key", status: 401, method: "POST", want: episode.ActionHarness, sent: 1},
		{name: "our rate", status: 429, method: "POST", want: episode.ActionHarness, sent: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sent atomic.Int32
			tool := webTool(t, "/", func(w http.ResponseWriter, _ *http.Request) {
				sent.Add(1)
				w.WriteHeader(c.status)
				io.WriteString(w, "said")
			},
				func(cfg *HTTPConfig) { cfg.Method, cfg.Idempotent = c.method, c.declare })
			o := called(t, Config{}, tool, `{"q":"x"}`)
			if o.Status != c.want || c.text != "" && o.Text != c.text || sent.Load() != c.sent {
				t.Errorf("%s %q after %d requests, want %s %q after %d", o.Status, o.Text, sent.Load(), c.want, c.text, c.sent)
			}
			if c.want == episode.ActionHarness && !strings.Contains(o.Fault.Error(), fmt.Sprint(c.status)) {
				t.Errorf("the fault does not tell the status: %v", o.Fault)
			}
		})
	}
}

// A service that is not there: nothing was sent, so even a POST is tried again, and nothing is told of the arguments.
func TestHTTPToolWithoutItsService(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	tool, err := NewHTTP(HTTPConfig{Name: "web", URL: gone.URL})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	o := called(t, Config{}, tool, `{"q":"private"}`)
	if o.Status != episode.ActionHarness || time.Since(began) < repeatPause || strings.Contains(o.Fault.Error(), "private") {
		t.Errorf("%s after %s: %v", o.Status, time.Since(began), o.Fault)
	}
}

// A key in a header is sent, and stands in nothing that is shown or stored; it goes to no other host.
func TestHTTPToolKeepsItsKey(t *testing.T) {
	t.Setenv("WEB_KEY", "hunter2")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the other host was sent %s with %v", r.URL, r.Header)
	}))
	defer other.Close()
	tool := webTool(t, "/{q}", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/away"):
			http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/here"):
			http.Redirect(w, r, "/x", http.StatusFound)
		default:
			fmt.Fprintf(w, "you sent %s for %s", r.Header.Get("Authorization"), r.Header.Get("Tranche-Action"))
		}
	}, func(cfg *HTTPConfig) { cfg.Headers = map[string]string{"Authorization": "Bearer ${WEB_KEY}"} })
	if o := called(t, Config{}, tool, `{"q":"x"}`); o.Text != "you sent Bearer [secret] for e1/0/0" {
		t.Errorf("observed %q", o.Text)
	}
	if o := called(t, Config{}, tool, `{"q":"here"}`); o.Status != episode.ActionOK {
		t.Errorf("a redirect on the same host: %s %v", o.Status, o.Fault)
	}
	if o := called(t, Config{}, tool, `{"q":"away"}`); o.Status != episode.ActionHarness || !strings.Contains(o.Fault.Error(), "another host") {
		t.Errorf("a redirect to another host: %s %q %v", o.Status, o.Text, o.Fault)
	}
}

// An answer without an end is read to the cap.
func TestHTTPToolReadsNoFlood(t *testing.T) {
	tool := webTool(t, "/", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
				return
			}
		}
	}, func(cfg *HTTPConfig) { cfg.MaxBytes = 10_000 })
	o := called(t, Config{}, tool, `{"q":"x"}`)
	if o.Status != episode.ActionOK || !o.Truncated || len(o.Text) != 10_000 {
		t.Errorf("%s, truncated %v, %d bytes (%v)", o.Status, o.Truncated, len(o.Text), o.Fault)
	}
}

func TestHTTPConfigSaysEveryFault(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  HTTPConfig
		want []string
	}{
		"a host the model would choose": {HTTPConfig{URL: "https://{host}/x", Parameters: json.RawMessage(`{"required":["host"]}`)}, []string{"not in the host"}},
		"no URL":                        {HTTPConfig{URL: "ftp://x"}, []string{"expected e.g. https://"}},
		"a password in the URL":         {HTTPConfig{URL: "https://me:hunter2@x/"}, []string{"user name or password"}},
		"an argument that may be away":  {HTTPConfig{URL: "https://x/{q}", Parameters: json.RawMessage(`{"properties":{"q":{}}}`)}, []string{"{q} is not among the parameters that are required"}},
		"an argument without a schema":  {HTTPConfig{URL: "https://x/{q}"}, []string{"parameters: is missing"}},
		"many":                          {HTTPConfig{URL: "https://x/", Method: "STEAL", Headers: map[string]string{"X-Api-Key": "hunter2", "A b": "x", "Ok": "${NOT_SET_AT_ALL}"}, Timeout: -1}, []string{"method: expected one of", "X-Api-Key: a key must not stand here", `"A b" is no name`, "NOT_SET_AT_ALL is not set", "timeout"}},
	} {
		_, err := NewHTTP(c.cfg)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error lacks %q:\n%v", name, want, err)
			}
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows a secret:\n%v", name, err)
		}
	}
}

// A service that asks to be left alone is, where the call's time allows it; where it does not the call fails at once.
func TestRetryAfter(t *testing.T) {
	var asked []time.Time
	later := "0.4"
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked = append(asked, time.Now()); len(asked)%2 == 1 {
			w.Header().Set("Retry-After", later)
			http.Error(w, "busy", http.StatusTooManyRequests)
			return
		}
		io.WriteString(w, "fine")
	}))
	defer web.Close()
	tool, err := NewHTTP(HTTPConfig{Name: "get", URL: web.URL, Method: "GET"})
	if err != nil {
		t.Fatal(err)
	}
	defer tool.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := run(ctx, tool, json.RawMessage("{}"), Env{})
	if err != nil || r.Text != "fine" || len(asked) != 2 || asked[1].Sub(asked[0]) < 400*time.Millisecond {
		t.Errorf("%+v, %v, asked at %v", r, err, asked)
	}
	later = "3600"
	if _, err := run(ctx, tool, json.RawMessage("{}"), Env{}); err == nil || !strings.Contains(err.Error(), "left alone for 1h0m0s") || len(asked) != 3 {
		t.Errorf("%v, asked %d times", err, len(asked))
	}
}
