package inference

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/internal/mock"
)

// understood reads one whole answer without a server.
func understood(t testing.TB, body string, maxTokens int) *episode.Reply {
	t.Helper()
	a := &answer{}
	if said, err := a.takeEvent([]byte(body)); err != nil || said != nil {
		t.Fatalf("%s: error %v, refusal %s", body, err, said)
	}
	r, err := a.reply(episode.Sampling{}, maxTokens)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// streamed reads the same payloads as a stream, its end included.
func streamed(t testing.TB, payloads []string, maxTokens int) (*episode.Reply, error) {
	t.Helper()
	a := &answer{}
	for _, p := range payloads {
		if said, err := a.takeEvent([]byte(p)); err != nil || said != nil {
			t.Fatalf("%s: error %v, refusal %s", p, err, said)
		}
	}
	if err := endOfStream(a, io.EOF); err != nil {
		return nil, err
	}
	return a.reply(episode.Sampling{}, maxTokens)
}

// message is a whole answer with this message.
func message(m, finish string) string {
	return `{"choices":[{"index":0,"message":` + m + `,"finish_reason":` + finish + `}],"usage":{"prompt_tokens":5,"completion_tokens":8}}`
}

// show is a message in one line, null told from "".
func show(m episode.Message) string {
	s := text1(m.Content) + " / " + text1(m.ReasoningContent)
	for _, c := range m.ToolCalls {
		s += fmt.Sprintf(" / %s %s %s %s", c.ID, c.Type, c.Function.Name, c.Function.Arguments)
	}
	return s
}

func TestWhatAMessageHolds(t *testing.T) {
	for name, c := range map[string]struct {
		message, finish string
		want            string
		flags           []string
		sent            string // the content when it goes out again, where that is another text
	}{
		"null is not empty":               {`{"content":null}`, `"stop"`, "<null> / <null>", nil, ""},
		"empty is not null":               {`{"content":"","reasoning":""}`, `"stop"`, " / ", nil, ""},
		"both names, one text":            {`{"content":"c","reasoning":"r","reasoning_content":"r"}`, `"stop"`, "c / r", nil, ""},
		"both names, one of them empty":   {`{"content":"c","reasoning":"r","reasoning_content":""}`, `"stop"`, "c / r", nil, ""},
		"reasoning only in its details":   {`{"content":"c","reasoning_details":[{"type":"reasoning.summary","summary":"a"},{"text":"b"},{"data":"x"}]}`, `"stop"`, "c / ab", nil, ""},
		"refusal":                         {`{"content":null,"refusal":"no"}`, `"stop"`, "no / <null>", []string{episode.FlagRefused}, ""},
		"refusal beside empty content":    {`{"content":"","refusal":"no"}`, `"stop"`, "no / <null>", []string{episode.FlagRefused}, ""},
		"a list of parts":                 {`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, `"stop"`, "ab / <null>", nil, ""},
		"parts that think":                {`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"r"}]},{"type":"text","text":"a"}]}`, `"stop"`, "a / r", nil, ""},
		"a part that refuses":             {`{"content":[{"type":"refusal","refusal":"no"}]}`, `"stop"`, "no / <null>", []string{episode.FlagRefused}, ""},
		"no part":                         {`{"content":[]}`, `"stop"`, " / <null>", nil, ""},
		"a part nobody knows":             {`{"content":[{"type":"image","url":"u"}]}`, `"stop"`, `[{"type":"image","url":"u"}] / <null>`, nil, ""},
		"thinking in tags":                {`{"content":"<think>\nr\n</think>\n\na"}`, `"stop"`, "\n\na / \nr\n", []string{episode.FlagThinkingTagged}, "<think>\nr\n</think>\n\na"},
		"the template wrote the tag":      {`{"content":"r</think>a"}`, `"stop"`, "a / r", []string{episode.FlagThinkingTagged}, "r</think>a"},
		"nothing behind the thinking":     {`{"content":" <think>r</think>"}`, `"stop"`, " / r", []string{episode.FlagThinkingTagged}, " <think>r</think>"},
		"cut inside the tags":             {`{"content":"<think>r"}`, `"length"`, "<null> / r", []string{episode.FlagThinkingTagged, episode.FlagThinkingCut}, "<think>r"},
		"cut while thinking":              {`{"content":null,"reasoning":"r"}`, `"length"`, "<null> / r", []string{episode.FlagThinkingCut}, ""},
		"a stop string inside the tags":   {`{"content":"<think>r"}`, `"stop","stop_reason":"\n"`, "<null> / r", []string{episode.FlagThinkingTagged, episode.FlagThinkingCut}, "<think>r"},
		"a stop string while thinking":    {`{"content":null,"reasoning":"r"}`, `"stop","stop_reason":"\n"`, "<null> / r", []string{episode.FlagThinkingCut}, ""},
		"ended while thinking":            {`{"content":null,"reasoning":"r"}`, `"stop","matched_stop":151645`, "<null> / r", nil, ""},
		"cut after thinking":              {`{"content":"a","reasoning":"r"}`, `"length"`, "a / r", nil, ""},
		"tags are text where a parser is": {`{"content":"<think>a</think>","reasoning":"r"}`, `"stop"`, "<think>a</think> / r", nil, ""},
		"tags in the middle are text":     {`{"content":"a <think>b</think>"}`, `"stop"`, "a <think>b</think> / <null>", nil, ""},
		"an open tag that stays text":     {`{"content":"a <think> b"}`, `"stop"`, "a <think> b / <null>", nil, ""},
		"function_call":                   {`{"content":null,"function_call":{"name":"f","arguments":"{}"}}`, `"function_call"`, "<null> / <null> /  function f {}", nil, ""},
		"numbers for names":               {`{"content":null,"tool_calls":[{"id":7,"type":null,"function":{"name":"f","arguments":{"a":1}}}]}`, `"tool_calls"`, `<null> / <null> / 7 function f {"a":1}`, nil, ""},
		"null for a list of calls":        {`{"content":"a","tool_calls":null,"function_call":null}`, `"stop"`, "a / <null>", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			whole := understood(t, message(c.message, c.finish), 0)
			delta := strings.Replace(message(c.message, c.finish), `"message"`, `"delta"`, 1)
			piece, err := streamed(t, []string{delta}, 0)
			if err != nil {
				t.Fatal(err)
			}
			for form, r := range map[string]*episode.Reply{"whole": whole, "stream": piece} {
				if got := show(r.Message); got != c.want || !slices.Equal(r.Flags, c.flags) {
					t.Errorf("%s: %q flags %v, want %q flags %v", form, got, r.Flags, c.want, c.flags)
				}
				if sent := r.Message.Sendable(); c.sent != "" && (sent.Text() != c.sent || sent.ReasoningContent != nil) {
					t.Errorf("%s: goes out as %q, came as %q", form, show(sent), c.sent)
				}
			}
		})
	}
}

func TestFinishReasons(t *testing.T) {
	for raw, want := range map[string]string{
		`null`: "", `""`: "", `"stop"`: "stop", `"STOP"`: "stop", `"eos_token"`: "stop", `"length"`: "length", `"MAX_TOKENS"`: "length",
		`"tool_calls"`: "tool_calls", `"function_call"`: "tool_calls", `"abort"`: "abort", `"insufficient_system_resource"`: "abort",
		`"content_filter"`: "other", `"repetition"`: "other", `{"type":"length","length":8}`: "length", `5`: "other",
	} {
		r := understood(t, message(`{"content":"a"}`, raw), 0)
		said := strings.Trim(raw, `"`)
		if strings.HasPrefix(said, "{") {
			said = "length"
		}
		if said == "null" {
			said = ""
		}
		if r.Finish != want || r.RawEnd != said {
			t.Errorf("%s: %q, kept as %q; want %q, kept as %q", raw, r.Finish, r.RawEnd, want, said)
		}
	}
	t.Run("what comes later does not take it back", func(t *testing.T) {
		r, err := streamed(t, []string{
			`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":""}]}`, `{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`,
			`{"choices":[{"index":0,"delta":{},"finish_reason":""}]}`, `{"choices":[{"index":0,"delta":{},"finish_reason":null}],"usage":{}}`,
		}, 0)
		if err != nil || r.RawEnd != "length" {
			t.Fatalf("%+v %v", r, err)
		}
	})
}

