package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/inference/enginesim"
	"tranche/internal/mock"
)

// echo answers any request after a while with a body that quotes it, and counts how often each was asked.
type echo struct {
	*mock.Server
	mu    sync.Mutex
	asked map[string]int // by the text of the request's "input"
}

// newEcho serves the embeddings route. after may be nil.
func newEcho(t *testing.T, after func(input string) time.Duration) *echo {
	e := &echo{asked: map[string]int{}}
	e.Server = mock.New(t, mock.Config{Routes: map[string]mock.Handler{"POST /v1/embeddings": func(r *mock.Request, w *mock.Reply) {
		input := textOf(r.Field("input"))
		e.mu.Lock()
		e.asked[input]++
		e.mu.Unlock()
		if after != nil && !w.Delay(after(input)) {
			return
		}
		switch {
		case strings.HasPrefix(input, "bad"):
			w.JSON(400, `{"error":{"message":"never","type":"invalid_request_error","code":400}}`)
		default:
			w.JSON(200, `{"object":"list","of":`+string(r.Body)+`,"usage":{"prompt_tokens":3,"total_tokens":3}}`)
		}
	}}})
	return e
}

func (e *echo) times(input string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked[input]
}

// embeddings writes a batch file of embedding requests, one for each input.
func embeddings(t *testing.T, inputs ...string) string {
	var b strings.Builder
	for i, in := range inputs {
		fmt.Fprintf(&b, "{\"custom_id\":\"r%d\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":{\"input\":%s,\"n\":1.00,\"model\":\"mock\"}}\n", i, encode(in))
	}
	return write(t, "in.jsonl", b.String())
}

func numbered(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("input ", i)
	}
	return list
}

// results reads a file of results.
func results(t *testing.T, path string) (list []outputLine) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		var l outputLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, l)
	}
	return list
}

// inOrder expects the results of r0, r1, … and their requests in their bodies.
func inOrder(t *testing.T, list []outputLine, inputs []string) {
	t.Helper()
	if len(list) != len(inputs) {
		t.Fatalf("%d results of %d lines", len(list), len(inputs))
	}
	for i, l := range list {
		want := `"of":{"input":` + string(encode(inputs[i])) + `,"n":1.00,"model":"mock"}`
		if l.CustomID != fmt.Sprint("r", i) || l.Response == nil || l.Response.StatusCode != 200 || !strings.Contains(string(l.Response.Body), want) {
			t.Errorf("result %d is of %s: %+v", i, l.CustomID, l.Response)
		}
	}
}

