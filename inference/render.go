package inference

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	openai "github.com/sashabaranov/go-openai"

	"tranche/episode"
)

// Render returns the exact body that Generate would send for this call now. It sends nothing. The error, if any, names
// the field that is wrong.
func (e *Endpoint) Render(c *episode.Call, maxTokens int) ([]byte, error) {
	return render(c, maxTokens, e.cfg, e.facts, *e.dialect.Load())
}

const (
	fieldMaxTokens           = "max_tokens"
	fieldLogprobs            = "logprobs"
	fieldMaxCompletionTokens = "max_completion_tokens"
)

// render writes a chat completion request. What is nil is not sent; a pointer to zero is sent as zero.
func render(c *episode.Call, maxTokens int, cfg Config, f facts, d dialect) ([]byte, error) {
	extra, err := mergeExtra(cfg.ExtraBody, c.Sampling.Extra)
	if err != nil {
		return nil, err
	}
	if len(c.Messages) == 0 {
		return nil, errors.New("messages: the call has none")
	}
	if err := checkTools(c.Tools); err != nil {
		return nil, err
	}
	maxKey, maxTokens, err := tokenLimit(extra, maxTokens, d)
	if err != nil {
		return nil, err
	}
	b := newBody(extra)
	b.add("model", f.model)
	b.add("messages", c.Messages)
	if len(c.Tools) > 0 {
		b.add("tools", c.Tools)
	}
	if maxTokens > 0 {
		b.add(maxKey, maxTokens)
	}
	addSampling(b, &c.Sampling)
	if v, ok := f.order.of(c, d); ok {
		b.add(fieldPriority, v)
	}
	for _, o := range ownFields(f.kind, wantStream(cfg, f.kind, c), &c.Sampling) {
		if !d.drops(o.name) {
			b.add(o.name, o.value)
		}
	}
	return b.close()
}

func addSampling(b *body, s *episode.Sampling) {
	addIf(b, "temperature", s.Temperature)
	addIf(b, "top_p", s.TopP)
	addIf(b, "top_k", s.TopK)
	addIf(b, "min_p", s.MinP)
	addIf(b, "seed", s.Seed)
	if s.Stop != nil {
		b.add("stop", s.Stop)
	}
}

func addIf[T any](b *body, name string, v *T) {
	if v != nil {
		b.add(name, *v)
	}
}

// tokenLimit decides under which name and how large the token limit goes out. A limit among the extra fields is the
// user's wish for the name and a second bound, never a way around the budget.
func tokenLimit(extra map[string]json.RawMessage, maxTokens int, d dialect) (key string, limit int, err error) {
	key = fieldMaxTokens
	if d.maxCompletionTokens {
		key = fieldMaxCompletionTokens
	}
	for _, name := range [...]string{fieldMaxTokens, fieldMaxCompletionTokens} {
		raw, ok := extra[name]
		if !ok {
			continue
		}
		delete(extra, name)
		var n *int
		if err := json.Unmarshal(raw, &n); err != nil || (n != nil && *n < 1) {
			return "", 0, fmt.Errorf("%s: %s; expected a whole number of at least 1", name, raw)
		}
		if n == nil {
			continue
		}
		if !d.maxCompletionTokens {
			key = name
		}
		if maxTokens == 0 || *n < maxTokens {
			maxTokens = *n
		}
	}
	return key, maxTokens, nil
}

// reserved are body fields that this package or the scheduler decides; each with what to do instead.
var reserved = map[string]string{
	"messages": "the task states the prompt",
	"model":    "the endpoint's model setting names it",
	"tools":    "the task states the tools",
	"stream":   "the endpoint's stream setting decides",
	"n":        "several samples are several calls; set the number of samples instead",
}

// checkExtra reports every extra field that may not be set that way.
func checkExtra(extra map[string]json.RawMessage) error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if !json.Valid(extra[name]) {
			faults = append(faults, fmt.Errorf("%s: %q is no JSON value", name, clip(string(extra[name]), 80)))
			continue
		}
		why, ok := reserved[name]
		if ok && !(name == "n" && string(bytes.TrimSpace(extra[name])) == "1") {
			faults = append(faults, fmt.Errorf("%s: cannot be set as an extra field: %s", name, why))
		}
	}
	return errors.Join(faults...)
}

