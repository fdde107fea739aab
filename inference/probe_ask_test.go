package inference

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/inference/enginesim"
	"tranche/internal/mock"
)

// fact is a value and its proof as a test expects them; from is part of the evidence.
type fact struct {
	value string
	proof Proof
	from  string
}

func checkFacts(t *testing.T, c Capabilities, want map[string]fact) {
	t.Helper()
	rows := map[string]Row{}
	for _, r := range c.Rows() {
		rows[r.Key] = r
	}
	for key, w := range want {
		r, ok := rows[key]
		if !ok {
			t.Fatalf("no fact %q", key)
		}
		if r.Value != w.value || r.Proof != w.proof || !strings.Contains(r.From, w.from) {
			t.Errorf("%s: %q %s (%s), want %q %s (…%s…)", key, r.Value, r.Proof, r.From, w.value, w.proof, w.from)
		}
	}
	if c.Calls > MostCalls {
		t.Errorf("%d calls, at most %d", c.Calls, MostCalls)
	}
}

func probed(t *testing.T, e *Endpoint, o ProbeOptions) Capabilities {
	t.Helper()
	c, err := e.Probe(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestProbeSeesEverySwitch turns the simulated engine's switches, one a case, and looks at what the probe makes of it.
func TestProbeSeesEverySwitch(t *testing.T) {
	plain := map[string]fact{
		"kind": {"tranche-sim", Proved, "owned_by"}, "version": {enginesim.Version, Proved, "GET /version"}, "model": {"sim", Proved, "GET /v1/models"},
		"context-tokens": {"8192", Proved, "max_model_len"}, "kv-tokens": {"65536", Proved, "cache_config_info"}, "block-tokens": {"16", Proved, "cache_config_info"},
		"tokenize-messages": {"/tokenize", Proved, "POST /tokenize: tokens"}, "generate": {"/inference/v1/generate", Proved, "token_ids"}, "render": {"/v1/chat/completions/render", Proved, "token_ids"},
		"token-ids-in": {"yes", Proved, "prompt_token_ids"}, "prompt-kept": {"yes", Proved, "prompt_token_ids"}, "token-ids-out": {"yes", Proved, "POST /v1/completions: token_ids"},
		"chat-token-ids": {"yes", Proved, "token_ids"}, "chat-prompt-ids": {"yes", Proved, "prompt_token_ids"}, "logprobs": {"yes", Proved, "logprobs"},
		"n": {"yes", Proved, "n = 2 gave 2"}, "list-prompts": {"yes", Proved, "4 of 4 choices"}, "usage": {"yes", Proved, "usage"},
		"cached-tokens": {"yes", Proved, "usage"}, "prefix-retained": {"yes", Proved, "tokens of a prompt that came again"}, "weight-version": {"no", Proved, "weight_version"},
		"unknown-fields": {"ignored", Proved, "unknown field"}, "priority": {"low-first", Claimed, "--scheduling-policy"}, "overflow": {"HTTP 400, recognised, names the limit 8192", Proved, "one token more"},
	}
	for name, c := range map[string]struct {
		cfg  enginesim.Config
		want map[string]fact
	}{
		"none": {enginesim.Config{}, plain},
		"Strict": {enginesim.Config{Strict: true}, map[string]fact{
			"unknown-fields": {"refused", Proved, "HTTP 400"}, "n": {"yes", Proved, "n = 2 gave 2"}, "logprobs": {"yes", Proved, "logprobs"},
			"chat-token-ids": {"no", Proved, "refuses"}, "token-ids-out": {"no", Proved, "refuses"}, "token-ids-in": {"yes", Proved, "usage counts"}, "prompt-kept": {"yes", Proved, "usage counts"},
			"list-prompts": {"yes", Proved, "4 of 4"}, "overflow": {"HTTP 400, recognised, names the limit 8192", Proved, ""}, "prefix-retained": {"yes", Proved, ""},
		}},
		"NoScaleOut": {enginesim.Config{NoScaleOut: true}, map[string]fact{
			"generate": {"none", Proved, "HTTP 403"}, "render": {"none", Proved, "HTTP 403"}, "tokenize-messages": {"/tokenize", Proved, ""}, "token-ids-in": {"yes", Proved, ""}}},
		"Speaks sglang": {enginesim.Config{Speaks: enginesim.SpeaksSGLang}, map[string]fact{
			"kind": {"sglang", Proved, "owned_by"}, "generate": {"/generate", Proved, "output_ids"}, "chat-token-ids": {"yes", Proved, ""}, "chat-prompt-ids": {"yes", Proved, ""}}},
		"Speaks llama-server": {enginesim.Config{Speaks: enginesim.SpeaksLlama}, map[string]fact{
			"kind": {"llama-server", Proved, "owned_by"}, "generate": {"/completion", Proved, "tokens"}, "render": {"/apply-template", Proved, ""}, "tokenize-text": {"/tokenize", Proved, ""}}},
		"HideCached": {enginesim.Config{HideCached: true}, map[string]fact{
			"cached-tokens": {"no", Proved, "no answer held any"}, "prefix-retained": {"yes", Proved, "GET /metrics"}, "usage": {"yes", Proved, ""},
		}},
		"NoPrefixCache": {enginesim.Config{NoPrefixCache: true}, map[string]fact{
			"prefix-retained": {"no", Proved, "nothing of a prompt"}, "cached-tokens": {"yes", Proved, ""},
		}},
		"NoPrefixCache and HideCached": {enginesim.Config{NoPrefixCache: true, HideCached: true}, map[string]fact{"cached-tokens": {"no", Proved, ""}}},
		"Batching static": {enginesim.Config{Batching: enginesim.Static, MaxSeqs: 4}, map[string]fact{
			"prefix-retained": {"no", Proved, ""}, "list-prompts": {"yes", Proved, "4 of 4"}}},
		"WeightVersion": {enginesim.Config{WeightVersion: "7"}, map[string]fact{"weight-version": {"yes", Proved, "metadata.weight_version"}}},
		"Priority":      {enginesim.Config{Priority: true}, map[string]fact{"priority": {"low-first", Claimed, ""}}},
		"sizes": {enginesim.Config{ContextTokens: 512, KVTokens: 4096, BlockTokens: 128, Model: "q"}, map[string]fact{
			"context-tokens": {"512", Proved, ""}, "kv-tokens": {"4096", Proved, ""}, "block-tokens": {"128", Proved, ""}, "model": {"q", Proved, ""},
			"overflow": {"HTTP 400, recognised, names the limit 512", Proved, ""}, "prefix-retained": {"yes", Proved, ""}}},
		"a tiny context": {enginesim.Config{ContextTokens: 16}, map[string]fact{
			"token-ids-in": {"yes", Proved, ""}, "overflow": {"HTTP 400, recognised, names the limit 16", Proved, ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			checkFacts(t, probed(t, simulated(t, c.cfg), ProbeOptions{}), c.want)
		})
	}
}

// ids are so many token ids as JSON.
func ids(n int) string {
	list := make([]int, n)
	for i := range list {
		list[i] = 500 + i
	}
	b, _ := json.Marshal(list)
	return string(b)
}

// completion answers a completions request: one choice for each prompt and sample, made by choice.
func completion(choice func(index int, prompt []int32) string, extra string) mock.Handler {
	return func(r *mock.Request, w *mock.Reply) {
		var one []int32
		var list [][]int32
		n := 1
		_ = json.Unmarshal(r.Field("n"), &n)
		if json.Unmarshal(r.Field("prompt"), &one) == nil {
			list = [][]int32{one}
		} else if json.Unmarshal(r.Field("prompt"), &list) != nil {
			w.JSON(400, `{"error":{"message":"prompt: expected token ids"}}`)
			return
		}
		if len(one) > 8192 {
			w.JSON(400, `{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 1 output tokens and your prompt contains 8193 input tokens.","type":"BadRequestError","param":"input_tokens","code":400}}`)
			return
		}
		var choices []string
		total := 0
		for _, p := range list {
			total += len(p)
			for range n {
				choices = append(choices, choice(len(choices), p))
			}
		}
		w.JSON(200, fmt.Sprintf(`{"object":"text_completion","choices":[%s],"usage":{"prompt_tokens":%d,"completion_tokens":%d%s}}`, strings.Join(choices, ","), total, len(choices), extra))
	}
}

func encoded(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func chatChoices(n int, choice string) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"index":%d,"finish_reason":"length",`, i)+choice+`}`)
	}
	return `"choices":[` + strings.Join(all, ",") + `],"usage":{"prompt_tokens":12,"completion_tokens":2`
}

// vllm is vLLM 0.32 as it answers, with or without --enable-scale-out.
func vllm(scaleOut bool) map[string]mock.Handler {
	routes := map[string]mock.Handler{
		"GET /v1/models": fixed(200, `{"data":[{"id":"q","owned_by":"vllm","root":"/w","parent":null,"max_model_len":8192}]}`),
		"GET /version":   fixed(200, `{"version":"0.32.0"}`),
		"GET /metrics":   plainText(strings.ReplaceAll(vllmMetrics, `{block_size="16",engine="1"`, `{enable_prefix_caching="True",block_size="128",engine="1"`)),
		"POST /tokenize": fixed(200, `{"count":90,"max_model_len":8192,"tokens":`+ids(90)+`,"token_strs":null}`),
		"POST /v1/completions": completion(func(i int, p []int32) string {
			return fmt.Sprintf(`{"index":%d,"text":" a","finish_reason":"length","logprobs":{"tokens":[" a"],"token_logprobs":[-1.5]},"token_ids":[7],"prompt_token_ids":%s}`, i, encoded(p))
		}, `,"prompt_tokens_details":null`),
		"POST /inference/v1/generate":      fixed(403, `{"error":{"message":"This endpoint needs --enable-scale-out","type":"Forbidden","param":null,"code":403}}`),
		"POST /v1/chat/completions/render": fixed(403, `{"error":{"message":"This endpoint needs --enable-scale-out","type":"Forbidden","param":null,"code":403}}`),
		"POST /v1/chat/completions":        fixed(200, `{"prompt_token_ids":[1,2,3],`+chatChoices(2, `"message":{"role":"assistant","content":"a b"},"logprobs":{"content":[{"token":"a","logprob":-0.5},{"token":"b","logprob":-1}]},"token_ids":[7,8]`)+`,"prompt_tokens_details":null}}`),
	}
	if scaleOut {
		routes["POST /inference/v1/generate"] = fixed(200, `{"request_id":"x","choices":[{"index":0,"token_ids":[7],"finish_reason":"length","logprobs":{"content":[{"token":"token_id:7","logprob":-1.5}]}}]}`)
		routes["POST /v1/chat/completions/render"] = fixed(200, `{"request_id":"x","token_ids":`+ids(90)+`,"sampling_params":{"max_tokens":1}}`)
	}
	return routes
}

func sglang() map[string]mock.Handler {
	return map[string]mock.Handler{
		"GET /v1/models":   fixed(200, `{"data":[{"id":"s","owned_by":"sglang","max_model_len":8192}]}`),
		"GET /server_info": fixed(200, `{"version":"0.5.15","max_total_num_tokens":1000,"max_running_requests":32,"enable_priority_scheduling":true,"schedule_low_priority_values_first":false}`),
		"GET /v1/loads":    fixed(200, `{"loads":[{"dp_rank":0,"num_running_reqs":2,"max_total_num_tokens":1000,"max_running_requests":32}]}`),
		"POST /tokenize":   fixed(200, `{"tokens":`+ids(90)+`,"count":90}`),
		"POST /generate":   fixed(200, `{"text":" a","output_ids":[7],"meta_info":{"id":"x","finish_reason":{"type":"length","length":1},"prompt_tokens":64,"completion_tokens":1,"cached_tokens":63,"weight_version":"default","output_token_logprobs":[[-1.5,7,null]]}}`),
		"POST /v1/completions": completion(func(i int, p []int32) string {
			return fmt.Sprintf(`{"index":%d,"text":" a","finish_reason":"length","logprobs":{"token_logprobs":[-1.5]},"matched_stop":null}`, i)
		}, ""),
		"POST /v1/chat/completions": fixed(200, `{`+chatChoices(2, `"message":{"role":"assistant","content":"a b"},"logprobs":{"content":[{"token":"a","logprob":-0.5}]},"prompt_token_ids":[1,2],"meta_info":{"output_token_logprobs":[[-0.5,7,null],[-1,8,null]],"weight_version":"default"}`)+`},"metadata":{"weight_version":"default"}}`),
	}
}

func llamaServer() map[string]mock.Handler {
	return map[string]mock.Handler{
		"GET /v1/models":       fixed(200, `{"data":[{"id":"gemma","owned_by":"llamacpp","meta":{"n_ctx":1024}}]}`),
		"GET /props":           fixed(200, `{"build_info":"b1","total_slots":8,"default_generation_settings":{"n_ctx":8192}}`),
		"GET /metrics":         plainText(llamaMetrics),
		"POST /tokenize":       fixed(200, `{"tokens":`+ids(90)+`}`),
		"POST /apply-template": fixed(200, `{"prompt":"<|im_start|>user\none<|im_end|>\n"}`),
		"POST /completion":     fixed(200, `{"index":0,"content":" a","tokens":[7],"tokens_predicted":1,"tokens_evaluated":64,"stop_type":"limit","completion_probabilities":[{"id":7,"logprob":-1.5}]}`),
		"POST /v1/completions": completion(func(i int, p []int32) string {
			return fmt.Sprintf(`{"index":%d,"text":" a","finish_reason":"length","logprobs":{"content":[{"id":7,"token":" a","logprob":-1.5}]}}`, i)
		}, `,"prompt_tokens_details":{"cached_tokens":63}`),
		"POST /v1/chat/completions": fixed(200, `{`+chatChoices(2, `"message":{"role":"assistant","content":"a b"},"logprobs":{"content":[{"id":7,"token":"a","logprob":-0.5},{"id":8,"token":"b","logprob":-1}]}`)+`,"prompt_tokens_details":{"cached_tokens":0}}}`),
	}
}

// strictly refuses every field that OpenAI's interface does not know, in a server's own words.
func strictly(status int, refusal string, next mock.Handler) mock.Handler {
	return func(r *mock.Request, w *mock.Reply) {
		if r.Field(strangeField) != nil || r.Field("return_token_ids") != nil {
			w.JSON(status, refusal)
			return
		}
		next(r, w)
	}
}

// withHeader lists a model under a header.
func withHeader(name, value, models string) mock.Handler {
	return func(_ *mock.Request, w *mock.Reply) {
		w.Header(name, value)
		w.JSON(200, models)
	}
}

// others are servers other than the simulated engine, as their sources and recorded answers have them.
func others() map[string]map[string]mock.Handler {
	single := fixed(200, `{`+chatChoices(1, `"message":{"role":"assistant","content":"a b"},"logprobs":null`)+`}}`)
	wordy := fixed(200, `{`+chatChoices(2, `"message":{"role":"assistant","content":"a b"},"logprobs":{"content":[{"token":"a","logprob":-0.5}]}`)+`}}`)
	return map[string]map[string]mock.Handler{
		"vLLM 0.32":                     vllm(false),
		"vLLM 0.32, --enable-scale-out": vllm(true),
		"SGLang":                        sglang(),
		"llama-server":                  llamaServer(),
		"Ollama": {
			"GET /v1/models": fixed(200, `{"data":[{"id":"llama3.2:latest","owned_by":"library"}]}`), "GET /api/version": fixed(200, `{"version":"0.9"}`),
			"POST /v1/chat/completions": single,
			"POST /v1/completions":      fixed(400, `{"error":{"message":"json: cannot unmarshal array into Go struct field CompletionRequest.prompt of type string","type":"invalid_request_error","param":null,"code":null}}`)},
		"TensorRT-LLM": {
			"GET /v1/models": fixed(200, `{"data":[{"id":"t","owned_by":"tensorrt_llm"}]}`), "GET /version": fixed(200, `{"version":"1.4.0rc4"}`),
			"POST /v1/chat/completions": strictly(400, `{"error":"[{'type': 'extra_forbidden', 'loc': ('body', 'tranche_probe'), 'msg': 'Extra inputs are not permitted'}]"}`, wordy),
			"POST /v1/completions": strictly(400, `{"error":"extra_forbidden"}`, completion(func(i int, p []int32) string {
				return fmt.Sprintf(`{"index":%d,"text":" a","finish_reason":"length"}`, i)
			}, ""))},
		"transformers": {
			"GET /v1/models":            fixed(200, `{"data":[{"id":"h","owned_by":"someone"}]}`),
			"POST /v1/chat/completions": strictly(422, `{"detail":"Unexpected keys in the request: {'tranche_probe', 'return_token_ids'}"}`, single),
			"POST /v1/completions":      fixed(422, `{"detail":[{"type":"string_type","loc":["body","prompt"],"msg":"Input should be a valid string"}]}`)},
		"TGI": {
			"GET /v1/models":            fixed(200, `{"data":[{"id":"org/m","owned_by":"org/m"}]}`),
			"GET /info":                 fixed(200, `{"model_id":"org/m","version":"3.3.4","max_total_tokens":4096,"max_batch_total_tokens":90000,"max_concurrent_requests":128}`),
			"POST /v1/chat/completions": single, "POST /v1/completions": fixed(422, `{"error":"prompt: invalid type: sequence, expected a string","error_type":"validation"}`)},
		"LMDeploy": {"GET /v1/models": fixed(200, `{"data":[{"id":"l","owned_by":"lmdeploy"}]}`), "POST /v1/chat/completions": single},
		"LiteLLM before a vLLM": {
			"GET /v1/models":            withHeader("x-litellm-version", "1.77.1", `{"data":[{"id":"q","owned_by":"vllm"}]}`),
			"POST /v1/chat/completions": single, "POST /v1/completions": fixed(400, `{"error":{"message":"litellm.BadRequestError: prompt must be a string","code":"400"}}`)},
		"OpenAI": {"GET /v1/models": withHeader("openai-organization", "o", `{"data":[{"id":"gpt-4o","owned_by":"openai"}]}`),
			"POST /v1/chat/completions": func(r *mock.Request, w *mock.Reply) {
				if r.Field("max_tokens") != nil || r.Field(strangeField) != nil {
					w.JSON(400, `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."}}`)
					return
				}
				wordy(r, w)
			}},
		"plain chat only":             {"POST /v1/completions": fixed(404, `{"detail":"Not Found"}`), "POST /v1/chat/completions": single},
		"a vLLM that hides its owner": {"GET /v1/models": fixed(200, `{"data":[{"id":"q","owned_by":"me"}]}`), "GET /metrics": plainText(vllmMetrics), "GET /version": fixed(200, `{"version":"0.31"}`)},
		"silence":                     {},
	}
}

