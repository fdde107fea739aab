package inference

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/internal/mock"
)

// rawClient is the least a client can do: bare net/http, the same transport settings, the body read and thrown away.
type rawClient struct {
	http http.Client
	to   string
	body []byte
}

func newRawClient(s *mock.Server, concurrency int) *rawClient {
	t := &http.Transport{MaxIdleConnsPerHost: concurrency, MaxConnsPerHost: concurrency, DisableCompression: true}
	return &rawClient{http: http.Client{Transport: t}, to: s.URL() + "/chat/completions", body: []byte(`{"model":"mock","messages":[{"role":"user","content":"x"}],"max_tokens":64}`)}
}

func (c *rawClient) post(tb testing.TB) {
	resp, err := c.http.Post(c.to, "application/json", bytes.NewReader(c.body))
	if err != nil {
		tb.Error(err)
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		tb.Error(err)
	}
}

// keep reads the answer and makes a string of it.
func (c *rawClient) keep(tb testing.TB) string {
	resp, err := c.http.Post(c.to, "application/json", bytes.NewReader(c.body))
	if err != nil {
		tb.Error(err)
		return ""
	}
	defer resp.Body.Close()
	raw, err := readAll(&bytes.Buffer{}, resp.Body, resp.ContentLength)
	if err != nil {
		tb.Error(err)
	}
	return string(raw)
}

// leastAnswer is what a row needs of an answer, and of an event of a stream.
type leastAnswer struct {
	Model   string `json:"model"`
	Choices []struct {
		Message      leastMessage `json:"message"`
		Delta        leastMessage `json:"delta"`
		FinishReason *string      `json:"finish_reason"`
		TokenIDs     []int32      `json:"token_ids"`
	} `json:"choices"`
	Usage struct {
		Prompt     int32 `json:"prompt_tokens"`
		Completion int32 `json:"completion_tokens"`
	} `json:"usage"`
}

type leastMessage struct {
	Content   *string           `json:"content"`
	Reasoning *string           `json:"reasoning_content"`
	ToolCalls []json.RawMessage `json:"tool_calls"`
}

// decode reads the answer with encoding/json, and returns its text.
func (c *rawClient) decode(tb testing.TB, stream bool) string {
	resp, err := c.http.Post(c.to, "application/json", bytes.NewReader(c.body))
	if err != nil {
		tb.Error(err)
		return ""
	}
	defer resp.Body.Close()
	if stream {
		return leastOfStream(tb, resp.Body)
	}
	raw, err := readAll(&bytes.Buffer{}, resp.Body, resp.ContentLength)
	if err != nil {
		tb.Error(err)
	}
	var a leastAnswer
	if err := json.Unmarshal(raw, &a); err != nil || len(a.Choices) != 1 {
		tb.Errorf("%d choices, %v", len(a.Choices), err)
		return ""
	}
	return *a.Choices[0].Message.Content
}

func leastOfStream(tb testing.TB, r io.Reader) string {
	var said strings.Builder
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			continue
		}
		var a leastAnswer
		if err := json.Unmarshal(data, &a); err != nil || len(a.Choices) != 1 {
			tb.Errorf("%q: %d choices, %v", data, len(a.Choices), err)
			break
		}
		if piece := a.Choices[0].Delta.Content; piece != nil {
			said.WriteString(*piece)
		}
	}
	if err := lines.Err(); err != nil {
		tb.Error(err)
	}
	return said.String()
}

// benchAnswers are the shapes whose cost differs: a short answer, a long text, and 640 tokens with ids and logprobs.
func benchAnswers() map[string]string {
	ids := make([]int32, 640)
	lps := make([]map[string]any, 640)
	for i := range ids {
		ids[i] = int32(1000 + i)
		lps[i] = map[string]any{"token": "tok", "bytes": []int{116, 111, 107}, "logprob": -0.25, "top_logprobs": []any{}}
	}
	content, err := json.Marshal(map[string]any{"content": lps})
	if err != nil {
		panic(err)
	}
	many := mock.Text(strings.Repeat("tok", 640))
	many.TokenIDs, many.Logprobs = ids, content
	return map[string]string{
		"2KB":        mock.Text(strings.Repeat("some text ", 180)).Body(),
		"64KB":       mock.Text(strings.Repeat("some text ", 6500)).Body(),
		"640logprob": many.Body(),
	}
}

// BenchmarkGenerate compares Generate with bare net/http against the same server in the same process and run, 32 workers.
// Report the ratio, not the times: both sides share the machine with the server.
func BenchmarkGenerate(b *testing.B) {
	for name, body := range benchAnswers() {
		s := mock.New(b, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) { w.JSON(200, body) }})
		e := open(b, s, func(c *Config) { c.Concurrency = 32 })
		raw := newRawClient(s, 32)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ours := burst(32, b.N, func() {
				if _, err := e.Generate(b.Context(), call("x"), 0, 64); err != nil {
					b.Error(err)
				}
			})
			b.StopTimer()
			bare := burst(32, b.N, func() { raw.post(b) })
			b.ReportMetric(float64(b.N)/ours.Seconds(), "req/s")
			b.ReportMetric(ours.Seconds()/bare.Seconds(), "x-net/http")
		})
	}
}

// BenchmarkWhole reads a whole answer without a socket; prose is a long text with quotes and line ends.
func BenchmarkWhole(b *testing.B) {
	bodies := benchAnswers()
	_, bodies["prose"], _ = strings.Cut(string(nullShapes()[1].answer()), "\r\n\r\n")
	for name, body := range bodies {
		b.Run(name, func(b *testing.B) {
			d, raw := &desk{}, []byte(body)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				a := &answer{desk: d, still: true}
				if _, err := a.takeEvent(raw); err != nil {
					b.Fatal(err)
				}
				if _, err := a.reply(episode.Sampling{}, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStream reads 500 chunks without a socket: the cost of our own reader and decoder.
func BenchmarkStream(b *testing.B) {
	var raw strings.Builder
	for range 500 {
		raw.WriteString(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	}
	b.ReportAllocs()
	for b.Loop() {
		a := &answer{}
		for ev := newEvents(strings.NewReader(raw.String()), 1<<20); ; {
			data, _, err := ev.next()
			if err != nil {
				break
			}
			if _, err := a.takeEvent(data); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(500*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
