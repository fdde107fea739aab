package taskfile

import (
	"strings"
	"testing"
)

const templateRow = `{"question":"How many?","answer":"3*4=12\n#### 12","n":1200,"big":123456789012345678901,"f":0.50,"none":null,"tags":["a","b"],"deep":{"x":"y"},"ok":true}`

func TestTemplates(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"column", `Q: {{.question}}`, `Q: How many?`},
		{"afterLast", `{{.answer | afterLast "####"}}`, `12`},
		{"after and before", `{{.answer | after "*" | before "="}}`, `4`},
		{"whole number", `{{.n}} {{add .n 1}}`, `1200 1201`},
		{"large number keeps its digits", `{{.big}}`, `123456789012345678901`},
		{"fraction", `{{.f}} {{if lt .f 0.6}}low{{end}}`, `0.5 low`},
		{"null with a default", `{{.none | default "nothing"}}`, `nothing`},
		{"list as JSON", `{{.tags}}`, `["a","b"]`},
		{"list joined", `{{join ", " .tags}}`, `a, b`},
		{"object member", `{{.deep.x | upper}}`, `Y`},
		{"optional column", `{{if hasKey . "hint"}}{{.hint}}{{else}}no hint{{end}}`, `no hint`},
		{"range and variables", `{{range $i, $t := .tags}}{{$i}}{{$t}} {{end}}{{$q := .question}}{{$q}}`, `0a 1b How many?`},
		{"define", `{{define "x"}}<{{.}}>{{end}}{{template "x" .ok}}`, `<true>`},
		{"markup stays as it is", `<b>{{.question}}</b> & "x"`, `<b>How many?</b> & "x"`},
		{"odd column name", `{{index . "question"}}`, `How many?`},
	} {
		t.Run(c.name, func(t *testing.T) {
			task := one(t, templateRow, Config{Templates: Templates{Prompt: c.text}})
			if got := task.Messages[0].Text(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestTemplateFaultsOfARow(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"missing column", `{{.quesion}}`, `t.jsonl:1: template "prompt": no column "quesion" in this row; its columns are: answer, big, deep, f, n, none, ok, question, tags`},
		{"missing member", `{{.deep.z}}`, `no column "z" in this row`},
		{"null", `{{.none}}`, `t.jsonl:1: template "prompt": {{.none}} is null in this row; write {{.none | default ""}} where it may be`},
		{"marker that is not there", `{{.question | after "####"}}`, `t.jsonl:1: template "prompt": after "####": no "####" in "How many?"`},
		{"blank", ` {{if false}}x{{end}}`, `t.jsonl:1: template "prompt" came out blank for this row`},
		{"a function that panics", `{{.question | int | index .tags}}{{dig "a" .}}`, `the row's columns are: answer`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := refused(t, Config{Paths: []string{file(t, "t.jsonl", templateRow)}, Templates: Templates{Prompt: c.text}})
			if !strings.Contains(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if strings.Contains(got, "\n") {
				t.Errorf("one fault, several lines:\n%s", got)
			}
		})
	}
}

func TestTemplatesReachNothingOutside(t *testing.T) {
	for _, fn := range []string{
		`env "HOME"`, `expandenv "$HOME"`, `getHostByName "localhost"`, `now`, `date "2006" 0`, `randAlpha 3`, `randInt 0 9`, `uuidv4`,
		`osBase "/a"`, `ago 0`, `unixEpoch 0`, `set . "a" 1`, `hello`,
	} {
		if err := (Config{Paths: []string{"x"}, Templates: Templates{Prompt: "{{" + fn + "}}"}}).Validate(); err == nil {
			t.Errorf("a template may call %s", fn)
		}
	}
}

func TestTemplatesOfEveryField(t *testing.T) {
	task := one(t, `{"k":5,"id":"own","prompt":"old","messages":[{"role":"user","content":"older"}],"system":"s","answer":"raw","data_source":"d","src":"x"}`,
		Config{Templates: Templates{ID: "q-{{.k}}", Prompt: "P {{.k}}", System: "S", Answer: " {{.k}} ", DataSource: "set/{{.src}}", EnvClass: "e"}})
	want := `id=q-5
msg={"role":"system","content":"S"}
msg={"role":"user","content":"P 5"}
answer='5'
source=set/x
env=e
extra={"answer":"raw","data_source":"d","id":"own","k":5,"messages":[{"content":"older","role":"user"}],"prompt":"old","src":"x","system":"s"}`
	if got := flat(task); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTemplatesOverABatchRow(t *testing.T) {
	task := one(t, `{"custom_id":"r","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"system","content":"old"},{"role":"user","content":"q"}],"seed":3}}`,
		Config{Templates: Templates{System: "new", Answer: `{{(index .body.messages 1).content}}`}})
	want := `id=r
msg={"role":"system","content":"new"}
msg={"role":"user","content":"q"}
answer='q'
params={"seed":3}`
	if got := flat(task); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestValidateReportsEveryFault(t *testing.T) {
	err := Config{Format: "csv", Offset: -1, Limit: -2, MaxLineBytes: -3, Templates: Templates{ID: "{{", Answer: "{{nosuch}}"}}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"no file named", `format "csv": expected one of auto, tranche, verl, skyrl, openai-batch`, "offset -1", "limit -2", "longest line -3",
		`template "id": id:1: unclosed action`, `template "answer": answer:1: function "nosuch" not defined`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
}
