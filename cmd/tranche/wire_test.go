package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tranche/inference"
	"tranche/internal/mock"
)

// A run finds out what its endpoints can do before its first episode, in at most 12 requests each, and a resume that finds the same servers asks nothing again.
func TestARunProbesItsEndpointsOnce(t *testing.T) {
	one, two := newVersioned(t), newVersioned(t)
	dir := newRunDir(t)
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 4, ""), "--endpoint", one.URL(), "--endpoint", two.URL(), "--probe", "auto", "--no-logprobs", "--no-token-ids", "-o", dir)
	for _, v := range []*versioned{one, two} {
		before := slices.IndexFunc(v.Requests(), func(r *mock.Request) bool { return strings.HasPrefix(userText(r), "task") })
		if before < 0 {
			before = len(v.Requests())
		}
		if v.probes() != 1 || before > inference.MostCalls {
			t.Errorf("%d generations of a probe, %d requests before the first episode", v.probes(), before)
		}
	}
	now, err := filepath.Glob(filepath.Join(dir, "endpoints", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range now {
		if c := readRecord(t, file); c.N.Proof != inference.Proved || len(c.Asked) != len(inference.AllQuestions()) || c.Calls > inference.MostCalls {
			t.Errorf("%+v", c)
		}
	}
	if len(now) != 2 {
		t.Errorf("records %v, want two", now)
	}
	newShell(t).do(codeOK, "resume", dir, "-q")
	if n := one.probes() + two.probes(); n != 2 {
		t.Errorf("%d generations after a resume, want the 2 of the run", n)
	}
}

// The embedded engine is ours: nothing is asked of it.
func TestTheEmbeddedEngineIsNotProbed(t *testing.T) {
	dir := newRunDir(t)
	newShell(t).do(codeOK, "run", taskFile(t, 2, ""), "--probe", "auto", "-o", dir, "-q")
	if c := recordIn(t, dir); len(c.Asked) != 0 || c.Calls > 3 {
		t.Errorf("asked %v in %d calls", c.Asked, c.Calls)
	}
}

// A server that hangs over the probe's questions does not keep the run from beginning: what is not known after ten seconds stays unknown.
func TestARunBeginsThoughTheProbeHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for ten seconds")
	}
	t.Parallel()
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if isProbe(r) {
			w.Hang()
			return
		}
		mock.Text("fine").Send(r, w)
	}})
	dir := newRunDir(t)
	began := time.Now()
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 2, ""), "--endpoint", server.URL(), "--probe", "auto", "--no-logprobs", "--no-token-ids", "-o", dir, "--progress", "none")
	if strings.Count(s.err.String(), "still asking the endpoints") != 1 {
		t.Errorf("not told once that it takes a while:\n%s", s.err.String())
	}
	if took := time.Since(began); took < startProbe || took > 2*startProbe && !tooBusy(t) {
		t.Errorf("the run took %v, want a little over %v", took, startProbe)
	}
	if c := recordIn(t, dir); c.N.Proof != inference.Unknown || !strings.Contains(c.N.From, "no answer in time") {
		t.Errorf("%+v", c.N)
	}
}

// One priority is told to each server in its own direction; a server that has none is named once, and is not told.
func TestPriorityIsToldOrSaid(t *testing.T) {
	vllm, other := newVersioned(t), answering(t, 0)
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 24, ""), "--endpoint", vllm.URL(), "--endpoint", other.URL(), "--priority", "5", "--concurrency", "2", "--no-logprobs", "--no-token-ids", "-o", newRunDir(t))
	for server, want := range map[*mock.Server]string{vllm.Server: "-5", other: ""} {
		if len(server.Chats()) == 0 {
			t.Error("a server got no call")
		}
		for _, r := range server.Chats() {
			if got := string(r.Field("priority")); got != want {
				t.Fatalf("priority %q went out, want %q", got, want)
			}
		}
	}
	if said := s.err.String(); strings.Count(said, "--priority 5 is not sent") != 1 || !strings.Contains(said, "capabilities: {priority: high-first}") {
		t.Errorf("not told once:\n%s", said)
	}
}

