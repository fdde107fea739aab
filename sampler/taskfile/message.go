package taskfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tranche/episode"
)

// roleDeveloper is OpenAI's newer name for system; some servers tell the two apart, so it goes out as it is.
const roleDeveloper = "developer"

// messages reads a message list into the task. A list with fields that are not sent is also kept in Extra as it was.
func (b *builder) messages(field string, raw json.RawMessage) {
	given := raw
	raw = unquoted(raw, '[')
	var list []json.RawMessage
	if first(raw) != '[' || json.Unmarshal(raw, &list) != nil {
		b.wrong(field, "a list of messages", raw)
		return
	}
	if len(list) == 0 {
		b.fault(field, "is an empty list; expected at least one message")
		return
	}
	dropped := false
	for i, raw := range list {
		m, rest := b.message(fmt.Sprintf("%s[%d]", field, i), raw)
		b.task.Messages = append(b.task.Messages, m)
		for _, name := range rest {
			b.p.ignore("messages." + name)
			dropped = true
		}
	}
	if dropped {
		b.extra[field] = b.canonical(field, unquoted(b.dense(given), '['))
	}
}

// message reads one message and names the fields that are not sent.
func (b *builder) message(field string, raw json.RawMessage) (m episode.Message, rest []string) {
	var f map[string]json.RawMessage
	if first(raw) != '{' || json.Unmarshal(raw, &f) != nil {
		b.wrong(field, "a message object", raw)
		return m, nil
	}
	m.Role = b.role(field, f)
	m.Content = b.content(field+".content", f)
	m.Name = b.optional(field+".name", f, "name")
	m.ToolCallID = b.optional(field+".tool_call_id", f, "tool_call_id")
	m.ReasoningContent = b.optional(field+".reasoning_content", f, "reasoning_content")
	if raw, ok := take(f, "tool_calls"); ok {
		m.ToolCalls = b.toolCalls(field+".tool_calls", raw)
	}
	if _, ok := take(f, "function_call"); ok {
		b.fault(field+".function_call", "the old form of a tool call; expected tool_calls")
	}
	for name, raw := range f {
		if !blank(raw) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	return m, rest
}

// blank reports values that say nothing: null, "", [], {}.
func blank(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "null", `""`, "[]", "{}":
		return true
	}
	return false
}

func (b *builder) role(field string, f map[string]json.RawMessage) string {
	const roles = "system, developer, user, assistant or tool"
	raw, ok := take(f, "role")
	if !ok {
		b.fault(field+".role", "missing; expected %s", roles)
		return ""
	}
	role, ok := b.text(field+".role", raw)
	switch role {
	case episode.RoleSystem, roleDeveloper, episode.RoleUser, episode.RoleAssistant, episode.RoleTool:
		return role
	}
	if ok {
		b.fault(field+".role", "expected %s, found %q", roles, clip(role, 40))
	}
	return ""
}

func (b *builder) optional(field string, f map[string]json.RawMessage, name string) *string {
	raw, ok := take(f, name)
	if !ok {
		return nil
	}
	s, ok := b.text(field, raw)
	if !ok {
		return nil
	}
	return &s
}

// content reads a string, null, or a list of text parts, which are joined with a newline as vLLM does.
func (b *builder) content(field string, f map[string]json.RawMessage) *string {
	raw, ok := take(f, "content")
	if !ok {
		return nil
	}
	switch first(raw) {
	case '"':
		s, _ := b.text(field, raw)
		return &s
	case '[':
		return b.contentParts(field, raw)
	}
	b.wrong(field, "a string or a list of text parts", raw)
	return nil
}

func (b *builder) contentParts(field string, raw json.RawMessage) *string {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		b.wrong(field, "a list of text parts", raw)
		return nil
	}
	texts := make([]string, 0, len(list))
	for i, raw := range list {
		if s, ok := b.part(fmt.Sprintf("%s[%d]", field, i), raw); ok {
			texts = append(texts, s)
		}
	}
	return episode.Ptr(strings.Join(texts, "\n"))
}

func (b *builder) part(field string, raw json.RawMessage) (string, bool) {
	if first(raw) == '"' {
		return b.text(field, raw)
	}
	var p map[string]json.RawMessage
	if first(raw) != '{' || json.Unmarshal(raw, &p) != nil {
		b.wrong(field, "a text part", raw)
		return "", false
	}
	kind, ok := take(p, "type")
	if !ok {
		b.fault(field+".type", "missing; expected \"text\"")
		return "", false
	}
	name, ok := b.text(field+".type", kind)
	if !ok {
		return "", false
	}
	if name != "text" {
		b.fault(field, "is a part of type %q; only text parts can be sent", clip(name, 40))
		return "", false
	}
	text, ok := take(p, "text")
	if !ok {
		b.fault(field+".text", "missing; expected a string")
		return "", false
	}
	return b.text(field+".text", text)
}

// toolCalls reads an assistant's calls. Arguments are JSON text on OpenAI's wire and an object in many datasets; both are taken.
func (b *builder) toolCalls(field string, raw json.RawMessage) []episode.ToolCall {
	var list []json.RawMessage
	if first(raw) != '[' || json.Unmarshal(raw, &list) != nil {
		b.wrong(field, "a list of tool calls", raw)
		return nil
	}
	var calls []episode.ToolCall
	for i, raw := range list {
		calls = append(calls, b.toolCall(fmt.Sprintf("%s[%d]", field, i), raw))
	}
	return calls
}

