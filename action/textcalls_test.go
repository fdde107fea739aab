package action

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tranche/episode"
)

// textSet is a Set of a format with some tools, and an episode of it that was prepared.
func textSet(t testing.TB, format CallFormat, tools ...Tool) (*Set, *episode.Episode) {
	t.Helper()
	cfg := Config{Calls: format}
	for _, tool := range tools {
		cfg.Tools = append(cfg.Tools, tool.Name())
	}
	s, err := New(cfg, tools...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	e := &episode.Episode{ID: "e", Task: &episode.Task{ID: "t"}, Messages: []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr("What is 2 + 2?")}}, NumPrompt: 1}
	if err := s.Prepare(e); err != nil {
		t.Fatal(err)
	}
	return s, e
}

func named(t testing.TB, name string) CallFormat {
	t.Helper()
	f, ok := NamedCallFormat(name)
	if !ok {
		t.Fatalf("no format %q", name)
	}
	return f
}

// python is a stand-in for the tool of that name: it says what it was given.
type python struct{}

func (python) Name() string { return "python" }
func (python) Definition() json.RawMessage {
	return json.RawMessage(`{"type":"function","function":{"name":"python","parameters":{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}}}`)
}

func (python) Run(_ context.Context, args json.RawMessage, _ Env) (Result, error) {
	var in struct{ Code string }
	err := json.Unmarshal(args, &in)
	return Result{Text: in.Code}, err
}

// two is a tool with two arguments.
type two struct{ python }

func (two) Name() string { return "two" }
func (two) Definition() json.RawMessage {
	return json.RawMessage(`{"type":"function","function":{"name":"two","parameters":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}},"required":["a","b"]}}}`)
}

