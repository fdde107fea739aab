package inference

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tranche/episode"
	"tranche/internal/mock"
)

// endless answers until nobody reads any more, and says how much of it went out.
func endless(stream bool, sent chan<- int) mock.Handler {
	piece := strings.Repeat("x", 64<<10)
	return func(_ *mock.Request, w *mock.Reply) {
		if stream {
			w.Stream()
		} else {
			w.Header("Content-Type", "application/json")
			w.Write(`{"choices":[{"message":{"content":"`)
		}
		n := 0
		for ; n < 1<<20/64 && w.Delay(10*time.Microsecond); n++ {
			if stream {
				w.Event(`{"choices":[{"index":0,"delta":{"content":"` + piece + `"}}]}`)
			} else {
				w.Write(piece)
			}
		}
		sent <- n * len(piece)
	}
}

// What is read of an answer follows from what was asked for.
func TestAnAnswerIsReadAsFarAsItCanBeLong(t *testing.T) {
	for _, stream := range []bool{false, true} {
		sent := make(chan int, 1)
		e := open(t, mock.New(t, mock.Config{Chat: endless(stream, sent)}), func(c *Config) { c.Stream = stream })
		_, err := e.Generate(t.Context(), call("x"), 0, 100)
		if f := faultOf(t, err); f.Class != episode.ClassMalformed || f.Retry {
			t.Fatalf("stream %v: %v", stream, err)
		}
		if n := <-sent; n < 16<<20 || n > 32<<20 {
			t.Errorf("stream %v: the server got rid of %d bytes", stream, n)
		}
	}
}

func TestMostOf(t *testing.T) {
	e := open(t, mock.New(t, mock.Config{}), nil)
	body := make([]byte, 1000)
	extra := call("x")
	extra.Sampling.Extra = map[string]json.RawMessage{"return_hidden_states": json.RawMessage("true")}
	for name, c := range map[string]struct {
		call   *episode.Call
		tokens int
		want   int
	}{
		"a limit":           {call("x"), 100, DefaultMaxLineBytes + 1<<20 + 16000 + 100*4096},
		"no limit":          {call("x"), 0, DefaultMaxReplyBytes},
		"a large limit":     {call("x"), 1 << 40, DefaultMaxReplyBytes},
		"fields of its own": {extra, 100, DefaultMaxReplyBytes},
	} {
		if got := e.mostOf(c.call, body, c.tokens); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
