package enginesim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// client talks to one server under test.
type client struct {
	t    testing.TB
	base string
	http *http.Client
}

func serve(t testing.TB, c Config) (client, *Engine) {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return client{t, "http://" + s.Addr(), &http.Client{Transport: transport, Timeout: 2 * time.Minute}}, e
}

func (c client) post(path, body string, headers ...string) (int, http.Header, []byte) {
	c.t.Helper()
	status, h, b, err := c.try(path, body, headers...)
	if err != nil {
		c.t.Fatalf("POST %s: %v", path, err)
	}
	return status, h, b
}

func (c client) try(path, body string, headers ...string) (int, http.Header, []byte, error) {
	req, err := http.NewRequest(http.MethodPost, c.base+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, b, err
}

func (c client) get(path string) (int, string) {
	c.t.Helper()
	resp, err := c.http.Get(c.base + path)
	if err != nil {
		c.t.Fatalf("GET %s: %v", path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("GET %s: %v", path, err)
	}
	return resp.StatusCode, string(b)
}

// ok posts and decodes a 200 answer.
func ok[T any](c client, path, body string, headers ...string) T {
	c.t.Helper()
	status, _, b := c.post(path, body, headers...)
	if status != http.StatusOK {
		c.t.Fatalf("POST %s: status %d: %s", path, status, b)
	}
	var out T
	if err := json.Unmarshal(b, &out); err != nil {
		c.t.Fatalf("POST %s: %v: %s", path, err, b)
	}
	return out
}

// events posts and returns the data of each server-sent event but the end marker, which must come last.
func (c client) events(path, body string) []string {
	c.t.Helper()
	status, h, b := c.post(path, body)
	if status != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		c.t.Fatalf("POST %s: status %d, %s: %s", path, status, h.Get("Content-Type"), b)
	}
	var out []string
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			out = append(out, data)
		} else if lines.Text() != "" {
			c.t.Errorf("stray line %q", lines.Text())
		}
	}
	if len(out) == 0 || out[len(out)-1] != "[DONE]" {
		c.t.Fatalf("stream does not end with [DONE]: %q", out)
	}
	return out[:len(out)-1]
}

const calcChat = `"tools": ` + calcTools + `, "messages": [{"role": "user", "content": "What is 12 * (3 + 4)?"}]`

func TestHTTPInformation(t *testing.T) {
	c, _ := serve(t, Config{Model: "m", ContextTokens: 4096, KVTokens: 10007, BlockTokens: 16})
	if status, body := c.get("/health"); status != 200 || body != "" {
		t.Errorf("/health: %d %q", status, body)
	}
	if status, body := c.get("/version"); status != 200 || body != `{"version":"`+Version+`"}` {
		t.Errorf("/version: %d %s", status, body)
	}
	_, body := c.get("/v1/models")
	var models struct {
		Object string
		Data   []struct {
			ID      string `json:"id"`
			OwnedBy string `json:"owned_by"`
			MaxLen  int    `json:"max_model_len"`
		}
	}
	if err := json.Unmarshal([]byte(body), &models); err != nil || len(models.Data) != 1 || models.Data[0].ID != "m" ||
		models.Data[0].OwnedBy != "tranche-sim" || models.Data[0].MaxLen != 4096 {
		t.Errorf("/v1/models: %v %s", err, body)
	}
	if status, _ := c.get("/nowhere"); status != 404 {
		t.Errorf("/nowhere: %d", status)
	}
	_, metrics := c.get("/metrics")
	for _, line := range []string{
		`vllm:num_requests_running{engine="0",model_name="m"} 0`,
		`vllm:num_requests_waiting{engine="0",model_name="m"} 0`,
		`vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0`,
		`vllm:cache_config_info{engine="0",model_name="m",block_size="16",enable_prefix_caching="True",kv_cache_size_tokens="10000",num_gpu_blocks="625"} 1`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("/metrics lacks %s in\n%s", line, metrics)
		}
	}
}

func TestHTTPCountersAgreeWithUsage(t *testing.T) {
	c, e := serve(t, Config{})
	var in, out, cached int
	for i := range 5 {
		r := ok[chatReply](c, "/v1/chat/completions", fmt.Sprintf(`{"messages": [{"role": "user", "content": "Tell me about number %d and go on for a while, please, as you did before."}], "max_tokens": 50}`, i%2))
		in += r.Usage.PromptTokens
		out += r.Usage.CompletionTokens
		cached += r.Usage.Details.CachedTokens
		if r.Usage.TotalTokens != r.Usage.PromptTokens+r.Usage.CompletionTokens {
			t.Errorf("usage does not add up: %+v", r.Usage)
		}
	}
	_, metrics := c.get("/metrics")
	for name, want := range map[string]int{"prompt_tokens": in, "generation_tokens": out, "prefix_cache_queries": in, "prefix_cache_hits": cached, "num_preemptions": 0} {
		if line := fmt.Sprintf("vllm:%s_total{engine=\"0\",model_name=\"sim\"} %d\n", name, want); !strings.Contains(metrics, line) {
			t.Errorf("/metrics lacks %q in\n%s", line, metrics)
		}
	}
	if cached == 0 {
		t.Error("repeated prompts hit no cache")
	}
	s := e.Stats()
	if s.Done != 5 || s.Offered != 5 || s.Running+s.Waiting != 0 || s.FinishedStop+s.FinishedLength != 5 {
		t.Errorf("stats %+v", s)
	}
}