func TestProbeKnowsOtherServers(t *testing.T) {
	no, yes := fact{"no", Proved, ""}, fact{"yes", Proved, ""}
	unknown := fact{"", Unknown, ""}
	for name, c := range map[string]struct {
		o    ProbeOptions
		want map[string]fact
	}{
		"vLLM 0.32": {want: map[string]fact{
			"kind": {"vllm", Proved, "owned_by vllm"}, "version": {"0.32.0", Proved, ""}, "kv-tokens": {"5064", Proved, "cache_config_info"}, "block-tokens": {"128", Proved, ""},
			"generate": {"none", Proved, "HTTP 403"}, "render": {"none", Proved, "HTTP 403"}, "tokenize-messages": {"/tokenize", Proved, ""}, "tokenize-text": {"/tokenize", Claimed, "takes messages"},
			"token-ids-in": yes, "prompt-kept": yes, "token-ids-out": yes, "chat-token-ids": yes, "chat-prompt-ids": yes, "logprobs": yes, "n": yes, "list-prompts": yes,
			"cached-tokens": no, "prefix-retained": {"yes", Claimed, "enable_prefix_caching"}, "unknown-fields": {"ignored", Proved, ""}, "priority": {"low-first", Claimed, ""},
			"overflow": {"HTTP 400, recognised, names the limit 8192", Proved, ""},
		}},
		"vLLM 0.32, --enable-scale-out": {want: map[string]fact{
			"generate": {"/inference/v1/generate", Proved, "token_ids"}, "render": {"/v1/chat/completions/render", Proved, "token_ids"}}},
		"SGLang": {want: map[string]fact{
			"kind": {"sglang", Proved, ""}, "generate": {"/generate", Proved, "output_ids"}, "token-ids-in": {"yes", Proved, "usage counts 64 for 64 ids"}, "token-ids-out": no, "prompt-kept": yes,
			"chat-token-ids": {"yes", Proved, "meta_info"}, "chat-prompt-ids": yes, "weight-version": yes, "priority": {"high-first", Proved, "enable_priority_scheduling"},
			"prefix-retained": {"yes", Proved, "POST /generate: 63 tokens"}, "kv-tokens": {"1000", Proved, "1 ranks"}, "metrics": {"running, waiting, kv used", Proved, "GET /v1/loads"}}},
		"llama-server": {want: map[string]fact{
			"kind": {"llama-server", Proved, ""}, "generate": {"/completion", Proved, "tokens"}, "render": {"/apply-template", Proved, ""}, "tokenize-text": {"/tokenize", Proved, ""},
			"tokenize-messages": {"none", Claimed, ""}, "token-ids-in": yes, "prompt-kept": {"yes", Proved, "tokens_evaluated"}, "token-ids-out": {"yes", Proved, "beside the logprobs"},
			"chat-token-ids": {"yes", Proved, "beside the logprobs"}, "chat-prompt-ids": no, "cached-tokens": yes, "prefix-retained": yes, "list-prompts": yes, "priority": {"none", Claimed, ""}}},
		"Ollama": {want: map[string]fact{
			"kind": {"ollama", Proved, ""}, "token-ids-in": {"no", Claimed, ""}, "n": no, "list-prompts": no, "logprobs": no, "overflow": {"HTTP 200: the prompt is cut", Claimed, "old messages"}, "generate": {"none", Claimed, ""}}},
		"TensorRT-LLM": {want: map[string]fact{
			"kind": {"tensorrt-llm", Proved, ""}, "version": {"1.4.0rc4", Proved, ""}, "unknown-fields": {"refused", Proved, "HTTP 400"}, "n": yes, "logprobs": yes, "token-ids-in": yes,
			"token-ids-out": no, "list-prompts": yes, "context-tokens": unknown, "overflow": {"", Unknown, "context limit is not known"}}},
		"transformers": {want: map[string]fact{"kind": {"generic", Claimed, ""}, "unknown-fields": {"refused", Proved, "HTTP 422"}, "n": no, "logprobs": no, "token-ids-in": no, "list-prompts": no}},
		"TGI": {want: map[string]fact{"kind": {"tgi", Proved, "/info"}, "version": {"3.3.4", Proved, ""}, "context-tokens": {"4096", Proved, ""}, "kv-tokens": {"90000", Proved, ""}, "token-ids-in": no,
			"n": no, "generate": unknown}},
		"LMDeploy": {want: map[string]fact{"kind": {"lmdeploy", Proved, ""}, "n": no, "logprobs": no, "list-prompts": {"no", Proved, "HTTP 404"}}},
		"LiteLLM before a vLLM": {want: map[string]fact{ // nothing is claimed for what stands behind it
			"kind": {"litellm", Proved, "header x-litellm-version"}, "version": {"1.77.1", Proved, ""}, "chat-token-ids": no, "n": no, "token-ids-in": no, "generate": unknown, "priority": unknown, "prefix-retained": unknown}},
		"OpenAI": {want: map[string]fact{
			"kind": {"openai", Proved, "openai-organization"}, "n": {"yes", Claimed, ""}, "list-prompts": {"", Unknown, "costs money"}, "chat-token-ids": {"no", Claimed, ""}}},
		"plain chat only": {want: map[string]fact{
			"kind": {"generic", Claimed, ""}, "token-ids-in": {"no", Proved, "HTTP 404"}, "chat-token-ids": no, "logprobs": no, "list-prompts": no, "tokenize-messages": {"none", Proved, "HTTP 404"}, "unknown-fields": {"ignored", Proved, ""}}},
		"a vLLM that hides its owner": {want: map[string]fact{"kind": {"vllm", Proved, "names begin with vllm:"}, "version": {"0.31", Proved, ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := mock.New(t, mock.Config{Routes: others()[name]})
			checkFacts(t, probed(t, open(t, s, nil), c.o), c.want)
		})
	}
}

// Of a long context no long prompt is sent where a max_tokens over the limit is an overflow too, and none at all where it is very long.
func TestProbeSendsNoHugePrompt(t *testing.T) {
	for name, c := range map[string]struct {
		owner string
		says  mock.Handler
		want  fact
	}{
		"vLLM":       {"vllm", fixed(400, `{"error":{"message":"max_tokens=262145 cannot be greater than max_model_len=262144. Please request fewer output tokens.","type":"BadRequestError","param":"max_tokens","code":400}}`), fact{"HTTP 400, recognised, names the limit 262144", Proved, "max_tokens over the limit"}},
		"takes it":   {"vllm", fixed(200, `{`+chatChoices(1, `"message":{"content":"a"}`)+`}}`), fact{"", Unknown, "was not refused"}},
		"not ready":  {"vllm", fixed(503, `{"error":{"message":"loading"}}`), fact{"", Unknown, "loading"}},
		"who knows?": {"acme", nil, fact{"", Unknown, "too long to try"}},
	} {
		t.Run(name, func(t *testing.T) {
			routes := vllm(true)
			routes["GET /v1/models"] = fixed(200, `{"data":[{"id":"q","owned_by":"`+c.owner+`","max_model_len":262144}]}`)
			if c.owner == "acme" {
				delete(routes, "GET /metrics")
			}
			chat := routes["POST /v1/chat/completions"]
			routes["POST /v1/chat/completions"] = func(r *mock.Request, w *mock.Reply) {
				if string(r.Field("max_tokens")) == "262145" {
					c.says(r, w)
					return
				}
				chat(r, w)
			}
			s := mock.New(t, mock.Config{Routes: routes})
			checkFacts(t, probed(t, open(t, s, nil), ProbeOptions{}), map[string]fact{"overflow": c.want})
			for _, r := range s.Requests() {
				if len(r.Body) > 10_000 {
					t.Errorf("%s %s of %d bytes", r.Method, r.Path, len(r.Body))
				}
			}
		})
	}
}

func TestProbeDoesNotGenerateWhereItCosts(t *testing.T) {
	for paid, want := range map[bool]map[string]fact{
		false: {"n": {"yes", Claimed, ""}},
		true:  {"n": {"yes", Proved, ""}, "logprobs": {"yes", Proved, ""}},
	} {
		s := mock.New(t, mock.Config{Routes: others()["OpenAI"]})
		checkFacts(t, probed(t, open(t, s, nil), ProbeOptions{Paid: paid}), want)
		posts := slices.DeleteFunc(s.Requests(), func(r *mock.Request) bool { return r.Method == "GET" })
		if paid != (len(posts) > 0) || !paid && len(s.Requests()) != 1 {
			t.Errorf("paid %v: %d requests, %d of them generate", paid, len(s.Requests()), len(posts))
		}
	}
}

// TestProbeAsksLittle is the law: no server gets more than 12 requests, all but the fewest tokens are asked for, and what is proved
// says by which request.
func TestProbeAsksLittle(t *testing.T) {
	all := others()
	for i := range 40 { // servers that say anything at all
		all[fmt.Sprintf("random %d", i)] = babbling(rand.New(rand.NewPCG(uint64(i), 1)))
	}
	for name, routes := range all {
		t.Run(name, func(t *testing.T) {
			s := mock.New(t, mock.Config{Routes: routes})
			e, err := Open(t.Context(), Config{BaseURL: s.URL(), Model: "m"})
			if err != nil {
				if n := len(s.Requests()); n > MostCalls {
					t.Fatalf("%d requests before %v", n, err)
				}
				return
			}
			defer e.Close()
			c := probed(t, e, ProbeOptions{Paid: true, CallTimeout: time.Second})
			if n := len(s.Requests()); n > MostCalls || c.Calls != n {
				t.Errorf("%d requests, the record says %d, at most %d", n, c.Calls, MostCalls)
			}
			if n := tokensAsked(s.Requests()); n > 20 {
				t.Errorf("asked for %d tokens", n)
			}
			for _, r := range c.Rows() {
				if r.Proof == Proved && !strings.Contains(r.From, "GET ") && !strings.Contains(r.From, "POST ") && !strings.Contains(r.From, "header") && !strings.Contains(r.From, "answer") {
					t.Errorf("%s is proved by %q", r.Key, r.From)
				}
			}
			if len(c.Asked) != len(AllQuestions()) && !strings.HasPrefix(name, "random") { // of those some say that they are not ready
				t.Errorf("asked %v", c.Asked)
			}
		})
	}
}

func tokensAsked(requests []*mock.Request) (sum int) {
	for _, r := range requests {
		for _, field := range []string{"max_tokens", "max_completion_tokens", "n_predict"} {
			tokens, n, prompts := 0, 1, []any{}
			_ = json.Unmarshal(r.Field(field), &tokens)
			_ = json.Unmarshal(r.Field("n"), &n)
			if _ = json.Unmarshal(r.Field("prompt"), &prompts); len(prompts) == 2 {
				n *= 2
			}
			sum += tokens * n
		}
	}
	return sum
}

// babbling answers every route with something, whatever it was asked.
func babbling(rng *rand.Rand) map[string]mock.Handler {
	bodies := []string{
		`{}`, `[]`, `null`, `"x"`, `{"choices":null}`, `{"choices":[]}`, `{"choices":[{}]}`, `{"choices":[{"index":-5}],"usage":{"prompt_tokens":-1}}`, `{"tokens":[1]}`, `{"tokens":"x"}`, `{"data":[{"id":"m"}]}`,
		`{"choices":[{"index":0,"text":"a","token_ids":[],"prompt_token_ids":[1]}],"usage":{"prompt_tokens":64}}`, `{"version":"1","max_total_num_tokens":5,"build_info":"b","total_slots":4}`, `{"error":{"message":"tranche_probe"}}`,
		`{"error":"nope"}`, `{"choices":[{"index":1,"message":{"content":"a"},"logprobs":{"content":[{"logprob":null}]}}]`, `vllm:prefix_cache_hits_total 5`, "\nvllm:num_requests_running 1\nvllm:prefix_cache_hits_total 5\nvllm:prefix_cache_queries_total 7\n",
		`{"prompt":"p"}`, `{"output_ids":[1],"meta_info":{"cached_tokens":0}}`, `{"loads":[{"max_total_num_tokens":9}]}`, `{"data":[{"id":"m","owned_by":"vllm","max_model_len":64}]}`, `{"data":[{"id":"m","owned_by":"sglang"}]}`,
	}
	routes := map[string]mock.Handler{}
	for _, route := range []string{
		"GET /v1/models", "GET /version", "GET /metrics", "GET /server_info", "GET /v1/loads", "GET /props", "GET /api/version", "GET /info", "POST /tokenize", "POST /apply-template", "POST /v1/completions",
		"POST /v1/chat/completions", "POST /inference/v1/generate", "POST /v1/chat/completions/render", "POST /generate", "POST /completion",
	} {
		status := []int{200, 200, 200, 200, 400, 403, 404, 422, 500, 503}[rng.IntN(10)]
		body := bodies[rng.IntN(len(bodies))]
		if route == "GET /v1/models" && rng.IntN(3) > 0 {
			status, body = 200, bodies[len(bodies)-1-rng.IntN(2)]
		}
		routes[route] = fixed(status, body)
	}
	return routes
}

// TestProbeSurvivesHanging: requests that get no answer cost their time-out and nothing else.
func TestProbeSurvivesHanging(t *testing.T) {
	hang := func(_ *mock.Request, w *mock.Reply) { w.Hang() }
	routes := vllm(true)
	routes["POST /v1/chat/completions"], routes["POST /inference/v1/generate"] = hang, hang
	s := mock.New(t, mock.Config{Routes: routes})
	e := open(t, s, nil)
	began := time.Now()
	c := probed(t, e, ProbeOptions{CallTimeout: 500 * time.Millisecond})
	checkFacts(t, c, map[string]fact{
		"token-ids-in": {"yes", Proved, ""}, "generate": {"", Unknown, "no answer in time"}, "render": {"/v1/chat/completions/render", Proved, ""}, "n": {"yes", Claimed, "usual"}, "overflow": {"HTTP 400, recognised, names the limit 8192", Proved, ""}})
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %v", took)
	}
	if want := []Question{AskLists, AskOverflow, AskRetention}; !slices.Equal(c.Asked, want) {
		t.Errorf("asked %v, want %v: the others had no answer", c.Asked, want)
	}

	for r := range routes {
		if strings.HasPrefix(r, "POST") {
			routes[r] = hang
		}
	}
	e = open(t, mock.New(t, mock.Config{Routes: routes}), nil)
	began = time.Now()
	c = probed(t, e, ProbeOptions{CallTimeout: time.Minute, Timeout: 300 * time.Millisecond})
	checkFacts(t, c, map[string]fact{"n": {"yes", Claimed, "usual"}, "overflow": {"", Unknown, ""}})
	if len(c.Asked) > 0 {
		t.Errorf("asked %v of a server that answered nothing", c.Asked)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %v", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.Probe(ctx, ProbeOptions{}); err == nil {
		t.Error("no error though the caller's context ended")
	}
}