// A kv-tokens below the context limit is a mistake, told once with both figures.
func TestKVTokensBelowTheContext(t *testing.T) {
	server := contextServer(t) // 100 tokens
	file := write(t, "fleet.yaml", "endpoint:\n  - url: "+server.URL()+"\n    kv-tokens: 60\n")
	s := newShell(t)
	s.do(codeEndpoint, "run", taskFile(t, 1, ""), "-c", file, "-o", newRunDir(t))
	if said := s.err.String(); strings.Count(said, "kv-tokens is set to 60, below the context limit of 100 tokens") != 1 {
		t.Errorf("not told once:\n%s", said)
	}
	newShell(t).do(codeOK, "run", write(t, "tasks.jsonl", `{"id":"a","prompt":"say 9"}`+"\n"), "--endpoint", server.URL(), "--kv-budget", "60", "-o", newRunDir(t), "-q") // a budget of the run's own
}

// A tool call that the server cannot read is sampled again, as often as any attempt; then the row says so and keeps what the model wrote.
func TestAToolCallThatTheServerCannotRead(t *testing.T) {
	const refusal = `{"error":{"message":"Tool call validation failed","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"{\"name\": \"calculator\", \"arguments\": {\"x\""}}`
	var once atomic.Bool
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if userText(r) == "task 1" || userText(r) == "task 2" && !once.Swap(true) {
			w.JSON(400, refusal)
			return
		}
		mock.Text("fine").Send(r, w)
	}})
	dir := newRunDir(t)
	s := newShell(t)
	s.do(codePartial, "run", taskFile(t, 4, ""), "--endpoint", server.URL(), "--max-attempts", "3", "--no-logprobs", "--no-token-ids", "--json", "-o", dir, "-q")
	asked := 0
	for _, r := range server.Chats() {
		if userText(r) == "task 1" {
			asked++
		}
	}
	rows := rowsIn(t, dir)
	bad, mended := rows["t1/0"], rows["t2/0"]
	if asked != 3 || len(bad.FaultAttempts) != 3 || or(bad.FaultClass, "") != "tool_use_failed" || or(bad.Partial, "") != `{"name": "calculator", "arguments": {"x"` {
		t.Errorf("%d requests, %d attempts, class %s, partial %q", asked, len(bad.FaultAttempts), or(bad.FaultClass, ""), or(bad.Partial, ""))
	}
	if or(mended.Status, "") != "completed" || mended.Turns[0].Retries != 1 {
		t.Errorf("the one that was well the second time: %s after %d retries", or(mended.Status, ""), mended.Turns[0].Retries)
	}
	if d := s.document(); d.Dataset.Good != 3 || d.Dataset.Failures["tool_use_failed"] != 1 {
		t.Errorf("%d good, failures %v", d.Dataset.Good, d.Dataset.Failures)
	}
}

// A server that silently cuts prompts is found out by its own counts, row by row, and the summary says of how many.
func TestCutPromptsAreCounted(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		c := mock.Text("fine")
		c.Prompt = min(64, len(strings.Fields(userText(r))))
		c.Send(r, w)
	}})
	tasks := write(t, "tasks.jsonl", `{"id":"short","prompt":"how are you"}`+"\n"+`{"id":"long","prompt":"`+strings.Repeat("word ", 200)+`"}`+"\n")
	dir := newRunDir(t)
	s := newShell(t)
	s.do(codeOK, "run", tasks, "--endpoint", server.URL(), "--no-logprobs", "--no-token-ids", "--json", "-o", dir, "-q")
	rows := rowsIn(t, dir)
	if !slices.Contains(rows["long/0"].Flags, "prompt_cut") || slices.Contains(rows["short/0"].Flags, "prompt_cut") || s.document().Dataset.Flags["prompt_cut"] != 1 {
		t.Errorf("flags %v and %v, counted %v", rows["long/0"].Flags, rows["short/0"].Flags, s.document().Dataset.Flags)
	}
}

// limited is a server whose context has so many tokens. Every prompt has 5,000.
func limited(t *testing.T, context int, well func() bool) *mock.Server {
	return mock.New(t, mock.Config{
		Chat: func(r *mock.Request, w *mock.Reply) {
			if !well() {
				w.JSON(500, `{"error":{"message":"down"}}`)
				return
			}
			c := mock.Text("fine")
			c.Prompt = 5000
			c.Send(r, w)
		},
		Routes: map[string]mock.Handler{
			"GET /v1/models": func(_ *mock.Request, w *mock.Reply) {
				w.JSON(200, fmt.Sprintf(`{"data":[{"id":"mock","owned_by":"vllm","max_model_len":%d}]}`, context))
			},
			"POST /tokenize": func(_ *mock.Request, w *mock.Reply) { w.JSON(200, `{"count":5000}`) },
		},
	})
}

