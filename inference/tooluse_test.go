package inference

import (
	"strings"
	"testing"

	"tranche/episode"
	"tranche/internal/mock"
)

// What the server could not read as a tool call is no bad request: it may be sampled again, and what the model wrote is kept, recorded or made up, whole or streamed.
func TestAToolCallThatTheServerCannotRead(t *testing.T) {
	seen := 0
	for _, rec := range responses(t) {
		body, stream := rec.wire(t)
		if !strings.Contains(body, `tool_use_failed`) {
			continue
		}
		seen++
		t.Run(rec.ID, func(t *testing.T) {
			s := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) {
				if stream {
					w.Stream()
					w.Write(body)
					return
				}
				w.JSON(rec.Status, body)
			}})
			_, err := open(t, s, func(c *Config) { c.Stream = stream }).Generate(t.Context(), call("x"), 0, 64)
			f := faultOf(t, err)
			if f.Class != episode.ClassToolUse || !f.Retry || f.Died || f.Limit != 0 {
				t.Errorf("%+v", f)
			}
			if f.Partial != "" && f.Wasted == 0 {
				t.Errorf("nothing was wasted on %q", f.Partial)
			}
			for _, text := range []string{`"arguments": {`, "maybe"} {
				if strings.Contains(strings.ReplaceAll(body, `\"`, `"`), text) && !strings.Contains(f.Partial, text) {
					t.Errorf("%q is not kept: %q", text, f.Partial)
				}
			}
		})
	}
	if seen < 4 {
		t.Errorf("%d recordings of it were looked at", seen)
	}
	s := mock.New(t, mock.Config{Chat: fixed(400, `{"error":{"message":"tools: wrong schema","type":"invalid_request_error","code":"invalid_tools"}}`)})
	if _, err := open(t, s, nil).Generate(t.Context(), call("x"), 0, 64); faultOf(t, err).Class != episode.ClassBadRequest {
		t.Errorf("a tool definition that is wrong: %v", err)
	}
}