// TestProbeOfASlowServer: one token a second and one request at a time, here a hundred times faster, is done within ten of its seconds.
func TestProbeOfASlowServer(t *testing.T) {
	const second = 10 * time.Millisecond
	turn := make(chan struct{}, 1)
	slowly := func(next mock.Handler) mock.Handler {
		return func(r *mock.Request, w *mock.Reply) {
			turn <- struct{}{}
			w.Delay(time.Duration(tokensAsked([]*mock.Request{r})) * second)
			<-turn
			next(r, w)
		}
	}
	routes := vllm(true)
	for r, h := range routes {
		if strings.HasPrefix(r, "POST") && r != "POST /tokenize" {
			routes[r] = slowly(h)
		}
	}
	s := mock.New(t, mock.Config{Routes: routes})
	checkFacts(t, probed(t, open(t, s, nil), ProbeOptions{}), map[string]fact{"n": {"yes", Proved, ""}, "list-prompts": {"yes", Proved, ""}, "generate": {"/inference/v1/generate", Proved, ""}})
	if n := tokensAsked(s.Requests()); n > 12 {
		t.Errorf("%d tokens, a second each", n)
	}
}

// TestProbeTakesRecordedAnswers: whatever a real server once answered, a proof of what an answer holds needs that the answer holds it.
func TestProbeTakesRecordedAnswers(t *testing.T) {
	for _, rec := range responses(t) {
		if rec.Stream {
			continue
		}
		body, stream := rec.wire(t)
		if stream {
			continue
		}
		s := mock.New(t, mock.Config{Routes: map[string]mock.Handler{"POST /v1/chat/completions": fixed(rec.Status, body), "POST /v1/completions": fixed(rec.Status, body)}})
		c := probed(t, open(t, s, nil), ProbeOptions{})
		for key, f := range map[string]*Fact[bool]{
			`"token_ids"`: &c.ChatTokenIDs, `"prompt_token_ids"`: &c.ChatPromptIDs, `"logprob"`: &c.Logprobs, `"usage"`: &c.Usage, `"cached_tokens"`: &c.CachedTokens, `"weight_version"`: &c.WeightVersion,
		} {
			other := key == `"token_ids"` && strings.Contains(body, `"id"`) || key == `"cached_tokens"` && strings.Contains(body, "cache_hit_tokens")
			if f.Sure() && !strings.Contains(body, key) && !other {
				t.Errorf("%s: %s is proved by %q, and the answer does not hold it", rec.ID, key, f.From)
			}
		}
		if c.N.Sure() && strings.Count(body, `"index"`) < 2 || rec.Status != 200 && (c.Logprobs.Sure() || c.ListPrompts.Sure()) {
			t.Errorf("%s: status %d proves %+v", rec.ID, rec.Status, c.N)
		}
		if c.Calls > MostCalls {
			t.Errorf("%s: %d calls", rec.ID, c.Calls)
		}
	}
}

