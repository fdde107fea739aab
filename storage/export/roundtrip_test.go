package export

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"tranche/storage"
)

// conversations are messages of every kind: null, empty and odd texts, calls with and without valid arguments, each answered.
func conversations(t *rapid.T) (out []storage.Message) {
	text := func(name string) *string {
		return rapid.SampledFrom([]*string{nil, ptr(""), ptr("a"), ptr("<b>&\u2028\x00 é\n"), ptr(`"q"`)}).Draw(t, name)
	}
	out = append(out, storage.Message{Role: ptr(rapid.SampledFrom([]string{"system", "user", "developer"}).Draw(t, "first")), Content: text("prompt")})
	for turn := range rapid.IntRange(1, 4).Draw(t, "turns") {
		m := storage.Message{Role: ptr("assistant"), Content: text("content"), ReasoningContent: text("reasoning")}
		if n := rapid.IntRange(-1, 2).Draw(t, "calls"); n >= 0 {
			m.ToolCalls = []storage.ToolCall{}
			for i := range n {
				arguments := rapid.SampledFrom([]string{`{}`, `{"b": 1, "a": [1.0, 1e2]}`, ``, `2+2`, `[1]`, "{\"a\":\n 1}"}).Draw(t, "arguments")
				m.ToolCalls = append(m.ToolCalls, storage.ToolCall{ID: fmt.Sprintf("c%d.%d", turn, i), Type: "function", Function: storage.Function{Name: "f", Arguments: arguments}})
			}
		}
		out = append(out, m)
		for _, c := range m.ToolCalls {
			out = append(out, storage.Message{Role: ptr("tool"), Content: text("answer"), ToolCallID: ptr(c.ID), Name: rapid.SampledFrom([]*string{nil, ptr("f")}).Draw(t, "name")})
		}
	}
	return out
}

// Messages come back from their JSON as they were: null, "" and absent are three things, arguments are their text.
func TestMessagesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := conversations(t)
		made, ok := messagesOf(in, AsText)
		text, err := encode(made)
		if err != nil || !ok {
			t.Fatal(err)
		}
		var back []storage.Message
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(in, back) {
			t.Fatalf("%s", text)
		}
	})
}

// Arguments as objects are the same JSON, key for key in their order, or the row is refused.
func TestArgumentsAsObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, valid := conversations(t), true
		for _, m := range in {
			for _, c := range m.ToolCalls {
				valid = valid && isObject(c.Function.Arguments)
			}
		}
		made, ok := messagesOf(in, AsObject)
		if ok != valid {
			t.Fatalf("taken %v, all are objects %v", ok, valid)
		}
		text, err := encode(made)
		if err != nil {
			t.Fatal(err)
		}
		var back []struct {
			ToolCalls []struct {
				Function struct{ Arguments json.RawMessage }
			} `json:"tool_calls"`
		}
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		for i, m := range back {
			for j, c := range m.ToolCalls {
				want, _ := encode(json.RawMessage(in[i].ToolCalls[j].Function.Arguments))
				if string(c.Function.Arguments) != string(want) {
					t.Fatalf("%s is %s", want, c.Function.Arguments)
				}
			}
		}
	})
}

// An ATIF trajectory holds all that the messages hold, but for the names of tools in their answers, and what it says of calls is valid there.
func TestATIFHoldsTheConversation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := conversations(t)
		r := &storage.Row{Messages: in, NumPromptMessages: 1}
		text, err := encode(atifSteps(r))
		if err != nil {
			t.Fatal(err)
		}
		var steps []atifStep
		if err := json.Unmarshal(text, &steps); err != nil {
			t.Fatal(err)
		}
		var back []storage.Message
		for i, s := range steps {
			if s.StepID != i+1 || s.Source != "agent" && (s.ReasoningContent != nil || s.ToolCalls != nil || s.Metrics != nil) {
				t.Fatalf("step %d is %+v", i, s)
			}
			back = append(back, s.messages(t)...)
		}
		for i := range in {
			in[i].Name = nil
			if len(in[i].ToolCalls) == 0 {
				in[i].ToolCalls = nil
			}
			for j := range in[i].ToolCalls {
				if f := &in[i].ToolCalls[j].Function; isObject(f.Arguments) {
					compact, _ := encode(json.RawMessage(f.Arguments))
					f.Arguments = string(compact)
				}
			}
		}
		if !reflect.DeepEqual(in, back) {
			t.Fatalf("%s", text)
		}
	})
}

// messages are those that the step was made of.
func (s atifStep) messages(t *rapid.T) []storage.Message {
	m := storage.Message{Role: ptr(s.Source), Content: ptr(s.Message), ReasoningContent: s.ReasoningContent}
	if s.Source == "agent" {
		m.Role = ptr("assistant")
	}
	if x := s.Extra; x != nil {
		if x.Role != "" {
			m.Role = ptr(x.Role)
		}
		if x.NullContent {
			m.Content = nil
		}
	}
	for _, c := range s.ToolCalls {
		arguments := string(c.Arguments)
		if s.Extra != nil {
			if raw, ok := s.Extra.RawArguments[c.ToolCallID]; ok {
				if arguments != "{}" {
					t.Fatalf("arguments %s stand in for %q", arguments, raw)
				}
				arguments = raw
			}
		}
		m.ToolCalls = append(m.ToolCalls, storage.ToolCall{ID: c.ToolCallID, Type: "function", Function: storage.Function{Name: c.FunctionName, Arguments: arguments}})
	}
	out := []storage.Message{m}
	if s.Observation != nil {
		for _, o := range s.Observation.Results {
			out = append(out, storage.Message{Role: ptr("tool"), Content: o.Content, ToolCallID: o.SourceCallID})
		}
	}
	return out
}
