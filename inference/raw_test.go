package inference

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/internal/mock"
)

// An answer that is gone on with keeps what came last, or what it failed with; lists, which are of several calls, are not used then.
func TestKeepRawOfParts(t *testing.T) {
	for body, status := range map[string]int{
		`{"choices":[{"text":"x","token_ids":[6],"finish_reason":"stop"}]}`:  200,
		`{"choices":[{"text":"x","token_ids":[6],"finish_reason":"abort"}]}`: 200,
		`{"choices":[{"text":"x","finish_reason":"stop"}]}`:                  200,
		`{"error":"busy"}`: 503,
	} {
		e := completing(t, status, body, "", nil)
		e.cfg.KeepRaw = true
		r, err := e.Extend(t.Context(), &episode.Call{ID: "e/0"}, beginning("a"), 1, 4)
		raw := (*episode.Raw)(nil)
		if err != nil {
			raw = faultOf(t, err).Raw
		} else {
			raw = r.Raw
		}
		if raw == nil || rawText(t, raw) != body {
			t.Errorf("%s: %+v, %v", body, raw, err)
		}
	}
	e := simulated(t, enginesim.Config{Batching: enginesim.Static, MaxSeqs: 8})
	e.cfg.KeepRaw = true
	if _, err := e.ProveList(t.Context()); err == nil {
		t.Error("lists are used though each call's raw answer is to be kept")
	}
}

