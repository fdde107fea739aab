package enginesim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// What comes in. Unknown fields are ignored, as vLLM ignores them; pointers tell "absent" from zero.

// knobs are the request fields that both generate routes share.
type knobs struct {
	Model        *string  `json:"model"`
	N            *int     `json:"n"`
	Seed         *int64   `json:"seed"`
	Temperature  *float64 `json:"temperature"`
	TopP         *float64 `json:"top_p"`
	MaxTokens    *int     `json:"max_tokens"`
	MinTokens    int      `json:"min_tokens"`
	Stop         oneOrAll `json:"stop"`
	StopTokenIDs []int32  `json:"stop_token_ids"`
	IncludeStop  bool     `json:"include_stop_str_in_output"`
	IgnoreEOS    bool     `json:"ignore_eos"`
	Stream       bool     `json:"stream"`
	StreamOpts   *struct {
		IncludeUsage    bool `json:"include_usage"`
		ContinuousUsage bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	ReturnTokenIDs bool   `json:"return_token_ids"`
	CacheSalt      string `json:"cache_salt"`
	Priority       int    `json:"priority"`

	// What this engine cannot do and therefore refuses.
	ResponseFormat *struct {
		Type string `json:"type"`
	} `json:"response_format"`
	PromptLogprobs    json.RawMessage `json:"prompt_logprobs"`
	StructuredOutputs json.RawMessage `json:"structured_outputs"`
	TruncatePrompt    json.RawMessage `json:"truncate_prompt_tokens"`
}

type chatRequest struct {
	knobs
	Messages            []chatMessage   `json:"messages"`
	Tools               []toolDef       `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Logprobs            bool            `json:"logprobs"`
	TopLogprobs         *int            `json:"top_logprobs"`
	ContinueFinal       bool            `json:"continue_final_message"`
	AddGeneration       *bool           `json:"add_generation_prompt"`
	ChatTemplate        *string         `json:"chat_template"`

	// SGLang's.
	InputIDs     []int32 `json:"input_ids"`
	ReturnPrompt bool    `json:"return_prompt_token_ids"`
	ReturnMeta   bool    `json:"return_meta_info"`
}

type completionRequest struct {
	knobs
	Prompt   promptField `json:"prompt"`
	Logprobs *int        `json:"logprobs"`
	Echo     bool        `json:"echo"`
	Suffix   *string     `json:"suffix"`
	BestOf   *int        `json:"best_of"`
}

// What OpenAI's own interface knows. A strict server takes nothing else, and most of what other engines add breaks there.

func sharedFields() []string {
	return []string{"model", "n", "seed", "temperature", "top_p", "max_tokens", "stop", "stream", "stream_options", "logprobs", "logit_bias",
		"presence_penalty", "frequency_penalty", "user"}
}

func chatFields() []string {
	return append(sharedFields(), "messages", "tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens", "top_logprobs", "response_format",
		"reasoning_effort", "metadata", "store", "service_tier", "modalities", "prediction", "verbosity", "safety_identifier", "prompt_cache_key")
}

func completionFields() []string {
	return append(sharedFields(), "prompt", "echo", "suffix", "best_of")
}

type tokenizeRequest struct {
	Model         *string       `json:"model"`
	Prompt        *string       `json:"prompt"`
	Content       *string       `json:"content"` // llama-server's name of a text
	Messages      []chatMessage `json:"messages"`
	Tools         []toolDef     `json:"tools"`
	AddGeneration *bool         `json:"add_generation_prompt"`
	TokenStrings  bool          `json:"return_token_strs"`
}

type detokenizeRequest struct {
	Model  *string `json:"model"`
	Tokens []int32 `json:"tokens"`
}

// chatMessage is one message of a request.
type chatMessage struct {
	Role      string     `json:"role"`
	Content   contents   `json:"content"`
	ToolCalls []toolCall `json:"tool_calls"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// toolDef is a tool as the request declares it; raw is its JSON, compacted, as the template shows it.
type toolDef struct {
	raw    json.RawMessage
	name   string
	schema schema
}

type schema struct {
	Type       any               `json:"type"` // a string or a list of strings
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
	Enum       []json.RawMessage `json:"enum"`
	Items      *schema           `json:"items"`
}

func (d *toolDef) UnmarshalJSON(b []byte) error {
	var w struct {
		Type     string `json:"type"`
		Function *struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return fmt.Errorf("tool: %w", err)
	}
	if w.Function == nil || w.Function.Name == "" {
		return errors.New("tool: expected {\"type\": \"function\", \"function\": {\"name\": …}}")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, b); err != nil {
		return fmt.Errorf("tool %s: %w", w.Function.Name, err)
	}
	d.raw, d.name = compact.Bytes(), w.Function.Name
	// A schema beyond this subset (anyOf, booleans, references) is legal: its arguments are then written without a guide.
	if json.Unmarshal(w.Function.Parameters, &d.schema) != nil {
		d.schema = schema{}
	}
	return nil
}

// contents is a message's content: a string, null, or a list of text parts.
type contents struct{ parts []string }

func (c *contents) UnmarshalJSON(b []byte) error {
	c.parts = nil
	if string(b) == "null" {
		return nil
	}
	var s string
	if json.Unmarshal(b, &s) == nil {
		c.parts = []string{s}
		return nil
	}
	var parts []struct{ Type, Text string }
	if err := json.Unmarshal(b, &parts); err != nil {
		return errors.New("content: expected a string, null or a list of text parts")
	}
	for i, p := range parts {
		if p.Type != "text" {
			return fmt.Errorf("content[%d]: part of type %q, this model takes text only", i, p.Type)
		}
		c.parts = append(c.parts, p.Text)
	}
	return nil
}

func (c contents) text() string {
	if len(c.parts) == 1 {
		return c.parts[0]
	}
	var b bytes.Buffer
	for i, p := range c.parts {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p)
	}
	return b.String()
}

// oneOrAll is a string or a list of strings.
type oneOrAll []string

func (o *oneOrAll) UnmarshalJSON(b []byte) error {
	*o = nil
	if string(b) == "null" {
		return nil
	}
	var s string
	if json.Unmarshal(b, &s) == nil {
		*o = oneOrAll{s}
		return nil
	}
	if json.Unmarshal(b, (*[]string)(o)) != nil {
		return errors.New("expected a string or a list of strings")
	}
	return nil
}

// promptField is a completion's prompt: a string, a list of strings, a list of ids, or a list of lists of ids. texts and ids
// are never both set.
type promptField struct {
	texts []string
	ids   [][]int32
}

func (p *promptField) UnmarshalJSON(b []byte) error {
	*p = promptField{}
	var one string
	var flat []int32
	switch {
	case json.Unmarshal(b, &one) == nil && string(b) != "null":
		p.texts = []string{one}
	case json.Unmarshal(b, &p.texts) == nil:
	case json.Unmarshal(b, &flat) == nil:
		p.texts, p.ids = nil, [][]int32{flat}
	case json.Unmarshal(b, &p.ids) == nil:
		p.texts = nil
	default:
		return errors.New("prompt: expected a string, a list of strings, a list of token ids or a list of such lists")
	}
	return nil
}

// What goes out, in vLLM's shapes.

type usage struct {
	PromptTokens     int           `json:"prompt_tokens"`
	TotalTokens      int           `json:"total_tokens"`
	CompletionTokens int           `json:"completion_tokens"`
	Details          *promptDetail `json:"prompt_tokens_details"`
}

type promptDetail struct {
	CachedTokens int `json:"cached_tokens"`
}

type chatReply struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Created     int64        `json:"created"`
	Model       string       `json:"model"`
	Choices     []chatChoice `json:"choices"`
	ServiceTier *string      `json:"service_tier"`
	Fingerprint *string      `json:"system_fingerprint"`
	Usage       usage        `json:"usage"`
	Metadata    *metadata    `json:"metadata,omitempty"`
	PromptLogpr *string      `json:"prompt_logprobs"`
	PromptIDs   []int32      `json:"prompt_token_ids"`
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  replyMessage  `json:"message"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   string        `json:"finish_reason"`
	Stop     any           `json:"stop_reason"`
	TokenIDs []int32       `json:"token_ids"`

	PromptIDs []int32     `json:"prompt_token_ids,omitempty"` // SGLang's
	Meta      *sglangMeta `json:"meta_info,omitempty"`
}

type replyMessage struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Refusal   *string    `json:"refusal"`
	ToolCalls []toolCall `json:"tool_calls"`
	Reasoning *string    `json:"reasoning_content"`
}

type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
}

type chatLogprob struct {
	ID      *int32       `json:"id,omitempty"` // llama-server's
	Token   string       `json:"token"`
	Logprob float64      `json:"logprob"`
	Bytes   []int        `json:"bytes"`
	Top     []topLogprob `json:"top_logprobs"`
}

type topLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

type chatChunk struct {
	ID        string        `json:"id"`
	Object    string        `json:"object"`
	Created   int64         `json:"created"`
	Model     string        `json:"model"`
	Choices   []chunkChoice `json:"choices"`
	Usage     *usage        `json:"usage,omitempty"`
	Metadata  *metadata     `json:"metadata,omitempty"`
	PromptIDs []int32       `json:"prompt_token_ids,omitempty"`
}

type chunkChoice struct {
	Index    int           `json:"index"`
	Delta    delta         `json:"delta"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
	Stop     any           `json:"stop_reason,omitempty"`
	TokenIDs []int32       `json:"token_ids,omitempty"`
}

