package inference

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	openai "github.com/sashabaranov/go-openai"
)

// This file is the shape of an answer on the wire, and the line between go-openai and ourselves.
//
// From github.com/sashabaranov/go-openai we take the types that carry every fact we need: Tool (checking tool
// definitions), Model (the model list), FinishReason (the known values), StreamOptions, APIError (what a server said
// when it refused). We do not use its client, its requests or its answers, because they lose facts that cannot be won
// back: a temperature of 0 and empty content are not sent; a null logprob is read as 0, which means certainty; token
// ids, stop_reason and `reasoning` are dropped; an error carries no headers, so Retry-After is out of reach; a stream
// that breaks off looks like one that ended; more than 300 comment lines end a stream.

// wireAnswer is a whole chat completion, a completion, or one chunk of either: they differ only in what is present.
type wireAnswer struct {
	Model          string          `json:"model"`
	Choices        []wireChoice    `json:"choices"`
	Usage          *wireUsage      `json:"usage"`
	PromptTokenIDs []int32         `json:"prompt_token_ids"` // vLLM: top level
	Error          json.RawMessage `json:"error"`
	Metadata       *struct {
		WeightVersion json.RawMessage `json:"weight_version"` // SGLang: a number or any name
	} `json:"metadata"`
	XGroq *struct {
		Usage *wireUsage `json:"usage"`
	} `json:"x_groq"`
}

type wireChoice struct {
	Index          *int            `json:"index"`
	Message        *wireMessage    `json:"message"`
	Delta          *wireMessage    `json:"delta"`
	Text           *text           `json:"text"` // legacy completions
	FinishReason   *string         `json:"finish_reason"`
	StopReason     json.RawMessage `json:"stop_reason"`  // vLLM: string or token id
	MatchedStop    json.RawMessage `json:"matched_stop"` // SGLang: the same
	TokenIDs       []int32         `json:"token_ids"`
	PromptTokenIDs []int32         `json:"prompt_token_ids"` // SGLang and legacy completions: in the choice
	Logprobs       *wireLogprobs   `json:"logprobs"`
	MetaInfo       *wireMeta       `json:"meta_info"`
	Usage          *wireUsage      `json:"usage"` // some servers put it here
}

type wireMessage struct {
	Content          *text          `json:"content"`
	Refusal          *text          `json:"refusal"`
	Reasoning        *text          `json:"reasoning"`
	ReasoningContent *text          `json:"reasoning_content"`
	ToolCalls        []wireToolCall `json:"tool_calls"`
}

type wireToolCall struct {
	Index    *int   `json:"index"` // null in SGLang's whole answers
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      text `json:"name"`
		Arguments text `json:"arguments"`
	} `json:"function"`
	Arguments *text `json:"arguments"` // a call without its function wrapper
	Name      *text `json:"name"`
}

type wireUsage struct {
	Prompt     *count `json:"prompt_tokens"`
	Completion *count `json:"completion_tokens"`
	Details    *struct {
		Cached *count `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CacheHit *count `json:"prompt_cache_hit_tokens"` // DeepSeek
	Cached   *count `json:"cached_tokens"`           // Moonshot
}

// count is a number of tokens as some server wrote it. 10.0 is 10; what is no number of tokens (negative, a fraction, text, over
// 31 bits) is unknown, -1: a good answer is not thrown away for its bookkeeping.
type count int32

func (c *count) UnmarshalJSON(b []byte) error {
	*c = -1
	if v, err := strconv.ParseFloat(string(b), 64); err == nil && v >= 0 && v <= math.MaxInt32 && v == math.Trunc(v) {
		*c = count(v)
	}
	return nil
}

type wireLogprobs struct {
	Content []wireLogprob `json:"content"`
	// Legacy completions: a flat list.
	TokenLogprobs []*float32 `json:"token_logprobs"`
}

type wireLogprob struct {
	Value *float32 `json:"logprob"` // nil = null: not known, which is not certainty
	ID    *int32   `json:"id"`      // llama-server
}

// wireMeta is SGLang's return_meta_info.
type wireMeta struct {
	// OutputTokenLogprobs is a list of [logprob, token id, text or null].
	OutputTokenLogprobs []sglangToken   `json:"output_token_logprobs"`
	WeightVersion       json.RawMessage `json:"weight_version"`
}

type sglangToken struct {
	id    int32
	value *float32
}

func (t *sglangToken) UnmarshalJSON(data []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if len(parts) < 2 {
		return fmt.Errorf("a token of meta_info.output_token_logprobs has %d parts; expected logprob, id, text", len(parts))
	}
	return errors.Join(json.Unmarshal(parts[0], &t.value), json.Unmarshal(parts[1], &t.id))
}

// modelCard is one entry of GET /v1/models: go-openai's Model with the figures engines add.
type modelCard struct {
	openai.Model
	Aliases     []string `json:"aliases"`
	MaxModelLen *int     `json:"max_model_len"`
	Meta        *struct {
		ContextTokens int `json:"n_ctx"`
	} `json:"meta"`
}