func TestHTTPTokenize(t *testing.T) {
	c, e := serve(t, Config{ContextTokens: 1000})
	type tokens struct {
		Count  int      `json:"count"`
		MaxLen int      `json:"max_model_len"`
		Tokens []int32  `json:"tokens"`
		Strs   []string `json:"token_strs"`
	}
	got := ok[tokens](c, "/tokenize", `{"model": "sim", "prompt": "Hello 123 <|im_end|>", "return_token_strs": true}`)
	if got.Count != len(got.Tokens) || got.MaxLen != 1000 || e.tokens.Decode(got.Tokens) != "Hello 123 <|im_end|>" || strings.Join(got.Strs, "") != "Hello 123 <|im_end|>" {
		t.Errorf("/tokenize: %+v", got)
	}
	text := ok[map[string]string](c, "/detokenize", fmt.Sprintf(`{"tokens": %s}`, asJSON(got.Tokens)))
	if text["prompt"] != "Hello 123 <|im_end|>" {
		t.Errorf("/detokenize: %v", text)
	}
	chat := ok[tokens](c, "/tokenize", `{`+calcChat+`}`)
	reply := ok[chatReply](c, "/v1/chat/completions", `{`+calcChat+`, "max_tokens": 1, "return_token_ids": true}`)
	if !slices.Equal(chat.Tokens, reply.PromptIDs) || chat.Count != reply.Usage.PromptTokens {
		t.Errorf("/tokenize of messages gives %v, the chat saw %v", chat.Tokens, reply.PromptIDs)
	}
	bare := ok[tokens](c, "/tokenize", `{`+calcChat+`, "add_generation_prompt": false}`)
	if bare.Count >= chat.Count || !slices.Equal(bare.Tokens, chat.Tokens[:bare.Count]) {
		t.Errorf("without generation prompt %d tokens, with it %d", bare.Count, chat.Count)
	}
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestHTTPErrors(t *testing.T) {
	c, _ := serve(t, Config{ContextTokens: 64, KVTokens: 64})
	user := `"messages": [{"role": "user", "content": "hi"}]`
	long := `"messages": [{"role": "user", "content": "` + strings.Repeat("one two three ", 40) + `"}]`
	chat, comp := "/v1/chat/completions", "/v1/completions"
	for name, x := range map[string]struct {
		path, body string
		status     int
		kind       string
		param      string
		message    string
	}{
		"bad JSON":              {chat, `{"messages": [`, 400, "Bad Request", "", "JSON decode error"},
		"wrong type":            {chat, `{` + user + `, "max_tokens": "ten"}`, 400, "Bad Request", "max_tokens", "body.max_tokens"},
		"unknown model":         {chat, `{` + user + `, "model": "other"}`, 404, "NotFoundError", "model", "The model `other` does not exist."},
		"no messages":           {chat, `{}`, 400, "BadRequestError", "messages", "at least one message"},
		"bad role":              {chat, `{"messages": [{"role": "boss", "content": "x"}]}`, 400, "BadRequestError", "messages", `"boss"`},
		"image part":            {chat, `{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`, 400, "Bad Request", "", "image_url"},
		"broken arguments":      {chat, `{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"n\": 7"}}]}]}`, 400, "BadRequestError", "messages", "tool_calls[0]"},
		"overflow":              {chat, `{` + user + `, "max_tokens": 60}`, 400, "BadRequestError", "input_tokens", "This model's maximum context length is 64 tokens. However, you requested 60 output tokens and your prompt contains at least 5 input tokens, for a total of at least 65 tokens."},
		"prompt too long":       {chat, `{` + long + `}`, 400, "BadRequestError", "input_tokens", "you requested 0 output tokens and your prompt contains at least 65 input tokens"},
		"overflow of ids":       {comp, `{"prompt": ` + asJSON(make([]int32, 60)) + `, "max_tokens": 10}`, 400, "BadRequestError", "input_tokens", "your prompt contains 60 input tokens, for a total of 70 tokens."},
		"max_tokens over limit": {chat, `{` + user + `, "max_tokens": 65}`, 400, "BadRequestError", "max_tokens", "max_tokens=65 cannot be greater than max_model_len=64"},
		"max_tokens zero":       {chat, `{` + user + `, "max_completion_tokens": 0}`, 400, "BadRequestError", "max_tokens", "at least 1"},
		"min over max":          {chat, `{` + user + `, "max_tokens": 2, "min_tokens": 3}`, 400, "BadRequestError", "min_tokens", "less than or equal"},
		"n zero":                {chat, `{` + user + `, "n": 0}`, 400, "BadRequestError", "n", "at least 1"},
		"greedy n":              {chat, `{` + user + `, "n": 2, "temperature": 0}`, 400, "BadRequestError", "n", "greedy"},
		"temperature":           {chat, `{` + user + `, "temperature": -1}`, 400, "BadRequestError", "temperature", "non-negative"},
		"top_p":                 {chat, `{` + user + `, "top_p": 0}`, 400, "BadRequestError", "top_p", "(0, 1]"},
		"empty stop":            {chat, `{` + user + `, "stop": ""}`, 400, "BadRequestError", "stop", "empty string"},
		"top_logprobs alone":    {chat, `{` + user + `, "top_logprobs": 2}`, 400, "BadRequestError", "top_logprobs", "`logprobs` must be set"},
		"top_logprobs range":    {chat, `{` + user + `, "logprobs": true, "top_logprobs": 21}`, 400, "BadRequestError", "top_logprobs", "at most 20"},
		"tool_choice no tools":  {chat, `{` + user + `, "tool_choice": "required"}`, 400, "BadRequestError", "tool_choice", "`tools` must be set"},
		"tool_choice unknown":   {chat, `{` + calcChat + `, "tool_choice": {"type": "function", "function": {"name": "x"}}}`, 400, "BadRequestError", "tool_choice", "does not match"},
		"bad tool":              {chat, `{` + user + `, "tools": [{"type": "function"}]}`, 400, "Bad Request", "", "tool:"},
		"response_format":       {chat, `{` + user + `, "response_format": {"type": "json_object"}}`, 400, "BadRequestError", "response_format", "not supported"},
		"stream_options":        {chat, `{` + user + `, "stream_options": {"include_usage": true}}`, 400, "BadRequestError", "stream_options", "stream=True"},
		"echo":                  {comp, `{"prompt": "a", "echo": true}`, 400, "BadRequestError", "echo", "not supported"},
		"no prompt":             {comp, `{}`, 400, "BadRequestError", "prompt", "prompt is required"},
		"empty prompt":          {comp, `{"prompt": ""}`, 400, "BadRequestError", "prompt", "cannot be empty"},
		"prompt type":           {comp, `{"prompt": {"a": 1}}`, 400, "Bad Request", "", "prompt: expected"},
		"unknown id":            {comp, `{"prompt": [1, 999999]}`, 400, "BadRequestError", "prompt", "token id 999999 at position 1"},
		"negative id":           {comp, `{"prompt": [[-1]]}`, 400, "BadRequestError", "prompt", "token id -1"},
		"tokenize nothing":      {"/tokenize", `{}`, 400, "BadRequestError", "prompt", "either prompt or messages"},
		"unknown fault":         {chat, `{` + user + `}`, 400, "BadRequestError", "", "X-Sim-Fault"},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			if name == "unknown fault" {
				headers = []string{FaultHeader, "nonsense"}
			}
			status, _, b := c.post(x.path, x.body, headers...)
			var got struct {
				Error struct {
					Message, Type string
					Param         *string
					Code          int
				}
			}
			if err := json.Unmarshal(b, &got); err != nil {
				t.Fatalf("%v: %s", err, b)
			}
			param := ""
			if got.Error.Param != nil {
				param = *got.Error.Param
			}
			if status != x.status || got.Error.Code != x.status || got.Error.Type != x.kind || param != x.param || !strings.Contains(got.Error.Message, x.message) {
				t.Errorf("status %d: %s", status, b)
			}
		})
	}
	t.Run("content type", func(t *testing.T) {
		if status, _, b := c.post(chat, `{`+user+`}`, "Content-Type", "text/plain"); status != 400 || !strings.Contains(string(b), "application/json") {
			t.Errorf("status %d: %s", status, b)
		}
	})
	t.Run("unknown fields are ignored", func(t *testing.T) {
		ok[chatReply](c, chat, `{`+user+`, "max_tokens": 3, "vllm_xargs": {"a": 1}, "top_k": 5, "frobnicate": [1]}`)
	})
}

