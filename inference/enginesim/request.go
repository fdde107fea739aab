package enginesim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Bounds of the original: samples of one request, prompts of one request, alternatives of one token.
const (
	maxN        = 1024
	maxPrompts  = 1024
	maxTopCount = 20
)

// check refuses what the shared knobs ask for and this engine cannot or may not do.
func (k *knobs) check() error {
	switch {
	case k.ResponseFormat != nil && k.ResponseFormat.Type != "text":
		return unsupported("response_format")
	case given(k.PromptLogprobs):
		return unsupported("prompt_logprobs")
	case given(k.StructuredOutputs):
		return unsupported("structured_outputs")
	case given(k.TruncatePrompt):
		return unsupported("truncate_prompt_tokens")
	case k.N != nil && (*k.N < 1 || *k.N > maxN):
		return badRequest("n", "n must be at least 1 and at most %d, got %d.", maxN, *k.N)
	case k.Temperature != nil && *k.Temperature < 0:
		return badRequest("temperature", "temperature must be non-negative, got %g.", *k.Temperature)
	case k.TopP != nil && (*k.TopP <= 0 || *k.TopP > 1):
		return badRequest("top_p", "top_p must be in (0, 1], got %g.", *k.TopP)
	case k.Temperature != nil && *k.Temperature == 0 && k.samples() > 1:
		return badRequest("n", "n must be 1 when using greedy sampling, got %d.", k.samples())
	case k.MinTokens < 0:
		return badRequest("min_tokens", "min_tokens must be greater than or equal to 0, got %d.", k.MinTokens)
	case slices.Contains(k.Stop, ""):
		return badRequest("stop", "stop cannot contain an empty string.")
	case k.StreamOpts != nil && !k.Stream:
		return badRequest("stream_options", "Stream options can only be defined when `stream=True`.")
	}
	return nil
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func (k *knobs) samples() int {
	if k.N == nil {
		return 1
	}
	return *k.N
}

func (k *knobs) wantsUsage() bool      { return k.StreamOpts != nil && k.StreamOpts.IncludeUsage }
func (k *knobs) wantsRunningUse() bool { return k.wantsUsage() && k.StreamOpts.ContinuousUsage }

// limits works out how long an answer may be. wanted nil = all the context left, at most fallback when that is above 0. exact
// says that the prompt came as ids.
func (e *Engine) limits(k *knobs, prompt []int32, wanted *int, fallback int, exact bool) (limits, error) {
	room := e.config.ContextTokens - len(prompt)
	l := limits{max: room, min: k.MinTokens, stops: k.Stop, stopIDs: k.StopTokenIDs, keepStop: k.IncludeStop, ignoreEOS: k.IgnoreEOS}
	switch {
	case len(prompt) == 0:
		return l, badRequest("prompt", "The decoder prompt cannot be empty")
	case wanted != nil && *wanted < 1:
		return l, badRequest("max_tokens", "max_tokens must be at least 1, got %d.", *wanted)
	case wanted != nil && *wanted > e.config.ContextTokens:
		return l, badRequest("max_tokens", "max_tokens=%d cannot be greater than max_model_len=%d.", *wanted, e.config.ContextTokens)
	case wanted != nil && *wanted > room:
		return l, overflow(e.config.ContextTokens, *wanted, len(prompt), exact)
	case room < 0:
		return l, overflow(e.config.ContextTokens, 0, len(prompt), exact)
	case room == 0:
		return l, overflow(e.config.ContextTokens, 1, len(prompt), exact)
	case wanted != nil:
		l.max = *wanted
	case fallback > 0:
		l.max = min(room, fallback)
	}
	if l.min > l.max {
		return l, badRequest("min_tokens", "min_tokens must be less than or equal to max_tokens=%d, got %d.", l.max, l.min)
	}
	return l, nil
}

func checkMessages(messages []chatMessage) error {
	if len(messages) == 0 {
		return badRequest("messages", "messages must hold at least one message")
	}
	for i, m := range messages {
		switch m.Role {
		case "system", "developer", "user", "assistant", "tool", "function":
		default:
			return badRequest("messages", "messages[%d].role is %q, must be one of system, developer, user, assistant, tool, function", i, m.Role)
		}
		for j, c := range m.ToolCalls {
			if !json.Valid([]byte(c.Function.Arguments)) { // the original parses them to fill its template, and fails
				return badRequest("messages", "messages[%d].tool_calls[%d].function.arguments is not valid JSON", i, j)
			}
		}
	}
	return nil
}

// toolChoice reads tool_choice; tools are offered to the policy unless it is "none".
func (r *chatRequest) toolChoice() (want, error) {
	if !given(r.ToolChoice) {
		return want{none: len(r.Tools) == 0}, nil
	}
	var word string
	if json.Unmarshal(r.ToolChoice, &word) == nil {
		switch {
		case word == "none":
			return want{none: true}, nil
		case len(r.Tools) == 0:
			return want{}, badRequest("tool_choice", "When using `tool_choice`, `tools` must be set.")
		case word == "auto":
			return want{}, nil
		case word == "required":
			return want{must: true}, nil
		}
		return want{}, badRequest("tool_choice", "tool_choice is %q, must be none, auto, required or a named function", word)
	}
	var named struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := json.Unmarshal(r.ToolChoice, &named); err != nil || named.Function.Name == "" {
		return want{}, badRequest("tool_choice", "tool_choice must be none, auto, required or {\"type\": \"function\", \"function\": {\"name\": …}}")
	}
	for _, d := range r.Tools {
		if d.name == named.Function.Name {
			return want{named: d.name}, nil
		}
	}
	return want{}, badRequest("tool_choice", "The tool specified in `tool_choice` does not match any of the specified `tools`")
}

// head is what every answer and chunk of one request begins with.
type head struct {
	id      string
	created int64
}

func (e *Engine) head(prefix string, r *http.Request, c *call) head {
	id := r.Header.Get("X-Request-Id")
	if id == "" {
		id = fmt.Sprintf("%016x", mix(c.flows[0].id))
	}
	return head{id: prefix + id, created: time.Now().Unix()}
}

// session is what ties a request to its episode: part of the sample key.
func session(r *http.Request) string { return r.Header.Get("X-Session-ID") }
