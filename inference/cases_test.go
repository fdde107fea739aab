package inference

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tranche/episode"
	"tranche/internal/mock"
)

// 2,048 calls from 512 workers, each answered after 200 ms: the server sees them at once, on few connections. The wall
// clock has to keep its limit once in three tries, or the pace of bare net/http where the machine is too busy for either.
func TestCaseCTo1ConcurrencyReachesTheServer(t *testing.T) {
	const limit = 1600 * time.Millisecond
	var wall, bare time.Duration
	peak := 0
	for range 3 {
		s := mock.New(t, mock.Config{Chat: answerAfter(200 * time.Millisecond)})
		e := open(t, s, func(c *Config) { c.Concurrency = 512 })
		var failed atomic.Int64
		wall = burst(512, 2048, func() {
			if _, err := e.Generate(t.Context(), call("x"), 0, 8); err != nil {
				failed.Add(1)
			}
		})
		t.Logf("peak %d in flight, %d connections, %d failed, %v", s.Peak(), s.Conns(), failed.Load(), wall)
		if s.Conns() > 540 || failed.Load() > 0 {
			t.Fatalf("%d connections (want <= 540), %d failed (want 0)", s.Conns(), failed.Load())
		}
		if s.Peak() >= 490 && wall <= limit || raceEnabled {
			return
		}
		other := mock.New(t, mock.Config{Chat: answerAfter(200 * time.Millisecond)})
		raw := newRawClient(other, 512)
		bare = burst(512, 2048, func() { raw.post(t) })
		if wall < bare*3/2 && s.Peak() >= other.Peak()*95/100 {
			t.Logf("over the limit, but bare net/http took %v with %d in flight", bare, other.Peak())
			return
		}
		peak = s.Peak()
	}
	t.Fatalf("%v, want <= %v; peak %d in flight, want >= 490; bare net/http took %v", wall, limit, peak, bare)
}

func answerAfter(d time.Duration) mock.Handler {
	body := mock.Text("ok").Body()
	return func(_ *mock.Request, w *mock.Reply) { w.Delay(d); w.JSON(200, body) }
}

// burst has workers do n pieces of work and returns how long that took.
func burst(workers, n int, work func()) time.Duration {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	began := time.Now()
	for range workers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				work()
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// The server closes idle sockets just when the client wants them again: nothing fails, nothing is delivered twice.
func TestCaseCTo2IdleSocketsAreNotReused(t *testing.T) {
	idle, rounds := 250*time.Millisecond, 30
	if testing.Short() {
		rounds = 4
	}
	s := mock.New(t, mock.Config{Idle: idle})
	e := open(t, s, func(c *Config) { c.ServerIdle = idle })
	var failed atomic.Int64
	var wg sync.WaitGroup
	lag := watchLag()
	for i := range 20 {
		wg.Go(func() {
			for round := range rounds {
				c := call("x")
				c.ID = fmt.Sprintf("%d/%d", i, round)
				if _, err := e.Generate(t.Context(), c, 0, 8); err != nil {
					t.Error(err)
					failed.Add(1)
				}
				time.Sleep(time.Duration(float64(idle) * (0.95 + 0.1*rand.Float64())))
			}
		})
	}
	wg.Wait()
	late := lag()
	seen, last := map[string]int{}, map[int]time.Time{}
	var longest time.Duration // that a connection was idle before it was used again
	for _, r := range s.Chats() {
		seen[r.ID]++
		if at, ok := last[r.Conn]; ok {
			longest = max(longest, r.At.Sub(at))
		}
		last[r.Conn] = r.At
	}
	// Whether a late reuse fails is a matter of microseconds; that there is none is not. The server saw each as late as a busy machine let it.
	if longest > idle*9/10+late {
		t.Errorf("a connection was used again after %v of the server's %v, on a machine that is %v late at most", longest, idle, late)
	}
	if failed.Load() != 0 || len(seen) != 20*rounds || len(s.Chats()) != 20*rounds {
		t.Fatalf("%d failed; %d ids in %d requests, want %d of each", failed.Load(), len(seen), len(s.Chats()), 20*rounds)
	}
}

// watchLag looks how much later than asked for a goroutine gets its turn; over returns the most there was.
func watchLag() (over func() time.Duration) {
	stop, most := make(chan struct{}), make(chan time.Duration)
	go func() { // ends when stop is closed
		var worst time.Duration
		for {
			began := time.Now()
			select {
			case <-stop:
				most <- worst
				return
			case <-time.After(time.Millisecond):
				worst = max(worst, time.Since(began)-time.Millisecond)
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-most
	}
}

// The attempt's clock starts when Generate is called: what was waited before is not in it, and service says so.
func TestCaseCTo3ClockStartsAtDispatch(t *testing.T) {
	s := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) {
		w.Delay(100 * time.Millisecond)
		w.JSON(200, mock.Text("ok").Body())
	}})
	e := open(t, s, func(c *Config) { c.AttemptTimeout = time.Second })
	time.Sleep(1100 * time.Millisecond) // longer in the queue than an attempt may take
	r := generate(t, e, call("x"))
	if r.Service < 100*time.Millisecond || r.Service > time.Second {
		t.Fatalf("service %v, want about 0.1 s", r.Service)
	}
}