func TestTextCallsAreRead(t *testing.T) {
	custom := CallFormat{Blocks: []CallBlock{{Open: "<search>", Close: "</search>", Tool: "python", Argument: "code"}}, Output: "<information>{output}</information>", Stop: []string{"</search>"}}
	for _, c := range []struct {
		name       string
		format     CallFormat
		text       string
		stop       string // that the server named
		call, args string // "" = there is none
		unread     string
	}{
		{name: "a tool call", format: named(t, CallsToolCall), text: "I compute.\n<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"2+2\"}}\n</tool_call>", call: "calculator", args: `{"expression": "2+2"}`},
		{name: "parameters for arguments", format: named(t, CallsToolCall), text: `<tool_call>{"name":"calculator","parameters":{"expression":"1"}}</tool_call>`, call: "calculator", args: `{"expression":"1"}`},
		{name: "arguments in a string", format: named(t, CallsToolCall), text: `<tool_call>{"name":"calculator","arguments":"{\"expression\":\"1\"}"}</tool_call>`, call: "calculator", args: `{"expression":"1"}`},
		{name: "no arguments", format: named(t, CallsToolCall), text: `<tool_call>{"name":"calculator"}</tool_call>`, call: "calculator"},
		{name: "a tool that is not there", format: named(t, CallsToolCall), text: `<tool_call>{"name":"fly","arguments":{}}</tool_call>`, call: "fly", args: `{}`},
		{name: "the first of two, and what is behind it", format: named(t, CallsToolCall), text: `<tool_call>{"name":"python","arguments":{"code":"a"}}</tool_call> so <tool_call>{"name":"two"}</tool_call>`, call: "python", args: `{"code":"a"}`},
		{name: "not JSON", format: named(t, CallsToolCall), text: `<tool_call>calculator(2+2)</tool_call>`, unread: "no such JSON object"},
		{name: "cut JSON", format: named(t, CallsToolCall), text: `<tool_call>{"name": "calculator", "argu</tool_call>`, unread: "ends too early"},
		{name: "no name", format: named(t, CallsToolCall), text: `<tool_call>{"arguments":{}}</tool_call>`, unread: `has no "name"`},
		{name: "not closed", format: named(t, CallsToolCall), text: `<tool_call>{"name":"calculator","arguments":{"expression":"1"}}`, unread: "<tool_call> is not closed by </tool_call>"},
		{name: "closed by the stop string", format: custom, text: "<search>cats", stop: "</search>", call: "python", args: `{"code":"cats"}`},
		{name: "ended by another stop string", format: custom, text: "<search>cats", stop: "<information>", unread: "is not closed"},
		{name: "a server that names no stop string", format: custom, text: "<search>cats", call: "python", args: `{"code":"cats"}`},
		{name: "a fence", format: named(t, CallsFenced), text: "Well:\n```tool\n{\"name\":\"calculator\",\"arguments\":{\"expression\":\"1\"}}\n```\nand", call: "calculator", args: `{"expression":"1"}`},
		{name: "a fence inside a line is text", format: named(t, CallsFenced), text: "write ```tool\n{}\n```"},
		{name: "a fence of another language is text", format: named(t, CallsPython), text: "```python3\nprint(1)\n```"},
		{name: "code", format: named(t, CallsPython), text: "```python\nfor i in range(3):\n\n    print(i)\n```", call: "python", args: `{"code":"for i in range(3):\n\n    print(i)"}`},
		{name: "code with a fence inside a line", format: named(t, CallsPython), text: "```python\nprint('```')\n```\n", call: "python", args: "{\"code\":\"print('```')\"}"},
		{name: "code that is not closed", format: named(t, CallsPython), text: "```python\nprint(1)", unread: "```python is not closed by ```"},
		{name: "the answer", format: named(t, CallsPython), text: "So <answer>4 < 5</answer>", call: "submit", args: `{"answer":"4 < 5"}`},
		{name: "whatever comes first", format: named(t, CallsPython), text: "<answer>4</answer>\n```python\n1\n```", call: "submit", args: `{"answer":"4"}`},
		{name: "a tag of a tool's name", format: named(t, CallsTags), text: "<calculator>\n2 + 2\n</calculator>", call: "calculator", args: `{"expression":"2 + 2"}`},
		{name: "a tag of a tool with two arguments", format: named(t, CallsTags), text: `<two>{"a":"x","b":1}</two>`, call: "two", args: `{"a":"x","b":1}`},
		{name: "a tag of no tool is text", format: named(t, CallsTags), text: "<b>bold</b>"},
		{name: "no call", format: named(t, CallsTags), text: "The answer is 4."},
		{name: "nothing", format: named(t, CallsTags), text: ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, e := textSet(t, c.format, Calculator{}, Submit{}, python{}, two{})
			r := &episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, Content: &c.text}, Finish: episode.FinishStop}
			if c.stop != "" {
				r.StopSeq = &c.stop
			}
			s.Read(e, r)
			w := r.Message.Written
			if w == nil {
				if c.call != "" || c.unread != "" {
					t.Fatal("no call was found")
				}
				return
			}
			if w.Call.ID != "text_0" || w.Call.Function.Name != c.call || w.Call.Function.Arguments != c.args {
				t.Errorf("call %+v, want %s %s", w.Call, c.call, c.args)
			}
			if (w.Unread == "") != (c.unread == "") || !strings.Contains(w.Unread, c.unread) {
				t.Errorf("unread %q, want %q", w.Unread, c.unread)
			}
			if got := r.Message.Text(); c.stop == "</search>" && got != c.text+"</search>" || c.stop != "</search>" && got != c.text {
				t.Errorf("the text became %q", got)
			}
		})
	}
}

// A reply that was cut, or that holds the server's own tool calls, is not read; neither is reasoning.
func TestTextCallsLeaveOtherRepliesAlone(t *testing.T) {
	s, e := textSet(t, named(t, CallsTags), Calculator{})
	const call = "<calculator>1</calculator>"
	for name, r := range map[string]*episode.Reply{
		"cut":       {Message: episode.Message{Content: episode.Ptr(call)}, Finish: episode.FinishLength},
		"its own":   {Message: episode.Message{Content: episode.Ptr(call), ToolCalls: []episode.ToolCall{{ID: "c"}}}, Finish: episode.FinishToolCalls},
		"reasoning": {Message: episode.Message{Content: episode.Ptr("4"), ReasoningContent: episode.Ptr(call)}, Finish: episode.FinishStop},
		"no text":   {Message: episode.Message{}, Finish: episode.FinishStop},
	} {
		if s.Read(e, r); r.Message.Written != nil {
			t.Errorf("%s: read as %+v", name, r.Message.Written)
		}
	}
}