func TestOverrides(t *testing.T) {
	s := mock.New(t, mock.Config{Routes: vllm(true)})
	e := open(t, s, func(c *Config) {
		c.Capabilities = map[string]json.RawMessage{"token-ids-in": json.RawMessage("false"), "priority": json.RawMessage(`"high-first"`), "context-tokens": json.RawMessage("4000"),
			"unknown-fields": json.RawMessage(`"refused"`), "generate": json.RawMessage(`""`)}
	})
	if e.Capacity().ContextTokens != 4000 || !strings.HasSuffix(e.Capacity().Source, "config") {
		t.Errorf("capacity %+v", e.Capacity())
	}
	checkFacts(t, probed(t, e, ProbeOptions{}), map[string]fact{
		"overflow": {"", Unknown, "the configuration's"}, "token-ids-in": {"no", Set, "config"}, "priority": {"high-first", Set, "config"}, "context-tokens": {"4000", Set, "config"}, "generate": {"none", Set, "config"}, "n": {"yes", Proved, ""}})
	c := call("x")
	c.Sampling.TokenIDs = true
	if body, err := e.Render(c, 8); err != nil || strings.Contains(string(body), "return_token_ids") {
		t.Errorf("%s %v", body, err)
	}
	t.Run("kind", func(t *testing.T) {
		e := open(t, mock.New(t, mock.Config{}), func(c *Config) { c.Capabilities = map[string]json.RawMessage{"kind": json.RawMessage(`"sglang"`)} })
		if e.Kind() != KindSGLang || e.Capabilities().Generate.Value != "/generate" {
			t.Errorf("%s %+v", e.Kind(), e.Capabilities().Generate)
		}
	})
	for key, raw := range map[string]string{"token-ids-in": "1", "priority": `"up"`, "kind": `"vlm"`, "context-tokens": "-4", "generate": "null", "tokens": "true", "model": `"x"`, "overflow": `{"stat":1}`, "metrics": `"x"`} {
		err := Config{BaseURL: "http://h", Capabilities: map[string]json.RawMessage{key: json.RawMessage(raw)}}.Validate()
		if err == nil || !strings.Contains(err.Error(), "capabilities: "+key) {
			t.Errorf("%s: %s: %v", key, raw, err)
		}
	}
}

