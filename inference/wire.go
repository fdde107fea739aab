package inference

import (
	"bytes"
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
	Model          word               `json:"model"`
	Choices        []wireChoice       `json:"choices"`
	Usage          aside[wireUsage]   `json:"usage"`
	Timings        aside[wireTimings] `json:"timings"`          // llama-server
	PromptTokenIDs []int32            `json:"prompt_token_ids"` // vLLM: top level
	Error          json.RawMessage    `json:"error"`
	Metadata       aside[struct {
		WeightVersion json.RawMessage `json:"weight_version"` // SGLang: a number or any name
	}] `json:"metadata"`
	XGroq aside[struct {
		Usage aside[wireUsage] `json:"usage"`
	}] `json:"x_groq"`
}

// aside is an object beside the answer itself: nil where a server gave none, or something of another form. A good answer is not
// thrown away for its bookkeeping.
type aside[T any] struct{ of *T }

// UnmarshalJSON reads the object, if it is one.
func (a *aside[T]) UnmarshalJSON(data []byte) error {
	v := new(T)
	if data[0] == '{' && json.Unmarshal(data, v) == nil {
		a.of = v
	}
	return nil
}

type wireChoice struct {
	Index          *int             `json:"index"`
	Message        *wireMessage     `json:"message"`
	Delta          *wireMessage     `json:"delta"`
	Text           *text            `json:"text"` // legacy completions
	FinishReason   *word            `json:"finish_reason"`
	StopReason     json.RawMessage  `json:"stop_reason"`  // vLLM: string or token id
	MatchedStop    json.RawMessage  `json:"matched_stop"` // SGLang: the same
	TokenIDs       []int32          `json:"token_ids"`
	Weights        []wireWeights    `json:"weight_versions"`  // vLLM's generate route
	PromptTokenIDs []int32          `json:"prompt_token_ids"` // SGLang and legacy completions: in the choice
	Logprobs       *wireLogprobs    `json:"logprobs"`
	MetaInfo       *wireMeta        `json:"meta_info"`
	Usage          aside[wireUsage] `json:"usage"` // some servers put it here
	Error          json.RawMessage  `json:"error"` // OpenRouter: the provider behind it failed
}

// wireWeights says that the sampled tokens [Start, End) are of one weight version.
type wireWeights struct {
	Version json.RawMessage `json:"version"`
	Start   int             `json:"start"`
	End     int             `json:"end"`
}

type wireMessage struct {
	Content          *content            `json:"content"`
	Refusal          *text               `json:"refusal"`
	Reasoning        *text               `json:"reasoning"`
	ReasoningContent *text               `json:"reasoning_content"`
	ReasoningDetails wireDetails         `json:"reasoning_details"` // OpenRouter: in general what stands in reasoning too
	ToolCalls        []wireToolCall      `json:"tool_calls"`
	FunctionCall     aside[wireFunction] `json:"function_call"` // OpenAI's form before tool_calls
}

type wireDetails []struct {
	Text    *text `json:"text"`
	Summary *text `json:"summary"`
}

// UnmarshalJSON reads the details, if it can.
func (d *wireDetails) UnmarshalJSON(data []byte) error {
	type list wireDetails
	if json.Unmarshal(data, (*list)(d)) != nil {
		*d = nil
	}
	return nil
}

type wireToolCall struct {
	Index        *int         `json:"index"` // null in SGLang's whole answers
	ID           word         `json:"id"`
	Type         word         `json:"type"`
	Function     wireFunction `json:"function"`
	wireFunction              // a call without its function wrapper
}

type wireFunction struct {
	Name      text `json:"name"`
	Arguments text `json:"arguments"`
}

// orElse fills what is empty from another one.
func (f wireFunction) orElse(g wireFunction) wireFunction {
	if len(f.Name) == 0 {
		f.Name = g.Name
	}
	if len(f.Arguments) == 0 {
		f.Arguments = g.Arguments
	}
	return f
}

