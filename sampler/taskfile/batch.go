package taskfile

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
)

// chatURL is the one kind of batch request that is a task.
const chatURL = "/v1/chat/completions"

// isBatch reports whether a row is an OpenAI batch request.
func (p *parser) isBatch(cols map[string]json.RawMessage) bool {
	switch p.format {
	case FormatBatch:
		return true
	case FormatAuto:
		_, id := cols["custom_id"]
		_, url := cols["url"]
		return id && url && first(cols["body"]) == '{'
	}
	return false
}

// batch reads {custom_id, method, url, body}. Messages and tools come from the body; the model goes to Extra, because the run
// names its own; what is left of the body is Task.Params.
func (b *builder) batch() {
	if _, ok := b.cols["custom_id"]; !ok && b.made.id == nil {
		b.fault("custom_id", "missing; an OpenAI batch row needs it")
	}
	b.identity("custom_id")
	b.constant("method", "POST")
	b.constant("url", chatURL)
	raw, ok := b.take("body")
	if !ok {
		b.fault("body", "missing; expected the chat request as an object")
		return
	}
	body, ok := b.object("body", raw)
	if !ok {
		return
	}
	b.batchPrompt(body)
	if raw, ok := take(body, "tools"); ok {
		b.tools("body.tools", raw)
	}
	if raw, ok := take(body, "model"); ok {
		if name, ok := b.text("body.model", raw); ok {
			b.extra["model"] = raw
			tally(b.p.models, name)
		}
	}
	b.params(body)
}

func (b *builder) constant(col, want string) {
	raw, ok := b.take(col)
	if !ok {
		b.fault(col, "missing; expected %q", want)
		return
	}
	s, ok := b.text(col, raw)
	if ok && s != want {
		b.fault(col, "expected %q, found %q: only chat requests can be run", want, clip(s, 60))
	}
}

func (b *builder) batchPrompt(body map[string]json.RawMessage) {
	raw, ok := take(body, "messages")
	switch {
	case b.made.prompt != nil:
		if ok {
			b.extra["messages"] = b.canonical("body.messages", raw)
		}
		b.madePrompt()
	case !ok:
		b.fault("body.messages", "missing; expected a list of messages")
	default:
		b.messages("body.messages", raw)
	}
}

// paramWants checks the request fields that the sampler reads, before any request is sent; "" = it is fine, or it is a field that
// goes out as it is and is the server's to judge. The sampler holds the same ranges.
func paramWants(name string, raw json.RawMessage) string {
	var ok bool
	var expected string
	switch name {
	case "temperature":
		ok, expected = number(raw, func(f float64) bool { return f >= 0 }), "a number of 0 or more"
	case "top_p":
		ok, expected = number(raw, func(f float64) bool { return f > 0 && f <= 1 }), "a number over 0 to 1"
	case "min_p":
		ok, expected = number(raw, func(f float64) bool { return f >= 0 && f <= 1 }), "a number from 0 to 1"
	case "top_k":
		ok, expected = whole(raw, -1, math.MaxInt32), "a whole number of -1 or more"
	case "seed":
		ok, expected = whole(raw, math.MinInt64, math.MaxInt64), "a whole number"
	case "max_tokens", "max_completion_tokens":
		ok, expected = whole(raw, 1, math.MaxInt32), "a whole number over 0"
	case "stop":
		ok, expected = stops(raw), "a string or a list of strings, none of them empty"
	case "logprobs", "return_token_ids", "continue_final_message":
		ok, expected = kind(raw) == "a boolean", "a boolean"
	default:
		return ""
	}
	if ok {
		return ""
	}
	return expected
}

// params keeps what is left of a request body as Task.Params, without nulls (the server's default either way) and without what
// says how the answer travels, which is the run's to decide.
func (b *builder) params(body map[string]json.RawMessage) {
	for _, name := range []string{"stream", "stream_options"} {
		if raw, ok := take(body, name); ok && string(raw) != "false" {
			b.p.ignore("body." + name)
			b.extra["body."+name] = b.canonical("body."+name, raw)
		}
	}
	if raw, ok := take(body, "n"); ok && string(raw) != "1" {
		b.fault("body.n", "expected 1, found %s; the run's number of samples says how many answers a task gets", clip(oneLine(string(raw)), 20))
	}
	for _, old := range []string{"functions", "function_call"} {
		if _, ok := take(body, old); ok {
			b.fault("body."+old, "the old form of tools; expected tools and tool_choice")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(body)) {
		raw := body[name]
		if first(raw) == 'n' {
			delete(body, name)
		} else if want := paramWants(name, raw); want != "" {
			b.fault("body."+name, "expected %s, found %s", want, clip(oneLine(string(raw)), 40))
		}
	}
	b.prefix = string(body["continue_final_message"]) == "true"
	if len(body) == 0 || len(b.faults) > 0 {
		return
	}
	raw, err := encode(body)
	if err != nil {
		b.fault("body", "cannot be written again as JSON: %v", err)
		return
	}
	b.task.Params = b.canonical("body", raw)
}

func number(raw json.RawMessage, fits func(float64) bool) bool {
	var f float64
	return kind(raw) == "a number" && json.Unmarshal(raw, &f) == nil && fits(f)
}

func whole(raw json.RawMessage, low, high int64) bool {
	var i int64
	return kind(raw) == "a number" && json.Unmarshal(raw, &i) == nil && i >= low && i <= high
}

func stops(raw json.RawMessage) bool {
	var one string
	if kind(raw) == "a string" {
		return json.Unmarshal(raw, &one) == nil && one != ""
	}
	var list []string // a null in it reads as ""
	return kind(raw) == "a list" && json.Unmarshal(raw, &list) == nil && !slices.Contains(list, "")
}

// oneLine keeps a value that is quoted in a message on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
