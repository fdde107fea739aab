package inference

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	openai "github.com/sashabaranov/go-openai"

	"tranche/episode"
)

// Kind is what a server is, as far as it changes what we ask and where we look.
type Kind string

// Kinds of servers.
const (
	KindVLLM     Kind = "vllm"
	KindSGLang   Kind = "sglang"
	KindLlama    Kind = "llama-server"
	KindOllama   Kind = "ollama"
	KindTensorRT Kind = "tensorrt-llm"
	KindLMDeploy Kind = "lmdeploy"
	KindTGI      Kind = "tgi"
	KindOpenAI   Kind = "openai"
	KindProxy    Kind = "litellm" // a proxy: what stands behind it, and what it lets through, only answers show
	KindSim      Kind = "tranche-sim"
	KindGeneric  Kind = "generic" // anything else that speaks chat completions
)

func kinds() []Kind {
	return []Kind{KindVLLM, KindSGLang, KindLlama, KindOllama, KindTensorRT, KindLMDeploy, KindTGI, KindOpenAI, KindProxy, KindSim, KindGeneric}
}

// familiar reports whether this package knows the routes of a kind; of any other a refusal may mean that it lacks the route.
func (k Kind) familiar() bool {
	switch k {
	case KindVLLM, KindSGLang, KindLlama, KindOllama, KindSim:
		return true
	}
	return false
}

// checksModel reports whether this kind refuses a model name it does not list.
func (k Kind) checksModel() bool { return k == KindVLLM || k == KindSim || k == KindOllama }

// dialect is what a server taught us by refusing: the fields we added by ourselves that it does not take. It is
// immutable; learning makes a new one.
type dialect struct {
	dropped             []string // sorted
	maxCompletionTokens bool     // max_tokens is refused, max_completion_tokens is wanted
}

func (d dialect) drops(field string) bool { return slices.Contains(d.dropped, field) }

// without returns the dialect that avoids this field, and false when nothing would change.
func (d dialect) without(field string) (dialect, bool) {
	if field == fieldMaxTokens {
		changed := !d.maxCompletionTokens
		d.maxCompletionTokens = true
		return d, changed
	}
	if d.drops(field) {
		return d, false
	}
	d.dropped = append(slices.Clone(d.dropped), field)
	slices.Sort(d.dropped)
	return d, true
}

type ownField struct {
	name  string
	value any
}

// ownFields are the fields that no user asked for by name: they carry out Stream, Logprobs and TokenIDs in each engine's
// own way.
func ownFields(k Kind, stream bool, s *episode.Sampling) []ownField {
	var out []ownField
	add := func(name string, v any) { out = append(out, ownField{name, v}) }
	// SGLang and llama-server give ids only together with logprobs.
	if s.Logprobs || s.TokenIDs && (k == KindSGLang || k == KindLlama) {
		add(fieldLogprobs, true)
		if k == KindLlama {
			add("top_logprobs", 1) // unsaid, it sends twenty alternatives for every token
		}
	}
	if s.TokenIDs {
		switch k {
		case KindVLLM, KindSim, KindGeneric, KindProxy, KindLMDeploy, KindTGI:
			add("return_token_ids", true)
		case KindSGLang:
			add("return_prompt_token_ids", true)
			add("return_meta_info", true)
		}
	}
	if stream {
		add("stream", true)
		add("stream_options", openai.StreamOptions{IncludeUsage: true})
	}
	return out
}

// droppable are the own fields a reply can do without: what it lacks then, its flags say. A name that holds another comes first.
var droppable = [...]string{"return_token_ids", "return_prompt_token_ids", "return_meta_info", "stream_options", "top_logprobs", fieldPriority, fieldLogprobs}

// wantStream says whether a call's answer is asked for in pieces. SGLang refuses a stream together with what carries the
// token ids; llama-server streams ids of a stop string whose text it holds back, and refuses tools with logprobs.
func wantStream(cfg Config, k Kind, c *episode.Call) bool {
	switch {
	case !cfg.Stream:
		return false
	case k == KindSGLang:
		return !c.Sampling.TokenIDs
	case k == KindLlama:
		return !c.Sampling.TokenIDs && (len(c.Tools) == 0 || !c.Sampling.Logprobs)
	}
	return true
}

var unknownFieldWords = [...]string{
	"unknown", "unrecognized", "unrecognised", "unexpected", "unsupported", "not supported", "not support", "not permitted", "not allowed",
	"forbidden", "invalid field", "additional properties", "no such", "extra_",
}

// refusedField returns the field in the sent body that the server refused as unknown and that this package had added
// by itself, or "" when the refusal is about anything else. max_tokens counts only where the server names its successor.
func refusedField(status int, said, sent []byte) string {
	lower := strings.ToLower(string(said))
	if status == http.StatusServiceUnavailable && strings.Contains(lower, "priority is disabled") { // SGLang
		return fieldPriority
	}
	if status != 400 && status != 422 {
		return ""
	}
	if bytes.Contains(sent, []byte(`"`+fieldMaxTokens+`":`)) && strings.Contains(lower, fieldMaxCompletionTokens) &&
		strings.Contains(lower, "unsupported parameter") {
		return fieldMaxTokens
	}
	if !slices.ContainsFunc(unknownFieldWords[:], func(w string) bool { return strings.Contains(lower, w) }) {
		return ""
	}
	for _, f := range droppable {
		if strings.Contains(lower, f) && bytes.Contains(sent, []byte(`"`+f+`":`)) {
			return f
		}
	}
	return ""
}