// SP6: an answer that ran into its limit inside a call is cut, whatever the engine calls it; one that ended before is the model's
// own broken JSON, which the model is told about.
func TestCutCallsAreNotCalls(t *testing.T) {
	calls := func(arguments string) string {
		return `{"content":null,"tool_calls":[{"id":"a","index":0,"function":{"name":"f","arguments":` + arguments + `}}]}`
	}
	for name, c := range map[string]struct {
		arguments, finish string
		maxTokens         int
		want              string
	}{
		"labelled tool_calls":     {`"{\"n\": 7"`, `"tool_calls"`, 8, episode.FinishLength},
		"labelled stop":           {`"{\"n\": 7"`, `"stop"`, 8, episode.FinishLength},
		"before the arguments":    {`""`, `"tool_calls"`, 8, episode.FinishLength},
		"not labelled":            {`"{\"n\": 7"`, `null`, 8, episode.FinishLength},
		"the model's own":         {`"{\"n\": 7"`, `"tool_calls"`, 9, episode.FinishToolCalls},
		"no limit was sent":       {`"{\"n\": 7"`, `"tool_calls"`, 0, episode.FinishToolCalls},
		"whole at the very limit": {`"{\"n\": 7}"`, `"tool_calls"`, 8, episode.FinishToolCalls},
	} {
		t.Run(name, func(t *testing.T) {
			r := understood(t, message(calls(c.arguments), c.finish), c.maxTokens)
			if r.Finish != c.want || r.RawEnd != strings.Trim(strings.Replace(c.finish, "null", "", 1), `"`) {
				t.Fatalf("finish %q, raw %q, want %q", r.Finish, r.RawEnd, c.want)
			}
			ep := &episode.Episode{Task: &episode.Task{}}
			ep.AddReply(r, episode.Turn{})
			if runs := len(ep.PendingActions()) > 0; runs != (c.want == episode.FinishToolCalls) {
				t.Fatalf("acts: %v", runs)
			}
		})
	}
	t.Run("a stream that ends in order inside a call", func(t *testing.T) {
		s := mock.New(t, mock.Config{Chat: sse(`data: {"choices":[{"index":0,"delta":` + calls(`"{\"n\": 7"`) + `}]}` + "\n\ndata: [DONE]\n\n")})
		_, err := open(t, s, nil).Generate(t.Context(), call("x"), 0, 64)
		if f := faultOf(t, err); f.Class != episode.ClassTruncatedStream || !f.Retry {
			t.Fatalf("%+v", f)
		}
	})
}