func TestHTTPAPIKey(t *testing.T) {
	c, _ := serve(t, Config{APIKey: "secret"})
	body := `{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}`
	if status, _, b := c.post("/v1/chat/completions", body); status != 401 || string(b) != `{"error":"Unauthorized"}` {
		t.Errorf("without key: %d %s", status, b)
	}
	if status, _, b := c.post("/v1/chat/completions", body, "Authorization", "Bearer secret"); status != 200 {
		t.Errorf("with key: %d %s", status, b)
	}
	if status, _ := c.get("/health"); status != 200 {
		t.Errorf("/health wants a key: %d", status)
	}
}

func TestHTTPChat(t *testing.T) {
	c, e := serve(t, Config{})
	r := ok[chatReply](c, "/v1/chat/completions", `{"model": "sim", `+calcChat+`, "seed": 3, "logprobs": true, "top_logprobs": 2, "return_token_ids": true, "tool_choice": "required"}`, "X-Request-Id", "abc")
	if r.ID != "chatcmpl-abc" || r.Object != "chat.completion" || r.Model != "sim" || len(r.Choices) != 1 {
		t.Fatalf("reply %+v", r)
	}
	ch := r.Choices[0]
	if ch.Finish != "tool_calls" || len(ch.Message.ToolCalls) == 0 || ch.Message.ToolCalls[0].ID == "" {
		t.Errorf("choice %+v", ch)
	}
	if n := len(ch.TokenIDs); n != r.Usage.CompletionTokens || n != len(ch.Logprobs.Content) || ch.TokenIDs[n-1] != imEnd {
		t.Errorf("%d ids, %d logprobs, usage %+v", len(ch.TokenIDs), len(ch.Logprobs.Content), r.Usage)
	}
	if len(r.PromptIDs) != r.Usage.PromptTokens {
		t.Errorf("%d prompt ids, usage %+v", len(r.PromptIDs), r.Usage)
	}
	for i, lp := range ch.Logprobs.Content {
		if lp.Logprob > 0 || len(lp.Top) != 2 || lp.Token != e.tokens.pieces[ch.TokenIDs[i]] {
			t.Errorf("logprob %d: %+v", i, lp)
		}
	}
	for name, choice := range map[string]string{"none": `"none"`, "named": `{"type": "function", "function": {"name": "submit"}}`} {
		r := ok[chatReply](c, "/v1/chat/completions", `{`+calcChat+`, "tool_choice": `+choice+`}`)
		calls := r.Choices[0].Message.ToolCalls
		if name == "none" && (len(calls) != 0 || r.Choices[0].Message.Content == nil) || name == "named" && (len(calls) != 1 || calls[0].Function.Name != "submit" || r.Choices[0].Finish != "stop") {
			t.Errorf("tool_choice %s: %+v", name, r.Choices[0])
		}
	}
}

