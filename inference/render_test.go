package inference

import (
	"encoding/json"
	"strings"
	"testing"

	"tranche/episode"
)

func rendered(t *testing.T, c *episode.Call, max int, cfg Config, k Kind, d dialect) map[string]json.RawMessage {
	t.Helper()
	body, err := render(c, max, cfg, facts{kind: k, model: "m"}, d)
	if err != nil {
		t.Fatal(err)
	}
	return fields(t, body)
}

func raws(kv ...string) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = json.RawMessage(kv[i+1])
	}
	return m
}

// want holds fields and their exact JSON; "-" means absent.
func checkFields(t *testing.T, got map[string]json.RawMessage, want map[string]string) {
	t.Helper()
	for k, v := range want {
		g, ok := got[k]
		if v == "-" && ok {
			t.Errorf("%s is sent as %s; want it absent", k, g)
		}
		if v != "-" && string(g) != v {
			t.Errorf("%s is %q, want %s", k, g, v)
		}
	}
}

func TestRender(t *testing.T) {
	all := episode.Sampling{Temperature: episode.Ptr(0.0), TopP: episode.Ptr(0.0), TopK: episode.Ptr(0), MinP: episode.Ptr(0.0), Seed: episode.Ptr(int64(0)), Stop: []string{"<a>"}}
	for name, c := range map[string]struct {
		sampling episode.Sampling
		cfg      Config
		kind     Kind
		dialect  dialect
		tools    string
		max      int
		want     map[string]string
	}{
		"nothing asked for": {kind: KindVLLM, want: map[string]string{
			"model": `"m"`, "messages": `[{"role":"user","content":"x"}]`, "max_tokens": "-", "temperature": "-", "seed": "-", "logprobs": "-",
			"stream": "-", "n": "-", "stop": "-", "return_token_ids": "-", "tools": "-"}},
		"zeros are sent": {sampling: all, kind: KindVLLM, max: 7, want: map[string]string{
			"temperature": "0", "top_p": "0", "top_k": "0", "min_p": "0", "seed": "0", "stop": `["<a>"]`, "max_tokens": "7"}},
		"vLLM ids and logprobs": {sampling: episode.Sampling{Logprobs: true, TokenIDs: true}, kind: KindVLLM, want: map[string]string{
			"logprobs": "true", "top_logprobs": "-", "return_token_ids": "true"}},
		"SGLang ids": {sampling: episode.Sampling{TokenIDs: true}, cfg: Config{Stream: true}, kind: KindSGLang, want: map[string]string{
			"return_meta_info": "true", "return_prompt_token_ids": "true", "logprobs": "true", "return_token_ids": "-", "stream": "-"}},
		"llama-server ids": {sampling: episode.Sampling{TokenIDs: true}, cfg: Config{Stream: true}, kind: KindLlama, want: map[string]string{
			"stream": "-", "logprobs": "true", "top_logprobs": "1", "return_token_ids": "-"}},
		"llama-server refuses a stream with tools and logprobs": {sampling: episode.Sampling{Logprobs: true}, cfg: Config{Stream: true}, kind: KindLlama,
			tools: `[{"type":"function","function":{"name":"f"}}]`, want: map[string]string{"stream": "-", "tools": `[{"type":"function","function":{"name":"f"}}]`}},
		"Ollama gets nothing of its own": {sampling: episode.Sampling{TokenIDs: true}, kind: KindOllama, want: map[string]string{"return_token_ids": "-", "logprobs": "-"}},
		"stream":                         {cfg: Config{Stream: true}, kind: KindGeneric, want: map[string]string{"stream": "true", "stream_options": `{"include_usage":true}`}},
		"what was refused stays out": {sampling: episode.Sampling{TokenIDs: true}, cfg: Config{Stream: true}, kind: KindGeneric, max: 5,
			dialect: dialect{dropped: []string{"return_token_ids", "stream_options"}, maxCompletionTokens: true},
			want:    map[string]string{"return_token_ids": "-", "stream_options": "-", "stream": "true", "max_tokens": "-", "max_completion_tokens": "5"}},
		"the call's extra wins over the endpoint's, and both over ours": {
			sampling: episode.Sampling{Temperature: episode.Ptr(1.0), Extra: raws("temperature", "0.5", "a", "2")}, cfg: Config{ExtraBody: raws("a", "1", "b", `{"c":[null]}`)},
			kind: KindVLLM, want: map[string]string{"temperature": "0.5", "a": "2", "b": `{"c":[null]}`}},
		"an extra limit bounds, never widens": {sampling: episode.Sampling{Extra: raws("max_completion_tokens", "50")}, kind: KindVLLM, max: 8,
			want: map[string]string{"max_completion_tokens": "8", "max_tokens": "-"}},
		"an extra limit below the budget": {sampling: episode.Sampling{Extra: raws("max_tokens", "50")}, kind: KindVLLM, max: 80, want: map[string]string{"max_tokens": "50"}},
		"n of one is harmless":            {sampling: episode.Sampling{Extra: raws("n", "1")}, kind: KindVLLM, want: map[string]string{"n": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			cl := call("x")
			cl.Sampling = c.sampling
			if c.tools != "" {
				cl.Tools = json.RawMessage(c.tools)
			}
			checkFields(t, rendered(t, cl, c.max, c.cfg, c.kind, c.dialect), c.want)
		})
	}
}