func TestUsageWhereverItComes(t *testing.T) {
	const choice = `"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"`
	for name, c := range map[string]struct{ body, want string }{
		"top":                        {`{` + choice + `}],"usage":{"prompt_tokens":5,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":3}}}`, "5 8 3"},
		"in the choice":              {`{` + choice + `,"usage":{"prompt_tokens":5,"completion_tokens":8}}]}`, "5 8 -"},
		"x_groq":                     {`{` + choice + `}],"x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":8}}}`, "5 8 -"},
		"llama-server's timings":     {`{` + choice + `}],"timings":{"cache_n":3,"prompt_n":2,"predicted_n":8}}`, "5 8 3"},
		"usage before timings":       {`{` + choice + `}],"usage":{"prompt_tokens":6,"completion_tokens":9},"timings":{"cache_n":3,"prompt_n":2,"predicted_n":8}}`, "6 9 3"},
		"SGLang's meta_info":         {`{` + choice + `,"meta_info":{"prompt_tokens":5,"completion_tokens":8,"cached_tokens":3}}]}`, "5 8 3"},
		"names of other routes":      {`{` + choice + `}],"usage":{"input_tokens":5,"output_tokens":8,"input_tokens_details":{"cached_tokens":3}}}`, "5 8 3"},
		"DeepSeek's cache":           {`{` + choice + `}],"usage":{"prompt_tokens":5,"completion_tokens":8,"prompt_cache_hit_tokens":3}}`, "5 8 3"},
		"xAI's thinking":             {`{` + choice + `}],"usage":{"prompt_tokens":5,"completion_tokens":8,"total_tokens":20,"completion_tokens_details":{"reasoning_tokens":7}}}`, "5 15 -"},
		"everyone else's thinking":   {`{` + choice + `}],"usage":{"prompt_tokens":5,"completion_tokens":8,"total_tokens":13,"completion_tokens_details":{"reasoning_tokens":7}}}`, "5 8 -"},
		"null":                       {`{` + choice + `}],"usage":null,"timings":null}`, "- - -"},
		"figures that are no counts": {`{` + choice + `}],"usage":{"prompt_tokens":-1,"completion_tokens":"8","total_tokens":1.5}}`, "- - -"},
	} {
		t.Run(name, func(t *testing.T) {
			u := understood(t, c.body, 0).Usage
			if got := number(u.Prompt) + " " + number(u.Completion) + " " + number(u.Cached); got != c.want {
				t.Fatalf("%s, want %s", got, c.want)
			}
		})
	}
}

