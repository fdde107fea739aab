package enginesim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// responseRequest is as much of OpenAI's responses as this engine does: one answer in text to text.
type responseRequest struct {
	knobs
	Input        json.RawMessage `json:"input"` // a string, or a list of messages
	Instructions *string         `json:"instructions"`
	MaxOutput    *int            `json:"max_output_tokens"`
	Tools        []any           `json:"tools"`
	Previous     *string         `json:"previous_response_id"`
	Background   bool            `json:"background"`
}

func responseFields() []string {
	return []string{"model", "input", "instructions", "max_output_tokens", "temperature", "top_p", "stream", "tools", "tool_choice", "parallel_tool_calls",
		"previous_response_id", "background", "metadata", "store", "text", "reasoning", "include", "truncation", "user", "service_tier"}
}

type responseReply struct {
	ID           string          `json:"id"`
	Object       string          `json:"object"`
	Created      int64           `json:"created_at"`
	Status       string          `json:"status"`
	Error        *string         `json:"error"`
	Incomplete   *reason         `json:"incomplete_details"`
	Instructions *string         `json:"instructions"`
	MaxOutput    *int            `json:"max_output_tokens"`
	Metadata     map[string]any  `json:"metadata"`
	Model        string          `json:"model"`
	Output       []responseItem  `json:"output"`
	Parallel     bool            `json:"parallel_tool_calls"`
	Temperature  *float64        `json:"temperature"`
	ToolChoice   string          `json:"tool_choice"`
	Tools        []any           `json:"tools"`
	TopP         *float64        `json:"top_p"`
	Usage        *responsesUsage `json:"usage"`
}

type reason struct {
	Reason string `json:"reason"`
}

type responseItem struct {
	ID      string         `json:"id"`
	Type    string         `json:"type"`
	Status  string         `json:"status"`
	Role    string         `json:"role"`
	Content []responseText `json:"content"`
}

type responseText struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations []any  `json:"annotations"`
}

type responsesUsage struct {
	Input    int          `json:"input_tokens"`
	In       inputDetail  `json:"input_tokens_details"`
	Output   int          `json:"output_tokens"`
	Out      outputDetail `json:"output_tokens_details"`
	Together int          `json:"total_tokens"`
}

type inputDetail struct {
	promptDetail
	Written int `json:"cache_write_tokens"`
}

type outputDetail struct {
	Reasoning int `json:"reasoning_tokens"`
}

// respond serves POST /v1/responses: the answer is the one that chat would give to the same messages. Nothing is kept: there is no
// earlier response to go on from.
func (e *Engine) respond(w http.ResponseWriter, r *http.Request, body []byte) error {
	var req responseRequest
	if err := e.parse(body, &req, responseFields()...); err != nil {
		return err
	}
	messages, err := e.checkResponse(&req)
	if err != nil {
		return err
	}
	prompt := e.tokens.render(script(messages, nil), true)
	l, err := e.limits(&req.knobs, prompt, req.MaxOutput, 0, false)
	if err != nil {
		return err
	}
	a := e.policy.compose(prompt, e.draw(prompt, &req.knobs, session(r), 0), want{none: true}, l)
	c := e.submit([]*answer{a}, &req.knobs)
	defer e.cancel(c)
	if err := e.finished(r.Context(), c); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, e.response(&req, e.head("resp_", r, c), a, e.usage(c, []int{len(a.ids)}, 1)))
	return nil
}

func (e *Engine) checkResponse(req *responseRequest) ([]chatMessage, error) {
	if err := e.knows(req.Model); err != nil {
		return nil, err
	}
	switch {
	case req.Stream:
		return nil, unsupported("stream")
	case len(req.Tools) > 0:
		return nil, unsupported("tools")
	case req.Previous != nil:
		return nil, unsupported("previous_response_id")
	case req.Background:
		return nil, unsupported("background")
	}
	messages, err := responseMessages(req.Input)
	if err != nil {
		return nil, badRequest("input", "%v", err)
	}
	if req.Instructions != nil {
		messages = append([]chatMessage{{Role: "system", Content: contents{[]string{*req.Instructions}}}}, messages...)
	}
	if err := checkMessages(messages); err != nil {
		return nil, err
	}
	return messages, req.check()
}

// responseMessages reads an input: a string is what the user says.
func responseMessages(input json.RawMessage) ([]chatMessage, error) {
	var text string
	if json.Unmarshal(input, &text) == nil && given(input) {
		return []chatMessage{{Role: "user", Content: contents{[]string{text}}}}, nil
	}
	var items []struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(input, &items); err != nil || items == nil {
		return nil, fmt.Errorf("expected a string or a list of messages")
	}
	var messages []chatMessage
	for i, item := range items {
		if item.Type != "" && item.Type != "message" {
			return nil, fmt.Errorf("input[%d]: item of type %q, this engine takes messages only", i, item.Type)
		}
		var parts []struct{ Type, Text string }
		switch {
		case json.Unmarshal(item.Content, &text) == nil && given(item.Content):
			parts = append(parts, struct{ Type, Text string }{"input_text", text})
		case json.Unmarshal(item.Content, &parts) != nil:
			return nil, fmt.Errorf("input[%d].content: expected a string or a list of text parts", i)
		}
		m := chatMessage{Role: item.Role}
		for j, p := range parts {
			if !strings.HasSuffix(p.Type, "put_text") { // input_text, output_text
				return nil, fmt.Errorf("input[%d].content[%d]: part of type %q, this model takes text only", i, j, p.Type)
			}
			m.Content.parts = append(m.Content.parts, p.Text)
		}
		messages = append(messages, m)
	}
	return messages, nil
}

func (e *Engine) response(req *responseRequest, h head, a *answer, u usage) responseReply {
	out := responseReply{
		ID: h.id, Object: "response", Created: h.created, Status: "completed", Instructions: req.Instructions, MaxOutput: req.MaxOutput, Metadata: map[string]any{},
		Model: e.config.Model, Parallel: true, Temperature: req.Temperature, ToolChoice: "auto", Tools: []any{}, TopP: req.TopP,
		Usage: &responsesUsage{Input: u.PromptTokens, Output: u.CompletionTokens, Together: u.TotalTokens},
	}
	if u.Details != nil {
		out.Usage.In.promptDetail = *u.Details
	}
	if a.finish == "length" {
		out.Status, out.Incomplete = "incomplete", &reason{"max_output_tokens"}
	}
	out.Output = []responseItem{{
		ID: "msg_" + h.id, Type: "message", Status: out.Status, Role: "assistant", Content: []responseText{{"output_text", a.text, []any{}}},
	}}
	return out
}
