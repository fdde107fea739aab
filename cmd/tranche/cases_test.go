package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tranche/action"
	"tranche/episode"
	"tranche/internal/mock"
	"tranche/reward"
	"tranche/storage"
)

// The cases of the project's list at the level of the command line. Times hold on two idle cores; under the race detector, which
// slows everything, and on a busy machine they are not judged.

func TestCaseCTo1(t *testing.T) {
	var wall float64
	var peak, conns int
	for try := range 3 { // a neighbour on the machine must not decide it
		wall, peak, conns = fullConcurrency(t)
		t.Logf("try %d: wall %.2fs, peak %d, connections %d", try+1, wall, peak, conns)
		if wall <= 1.6 && peak >= 490 || raceEnabled {
			break
		}
	}
	if conns > 540 {
		t.Errorf("%d connections opened, want 540 at most", conns)
	}
	if tooBusy(t) {
		return
	}
	if peak < 490 {
		t.Errorf("%d requests in flight at once at most, want 490 of 512", peak)
	}
	if wall > 1.6 {
		t.Errorf("wall %.2fs, want 1.6s at most", wall)
	}
}

func fullConcurrency(t *testing.T) (wall float64, peak, conns int) {
	server := answering(t, 200*time.Millisecond)
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 2048, ""), "--endpoint", server.URL(), "--concurrency", "512", "-o", newRunDir(t), "--json", "-q")
	d := s.document()
	if d.Dataset.Good != 2048 || d.Dataset.Failed != 0 {
		t.Errorf("%d good, %d failed", d.Dataset.Good, d.Dataset.Failed)
	}
	return d.Run.Session.WallSeconds, server.Peak(), server.Conns()
}

// tooBusy tells that times cannot be judged here and now: the race detector is on, or others use the cores.
func tooBusy(t *testing.T) bool {
	t.Helper()
	if raceEnabled {
		return true
	}
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return false
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil || load < 2*float64(runtime.NumCPU()) {
		return false
	}
	t.Logf("load %.1f on %d cores: times are not judged", load, runtime.NumCPU())
	return true
}

// A call that waits 3 s for its turn is not a call that takes 3 s: the deadline starts at dispatch.
func TestCaseCTo3(t *testing.T) {
	var calls atomic.Int64
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		wait := 100 * time.Millisecond
		if calls.Add(1) <= 2 {
			wait = 1500 * time.Millisecond
		}
		if w.Delay(wait) {
			mock.Text("done").Send(r, w)
		}
	}})
	dir := newRunDir(t)
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 3, ""), "--endpoint", server.URL(), "--concurrency", "1", "--attempt-timeout", "2800ms", "-o", dir, "-q")
	var last *storage.Turn
	for _, row := range rowsIn(t, dir) {
		if turn := row.Turns[0]; last == nil || *turn.QueueMS > *last.QueueMS {
			last = &turn
		}
	}
	if *last.QueueMS < 2900 || *last.ServiceMS < 90 || *last.ServiceMS > 2800 || last.Retries > 0 {
		t.Errorf("queue %.0f ms, service %.0f ms; want about 3000 and 100, at once", *last.QueueMS, *last.ServiceMS)
	}
}

func TestCaseRRo2(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if userText(r) == "task 3" {
			w.JSON(400, `{"error":{"message":"unknown parameter","type":"BadRequestError","code":400}}`)
			return
		}
		mock.Text("fine").Send(r, w)
	}})
	dir := newRunDir(t)
	s := newShell(t)
	s.do(codePartial, "run", taskFile(t, 10, ""), "--endpoint", server.URL(), "--no-logprobs", "--no-token-ids", "-o", dir, "--json", "-q")
	attempts := 0
	for _, r := range server.Chats() {
		if userText(r) == "task 3" {
			attempts++
		}
	}
	row := rowsIn(t, dir)["t3/0"]
	if attempts != 1 || or(row.FaultClass, "") != "bad_request" || s.document().Dataset.Good != 9 {
		t.Errorf("%d attempts, class %s, %d good; want 1, bad_request, 9", attempts, or(row.FaultClass, ""), s.document().Dataset.Good)
	}
}