func number(p *int32) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprint(*p)
}

// Choices are told apart by their index, by their place where they have none, and where several whole ones have the same.
func TestChoicesAreKeptApart(t *testing.T) {
	for name, payloads := range map[string][]string{
		"whole":                 {`{"choices":[{"index":1,"message":{"content":"b"},"finish_reason":"length","prompt_token_ids":[2]},{"index":0,"message":{"content":"a"},"finish_reason":"stop","prompt_token_ids":[1]}]}`},
		"whole, without index":  {`{"choices":[{"message":{"content":"a"},"finish_reason":"stop","prompt_token_ids":[1]},{"message":{"content":"b"},"finish_reason":"length","prompt_token_ids":[2]}]}`},
		"whole, all at index 0": {`{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop","prompt_token_ids":[1]},{"index":0,"message":{"content":"b"},"finish_reason":"length","prompt_token_ids":[2]}]}`},
		"legacy":                {`{"choices":[{"index":0,"text":"a","finish_reason":"stop","prompt_token_ids":[1]},{"index":1,"text":"b","finish_reason":"length","prompt_token_ids":[2]}]}`},
		"in pieces": {`{"choices":[{"index":1,"delta":{"content":""},"prompt_token_ids":[2]}]}`, `{"choices":[{"index":0,"delta":{"content":"a"},"prompt_token_ids":[1]},{"index":1,"delta":{"content":"b"}}]}`,
			`{"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}`, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`},
		"pieces with all that came before beside them": {`{"choices":[{"index":0,"delta":{"content":"a"},"message":{"content":"a"},"finish_reason":"stop","prompt_token_ids":[1]},{"index":1,"delta":{"content":""},"message":{"content":""},"prompt_token_ids":[2]}]}`,
			`{"choices":[{"index":1,"delta":{"content":"b"},"message":{"content":"b"},"finish_reason":"length"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := &answer{}
			for _, p := range payloads {
				if _, err := a.takeEvent([]byte(p)); err != nil {
					t.Fatal(err)
				}
			}
			if len(a.choices) != 2 {
				t.Fatalf("%d choices", len(a.choices))
			}
			for i, want := range []string{"a stop [1]", "b length [2]"} {
				r := a.replyOf(a.choices[i], episode.Sampling{}, 0)
				if got := fmt.Sprint(r.Message.Text(), " ", r.Finish, " ", r.PromptIDs); got != want {
					t.Errorf("choice %d: %s, want %s", i, got, want)
				}
			}
		})
	}
}

func TestIDsInTokenNames(t *testing.T) {
	for name, body := range map[string]string{
		"chat":   `{"choices":[{"message":{"content":"ab"},"finish_reason":"stop","logprobs":{"content":[{"token":"token_id:7","logprob":-1},{"token":"token_id:80","logprob":null}]}}]}`,
		"legacy": `{"choices":[{"text":"ab","finish_reason":"stop","logprobs":{"tokens":["token_id:7","token_id:80"],"token_logprobs":[-1,null]}}]}`,
	} {
		a := &answer{}
		if _, err := a.takeEvent([]byte(body)); err != nil {
			t.Fatal(err)
		}
		if c := a.choice(); !slices.Equal(c.logprobIDs, []int32{7, 80}) || len(c.logprobs) != 2 || c.logprobs[1].Known {
			t.Errorf("%s: ids %v, logprobs %v", name, c.logprobIDs, c.logprobs)
		}
	}
}

// A provider's failure behind a gateway stands in the choice; the words must not be lost.
func TestErrorInsideAChoice(t *testing.T) {
	s := mock.New(t, mock.Config{Chat: fixed(200, `{"choices":[{"index":0,"message":{"content":"half"},"finish_reason":"error","error":{"code":502,"message":"the provider went away"}}]}`)})
	_, err := open(t, s, nil).Generate(t.Context(), call("x"), 0, 8)
	if f := faultOf(t, err); f.Class != episode.ClassServerError || !f.Retry || f.Partial != "half" || !strings.Contains(err.Error(), "the provider went away") {
		t.Fatalf("%+v", f)
	}
}

// A stream under another content type is a stream all the same, cut ones included; when its pieces came is not known.
func TestStreamUnderAnotherContentType(t *testing.T) {
	const finish = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	for _, kind := range []string{"application/json", "text/plain", ""} {
		send := func(raw string) *Endpoint {
			return open(t, mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) { w.Raw(200, kind, raw) }}), nil)
		}
		if r := generate(t, send(twoPieces+finish+"data: [DONE]\n\n"), call("x")); r.Message.Text() != "Hello there" || r.TTFT != nil {
			t.Fatalf("%q: %+v", kind, r)
		}
		for _, before := range []string{": ping\n\n", "event: message\n"} {
			if r := generate(t, send(before+twoPieces+finish+"data: [DONE]\n\n"), call("x")); r.Message.Text() != "Hello there" {
				t.Fatalf("%q, %q before: %+v", kind, before, r)
			}
		}
		_, err := send(twoPieces).Generate(t.Context(), call("x"), 0, 8)
		if f := faultOf(t, err); f.Class != episode.ClassTruncatedStream || f.Partial != "Hello there" {
			t.Fatalf("%q: %+v", kind, f)
		}
	}
}