func TestRecordComesBackAsItWas(t *testing.T) {
	c := probed(t, open(t, mock.New(t, mock.Config{Routes: vllm(true)}), nil), ProbeOptions{})
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back Capabilities
	if err := json.Unmarshal(b, &back); err != nil || back.Check() != nil {
		t.Fatal(err, back.Check())
	}
	if !slices.Equal(c.Rows(), back.Rows()) || len(c.Changes(back)) != 0 || !back.Taken.Equal(c.Taken) || back.Calls != c.Calls {
		t.Errorf("%+v\n%+v", c, back)
	}
	if err := new(Capabilities).Check(); err == nil {
		t.Error("an empty record is no fault")
	}
}

func TestAdoptTakesOnlyWhatIsOfTheSameServer(t *testing.T) {
	proved := probed(t, open(t, mock.New(t, mock.Config{Routes: vllm(true)}), nil), ProbeOptions{})
	same := open(t, mock.New(t, mock.Config{Routes: vllm(true)}), nil)
	if !same.Adopt(proved) {
		t.Fatal("the same server's record was not taken")
	}
	checkFacts(t, same.Capabilities(), map[string]fact{"generate": {"/inference/v1/generate", Proved, "token_ids"}, "n": {"yes", Proved, ""}, "version": {"0.32.0", Proved, "GET"}})
	if got := same.Capabilities(); len(got.Asked) != len(AllQuestions()) || got.Calls != 3 {
		t.Errorf("asked %v, %d calls", got.Asked, got.Calls)
	}
	newer := vllm(true)
	newer["GET /version"] = fixed(200, `{"version":"0.33.0"}`)
	other := open(t, mock.New(t, mock.Config{Routes: newer}), nil)
	if other.Adopt(proved) {
		t.Fatal("a record of another version was taken")
	}
	checkFacts(t, other.Capabilities(), map[string]fact{"n": {"yes", Claimed, ""}})
}

