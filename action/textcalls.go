package action

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/episode"
)

// textCalls reads the calls of one offer out of texts.
type textCalls struct {
	format CallFormat
	blocks []boundBlock
	prompt string
}

// boundBlock is a block with the argument that its body is; "" = a JSON object.
type boundBlock struct {
	CallBlock
	argument string
}

// shape is what a definition says of a tool's arguments, as far as it matters here.
type shape struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
}

func (s shape) has(name string) bool { _, ok := s.Properties[name]; return ok }

func (s shape) arguments() []string { return slices.Sorted(maps.Keys(s.Properties)) }

// only is the one argument that a tool requires, or has at all, where that may be a string; else "".
func (s shape) only() string {
	names := s.Required
	if len(names) == 0 {
		names = s.arguments()
	}
	if len(names) != 1 {
		return ""
	}
	var one struct{ Type string }
	var several struct{ Type []string }
	if p := s.Properties[names[0]]; json.Unmarshal(p, &one) != nil {
		_ = json.Unmarshal(p, &several) // what is neither takes no string
	}
	if one.Type == "string" || slices.Contains(several.Type, "string") {
		return names[0]
	}
	return ""
}

// newTextCalls binds the format to what an episode is offered.
func newTextCalls(f CallFormat, defs []byte) (*textCalls, error) {
	if !f.reads() || len(defs) == 0 {
		return nil, nil
	}
	var list []definition
	var raw []json.RawMessage
	if err := json.Unmarshal(defs, &list); err != nil {
		return nil, fmt.Errorf("read the tools' own definitions: %w", err)
	}
	if err := json.Unmarshal(defs, &raw); err != nil {
		return nil, fmt.Errorf("read the tools' own definitions: %w", err)
	}
	t := &textCalls{format: f}
	shapes := make(map[string]shape, len(list))
	for _, d := range list {
		var s shape
		_ = json.Unmarshal(d.Function.Parameters, &s) // a foreign tool's may be anything: then it has no arguments
		shapes[d.Function.Name] = s
		if f.Tags {
			t.add(CallBlock{Open: "<" + d.Function.Name + ">", Close: "</" + d.Function.Name + ">", Tool: d.Function.Name}, shapes)
		}
	}
	for _, b := range f.Blocks {
		t.add(b, shapes)
	}
	t.prompt = t.telling(raw)
	return t, nil
}

// add takes a block whose tool is offered.
func (t *textCalls) add(b CallBlock, offered map[string]shape) {
	s, ok := offered[b.Tool]
	if b.Tool != "" && !ok || slices.ContainsFunc(t.blocks, func(o boundBlock) bool { return o.Open == b.Open }) {
		return
	}
	bound := boundBlock{CallBlock: b, argument: b.Argument}
	if b.Tool != "" && b.Argument == "" {
		bound.argument = s.only()
	}
	t.blocks = append(t.blocks, bound)
}

// telling is what the system message says of all this, "" for nothing.
func (t *textCalls) telling(defs []json.RawMessage) string {
	if t.format.Prompt == NoPrompt {
		return ""
	}
	tools, calls := make([]string, len(defs)), make([]string, len(t.blocks))
	for i, d := range defs {
		tools[i] = string(d)
	}
	for i, b := range t.blocks {
		calls[i] = b.form()
	}
	return strings.NewReplacer(
		"{tools}", strings.Join(tools, "\n"), "{calls}", strings.Join(calls, "\n"), outputMark, strings.ReplaceAll(t.format.Output, outputMark, "…"),
	).Replace(t.format.Prompt)
}

// form shows how the block is written.
func (b boundBlock) form() string {
	body := b.argument
	switch {
	case b.Tool == "":
		body = `{"name": NAME, "arguments": {…}}`
	case body == "":
		body = "{…}"
	}
	if b.fence() {
		return b.Open + "\n" + body + "\n" + b.Close
	}
	return b.Open + body + b.Close
}

// told is the message that tells an observation.
func (f CallFormat) told(text string) *episode.Message {
	return &episode.Message{Role: episode.RoleUser, Content: episode.Ptr(strings.Replace(f.Output, outputMark, text, 1))}
}

// Prepare says in the system message of an episode what can be called and how, and adds the stop strings. See episode.Reader.
func (s *Set) Prepare(e *episode.Episode) error {
	o, err := s.offer(e.Task)
	if err != nil || o.text == nil {
		return err
	}
	e.Sampling.Stop = slices.Clone(e.Sampling.Stop)
	for _, stop := range o.text.format.stops() {
		if !slices.Contains(e.Sampling.Stop, stop) {
			e.Sampling.Stop = append(e.Sampling.Stop, stop)
		}
	}
	if o.text.prompt == "" {
		return nil
	}
	if len(e.Messages) > 0 && e.Messages[0].Role == episode.RoleSystem {
		e.Messages = slices.Clone(e.Messages)
		e.Messages[0].Content = episode.Ptr(strings.TrimLeft(e.Messages[0].Text()+"\n\n"+o.text.prompt, "\n"))
		return nil
	}
	e.Messages = slices.Insert(slices.Clip(e.Messages), 0, episode.Message{Role: episode.RoleSystem, Content: &o.text.prompt})
	e.NumPrompt++
	return nil
}

