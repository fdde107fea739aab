package inference

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/internal/mock"
)

// sameAsJSON holds a scan to what encoding/json reads; it reports whether the scan went through.
func sameAsJSON(t *testing.T, data []byte) bool {
	t.Helper()
	var fast, slow wireAnswer
	room := &scanRoom{}
	scanAnswer([]byte(usedRoom), &wireAnswer{}, room) // what it held before must not show
	if !scanAnswer(data, &fast, room) {
		return false
	}
	if err := json.Unmarshal(data, &slow); err != nil {
		t.Fatalf("the scan took %q, and it is wrong: %v", data, err)
	}
	dropNulls(&slow)
	if !reflect.DeepEqual(fast, slow) {
		a, _ := json.Marshal(fast)
		b, _ := json.Marshal(slow)
		t.Fatalf("%q was read as\n%s\nencoding/json reads\n%s", data, a, b)
	}
	return true
}

const usedRoom = `{"choices":[{"index":7,"message":{"content":"old","refusal":"old","reasoning":"old"},"finish_reason":"old","stop_reason":1,"token_ids":[9]},{"index":8,"delta":{"content":"old"}}]}`

// dropNulls makes a null RawMessage none: nobody tells the two apart.
func dropNulls(w *wireAnswer) {
	drop := func(raw *json.RawMessage) {
		if string(*raw) == "null" {
			*raw = nil
		}
	}
	drop(&w.Error)
	for i := range w.Choices {
		drop(&w.Choices[i].StopReason)
		drop(&w.Choices[i].MatchedStop)
		drop(&w.Choices[i].Error)
	}
}