func TestCaseRRo1RateLimitCarriesTheWait(t *testing.T) {
	s := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) {
		w.Header("Retry-After", "2")
		w.JSON(429, `{"error":{"message":"too many requests"}}`)
	}})
	_, err := open(t, s, nil).Generate(t.Context(), call("x"), 0, 8)
	if f := faultOf(t, err); f.Class != episode.ClassRateLimited || !f.Retry || f.After != 2*time.Second {
		t.Fatalf("%+v", f)
	}
}

func TestCaseRRo2BadRequestIsOneAttempt(t *testing.T) {
	s := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) {
		w.JSON(400, `{"error":{"message":"unknown parameter: 'frobnicate'","type":"invalid_request_error","param":"frobnicate"}}`)
	}})
	e := open(t, s, nil)
	c := call("x")
	c.Sampling = episode.Sampling{TokenIDs: true, Logprobs: true, Extra: map[string]json.RawMessage{"frobnicate": json.RawMessage("1")}}
	_, err := e.Generate(t.Context(), c, 0, 8)
	f := faultOf(t, err)
	if f.Class != episode.ClassBadRequest || f.Retry || len(s.Chats()) != 1 {
		t.Fatalf("%+v after %d requests", f, len(s.Chats()))
	}
	if !strings.Contains(err.Error(), "unknown parameter: 'frobnicate'") || !strings.Contains(err.Error(), "endpoint m") {
		t.Fatalf("the message names neither the parameter nor the endpoint: %v", err)
	}
}

func TestCaseRRo3UnavailableIsRetryable(t *testing.T) {
	s := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) { w.JSON(503, `{"error":"server busy"}`) }})
	e := open(t, s, nil)
	for attempt := range 3 {
		_, err := e.Generate(t.Context(), call("x"), attempt, 8)
		if f := faultOf(t, err); f.Class != episode.ClassUnavailable || !f.Retry {
			t.Fatalf("%+v", f)
		}
	}
	var ids []string
	for _, r := range s.Chats() {
		ids = append(ids, r.ID+" "+r.Session)
	}
	if want := []string{"ep/0/0 ep", "ep/0/1 ep", "ep/0/2 ep"}; !slices.Equal(ids, want) {
		t.Fatalf("request and session ids %q, want %q", ids, want)
	}
}

func TestCaseCOo1MaxTokensIsSentAsClamped(t *testing.T) {
	s := mock.New(t, mock.Config{})
	e := open(t, s, nil)
	if _, err := e.Generate(t.Context(), call("x"), 0, 10); err != nil {
		t.Fatal(err)
	}
	if got := string(s.Chats()[0].Field("max_tokens")); got != "10" {
		t.Fatalf("max_tokens %s, want 10", got)
	}
}

func TestCaseCOo2LengthInsideAToolCall(t *testing.T) {
	for _, stream := range []bool{false, true} {
		a := mock.Tool("c1", "calculator", `{"expression": "1+`)
		a.Finish = "length"
		e := open(t, mock.New(t, mock.Config{Chat: a.Send}), func(c *Config) { c.Stream = stream })
		r := generate(t, e, call("x"))
		if r.Finish != episode.FinishLength || len(r.Message.ToolCalls) != 1 || r.Message.ToolCalls[0].Function.Arguments != `{"expression": "1+` {
			t.Fatalf("stream %v: finish %q, calls %+v", stream, r.Finish, r.Message.ToolCalls)
		}
	}
}

