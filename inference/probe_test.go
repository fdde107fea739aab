package inference

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/internal/mock"
)

func fixed(status int, body string) mock.Handler {
	return func(_ *mock.Request, w *mock.Reply) { w.JSON(status, body) }
}

func plainText(body string) mock.Handler {
	return func(_ *mock.Request, w *mock.Reply) { w.Raw(200, "text/plain; version=0.0.4", body) }
}

const (
	vllmMetrics = `# HELP vllm:num_requests_running n
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.9
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1.6e+04
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 8000.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 20000.0
vllm:prompt_tokens_cached_total{engine="0",model_name="m"} 8000.0
vllm:generation_tokens_total{engine="0",model_name="m"} 555.0
vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="None",num_gpu_blocks="129"} 1.0
vllm:cache_config_info{block_size="16",engine="1",kv_cache_size_tokens="3000",num_gpu_blocks="999"} 1.0
`
	llamaMetrics = `llamacpp:prompt_tokens_total 100
llamacpp:prompt_tokens_cached_total 40
llamacpp:tokens_predicted_total 77
llamacpp:requests_processing 2
llamacpp:requests_deferred 5
`
)

func TestOpenKinds(t *testing.T) {
	for name, c := range map[string]struct {
		routes   map[string]mock.Handler
		kind     Kind
		version  string
		model    string
		capacity episode.Capacity
	}{
		"vLLM": {map[string]mock.Handler{
			"GET /v1/models": fixed(200, `{"data":[{"id":"q","owned_by":"vllm","root":"/w","parent":null,"max_model_len":8192,"permission":[{"id":"p"}]}]}`),
			"GET /version":   fixed(200, `{"version":"0.32.0"}`), "GET /metrics": plainText(vllmMetrics)},
			KindVLLM, "0.32.0", "q", episode.Capacity{ContextTokens: 8192, KVTokens: 129*16 + 3000, BlockTokens: 16, Source: "vllm /v1/models, /metrics cache_config_info"}},
		"the simulated engine": {map[string]mock.Handler{
			"GET /v1/models": fixed(200, `{"data":[{"id":"sim","owned_by":"tranche-sim","max_model_len":4096}]}`)},
			KindSim, "", "sim", episode.Capacity{ContextTokens: 4096, Source: "tranche-sim /v1/models"}},
		"llama-server, slots with a share each": {map[string]mock.Handler{
			"GET /v1/models": fixed(200, `{"data":[{"id":"gemma","owned_by":"llamacpp","meta":{"n_ctx":1024}}]}`),
			"GET /props":     fixed(200, `{"build_info":"b1","total_slots":8,"default_generation_settings":{"n_ctx":1024}}`)},
			KindLlama, "b1", "gemma", episode.Capacity{ContextTokens: 1024, KVTokens: 8192, Sequences: 8, Source: "llama-server /props"}},
		"llama-server, automatic slots share one buffer": {map[string]mock.Handler{
			"GET /v1/models": fixed(200, `{"data":[{"id":"gemma","owned_by":"llamacpp"}]}`),
			"GET /props":     fixed(200, `{"build_info":"b1","total_slots":4,"default_generation_settings":{"n_ctx":8192}}`)},
			KindLlama, "b1", "gemma", episode.Capacity{ContextTokens: 8192, KVTokens: 8192, Sequences: 4, Source: "llama-server /props"}},
		"SGLang, two ranks": {map[string]mock.Handler{
			"GET /v1/models":   fixed(200, `{"data":[{"id":"s","owned_by":"sglang","max_model_len":32768}]}`),
			"GET /server_info": fixed(200, `{"version":"0.5.15","max_total_num_tokens":1000,"max_running_requests":null}`),
			"GET /v1/loads":    fixed(200, `{"loads":[{"dp_rank":0,"num_running_reqs":2,"num_waiting_reqs":1,"num_used_tokens":250,"max_total_num_tokens":1000,"max_running_requests":32},{"dp_rank":1,"num_running_reqs":3,"num_waiting_reqs":0,"num_used_tokens":750,"max_total_num_tokens":1000,"max_running_requests":32}]}`)},
			KindSGLang, "0.5.15", "s", episode.Capacity{ContextTokens: 32768, KVTokens: 2000, Sequences: 64, Source: "sglang /v1/models, /server_info, /v1/loads"}},
		"Ollama": {map[string]mock.Handler{
			"GET /v1/models": fixed(200, `{"data":[{"id":"llama3.2:latest","owned_by":"library"}]}`), "GET /api/version": fixed(200, `{"version":"0.9"}`)},
			KindOllama, "0.9", "llama3.2:latest", episode.Capacity{}},
		"anything else": {nil, KindGeneric, "", "mock", episode.Capacity{}},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, mock.New(t, mock.Config{Routes: c.routes}), nil)
			if e.Kind() != c.kind || e.Version() != c.version || e.Model() != c.model || e.Capacity() != c.capacity {
				t.Fatalf("%s %q %q %+v", e.Kind(), e.Version(), e.Model(), e.Capacity())
			}
		})
	}
}

