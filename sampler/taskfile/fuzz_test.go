package taskfile

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"tranche/episode"
)

// FuzzRow: whatever a row holds, it becomes a sound task or a fault that says where, never a panic; and twice the same.
func FuzzRow(f *testing.F) {
	for _, row := range []string{
		`{"id":7,"prompt":"2+2?","answer":4}`,
		`{"data_source":"d","prompt":[{"role":"user","content":"q"}],"reward_model":{"style":"rule","ground_truth":"72"},"extra_info":{"split":"train","index":0}}`,
		`{"custom_id":"r","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"stop":["x"],"temperature":0}}`,
		`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":{"a":null}}}]},{"role":"tool","tool_call_id":"c","content":""}],"tools":"[\"submit\"]"}`,
		`{"prompt":"\ud83d\ude00 \\ud83d","extra_info":"{\"a\":1}","a":2}`,
		`{"prompt":"\ud83d"}`, `{"a":{"b":[}]`, "\xff", `null`, `{"prompt":1e999,"id":1e999}`,
	} {
		f.Add([]byte(row), false)
	}
	f.Fuzz(func(t *testing.T, raw []byte, typed bool) {
		where := episode.Position{File: "f", Line: 1}
		for _, format := range Formats() {
			p, err := newParser(Config{Format: Format(format)})
			if err != nil {
				t.Fatal(err)
			}
			task, bad := p.row(raw, where, 0, typed)
			if (task == nil) != (len(bad) > 0) {
				t.Fatalf("task %v with faults %v", task, bad)
			}
			if task == nil {
				continue
			}
			sound(t, task)
			again, _ := p.row(raw, where, 0, typed)
			if again.Hash != task.Hash || again.ID != task.ID {
				t.Fatal("the same row gave two tasks")
			}
		}
	})
}

func sound(t *testing.T, task *episode.Task) {
	t.Helper()
	if task.ID == "" || len(task.Hash) != 64 || len(task.Messages) == 0 {
		t.Fatalf("unsound task: %+v", task)
	}
	for _, m := range task.Messages {
		if m.Role == "" || !utf8.ValidString(m.Text()) || (m.Content == nil && len(m.ToolCalls) == 0) {
			t.Fatalf("unsound message: %+v", m)
		}
	}
	for _, raw := range []json.RawMessage{task.Tools, task.Params, task.Extra} {
		if raw != nil && !json.Valid(raw) {
			t.Fatalf("no JSON: %s", raw)
		}
	}
}

// FuzzFile: whatever a file holds, Check ends without a panic and the reader gives exactly the tasks it counted.
func FuzzFile(f *testing.F) {
	for _, text := range []string{two, "\ufeff" + two, "{\n}", gzipped(f, two), gzipped(f, two)[:30], "PAR1", "\r\n\r\n", `{"prompt":"x"}` + "\n" + `{"prompt":"x"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		path := filepath.Join(t.TempDir(), "t")
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		cfg := Config{Paths: []string{path}, SkipBad: true, MaxLineBytes: 200}
		rep, err := Check(context.Background(), cfg)
		r, openErr := Open(context.Background(), cfg)
		if openErr != nil {
			t.Fatal(openErr)
		}
		defer r.Close()
		var n int64
		for {
			task, readErr := r.Next()
			if readErr != nil {
				if err == nil && readErr != io.EOF {
					t.Fatalf("Check found nothing, the reader found %v", readErr)
				}
				break
			}
			sound(t, task)
			n++
		}
		if err == nil && (n != rep.Tasks || r.SHA256() != rep.SHA256) {
			t.Fatalf("Check counted %d tasks, the reader gave %d", rep.Tasks, n)
		}
	})
}

// FuzzTemplate: no template text and no row makes a panic.
func FuzzTemplate(f *testing.F) {
	for _, text := range []string{`{{.a}}`, `{{range .a}}{{.}}{{end}}`, `{{.a | afterLast "x"}}`, `{{with $x := .a}}{{$x}}{{else}}-{{end}}`, `{{define "t"}}{{.}}{{end}}{{template "t" .}}`, `{{break}}`} {
		f.Add(text, []byte(`{"a":"1 x 2"}`))
		f.Add(text, []byte(`{"a":[1,null,{"b":2.5}]}`))
	}
	f.Fuzz(func(t *testing.T, text string, row []byte) {
		if bytes.Contains([]byte(text), []byte("repeat")) || bytes.Contains([]byte(text), []byte("seq")) || bytes.Contains([]byte(text), []byte("until")) || bytes.Contains([]byte(text), []byte("printf")) || bytes.Contains([]byte(text), []byte("indent")) {
			return // these make as much text as they are asked for
		}
		c, err := compile("prompt", text)
		if err != nil {
			return
		}
		var cols map[string]json.RawMessage
		if json.Unmarshal(row, &cols) != nil {
			return
		}
		v, err := view(cols)
		if err != nil {
			return
		}
		if _, err := c.render(v); err != nil && err.Error() == "" {
			t.Fatal("an error that says nothing")
		}
	})
}