func TestCaseRRo3(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if userText(r) == "task 3" {
			w.JSON(503, `{"error":{"message":"busy"}}`)
			return
		}
		mock.Text("fine").Send(r, w)
	}})
	dir := newRunDir(t)
	newShell(t).do(codePartial, "run", taskFile(t, 10, ""), "--endpoint", server.URL(), "--max-attempts", "3", "-o", dir, "-q")
	var at []time.Time
	for _, r := range server.Chats() {
		if userText(r) == "task 3" {
			at = append(at, r.At)
		}
	}
	row := rowsIn(t, dir)["t3/0"]
	if len(at) != 3 || len(row.FaultAttempts) != 3 {
		t.Fatalf("%d attempts seen, %d recorded; want 3", len(at), len(row.FaultAttempts))
	}
	first, second := at[1].Sub(at[0]), at[2].Sub(at[1])
	if second <= first {
		t.Errorf("waits %v, then %v: they do not grow", first, second)
	}
	for i, a := range row.FaultAttempts {
		if a.Began == nil || a.Ended == nil || a.Ended.Before(*a.Began) {
			t.Errorf("attempt %d: %v to %v", i, a.Began, a.Ended)
		}
	}
}

func TestCaseRRo4(t *testing.T) {
	var healed atomic.Bool
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if !healed.Load() && strings.HasSuffix(userText(r), "7") { // task 7, 17, …
			w.JSON(400, `{"error":{"message":"no credit"}}`)
			return
		}
		mock.Text("fine").Send(r, w)
	}})
	dir := newRunDir(t)
	s := newShell(t)
	s.do(codePartial, "run", taskFile(t, 300, ""), "--endpoint", server.URL(), "--no-logprobs", "--no-token-ids", "-o", dir, "-q")
	healed.Store(true)
	before := len(server.Chats())
	s = newShell(t)
	s.do(codeOK, "resume", dir, "--retry-failed", "--json", "-q")
	if sent := len(server.Chats()) - before; sent != 30 {
		t.Errorf("%d requests were sent, want 30", sent)
	}
	if rows := rowsIn(t, dir); len(rows) != 300 || s.document().Dataset.Failed != 0 {
		t.Errorf("%d rows, %d failed; want 300 and 0", len(rows), s.document().Dataset.Failed)
	}
}

// The context has 100 tokens. The mock counts a prompt's tokens exactly, by the number in it.
func contextServer(t *testing.T) *mock.Server {
	prompt := func(r *mock.Request) int {
		n := 0
		text := userText(r)
		if _, err := fmt.Sscanf(text[strings.LastIndex(text, " ")+1:], "%d", &n); err != nil {
			t.Errorf("a request without a number: %q", text)
		}
		return n
	}
	return mock.New(t, mock.Config{
		Chat: func(r *mock.Request, w *mock.Reply) {
			c := mock.Text("short answer")
			c.Prompt = prompt(r)
			c.Send(r, w)
		},
		Routes: map[string]mock.Handler{
			"GET /v1/models": func(_ *mock.Request, w *mock.Reply) {
				w.JSON(200, `{"object":"list","data":[{"id":"mock","object":"model","owned_by":"vllm","max_model_len":100}]}`)
			},
			"POST /tokenize": func(r *mock.Request, w *mock.Reply) {
				n := prompt(r)
				w.JSON(200, fmt.Sprintf(`{"count":%d,"max_model_len":100,"tokens":[%s]}`, n, strings.Trim(strings.Repeat("1,", n), ",")))
			},
		},
	})
}

func TestCaseCOo1(t *testing.T) {
	server := contextServer(t)
	text := strings.Repeat("word and ", 30) // long enough for the scheduler to want an exact count
	tasks := write(t, "tasks.jsonl", fmt.Sprintf(`{"id":"roomy","prompt":"%s 90","answer":"x"}`+"\n"+`{"id":"full","prompt":"%s 99","answer":"x"}`+"\n", text, text))
	dir := newRunDir(t)
	newShell(t).do(codeOK, "run", tasks, "--endpoint", server.URL(), "--max-tokens", "64", "--min-useful", "8", "-o", dir, "-q")
	for _, r := range server.Chats() {
		if text := userText(r); !strings.HasSuffix(text, "90") {
			t.Errorf("a request was sent for %q", text)
		} else if got := string(r.Field("max_tokens")); got != "10" {
			t.Errorf("max_tokens %s, want 10", got)
		}
	}
	rows := rowsIn(t, dir)
	if n := len(server.Chats()); n != 1 || rows["roomy/0"].Status == nil || *rows["roomy/0"].Status != "completed" {
		t.Errorf("%d requests; the roomy row: %+v", n, rows["roomy/0"])
	}
	full := rows["full/0"]
	if or(full.Status, "") != "truncated" || or(full.StopReason, "") != "context_full" || len(full.Rewards) == 0 {
		t.Errorf("status %s, stop %s, %d rewards; want truncated, context_full and a reward step that ran", or(full.Status, ""), or(full.StopReason, ""), len(full.Rewards))
	}
}

