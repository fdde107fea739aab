package enginesim

import (
	"bytes"
	"encoding/json"
	"strings"
)

// The chat template, ChatML as many open models use it. It is rendered straight into token ids, piece by piece: what the
// policy sampled is one piece, so the next turn's prompt begins with exactly the ids of the turn before.
//
//	<|im_start|>system\n…<|im_end|>\n<|im_start|>user\n…<|im_end|>\n<|im_start|>assistant\n

const (
	toolsOpen  = "\n\n# Tools\n\nYou may call these functions:\n<tools>\n"
	toolsClose = "\n</tools>\nTo call one, answer with its name and a JSON object of arguments:\n<tool_call>\n{\"name\": \"NAME\", \"arguments\": {}}\n</tool_call>"
	callOpen   = "<tool_call>\n{\"name\": "
	callArgs   = ", \"arguments\": "
	callClose  = "}\n</tool_call>"
)

// line is one message as the template sees it: a role and one text.
type line struct{ role, text string }

// render turns the lines of a conversation into prompt ids.
func (t *Tokenizer) render(lines []line, generate bool) []int32 {
	ids := make([]int32, 0, 256)
	for _, l := range lines {
		ids = append(ids, imStart)
		ids = t.appendPlain(ids, l.role+"\n")
		ids = t.appendPlain(ids, l.text)
		ids = append(ids, imEnd)
		ids = t.appendPlain(ids, "\n")
	}
	if generate {
		ids = append(ids, imStart)
		ids = t.appendPlain(ids, "assistant\n")
	}
	return ids
}

// script turns chat messages and tools into the template's lines. Reasoning of earlier turns is dropped, as thinking models'
// templates do.
func script(messages []chatMessage, tools []toolDef) []line {
	var lines []line
	if len(tools) > 0 {
		first := line{role: "system"}
		if len(messages) > 0 && messages[0].Role == "system" {
			first.text, messages = messages[0].Content.text(), messages[1:]
		}
		first.text += toolsText(tools)
		lines = append(lines, first)
	}
	for _, m := range messages {
		lines = append(lines, line{m.Role, spoken(m.Content.text(), m.ToolCalls)})
	}
	return lines
}

func toolsText(tools []toolDef) string {
	rows := make([]string, len(tools))
	for i, d := range tools {
		rows[i] = string(d.raw)
	}
	return toolsOpen + strings.Join(rows, "\n") + toolsClose
}

// spoken is the text of an assistant message: its content, then each tool call in a block of its own. parseSpoken undoes it.
func spoken(content string, calls []toolCall) string {
	parts := make([]string, 0, 1+len(calls))
	if content != "" {
		parts = append(parts, content)
	}
	for _, c := range calls {
		parts = append(parts, callText(c.Function.Name, c.Function.Arguments))
	}
	return strings.Join(parts, "\n")
}

func callText(name, args string) string {
	return callOpen + quote(name) + callArgs + args + callClose
}

func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

// spokenCall is where a tool call lies in a sampled text. Byte offsets.
type spokenCall struct {
	name       string
	named      int // the name is complete from this offset on
	args, stop int // the arguments' raw text is [args, stop)
}

// parseSpoken finds content and tool calls in a sampled text, cut or whole. content is text[:end]. A block that is cut before
// its arguments begin is no call: a text's first such block stays in the content, as hermes-style parsers leave it.
func parseSpoken(text string) (end int, calls []spokenCall) {
	from := strings.Index(text, callOpen)
	if from < 0 {
		return len(text), nil
	}
	for at := from; strings.HasPrefix(text[at:], callOpen); {
		c, next, ok := parseCall(text, at)
		if !ok {
			break
		}
		calls = append(calls, c)
		at = next
	}
	if len(calls) == 0 {
		return len(text), nil
	}
	return len(strings.TrimSuffix(text[:from], "\n")), calls
}

func parseCall(text string, at int) (c spokenCall, next int, ok bool) {
	dec := json.NewDecoder(strings.NewReader(text[at+len(callOpen):]))
	if err := dec.Decode(&c.name); err != nil {
		return c, 0, false
	}
	c.named = at + len(callOpen) + int(dec.InputOffset())
	if !strings.HasPrefix(text[c.named:], callArgs) {
		return c, 0, false
	}
	c.args, c.stop = c.named+len(callArgs), len(text)
	var raw json.RawMessage
	args := json.NewDecoder(strings.NewReader(text[c.args:]))
	if err := args.Decode(&raw); err != nil {
		return c, len(text), true // cut inside the arguments: the raw rest is what was said
	}
	c.stop = c.args + int(args.InputOffset())
	next = c.stop
	if rest, whole := strings.CutPrefix(text[c.stop:], callClose); whole {
		next = len(text) - len(strings.TrimPrefix(rest, "\n"))
	}
	return c, next, true
}

// conversation is a prompt read back from its ids: what the policy goes by, whether the prompt came as chat messages, as
// text or as ids.
type conversation struct {
	lines []line
	tools []toolDef
}

// read takes a prompt apart. A prompt without messages is one line of a user.
func (t *Tokenizer) read(ids []int32) conversation {
	var c conversation
	for len(ids) > 0 {
		from := index(ids, imStart)
		if from < 0 {
			break
		}
		ids = ids[from+1:]
		to := index(ids, imEnd)
		if to < 0 { // the open line of the answer to come
			return c
		}
		role, text, _ := strings.Cut(t.Decode(ids[:to]), "\n")
		c.lines = append(c.lines, line{role, text})
		if role == "system" && c.tools == nil {
			c.tools = toolsIn(text)
		}
		ids = ids[to+1:]
	}
	if c.lines == nil {
		c.lines = []line{{"user", t.Decode(ids)}}
	}
	return c
}

func toolsIn(system string) []toolDef {
	_, rest, ok := strings.Cut(system, toolsOpen)
	if !ok {
		return nil
	}
	rows, _, _ := strings.Cut(rest, toolsClose)
	var tools []toolDef
	for row := range strings.SplitSeq(rows, "\n") {
		var d toolDef
		if json.Unmarshal([]byte(row), &d) == nil {
			tools = append(tools, d)
		}
	}
	return tools
}

func index(ids []int32, want int32) int {
	for i, id := range ids {
		if id == want {
			return i
		}
	}
	return -1
}
