package inference

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"tranche/episode"
	"tranche/internal/mock"
)

// open connects to a mock, with the configuration changed by edit.
func open(t testing.TB, s *mock.Server, edit func(*Config)) *Endpoint {
	t.Helper()
	cfg := Config{Name: "m", BaseURL: s.URL()}
	if edit != nil {
		edit(&cfg)
	}
	e, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func call(text string) *episode.Call {
	return &episode.Call{ID: "ep/0", Episode: "ep", Messages: []episode.Message{{Role: episode.RoleUser, Content: &text}}}
}

func generate(t testing.TB, e *Endpoint, c *episode.Call) *episode.Reply {
	t.Helper()
	r, err := e.Generate(context.Background(), c, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func faultOf(t testing.TB, err error) *episode.Fault {
	t.Helper()
	var f *episode.Fault
	if !errors.As(err, &f) {
		t.Fatalf("error %v is no fault", err)
	}
	if f.Stage != episode.StageModel {
		t.Fatalf("stage %q, want model: %v", f.Stage, err)
	}
	return f
}

// sse is a handler that sends these raw bytes as a stream and ends it in order.
func sse(raw string) mock.Handler {
	return func(_ *mock.Request, w *mock.Reply) { w.Stream(); w.Write(raw) }
}

func text1(p *string) string {
	if p == nil {
		return "<null>"
	}
	return *p
}

func fields(t testing.TB, body []byte) map[string]json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatalf("body is no JSON object: %v\n%s", err, body)
	}
	return m
}