func TestRenderMessages(t *testing.T) {
	c := call("")
	c.Messages = append(c.Messages,
		episode.Message{Role: episode.RoleAssistant, ToolCalls: []episode.ToolCall{{ID: "c1", Type: "function", Function: episode.Function{Name: "f", Arguments: "{}"}}}},
		episode.Message{Role: episode.RoleTool, Content: episode.Ptr("<a & b>"), ToolCallID: episode.Ptr("c1")})
	got := string(rendered(t, c, 0, Config{}, KindVLLM, dialect{})["messages"])
	want := `[{"role":"user","content":""},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"<a & b>","tool_call_id":"c1"}]`
	if got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
}

func TestRenderRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		extra map[string]json.RawMessage
		tools string
		says  string
	}{
		"several samples":     {raws("n", "4"), "", "n: cannot be set as an extra field"},
		"stream":              {raws("stream", "true"), "", "stream: "},
		"messages":            {raws("messages", "[]"), "", "messages: "},
		"broken JSON":         {raws("a", "{"), "", `a: "{" is no JSON value`},
		"limit of wrong type": {raws("max_tokens", `"many"`), "", "max_tokens: "},
		"tools no list":       {nil, `{"a":1}`, "tools: expected a list"},
		"tool without name":   {nil, `[{"type":"function","function":{"description":"d"}}]`, "tools[0].function.name: missing"},
	} {
		t.Run(name, func(t *testing.T) {
			cl := call("x")
			cl.Sampling.Extra, cl.Tools = c.extra, json.RawMessage(c.tools)
			_, err := render(cl, 0, Config{}, facts{}, dialect{})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v, want one that says %q", err, c.says)
			}
		})
	}
}

func TestConfigValidate(t *testing.T) {
	err := Config{BaseURL: "localhost:8000", Concurrency: -1, AttemptTimeout: -1, ExtraBody: raws("n", "2"), APIKey: "a\n"}.Validate()
	for _, part := range []string{"localhost:8000", "Concurrency", "AttemptTimeout", "ExtraBody", "API key"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not name %s", err, part)
		}
	}
	if err := (Config{BaseURL: "http://h:1/v1"}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	for in, want := range map[string]address{
		"http://h:8000":                                  {"h:8000", "http://h:8000", "http://h:8000/v1", ""},
		"http://h:8000/":                                 {"h:8000", "http://h:8000", "http://h:8000/v1", ""},
		"http://h:8000/v1/":                              {"h:8000", "http://h:8000", "http://h:8000/v1", ""},
		"http://h:8000/v1/chat/completions":              {"h:8000", "http://h:8000", "http://h:8000/v1", ""},
		"https://api.example/openai/v1":                  {"api.example", "https://api.example/openai", "https://api.example/openai/v1", ""},
		"https://api.example/coding/paas/v4":             {"api.example", "https://api.example/coding/paas", "https://api.example/coding/paas/v4", ""},
		"https://api.example/inference/chat/completions": {"api.example", "https://api.example/inference", "https://api.example/inference", ""},
		"http://h:8000/chat/completions":                 {"h:8000", "http://h:8000", "http://h:8000/v1", ""},
		"https://api.example/v1beta/openai/":             {"api.example", "https://api.example/v1beta/openai", "https://api.example/v1beta/openai", ""},
		"https://gw.example/v1/acc/gw/openai":            {"gw.example", "https://gw.example/v1/acc/gw/openai", "https://gw.example/v1/acc/gw/openai", ""},
		"http://h:8000/models/a":                         {"h:8000", "http://h:8000/models/a", "http://h:8000/models/a/v1", ""},
		"unix:///run/vllm.sock":                          {"/run/vllm.sock", "http://localhost", "http://localhost/v1", "/run/vllm.sock"},
	} {
		if got, err := addressOf(in); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "h:8000", "ftp://h", "http://user:secret@h/v1", "http://h/v1?key=secret"} {
		_, err := addressOf(in)
		if err == nil || (in != "" && strings.Contains(in, "user:secret") && strings.Contains(err.Error(), "secret@")) {
			t.Errorf("%s: error %v", in, err)
		}
	}
}
