package taskfile

import (
	"encoding/json"
	"iter"
	"strings"
	"testing"

	"tranche/episode"
)

// flat writes a task in one line a field, for comparison.
func flat(t *episode.Task) string {
	var b strings.Builder
	line := func(name, v string) {
		if v != "" {
			b.WriteString(name + "=" + v + "\n")
		}
	}
	line("id", t.ID)
	for _, m := range t.Messages {
		raw, err := encode(m)
		if err != nil {
			panic(err)
		}
		line("msg", string(raw))
	}
	line("tools", string(t.Tools))
	if t.Answer != nil {
		line("answer", "'"+*t.Answer+"'")
	}
	line("style", t.Style)
	line("source", t.DataSource)
	line("env", t.EnvClass)
	line("split", t.Split)
	line("params", string(t.Params))
	line("extra", string(t.Extra))
	return strings.TrimSpace(b.String())
}

func TestRowShapes(t *testing.T) {
	for _, c := range []struct{ name, row, want string }{
		{"prompt string, number id, plain answer", `{"id": 7, "prompt": "2+2?", "answer": 4}`,
			`id=7
msg={"role":"user","content":"2+2?"}
answer='4'`},
		{"system column goes first", `{"id":"a","system":"Be brief.","prompt":"Hi"}`,
			`id=a
msg={"role":"system","content":"Be brief."}
msg={"role":"user","content":"Hi"}`},
		{"messages with a tool round, arguments as object and as text", `{"id":"a","messages":[{"role":"user","content":"x"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"c1","function":{"name":"f","arguments":{"b":1,"a":"<>"}}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{ \"k\": 1 }"}}]},
			{"role":"tool","tool_call_id":"c1","name":"f","content":"ok"},{"role":"tool","tool_call_id":"c2","content":""}]}`,
			`id=a
msg={"role":"user","content":"x"}
msg={"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":\"<>\",\"b\":1}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{ \"k\": 1 }"}}]}
msg={"role":"tool","content":"ok","name":"f","tool_call_id":"c1"}
msg={"role":"tool","content":"","tool_call_id":"c2"}`},
		{"text parts are joined with a newline", `{"id":"a","prompt":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
			`id=a
msg={"role":"user","content":"a\nb"}`},
		{"verl row", `{"data_source":"openai/gsm8k","prompt":[{"role":"user","content":"q"}],"ability":"math","reward_model":{"style":"rule","ground_truth":"72"},"extra_info":{"split":"train","index":0,"tools_kwargs":{"x":1}},"id":"v"}`,
			`id=v
msg={"role":"user","content":"q"}
answer='72'
style=rule
source=openai/gsm8k
split=train
extra={"ability":"math","index":0,"split":"train","tools_kwargs":{"x":1}}`},
		{"SkyRL row", `{"id":"s","data_source":"d","prompt":[{"role":"user","content":"q"}],"env_class":"gsm8k","reward_spec":{"method":"rule","ground_truth":"5","more":2},"extra_info":null}`,
			`id=s
msg={"role":"user","content":"q"}
answer='5'
style=rule
source=d
env=gsm8k
extra={"reward_spec":{"more":2}}`},
		{"reward_model outranks answer, which stays in Extra", `{"id":"a","prompt":"q","answer":"long #### 4","reward_model":{"ground_truth":"4"}}`,
			`id=a
msg={"role":"user","content":"q"}
answer='4'
extra={"answer":"long #### 4"}`},
		{"answer list is kept as its JSON", `{"id":"a","prompt":"q","answer":["x", "y"]}`,
			`id=a
msg={"role":"user","content":"q"}
answer='["x","y"]'`},
		{"empty answer is an answer, null is none", `{"id":"a","prompt":"q","answer":"","data_source":null}`,
			`id=a
msg={"role":"user","content":"q"}
answer=''`},
		{"tools by name and by definition", `{"id":"a","prompt":"q","tools":["calculator",{"type":"function","function":{"parameters":{"type":"object"},"name":"f"}}]}`,
			`id=a
msg={"role":"user","content":"q"}
tools=["calculator",{"function":{"name":"f","parameters":{"type":"object"}},"type":"function"}]`},
		{"tools as JSON text", `{"id":"a","prompt":"q","tools":"[\"submit\"]"}`,
			`id=a
msg={"role":"user","content":"q"}
tools=["submit"]`},
		{"extra_info as JSON text, other columns beside it, clash kept", `{"id":"a","prompt":"q","extra_info":"{\"k\":1,\"n\":2.50}","k":2,"n":2.50,"z":[1, {"b":1,"a":2}]}`,
			`id=a
msg={"role":"user","content":"q"}
extra={"column.k":2,"k":1,"n":2.50,"z":[1,{"a":2,"b":1}]}`},
		{"message fields that are not sent are kept", `{"id":"a","messages":[{"role":"user","content":"q","weight":0,"refusal":null,"annotations":[]}]}`,
			`id=a
msg={"role":"user","content":"q"}
extra={"messages":[{"annotations":[],"content":"q","refusal":null,"role":"user","weight":0}]}`},
		{"OpenAI batch", `{"custom_id":"r-1","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"q"}],"temperature":0,"max_tokens":5,"top_p":null,"tools":[{"type":"function","function":{"name":"f"}}],"stream":true},"answer":"A"}`,
			`id=r-1
msg={"role":"user","content":"q"}
tools=[{"function":{"name":"f"},"type":"function"}]
answer='A'
params={"max_tokens":5,"temperature":0}
extra={"body.stream":true,"model":"m"}`},
		{"batch that goes on with an answer", `{"custom_id":"r","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"So"}],"continue_final_message":true}}`,
			`id=r
msg={"role":"user","content":"q"}
msg={"role":"assistant","content":"So"}
params={"continue_final_message":true}`},
		{"escapes, emoji and a surrogate pair", `{"id":"a","prompt":"\ud83d\ude00 é \\ud83d \u00e9"}`,
			`id=a
msg={"role":"user","content":"😀 é \\ud83d é"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			row := strings.ReplaceAll(strings.ReplaceAll(c.row, "\n", ""), "\t", "")
			if got := flat(one(t, row, Config{})); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestRowFaults(t *testing.T) {
	long := strings.Repeat("x", 100)
	batch := func(body string) string {
		return `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":` + body + `}`
	}
	ask := func(more string) string { return batch(`{"messages":[{"role":"user","content":"q"}],` + more + `}`) }
	for _, c := range []struct{ name, row, want string }{
		{"prompt of the wrong type", `{"prompt": 5}`, `t.jsonl:1: field "prompt": expected a string or a list of messages, found a number`},
		{"no prompt at all", `{"question":"q","answer":1}`, `t.jsonl:1: field "prompt": missing, and so is "messages"; expected one of them, or a prompt template over the columns: answer, question`},
		{"prompt and messages", `{"prompt":"a","messages":[]}`, `t.jsonl:1: field "prompt": stands beside "messages"; expected one of the two (or a prompt template, which wins over both)`},
		{"blank prompt", `{"prompt":" \n"}`, `t.jsonl:1: field "prompt": is blank; expected text`},
		{"no object", `[1]x`, "t.jsonl: is one JSON list; expected one JSON object a line (jq -c '.[]' turns a list into lines)"},
		{"a string", `"x"`, `t.jsonl:1: expected a JSON object, found a string`},
		{"null", `null`, `t.jsonl:1: expected a JSON object, found null`},
		{"cut line", `{"prompt":"a`, `t.jsonl:1: byte 12: not valid JSON: unexpected end of JSON input; expected one whole JSON object on this line`},
		{"two objects", `{"prompt":"a"} {"prompt":"b"}`, `t.jsonl:1: byte 16: not valid JSON: invalid character '{' after top-level value; expected one whole JSON object on this line`},
		{"column twice", `{"id":1,"prompt":"a","id":2}`, `t.jsonl:1: field "id": appears twice in one row; expected it once`},
		{"id of the wrong type", `{"id":true,"prompt":"a"}`, `t.jsonl:1: field "id": expected a string or a number, found a boolean`},
		{"blank id", `{"id":"","prompt":"a"}`, `t.jsonl:1: field "id": is blank; expected an id (or no such column: then the content's hash is the id)`},
		{"system twice", `{"system":"s","prompt":[{"role":"system","content":"t"},{"role":"user","content":"q"}]}`, `t.jsonl:1: field "system": stands beside a system message; expected one of the two`},
		{"empty messages", `{"messages":[]}`, `t.jsonl:1: field "messages": is an empty list; expected at least one message`},
		{"message no object", `{"messages":["hi"]}`, `t.jsonl:1: field "messages[0]": expected a message object, found a string`},
		{"unknown role", `{"messages":[{"role":"human","content":"x"}]}`, `t.jsonl:1: field "messages[0].role": expected system, developer, user, assistant or tool, found "human"`},
		{"no role", `{"prompt":[{"content":"x"}]}`, `t.jsonl:1: field "prompt[0].role": missing; expected system, developer, user, assistant or tool`},
		{"null content", `{"messages":[{"role":"user","content":null}]}`, `t.jsonl:1: field "messages[0].content": missing; only an assistant message with tool_calls may do without`},
		{"image part", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, `t.jsonl:1: field "messages[0].content[0]": is a part of type "image_url"; only text parts can be sent`},
		{"content of the wrong type", `{"messages":[{"role":"user","content":{"a":1}}]}`, `t.jsonl:1: field "messages[0].content": expected a string or a list of text parts, found an object`},
		{"tool message without call", `{"messages":[{"role":"user","content":"q"},{"role":"tool","content":"x","tool_call_id":"c9"}]}`, `t.jsonl:1: field "messages[1].tool_call_id": "c9" answers no tool call of a message before it`},
		{"ends with the assistant", `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`, `t.jsonl:1: field "messages": end with the assistant; expected a prompt, which ends with the user, a tool or the system`},
		{"function_call", `{"messages":[{"role":"assistant","content":"a","function_call":{"name":"f"}},{"role":"user","content":"q"}]}`, `t.jsonl:1: field "messages[0].function_call": the old form of a tool call; expected tool_calls`},
		{"tools of the wrong type", `{"prompt":"q","tools":{"a":1}}`, `t.jsonl:1: field "tools": expected a list of tool definitions or names of built-in tools, found an object`},
		{"tool without function", `{"prompt":"q","tools":[{"name":"f","parameters":{}}]}`, `t.jsonl:1: field "tools[0]": expected {"type": "function", "function": {"name": …, "parameters": …}}, found an object with other members`},
		{"data_source of the wrong type", `{"prompt":"q","data_source":3}`, `t.jsonl:1: field "data_source": expected a string, found a number`},
		{"reward_model of the wrong type", `{"prompt":"q","reward_model":"rule"}`, `t.jsonl:1: field "reward_model": expected an object, found a string`},
		{"extra_info of the wrong type", `{"prompt":"q","extra_info":[1]}`, `t.jsonl:1: field "extra_info": expected an object, found a list`},
		{"not UTF-8", "{\"prompt\":\"a\xffb\"}", `t.jsonl:1: byte 13: not valid UTF-8`},
		{"half a surrogate pair", `{"prompt":"a\ud83d b"}`, `t.jsonl:1: byte 13: \ud83d is half of a surrogate pair, which is no character`},
		{"halves in the wrong order", `{"prompt":"\ude00\ud83d"}`, `t.jsonl:1: byte 12: \ude00 is half of a surrogate pair, which is no character`},
		{"several faults at once", `{"id":[],"prompt":{},"tools":4}`, `t.jsonl:1: field "id": expected a string or a number, found a list
t.jsonl:1: field "prompt": expected a string or a list of messages, found an object
t.jsonl:1: field "tools": expected a list of tool definitions or names of built-in tools, found a number`},
		{"batch of another kind", `{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{"messages":[{"role":"user","content":"q"}]}}`, `t.jsonl:1: field "url": expected "/v1/chat/completions", found "/v1/embeddings": only chat requests can be run`},
		{"batch without messages", batch(`{"model":"m"}`), `t.jsonl:1: field "body.messages": missing; expected a list of messages`},
		{"batch n", ask(`"n":4`), `t.jsonl:1: field "body.n": expected 1, found 4; the run's number of samples says how many answers a task gets`},
		{"batch temperature", ask(`"temperature":"hot"`), `t.jsonl:1: field "body.temperature": expected a number of 0 or more, found "hot"`},
		{"batch temperature below 0", ask(`"temperature":-1`), `t.jsonl:1: field "body.temperature": expected a number of 0 or more, found -1`},
		{"batch top_p", ask(`"top_p":1.5`), `t.jsonl:1: field "body.top_p": expected a number over 0 to 1, found 1.5`},
		{"batch max_tokens", ask(`"max_tokens":1.5`), `t.jsonl:1: field "body.max_tokens": expected a whole number over 0, found 1.5`},
		{"batch stop", ask(`"stop":["a",null]`), `t.jsonl:1: field "body.stop": expected a string or a list of strings, none of them empty, found ["a",null]`},
		{"batch functions", ask(`"functions":[]`), `t.jsonl:1: field "body.functions": the old form of tools; expected tools and tool_choice`},
		{"long values are clipped", ask(`"seed":"` + long + `"`), `t.jsonl:1: field "body.seed": expected a whole number, found "` + long[:39] + "…"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := refused(t, Config{Paths: []string{file(t, "t.jsonl", c.row)}}); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestNamedFormatsDemandTheirColumns(t *testing.T) {
	row := `{"prompt":"q"}`
	for _, c := range []struct {
		format Format
		want   string
	}{
		{FormatVerl, `t.jsonl:1: field "data_source": missing; format verl needs it (format auto does not)
t.jsonl:1: field "reward_model": missing; format verl needs it (format auto does not)
t.jsonl:1: field "prompt": expected a list of messages (format verl), found a string`},
		{FormatSkyRL, `t.jsonl:1: field "env_class": missing; format skyrl needs it (format auto does not)
t.jsonl:1: field "reward_spec": missing; format skyrl needs it (format auto does not)
t.jsonl:1: field "prompt": expected a list of messages (format skyrl), found a string`},
		{FormatBatch, `t.jsonl:1: field "custom_id": missing; an OpenAI batch row needs it
t.jsonl:1: field "method": missing; expected "POST"
t.jsonl:1: field "url": missing; expected "/v1/chat/completions"
t.jsonl:1: field "body": missing; expected the chat request as an object`},
	} {
		t.Run(string(c.format), func(t *testing.T) {
			cfg := Config{Paths: []string{file(t, "t.jsonl", row)}, Format: c.format}
			if got := refused(t, cfg); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
	one(t, row, Config{Format: FormatTranche})
}

func TestHashIsOverContentNotSpelling(t *testing.T) {
	a := one(t, `{"prompt":"q","answer":"4","k":{"a":1,"b":2},"data_source":null}`, Config{})
	b := one(t, `{ "k" : {"b":2, "a":1}, "answer":"\u0034", "prompt":"q" }`, Config{})
	if a.Hash != b.Hash || len(a.Hash) != 64 {
		t.Errorf("the same content spelled twice: %s and %s", a.Hash, b.Hash)
	}
	if a.ID != a.Hash[:16] {
		t.Errorf("id %q, want the first 16 digits of %s", a.ID, a.Hash)
	}
	seen := map[string]string{a.Hash: "the first row"}
	for _, row := range []string{
		`{"prompt":"q","answer":"4","k":{"a":1,"b":3}}`,
		`{"prompt":"q","k":{"a":1,"b":2}}`,
		`{"prompt":"q","answer":"","k":{"a":1,"b":2}}`,
		`{"prompt":"q ","answer":"4","k":{"a":1,"b":2}}`,
		`{"prompt":[{"role":"system","content":"q"}],"answer":"4","k":{"a":1,"b":2}}`,
		`{"prompt":"q","answer":"4","tools":["submit"],"k":{"a":1,"b":2}}`,
		`{"prompt":"q","reward_model":{"style":"exact","ground_truth":"4"},"k":{"a":1,"b":2}}`,
		`{"prompt":"q","answer":"4","env_class":"e","k":{"a":1,"b":2}}`,
		`{"custom_id":"","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"q"}],"temperature":1}}`,
	} {
		row = strings.ReplaceAll(row, `"custom_id":""`, `"custom_id":"c"`)
		got := one(t, row, Config{}).Hash
		if other, taken := seen[got]; taken {
			t.Errorf("%s has the hash of %s", row, other)
		}
		seen[got] = row
	}
}

func TestParquetRowsLoseTheNullsTheReaderFillsIn(t *testing.T) {
	tool := `{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string","enum":null},"b":null}}}}`
	open := func(string) iter.Seq2[json.RawMessage, error] {
		return func(yield func(json.RawMessage, error) bool) {
			yield(json.RawMessage(`{"id":"a","prompt":[{"role":"user","content":"q","name":null,"tool_calls":null}],"answer":null,"reward_model":{"style":"rule","ground_truth":"4","other":null},"tools":[`+tool+`],"extra_info":null}`), nil)
		}
	}
	got := readAll(t, Config{Paths: []string{file(t, "x.bin", "PAR1....")}, OpenRows: open})
	want := `id=a
msg={"role":"user","content":"q"}
tools=[{"function":{"name":"f","parameters":{"properties":{"a":{"type":"string"}},"type":"object"}},"type":"function"}]
answer='4'
style=rule`
	if len(got) != 1 || flat(got[0]) != want {
		t.Errorf("got\n%s\nwant\n%s", flat(got[0]), want)
	}
}

// The members that only other rows have are null at any depth in a Parquet file: the row is the task that it is in a text file.
func TestParquetRowIsTheTaskOfItsText(t *testing.T) {
	text := `{"id":"a","prompt":[{"role":"user","content":"q","weight":{"w":1}}],"reward_model":{"style":"rule","ground_truth":{"sum":4},"limits":{"min":1}},` +
		`"extra_info":{"split":"train","tools_kwargs":{"calc":{"args":{"x":1}}},"list":[{"a":1},null,{"b":[null]}]},"meta":{"deep":{"here":[{"k":"v"}]}}}`
	filled := `{"id":"a","prompt":[{"role":"user","content":"q","name":null,"weight":{"w":1,"v":null}}],"reward_model":{"style":"rule","ground_truth":{"sum":4,"also":null},"limits":{"min":1,"max":null}},` +
		`"extra_info":{"split":"train","tools_kwargs":{"calc":{"args":{"x":1,"note":null}},"search":null},"list":[{"a":1,"b":null},null,{"a":null,"b":[null]}]},"meta":{"deep":{"here":[{"k":"v","l":null}],"there":null}}}`
	open := func(string) iter.Seq2[json.RawMessage, error] {
		return func(yield func(json.RawMessage, error) bool) { yield(json.RawMessage(filled), nil) }
	}
	want := one(t, text, Config{})
	got := readAll(t, Config{Paths: []string{file(t, "x.bin", "PAR1....")}, OpenRows: open})
	if len(got) != 1 || flat(got[0]) != flat(want) || got[0].Hash != want.Hash {
		t.Errorf("got\n%s\nwant\n%s", flat(got[0]), flat(want))
	}
	if kept := one(t, strings.Replace(text, `{"w":1}`, `{"w":null}`, 1), Config{}); kept.Hash == want.Hash {
		t.Error("a null in a text file was meant, and is lost")
	}
}