func nothingLeft(t *testing.T, out string) {
	t.Helper()
	temp, err := filepath.Glob(filepath.Join(filepath.Dir(out), ".tranche-batch-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(temp, batchJournalPath(out)) {
		if _, err := os.Stat(p); err == nil {
			t.Errorf("%s was left", p)
		}
	}
}

// Answers that come in another order are written in that of the input; bodies go out and come back byte for byte.
func TestBatchKeepsTheOrder(t *testing.T) {
	inputs := numbered(40)
	e := newEcho(t, func(input string) time.Duration {
		var i int
		_, _ = fmt.Sscanf(input, "input %d", &i)
		return time.Duration((40-i)%7) * 10 * time.Millisecond
	})
	out := filepath.Join(t.TempDir(), "out.jsonl")
	s := newShell(t)
	s.do(codeOK, "batch", embeddings(t, inputs...), "-o", out, "--endpoint", e.URL(), "--json")
	inOrder(t, results(t, out), inputs)
	nothingLeft(t, out)
	var r batchReport
	if err := json.Unmarshal(s.out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.State != stateComplete || r.Answered != 40 || r.Left != 0 || r.Session.TokensIn != 120 || len(r.Session.Endpoints) != 1 {
		t.Errorf("%+v %+v", r, r.Session)
	}
}

// All four kinds of requests, as the simulated engine answers them over TCP, under the spelling of vllm run-batch.
func TestBatchOfAllKinds(t *testing.T) {
	engine, err := enginesim.New(enginesim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := engine.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close(context.Background())
	in := write(t, "in.jsonl", `
{"custom_id": "chat", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "sim", "n": 2, "max_completion_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}}
{"custom_id": "text", "method": "POST", "url": "/v1/completions", "body": {"model": "sim", "prompt": [1, 2, 3], "max_tokens": 5}}

{"custom_id": "vector", "method": "POST", "url": "/v1/embeddings", "body": {"model": "sim", "input": "Hello"}}
{"custom_id": "response", "method": "POST", "url": "/v1/responses", "body": {"model": "sim", "input": "Hello", "max_output_tokens": 4}}`)
	out := filepath.Join(t.TempDir(), "out.jsonl")
	s := newShell(t)
	s.do(codeOK, "batch", "-i", in, "--output-file", out, "--model", "sim", "--endpoint", "http://"+server.Addr()+"/v1")
	list := results(t, out)
	for i, want := range []struct{ id, object, holds string }{
		{"chat", "chat.completion", `"completion_tokens":18`}, {"text", "text_completion", `"completion_tokens":5`},
		{"vector", "list", `"embedding":[`}, {"response", "response", `"output_tokens":4`},
	} {
		var body struct{ Object string }
		if l := list[i]; l.CustomID != want.id || json.Unmarshal(l.Response.Body, &body) != nil || body.Object != want.object || !strings.Contains(string(l.Response.Body), want.holds) {
			t.Errorf("%s: %s", want.id, l.Response.Body)
		}
	}
}

// Refused lines go to the error file with the server's own words, or stay among the others; they are asked once.
func TestBatchErrors(t *testing.T) {
	inputs := []string{"input 0", "bad 1", "input 2", "bad 3"}
	for _, apart := range []bool{true, false} {
		e := newEcho(t, nil)
		out := filepath.Join(t.TempDir(), "out.jsonl")
		args := []string{"batch", embeddings(t, inputs...), "-o", out, "--endpoint", e.URL()}
		good, bad := []string{"r0", "r1", "r2", "r3"}, []string{}
		if apart {
			args = append(args, "--errors", out+".errors")
			good, bad = []string{"r0", "r2"}, []string{"r1", "r3"}
		}
		newShell(t).do(codePartial, args...)
		ids := func(list []outputLine) (ids []string) {
			for _, l := range list {
				ids = append(ids, l.CustomID)
				refused := l.CustomID == "r1" || l.CustomID == "r3"
				if refused != (l.Response.StatusCode == 400) || refused != strings.Contains(string(l.Response.Body), `"message":"never"`) || l.Error != nil {
					t.Errorf("%s: %+v", l.CustomID, l.Response)
				}
			}
			return ids
		}
		if got := ids(results(t, out)); !slices.Equal(got, good) {
			t.Errorf("errors apart %v: the output holds %v", apart, got)
		}
		if apart && !slices.Equal(ids(results(t, out+".errors")), bad) {
			t.Error("the error file holds others")
		}
		if e.times("bad 1") != 1 {
			t.Errorf("a refused line was asked %d times", e.times("bad 1"))
		}
		s := newShell(t) // again: nothing is to be done, and the status is the same
		s.do(codePartial, args...)
		if e.times("input 0") != 1 || !strings.Contains(s.err.String(), "finished already") {
			t.Errorf("asked again: %s", s.err.String())
		}
	}
}

// A temporary error is tried again; one that lasts is the line's result, and an answer that never came is no answer.
func TestBatchTriesAgain(t *testing.T) {
	var mu sync.Mutex
	n := map[string]int{}
	server := mock.New(t, mock.Config{Routes: map[string]mock.Handler{"POST /v1/embeddings": func(r *mock.Request, w *mock.Reply) {
		mu.Lock()
		input := textOf(r.Field("input"))
		n[input]++
		times := n[input]
		mu.Unlock()
		switch {
		case input == "once" && times == 1, input == "broken":
			w.JSON(500, `oops`)
		case input == "cut":
			w.JSON(200, `{"object":`)
		case input == "inside":
			w.JSON(200, `{"error":{"message":"wrong","code":400}}`)
		default:
			w.JSON(200, `{"object":"list"}`)
		}
	}}})
	out := filepath.Join(t.TempDir(), "out.jsonl")
	newShell(t).do(codePartial, "batch", embeddings(t, "once", "broken", "cut", "inside", "fine", "fine", "fine"), "-o", out, "--endpoint", server.URL(), "--concurrency", "1")
	list := results(t, out)
	if l := list[0]; l.Response == nil || l.Response.StatusCode != 200 || n["once"] != 2 {
		t.Errorf("once: %+v", l)
	}
	if l := list[1]; l.Response == nil || l.Response.StatusCode != 500 || !strings.Contains(string(l.Response.Body), `"message":"oops"`) || n["broken"] != 3 {
		t.Errorf("broken, asked %d times: %+v", n["broken"], l)
	}
	if l := list[2]; l.Response != nil || l.Error == nil || l.Error.Code != "malformed_reply" {
		t.Errorf("cut: %+v", l)
	}
	if l := list[3]; l.Response == nil || l.Response.StatusCode != 200 || l.Error == nil || l.Error.Code != "bad_request" {
		t.Errorf("inside: %+v", l)
	}
}

func TestBatchNamesBadLines(t *testing.T) {
	const fine = `"method":"POST","url":"/v1/embeddings","body":{"input":"x"}`
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":       {"{\"custom_id\":\"a\"," + fine + "}\nnonsense", "in.jsonl:2: expected one JSON object"},
		"a list":        {`[` + "\n", "is one JSON list"},
		"no id":         {`{` + fine + `}`, `in.jsonl:1: field "custom_id": expected a text that no other line has, found nothing`},
		"a number":      {`{"custom_id":7,` + fine + `}`, `field "custom_id": expected a text that no other line has, found 7`},
		"half a pair":   {`{"custom_id":"\ud800",` + fine + `}`, `field "custom_id": expected valid Unicode`},
		"twice":         {`{"custom_id":"a",` + fine + "}\n\n" + `{"custom_id":"\u0061",` + fine + `}`, `in.jsonl:3: field "custom_id": expected one that no other line has; "a" is that of line 1`},
		"method":        {`{"custom_id":"a","method":"GET","url":"/v1/embeddings","body":{"input":"x"}}`, `field "method": expected "POST", found "GET"`},
		"url":           {`{"custom_id":"a","method":"POST","url":"/v1/nothing","body":{}}`, `field "url": expected one of /v1/chat/completions, `},
		"no body":       {`{"custom_id":"a","method":"POST","url":"/v1/embeddings"}`, `field "body": expected the request as a JSON object, found nothing`},
		"body is text":  {`{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":"{}"}`, `field "body": expected the request as a JSON object, found "{}"`},
		"no prompt":     {`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{}}`, `field "body.messages": missing`},
		"stream":        {`{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x","stream":true}}`, `field "body.stream": expected false`},
		"model":         {`{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x","model":7}}`, `field "body.model": expected the name of a model, found 7`},
		"empty":         {" \n", "is empty"},
		"two at once":   {`{"custom_id":"a","method":"GET","url":"/v1/nothing","body":{}}`, `field "method"`},
		"two, the next": {`{"custom_id":"a","method":"GET","url":"/v1/nothing","body":{}}`, `field "url"`},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEcho(t, nil)
			out := filepath.Join(t.TempDir(), "out.jsonl")
			s := newShell(t)
			s.do(codeTasks, "batch", write(t, "in.jsonl", c.text), "-o", out, "--endpoint", e.URL())
			if !strings.Contains(s.err.String(), c.want) {
				t.Errorf("said %s, want a word of %q", s.err.String(), c.want)
			}
			if len(e.Requests()) > 0 {
				t.Error("something was sent")
			}
			nothingLeft(t, out)
		})
	}
}

