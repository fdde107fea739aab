package mock

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"
)

// Reply builds one answer, write by write. Its methods act at once; a method called after Reset or Cut does nothing.
type Reply struct {
	w    http.ResponseWriter
	gone <-chan struct{}
	stop <-chan struct{}
	over bool
}

// Header sets a response header. Call it before anything is written.
func (w *Reply) Header(name, value string) { w.w.Header().Set(name, value) }

// JSON writes a whole answer with that status.
func (w *Reply) JSON(status int, body string) {
	w.Raw(status, "application/json", body)
}

// Raw writes a whole answer of any content type.
func (w *Reply) Raw(status int, contentType, body string) {
	w.Header("Content-Type", contentType)
	w.w.WriteHeader(status)
	w.Write(body)
}

// Stream sends the headers of an SSE answer.
func (w *Reply) Stream() {
	w.Header("Content-Type", "text/event-stream; charset=utf-8")
	w.w.WriteHeader(http.StatusOK)
	w.flush()
}

// Event writes one SSE event with these data, in one write.
func (w *Reply) Event(data string) { w.Write("data: " + data + "\n\n") }

// Done writes the end marker of a stream.
func (w *Reply) Done() { w.Event("[DONE]") }

// Write sends these bytes as they are, as one write on the socket.
func (w *Reply) Write(raw string) {
	if w.over {
		return
	}
	_, _ = w.w.Write([]byte(raw)) // a client that left is seen by Delay and Hang
	w.flush()
}

// Pieces sends these bytes n at a time, one write each.
func (w *Reply) Pieces(raw string, n int) {
	for len(raw) > 0 {
		k := min(n, len(raw))
		w.Write(raw[:k])
		raw = raw[k:]
	}
}

// Delay waits, and reports false when the client left or the test ended first.
func (w *Reply) Delay(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.gone:
	case <-w.stop:
	}
	return false
}

// Hang waits until the client leaves or the test ends.
func (w *Reply) Hang() {
	select {
	case <-w.gone:
	case <-w.stop:
	}
}

// Reset breaks the connection with a TCP reset.
func (w *Reply) Reset() { w.end(true) }

// Cut closes the connection in order, wherever the answer is.
func (w *Reply) Cut() { w.end(false) }

func (w *Reply) end(hard bool) {
	if w.over {
		return
	}
	w.over = true
	c, _, err := http.NewResponseController(w.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // not hijackable: the server closes the connection itself
	}
	if tcp, ok := c.(*net.TCPConn); ok && hard {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (w *Reply) flush() {
	if f, ok := w.w.(http.Flusher); ok {
		f.Flush()
	}
}

// Chat is one chat completion to be written as a plain body or as stream chunks. nil content is null on the wire.
type Chat struct {
	Content          *string
	Reasoning        *string         // sent as "reasoning"
	ReasoningContent *string         // sent as "reasoning_content"
	ToolCalls        json.RawMessage // JSON list, as it goes into the message
	Finish           string          // "" is null
	Prompt           int             // usage; no usage is sent while Prompt and Completion are both 0
	Completion       int
	TokenIDs         []int32         // sent as choices[0].token_ids
	PromptIDs        []int32         // sent as prompt_token_ids
	Logprobs         json.RawMessage // sent as choices[0].logprobs
}

// Text is a finished text answer with a plausible usage.
func Text(content string) Chat {
	return Chat{Content: &content, Finish: "stop", Prompt: 10, Completion: 1 + len(strings.Fields(content))}
}

// Tool is an answer that calls one tool with these raw arguments.
func Tool(id, name, arguments string) Chat {
	call := `[{"id":` + quote(id) + `,"type":"function","function":{"name":` + quote(name) + `,"arguments":` + quote(arguments) + `}}]`
	return Chat{ToolCalls: json.RawMessage(call), Finish: "tool_calls", Prompt: 10, Completion: 5}
}

// Body is the plain JSON answer.
func (c Chat) Body() string {
	choice := map[string]any{"index": 0, "message": c.message(), "finish_reason": orNull(c.Finish)}
	c.extras(choice)
	out := map[string]any{"id": "chatcmpl-mock", "object": "chat.completion", "created": 1, "model": "mock", "choices": []any{choice}}
	if c.PromptIDs != nil {
		out["prompt_token_ids"] = c.PromptIDs
	}
	if u := c.usage(); u != nil {
		out["usage"] = u
	}
	return encode(out)
}

// Chunks is the answer as the data of SSE events, without the end marker: role, content word by word, finish, usage.
func (c Chat) Chunks() []string {
	var out []string
	first := map[string]any{"role": "assistant"}
	for k, v := range c.message() {
		if k != "content" {
			first[k] = v
		}
	}
	out = append(out, chunk(first, nil, nil))
	if c.Content != nil {
		for _, piece := range strings.SplitAfter(*c.Content, " ") {
			out = append(out, chunk(map[string]any{"content": piece}, nil, nil))
		}
	}
	out = append(out, chunk(map[string]any{}, orNull(c.Finish), c.extras))
	if u := c.usage(); u != nil {
		out = append(out, encode(map[string]any{"object": "chat.completion.chunk", "model": "mock", "choices": []any{}, "usage": u}))
	}
	return out
}

// Send writes the answer in the form the request asked for.
func (c Chat) Send(r *Request, w *Reply) {
	if string(r.Field("stream")) != "true" {
		w.JSON(200, c.Body())
		return
	}
	w.Stream()
	for _, data := range c.Chunks() {
		w.Event(data)
	}
	w.Done()
}

func chunk(delta map[string]any, finish any, extras func(map[string]any)) string {
	choice := map[string]any{"index": 0, "delta": delta, "finish_reason": finish}
	if extras != nil {
		extras(choice)
	}
	return encode(map[string]any{"id": "chatcmpl-mock", "object": "chat.completion.chunk", "model": "mock", "choices": []any{choice}})
}

func (c Chat) message() map[string]any {
	m := map[string]any{"role": "assistant", "content": c.Content}
	if c.Reasoning != nil {
		m["reasoning"] = *c.Reasoning
	}
	if c.ReasoningContent != nil {
		m["reasoning_content"] = *c.ReasoningContent
	}
	if c.ToolCalls != nil {
		m["tool_calls"] = c.ToolCalls
	}
	return m
}

func (c Chat) extras(choice map[string]any) {
	if c.TokenIDs != nil {
		choice["token_ids"] = c.TokenIDs
	}
	if c.Logprobs != nil {
		choice["logprobs"] = c.Logprobs
	}
}

func (c Chat) usage() map[string]any {
	if c.Prompt == 0 && c.Completion == 0 {
		return nil
	}
	return map[string]any{"prompt_tokens": c.Prompt, "completion_tokens": c.Completion, "total_tokens": c.Prompt + c.Completion}
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func quote(s string) string { return encode(s) }

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("mock: encode an answer: " + err.Error())
	}
	return string(b)
}