// At every length a tool call can be cut: the finish is length, and what is told is a beginning of the whole call.
func TestHTTPToolCallCutByLength(t *testing.T) {
	c, _ := serve(t, Config{})
	body := `{` + calcChat + `, "seed": 5, "tool_choice": {"type": "function", "function": {"name": "calculator"}}, "max_tokens": %d, "stream": %v}`
	whole := ok[chatReply](c, "/v1/chat/completions", fmt.Sprintf(body, 100, false))
	full := whole.Choices[0].Message.ToolCalls[0].Function.Arguments
	inside := 0
	for n := 1; n < whole.Usage.CompletionTokens; n++ {
		ch := ok[chatReply](c, "/v1/chat/completions", fmt.Sprintf(body, n, false)).Choices[0]
		if ch.Finish != "length" {
			t.Fatalf("max_tokens %d: finish %s", n, ch.Finish)
		}
		if len(ch.Message.ToolCalls) > 0 {
			if args := ch.Message.ToolCalls[0].Function.Arguments; !strings.HasPrefix(full, args) {
				t.Errorf("max_tokens %d: arguments %q of %q", n, args, full)
			} else if args != full {
				inside++
			}
		}
		got := assemble(t, c.events("/v1/chat/completions", fmt.Sprintf(body, n, true)))[0]
		if !reflect.DeepEqual(got.message, ch.Message) || got.finish != "length" {
			t.Errorf("max_tokens %d: stream gives %+v, %s; want %+v", n, got.message, got.finish, ch.Message)
		}
	}
	if inside == 0 {
		t.Error("no cut fell inside the arguments")
	}
}

// assembled is one choice put together from a stream.
type assembled struct {
	message replyMessage
	finish  string
	stop    any
	ids     []int32
	logs    []chatLogprob
	prompt  []int32
	usage   *usage
	chunks  int
}

func assemble(t *testing.T, events []string) map[int]*assembled {
	t.Helper()
	out := map[int]*assembled{}
	var last *usage
	for _, data := range events {
		var chunk chatChunk
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if chunk.Usage != nil {
			last = chunk.Usage
		}
		for _, ch := range chunk.Choices {
			a := out[ch.Index]
			if a == nil {
				a = &assembled{message: replyMessage{ToolCalls: []toolCall{}}}
				out[ch.Index] = a
				if ch.Delta.Role != "assistant" {
					t.Errorf("first chunk of choice %d has role %q", ch.Index, ch.Delta.Role)
				}
			}
			a.add(t, ch)
			a.prompt = append(a.prompt, chunk.PromptIDs...)
		}
	}
	for _, a := range out {
		a.usage = last
		if a.message.Content != nil && *a.message.Content == "" && len(a.message.ToolCalls) > 0 {
			a.message.Content = nil // a stream opens with an empty content whatever follows
		}
	}
	return out
}