func TestBatchRefuses(t *testing.T) {
	in := embeddings(t, "x")
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken.jsonl")
	if err := os.WriteFile(taken, []byte("{\"custom_id\":\"r1\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := write(t, "c.yaml", "endpoint:\n  - url: http://127.0.0.1:1/v1\n    extra-body: {\"a\": 1}\ntemperature: 0.5\n")
	for name, c := range map[string]struct {
		args []string
		code code
		want string
	}{
		"no input":            {[]string{"-o", dir + "/o"}, codeUsage, "no batch file given"},
		"no output":           {[]string{in}, codeUsage, "out: is missing"},
		"input twice":         {[]string{in, "-i", in, "-o", dir + "/o"}, codeUsage, "input-file: the input was named already"},
		"a run's flag":        {[]string{in, "-o", dir + "/o", "--max-tokens", "7"}, codeUsage, "max-tokens: has no meaning in a batch"},
		"a run's file":        {[]string{in, "-o", dir + "/o", "-c", config}, codeUsage, "temperature: has no meaning in a batch"},
		"an extra body":       {[]string{in, "-o", dir + "/o", "-c", config}, codeUsage, "extra-body: has no meaning in a batch"},
		"output is the input": {[]string{in, "-o", in}, codeUsage, "is the input"},
		"output is a folder":  {[]string{in, "-o", dir}, codeUsage, "expected the path of a file"},
		"no such folder":      {[]string{in, "-o", dir + "/no/o"}, codeUsage, "there is no such folder"},
		"one file for both":   {[]string{in, "-o", dir + "/o", "--errors", dir + "/o"}, codeUsage, "errors: " + dir + "/o is the output"},
		"another's output":    {[]string{in, "-o", taken, "--endpoint", "http://127.0.0.1:1/v1"}, codeRefused, "is there already"},
		"no such input":       {[]string{dir + "/nothing", "-o", dir + "/o", "--endpoint", "http://127.0.0.1:1/v1"}, codeTasks, "no such file"},
		"no endpoint":         {[]string{in, "-o", dir + "/o", "--endpoint", "http://127.0.0.1:1/v1"}, codeEndpoint, "no endpoint is usable"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t)
			s.do(c.code, append([]string{"batch"}, c.args...)...)
			if !strings.Contains(s.err.String(), c.want) {
				t.Errorf("said %s, want a word of %q", s.err.String(), c.want)
			}
			nothingLeft(t, dir+"/o")
		})
	}
	if raw, err := os.ReadFile(taken); err != nil || string(raw) != "{\"custom_id\":\"r1\"}\n" {
		t.Errorf("a file of another was changed: %s (%v)", raw, err)
	}
}