type delta struct {
	Role      string      `json:"role,omitempty"`
	Content   *string     `json:"content,omitempty"`
	ToolCalls []callDelta `json:"tool_calls,omitempty"`
}

type callDelta struct {
	Index    int    `json:"index"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type completionReply struct {
	ID          string             `json:"id"`
	Object      string             `json:"object"`
	Created     int64              `json:"created"`
	Model       string             `json:"model"`
	Choices     []completionChoice `json:"choices"`
	ServiceTier *string            `json:"service_tier,omitempty"`
	Usage       *usage             `json:"usage,omitempty"`
	Metadata    *metadata          `json:"metadata,omitempty"`
}

type completionChoice struct {
	Index    int                 `json:"index"`
	Text     string              `json:"text"`
	Logprobs *completionLogprobs `json:"logprobs"`
	Finish   *string             `json:"finish_reason"`
	Stop     any                 `json:"stop_reason"`
	// The ids, when asked for: null otherwise, as on the wire of the original.
	TokenIDs  []int32 `json:"token_ids"`
	PromptIDs []int32 `json:"prompt_token_ids"`
}

type completionLogprobs struct {
	Offsets  []int                `json:"text_offset"`
	Logprobs []float64            `json:"token_logprobs"`
	Tokens   []string             `json:"tokens"`
	Top      []map[string]float64 `json:"top_logprobs"`
}