// A stream that just ends is a failed attempt; what it brought is kept aside.
func TestCaseSPo3(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if userText(r) != "task 1" {
			mock.Text("fine").Send(r, w)
			return
		}
		w.Stream()
		w.Event(`{"choices":[{"index":0,"delta":{"role":"assistant","content":"half an "}}]}`)
		w.Event(`{"choices":[{"index":0,"delta":{"content":"answer"}}]}`)
	}})
	dir := newRunDir(t)
	newShell(t).do(codePartial, "run", taskFile(t, 2, ""), "--endpoint", server.URL(), "--stream", "--max-attempts", "2", "-o", dir, "-q")
	row := rowsIn(t, dir)["t1/0"]
	if or(row.FaultClass, "") != "truncated_stream" || len(row.FaultAttempts) != 2 || or(row.Partial, "") != "half an answer" {
		t.Errorf("class %s, %d attempts, partial %q; want truncated_stream, 2, the text", or(row.FaultClass, ""), len(row.FaultAttempts), or(row.Partial, ""))
	}
}

func TestCaseSPo4(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		thought := "abc"
		c := mock.Chat{Finish: "length", Prompt: 5, Completion: 3}
		if userText(r) == "task 0" {
			c.Reasoning = &thought
		} else {
			c.ReasoningContent = &thought
		}
		c.Send(r, w)
	}})
	dir := newRunDir(t)
	newShell(t).do(codeOK, "run", taskFile(t, 2, ""), "--endpoint", server.URL(), "-o", dir, "-q")
	for key, row := range rowsIn(t, dir) {
		m := row.Messages[len(row.Messages)-1]
		if m.Content != nil || or(m.ReasoningContent, "") != "abc" || or(row.StopReason, "") != "length" {
			t.Errorf("%s: content %v, reasoning %q, stop %s", key, m.Content, or(m.ReasoningContent, ""), or(row.StopReason, ""))
		}
	}
}

func TestCaseTLo4(t *testing.T) {
	server := answering(t, 0)
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, `{"custom_id":"c%d","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"task %d"}],"max_tokens":%d}}`+"\n", i, i, 10+i)
	}
	newShell(t).do(codeOK, "run", write(t, "batch.jsonl", b.String()), "--endpoint", server.URL(), "--temperature", "0", "-o", newRunDir(t), "-q")
	seen := map[string]bool{}
	for _, r := range server.Chats() {
		var i, tokens int
		fmt.Sscanf(userText(r), "task %d", &i)
		fmt.Sscan(string(r.Field("max_tokens")), &tokens)
		if tokens != 10+i || string(r.Field("temperature")) != "0" {
			t.Errorf("task %d: max_tokens %d, temperature %s; want %d and 0", i, tokens, r.Field("temperature"), 10+i)
		}
		seen[userText(r)] = true
	}
	if len(seen) != 200 {
		t.Errorf("%d different requests, want 200", len(seen))
	}
}

func TestCaseSHo1(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if userText(r) == "task 50" {
			w.Hang()
			return
		}
		mock.Text("fine").Send(r, w)
	}})
	dir := newRunDir(t)
	there := make(chan time.Time, 1)
	over := make(chan struct{})
	go func() { there <- rowsAt(dir, 99, over) }()
	began := time.Now()
	newShell(t).do(codePartial, "run", taskFile(t, 100, ""), "--endpoint", server.URL(), "--attempt-timeout", "2s", "--max-attempts", "2", "-o", dir, "-q")
	took := time.Since(began)
	close(over)
	if at := (<-there).Sub(began); at > 3*time.Second && (at > took || !tooBusy(t)) {
		t.Errorf("99 rows were in parts after %v of %v, want 3s: the one that hangs is waited for twice 2s", at, took)
	}
	if took > 6*time.Second && !tooBusy(t) {
		t.Errorf("the run took %v, want 6s at most", took)
	}
	if row := rowsIn(t, dir)["t50/0"]; or(row.FaultClass, "") != "timeout" {
		t.Errorf("class %s, want timeout", or(row.FaultClass, ""))
	}
}