// wireUsage has the names of chat completions first and those of other routes, which gateways pass through, second.
type wireUsage struct {
	Prompt            *count           `json:"prompt_tokens"`
	Completion        *count           `json:"completion_tokens"`
	Total             *count           `json:"total_tokens"`
	Details           aside[wireParts] `json:"prompt_tokens_details"`
	CompletionDetails aside[wireParts] `json:"completion_tokens_details"`
	Input             *count           `json:"input_tokens"`
	Output            *count           `json:"output_tokens"`
	InputDetails      aside[wireParts] `json:"input_tokens_details"`
	CacheHit          *count           `json:"prompt_cache_hit_tokens"` // DeepSeek
	Cached            *count           `json:"cached_tokens"`           // Moonshot
}

type wireParts struct {
	Cached    *count `json:"cached_tokens"`
	Reasoning *count `json:"reasoning_tokens"`
}

// generated is the number of tokens that were generated. xAI leaves the thinking out of completion_tokens: there the total is
// prompt, completion and reasoning tokens, where everyone else's is prompt and completion.
func (u *wireUsage) generated() *count {
	d := u.CompletionDetails
	if u.Prompt == nil || u.Completion == nil || u.Total == nil || d.of == nil || d.of.Reasoning == nil || *d.of.Reasoning <= 0 {
		return u.Completion
	}
	if all := *u.Completion + *d.of.Reasoning; *u.Completion >= 0 && *u.Total == *u.Prompt+all {
		return &all
	}
	return u.Completion
}

// wireTimings is llama-server's own account, which is there when usage was not asked for.
type wireTimings struct {
	Cached    *count `json:"cache_n"`
	Prompt    *count `json:"prompt_n"` // without the cached ones
	Generated *count `json:"predicted_n"`
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

// word is a short text. A number is its digits; of an object, SGLang's own form of a finish reason, its type counts.
type word string

// UnmarshalJSON reads a word.
func (w *word) UnmarshalJSON(data []byte) error {
	var o struct {
		Type text `json:"type"`
	}
	if data[0] == '{' && json.Unmarshal(data, &o) == nil && len(o.Type) > 0 {
		*w = word(o.Type)
		return nil
	}
	var t text
	err := t.UnmarshalJSON(data)
	if t != nil { // null leaves it alone
		*w = word(t)
	}
	return err
}

type wireLogprobs struct {
	Content []wireLogprob `json:"content"`
	Refusal []wireLogprob `json:"refusal"` // OpenAI: of a refusal's tokens
	// Legacy completions: flat lists.
	TokenLogprobs []*nats   `json:"token_logprobs"`
	Tokens        []tokenID `json:"tokens"`
}

// nats is a log-probability as some server wrote it: a number, of any size, or a text of one ("-inf"). What is none is NaN, not known: a good answer is
// not thrown away for it.
type nats float32

// UnmarshalJSON reads the value.
func (n *nats) UnmarshalJSON(data []byte) error {
	v, err := strconv.ParseFloat(string(bytes.Trim(data, `"`)), 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // one out of range is infinite
		v = math.NaN()
	}
	*n = nats(v)
	return nil
}

type wireLogprob struct {
	Value *nats   `json:"logprob"` // nil = null: not known, which is not certainty
	ID    *int32  `json:"id"`      // llama-server
	Token tokenID `json:"token"`
}

// tokenID is the id in a token that is written "token_id:N" (vLLM's return_tokens_as_token_ids), -1 in any other.
type tokenID int32

// UnmarshalJSON reads the id, if the token is one.
func (t *tokenID) UnmarshalJSON(data []byte) error {
	*t = -1
	if rest, ok := bytes.CutPrefix(data, []byte(`"token_id:`)); ok {
		if n, err := strconv.ParseInt(string(bytes.TrimSuffix(rest, []byte(`"`))), 10, 32); err == nil {
			*t = tokenID(n)
		}
	}
	return nil
}

// wireMeta is SGLang's return_meta_info.
type wireMeta struct {
	Prompt     *count `json:"prompt_tokens"`
	Completion *count `json:"completion_tokens"`
	Cached     *count `json:"cached_tokens"` // always there, where usage has it only behind a flag
	// OutputTokenLogprobs is a list of [logprob, token id, text or null].
	OutputTokenLogprobs []sglangToken   `json:"output_token_logprobs"`
	WeightVersion       json.RawMessage `json:"weight_version"`
}

type sglangToken struct {
	id    int32
	value *nats
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
