package inference

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// chatEvent is an event as vLLM writes it.
func chatEvent(delta, rest string) string {
	return `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":` + delta + rest + `}]}`
}

const chatRest = `,"logprobs":null,"finish_reason":null,"token_ids":null`

// Which events are read as repetitions of the one before them, and which are not.
func TestMould(t *testing.T) {
	said := func(lit string) string { return chatEvent(`{"content":`+lit+`}`, chatRest) }
	tokens := func(lit, ids, logprobs string) string {
		return chatEvent(`{"content":`+lit+`,"reasoning":null}`, `,"logprobs":`+logprobs+`,"finish_reason":null,"token_ids":`+ids)
	}
	for name, c := range map[string]struct {
		first, then string
		repeats     bool
	}{
		"another piece":          {said(`"a"`), said(`" word"`), true},
		"the same piece":         {said(`"a"`), said(`"a"`), true},
		"an empty piece":         {said(`"a"`), said(`""`), true},
		"behind an empty one":    {said(`""`), said(`"a"`), true},
		"escapes":                {said(`"a"`), said(`"\"\\\n\u00e9\ud83d\ude00é"`), true},
		"a quote that is a text": {said(`"a"`), said(`"\"}"`), true},
		"a text that swallows":   {said(`"a"`), said(`"a\"`), false},
		"two texts":              {said(`"a"`), said(`"a","content":"b"`), false},
		"a bad escape":           {said(`"a"`), said(`"\x"`), false},
		"null":                   {said(`"a"`), said(`null`), false},
		"behind null":            {said(`null`), said(`"a"`), false},
		"a list":                 {said(`"a"`), said(`[]`), false},
		"a role":                 {said(`"a"`), chatEvent(`{"role":"assistant","content":"b"}`, chatRest), false},
		"a finish reason":        {said(`"a"`), strings.Replace(said(`"b"`), `"finish_reason":null`, `"finish_reason":"stop"`, 1), false},
		"another choice":         {said(`"a"`), strings.Replace(said(`"b"`), `"index":0`, `"index":1`, 1), false},
		"another model":          {said(`"a"`), strings.Replace(said(`"b"`), `"model":"m"`, `"model":"n"`, 1), false},
		"more behind it":         {said(`"a"`), said(`"b"`) + " ", false},
		"less":                   {said(`"a"`), said(`"b"`)[:100], false},
		"nothing":                {said(`"a"`), ``, false},
		"an error":               {said(`"a"`), `{"error":"x"}`, false},
		"two choices":            {`{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}`, `{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}`, false},
		"ids":                    {tokens(`"a"`, `[1]`, `null`), tokens(`"b"`, `[2,30]`, `null`), true},
		"no ids":                 {tokens(`"a"`, `[1]`, `null`), tokens(`"b"`, `null`, `null`), false},
		"ids of no kind":         {tokens(`"a"`, `[1]`, `null`), tokens(`"b"`, `[1.5]`, `null`), false},
		"logprobs":               {tokens(`"a"`, `[1]`, `{"content":[{"token":"a","logprob":-1,"top_logprobs":[]}]}`), tokens(`"b"`, `[2]`, `{"content":[]}`), true},
		"reasoning":              {chatEvent(`{"reasoning_content":"a"}`, chatRest), chatEvent(`{"reasoning_content":"b"}`, chatRest), true},
		"legacy":                 {`{"choices":[{"index":0,"text":"a"}]}`, `{"choices":[{"index":0,"text":"b"}]}`, true},
		"a long one":             {said(`"` + strings.Repeat("a", mostForm) + `"`), said(`"a"`), false},
	} {
		a := &answer{}
		if _, err := a.takeEvent([]byte(c.first)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := a.desk.mould.fill([]byte(c.then), &a.desk.room); got != c.repeats {
			t.Errorf("%s: read as a repetition: %v", name, got)
		}
		sameWithoutMould(t, c.first, c.then, c.first)
	}
}

// sameWithoutMould holds a stream to what it is when every event is scanned. The memory an event came in is used again at once.
func sameWithoutMould(t *testing.T, events ...string) {
	t.Helper()
	fast, slow := &answer{desk: &desk{}}, &answer{desk: &desk{}}
	take := func(a *answer, event string) (string, bool) {
		memory := []byte(event)
		said, err := a.takeEvent(memory)
		out := string(said)
		for i := range memory {
			memory[i] = '?'
		}
		return out, err == nil
	}
	for _, event := range events {
		slow.desk.mould.forget()
		said1, ok1 := take(fast, event)
		said2, ok2 := take(slow, event)
		if said1 != said2 || ok1 != ok2 {
			t.Fatalf("%q: said %q, good %v; without the mould %q, %v", events, said1, ok1, said2, ok2)
		}
	}
	fast.desk, slow.desk = nil, nil
	if !reflect.DeepEqual(fast, slow) {
		t.Fatalf("%q:\n%s\nwithout the mould\n%s", events, shown(fast), shown(slow))
	}
}

func shown(a *answer) string {
	var out []string
	for i, c := range a.choices {
		s, _ := json.Marshal([]any{i, string(c.content), string(c.reasoning), string(c.refusal), c.finish, c.ids, c.logprobs, len(c.calls)})
		out = append(out, string(s))
	}
	return a.model + " " + strings.Join(out, " ")
}

// FuzzMould: a stream is the same whether its events are read as repetitions or one by one. The events are one form with other values in the
// places of its @, and any two of them come in any order.
func FuzzMould(f *testing.F) {
	for _, form := range []string{
		chatEvent(`{"content":@}`, chatRest), chatEvent(`{"content":"@"}`, chatRest), chatEvent(`{"content":"a","reasoning":"@"}`, chatRest),
		chatEvent(`{"content":null,"reasoning_content":@,"reasoning":@}`, chatRest), chatEvent(`{"content":"a"}`, `,"token_ids":[@],"logprobs":{"content":[{"token":"@","logprob":@}]}`),
		`{"choices":[{"text":@,"index":@}],"usage":{"prompt_tokens":@}}`, `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":@,"id":"@","function":{"name":"f","arguments":@}}]}}]}`,
		`{"choices":[{"index":0,"message":{"content":@},"delta":{"refusal":@}}],"prompt_token_ids":[@]}`, `{"error":@,"choices":[{"delta":{"content":"@"}}]}`, `@`,
	} {
		for _, v := range [][3]string{{`"a"`, `"\n"`, `null`}, {`a`, `\"`, `\`}, {`1`, `2,3`, ``}, {`"\ud83d"`, `"\ude00"`, `""`}, {`7`, `-1`, `[]`}, {`{"message":"x"}`, `null`, `"\xff"`}} {
			f.Add(form, v[0], v[1], v[2])
		}
	}
	f.Fuzz(func(t *testing.T, form, x, y, z string) {
		if strings.Count(form, "@") > 20 {
			t.Skip()
		}
		with := func(v string) string { return strings.ReplaceAll(form, "@", v) }
		sameWithoutMould(t, with(x), with(y), with(y), with(z), z, with(x), with(z))
	})
}