// rowsAt is when the manifest of a run names so many rows, or something is over.
func rowsAt(dir string, enough int, over <-chan struct{}) time.Time {
	for {
		var m struct{ Rows int }
		if manifest, err := os.ReadFile(filepath.Join(dir, "manifest.json")); err == nil {
			_ = json.Unmarshal(manifest, &m) // no rows, then
		}
		if m.Rows >= enough {
			return time.Now()
		}
		select {
		case <-over:
			return time.Now()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestCaseSHo2(t *testing.T) {
	for range 3 { // a neighbour on the machine must not decide it
		wall := oneSlowCall(t)
		if wall <= 5.6 {
			return
		}
		t.Logf("wall %.2fs, want 5.6s at most", wall)
		if tooBusy(t) {
			return
		}
	}
	t.Error("too long each time")
}

// oneSlowCall plays 704 episodes, 64 at once, each of 50 ms but the first, which takes 5 s, and returns how many seconds they took.
func oneSlowCall(t *testing.T) float64 {
	var calls atomic.Int64
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		wait := 50 * time.Millisecond
		if calls.Add(1) == 1 {
			wait = 5 * time.Second
		}
		if w.Delay(wait) {
			mock.Text("fine").Send(r, w)
		}
	}})
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 704, ""), "--endpoint", server.URL(), "--concurrency", "64", "-o", newRunDir(t), "--json", "-q")
	return s.document().Run.Session.WallSeconds
}

// bomb is a tool that panics when it is told to.
type bomb struct{}

func (bomb) Name() string { return "bomb" }
func (bomb) Definition() json.RawMessage {
	return json.RawMessage(`{"type":"function","function":{"name":"bomb","description":"x","parameters":{"type":"object","properties":{"go":{"type":"boolean"}}}}}`)
}
func (bomb) Run(_ context.Context, args json.RawMessage, _ action.Env) (action.Result, error) {
	if strings.Contains(string(args), "true") {
		panic("boom")
	}
	return action.Result{Text: "quiet", Done: true}, nil
}

func TestCaseSHo3(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		mock.Tool("call_1", "bomb", fmt.Sprintf(`{"go":%v}`, userText(r) == "task 9")).Send(r, w)
	}})
	dir := newRunDir(t)
	s := newShell(t)
	s.app.tools = []action.Tool{bomb{}}
	s.do(codePartial, "run", taskFile(t, 50, `,"tools":["bomb"]`), "--endpoint", server.URL(), "-o", dir, "--json", "-q")
	d := s.document()
	if d.Dataset.Good != 49 || d.Dataset.Failures["action_panic"] != 1 || d.Dataset.Failed != 1 {
		t.Errorf("%d good, failures %v; want 49 and one action_panic", d.Dataset.Good, d.Dataset.Failures)
	}
}

func TestCaseSHo4(t *testing.T) {
	before := runtime.NumGoroutine()
	started := make(chan struct{})
	var once sync.Once
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		once.Do(func() { close(started) })
		w.Hang()
	}})
	s := newShell(t)
	var stopped time.Time
	go func() {
		<-started
		stopped = time.Now()
		s.signals <- os.Interrupt
	}()
	s.do(codeInt, "run", taskFile(t, 10_000, ""), "--endpoint", server.URL(), "--drain-timeout", "0s", "-o", newRunDir(t), "-q")
	if took := time.Since(stopped); took > time.Second && !tooBusy(t) {
		t.Errorf("returned %v after the signal, want 1s at most", took)
	}
	for range 1500 { // the mock's own connections need a moment
		if runtime.NumGoroutine() <= before+5 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
}

