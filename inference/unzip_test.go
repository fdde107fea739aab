package inference

import (
	"bytes"
	"compress/gzip"
	"testing"

	"tranche/episode"
	"tranche/internal/mock"
)

func gzipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(s)) // neither fails on a buffer
	_ = z.Close()
	return b.String()
}

// packed answers with a body that says it is gzip.
func packed(status int, kind, body string) mock.Handler {
	return func(_ *mock.Request, w *mock.Reply) {
		w.Header("Content-Encoding", "gzip")
		w.Raw(status, kind, body)
	}
}

func TestPackedAnswersAreUnpacked(t *testing.T) {
	whole := mock.Text("hello there").Body()
	stream := `data: {"choices":[{"index":0,"delta":{"content":"hello there"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	for name, h := range map[string]mock.Handler{
		"whole":    packed(200, "application/json", gzipped(whole)),
		"streamed": packed(200, eventStream, gzipped(stream)),
	} {
		if r := generate(t, open(t, mock.New(t, mock.Config{Chat: h}), nil), call("x")); r.Message.Text() != "hello there" {
			t.Errorf("%s: %q", name, r.Message.Text())
		}
	}
	for name, c := range map[string]struct {
		h    mock.Handler
		want episode.Class
	}{
		"a refusal":     {packed(400, "application/json", gzipped(`{"error":{"message":"maximum context length is 8 tokens, but the prompt has 9"}}`)), episode.ClassOverflow},
		"cut":           {packed(200, "application/json", gzipped(whole)[:40]), episode.ClassTruncatedStream},
		"not packed":    {packed(200, "application/json", whole), episode.ClassMalformed},
		"broken inside": {packed(200, "application/json", gzipped(whole)[:12]+"\xff\xff\xff\xff\xff\xff\xff\xff"), episode.ClassMalformed},
		"over the cap":  {packed(200, "application/json", gzipped(string(bytes.Repeat([]byte("x"), 1<<20)))), episode.ClassMalformed},
	} {
		e := open(t, mock.New(t, mock.Config{Chat: c.h}), func(c *Config) { c.MaxReplyBytes = 64 << 10 })
		_, err := e.Generate(t.Context(), call("x"), 0, 8)
		if f := faultOf(t, err); f.Class != c.want {
			t.Errorf("%s: class %s, want %s: %v", name, f.Class, c.want, err)
		}
	}
}