func mergeExtra(endpoint, call map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	if len(endpoint) == 0 && len(call) == 0 {
		return nil, nil
	}
	if err := checkExtra(call); err != nil {
		return nil, err
	}
	out := maps.Clone(endpoint)
	if out == nil {
		out = map[string]json.RawMessage{}
	}
	maps.Copy(out, call)
	return out, nil
}

// checkTools says what is wrong with tool definitions before a server does it in worse words.
func checkTools(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	var tools []openai.Tool
	if err := json.Unmarshal(raw, &tools); err != nil {
		return fmt.Errorf("tools: expected a list of OpenAI tool definitions: %w", err)
	}
	for i, t := range tools {
		if t.Type == openai.ToolTypeFunction && (t.Function == nil || t.Function.Name == "") {
			return fmt.Errorf("tools[%d].function.name: missing", i)
		}
	}
	return nil
}

// body builds one JSON object field by field, in a fixed order, with extra fields winning over added ones.
type body struct {
	buf   bytes.Buffer
	enc   *json.Encoder
	extra map[string]json.RawMessage
	err   error
}

func newBody(extra map[string]json.RawMessage) *body {
	b := &body{extra: extra}
	return b
}

func (b *body) add(name string, v any) {
	if _, ok := b.extra[name]; ok || b.err != nil {
		return
	}
	b.write(name, v)
}

func (b *body) write(name string, v any) {
	if b.buf.Len() == 0 {
		b.buf.WriteByte('{')
	} else {
		b.buf.WriteByte(',')
	}
	b.text(name)
	b.buf.WriteByte(':')
	b.value(name, v)
}

// value writes what every request holds by itself, and has encoding/json write the rest; the bytes are the same.
func (b *body) value(name string, v any) {
	switch v := v.(type) {
	case string:
		b.text(v)
		return
	case int:
		b.buf.Write(strconv.AppendInt(b.buf.AvailableBuffer(), int64(v), 10))
		return
	case []episode.Message:
		if !slices.ContainsFunc(v, ornate) {
			b.messages(v)
			return
		}
	}
	b.encode(name, v)
}

func (b *body) encode(name string, v any) {
	if b.enc == nil {
		b.enc = json.NewEncoder(&b.buf)
		b.enc.SetEscapeHTML(false) // the body is shown to people by --dry-run
	}
	if err := b.enc.Encode(v); err != nil {
		b.err = fmt.Errorf("%s: %w", name, err)
		return
	}
	b.buf.Truncate(b.buf.Len() - 1) // Encode ends with a line break
}

// ornate reports a message of more than a role and a content.
func ornate(m episode.Message) bool {
	return m.ReasoningContent != nil || m.Name != nil || m.ToolCallID != nil || len(m.ToolCalls) > 0
}

func (b *body) messages(list []episode.Message) {
	b.buf.WriteByte('[')
	for i, m := range list {
		if i > 0 {
			b.buf.WriteByte(',')
		}
		b.buf.WriteString(`{"role":`)
		b.text(m.Role)
		b.buf.WriteString(`,"content":`)
		if m.Content == nil {
			b.buf.WriteString("null}")
			continue
		}
		b.text(*m.Content)
		b.buf.WriteByte('}')
	}
	b.buf.WriteByte(']')
}

// text writes a string. One that needs escapes is written by encoding/json.
func (b *body) text(s string) {
	at := b.buf.Len()
	b.buf.WriteByte('"')
	b.buf.WriteString(s)
	if plainRun(b.buf.Bytes()[at+1:]) == len(s) {
		b.buf.WriteByte('"')
		return
	}
	b.buf.Truncate(at)
	b.encode("", s) // a string always encodes
}

func (b *body) close() ([]byte, error) {
	for _, name := range slices.Sorted(maps.Keys(b.extra)) {
		if b.err == nil {
			b.write(name, b.extra[name])
		}
	}
	if b.err != nil {
		return nil, b.err
	}
	b.buf.WriteByte('}')
	return b.buf.Bytes(), nil
}