// The endpoint's model goes out only when that is asked for.
func TestBatchModels(t *testing.T) {
	in := write(t, "in.jsonl", `{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{ "model" : "gpt","input":"x"}}
{"custom_id":"b","method":"POST","url":"/v1/embeddings","body":{"input":"y"}}`)
	for name, c := range map[string]struct {
		args   []string
		a, b   string
		notice bool
	}{
		"as they are":  {[]string{"--model", "mock"}, `{ "model" : "gpt","input":"x"}`, `{"input":"y"}`, true},
		"the endpoint": {[]string{"--replace-model"}, `{ "model" : "mock","input":"x"}`, `{"model":"mock","input":"y"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEcho(t, nil)
			s := newShell(t)
			s.do(codeOK, append([]string{"batch", in, "-o", filepath.Join(t.TempDir(), "o"), "--endpoint", e.URL()}, c.args...)...)
			var got []string
			for _, r := range e.Requests() {
				if r.Method == "POST" {
					got = append(got, string(r.Body))
				}
			}
			slices.Sort(got)
			if want := []string{c.a, c.b}; !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				t.Errorf("sent %q, want %q", got, want)
			}
			if strings.Contains(s.err.String(), "1 lines name another model (gpt)") != c.notice {
				t.Errorf("said %s", s.err.String())
			}
		})
	}
}

// ctrl-c leaves what is durable; the same command ends the rest and asks nothing twice.
func TestBatchIsStoppedAndGoesOn(t *testing.T) {
	inputs := numbered(60)
	stop := make(chan struct{})
	var once sync.Once
	e := newEcho(t, func(input string) time.Duration {
		if input == "input 30" {
			once.Do(func() { close(stop) })
		}
		return 10 * time.Millisecond
	})
	in, out := embeddings(t, inputs...), filepath.Join(t.TempDir(), "out.jsonl")
	args := []string{"batch", in, "-o", out, "--endpoint", e.URL(), "--concurrency", "2", "--open-episodes", "4"}
	s := newShell(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-stop
		s.signals <- os.Interrupt
	}()
	s.do(codeInt, args...)
	<-ended
	if !strings.Contains(s.out.String(), "incomplete") || !strings.Contains(s.out.String(), "the same command again") {
		t.Errorf("said %s", s.out.String())
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("an incomplete output is there")
	}
	again := newShell(t)
	again.do(codeOK, args...)
	inOrder(t, results(t, out), inputs)
	nothingLeft(t, out)
	for _, input := range inputs {
		if n := e.times(input); n != 1 {
			t.Errorf("%s was asked %d times", input, n)
		}
	}
	if !strings.Contains(again.err.String(), "have their result already") {
		t.Errorf("said %s", again.err.String())
	}
}

// A journal of another input, or of another model in the lines' place, is not gone on with.
func TestBatchJournalBelongsToItsInput(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.jsonl")
	in := embeddings(t, "a", "b")
	f, err := checkBatch(t.Context(), in, false)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ head, want string }{
		"another input": {`{"journal":"tranche batch 1","input_sha256":"00","lines":2}`, "results of another input"},
		"another model": {`{"journal":"tranche batch 1","input_sha256":"` + f.digest + `","lines":2,"own_model":"m"}`, "another model"},
		"no journal":    {`{"hello":1}`, "is no journal of a batch"},
	} {
		if err := os.WriteFile(batchJournalPath(out), []byte(c.head+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		s := newShell(t)
		s.do(codeRefused, "batch", in, "-o", out, "--endpoint", "http://127.0.0.1:1/v1")
		if !strings.Contains(s.err.String(), c.want) {
			t.Errorf("%s: said %s", name, s.err.String())
		}
	}
}

// Two processes at one batch: the second is told so.
func TestBatchIsLocked(t *testing.T) {
	in, out := embeddings(t, "a"), filepath.Join(t.TempDir(), "out.jsonl")
	j, _, err := openBatchJournal(batchJournalPath(out), batchHead{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	s.do(codeRefused, "batch", in, "-o", out, "--endpoint", "http://127.0.0.1:1/v1")
	if !strings.Contains(s.err.String(), "another process is at this batch") {
		t.Errorf("said %s", s.err.String())
	}
	j.close()
	if err := j.release(true); err != nil {
		t.Fatal(err)
	}
	newShell(t).do(codeOK, "batch", in, "-o", out, "--endpoint", newEcho(t, nil).URL())
}