// Servers that leave out blank lines, and keep the connection: the marker still ends the answer at once.
func TestMarkerWithoutBlankLine(t *testing.T) {
	raw := strings.ReplaceAll(twoPieces, "\n\n", "\n") + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\ndata: [DONE]\n"
	s := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) { w.Stream(); w.Write(raw); w.Hang() }})
	if r := generate(t, open(t, s, nil), call("x")); r.Message.Text() != "Hello there" || r.Service > finishGrace {
		t.Fatalf("%q after %v", r.Message.Text(), r.Service)
	}
}

// piecesOf cuts s at the places that cuts names, never inside a character.
func piecesOf(s string, cuts []byte) (out []string) {
	rest := []rune(s)
	for _, c := range cuts {
		n := min(int(c)%7, len(rest))
		out, rest = append(out, string(rest[:n])), rest[n:]
	}
	return append(out, string(rest))
}

// FuzzToolCallPieces: however the arguments of two calls are cut up and interleaved, and however a server numbers and names the
// pieces, what is understood is what a whole answer says.
func FuzzToolCallPieces(f *testing.F) {
	f.Add("f", `{"a":1}`, "g", `{"b":"é😀"}`, []byte{1, 2, 3, 0, 5}, byte(0))
	f.Add("f", `{"a":`, "f", ``, []byte{6, 6}, byte(3))
	f.Add("get_weather", `{"a":"\"}{"}`, "get_weather", `{}`, []byte{0, 0, 1}, byte(7))
	f.Fuzz(func(t *testing.T, name1, args1, name2, args2 string, cuts []byte, style byte) {
		if name1 == "" || name2 == "" || len(cuts) > 64 {
			t.Skip()
		}
		want := understood(t, message(`{"tool_calls":[`+piece(0, "a", name1, args1)+`,`+piece(1, "b", name2, args2)+`]}`, `"tool_calls"`), 0)
		one, two := pieceStream(0, "a", name1, piecesOf(args1, cuts), style), pieceStream(1, "b", name2, piecesOf(args2, cuts), style)
		list := append(one, two...)
		if style&4 != 0 && style&1 == 0 { // interleaved, where an index says what belongs together
			list = weave(one, two)
		}
		var payloads []string
		for _, p := range list {
			payloads = append(payloads, `{"choices":[{"index":0,"delta":{"tool_calls":[`+p+`]}}]}`)
		}
		got, err := streamed(t, append(payloads, `{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`), 0)
		if err != nil {
			t.Fatal(err)
		}
		if show(got.Message) != show(want.Message) {
			t.Fatalf("in pieces %q: %s\nwhole: %s", list, show(got.Message), show(want.Message))
		}
	})
}