func TestCaseRDo3(t *testing.T) {
	server := answering(t, 0)
	dir := newRunDir(t)
	tasks := taskFile(t, 4, "")
	newShell(t).do(codeOK, "run", tasks, "--endpoint", server.URL(), "--temperature", "0.5", "-o", dir, "-q")
	before := len(server.Chats())
	for _, args := range [][]string{
		{"run", tasks, "--endpoint", server.URL(), "--temperature", "0.9", "-o", dir},
		{"resume", dir, "--temperature", "0.9"},
	} {
		s := newShell(t)
		s.do(codeRefused, args...)
		if want := "temperature: was 0.5, now 0.9"; !strings.Contains(s.err.String(), want) {
			t.Errorf("%s: the message lacks %q:\n%s", args[0], want, s.err.String())
		}
	}
	if n := len(server.Chats()); n != before {
		t.Errorf("%d requests were sent all the same", n-before)
	}
	newShell(t).do(codeOK, "resume", dir, "--concurrency", "3", "-q") // operational: taken
}

func TestChangedTasksAreRefused(t *testing.T) {
	server := answering(t, 0)
	dir := newRunDir(t)
	tasks := taskFile(t, 4, "")
	newShell(t).do(codeOK, "run", tasks, "--endpoint", server.URL(), "-o", dir, "-q")
	if err := os.WriteFile(tasks, []byte(`{"id":"t0","prompt":"another"}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	s.do(codeRefused, "resume", dir)
	if !strings.Contains(s.err.String(), "tasks (content): was ") {
		t.Errorf("the message does not name the tasks:\n%s", s.err.String())
	}
	if said := s.err.String(); !strings.Contains(said, "put the tasks back") || strings.Contains(said, "go on unchanged") {
		t.Errorf("it advises what was just typed:\n%s", said)
	}
}

func TestCaseRDo4(t *testing.T) {
	server := answering(t, 0)
	tasks := write(t, "tasks.jsonl", `{"id":"a","prompt":"one"}`+"\n"+`{"id":"b","prompt":"two"}`+"\n"+`{"id":"a","prompt":"three"}`+"\n")
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codeTasks, "run", tasks, "--endpoint", server.URL(), "-o", dir)
	if !strings.Contains(s.err.String(), tasks+":3") {
		t.Errorf("the message does not name file and line:\n%s", s.err.String())
	}
	if n := len(server.Requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a run directory was made: %v", err)
	}
}

func TestCaseRDo5(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		once.Do(func() { close(started) })
		<-release
		mock.Text("fine").Send(r, w)
	}})
	tasks, dir := taskFile(t, 3, ""), newRunDir(t)
	args := []string{"run", tasks, "--endpoint", server.URL(), "-o", dir, "-q", "--probe", "quick"}
	first, second := newShell(t), newShell(t)
	done := make(chan code)
	go func() { done <- first.app.main(context.Background(), args) }()
	<-started
	second.do(codeRefused, args...)
	if !strings.Contains(second.err.String(), "in use by another process") || !strings.Contains(second.err.String(), dir) {
		t.Errorf("the message does not say why, or where:\n%s", second.err.String())
	}
	close(release)
	if got := <-done; got != codeOK || len(rowsIn(t, dir)) != 3 {
		t.Errorf("the first one: exit status %d, %d rows; want 0 and 3", got, len(rowsIn(t, dir)))
	}
}

// failing is a grader that fails on some answers.
type failing struct{}

func (failing) ID() string { return "failing/1" }
func (failing) Grade(_ context.Context, in reward.Input) (reward.Finding, error) {
	if strings.HasSuffix(in.Messages[0].Text(), "3") {
		return reward.Finding{}, errors.New("the verifier broke")
	}
	return reward.Finding{Score: 0.5}, nil
}

func TestCaseRWo2(t *testing.T) {
	server := answering(t, 0)
	dir := newRunDir(t)
	s := newShell(t)
	s.app.graders = []reward.Kind{reward.Fixed(failing{})}
	s.do(codeOK, "run", taskFile(t, 10, ""), "--endpoint", server.URL(), "--reward", "failing", "-o", dir, "--json", "-q")
	row := rowsIn(t, dir)["t3/0"]
	if row.Reward != nil || !strings.Contains(or(row.Rewards[0].Outcome, ""), "verifier_error") {
		t.Errorf("reward %v, outcome %s; want null and verifier_error", row.Reward, or(row.Rewards[0].Outcome, ""))
	}
	r := s.document().Dataset.Reward
	if r.N != 9 || r.Rows != 10 || r.Coverage != 0.9 || *r.Mean != 0.5 {
		t.Errorf("reward %+v; want mean 0.5 of 9, coverage 0.9", r)
	}
}

// 16 episodes: 1 finished by an earlier run, 3 fail, 2 are cut by ctrl-c, 10 are good.
func TestCaseOBo1(t *testing.T) {
	var early atomic.Bool
	early.Store(true)
	var good, bad atomic.Int64
	all := make(chan struct{})
	var once sync.Once
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		var n int
		fmt.Sscanf(userText(r), "task %d", &n)
		switch {
		case early.Load() && n > 0, n == 14, n == 15:
			w.Hang()
		case n >= 1 && n <= 3:
			w.JSON(400, `{"error":{"message":"no"}}`)
			bad.Add(1)
		default:
			mock.Text("two words").Send(r, w)
			good.Add(1)
		}
		if !early.Load() && good.Load() == 11 && bad.Load() == 3 {
			once.Do(func() { close(all) })
		}
	}})
	tasks, dir := taskFile(t, 16, ""), newRunDir(t)
	first := newShell(t)
	go func() {
		awaitRows(dir, 1)
		first.signals <- os.Interrupt
	}()
	first.do(codeInt, "run", tasks, "--endpoint", server.URL(), "--no-logprobs", "--no-token-ids", "--drain-timeout", "0s", "-o", dir, "-q")
	early.Store(false)
	second := newShell(t)
	go func() {
		<-all
		awaitRows(dir, 1+10+3)
		second.signals <- os.Interrupt
	}()
	second.do(codeInt, "resume", dir, "--drain-timeout", "0s", "--progress", "none")
	out := second.out.String()
	if want := "10 done + 3 failed + 2 cancelled + 1 skipped (finished before) = 16"; !strings.Contains(out, want) {
		t.Errorf("the summary lacks %q:\n%s", want, out)
	}
	if want := "from the 10 good rows of this time only"; !strings.Contains(out, want) {
		t.Errorf("the summary does not say what tokens/s is of:\n%s", out)
	}
	if !strings.Contains(out, "tranche resume "+dir) || !strings.Contains(second.err.String(), "ctrl-c again stops at once") {
		t.Errorf("it does not say how to go on:\n%s%s", out, second.err.String())
	}
	var saved struct {
		Run struct{ Session sessionReport }
	}
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil || json.Unmarshal(text, &saved) != nil {
		t.Fatalf("summary.json: %v\n%s", err, text)
	}
	if v := saved.Run.Session; v.Done != 10 || v.Failed != 3 || v.Cancelled != 2 || v.Skipped != 1 || v.Sum != 16 {
		t.Errorf("summary.json: %+v", v)
	}
}

// awaitRows waits until so many rows of a run are durable, for a minute at most.
func awaitRows(dir string, n int) {
	for range 6000 {
		rows := 0
		if run, err := storage.OpenRun(dir); err == nil {
			for _, err := range run.Rows() {
				if err == nil {
					rows++
				}
			}
		}
		if rows >= n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestCaseOBo2(t *testing.T) {
	usage := true
	var mu sync.Mutex
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		mu.Lock()
		defer mu.Unlock()
		w.Stream()
		for range 100 {
			w.Event(`{"choices":[{"index":0,"delta":{"content":"five tokens in one chunk "}}]}`)
		}
		w.Event(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
		if usage {
			w.Event(`{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":500,"total_tokens":511}}`)
		}
		w.Done()
	}})
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 2, ""), "--endpoint", server.URL(), "--stream", "--no-logprobs", "--no-token-ids", "-o", newRunDir(t), "--json", "-q")
	if tokens := s.document().Dataset.Tokens; tokens.Out != 1000 || tokens.In != 22 {
		t.Errorf("tokens %+v; want the servers' 1000 out", tokens)
	}
	mu.Lock()
	usage = false
	mu.Unlock()
	s = newShell(t)
	s.do(codeOK, "run", taskFile(t, 2, ""), "--endpoint", server.URL(), "--stream", "--no-logprobs", "--no-token-ids", "-o", newRunDir(t), "-q")
	if !strings.Contains(s.out.String(), "in unknown, out unknown") || !strings.Contains(s.out.String(), "do not report usage") {
		t.Errorf("the summary does not say that the counts are unknown:\n%s", s.out.String())
	}
}