func TestRecheckAsksAgainAfterANewVersion(t *testing.T) {
	routes := vllm(true)
	s := mock.New(t, mock.Config{Routes: routes})
	e := open(t, s, nil)
	probed(t, e, ProbeOptions{Ask: []Question{AskTokens}})
	before := len(s.Requests())
	if changes, err := e.Recheck(t.Context(), ProbeOptions{}); err != nil || len(changes) != 0 {
		t.Fatalf("%v %v", changes, err)
	}
	if n := len(s.Requests()) - before; n != 3 {
		t.Errorf("%d requests to a server that is as it was, want the 3 of Open", n)
	}
	checkFacts(t, e.Capabilities(), map[string]fact{"generate": {"/inference/v1/generate", Proved, ""}})

	fresh := vllm(false)
	fresh["GET /version"] = fixed(200, `{"version":"0.33.0"}`)
	s2 := mock.New(t, mock.Config{Routes: fresh})
	e.address, _ = addressOf(s2.URL()) // as if it had come back at the same address
	changes, err := e.Recheck(t.Context(), ProbeOptions{})
	if err != nil || len(changes) != 3 || changes[0].Key != "version" || changes[0].Was != "0.32.0" || changes[0].Is != "0.33.0" {
		t.Fatalf("%+v %v", changes, err)
	}
	if len(s2.Requests()) > MostCalls {
		t.Errorf("%d requests", len(s2.Requests()))
	}
	checkFacts(t, e.Capabilities(), map[string]fact{"generate": {"none", Proved, "HTTP 403"}, "list-prompts": {"yes", Claimed, ""}})
}