// The prompt tells the tools and how they are called; the stop string keeps the model from writing observations.
func TestTextCallsAreToldInThePrompt(t *testing.T) {
	s, e := textSet(t, named(t, CallsTags), Calculator{}, two{})
	system := e.Messages[0]
	if system.Role != episode.RoleSystem || e.NumPrompt != 2 || len(e.Messages) != 2 {
		t.Fatalf("messages %+v, %d of the prompt", e.Messages, e.NumPrompt)
	}
	for _, want := range []string{`"name":"calculator"`, "<calculator>expression</calculator>", "<two>{…}</two>", "<output>\n…\n</output>"} {
		if !strings.Contains(system.Text(), want) {
			t.Errorf("the prompt lacks %q:\n%s", want, system.Text())
		}
	}
	if strings.Contains(system.Text(), "<answer>") || strings.Contains(system.Text(), "{tools}") {
		t.Errorf("the prompt tells a tool that is not there, or its own marks:\n%s", system.Text())
	}
	if !slices.Equal(e.Sampling.Stop, []string{"<output>"}) {
		t.Errorf("stop strings %q", e.Sampling.Stop)
	}
	if defs, runnable, err := s.Tools(e.Task); defs != nil || !runnable || err != nil {
		t.Errorf("the server is sent tools: %s, %v, %v", defs, runnable, err)
	}

	own := &episode.Episode{Task: e.Task, Messages: []episode.Message{{Role: episode.RoleSystem, Content: episode.Ptr("Be brief.")}}, NumPrompt: 1, Sampling: episode.Sampling{Stop: []string{"<output>", "END"}}}
	shared := own.Messages
	if err := s.Prepare(own); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(own.Messages[0].Text(), "Be brief.\n\nYou can use") || len(own.Messages) != 1 || len(own.Sampling.Stop) != 2 || *shared[0].Content != "Be brief." {
		t.Errorf("an own system message became %q (%d), the task's is %q, stops %q", own.Messages[0].Text(), len(own.Messages), *shared[0].Content, own.Sampling.Stop)
	}

	quiet := named(t, CallsTags)
	quiet.Prompt = NoPrompt
	if _, e := textSet(t, quiet, Calculator{}); len(e.Messages) != 1 || len(e.Sampling.Stop) != 1 {
		t.Errorf("without a prompt: %+v, stops %q", e.Messages, e.Sampling.Stop)
	}
	if _, e := textSet(t, named(t, CallsTags)); len(e.Messages) != 1 || len(e.Sampling.Stop) != 0 {
		t.Errorf("without tools: %+v, stops %q", e.Messages, e.Sampling.Stop)
	}
}

// What comes of a call is told in a user message, also of one that could not be read, and the episode goes on.
func TestTextCallsAreAnsweredInText(t *testing.T) {
	for name, c := range map[string]struct{ text, want, status string }{
		"a result":     {"<calculator>2+2</calculator>", "<output>\n4\n</output>", episode.ActionOK},
		"an error":     {"<calculator>2+</calculator>", "<output>\nerror: ", episode.ActionError},
		"a wrong body": {"<two>x</two>", "<output>\nerror: the arguments are not valid JSON", episode.ActionBadArgs},
		"unreadable":   {"<calculator>2+2", "<output>\nerror: the call could not be read: <calculator> is not closed by </calculator>\nexpected <calculator>expression</calculator>\n</output>", episode.ActionBadArgs},
	} {
		t.Run(name, func(t *testing.T) {
			s, e := textSet(t, named(t, CallsTags), Calculator{}, two{})
			r := &episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, Content: &c.text}, Finish: episode.FinishStop}
			s.Read(e, r)
			e.AddReply(r, episode.Turn{})
			acts := e.PendingActions()
			if len(acts) != 1 || !e.Open() {
				t.Fatalf("%d actions, status %q", len(acts), e.Status)
			}
			for _, o := range s.Do(context.Background(), e, acts) {
				e.AddObservation(o)
			}
			last := e.Messages[len(e.Messages)-1]
			if last.Role != episode.RoleUser || !strings.HasPrefix(last.Text(), c.want) || last.ToolCallID != nil {
				t.Errorf("the model is told %+v %q, want %q", last.Role, last.Text(), c.want)
			}
			if a := e.Actions[0]; a.Status != c.status || a.CallID != "text_0" {
				t.Errorf("recorded %+v", a)
			}
			call, ok := e.NextCall()
			if !ok {
				t.Fatalf("the episode ended: %s %v", e.Stop, e.Fault)
			}
			if said := call.Messages[len(call.Messages)-2]; said.Text() != c.text || len(said.ToolCalls) > 0 {
				t.Errorf("the answer goes back as %+v", said)
			}
		})
	}
}