func (b *builder) toolCall(field string, raw json.RawMessage) episode.ToolCall {
	call := episode.ToolCall{Type: "function"}
	var f map[string]json.RawMessage
	if first(raw) != '{' || json.Unmarshal(raw, &f) != nil {
		b.wrong(field, "a tool call object", raw)
		return call
	}
	if s := b.optional(field+".id", f, "id"); s != nil {
		call.ID = *s
	}
	if s := b.optional(field+".type", f, "type"); s != nil && *s != "" && *s != "function" {
		b.fault(field+".type", "expected \"function\", found %q", clip(*s, 40))
	}
	fn, ok := take(f, "function")
	if !ok {
		b.fault(field+".function", "missing; expected an object with name and arguments")
		return call
	}
	var g map[string]json.RawMessage
	if first(fn) != '{' || json.Unmarshal(fn, &g) != nil {
		b.wrong(field+".function", "an object with name and arguments", fn)
		return call
	}
	if s := b.optional(field+".function.name", g, "name"); s != nil && *s != "" {
		call.Function.Name = *s
	} else {
		b.fault(field+".function.name", "missing; expected the name of a tool")
	}
	call.Function.Arguments = b.arguments(field+".function.arguments", g)
	return call
}

func (b *builder) arguments(field string, f map[string]json.RawMessage) string {
	raw, ok := take(f, "arguments")
	if !ok {
		return "{}"
	}
	switch first(raw) {
	case '"':
		s, _ := b.text(field, raw)
		return s
	case '{':
		return string(b.canonical(field, b.dense(raw)))
	}
	b.wrong(field, "a JSON text or an object", raw)
	return ""
}

// dense removes the nulls a Parquet reader filled in; values from text files stay as they are, because there a null was meant.
func (b *builder) dense(raw json.RawMessage) json.RawMessage {
	if !b.typed || !bytes.Contains(raw, []byte("null")) {
		return raw
	}
	v, err := decode(raw)
	if err != nil {
		return raw
	}
	out, err := encode(withoutNulls(v))
	if err != nil {
		return raw
	}
	return out
}

// tools reads a list of OpenAI tool definitions and names of built-in tools, or a JSON text of such a list.
func (b *builder) tools(field string, raw json.RawMessage) {
	inner := unquoted(raw, '[')
	var list []json.RawMessage
	if first(inner) != '[' || json.Unmarshal(inner, &list) != nil {
		b.wrong(field, "a list of tool definitions or names of built-in tools", inner)
		return
	}
	for i, raw := range list {
		b.tool(fmt.Sprintf("%s[%d]", field, i), raw)
	}
	if len(list) == 0 {
		return
	}
	if first(raw) != '"' {
		inner = b.dense(inner)
	}
	b.task.Tools = b.canonical(field, inner)
}

func (b *builder) tool(field string, raw json.RawMessage) {
	if first(raw) == '"' {
		if s, ok := b.text(field, raw); ok && strings.TrimSpace(s) == "" {
			b.fault(field, "is blank; expected the name of a built-in tool")
		}
		return
	}
	var t struct {
		Type     any
		Function map[string]json.RawMessage
	}
	if first(raw) != '{' || json.Unmarshal(raw, &t) != nil {
		b.fault(field, `expected a name or {"type": "function", "function": {"name": …, "parameters": …}}, found %s`, kind(raw))
		return
	}
	if t.Type != "function" || t.Function == nil {
		b.fault(field, `expected {"type": "function", "function": {"name": …, "parameters": …}}, found an object with other members`)
		return
	}
	name, ok := t.Function["name"]
	if !ok {
		b.fault(field+".function.name", "missing; expected the tool's name")
		return
	}
	if s, ok := b.text(field+".function.name", name); ok && s == "" {
		b.fault(field+".function.name", "is blank; expected the tool's name")
	}
	if p, ok := t.Function["parameters"]; ok && first(p) != 'n' && first(p) != '{' {
		b.wrong(field+".function.parameters", "a JSON schema object", p)
	}
}

// checkMessages applies the rules that hold for a conversation as a whole.
func (b *builder) checkMessages() {
	called := map[string]bool{}
	for i, m := range b.task.Messages {
		field := fmt.Sprintf("messages[%d]", i)
		switch {
		case m.Content == nil && (m.Role != episode.RoleAssistant || len(m.ToolCalls) == 0):
			b.fault(field+".content", "missing; only an assistant message with tool_calls may do without")
		case m.Role != episode.RoleAssistant && len(m.ToolCalls) > 0:
			b.fault(field+".tool_calls", "in a message of the role %s; expected them in assistant messages only", m.Role)
		case m.Role == episode.RoleTool && m.ToolCallID == nil:
			b.fault(field+".tool_call_id", "missing; a tool message names the call it answers")
		case m.Role == episode.RoleTool && !called[*m.ToolCallID]:
			b.fault(field+".tool_call_id", "%q answers no tool call of a message before it", clip(*m.ToolCallID, 40))
		}
		for _, c := range m.ToolCalls {
			called[c.ID] = true
		}
	}
	last := b.task.Messages[len(b.task.Messages)-1]
	if last.Role == episode.RoleAssistant && !b.prefix {
		b.fault("messages", "end with the assistant; expected a prompt, which ends with the user, a tool or the system")
	}
}