// A server that tells no version and is otherwise as it was is the same server: nothing that was proved or learned of it is void.
func TestRecheckKeepsWhatIsKnownOfAServerWithoutVersion(t *testing.T) {
	routes := vllm(true)
	delete(routes, "GET /version")
	s := mock.New(t, mock.Config{Routes: routes})
	e := open(t, s, nil)
	probed(t, e, ProbeOptions{Ask: []Question{AskTokens, AskOverflow}})
	before, words := len(s.Requests()), e.wordings.Load()
	if changes, err := e.Recheck(t.Context(), ProbeOptions{}); err != nil || len(changes) != 0 {
		t.Fatalf("%v %v", changes, err)
	}
	if n := len(s.Requests()) - before; n != 3 {
		t.Errorf("%d requests to a server that is as it was, want the 3 of Open", n)
	}
	if words == nil || e.wordings.Load() != words {
		t.Error("what was learned of its refusals is gone")
	}
	checkFacts(t, e.Capabilities(), map[string]fact{"generate": {"/inference/v1/generate", Proved, ""}, "version": {"", Unknown, ""}})
}

// A server that was not ready when it was asked is asked again by the next that takes over the record, also where it takes no token ids.
func TestProbeAsksAgainWhatHadNoAnswer(t *testing.T) {
	ready := false
	s := mock.New(t, mock.Config{
		Chat: func(r *mock.Request, w *mock.Reply) {
			switch {
			case !ready:
				w.JSON(503, `{"error":{"message":"loading"}}`)
			case strings.Count(string(r.Body), "one ") > 64:
				w.JSON(400, `{"error":{"message":"maximum context length is 64 tokens"}}`)
			default:
				mock.Text("ok").Send(r, w)
			}
		},
		Routes: map[string]mock.Handler{"GET /v1/models": fixed(200, `{"data":[{"id":"q","owned_by":"acme","max_model_len":64}]}`)},
	})
	record := probed(t, open(t, s, nil), ProbeOptions{})
	if want := []Question{AskTokens, AskLists, AskRetention}; !slices.Equal(record.Asked, want) {
		t.Errorf("asked %v, want %v", record.Asked, want)
	}
	ready = true
	later := open(t, s, nil)
	if !later.Adopt(record) {
		t.Fatal("the record is not taken to be this server's")
	}
	c := probed(t, later, ProbeOptions{Ask: []Question{AskOverflow}})
	checkFacts(t, c, map[string]fact{"overflow": {"HTTP 400, recognised, names the limit 64", Proved, "96 words"}})
}