func TestOpenSendsOnlyGets(t *testing.T) {
	s := mock.New(t, mock.Config{})
	open(t, s, nil)
	for _, r := range s.Requests() {
		if r.Method != "GET" {
			t.Errorf("%s %s while opening", r.Method, r.Path)
		}
	}
	if len(s.Requests()) > 8 {
		t.Errorf("%d requests while opening", len(s.Requests()))
	}
}

func TestOpenRefuses(t *testing.T) {
	two := fixed(200, `{"data":[{"id":"a","owned_by":"vllm"},{"id":"b","owned_by":"vllm"}]}`)
	for name, c := range map[string]struct {
		models mock.Handler
		model  string
		says   []string
	}{
		"several models, none named": {two, "", []string{"lists 2 models", "a, b"}},
		"a model it does not serve":  {two, "c", []string{`does not serve the model "c"`, "a, b"}},
		"no model":                   {fixed(200, `{"data":[]}`), "", []string{"lists no model"}},
		"wants a key":                {fixed(401, `{"error":"Unauthorized"}`), "", []string{"wants an API key", "Unauthorized"}},
		"still loading":              {fixed(503, `{"error":{"message":"Loading model","code":503}}`), "", []string{"not ready", "Loading model", "/health"}},
		"another program":            {func(_ *mock.Request, w *mock.Reply) { w.Raw(200, "text/html", "<h1>Hello</h1>") }, "", []string{"no model list", "check the base URL"}},
		"no model list":              {fixed(404, `{"detail":"Not Found"}`), "", []string{"Not Found", "check the base URL, or name a model"}},
		"moved": {func(_ *mock.Request, w *mock.Reply) {
			w.Header("Location", "https://elsewhere/v1/models")
			w.JSON(301, "")
		}, "", []string{"301"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := mock.New(t, mock.Config{Routes: map[string]mock.Handler{"GET /v1/models": c.models}})
			_, err := Open(t.Context(), Config{BaseURL: s.URL(), Model: c.model, APIKey: "sk-secret"})
			for _, part := range c.says {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Fatalf("error %v does not say %q", err, part)
				}
			}
			if strings.Contains(err.Error(), "sk-secret") {
				t.Fatalf("the key is in the error: %v", err)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		l.Close()
		_, err = Open(t.Context(), Config{BaseURL: "http://" + addr})
		if err == nil || !strings.Contains(err.Error(), "GET http://"+addr+"/v1/models") || !strings.Contains(err.Error(), "check that the server is up") {
			t.Fatalf("%v", err)
		}
	})
}

func TestOpenWithoutModelList(t *testing.T) {
	s := mock.New(t, mock.Config{Routes: map[string]mock.Handler{"GET /v1/models": fixed(404, `{}`)}})
	e := open(t, s, func(c *Config) { c.Model = "x"; c.Capacity = episode.Capacity{ContextTokens: 100, KVTokens: 200} })
	if e.Kind() != KindGeneric || e.Model() != "x" || len(e.Notes()) == 0 {
		t.Fatalf("%s %s %v", e.Kind(), e.Model(), e.Notes())
	}
	if want := (episode.Capacity{ContextTokens: 100, KVTokens: 200, Source: "config"}); e.Capacity() != want {
		t.Fatalf("%+v", e.Capacity())
	}
	if r := generate(t, e, call("x")); r.Message.Text() != "ok" {
		t.Fatalf("%+v", r)
	}
}

func TestAPIKeyIsSentAndNeverSaid(t *testing.T) {
	const key = "sk-very-secret"
	s := mock.New(t, mock.Config{Chat: fixed(401, `{"error":{"message":"Incorrect API key provided: sk-very-secret."}}`)})
	e := open(t, s, func(c *Config) { c.APIKey = key })
	_, err := e.Generate(t.Context(), call("x"), 0, 8)
	f := faultOf(t, err)
	if s.Chats()[0].Header.Get("Authorization") != "Bearer "+key {
		t.Fatal("the key was not sent")
	}
	if f.Class != episode.ClassAuth || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "Incorrect API key") {
		t.Fatalf("%v", err)
	}
}