// Read finds the first call in a reply's text. What stands behind it is kept and not acted upon. Reasoning is not looked at. See
// episode.Reader.
func (s *Set) Read(e *episode.Episode, r *episode.Reply) {
	o, err := s.offer(e.Task)
	if err != nil || o.text == nil || len(r.Message.ToolCalls) > 0 || r.Finish == episode.FinishLength {
		return
	}
	found, ok := o.text.find(r.Message.Text())
	if !ok {
		return
	}
	if !found.closed && endsAt(found.block.Close, r, e.Sampling.Stop) {
		found.closed = true
		if r.StopSeq != nil { // the model wrote it, and the server took it out of the text
			r.Message.Content = episode.Ptr(r.Message.Text() + *r.StopSeq)
		}
	}
	w := found.call()
	w.Call.ID, w.Call.Type = fmt.Sprintf("text_%d", len(e.Turns)), "function"
	r.Message.Written = w
}

// endsAt reports whether an answer ended with a stop string that closes the block: the server's word, or, where it names none, that it was
// to stop there.
func endsAt(closing string, r *episode.Reply, stops []string) bool {
	same := func(stop string) bool { return strings.TrimSpace(stop) == closing }
	if r.Finish != episode.FinishStop {
		return false
	}
	if r.StopSeq != nil {
		return same(*r.StopSeq)
	}
	return slices.ContainsFunc(stops, same)
}

// foundCall is a block in a text.
type foundCall struct {
	block  boundBlock
	body   string
	closed bool
}

// find looks for the first block, in one pass over the text for each form.
func (t *textCalls) find(text string) (foundCall, bool) {
	at, best := len(text), -1
	for i, b := range t.blocks {
		if j := b.opens(text); j >= 0 && (j < at || j == at && len(b.Open) > len(t.blocks[best].Open)) {
			at, best = j, i
		}
	}
	if best < 0 {
		return foundCall{}, false
	}
	b := t.blocks[best]
	body, closed := b.bodyOf(text[at+len(b.Open):])
	return foundCall{b, body, closed}, true
}

// opens is where the block's opening stands, -1 for nowhere.
func (b boundBlock) opens(text string) int {
	if !b.fence() {
		return strings.Index(text, b.Open)
	}
	for from := 0; ; {
		i := strings.Index(text[from:], b.Open)
		if i < 0 {
			return -1
		}
		at := from + i
		if startsLine(text, at) && endsLine(text[at+len(b.Open):]) {
			return at
		}
		from = at + len(b.Open)
	}
}

// bodyOf is what stands before the closing, without one line break at either end.
func (b boundBlock) bodyOf(rest string) (body string, closed bool) {
	end := len(rest)
	if b.fence() {
		_, rest, _ = strings.Cut(rest, "\n")
		end, closed = b.fenceEnd(rest)
	} else if i := strings.Index(rest, b.Close); i >= 0 {
		end, closed = i, true
	}
	body = strings.TrimSuffix(rest[:end], "\n")
	if !b.fence() {
		body = strings.TrimPrefix(body, "\n")
	}
	return body, closed
}

// fenceEnd is where the first line lies that holds nothing but the closing.
func (b boundBlock) fenceEnd(rest string) (end int, closed bool) {
	for line := range strings.Lines(rest) {
		if strings.TrimSpace(line) == b.Close {
			return end, true
		}
		end += len(line)
	}
	return end, false
}

func startsLine(text string, at int) bool {
	before := strings.TrimRight(text[:at], " \t")
	return before == "" || before[len(before)-1] == '\n'
}

// endsLine looks no further than the blanks, so that a long line is not read again for each opening in it.
func endsLine(rest string) bool {
	rest = strings.TrimLeft(rest, " \t\r")
	return rest == "" || rest[0] == '\n'
}

// call makes the call of a block. What cannot be read is said so that the model can put it right.
func (f foundCall) call() *episode.Written {
	unread := func(format string, args ...any) *episode.Written {
		return &episode.Written{Unread: "the call could not be read: " + fmt.Sprintf(format, args...) + "\nexpected " + f.block.form()}
	}
	if !f.closed {
		return unread("%s is not closed by %s", f.block.Open, f.block.Close)
	}
	if f.block.Tool != "" {
		return &episode.Written{Call: episode.ToolCall{Function: episode.Function{Name: f.block.Tool, Arguments: f.arguments()}}}
	}
	var said struct {
		Name       *string         `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"` // some models' word for it
	}
	body := strings.TrimSpace(f.body)
	if err := json.Unmarshal([]byte(body), &said); err != nil {
		return unread("between %s and %s stands no such JSON object: %s%s", f.block.Open, f.block.Close, jsonFault(err, len(body)), shown(body))
	}
	if said.Name == nil || *said.Name == "" {
		return unread("the object has no \"name\"%s", shown(body))
	}
	args := said.Arguments
	if args == nil {
		args = said.Parameters
	}
	return &episode.Written{Call: episode.ToolCall{Function: episode.Function{Name: *said.Name, Arguments: unquoted(args)}}}
}

// arguments is the body as the tool's arguments.
func (f foundCall) arguments() string {
	if f.block.argument == "" {
		return f.body
	}
	args, _ := plainJSON(map[string]string{f.block.argument: f.body}) // strings always encode
	return string(args)
}

// unquoted takes arguments that were written as a JSON string of JSON, as OpenAI's interface has them, out of it.
func unquoted(args json.RawMessage) string {
	var s string
	if json.Unmarshal(args, &s) == nil {
		return s
	}
	return string(args)
}