func rawText(t *testing.T, r *episode.Raw) string {
	t.Helper()
	body, err := r.Body()
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// What the server sent is kept byte for byte, in the reply or in the fault, whatever became of it.
func TestKeepRaw(t *testing.T) {
	stream := ": a comment\r\n\r\n" + twoPieces + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	pieces := func(raw string) mock.Handler {
		return func(_ *mock.Request, w *mock.Reply) { w.Stream(); w.Pieces(raw, 17) }
	}
	for name, c := range map[string]struct {
		h    mock.Handler
		want string
		at   int16
		as   episode.Class
	}{
		"whole":             {fixed(200, mock.Text("a \xff b").Body()), mock.Text("a \xff b").Body(), 200, ""},
		"stream":            {pieces(stream), stream, 200, ""},
		"stream that broke": {pieces(twoPieces), twoPieces, 200, episode.ClassTruncatedStream},
		"refusal":           {fixed(503, `{"error":"busy"}`), `{"error":"busy"}`, 503, episode.ClassUnavailable},
		"in-band error":     {pieces(twoPieces + `data: {"error":"x"}` + "\n\n"), twoPieces + `data: {"error":"x"}` + "\n\n", 200, episode.ClassServerError},
		"no JSON":           {fixed(200, "<h1>hello</h1>"), "<h1>hello</h1>", 200, episode.ClassMalformed},
		"no choices":        {fixed(200, `{"choices":[]}`), `{"choices":[]}`, 200, episode.ClassMalformed},
		"aborted":           {fixed(200, message(`{"content":"a"}`, `"abort"`)), message(`{"content":"a"}`, `"abort"`), 200, episode.ClassAborted},
		"empty":             {fixed(500, ""), "", 500, episode.ClassServerError},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, mock.New(t, mock.Config{Chat: c.h}), func(c *Config) { c.KeepRaw = true })
			r, err := e.Generate(t.Context(), call("x"), 0, 64)
			raw := (*episode.Raw)(nil)
			if err != nil {
				raw = faultOf(t, err).Raw
			} else {
				raw = r.Raw
			}
			if raw == nil || rawText(t, raw) != c.want || raw.Status != c.at || raw.Class != c.as || raw.Bytes != int64(len(c.want)) || raw.Held != raw.Bytes {
				t.Fatalf("%+v %v, want %q", raw, err, c.want)
			}
		})
	}
	t.Run("none where it is not asked for", func(t *testing.T) {
		for status, body := range map[int]string{200: mock.Text("a").Body(), 503: `{"error":"busy"}`} {
			r, err := open(t, mock.New(t, mock.Config{Chat: fixed(status, body)}), nil).Generate(t.Context(), call("x"), 0, 64)
			if err == nil && r.Raw != nil || err != nil && faultOf(t, err).Raw != nil {
				t.Fatalf("%d: kept", status)
			}
		}
	})
	t.Run("none where no answer came", func(t *testing.T) {
		e := open(t, mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) { w.Reset() }}), func(c *Config) { c.KeepRaw = true })
		if _, err := e.Generate(t.Context(), call("x"), 0, 64); faultOf(t, err).Raw != nil {
			t.Fatal("kept")
		}
	})
	t.Run("up to the cap", func(t *testing.T) {
		body := mock.Text(strings.Repeat("x", maxRawBytes)).Body()
		r := generate(t, open(t, mock.New(t, mock.Config{Chat: fixed(200, body)}), func(c *Config) { c.KeepRaw = true }), call("x"))
		if got := rawText(t, r.Raw); got != body[:maxRawBytes] || r.Raw.Bytes != int64(len(body)) || r.Raw.Held != maxRawBytes {
			t.Fatalf("%d bytes held of %d", len(got), r.Raw.Bytes)
		}
		if len(r.Message.Text()) != maxRawBytes {
			t.Fatal("the answer itself was cut")
		}
	})
	t.Run("without the key, however it is spelled", func(t *testing.T) {
		const key = "sk-ab/cdEFgh/12345"
		escaped := `{"error":{"message":"bad key Bearer sk-ab\/cdEFgh\/12345, or \u0073k-ab\u002FcdEFgh/12345"}}`
		e := open(t, mock.New(t, mock.Config{Chat: fixed(400, escaped)}), func(c *Config) { c.KeepRaw, c.APIKey = true, key })
		_, err := e.Generate(t.Context(), call("x"), 0, 64)
		f := faultOf(t, err)
		if said := err.Error(); strings.Contains(said, "cdEFgh") || strings.Count(said, "[API key]") != 2 || strings.Contains(rawText(t, f.Raw), "cdEFgh") {
			t.Errorf("%s; kept %s", said, rawText(t, f.Raw))
		}
		body := message(`{"content":"you sent sk-ab\/cdEFgh\/12345","reasoning_content":"sk-ab/cdEFgh/12345","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"k\":\"sk-ab\\/cdEFgh\\/12345\"}"}}]}`, `"stop"`)
		r := generate(t, open(t, mock.New(t, mock.Config{Chat: fixed(200, body)}), func(c *Config) { c.KeepRaw, c.APIKey = true, key }), call("x"))
		text, err := json.Marshal(r.Message)
		if err != nil || strings.Contains(string(text), "cdEFgh") || strings.Count(string(text), "[API key]") != 3 || strings.Contains(rawText(t, r.Raw), "cdEFgh") {
			t.Errorf("%s, %v; kept %s", text, err, rawText(t, r.Raw))
		}
	})
	t.Run("without the key", func(t *testing.T) {
		body := message(`{"content":"you sent sk-secret"}`, `"stop"`)
		r := generate(t, open(t, mock.New(t, mock.Config{Chat: fixed(200, body)}), func(c *Config) { c.KeepRaw, c.APIKey = true, "sk-secret" }), call("x"))
		if got := rawText(t, r.Raw); got != strings.ReplaceAll(body, "sk-secret", "[API key]") || r.Raw.Bytes != int64(len(got)) {
			t.Fatalf("%q, %d bytes", got, r.Raw.Bytes)
		}
	})
}

// Writers are lent to many calls at once; no answer shows in another.
func TestKeepRawOfManyAtOnce(t *testing.T) {
	s := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		w.JSON(200, mock.Text(strings.Repeat(r.ID, 500)).Body())
	}})
	e := open(t, s, func(c *Config) { c.KeepRaw = true })
	next := make(chan int, 200)
	for i := range 200 {
		next <- i
	}
	burst(16, 200, func() {
		c := call("x")
		c.ID = fmt.Sprint(<-next)
		r, err := e.Generate(t.Context(), c, 0, 64)
		if err != nil {
			t.Error(err)
			return
		}
		if got := rawText(t, r.Raw); got != mock.Text(strings.Repeat(c.ID+"/0", 500)).Body() {
			t.Errorf("call %s holds %.60q", c.ID, got)
		}
	})
}
