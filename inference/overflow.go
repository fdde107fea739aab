package inference

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	openai "github.com/sashabaranov/go-openai"
)

func canBeOverflow(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge || status == http.StatusUnprocessableEntity
}

// overflowWords are what servers write when a prompt, or a prompt and its max_tokens, do not fit the context. Each is
// from one engine's source or answers: OpenAI and vLLM, vLLM 0.32, vLLM's decoder, llama-server, SGLang, TensorRT-LLM,
// gateways.
var overflowWords = [...]string{
	"maximum context length",
	"model's context length",
	"cannot be greater than max_model_len",
	"maximum model length",
	"max_model_len",
	"exceeds the available context size",
	"max_seq_len",
	"maximum prompt length",
	"context_length_exceeded",
	"context window",
	"prompt is too long",
	"prompt too long",                               // mlx
	"context length exceeded",                       // gateways, as plain text
	"tokens) exceeds the maximum allowed length",    // SGLang
	"`inputs` tokens + `max_new_tokens` must be <=", // TGI
	"`inputs` must have less than",                  // TGI
	"should not exceed max_num_tokens",              // TensorRT-LLM
	"exceeds the maximum number of tokens allowed",  // Gemini
	"exceeds the session_len",                       // LMDeploy
}

// Where the numbers stand. A limit that is one of prompts alone (SGLang's input length, TGI's inputs, Gemini, mlx) is none of the context: answers would be
// cut to it. The first pattern that matches wins, so the more exact ones come first.
var (
	limitPatterns = compile(
		`maximum context length (?:is|of) (\d+)`,
		`model's context length is only (\d+)`,
		`model's context length \((\d+)`,
		`max_model_len\s*[=(:]\s*(\d+)`,
		`maximum model length of (\d+)`,
		`available context size \((\d+)`,
		`max_seq_len\s*\((\d+)`,
		`maximum prompt length is (\d+)`,
		`> (\d+) maximum`,
		"`inputs` tokens \\+ `max_new_tokens` must be <= (\\d+)",
		`max_num_tokens \((\d+)\)`,
		`session_len (\d+)`,
	)
	promptPatterns = compile(
		`\((\d+) in (?:the|your) (?:messages|prompt)`,
		`(\d+) tokens from the input messages`,
		`request has (\d+) input tokens`,
		`messages resulted in (\d+)`,
		`you passed (\d+) input tokens`,
		`the input \((\d+) tokens\)`,
		`prompt \(length (\d+)\)`,
		`request \((\d+) tokens\)`,
		`request contains (\d+)`,
		`prompt length \((\d+)`,
		`prompt is too long: (\d+)`,
		`input length \((\d+) tokens\)`,
		"given: (\\d+) `inputs` tokens",
		`must have less than \d+ tokens\. given: (\d+)`,
		`input token count \((\d+)\)`,
		`input tokens \((\d+)\)`,
		`prompt too long: (\d+)`,
	)
)

func compile(patterns ...string) []*regexp.Regexp {
	out := make([]*regexp.Regexp, len(patterns))
	for i, p := range patterns {
		out[i] = regexp.MustCompile(p)
	}
	return out
}

// overflow reports whether a refusal is about the context length: by the words known of servers, whose numbers are known to mean what they say, else by
// those that this server used for it before, else by numbers that fit nothing else.
func (f failure) overflow(status int, said openai.APIError) (limit, prompt int, ok bool) {
	if !canBeOverflow(status) {
		return 0, 0, false
	}
	if limit, prompt, ok = overflow(said, f.body); ok {
		return limit, prompt, true
	}
	if limit, prompt, ok = wordedAs(f.wordings, status, said); ok {
		return limit, prompt, true
	}
	if numbersTell(said.Message, f.limit, f.sent) {
		return f.limit, 0, true
	}
	return 0, 0, false
}

// overflow reports whether a refusal is about the context length by the words known of servers, with the limit and the length of our prompt in tokens
// where the server names them (else 0). Only exact token counts are taken: vLLM may count characters, or stop counting and
// say "at least".
func overflow(said openai.APIError, body []byte) (limit, prompt int, ok bool) {
	message := strings.ToLower(said.Message)
	code, _ := said.Code.(string)
	ok = said.Type == "exceed_context_size_error" || code == "context_length_exceeded"
	for _, w := range overflowWords {
		ok = ok || strings.Contains(message, w)
	}
	if !ok {
		return 0, 0, false
	}
	if prompt, limit = llamaNumbers(body); limit > 0 {
		return limit, prompt, true
	}
	return firstNumber(limitPatterns, message), firstNumber(promptPatterns, message), true
}

// llamaNumbers reads the two fields llama-server adds to its error object.
func llamaNumbers(body []byte) (prompt, limit int) {
	var o struct {
		Error struct {
			Prompt int `json:"n_prompt_tokens"`
			Limit  int `json:"n_ctx"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &o) // another engine's error: zeros
	return o.Error.Prompt, o.Error.Limit
}

func firstNumber(patterns []*regexp.Regexp, s string) int {
	for _, p := range patterns {
		if m := p.FindStringSubmatch(s); m != nil {
			n, err := strconv.Atoi(m[1])
			if err == nil {
				return n
			}
		}
	}
	return 0
}