func TestCaseUNo1(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) {
		w.JSON(200, `{"choices":[{"index":0,"message":{"role":"assistant","content":"half \ud83d of it"},"finish_reason":"stop","token_ids":[5,6,7]}],"prompt_token_ids":[1,2],"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5}}`)
	}})
	dir := newRunDir(t)
	newShell(t).do(codeOK, "run", taskFile(t, 1, ""), "--endpoint", server.URL(), "--no-logprobs", "-o", dir, "-q")
	row := rowsIn(t, dir)["t0/0"]
	if got := or(row.Messages[1].Content, ""); got != "half \uFFFD of it" {
		t.Errorf("stored %q", got)
	}
	if strings.Join(row.Flags, ",") != "text_repaired" || fmt.Sprint(row.TokenIDs) != "[1 2 5 6 7]" {
		t.Errorf("flags %v, ids %v", row.Flags, row.TokenIDs)
	}
}

// The emoji's four bytes come in two writes, 1 + 3, within one event.
func TestCaseUNo2(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) {
		w.Stream()
		w.Write("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\xf0")
		w.Delay(50 * time.Millisecond)
		w.Write("\x9f\x98\x80b\"}}]}\n\n")
		w.Event(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
		w.Done()
	}})
	dir := newRunDir(t)
	newShell(t).do(codeOK, "run", taskFile(t, 1, ""), "--endpoint", server.URL(), "--stream", "--no-logprobs", "--no-token-ids", "-o", dir, "-q")
	if got := or(rowsIn(t, dir)["t0/0"].Messages[1].Content, ""); got != "a😀b" {
		t.Errorf("stored %q", got)
	}
}

