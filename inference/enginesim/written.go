package enginesim

import (
	"encoding/json"
	"strings"
)

// WrittenCalls is the form in which the engine's model writes its tool calls as text, when it finds tools between <tools> and </tools> in a
// system message and none in the request: as a model does that a client taught to. The names are those of the run's setting.
type WrittenCalls string

// Forms of written calls.
const (
	WritesNone     WrittenCalls = ""          // such tools are not understood
	WritesToolCall WrittenCalls = "tool-call" // <tool_call>{"name": …, "arguments": …}</tool_call>
	WritesFenced   WrittenCalls = "fenced"    // the same in a block ```tool
	WritesPython   WrittenCalls = "python"    // code in a block ```python; submit as <answer>…</answer>; the rest as fenced
	WritesTags     WrittenCalls = "tags"      // <NAME>…</NAME>; submit as <answer>…</answer>
)

func writtenForms() []WrittenCalls {
	return []WrittenCalls{WritesNone, WritesToolCall, WritesFenced, WritesPython, WritesTags}
}

// result is what a user's message begins with that brings what came of a call.
func (f WrittenCalls) result() string {
	if f == WritesFenced || f == WritesPython {
		return "```output"
	}
	return "<output>"
}

// hear reads a conversation in which tools and results are texts: as one with tools and tool messages. false = there are none.
func (f WrittenCalls) hear(c conversation) (conversation, bool) {
	if f == WritesNone || c.tools != nil {
		return c, false
	}
	heard := conversation{lines: append([]line(nil), c.lines...)}
	for i, l := range heard.lines {
		switch {
		case l.role == "system" && heard.tools == nil:
			heard.tools = toolsWritten(l.text)
		case l.role == "user" && i > 0 && strings.HasPrefix(l.text, f.result()):
			body := strings.TrimPrefix(strings.TrimPrefix(l.text, f.result()), "\n")
			if end := strings.LastIndexByte(body, '\n'); end >= 0 { // the closing
				body = body[:end]
			}
			heard.lines[i] = line{"tool", body}
		}
	}
	return heard, len(heard.tools) > 0
}

// toolsWritten reads the definitions that stand in a system message, a line each.
func toolsWritten(system string) []toolDef {
	_, rest, _ := strings.Cut(system, "<tools>\n")
	rows, _, _ := strings.Cut(rest, "\n</tools>")
	var tools []toolDef
	for row := range strings.SplitSeq(rows, "\n") {
		var d toolDef
		if json.Unmarshal([]byte(row), &d) == nil {
			tools = append(tools, d)
		}
	}
	return tools
}

// write is a call in the form.
func (f WrittenCalls) write(d *toolDef, args string) string {
	value := onlyText(d.schema, args)
	handsIn := value != "" && toolNamed([]toolDef{*d}, "submit") != nil
	switch {
	case (f == WritesTags || f == WritesPython) && handsIn:
		return "<answer>" + value + "</answer>"
	case f == WritesTags && value != "":
		return "<" + d.name + ">" + value + "</" + d.name + ">"
	case f == WritesTags:
		return "<" + d.name + ">" + args + "</" + d.name + ">"
	case f == WritesPython && d.name == "python" && value != "":
		return "```python\n" + value + "\n```"
	case f == WritesToolCall:
		return "<tool_call>\n{\"name\": " + quote(d.name) + ", \"arguments\": " + args + "}\n</tool_call>"
	}
	return "```tool\n{\"name\": " + quote(d.name) + ", \"arguments\": " + args + "}\n```"
}

// onlyText is the text of arguments that are one string, of a tool that is about one; else "".
func onlyText(sc schema, args string) string {
	var all map[string]any
	if json.Unmarshal([]byte(args), &all) != nil || len(all) != 1 || len(sc.Required) != 1 && len(sc.Properties) != 1 {
		return ""
	}
	for _, v := range all {
		if s, ok := v.(string); ok {
			return s
		}
	}
	return ""
}

// overrun adds, now and then, what a model goes on with that does not wait for the result it called for: a made-up one. It is what stop
// strings are for.
func (s *speech) overrun(said string) string {
	if len(s.tools) == 0 || !s.chance(0.2) {
		return said
	}
	closing := "</output>"
	if s.calls.result() != "<output>" {
		closing = "```"
	}
	return said + "\n" + s.calls.result() + "\n" + s.miss() + "\n" + closing + "\nSo that is it."
}