// FuzzProbeAnswers gives every reader of the probe an answer of any status and content.
func FuzzProbeAnswers(f *testing.F) {
	for _, b := range []string{`{"choices":[{"index":0,"text":"a","token_ids":[1],"prompt_token_ids":[300]}],"usage":{"prompt_tokens":64}}`, `{"tokens":[1,2]}`, `[{"token_ids":[1]}]`,
		`{"output_ids":[1],"meta_info":{"prompt_tokens":64,"cached_tokens":63}}`, `{"tokens":[1],"tokens_evaluated":64}`, `{"error":{"message":"tranche_probe","param":"n"}}`,
		`{"data":[{"id":"m","owned_by":"vllm","max_model_len":-5}]}`, `{"build_info":"b","total_slots":-1,"default_generation_settings":{"n_ctx":-3}}`, "vllm:prefix_cache_hits_total 5\nvllm:cache_config_info{block_size=\"-4\",num_gpu_blocks=\"9\"} 1\n"} {
		for k := range kinds() {
			f.Add(k, 200, b)
			f.Add(k, 400, b)
		}
	}
	f.Fuzz(func(t *testing.T, kind, status int, body string) {
		all := kinds()
		readAnswers(t, all[uint(kind)%uint(len(all))], said{label: "POST /x", status: status, body: []byte(body)})
	})
}

// readAnswers gives every question a server of that kind is asked this one answer.
func readAnswers(t *testing.T, k Kind, s said) {
	e, err := newEndpoint(Config{BaseURL: "http://h"})
	if err != nil {
		t.Fatal(err)
	}
	p := newProber(e, time.Second)
	p.caps.Kind.prove(k, "the fuzzer")
	p.before = s
	for _, r := range append(routesOf(KindGeneric), routesOf(k)...) {
		p.got[r] = s
	}
	p.readVersion(nil)
	p.readFigures(&modelCard{})
	for range 2 { // the second time with what the first has taught
		list := append(p.tokenizeCalls(), p.chatCall(chat{own: true, samples: 2}))
		p.choosePrompt()
		list = append(append(list, p.completionCall()), p.tokenCalls()...)
		list = append(append(list, p.againCalls(true, true)...), p.overflowCalls()...)
		for _, a := range list {
			a.read(s)
		}
		p.readHits(s)
		p.concludeUsage()
	}
	if err := p.caps.Check(); err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(p.caps); err != nil || json.Unmarshal(b, new(Capabilities)) != nil {
		t.Fatalf("the record does not come back: %v", err)
	}
}