func (a *assembled) add(t *testing.T, ch chunkChoice) {
	a.chunks++
	if a.finish != "" {
		t.Errorf("a chunk after the finish reason: %+v", ch)
	}
	if ch.Delta.Role != "" {
		a.message.Role = ch.Delta.Role
	}
	if ch.Delta.Content != nil {
		text := *ch.Delta.Content
		if a.message.Content != nil {
			text = *a.message.Content + text
		}
		a.message.Content = &text
	}
	for _, d := range ch.Delta.ToolCalls {
		if d.Index == len(a.message.ToolCalls) {
			call := toolCall{ID: d.ID, Type: d.Type}
			call.Function.Name = d.Function.Name
			a.message.ToolCalls = append(a.message.ToolCalls, call)
		}
		a.message.ToolCalls[d.Index].Function.Arguments += d.Function.Arguments
	}
	if ch.Finish != nil {
		a.finish, a.stop = *ch.Finish, ch.Stop
	}
	a.ids = append(a.ids, ch.TokenIDs...)
	if ch.Logprobs != nil {
		a.logs = append(a.logs, ch.Logprobs.Content...)
	}
}

// A stream tells the same as a plain answer.
func TestHTTPStreamEqualsPlain(t *testing.T) {
	c, _ := serve(t, Config{})
	for name, fields := range map[string]string{
		"tools":         calcChat + `, "tool_choice": "required"`,
		"text":          `"messages": [{"role": "user", "content": "What is the sea like?"}]`,
		"n":             calcChat + `, "n": 3`,
		"stop string":   `"messages": [{"role": "user", "content": "What is 3 + 4?"}], "stop": ["###", "zzz"]`,
		"length":        `"messages": [{"role": "user", "content": "What is the sea like?"}], "max_tokens": 7`,
		"with the rest": calcChat + `, "n": 2, "logprobs": true, "top_logprobs": 1, "return_token_ids": true`,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range 8 {
				base := fmt.Sprintf(`{%s, "seed": %d`, fields, seed)
				plain := ok[chatReply](c, "/v1/chat/completions", base+`}`)
				got := assemble(t, c.events("/v1/chat/completions", base+`, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}}`))
				if len(got) != len(plain.Choices) {
					t.Fatalf("%d choices, want %d", len(got), len(plain.Choices))
				}
				for i, want := range plain.Choices {
					g := got[i]
					if !reflect.DeepEqual(g.message, want.Message) || g.finish != want.Finish || !reflect.DeepEqual(g.stop, want.Stop) {
						t.Errorf("choice %d: stream %s, %s, %v; plain %s, %s, %v", i, asJSON(g.message), g.finish, g.stop, asJSON(want.Message), want.Finish, want.Stop)
					}
					if !slices.Equal(g.ids, want.TokenIDs) || !slices.Equal(g.prompt, plain.PromptIDs) {
						t.Errorf("choice %d: ids differ", i)
					}
					if want.Logprobs != nil && !reflect.DeepEqual(g.logs, want.Logprobs.Content) {
						t.Errorf("choice %d: logprobs differ", i)
					}
					if g.usage == nil || g.usage.CompletionTokens != plain.Usage.CompletionTokens || g.usage.PromptTokens != plain.Usage.PromptTokens {
						t.Errorf("usage %+v, plain %+v", g.usage, plain.Usage)
					}
				}
			}
		})
	}
}