func TestScan(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		fast bool
	}{
		"whole":              {string(mock.Text("some \"text\"\n – \u2028 \\u00e9").Body()), true},
		"escapes":            {`{"choices":[{"message":{"content":"\ud83d\ude00 \ud800 \u0041\/\b\f\n\r\t\\\"é` + "\xff" + `"}}]}`, true},
		"empty":              {`{}`, true},
		"space":              {" {\n\"model\" :\t\"m\" , \"choices\" : [ ] }\r\n", true},
		"an error":           {`{"error":{"message":"x","code":400},"choices":null}`, true},
		"logprobs":           {`{"choices":[{"logprobs":{"content":[{"token":"a","logprob":-0.25,"bytes":[97],"top_logprobs":[]},{"logprob":null,"id":7}]},"token_ids":[1,-2],"finish_reason":"stop"}]}`, true},
		"usage":              {`{"usage":{"prompt_tokens":3,"completion_tokens":0,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":2,"x":{}}}}`, true},
		"stop reason":        {`{"choices":[{"stop_reason":"</s>","matched_stop":151645,"index":1}]}`, true},
		"unknown":            {`{"x":[1.5e-3,true,false,null,{"y":"\u00e9"}],"model":"m"}`, true},
		"tool calls":         {`{"choices":[{"message":{"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}}]}`, true},
		"another case":       {`{"Model":"m"}`, false},
		"an escaped key":     {`{"\u006dodel":"m"}`, false},
		"twice":              {`{"model":"a","model":"b"}`, false},
		"figures":            {`{"usage":{"prompt_tokens":3,"completion_tokens":null,"completion_tokens_details":{"reasoning_tokens":1,"audio_tokens":0},"prompt_tokens_details":null,"cached_tokens":0}}`, true},
		"figures of no kind": {`{"usage":{"prompt_tokens":-3,"completion_tokens":"8","total_tokens":1e2,"input_tokens_details":[1]}}`, true},
		"figures twice":      {`{"usage":{"prompt_tokens":3,"prompt_tokens":4}}`, true},
		"usage, no object":   {`{"usage":7}`, true},
		"no tool calls":      {`{"choices":[{"message":{"tool_calls":[ ]}}]}`, true},
		"a fraction":         {`{"usage":{"prompt_tokens":10.0}}`, true},
		"a long number":      {`{"choices":[{"token_ids":[2147483648]}]}`, false},
		"parts":              {`{"choices":[{"message":{"content":[{"type":"text","text":"x"}]}}]}`, false},
		"NaN":                {`{"choices":[{"logprobs":{"content":[{"logprob":NaN}]}}]}`, false},
		"cut":                {`{"model":"m"`, false},
		"behind its end":     {`{"model":"m"} x`, false},
		"a comma too many":   {`{"model":"m",}`, false},
		"in a list":          {`{"x":[1,]}`, false},
		"a control":          {"{\"model\":\"a\nb\"}", false},
		"a bad escape":       {`{"x":"\x"}`, false},
		"a short escape":     {`{"x":"\u12"}`, false},
		"a leading zero":     {`{"x":01}`, false},
		"a plus":             {`{"x":+1}`, false},
		"no digits":          {`{"x":1.}`, false},
		"a list":             {`[]`, false},
		"nothing":            {``, false},
		"deep":               {`{"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, false},
		"a name beyond here": {`{"model":"mödel"}`, true},
	} {
		if got := sameAsJSON(t, []byte(c.data)); got != c.fast {
			t.Errorf("%s: taken %v, want %v", name, got, c.fast)
		}
	}
}

// The text of a scanned string is what type text reads, byte for byte.
func TestScanText(t *testing.T) {
	for _, lit := range []string{`""`, `"plain"`, `"é\u00e9"`, `"\ud83d\ude00"`, `"\ude00\ud83d"`, `"a\\nb\n"`, "\"\xe2\x82\"", `"12345678\n1234567890123456\""`, `"\n"`, `"\n\n\"\n"`, `"\\n\n\\"`, `"\"n\""`, `"1234567890123456789012345678901234567890\n\""`} {
		s := scan{b: []byte(lit), room: &scanRoom{}}
		got, ok := s.text()
		var want text
		if err := want.UnmarshalJSON([]byte(lit)); err != nil {
			t.Fatal(err)
		}
		if !ok || !bytes.Equal(got, want) || s.at != len(lit) {
			t.Errorf("%s: %q, want %q", lit, got, want)
		}
	}
}

// The recorded answers of real servers: none is read otherwise, and most are read fast.
func TestScanRecords(t *testing.T) {
	base := os.Getenv("TRANCHE_DATA")
	if base == "" {
		base = "../../shared/data"
	}
	files, err := filepath.Glob(filepath.Join(base, "responses", "*"))
	if err != nil || len(files) == 0 {
		t.Skip("the recorded answers are not there; set TRANCHE_DATA to the folder of the real data sets")
	}
	fast, all := 0, 0
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(raw)) {
			var record map[string]json.RawMessage
			if json.Unmarshal([]byte(line), &record) != nil {
				continue
			}
			for _, v := range record {
				var body string
				if json.Unmarshal(v, &body) != nil || !strings.Contains(body, `"choices"`) {
					continue
				}
				for part := range strings.Lines(body) {
					part = strings.TrimSpace(strings.TrimPrefix(part, "data:"))
					if !json.Valid([]byte(part)) || !strings.Contains(part, `"choices"`) {
						continue
					}
					if all++; sameAsJSON(t, []byte(part)) {
						fast++
					}
				}
			}
		}
	}
	t.Logf("%d of %d documents are read in the fast way", fast, all)
	if all == 0 || fast < all/2 {
		t.Errorf("%d of %d documents are read in the fast way", fast, all)
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte(mock.Text("some \"text\"").Body()))
	f.Add([]byte(`{"choices":[{"logprobs":{"content":[{"token":"a","logprob":-0.25,"id":7}]},"token_ids":[1],"finish_reason":null,"delta":{"content":"\ud83d"}}],"usage":{"prompt_tokens_details":{"cached_tokens":2}}}`))
	for _, s := range nullShapes()[:1] {
		_, body, _ := strings.Cut(string(s.answer()), "\r\n\r\n")
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameAsJSON(t, data) })
}

// A request's own values are written as encoding/json writes them.
func FuzzRenderedText(f *testing.F) {
	for _, s := range []string{"", "plain", "a \"b\" \\ \n \u2028 <&> é \x7f", "\xff\xfe", "12345678\x01"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, s string) {
		for _, v := range []any{s, len(s), -len(s), []episode.Message{{Role: a}, {Role: "user", Content: &s}}, []episode.Message{}, []episode.Message{{Name: &a}}} {
			b := newBody(nil)
			b.add("x", v)
			got, err := b.close()
			if err != nil {
				t.Fatal(err)
			}
			slow := newBody(nil)
			slow.buf.WriteString(`{"x":`)
			slow.encode("x", v)
			if want := slow.buf.String() + "}"; string(got) != want {
				t.Fatalf("%s, want %s", got, want)
			}
		}
	})
}