func TestCaseSPo1BrokenArgumentsAreKeptRaw(t *testing.T) {
	e := open(t, mock.New(t, mock.Config{Chat: mock.Tool("c1", "f", `{"n": 7`).Send}), nil)
	r := generate(t, e, call("x"))
	if len(r.Message.ToolCalls) != 1 || r.Message.ToolCalls[0].Function.Arguments != `{"n": 7` || r.Message.ToolCalls[0].ID != "c1" {
		t.Fatalf("%+v", r.Message.ToolCalls)
	}
	// The copy that is sent back is what the server can parse; the episode does that, and the request must carry it.
	c := call("x")
	c.Messages = append(c.Messages, r.Message.Sendable())
	body, err := e.Render(c, 8)
	if err != nil || !strings.Contains(string(body), `"arguments":"{}"`) {
		t.Fatalf("%s %v", body, err)
	}
}

func TestCaseSPo2LongLineInSmallPieces(t *testing.T) {
	content := strings.Repeat("0123456789abcdé", 300<<10/16)
	line := `data: {"choices":[{"index":0,"delta":{"content":"` + content + `"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	s := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) { w.Stream(); w.Pieces(line, 7) }})
	t.Run("whole", func(t *testing.T) {
		if r := generate(t, open(t, s, nil), call("x")); r.Message.Text() != content {
			t.Fatalf("%d bytes, want %d", len(r.Message.Text()), len(content))
		}
	})
	t.Run("over the cap", func(t *testing.T) {
		_, err := open(t, s, func(c *Config) { c.MaxLineBytes = 64 << 10 }).Generate(t.Context(), call("x"), 0, 8)
		if f := faultOf(t, err); f.Class != episode.ClassLineTooLong || !strings.Contains(err.Error(), "65536") {
			t.Fatalf("%v", err)
		}
	})
}

const twoPieces = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hello "}}]}

data: {"choices":[{"index":0,"delta":{"content":"there"}}]}

`

func TestCaseSPo3CutStreamFails(t *testing.T) {
	for name, h := range map[string]mock.Handler{
		"ended in order": sse(twoPieces),
		"connection cut": func(_ *mock.Request, w *mock.Reply) { w.Stream(); w.Write(twoPieces); w.Cut() },
		"reset": func(_ *mock.Request, w *mock.Reply) {
			w.Stream()
			w.Write(twoPieces)
			w.Delay(20 * time.Millisecond) // a reset throws away what the peer has not read yet
			w.Reset()
		},
		"inside an event": sse(twoPieces + `data: {"choices":[{"ind`),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t, mock.New(t, mock.Config{Chat: h}), nil).Generate(t.Context(), call("x"), 0, 8)
			f := faultOf(t, err)
			if f.Class != episode.ClassTruncatedStream || !f.Retry || f.Partial != "Hello there" {
				t.Fatalf("%+v", f)
			}
		})
	}
}

func TestStreamEnds(t *testing.T) {
	const finish = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	hang := func(raw string) mock.Handler {
		return func(_ *mock.Request, w *mock.Reply) { w.Stream(); w.Write(raw); w.Hang() }
	}
	for name, c := range map[string]struct {
		h      mock.Handler
		finish string
	}{
		"finish, then nothing more":      {hang(twoPieces + finish), "stop"},
		"finish, then the end":           {sse(twoPieces + finish), "stop"},
		"marker, then the stream stays":  {hang(twoPieces + finish + "data: [DONE]\n\n"), "stop"},
		"marker without a finish reason": {sse(twoPieces + "data: [DONE]\n\n"), ""},
		"finish, then a cut connection": {func(_ *mock.Request, w *mock.Reply) {
			w.Stream()
			w.Write(twoPieces + finish)
			w.Cut()
		}, "stop"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := generate(t, open(t, mock.New(t, mock.Config{Chat: c.h}), nil), call("x"))
			if r.Message.Text() != "Hello there" || r.RawEnd != c.finish || r.Finish != c.finish || r.TTFT == nil {
				t.Fatalf("%+v", r)
			}
			if r.Service > time.Minute { // those that hang would for ever
				t.Fatalf("took %v", r.Service)
			}
		})
	}
}