func TestCaseCOo4(t *testing.T) {
	up, down := func() bool { return true }, func() bool { return false }
	tasks := taskFile(t, 6, "")
	text, err := os.ReadFile(tasks)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.ReplaceAll(string(text), "task ", strings.Repeat("four more words here ", 1000))
	for name, c := range map[string]struct {
		well func() bool
		want code
	}{"A is up": {up, codeOK}, "A is down": {down, codePartial}} {
		t.Run(name, func(t *testing.T) {
			a, b := limited(t, 8192, c.well), limited(t, 4096, up)
			dir := newRunDir(t)
			newShell(t).do(c.want, "run", write(t, "tasks.jsonl", long), "--endpoint", a.URL(), "--endpoint", b.URL(), "--max-attempts", "1", "--no-logprobs", "--no-token-ids", "-o", dir, "-q")
			if n := len(b.Chats()); n != 0 || len(a.Chats()) == 0 {
				t.Errorf("%d calls of 5,000 tokens went to the endpoint of 4,096, %d to that of 8,192", n, len(a.Chats()))
			}
			for key, row := range rowsIn(t, dir) {
				if class := or(row.FaultClass, ""); (class == "") != (c.want == codeOK) || class != "" && class != "server_error" && class != "no_endpoint" {
					t.Errorf("%s: class %q", key, class)
				}
			}
		})
	}
}

// twice answers with a tool call, then with a text.
func twice(first, second func(r *mock.Request) mock.Chat) mock.Handler {
	return func(r *mock.Request, w *mock.Reply) {
		if strings.Contains(string(r.Body), `"role":"tool"`) {
			second(r).Send(r, w)
			return
		}
		first(r).Send(r, w)
	}
}

func same(c mock.Chat) func(*mock.Request) mock.Chat {
	return func(*mock.Request) mock.Chat { return c }
}

// A tool call that ends inside its own JSON is a cut answer and nothing else.
func TestCaseCOo2(t *testing.T) {
	cut := mock.Tool("c1", "calculator", `{"expression": "1 +`)
	cut.Finish = "length"
	server := mock.New(t, mock.Config{Chat: twice(same(mock.Tool("c0", "calculator", `{"expression": "1 + 1"}`)), same(cut))})
	dir := newRunDir(t)
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 2, `,"tools":["calculator"]`), "--endpoint", server.URL(), "--no-logprobs", "--no-token-ids", "--json", "-o", dir, "-q")
	for key, row := range rowsIn(t, dir) {
		if len(row.Turns) != 2 || len(row.Actions) != 1 || or(row.StopReason, "") != "length" || or(row.Status, "") != "truncated" || row.FaultClass != nil {
			t.Errorf("%s: %d turns, %d actions, %s, %s", key, len(row.Turns), len(row.Actions), or(row.StopReason, ""), or(row.Status, ""))
		}
	}
	if d := s.document(); d.Dataset.Stops["length"] != 2 || d.Dataset.Failed != 0 {
		t.Errorf("stops %v, %d failed", d.Dataset.Stops, d.Dataset.Failed)
	}
}