func TestHTTPCompletions(t *testing.T) {
	c, e := serve(t, Config{})
	hello := e.tokens.Encode("What is 3 + 4? Answer:")
	for name, x := range map[string]struct {
		prompt  string
		choices int
		tokens  int // of all prompts
	}{
		"string":          {`"What is 3 + 4? Answer:"`, 1, len(hello)},
		"strings":         {`["What is 3 + 4? Answer:", "Hello"]`, 2, len(hello) + len(e.tokens.Encode("Hello"))},
		"ids":             {asJSON(hello), 1, len(hello)},
		"lists of ids":    {asJSON([][]int32{hello, hello[:3]}), 2, len(hello) + 3},
		"n for each":      {`["a b c", "d e f"], "n": 3`, 6, len(e.tokens.Encode("a b c")) + len(e.tokens.Encode("d e f"))},
		"token-like text": {`"<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n"`, 1, len(e.tokens.render([]line{{"user", "What is 3 + 4?"}}, true))},
	} {
		t.Run(name, func(t *testing.T) {
			base := `{"prompt": ` + x.prompt + `, "max_tokens": 40, "seed": 1, "logprobs": 2, "return_token_ids": true`
			r := ok[completionReply](c, "/v1/completions", base+`}`)
			if r.Object != "text_completion" || len(r.Choices) != x.choices || r.Usage.PromptTokens != x.tokens {
				t.Fatalf("%d choices, usage %+v; want %d and %d prompt tokens", len(r.Choices), r.Usage, x.choices, x.tokens)
			}
			sum := 0
			for i, ch := range r.Choices {
				sum += len(ch.TokenIDs)
				n := len(ch.TokenIDs)
				if ch.Index != i || len(ch.PromptIDs) == 0 || n != len(ch.Logprobs.Tokens) || n != len(ch.Logprobs.Logprobs) || n != len(ch.Logprobs.Top) || n != len(ch.Logprobs.Offsets) {
					t.Errorf("choice %d: %+v", i, ch)
				}
			}
			if sum != r.Usage.CompletionTokens {
				t.Errorf("%d ids, usage %+v", sum, r.Usage)
			}
			got := make([]completionChoice, len(r.Choices))
			for _, data := range c.events("/v1/completions", base+`, "stream": true}`) {
				var chunk completionReply
				if err := json.Unmarshal([]byte(data), &chunk); err != nil {
					t.Fatal(err)
				}
				for _, ch := range chunk.Choices {
					g := &got[ch.Index]
					g.Index = ch.Index
					g.Text += ch.Text
					g.TokenIDs, g.PromptIDs = append(g.TokenIDs, ch.TokenIDs...), append(g.PromptIDs, ch.PromptIDs...)
					if g.Logprobs == nil {
						g.Logprobs = &completionLogprobs{}
					}
					g.Logprobs.Offsets, g.Logprobs.Logprobs = append(g.Logprobs.Offsets, ch.Logprobs.Offsets...), append(g.Logprobs.Logprobs, ch.Logprobs.Logprobs...)
					g.Logprobs.Tokens, g.Logprobs.Top = append(g.Logprobs.Tokens, ch.Logprobs.Tokens...), append(g.Logprobs.Top, ch.Logprobs.Top...)
					if ch.Finish != nil {
						g.Finish, g.Stop = ch.Finish, ch.Stop
					}
				}
			}
			if !reflect.DeepEqual(got, r.Choices) {
				t.Errorf("stream gives %s\nplain %s", asJSON(got), asJSON(r.Choices))
			}
		})
	}
	t.Run("default max_tokens is 16", func(t *testing.T) {
		r := ok[completionReply](c, "/v1/completions", `{"prompt": "Tell me a long story", "ignore_eos": true}`)
		if r.Usage.CompletionTokens != 16 || *r.Choices[0].Finish != "length" || r.Choices[0].TokenIDs != nil {
			t.Errorf("%s", asJSON(r))
		}
	})
}

// The same conversation gives the same answer as chat and as ids through completions.
func TestHTTPRoutesAgree(t *testing.T) {
	c, e := serve(t, Config{})
	chat := ok[chatReply](c, "/v1/chat/completions", `{`+calcChat+`, "seed": 9, "return_token_ids": true}`)
	comp := ok[completionReply](c, "/v1/completions", `{"prompt": `+asJSON(chat.PromptIDs)+`, "seed": 9, "max_tokens": 500, "return_token_ids": true}`)
	if !slices.Equal(chat.Choices[0].TokenIDs, comp.Choices[0].TokenIDs) || !slices.Equal(comp.Choices[0].PromptIDs, chat.PromptIDs) {
		t.Errorf("chat sampled %q, completions %q", e.tokens.Decode(chat.Choices[0].TokenIDs), comp.Choices[0].Text)
	}
}