func TestStrictServerIsLearnedOnce(t *testing.T) {
	for name, refusal := range map[string]struct {
		status int
		body   string
	}{
		"pydantic, extra forbidden": {400, `{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'return_token_ids'), 'msg': 'Extra inputs are not permitted'}]","code":400}`},
		"FastAPI 422":               {422, `{"detail":"Unexpected keys in the request: {'return_token_ids'}"}`},
		"OpenAI":                    {400, `{"error":{"message":"Unrecognized request argument supplied: return_token_ids","type":"invalid_request_error"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
				if r.Field("return_token_ids") != nil {
					w.JSON(refusal.status, refusal.body)
					return
				}
				mock.Text("ok").Send(r, w)
			}})
			e := open(t, s, nil)
			c := call("x")
			c.Sampling.TokenIDs = true
			for range 3 {
				if r := generate(t, e, c); r.Message.Text() != "ok" {
					t.Fatalf("%+v", r)
				}
			}
			if n := len(s.Chats()); n != 4 {
				t.Fatalf("%d requests for three calls, want 4: one lesson", n)
			}
			if s.Chats()[0].ID == s.Chats()[1].ID {
				t.Fatalf("two sendings share the id %s", s.Chats()[0].ID)
			}
			if !slices.ContainsFunc(e.Notes(), func(n string) bool { return strings.Contains(n, "return_token_ids") }) {
				t.Fatalf("notes %q", e.Notes())
			}
		})
	}
	t.Run("max_tokens has a successor", func(t *testing.T) {
		s := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
			if r.Field("max_tokens") != nil {
				w.JSON(400, `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`)
				return
			}
			mock.Text("ok").Send(r, w)
		}})
		e := open(t, s, nil)
		generate(t, e, call("x"))
		generate(t, e, call("x"))
		if n := len(s.Chats()); n != 3 || string(s.Chats()[2].Field("max_completion_tokens")) != "64" {
			t.Fatalf("%d requests, last %s", n, s.Chats()[n-1].Body)
		}
	})
	t.Run("a field the user asked for is the user's fault", func(t *testing.T) {
		s := mock.New(t, mock.Config{Chat: fixed(400, `{"error":{"message":"Unrecognized request argument supplied: top_k"}}`)})
		c := call("x")
		c.Sampling.TopK, c.Sampling.TokenIDs = episode.Ptr(5), true
		_, err := open(t, s, nil).Generate(t.Context(), c, 0, 8)
		if f := faultOf(t, err); f.Class != episode.ClassBadRequest || len(s.Chats()) != 1 {
			t.Fatalf("%v after %d requests", err, len(s.Chats()))
		}
	})
}

func TestLoad(t *testing.T) {
	t.Run("vLLM, two engines", func(t *testing.T) {
		s := mock.New(t, mock.Config{Routes: map[string]mock.Handler{
			"GET /v1/models": fixed(200, `{"data":[{"id":"q","owned_by":"vllm"}]}`), "GET /metrics": plainText(vllmMetrics)}})
		l, err := open(t, s, nil).Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if *l.Running != 7 || *l.Waiting != 1 || *l.KVUsed != 0.375 || *l.Preemptions != 2 || *l.PrefixQueries != 16000 || *l.Hits != 8000 ||
			*l.PromptTokens != 20000 || *l.Computed != 12000 || *l.GeneratedTokens != 555 || l.Taken.IsZero() {
			t.Fatalf("running %d waiting %d used %v preempted %d queries %d hits %d prompt %d computed %d generated %d",
				*l.Running, *l.Waiting, *l.KVUsed, *l.Preemptions, *l.PrefixQueries, *l.Hits, *l.PromptTokens, *l.Computed, *l.GeneratedTokens)
		}
	})
	t.Run("llama-server", func(t *testing.T) {
		s := mock.New(t, mock.Config{Routes: map[string]mock.Handler{
			"GET /v1/models": fixed(200, `{"data":[{"id":"q","owned_by":"llamacpp"}]}`), "GET /metrics": plainText(llamaMetrics)}})
		l, err := open(t, s, nil).Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if *l.Running != 2 || *l.Waiting != 5 || l.KVUsed != nil || *l.Computed != 100 || *l.PromptTokens != 140 || *l.GeneratedTokens != 77 {
			t.Fatalf("%+v", l)
		}
	})
	t.Run("SGLang without its metrics flag", func(t *testing.T) {
		s := mock.New(t, mock.Config{Routes: map[string]mock.Handler{
			"GET /v1/models": fixed(200, `{"data":[{"id":"q","owned_by":"sglang"}]}`),
			"GET /v1/loads":  fixed(200, `{"loads":[{"num_running_reqs":2,"num_waiting_reqs":1,"num_used_tokens":250,"max_total_num_tokens":1000},{"num_running_reqs":3,"num_used_tokens":750,"max_total_num_tokens":1000}]}`)}})
		l, err := open(t, s, nil).Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if *l.Running != 5 || *l.Waiting != 1 || *l.KVUsed != 0.5 || l.Preemptions != nil {
			t.Fatalf("%+v", l)
		}
	})
	t.Run("a server without any", func(t *testing.T) {
		if _, err := open(t, mock.New(t, mock.Config{}), nil).Load(t.Context()); !errors.Is(err, episode.ErrUnsupported) {
			t.Fatalf("%v", err)
		}
	})
}

func TestParseMetrics(t *testing.T) {
	got := parseMetrics("a 1\nb{x=\"1,}\\\"\\n\",y=\"\"} +Inf 1700000000\n# c 2\nbroken{x=\nd{} 2.5e3\n no\n")
	if len(got) != 3 || got[0].name != "a" || got[1].labels["x"] != "1,}\"\n" || got[2].value != 2500 {
		t.Fatalf("%+v", got)
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add("a{b=\"c\"} 1\n")
	f.Add("{")
	f.Add("a{b=\"\\")
	f.Fuzz(func(t *testing.T, s string) {
		for _, m := range parseMetrics(s) {
			if m.name == "" {
				t.Fatalf("a sample without a name from %q", s)
			}
		}
	})
}