func piece(index int, id, name, arguments string) string {
	b, err := json.Marshal(map[string]any{"index": index, "id": id, "type": "function", "function": map[string]any{"name": name, "arguments": arguments}})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// pieceStream is one call in pieces. style: bit 0 = without index, bit 1 = id and name in every piece.
func pieceStream(index int, id, name string, arguments []string, style byte) (out []string) {
	for i, a := range arguments {
		call := map[string]any{"index": index, "function": map[string]any{"arguments": a}}
		if i == 0 || style&2 != 0 {
			call = map[string]any{"index": index, "id": id, "function": map[string]any{"name": name, "arguments": a}}
		}
		if style&1 != 0 {
			delete(call, "index")
		}
		b, err := json.Marshal(call)
		if err != nil {
			panic(err)
		}
		out = append(out, string(b))
	}
	return out
}

func weave(a, b []string) (out []string) {
	for i := range max(len(a), len(b)) {
		if i < len(a) {
			out = append(out, a[i])
		}
		if i < len(b) {
			out = append(out, b[i])
		}
	}
	return out
}

// FuzzAnswer feeds any bytes as a whole answer: no panic, and what is understood keeps the laws a row is built on.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(message(`{"content":"<think>a</think>b","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}`, `"stop"`)), 8)
	f.Add([]byte(`{"choices":[{"text":"ab","token_ids":[1,2],"logprobs":{"token_logprobs":[-Infinity,NaN]}}],"usage":{"prompt_tokens":1e99}}`), 0)
	f.Add([]byte(`{"choices":[{"message":{"content":[{"thinking":[{"text":"a"}]},{"text":"\ud83d"}],"refusal":"\ude00"},"finish_reason":{"type":"length"}},{"message":{"content":"b"}}],"timings":{"cache_n":2147483647,"prompt_n":1}}`), 1)
	f.Fuzz(func(t *testing.T, body []byte, maxTokens int) {
		a := &answer{}
		if said, err := a.takeEvent(body); err != nil || said != nil {
			return
		}
		for _, c := range a.choices {
			checkLaws(t, a.replyOf(c, episode.Sampling{Logprobs: true, TokenIDs: true}, maxTokens))
		}
		_ = a.said()
	})
}