// Arguments that are no JSON are answered under their own call id; the next request holds valid JSON for the call, the row what the model wrote.
func TestCaseSPo1(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: twice(same(mock.Tool("c1", "calculator", `{"n": 7`)), same(mock.Text("sorry")))})
	dir := newRunDir(t)
	newShell(t).do(codeOK, "run", taskFile(t, 1, `,"tools":["calculator"]`), "--endpoint", server.URL(), "--no-logprobs", "--no-token-ids", "-o", dir, "-q")
	chats := server.Chats()
	if len(chats) != 2 {
		t.Fatalf("%d requests", len(chats))
	}
	var sent []struct {
		Role       string
		Content    string
		ToolCallID string `json:"tool_call_id"`
		ToolCalls  []struct {
			ID       string
			Function struct{ Arguments string }
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(chats[1].Field("messages"), &sent); err != nil || len(sent) != 3 {
		t.Fatalf("%v: %s", err, chats[1].Body)
	}
	if call := sent[1].ToolCalls[0]; call.ID != "c1" || !json.Valid([]byte(call.Function.Arguments)) {
		t.Errorf("the history holds %+v", call)
	}
	if sent[2].ToolCallID != "c1" || !strings.Contains(sent[2].Content, "JSON") {
		t.Errorf("the model is told %+v", sent[2])
	}
	row := rowsIn(t, dir)["t0/0"]
	if got := row.Messages[1].ToolCalls; len(got) != 1 || got[0].Function.Arguments != `{"n": 7` {
		t.Errorf("the row keeps %+v", got)
	}
}

// SP-o6 of the whole program: 1,000 calls without a name are each answered, and hardly logged.
func TestCaseSPo6(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if strings.Contains(string(r.Field("messages")), "has no function name; the tools are: calculator") {
			mock.Text("#### 7").Send(r, w)
			return
		}
		call := mock.Tool("c1", "", "")
		call.ToolCalls = json.RawMessage(`[{"function":{"arguments":{"q":"x"}}}]`)
		call.Send(r, w)
	}})
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 1000, ""), "--tools", "calculator", "--endpoint", server.URL(), "--no-logprobs", "--no-token-ids", "--max-turns", "2", "--reward", "none", "-o", newRunDir(t), "--json", "--progress", "none")
	if d := s.document(); d.Dataset.Good != 1000 || d.Dataset.Stops["stop"] != 1000 {
		t.Errorf("%d good, stops %v", d.Dataset.Good, d.Dataset.Stops)
	}
	if lines := strings.Count(s.err.String(), "\n"); lines > 20 {
		t.Errorf("%d lines of log:\n%.2000s", lines, s.err.String())
	}
}

// A prompt that does not go on from the turn before, here at index 41, is a row like others that says where.
func TestCaseTLo2(t *testing.T) {
	counting := func(from, n int) (list []int32) {
		for i := range n {
			list = append(list, int32(from+i))
		}
		return list
	}
	first := mock.Tool("c1", "calculator", `{"expression": "1 + 1"}`)
	first.PromptIDs, first.TokenIDs, first.Prompt, first.Completion = counting(1000, 40), []int32{1, 2, 3}, 40, 3
	second := mock.Text("two")
	second.PromptIDs, second.TokenIDs, second.Completion = slices.Concat(counting(1000, 40), []int32{1}, counting(2000, 9)), []int32{7, 8}, 2
	second.Prompt = len(second.PromptIDs)
	server := mock.New(t, mock.Config{Chat: twice(same(first), same(second))})
	dir := newRunDir(t)
	newShell(t).do(codeOK, "run", taskFile(t, 1, `,"tools":["calculator"]`), "--endpoint", server.URL(), "--no-logprobs", "-o", dir, "-q")
	row := rowsIn(t, dir)["t0/0"]
	if row.PrefixBreak == nil || *row.PrefixBreak != 41 || !slices.Equal(row.TokenIDs, slices.Concat(second.PromptIDs, second.TokenIDs)) {
		t.Fatalf("prefix break %v, ids %v", row.PrefixBreak, row.TokenIDs)
	}
	for i, m := range row.LossMask { // the id at 40 was sampled by the turn before, and is as it was
		if want := i >= 50 || i == 40; (m == 1) != want {
			t.Errorf("mask %d at %d", m, i)
		}
	}
}

// Logprobs that were asked for and did not come are counted, and none are invented.
func TestCaseTLo3(t *testing.T) {
	c := mock.Text("fine")
	c.PromptIDs, c.TokenIDs, c.Prompt, c.Completion = []int32{4, 5, 6}, []int32{7, 8}, 3, 2
	server := mock.New(t, mock.Config{Chat: c.Send})
	dir := newRunDir(t)
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 3, ""), "--endpoint", server.URL(), "--json", "-o", dir, "-q")
	if n := s.document().Dataset.Flags["logprobs_missing"]; n != 3 {
		t.Errorf("%d counted, want 3", n)
	}
	for key, row := range rowsIn(t, dir) {
		if len(row.TokenIDs) != 5 {
			t.Errorf("%s: ids %v", key, row.TokenIDs)
		}
		for i, l := range row.Logprobs {
			if l != nil {
				t.Errorf("%s: a logprob of %v at %d", key, *l, i)
			}
		}
	}
}
