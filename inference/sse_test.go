package inference

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func readEvents(r io.Reader, maxLine int) (out []string, err error) {
	e := newEvents(r, maxLine)
	for {
		data, isErr, err := e.next()
		if err != nil {
			return out, err
		}
		s := string(data)
		if isErr {
			s = "error:" + s
		}
		out = append(out, s)
	}
}

func TestEvents(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"plain":                           {"data: a\n\ndata: b\n\n", []string{"a", "b"}},
		"no space after the colon":        {"data:a\n\n", []string{"a"}},
		"only one space is taken":         {"data:  a\n\n", []string{" a"}},
		"CRLF":                            {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		"comments and blank lines":        {": ping\n\n\n: ping\n\ndata: a\n: mid\n\n", []string{"a"}},
		"comment only":                    {strings.Repeat(": keep-alive\n\n", 1000), nil},
		"other fields":                    {"id: 1\nretry: 5\nevent: message\ndata: a\n\n", []string{"a"}},
		"error event":                     {"event: error\ndata: {\"message\":\"x\"}\n\ndata: b\n\n", []string{`error:{"message":"x"}`, "b"}},
		"two data lines":                  {"data: a\ndata: b\n\n", []string{"a\nb"}},
		"last event without its end":      {"data: a\n\ndata: b", []string{"a", "b"}},
		"byte order mark":                 {"\xEF\xBB\xBFdata: a\n\n", []string{"a"}},
		"empty data":                      {"data:\n\n", []string{""}},
		"no blank lines":                  {"data: {\"a\":1}\ndata: {\"b\":2}\ndata: [DONE]\n", []string{`{"a":1}`, `{"b":2}`, "[DONE]"}},
		"one object over two lines":       {"data: {\"a\":\ndata: {\"b\":2}}\n\n", []string{"{\"a\":\n{\"b\":2}}"}},
		"an object without a field":       {"data: {\"a\":1}\n\n{\"error\":\"x\"}\n", []string{`{"a":1}`, `{"error":"x"}`}},
		"an error field":                  {"data: {\"a\":1}\n\nerror: {\"code\":500}\n\ndata: [DONE]\n\n", []string{`{"a":1}`, `error:{"code":500}`, "[DONE]"}},
		"an error field, no blank line":   {"error: {\"code\":500}\ndata: [DONE]\n\n", []string{`error:{"code":500}`, "[DONE]"}},
		"a field error that is no object": {"error: none\ndata: a\n\n", []string{"a"}},
		"error event, no blank line":      {"event: error\ndata: {\"a\":1}\ndata: [DONE]\n", []string{`error:{"a":1}`, "[DONE]"}},
		"a name behind an open event":     {"data: {\"a\":1}\nevent: error\ndata: {\"b\":2}\n\ndata: {\"c\":3}\n\n", []string{`{"a":1}`, `error:{"b":2}`, `{"c":3}`}},
		"a name and the end":              {"data: {\"a\":1}\nevent: done\ndata: [DONE]\n", []string{`{"a":1}`, "[DONE]"}},
		"a name behind its data":          {"data: a\nevent: error\n\ndata: b\n\n", []string{"error:a", "b"}},
		"a name behind its data, at last": {"data: a\nevent: error\n", []string{"error:a"}},
		"two names, no blank lines":       {"event: a\ndata: {\"a\":1}\nevent: error\ndata: {\"b\":2}\nevent: c\ndata: {\"c\":3}\n", []string{`{"a":1}`, `error:{"b":2}`, `{"c":3}`}},
		"empty input":                     {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			for form, r := range map[string]io.Reader{"at once": strings.NewReader(c.in), "byte by byte": iotest.OneByteReader(strings.NewReader(c.in))} {
				got, err := readEvents(r, 1<<20)
				if !errors.Is(err, io.EOF) {
					t.Fatalf("%s: ended with %v", form, err)
				}
				if strings.Join(got, "|") != strings.Join(c.want, "|") || len(got) != len(c.want) {
					t.Fatalf("%s: got %q, want %q", form, got, c.want)
				}
			}
		})
	}
}

func TestEventsLineCap(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	if got, err := readEvents(strings.NewReader("data: "+long+"\n\n"), 100_006); !errors.Is(err, io.EOF) || len(got) != 1 || got[0] != long {
		t.Fatalf("a line at the cap: %d events, %v", len(got), err)
	}
	var tooLong *lineTooLongError
	if _, err := readEvents(strings.NewReader("data: "+long), 1000); !errors.As(err, &tooLong) {
		t.Fatalf("a line over the cap gave %v", err)
	}
}

func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "event: error\ndata: {}\n\n", ": c\r\n\r\ndata: [DONE]", "data", "\n\n\n", "data: a\ndata: b"} {
		f.Add([]byte(s), 64)
	}
	f.Add([]byte("data: {\"a\":1}\ndata: {\"b\":2}\ndata: [DONE]\n{\"error\":\"x\"}"), 64)
	f.Fuzz(func(t *testing.T, in []byte, maxLine int) {
		maxLine = 1 + abs(maxLine)%1024
		whole, err1 := readEvents(strings.NewReader(string(in)), maxLine)
		split, err2 := readEvents(iotest.OneByteReader(strings.NewReader(string(in))), maxLine)
		if strings.Join(whole, "\x00") != strings.Join(split, "\x00") || (err1 == nil) != (err2 == nil) || err1.Error() != err2.Error() {
			t.Fatalf("read at once %q, %v; byte by byte %q, %v", whole, err1, split, err2)
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

// FuzzStream feeds any bytes as a stream: no panic, and never a success without an end.
func FuzzStream(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("data: {\"choices\":[{\"index\":-3,\"delta\":{\"tool_calls\":[{\"index\":9}]},\"finish_reason\":\"stop\"}]}\n\n"))
	f.Add([]byte("data: {\"error\":{\"code\":429}}\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		a := &answer{}
		e := newEvents(strings.NewReader(string(in)), 1<<16)
		for {
			data, _, err := e.next()
			if err != nil {
				break
			}
			if _, err := a.takeEvent(data); err != nil {
				break
			}
		}
		if err := endOfStream(a, io.EOF); err == nil && !a.ended && !a.finished() || err != nil && a.finished() {
			t.Fatalf("end of stream: %v with ended %v, finished %v", err, a.ended, a.finished())
		}
		for _, c := range a.choices {
			checkLaws(t, a.replyOf(c, call("x").Sampling, 8))
		}
		_, _ = a.reply(call("x").Sampling, 8)
		_ = a.said()
	})
}
