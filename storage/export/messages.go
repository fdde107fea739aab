package export

import (
	"bytes"
	"encoding/json"

	"tranche/storage"
)

// Message is a chat message as transformers' chat templates take it. In JSONL a key that the row does not have is absent, but for content, which is null
// then; in Parquet, where all messages have one type, it is null. Null is never "".
type Message struct {
	Role             string     `json:"role" parquet:"role"`
	Content          *string    `json:"content" parquet:"content,optional"`
	ReasoningContent *string    `json:"reasoning_content,omitempty" parquet:"reasoning_content,optional"`
	Name             *string    `json:"name,omitempty" parquet:"name,optional"`
	ToolCallID       *string    `json:"tool_call_id,omitempty" parquet:"tool_call_id,optional"`
	ToolCalls        []ToolCall `json:"tool_calls,omitzero" parquet:"tool_calls,optional,list"`
}

// ToolCall is one call of a message, in OpenAI's shape.
type ToolCall struct {
	ID       string   `json:"id" parquet:"id"`
	Type     string   `json:"type" parquet:"type"`
	Function Function `json:"function" parquet:"function"`
}

// Function is what is called. Arguments is the text that the model wrote, valid JSON or not.
type Function struct {
	Name      string `parquet:"name"`
	Arguments string `parquet:"arguments"`

	object bool // in JSON the arguments are the object that the text holds
}

// MarshalJSON writes the arguments as text or as an object.
func (f Function) MarshalJSON() ([]byte, error) {
	var arguments any = f.Arguments
	if f.object {
		arguments = json.RawMessage(f.Arguments)
	}
	return encode(struct {
		Name      string `json:"name"`
		Arguments any    `json:"arguments"`
	}{f.Name, arguments})
}

// messagesOf converts messages; false when arguments are to be objects and a call's are none.
func messagesOf(in []storage.Message, arguments string) ([]Message, bool) {
	out := make([]Message, len(in))
	for i, m := range in {
		out[i] = Message{Role: value(m.Role), Content: m.Content, ReasoningContent: m.ReasoningContent, Name: m.Name, ToolCallID: m.ToolCallID}
		if m.ToolCalls == nil {
			continue
		}
		out[i].ToolCalls = make([]ToolCall, len(m.ToolCalls))
		for j, c := range m.ToolCalls {
			if arguments == AsObject && !isObject(c.Function.Arguments) {
				return nil, false
			}
			out[i].ToolCalls[j] = ToolCall{c.ID, c.Type, Function{c.Function.Name, c.Function.Arguments, arguments == AsObject}}
		}
	}
	return out, true
}

func isObject(text string) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal([]byte(text), &o) == nil && o != nil
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// split parts the prompt from what was said since.
func split(r *storage.Row) (prompt, rest []storage.Message) {
	n := min(max(int(r.NumPromptMessages), 0), len(r.Messages))
	return r.Messages[:n], r.Messages[n:]
}

// real is a number that is written with its point, as 1.0: readers of JSON that look at the first rows alone would else take a column of rewards for
// whole numbers.
type real float64

// MarshalJSON writes the shortest form with a point or an exponent.
func (r real) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(float64(r)) // refuses what is no finite number
	if err == nil && !bytes.ContainsAny(text, ".eE") {
		text = append(text, ".0"...)
	}
	return text, err
}

func realOf(v *float64) *real { return (*real)(v) }