// The exit status says which signal it was.
func TestSigtermIsCtrlCWithItsOwnStatus(t *testing.T) {
	started := make(chan struct{})
	var once sync.Once
	server := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) {
		once.Do(func() { close(started) })
		w.Hang()
	}})
	s := newShell(t)
	go func() {
		<-started
		s.signals <- syscall.SIGTERM
	}()
	s.do(codeTerm, "run", taskFile(t, 3, ""), "--endpoint", server.URL(), "--drain-timeout", "0s", "-o", newRunDir(t))
}

func TestSecondSignalExitsAtOnce(t *testing.T) {
	started := make(chan struct{})
	var once sync.Once
	server := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) {
		once.Do(func() { close(started) })
		w.Hang()
	}})
	s := newShell(t)
	exited := make(chan int, 1)
	s.app.exit = func(c int) { exited <- c }
	go s.app.main(context.Background(), []string{"run", taskFile(t, 3, ""), "--endpoint", server.URL(), "--drain-timeout", "2s", "-o", newRunDir(t), "-q", "--probe", "quick"})
	<-started
	s.signals <- os.Interrupt
	s.signals <- os.Interrupt
	select {
	case c := <-exited:
		if c != 130 {
			t.Errorf("exit status %d, want 130", c)
		}
	case <-time.After(time.Minute):
		t.Error("a second ctrl-c did not end the process")
	}
}

func TestNoEndpointAnswers(t *testing.T) {
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codeEndpoint, "run", taskFile(t, 1, ""), "--endpoint", "http://127.0.0.1:1/v1", "-o", dir)
	if !strings.Contains(s.err.String(), "127.0.0.1:1") {
		t.Errorf("the message does not name the endpoint:\n%s", s.err.String())
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a run directory was made: %v", err)
	}
}

// One of two endpoints is down at the start: the run goes on with the other, and says so.
func TestDeadEndpointIsLeftOut(t *testing.T) {
	server := answering(t, 0)
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 5, ""), "--endpoint", "http://127.0.0.1:1/v1", "--endpoint", server.URL(), "-o", newRunDir(t))
	if !strings.Contains(s.err.String(), "left out for this run") {
		t.Errorf("it does not say so:\n%s", s.err.String())
	}
}

