package enginesim

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
)

func vectors(t *testing.T, body []byte) (list [][]float32, u usage) {
	t.Helper()
	var reply struct {
		Object string
		Data   []struct {
			Index  int
			Vector json.RawMessage `json:"embedding"`
		}
		Usage usage
	}
	if err := json.Unmarshal(body, &reply); err != nil || reply.Object != "list" {
		t.Fatalf("%v: %s", err, body)
	}
	for i, d := range reply.Data {
		var v []float32
		var text string
		if json.Unmarshal(d.Vector, &text) == nil {
			raw, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			for ; len(raw) >= 4; raw = raw[4:] {
				v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
			}
		} else if err := json.Unmarshal(d.Vector, &v); err != nil {
			t.Fatal(err)
		}
		if d.Index != i {
			t.Errorf("index %d at place %d", d.Index, i)
		}
		list = append(list, v)
	}
	return list, reply.Usage
}

// Equal inputs have equal vectors of length 1, in either encoding; others have others.
func TestEmbeddings(t *testing.T) {
	c, e := serve(t, Config{})
	_, _, body := c.post("/v1/embeddings", `{"model":"sim","input":["one text","another","one text"]}`)
	list, u := vectors(t, body)
	if len(list) != 3 || !reflect.DeepEqual(list[0], list[2]) || reflect.DeepEqual(list[0], list[1]) {
		t.Fatalf("%v", list)
	}
	sum := 0.0
	for _, x := range list[0] {
		sum += float64(x) * float64(x)
	}
	if math.Abs(sum-1) > 1e-5 || len(list[0]) != embedDims {
		t.Errorf("length %v of %d numbers", sum, len(list[0]))
	}
	want := 2*len(e.tokens.Encode("one text")) + len(e.tokens.Encode("another"))
	if u.PromptTokens != want || u.CompletionTokens != 0 || u.TotalTokens != want {
		t.Errorf("usage %+v, want %d tokens in", u, want)
	}
	_, _, body = c.post("/v1/embeddings", `{"input":"one text","encoding_format":"base64"}`)
	if again, _ := vectors(t, body); !reflect.DeepEqual(again[0], list[0]) {
		t.Error("base64 holds other numbers")
	}
	_, _, body = c.post("/v1/embeddings", `{"input":[1,2,3],"dimensions":8}`)
	if few, _ := vectors(t, body); len(few) != 1 || len(few[0]) != 8 {
		t.Errorf("%v", few)
	}
}

func TestEmbeddingsRefuse(t *testing.T) {
	c, _ := serve(t, Config{ContextTokens: 64})
	for name, q := range map[string]struct {
		body   string
		status int
	}{
		"no input":      {`{"model":"sim"}`, 400},
		"another model": {`{"model":"other","input":"x"}`, 404},
		"encoding":      {`{"input":"x","encoding_format":"hex"}`, 400},
		"no dimension":  {`{"input":"x","dimensions":0}`, 400},
		"too long":      {`{"input":"` + strings.Repeat("long ", 200) + `"}`, 400},
		"empty":         {`{"input":""}`, 400},
	} {
		if status, _, body := c.post("/v1/embeddings", q.body); status != q.status || !strings.Contains(string(body), `"error"`) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

// The responses route says what chat says to the same messages.
func TestResponsesSayWhatChatSays(t *testing.T) {
	c, _ := serve(t, Config{})
	_, _, body := c.post("/v1/chat/completions", `{"temperature":0,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"What is 3+4?"}]}`)
	var chat struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   usage
	}
	if err := json.Unmarshal(body, &chat); err != nil {
		t.Fatal(err)
	}
	for name, input := range map[string]string{
		"text":  `"What is 3+4?"`,
		"list":  `[{"role":"user","content":"What is 3+4?"}]`,
		"parts": `[{"type":"message","role":"user","content":[{"type":"input_text","text":"What is 3+4?"}]}]`,
	} {
		status, _, body := c.post("/v1/responses", `{"model":"sim","temperature":0,"instructions":"Be brief.","input":`+input+`}`)
		var reply responseReply
		if err := json.Unmarshal(body, &reply); err != nil || status != 200 {
			t.Fatalf("%s: %d %v %s", name, status, err, body)
		}
		if got := reply.Output[0].Content[0].Text; got != chat.Choices[0].Message.Content || reply.Status != "completed" {
			t.Errorf("%s: %s %q, chat says %q", name, reply.Status, got, chat.Choices[0].Message.Content)
		}
		if u := reply.Usage; u.Input != chat.Usage.PromptTokens || u.Output != chat.Usage.CompletionTokens || u.Together != u.Input+u.Output {
			t.Errorf("%s: usage %+v, chat's %+v", name, u, chat.Usage)
		}
	}
	_, _, body = c.post("/v1/responses", `{"input":"Tell me a story.","max_output_tokens":3}`)
	var cut responseReply
	if err := json.Unmarshal(body, &cut); err != nil || cut.Status != "incomplete" || cut.Incomplete.Reason != "max_output_tokens" || cut.Usage.Output != 3 {
		t.Errorf("cut at 3 tokens: %v %s", err, body)
	}
}

func TestResponsesRefuse(t *testing.T) {
	c, _ := serve(t, Config{})
	for name, q := range map[string]struct {
		body   string
		status int
	}{
		"no input":      {`{}`, 400},
		"null":          {`{"input":null}`, 400},
		"another model": {`{"model":"other","input":"x"}`, 404},
		"stream":        {`{"input":"x","stream":true}`, 400},
		"tools":         {`{"input":"x","tools":[{}]}`, 400},
		"an image":      {`{"input":[{"role":"user","content":[{"type":"input_image"}]}]}`, 400},
		"an item":       {`{"input":[{"type":"function_call_output"}]}`, 400},
		"role":          {`{"input":[{"role":"nobody","content":"x"}]}`, 400},
	} {
		if status, _, body := c.post("/v1/responses", q.body); status != q.status || !strings.Contains(string(body), `"error"`) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}