func TestStreamedConnectionIsUsedAgain(t *testing.T) {
	s := mock.New(t, mock.Config{Chat: mock.Text("a b c").Send})
	e := open(t, s, func(c *Config) { c.Stream = true })
	generate(t, e, call("x"))
	before := s.Conns()
	for range 20 {
		generate(t, e, call("x"))
	}
	if n := s.Conns() - before; n != 0 {
		t.Fatalf("%d new connections for 20 streams one after the other", n)
	}
}

// llama-server closes a connection after a stream and does not say so: it must not be used again.
func TestLlamaServerConnectionAfterAStream(t *testing.T) {
	s := mock.New(t, mock.Config{
		Chat:   mock.Text("a b c").Send,
		Routes: map[string]mock.Handler{"GET /v1/models": fixed(200, `{"data":[{"id":"g","owned_by":"llamacpp"}]}`)},
	})
	e := open(t, s, func(c *Config) { c.Stream = true })
	used := map[int]bool{}
	for range 3 {
		generate(t, e, call("x"))
	}
	for _, r := range s.Chats() {
		used[r.Conn] = true
	}
	if len(used) != 3 {
		t.Fatalf("%d connections for three streams", len(used))
	}
}

func TestErrorInsideAStream(t *testing.T) {
	for name, raw := range map[string]string{
		"error object":      twoPieces + `data: {"error":{"message":"engine died","type":"InternalServerError","code":500}}` + "\n\ndata: [DONE]\n\n",
		"flat error":        twoPieces + `data: {"code":500,"message":"engine died"}` + "\n\n",
		"error field":       twoPieces + "error: {\"code\":500,\"message\":\"engine died\",\"type\":\"server_error\"}\n\ndata: [DONE]\n\n",
		"error event":       twoPieces + "event: error\ndata: {\"message\":\"engine died\"}\n\n",
		"error as a string": twoPieces + `data: {"error":"engine died"}` + "\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t, mock.New(t, mock.Config{Chat: sse(raw)}), nil).Generate(t.Context(), call("x"), 0, 8)
			f := faultOf(t, err)
			if f.Class != episode.ClassServerError || f.Partial != "Hello there" || !strings.Contains(err.Error(), "engine died") {
				t.Fatalf("%+v", f)
			}
		})
	}
}

func TestCaseSPo4NullContentAndBothReasoningNames(t *testing.T) {
	for _, stream := range []bool{false, true} {
		for name, a := range map[string]mock.Chat{
			"reasoning":         {Reasoning: episode.Ptr("abc"), Finish: "length", Prompt: 5, Completion: 3},
			"reasoning_content": {ReasoningContent: episode.Ptr("abc"), Finish: "length", Prompt: 5, Completion: 3},
		} {
			t.Run(fmt.Sprintf("%s stream=%v", name, stream), func(t *testing.T) {
				e := open(t, mock.New(t, mock.Config{Chat: a.Send}), func(c *Config) { c.Stream = stream })
				r := generate(t, e, call("x"))
				if r.Message.Content != nil || text1(r.Message.ReasoningContent) != "abc" || r.Finish != episode.FinishLength {
					t.Fatalf("content %s reasoning %s finish %s", text1(r.Message.Content), text1(r.Message.ReasoningContent), r.Finish)
				}
			})
		}
	}
}