// An endpoint that goes and comes back says so, once each, with the reason and what comes next.
func TestLostEndpointIsTold(t *testing.T) {
	var calls atomic.Int64
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if calls.Add(1) <= 8 {
			w.JSON(503, `{"error":{"message":"the engine is loading\u009b2J"}}`)
			return
		}
		mock.Text("fine").Send(r, w)
	}})
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 8, ""), "--endpoint", server.URL(), "--max-attempts", "20", "-o", newRunDir(t), "--progress", "none")
	said := s.err.String()
	for _, want := range []string{
		"is taken for down: unavailable: ", "the engine is loading", "; it is tried again in ", "; with no endpoint left the run ends after 2m0s and can be resumed\n", "answers again\n",
	} {
		if n := strings.Count(said, want); n != 1 {
			t.Errorf("%q was said %d times:\n%s", want, n, said)
		}
	}
	checkTerminal(t, said+"gotcha", false)
}

func TestGivesUpWhenNearlyEverythingFails(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) { w.JSON(400, `{"error":{"message":"no"}}`) }})
	s := newShell(t)
	s.do(codeGaveUp, "run", taskFile(t, 5000, ""), "--endpoint", server.URL(), "--no-logprobs", "--no-token-ids", "-o", newRunDir(t), "--json", "-q")
	if n := s.document().Dataset.Rows; n < 100 || n > 1000 {
		t.Errorf("%d episodes were played before it gave up, want little more than 100", n)
	}
}

// The key goes to the server and nowhere else.
func TestAPIKeyIsSentAndNotStored(t *testing.T) {
	t.Setenv("TRANCHE_TEST_KEY", "sk-verysecret")
	server := answering(t, 0)
	dir := newRunDir(t)
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 2, ""), "--endpoint", server.URL(), "--api-key-env", "TRANCHE_TEST_KEY", "-o", dir)
	for _, r := range server.Chats() {
		if got := r.Header.Get("Authorization"); got != "Bearer sk-verysecret" {
			t.Errorf("Authorization: %q", got)
		}
	}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "verysecret") {
			t.Errorf("%s holds the key", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(s.out.String()+s.err.String(), "verysecret") {
		t.Error("the key was printed")
	}
}

// Same settings, tasks and seed give the same keys, wherever they go.
func TestKeysComeFromContent(t *testing.T) {
	tasks := taskFile(t, 5, "")
	ids := func(server *mock.Server, more ...string) string {
		dir := newRunDir(t)
		newShell(t).do(codeOK, append([]string{"run", tasks, "--endpoint", server.URL(), "-n", "2", "-o", dir, "-q"}, more...)...)
		var list []string
		for _, key := range []string{"t0/0", "t0/1", "t4/1"} {
			list = append(list, rowsIn(t, dir)[key].EpisodeID)
		}
		return strings.Join(list, " ")
	}
	was := ids(answering(t, 0))
	if got := ids(answering(t, 0), "--concurrency", "2"); got != was {
		t.Errorf("another server and concurrency gave other keys: %s, then %s", was, got)
	}
	if got := ids(answering(t, 0), "--seed", "1"); got == was {
		t.Error("another seed gave the same keys")
	}
}

// TL-o1 of the whole program: a null logprob is null in the dataset, and the row says so.
func TestCaseTLo1(t *testing.T) {
	a := mock.Text("abcde")
	a.PromptIDs, a.TokenIDs = []int32{1, 2}, []int32{11, 12, 13, 14, 15}
	a.Logprobs = json.RawMessage(`{"content":[{"token":"a","logprob":-0.5},{"token":"b","logprob":-1},{"token":"c","logprob":null},{"token":"d","logprob":0},{"token":"e","logprob":-2}]}`)
	server, dir := mock.New(t, mock.Config{Chat: a.Send}), newRunDir(t)
	newShell(t).do(codeOK, "run", taskFile(t, 1, ""), "--endpoint", server.URL(), "-o", dir, "-q")
	row := rowsIn(t, dir)["t0/0"]
	want := []*float32{nil, nil, episode.Ptr[float32](-0.5), episode.Ptr[float32](-1), nil, episode.Ptr[float32](0), episode.Ptr[float32](-2)} // prompt ids have none
	same := func(a, b *float32) bool { return a == b || a != nil && b != nil && *a == *b }
	if !slices.Equal(row.TokenIDs, []int32{1, 2, 11, 12, 13, 14, 15}) || !slices.EqualFunc(row.Logprobs, want, same) {
		t.Errorf("ids %v, logprobs %v", row.TokenIDs, row.Logprobs)
	}
	if !slices.Contains(row.Flags, episode.FlagLogprobNull) {
		t.Errorf("flags %v", row.Flags)
	}
}