func TestHTTPSampleKeys(t *testing.T) {
	c, _ := serve(t, Config{Seed: 11})
	other, _ := serve(t, Config{Seed: 12})
	ask := func(c client, fields string, headers ...string) string {
		r := ok[chatReply](c, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "Tell me about the sea."}]`+fields+`}`, headers...)
		return *r.Choices[0].Message.Content
	}
	if again := ask(c, `, "seed": 1`); again != ask(c, `, "seed": 1`) || again == ask(c, `, "seed": 2`) {
		t.Error("the request's seed does not decide")
	}
	if again := ask(c, ``, "X-Session-ID", "a"); again != ask(c, ``, "X-Session-ID", "a") || again == ask(c, ``, "X-Session-ID", "b") {
		t.Error("the session does not decide")
	}
	if a, b := ask(c, `, "seed": 1`, "X-Session-ID", "a"), ask(c, `, "seed": 1`, "X-Session-ID", "b"); a != b {
		t.Error("the session decides beside a seed")
	}
	if first := ask(c, ``); first == ask(c, ``) {
		t.Error("two samples without a key are equal")
	}
	if ask(c, `, "temperature": 0`) != ask(c, `, "temperature": 0, "seed": 4`, "X-Session-ID", "b") {
		t.Error("greedy decoding depends on the key")
	}
	if ask(c, `, "seed": 1`) == ask(other, `, "seed": 1`) {
		t.Error("the engine's seed does not decide")
	}
	if first, again := ask(c, `, "seed": 1, "max_tokens": 500`), ask(c, `, "seed": 1, "max_tokens": 5`); !strings.HasPrefix(first, again) {
		t.Error("max_tokens changes what is said")
	}
}

// The same requests give the same answers one after the other without waiting, and 64 at a time through a small engine that
// takes its time, queues and preempts.
func TestHTTPConcurrencyChangesNothing(t *testing.T) {
	const requests = 150
	answers := func(workers int, speed float64) map[string]int {
		c, e := serve(t, Config{ContextTokens: 512, KVTokens: 1024, MaxSeqs: 16, LengthMean: 150, Speed: speed})
		var mu sync.Mutex
		got := map[string]int{}
		jobs := make(chan int)
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for i := range jobs {
					body := fmt.Sprintf(`{"messages": [{"role": "user", "content": "Tell me about number %d."}], "return_token_ids": true, "logprobs": true, "max_tokens": 200, "n": %d}`, i%40, 1+i%2)
					var headers []string
					if i%3 > 0 { // the others count arrivals: the same answers, whoever gets which
						headers = []string{"X-Session-ID", strconv.Itoa(i)}
					}
					_, _, b, err := c.try("/v1/chat/completions", body, headers...)
					var r chatReply
					if err != nil || json.Unmarshal(b, &r) != nil {
						t.Errorf("request %d: %v: %s", i, err, b)
						continue
					}
					mu.Lock()
					for _, ch := range r.Choices {
						ch.Index = 0
						got[asJSON(ch)]++
					}
					mu.Unlock()
				}
			})
		}
		for i := range requests {
			jobs <- i
		}
		close(jobs)
		wg.Wait()
		s := e.Stats()
		if s.Done != s.Offered || s.BlocksUsed != 0 {
			t.Errorf("stats %+v", s)
		}
		if workers > 1 && s.Preemptions == 0 {
			t.Error("nothing was preempted: the load does not test what it should")
		}
		return got
	}
	if one, many := answers(1, 0), answers(64, 50); !reflect.DeepEqual(one, many) {
		t.Errorf("answers differ between 1 and 64 at a time (%d and %d distinct)", len(one), len(many))
	}
}

func TestHTTPDisconnectAborts(t *testing.T) {
	for name, stream := range map[string]bool{"plain": false, "stream": true} {
		t.Run(name, func(t *testing.T) {
			c, e := serve(t, Config{Speed: 1})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			body := fmt.Sprintf(`{"prompt": "Tell me a story", "max_tokens": 8000, "ignore_eos": true, "n": 2, "stream": %v}`, stream)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v1/completions", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			gone := make(chan error, 1)
			go func() {
				resp, err := c.http.Do(req)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				gone <- err
			}()
			await(t, func() bool { return e.Stats().Running == 2 })
			cancel()
			if err := <-gone; !errors.Is(err, context.Canceled) {
				t.Errorf("client error %v", err)
			}
			await(t, func() bool { s := e.Stats(); return s.Aborted == 2 && s.Running == 0 && s.BlocksUsed == 0 })
		})
	}
}

func await(t *testing.T, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited a minute in vain")
		}
	}
}

func TestHTTPKeepAlive(t *testing.T) {
	c, _ := serve(t, Config{KeepAlive: 50 * time.Millisecond})
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for range 2 {
		if _, err := io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("on a kept connection: %v", err)
		}
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("idle connection: %v, want the server to close it", err)
	}
}

func TestHTTPFaultsByHeader(t *testing.T) {
	c, _ := serve(t, Config{Faults: Faults{RetryAfter: 1500 * time.Millisecond, DripPause: time.Millisecond}})
	body := func(stream bool) string {
		return fmt.Sprintf(`{"messages": [{"role": "user", "content": "What is 3 + 4?"}], "seed": 1, "stream": %v}`, stream)
	}
	const path = "/v1/chat/completions"
	for fault, want := range map[string]int{FaultRateLimit: 429, FaultInternal: 500, FaultUnavailable: 503} {
		status, h, b := c.post(path, body(false), FaultHeader, fault)
		var e struct{ Error apiError }
		if err := json.Unmarshal(b, &e); err != nil || status != want || e.Error.Code != want {
			t.Errorf("%s: status %d, %v: %s", fault, status, err, b)
		}
		if after := h.Get("Retry-After"); (after == "2") != (want != 500) {
			t.Errorf("%s: Retry-After %q", fault, after)
		}
	}
	for _, stream := range []bool{false, true} {
		_, _, whole, err := c.try(path, body(stream))
		if err != nil {
			t.Fatal(err)
		}
		if status, _, b, err := c.try(path, body(stream), FaultHeader, FaultReset); err == nil {
			t.Errorf("reset, stream %v: got an answer: %d %s", stream, status, b)
		}
		status, _, b, err := c.try(path, body(stream), FaultHeader, FaultCut)
		if err == nil || status != 200 || len(b) == 0 || len(b) >= len(whole) || strings.Contains(string(b), `"finish_reason":"`) && stream {
			t.Errorf("cut, stream %v: status %d, error %v, %d of %d bytes", stream, status, err, len(b), len(whole))
		}
		status, _, b, err = c.try(path, body(stream), FaultHeader, FaultMalformed)
		bad := 0
		for line := range strings.SplitSeq(string(b), "\n") {
			if data := strings.TrimPrefix(line, "data: "); data != "" && data != "[DONE]" && !json.Valid([]byte(data)) {
				bad++
			}
		}
		if err != nil || status != 200 || bad != 1 {
			t.Errorf("malformed, stream %v: status %d, %v, %d broken lines: %s", stream, status, err, bad, b)
		}
		began := time.Now()
		_, _, b, err = c.try(path, body(stream), FaultHeader, FaultDrip)
		if err != nil || len(b) < len(whole)-40 || len(b) > len(whole)+40 {
			t.Errorf("drip, stream %v: %v, %d bytes, want about %d", stream, err, len(b), len(whole))
		}
		if least := time.Duration(len(b)/7) * time.Millisecond; time.Since(began) < least {
			t.Errorf("drip, stream %v: took %v, want at least %v", stream, time.Since(began), least)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 80*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, strings.NewReader(body(false)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(FaultHeader, FaultHang)
	if _, err := c.http.Do(req); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hang: %v", err)
	}
}