func TestCaseSPo5UsageChunkAndInterleavedChoices(t *testing.T) {
	var raw strings.Builder
	chunk := func(s string) { raw.WriteString("data: " + s + "\n\n") }
	for _, w := range []string{"a", "b", "c"} {
		chunk(`{"choices":[{"index":1,"delta":{"content":"` + w + `1"}}]}`)
		chunk(`{"choices":[{"index":0,"delta":{"content":"` + w + `0"}},{"index":-7,"delta":{"content":"?"}}]}`)
	}
	chunk(`{"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}`)
	chunk(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
	chunk(`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12}}`)
	raw.WriteString("data: [DONE]\n\n")
	r := generate(t, open(t, mock.New(t, mock.Config{Chat: sse(raw.String())}), nil), call("x"))
	if r.Message.Text() != "a0b0c0" || r.Finish != "stop" || *r.Usage.Completion != 12 {
		t.Fatalf("%+v", r)
	}
	a := &answer{}
	for ev := newEvents(strings.NewReader(raw.String()), 1<<20); ; {
		data, _, err := ev.next()
		if err != nil {
			break
		}
		if _, err := a.takeEvent(data); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(a.choices[1].content); got != "a1b1c1" || a.choices[1].finish != "length" {
		t.Fatalf("second choice %q", got)
	}
}

func TestCaseSPo6ToolCallWithoutName(t *testing.T) {
	a := mock.Chat{ToolCalls: json.RawMessage(`[{"id":"c1","type":"function","function":{"arguments":{"q":"x"}}},{"arguments":{"q":"y"}}]`), Finish: "tool_calls"}
	r := generate(t, open(t, mock.New(t, mock.Config{Chat: a.Send}), nil), call("x"))
	var got []string
	for _, c := range r.Message.ToolCalls {
		got = append(got, c.ID+"|"+c.Type+"|"+c.Function.Name+"|"+c.Function.Arguments)
	}
	if want := []string{`c1|function||{"q":"x"}`, `|function||{"q":"y"}`}; !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
}

func TestToolCallsInPieces(t *testing.T) {
	delta := func(calls string) string { return `{"choices":[{"index":0,"delta":{"tool_calls":[` + calls + `]}}]}` }
	for name, c := range map[string]struct{ chunks, want []string }{
		"one call in pieces": {[]string{
			`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}`,
			`{"index":0,"function":{"arguments":"{\"n\""}}`, `{"index":0,"function":{"arguments":":1}"}}`},
			[]string{`a f {"n":1}`}},
		"two calls, interleaved": {[]string{
			`{"index":1,"id":"b","function":{"name":"g","arguments":"{"}},{"index":0,"id":"a","function":{"name":"f","arguments":"["}}`,
			`{"index":0,"function":{"arguments":"]"}},{"index":1,"function":{"arguments":"}"}}`},
			[]string{`b g {}`, `a f []`}},
		"null index": {[]string{
			`{"index":null,"id":"a","function":{"name":"f","arguments":"{"}}`, `{"index":null,"id":null,"function":{"name":null,"arguments":"}"}}`,
			`{"index":null,"id":"b","function":{"name":"g","arguments":"{}"}}`},
			[]string{`a f {}`, `b g {}`}},
		"every call at index 0": {[]string{
			`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`, `{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}`},
			[]string{`a f {}`, `b g {}`}},
		"name repeated": {[]string{
			`{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}`, `{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}`},
			[]string{`a f {}`}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &answer{}
			for _, ch := range c.chunks {
				if _, err := a.takeEvent([]byte(delta(ch))); err != nil {
					t.Fatal(err)
				}
			}
			r, err := a.reply(episode.Sampling{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, tc := range r.Message.ToolCalls {
				got = append(got, tc.ID+" "+tc.Function.Name+" "+tc.Function.Arguments)
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("%q, want %q", got, c.want)
			}
		})
	}
}

const fiveLogprobs = `{"content":[{"token":"a","logprob":-0.5},{"token":"b","logprob":-1},{"token":"c","logprob":null},{"token":"d","logprob":0},{"token":"e","logprob":-9999}]}`

func TestCaseTLo1NullLogprobStaysNull(t *testing.T) {
	a := mock.Text("abcde")
	a.TokenIDs, a.PromptIDs, a.Logprobs = []int32{11, 12, 13, 14, 15}, []int32{1, 2}, json.RawMessage(fiveLogprobs)
	e := open(t, mock.New(t, mock.Config{Chat: a.Send}), nil)
	c := call("x")
	c.Sampling = episode.Sampling{Logprobs: true, TokenIDs: true}
	r := generate(t, e, c)
	if len(r.SampledIDs) != 5 || len(r.Logprobs) != 5 || len(r.PromptIDs) != 2 {
		t.Fatalf("%d ids, %d logprobs, %d prompt ids", len(r.SampledIDs), len(r.Logprobs), len(r.PromptIDs))
	}
	want := []episode.Logprob{{Value: -0.5, Known: true}, {Value: -1, Known: true}, {}, {Value: 0, Known: true}, {Value: -9999, Known: true}}
	if !slices.Equal(r.Logprobs, want) {
		t.Fatalf("logprobs %+v, want %+v", r.Logprobs, want)
	}
	ep := &episode.Episode{Sampling: c.Sampling}
	ep.AddReply(r, episode.Turn{})
	if !slices.Contains(ep.Flags, episode.FlagLogprobNull) {
		t.Fatalf("flags %v", ep.Flags)
	}
}

// What no probability has is not known; one too small for a number is minus infinity. The answer is none the worse for it.
func TestOddLogprobs(t *testing.T) {
	for raw, want := range map[string]episode.Logprob{
		`-1e999`: {Value: float32(math.Inf(-1)), Known: true}, `"-inf"`: {Value: float32(math.Inf(-1)), Known: true}, `"-0.5"`: {Value: -0.5, Known: true},
		`1e999`: {}, `"nan"`: {}, `{"value":-1}`: {}, `true`: {}, `null`: {},
	} {
		for _, stream := range []bool{false, true} {
			a := mock.Text("a")
			a.TokenIDs, a.Logprobs, a.Completion = []int32{11}, json.RawMessage(`{"content":[{"token":"a","logprob":`+raw+`}]}`), 1
			c := call("x")
			c.Sampling = episode.Sampling{Logprobs: true, TokenIDs: true}
			r := generate(t, open(t, mock.New(t, mock.Config{Chat: a.Send}), func(c *Config) { c.Stream = stream }), c)
			if !slices.Equal(r.Logprobs, []episode.Logprob{want}) {
				t.Errorf("%s, stream %v: %+v, want %+v", raw, stream, r.Logprobs, want)
			}
		}
	}
}

func TestCaseTLo3LogprobsMissing(t *testing.T) {
	e := open(t, mock.New(t, mock.Config{Chat: mock.Text("a").Send}), nil)
	c := call("x")
	c.Sampling.Logprobs = true
	r := generate(t, e, c)
	if r.Logprobs != nil || !slices.Contains(r.Flags, episode.FlagLogprobsMissing) {
		t.Fatalf("logprobs %v flags %v", r.Logprobs, r.Flags)
	}
	if r := generate(t, e, call("x")); len(r.Flags) != 0 {
		t.Fatalf("not asked for, yet flagged: %v", r.Flags)
	}
	t.Run("as many as there are ids, or none", func(t *testing.T) {
		a := mock.Text("abcde")
		a.TokenIDs, a.Logprobs = []int32{11, 12, 13, 14}, json.RawMessage(fiveLogprobs)
		r := generate(t, open(t, mock.New(t, mock.Config{Chat: a.Send}), nil), c)
		if len(r.SampledIDs) != 4 || r.Logprobs != nil || !slices.Contains(r.Flags, episode.FlagLogprobsMissing) {
			t.Fatalf("%d ids, %d logprobs, flags %v", len(r.SampledIDs), len(r.Logprobs), r.Flags)
		}
	})
}

// 200 calls share one Sampling value, each with a max_tokens of its own: no body shows another's.
func TestCaseTLo4NoCrossTalk(t *testing.T) {
	s := mock.New(t, mock.Config{})
	e := open(t, s, func(c *Config) {
		c.Concurrency = 32
		c.ExtraBody = map[string]json.RawMessage{"max_tokens": json.RawMessage("150")}
	})
	shared := episode.Sampling{Temperature: episode.Ptr(0.0), Stop: []string{"\n"}, Extra: map[string]json.RawMessage{"user": json.RawMessage(`"u"`)}}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 32)
	for i := range 200 {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			c := call("x")
			c.ID, c.Sampling = strconv.Itoa(i), shared
			if _, err := e.Generate(t.Context(), c, 0, i+1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, r := range s.Chats() {
		i, _ := strconv.Atoi(strings.TrimSuffix(r.ID, "/0"))
		if got, want := string(r.Field("max_tokens")), strconv.Itoa(min(i+1, 150)); got != want {
			t.Errorf("call %d sent max_tokens %s, want %s", i, got, want)
		}
		if string(r.Field("temperature")) != "0" || r.Field("seed") != nil || string(r.Field("user")) != `"u"` {
			t.Errorf("call %d: %s", i, r.Body)
		}
	}
	if len(s.Chats()) != 200 {
		t.Fatalf("%d requests", len(s.Chats()))
	}
}

// One of 100 requests is never answered: it alone fails, at its own deadline.
func TestCaseSHo1HangHurtsItselfOnly(t *testing.T) {
	s := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if strings.HasPrefix(r.ID, "57/") {
			w.Hang()
			return
		}
		mock.Text("ok").Send(r, w)
	}})
	e := open(t, s, func(c *Config) { c.AttemptTimeout = 1500 * time.Millisecond })
	var good atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for i := range 100 {
		wg.Go(func() {
			c := call("x")
			c.ID = strconv.Itoa(i)
			_, err := e.Generate(t.Context(), c, 0, 8)
			if err == nil {
				good.Add(1)
				return
			}
			if f := faultOf(t, err); i != 57 || f.Class != episode.ClassTimeout || !f.Retry {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if good.Load() != 99 || time.Since(began) > time.Minute {
		t.Fatalf("%d good after %v", good.Load(), time.Since(began))
	}
}

func TestIdleTimeoutCountsFromTheFirstByte(t *testing.T) {
	t.Parallel()
	s := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		w.Stream()
		w.Delay(1200 * time.Millisecond) // queued by the server: not idle
		w.Write(twoPieces)
		if r.Session == "ep" {
			w.Hang()
		}
		w.Done()
	}})
	e := open(t, s, func(c *Config) { c.IdleTimeout = 800 * time.Millisecond })
	_, err := e.Generate(t.Context(), call("x"), 0, 8)
	if f := faultOf(t, err); f.Class != episode.ClassIdle || f.Partial != "Hello there" {
		t.Fatalf("%+v", f)
	}
	c := call("x")
	c.Episode = "other"
	if r := generate(t, e, c); r.Message.Text() != "Hello there" {
		t.Fatalf("%+v", r)
	}
}

func TestCallersContext(t *testing.T) {
	gone := make(chan struct{})
	s := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) { w.Hang(); close(gone) }})
	e := open(t, s, nil)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	began := time.Now()
	_, err := e.Generate(ctx, call("x"), 0, 8)
	if f := faultOf(t, err); f.Class != episode.ClassCancelled || time.Since(began) > time.Minute {
		t.Fatalf("%v after %v", err, time.Since(began))
	}
	select {
	case <-gone: // the connection was closed: the server can stop working
	case <-time.After(time.Minute):
		t.Fatal("the server did not see the client leave")
	}
}

