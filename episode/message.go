package episode

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Roles of a chat message, in OpenAI's terms.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Message is one chat message. A nil pointer means the field was null or absent; the empty string means it was "".
// The two are different on the wire and in storage.
type Message struct {
	Role             string     `json:"role"`
	Content          *string    `json:"content"`
	ReasoningContent *string    `json:"reasoning_content,omitempty"`
	Name             *string    `json:"name,omitempty"`
	ToolCallID       *string    `json:"tool_call_id,omitempty"`
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"`

	// Tagged says how the reasoning stood inside the content on the wire; nil = it did not.
	Tagged *Tagged `json:"-"`

	// Written is the call that stands in the content, of a model that writes its calls as text; nil = there is none.
	Written *Written `json:"-"`
}

// Written is a call that was read out of a text.
type Written struct {
	Call   ToolCall
	Unread string // why it could not be read, for the model; "" = it could
}

// Tagged is how reasoning stood inside a content: behind Open (<think>, or "" where the chat template had written the tag),
// and before </think>, unless the answer was cut inside it.
type Tagged struct {
	Open   string
	Closed bool
}

// ToolCall is a model's wish to run a tool. Arguments is the raw text the model wrote, valid JSON or not.
type ToolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function Function `json:"function"`
}

// Function names the tool and carries its raw argument text.
type Function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// withCallIDs gives the tool calls of a turn's message that have no id, or that of one before, another: nine letters and digits, which is the only form that
// templates of Mistral take. made says that some were given.
func withCallIDs(m Message, turn int) (named Message, made bool) {
	if len(m.ToolCalls) == 0 {
		return m, false
	}
	used := map[string]bool{"": true}
	calls := slices.Clone(m.ToolCalls)
	for i, c := range calls {
		for next := 100*turn + i; used[calls[i].ID]; next++ {
			calls[i].ID = fmt.Sprintf("call%05d", next)
		}
		made = made || calls[i].ID != c.ID
		used[calls[i].ID] = true
	}
	m.ToolCalls = calls
	return m, made
}

// Text returns the content, or "" when it is null.
func (m Message) Text() string {
	if m.Content == nil {
		return ""
	}
	return *m.Content
}

// OnlyThinking reports whether the message holds reasoning and says nothing.
func (m Message) OnlyThinking() bool {
	return m.ReasoningContent != nil && *m.ReasoningContent != "" && m.Text() == "" && len(m.ToolCalls) == 0
}

// Bytes is the size of everything in the message that a server has to tokenise, in bytes.
func (m Message) Bytes() int {
	n := len(m.Role) + len(m.Text())
	if m.ReasoningContent != nil {
		n += len(*m.ReasoningContent)
	}
	for _, c := range m.ToolCalls {
		n += len(c.ID) + len(c.Function.Name) + len(c.Function.Arguments)
	}
	return n
}

// Unnamed stands in for the name of a tool call that came without one, in what is sent.
const Unnamed = "unnamed"

// Sendable returns the message as a server may see it again: tool-call arguments that are no JSON object are replaced
// by {}, a missing tool name by Unnamed (a server that checks them would refuse every later turn). Reasoning that had stood inside
// the content stands there again: the server has that prefix in its cache. The stored message keeps what the model wrote.
func (m Message) Sendable() Message {
	m = m.retagged()
	if m.Name != nil && *m.Name == "" {
		m.Name = Ptr(Unnamed)
	}
	if !slices.ContainsFunc(m.ToolCalls, unsendable) {
		return m
	}
	m.ToolCalls = slices.Clone(m.ToolCalls)
	for i := range m.ToolCalls {
		f := &m.ToolCalls[i].Function
		if !isObject(f.Arguments) {
			f.Arguments = "{}"
		}
		if f.Name == "" {
			f.Name = Unnamed
		}
	}
	return m
}

// retagged puts reasoning back into the content it was taken from.
func (m Message) retagged() Message {
	if m.Tagged == nil || m.ReasoningContent == nil {
		return m
	}
	s := m.Tagged.Open + *m.ReasoningContent
	if m.Tagged.Closed {
		s += "</think>" + m.Text()
	}
	m.Content, m.ReasoningContent, m.Tagged = &s, nil, nil
	return m
}

func unsendable(c ToolCall) bool { return c.Function.Name == "" || !isObject(c.Function.Arguments) }

func isObject(s string) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal([]byte(s), &o) == nil && o != nil
}

// Ptr returns a pointer to a copy of v, for the optional fields of this package.
func Ptr[T any](v T) *T { return &v }