func TestCallFormatSaysEveryFault(t *testing.T) {
	bad := CallFormat{Blocks: []CallBlock{{Open: "<a>"}, {Open: "|", Close: "|"}, {Open: "<x>", Close: "</x>", Argument: "y"}, {Open: "<x>", Close: "</x>"}}, Output: "nothing", Stop: []string{""}}
	err := bad.Validate()
	for _, want := range []string{"blocks[0]: expected open and close", "blocks[1]: open and close are the same", "blocks[2]: argument", "blocks[3]: open", "output: expected {output}", "stop: a stop string"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	_, err = New(Config{Calls: CallFormat{Blocks: []CallBlock{{Open: "<s>", Close: "</s>", Tool: "serch"}, {Open: "<c>", Close: "</c>", Tool: "calculator", Argument: "x"}}}}, Calculator{})
	for _, want := range []string{`no tool "serch"; there are: calculator`, `has no argument "x"; it has: expression`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	for _, name := range CallFormatNames() {
		if err := named(t, name).Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever a body holds but its closing comes out as it went in.
func TestTextCallBodiesComeOutAsTheyWentIn(t *testing.T) {
	s, e := textSet(t, named(t, CallsTags), python{})
	rapid.Check(t, func(rt *rapid.T) {
		body := rapid.String().Draw(rt, "body")
		if strings.Contains(body, "</python>") {
			rt.Skip("it closes itself")
		}
		text := "Let me see.\n<python>\n" + body + "\n</python>" + rapid.String().Draw(rt, "after")
		r := &episode.Reply{Message: episode.Message{Content: &text}, Finish: episode.FinishStop}
		s.Read(e, r)
		var in struct{ Code string }
		if err := json.Unmarshal([]byte(r.Message.Written.Call.Function.Arguments), &in); err != nil || in.Code != body {
			rt.Fatalf("%q became %q (%v)", body, in.Code, err)
		}
	})
}

func FuzzTextCalls(f *testing.F) {
	for _, seed := range []string{"", "<tool_call>{}</tool_call>", "```tool\n{\"name\":\"f\"}\n```", "```python\nx\n```", "<answer>", "<python></python>", "\n```tool\n```tool\n", "<tool_call>{\"name\":\"a\",\"arguments\":\"x\"}</tool_call>"} {
		f.Add(seed)
	}
	sets := make([]*Set, 0, 4)
	var e *episode.Episode
	for _, name := range CallFormatNames()[1:] {
		var s *Set
		s, e = textSet(f, named(f, name), Calculator{}, Submit{}, python{}, two{})
		sets = append(sets, s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range sets {
			r := &episode.Reply{Message: episode.Message{Content: episode.Ptr(text)}, Finish: episode.FinishStop}
			s.Read(e, r)
			if r.Message.Text() != text {
				t.Fatalf("the text became %q", r.Message.Text())
			}
			if w := r.Message.Written; w != nil && (w.Unread == "") == (w.Call.Function.Name == "") {
				t.Fatalf("neither a call nor unread, or both: %+v", w)
			}
		}
	})
}

// Reading is linear: text that never closes what it opens costs no more than its length.
func BenchmarkTextCalls(b *testing.B) {
	s, e := textSet(b, named(b, CallsPython), Calculator{}, Submit{}, python{}, two{})
	for name, text := range map[string]string{
		"prose":      strings.Repeat("The quick brown fox jumps over the lazy dog.\n", 1500),
		"half-opens": strings.Repeat("x ```python ```tool <answe\n", 2500),
		"one line":   "\n" + strings.Repeat("```python x", 6000),
		"lines":      "```python\n" + strings.Repeat("``\n", 20000),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r := &episode.Reply{Message: episode.Message{Content: &text}, Finish: episode.FinishStop}
				s.Read(e, r)
			}
		})
	}
}