func checkLaws(t *testing.T, r *episode.Reply) {
	t.Helper()
	if r.SampledIDs != nil && r.Logprobs != nil && len(r.SampledIDs) != len(r.Logprobs) {
		t.Fatalf("%d ids, %d logprobs", len(r.SampledIDs), len(r.Logprobs))
	}
	for _, n := range []*int32{r.Usage.Prompt, r.Usage.Completion, r.Usage.Cached} {
		if n != nil && *n < 0 {
			t.Fatalf("usage %s %s %s", number(r.Usage.Prompt), number(r.Usage.Completion), number(r.Usage.Cached))
		}
	}
	encoded, err := json.Marshal(r.Message)
	if err != nil {
		t.Fatal(err)
	}
	var back episode.Message
	if err := json.Unmarshal(encoded, &back); err != nil || show(back) != show(r.Message) {
		t.Fatalf("%q is not valid UTF-8: %v", show(r.Message), err)
	}
}

// FuzzUntag: a content taken apart and put together again is the same content.
func FuzzUntag(f *testing.F) {
	for _, s := range []string{"<think>a</think>b", "a</think>b", "<think>a", " \n<think></think>", "<think><think></think></think>", "\xff<think>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := &choice{content: pieces(s)}
		m, broken := c.message()
		if whole, _ := repair(s); m.Sendable().Text() != whole && !broken {
			t.Fatalf("%q came out as %q", whole, m.Sendable().Text())
		}
		if (m.Tagged != nil) != (m.ReasoningContent != nil) {
			t.Fatalf("%+v", m)
		}
	})
}

// A stream is bounded as a whole: by comments that never end, by an event that never ends, and by many small ones.
func TestStreamOverTheCap(t *testing.T) {
	for name, line := range map[string]string{
		"comments": ": keep-alive\n\n", "one event": "data: \"x\"\n", "pieces": `data: {"choices":[{"index":0,"delta":{"content":"x"}}]}` + "\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) { w.Stream(); w.Write(strings.Repeat(line, 1000)); w.Hang() }})
			_, err := open(t, s, func(c *Config) { c.MaxReplyBytes = 8192 }).Generate(t.Context(), call("x"), 0, 8)
			if f := faultOf(t, err); f.Class != episode.ClassMalformed || !strings.Contains(err.Error(), "8192") {
				t.Fatalf("%v", err)
			}
		})
	}
}

// What stands beside an answer may have any form: the answer is read all the same.
func TestOddBookkeepingSpoilsNoAnswer(t *testing.T) {
	places := []string{
		`"message":{"content":"a"}}],"usage":%s`, `"message":{"content":"a"}}],"usage":{"prompt_tokens_details":%s,"prompt_tokens":5}`, `"message":{"content":"a"}}],"usage":{"completion_tokens":%s}`,
		`"message":{"content":"a"}}],"timings":%s`, `"message":{"content":"a"}}],"metadata":%s`, `"message":{"content":"a"}}],"x_groq":%s`, `"message":{"content":"a"}}],"x_groq":{"usage":%s}`,
		`"message":{"content":"a"}}],"model":%s`, `"message":{"content":"a","reasoning_details":%s}}]`, `"message":{"content":"a","function_call":%s}}]`, `"message":{"content":"a"},"usage":%s}]`,
		`"message":{"content":"a"},"stop_reason":%s}]`, `"message":{"content":"a"},"matched_stop":%s}]`, `"message":{"content":"a"},"finish_reason":%s}]`,
	}
	for _, place := range places {
		for _, odd := range []string{`null`, `""`, `"x"`, `0`, `-1.5`, `true`, `[]`, `[1]`, `[null]`, `["x"]`, `[[]]`, `{}`, `{"x":1}`, `{"weight_version":[]}`, `{"usage":5}`} {
			body := `{"choices":[{"index":0,` + fmt.Sprintf(place, odd) + `}`
			if r := understood(t, body, 0); r.Message.Text() != "a" {
				t.Errorf("%s: %s", body, show(r.Message))
			}
		}
	}
}