func TestCaseUNo1LoneSurrogate(t *testing.T) {
	body := `{"choices":[{"index":0,"message":{"role":"assistant","content":"a\ud83db"},"finish_reason":"stop","token_ids":[7,8,9]}],"usage":{"prompt_tokens":1,"completion_tokens":3}}`
	e := open(t, mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) { w.JSON(200, body) }}), nil)
	r := generate(t, e, call("x"))
	if r.Message.Text() != "a\uFFFDb" || !slices.Contains(r.Flags, episode.FlagTextRepaired) || !slices.Equal(r.SampledIDs, []int32{7, 8, 9}) {
		t.Fatalf("%q flags %v ids %v", r.Message.Text(), r.Flags, r.SampledIDs)
	}
}

func TestCaseUNo2EmojiSplitOverWrites(t *testing.T) {
	event := `data: {"choices":[{"index":0,"delta":{"content":"x😀y"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	at := strings.Index(event, "😀") + 1
	s := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) {
		w.Stream()
		w.Write(event[:at])
		w.Delay(20 * time.Millisecond)
		w.Write(event[at:])
	}})
	if r := generate(t, open(t, s, nil), call("x")); r.Message.Text() != "x😀y" || len(r.Flags) != 0 {
		t.Fatalf("%q flags %v", r.Message.Text(), r.Flags)
	}
}

func TestCaseOBo2UsageIsTheServers(t *testing.T) {
	chunk := `data: {"choices":[{"index":0,"delta":{"content":"one two three four five "}}]}` + "\n\n"
	end := `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	for name, c := range map[string]struct {
		raw  string
		want *int32
	}{
		"its own chunk":     {chunk + end + `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":500}}` + "\n\ndata: [DONE]\n\n", episode.Ptr(int32(500))},
		"inside a choice":   {chunk + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":3,"completion_tokens":500}}]}` + "\n\n", episode.Ptr(int32(500))},
		"in the last chunk": {chunk + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":500}}` + "\n\n", episode.Ptr(int32(500))},
		"none at all":       {chunk + end + "data: [DONE]\n\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := generate(t, open(t, mock.New(t, mock.Config{Chat: sse(c.raw)}), nil), call("x"))
			if (r.Usage.Completion == nil) != (c.want == nil) || (c.want != nil && *r.Usage.Completion != *c.want) {
				t.Fatalf("usage %v", r.Usage.Completion)
			}
		})
	}
}

func TestAbortIsNoAnswer(t *testing.T) {
	a := mock.Text("half an ans")
	a.Finish = "abort"
	_, err := open(t, mock.New(t, mock.Config{Chat: a.Send}), nil).Generate(t.Context(), call("x"), 0, 8)
	if f := faultOf(t, err); f.Class != episode.ClassAborted || !f.Retry || f.Partial != "half an ans" || f.Wasted != 4 {
		t.Fatalf("%+v", f)
	}
}

func TestTransportFaults(t *testing.T) {
	for name, c := range map[string]struct {
		h    mock.Handler
		want episode.Class
	}{
		"reset before a byte":  {func(_ *mock.Request, w *mock.Reply) { w.Reset() }, episode.ClassReset},
		"closed before a byte": {func(_ *mock.Request, w *mock.Reply) { w.Cut() }, episode.ClassReset},
		"whole answer cut": {func(_ *mock.Request, w *mock.Reply) {
			w.Header("Content-Length", "100")
			w.Raw(200, "application/json", `{"choices":`)
			w.Cut()
		}, episode.ClassTruncatedStream},
		"no JSON":    {func(_ *mock.Request, w *mock.Reply) { w.Raw(200, "text/html", "<h1>It works</h1>") }, episode.ClassMalformed},
		"no choices": {func(_ *mock.Request, w *mock.Reply) { w.JSON(200, `{"choices":[]}`) }, episode.ClassMalformed},
		"no message": {func(_ *mock.Request, w *mock.Reply) {
			w.JSON(200, `{"choices":[{"index":0,"message":null,"finish_reason":"stop"}]}`)
		}, episode.ClassMalformed},
		"empty body":             {func(_ *mock.Request, w *mock.Reply) { w.JSON(200, ``) }, episode.ClassMalformed},
		"wrong type":             {func(_ *mock.Request, w *mock.Reply) { w.JSON(200, `{"choices":{"a":1}}`) }, episode.ClassMalformed},
		"an answer over the cap": {func(_ *mock.Request, w *mock.Reply) { w.JSON(200, mock.Text(strings.Repeat("x", 9000)).Body()) }, episode.ClassMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, mock.New(t, mock.Config{Chat: c.h}), func(c *Config) { c.MaxReplyBytes = 4096 })
			_, err := e.Generate(t.Context(), call("x"), 0, 8)
			if f := faultOf(t, err); f.Class != c.want {
				t.Fatalf("class %s, want %s: %v", f.Class, c.want, err)
			}
		})
	}
	t.Run("nobody listens any more", func(t *testing.T) {
		var e *Endpoint
		t.Run("server", func(t *testing.T) {
			s := mock.New(t, mock.Config{})
			cfg := Config{BaseURL: s.URL()}
			var err error
			if e, err = Open(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		})
		e.Close() // the next call has to dial
		_, err := e.Generate(t.Context(), call("x"), 0, 8)
		if f := faultOf(t, err); f.Class != episode.ClassConnect || !f.Retry {
			t.Fatalf("%v", err)
		}
	})
}