func TestHTTPFaultsByRule(t *testing.T) {
	const path = "/v1/chat/completions"
	body := func(i int) string {
		return fmt.Sprintf(`{"messages": [{"role": "user", "content": "number %d"}], "max_tokens": 1}`, i)
	}
	pattern := func(c client) string {
		var b strings.Builder
		for i := range 200 {
			status, _, _ := c.post(path, body(i), "X-Request-Id", fmt.Sprint("id", i))
			b.WriteString(strconv.Itoa(status/100 + status%10))
		}
		return b.String()
	}
	rules := Faults{Rules: []FaultRule{{Fault: FaultUnavailable, Rate: 0.1}, {Fault: FaultInternal, Rate: 0.1}}}
	a, _ := serve(t, Config{Seed: 1, Faults: rules})
	b, _ := serve(t, Config{Seed: 1, Faults: rules})
	d, _ := serve(t, Config{Seed: 2, Faults: rules})
	pa, pb, pd := pattern(a), pattern(b), pattern(d)
	if pa != pb || pa == pd {
		t.Error("faults do not depend on the seed alone")
	}
	if n503, n500 := strings.Count(pa, "8"), strings.Count(pa, "5"); n503 < 8 || n503 > 35 || n500 < 8 || n500 > 35 {
		t.Errorf("%d of 200 were 503 and %d were 500, want about 20 each", n503, n500)
	}
	t.Run("first and match", func(t *testing.T) {
		c, _ := serve(t, Config{Faults: Faults{Rules: []FaultRule{{Fault: FaultRateLimit, Rate: 1, First: 3}, {Fault: FaultUnavailable, Rate: 1, Match: "number 7"}}}})
		for i, want := range []int{429, 429, 429, 200, 200, 200, 200, 503} {
			if status, _, _ := c.post(path, body(i)); status != want {
				t.Errorf("request %d: status %d, want %d", i, status, want)
			}
		}
		if status, _, _ := c.post(path, body(7)); status != 503 {
			t.Errorf("again: %d", status)
		}
	})
	t.Run("a retry draws again", func(t *testing.T) {
		c, _ := serve(t, Config{Faults: Faults{Rules: []FaultRule{{Fault: FaultUnavailable, Rate: 0.5}}}})
		seen := map[int]int{}
		for range 40 {
			status, _, _ := c.post(path, body(1))
			seen[status]++
		}
		if seen[200] < 8 || seen[503] < 8 {
			t.Errorf("statuses of 40 equal requests: %v", seen)
		}
	})
}

func TestServerCloseCutsWhatHangs(t *testing.T) {
	e, err := New(Config{Speed: 1})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := client{t, "http://" + s.Addr(), &http.Client{Transport: &http.Transport{}}}
	done := make(chan error, 1)
	go func() {
		_, _, _, err := c.try("/v1/completions", `{"prompt": "a", "max_tokens": 8000, "ignore_eos": true}`)
		done <- err
	}()
	await(t, func() bool { return e.Stats().Running == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close = %v, want it to say that answers were cut", err)
	}
	if err := <-done; err == nil {
		t.Error("the cut request got an answer")
	}
	if st := e.Stats(); st.Aborted != 1 || st.Running != 0 {
		t.Errorf("stats after Close: %+v", st)
	}
}

func BenchmarkHTTPChat(b *testing.B) {
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			c, e := serve(b, Config{})
			jobs := make(chan int)
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for i := range jobs {
						if status, _, body, err := c.try("/v1/chat/completions", `{`+calcChat+`, "return_token_ids": true, "logprobs": true, "seed": `+strconv.Itoa(i)+`}`); err != nil || status != 200 {
							b.Errorf("status %d, %v: %s", status, err, body)
						}
					}
				})
			}
			i := 0
			for b.Loop() {
				jobs <- i
				i++
			}
			close(jobs)
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
			b.ReportMetric(float64(e.Stats().GeneratedTokens)/float64(b.N), "tokens/request")
		})
	}
}
