package interop

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/episode"
	"tranche/storage"
)

// handMade returns episodes whose columns hold every kind of nothing in known numbers. With calls, every row has tool calls;
// without, none has (cases PQ-o1, PQ-o2, PQ-o3).
func handMade(part string, calls bool, n int) []*episode.Episode {
	eps := make([]*episode.Episode, n)
	for i := range eps {
		task := &episode.Task{ID: fmt.Sprintf("%s-%d", part, i), Messages: []episode.Message{
			{Role: episode.RoleSystem, Content: episode.Ptr("")},
			{Role: episode.RoleUser, Content: episode.Ptr("q"), ToolCalls: []episode.ToolCall{}},
		}}
		e := episode.New("run", episode.Draw{Task: task, Samples: 1}, 0, episode.Sampling{TokenIDs: true}, episode.Budget{}, time.Now())
		reply := episode.Reply{
			Message:   episode.Message{Role: episode.RoleAssistant, ReasoningContent: episode.Ptr("r")}, // content null
			Finish:    episode.FinishStop,
			PromptIDs: []int32{7, 8}, SampledIDs: []int32{1, 2, 3},
			Logprobs: []episode.Logprob{{Value: -1, Known: true}, {}, {Value: 0, Known: true}},
		}
		if calls {
			reply.Message.ToolCalls = []episode.ToolCall{{ID: "c", Type: "function",
				Function: episode.Function{Name: "f", Arguments: []string{`{"a":1}`, `{"b":{"c":[2]}}`}[i%2]}}}
		}
		e.AddReply(&reply, episode.Turn{PromptTokens: episode.Ptr(int32(2)), CompletionTokens: episode.Ptr(int32(3)), Finish: "stop"})
		e.Close(episode.StatusCompleted, episode.StopStop)
		e.Verdict = []episode.Verdict{
			{},                        // not scored
			{Total: episode.Ptr(0.0)}, // scored, and zero
			{Total: episode.Ptr(1.0)},
		}[i%3]
		eps[i] = e
	}
	return eps
}

// TestReadersTellNullFromNothing writes two parts through storage, the first without a tool call in any row, the second with
// them in all, and lets every reader count what is null, what is zero and what is empty.
func TestReadersTellNullFromNothing(t *testing.T) {
	python(t)
	dir := filepath.Join(t.TempDir(), "run")
	w, err := storage.Open(storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, eps := range [][]*episode.Episode{handMade("plain", false, 30), handMade("calls", true, 60)} {
		for _, e := range eps {
			if err := w.Write(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil { // a part of its own
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f := runPython(t, "read_dataset.py", dir)
	f.want(t, map[string]float64{
		"parts": 2, "rows": 90, "groups": 90, "failed": 0,
		"reward_null": 30, "reward_zero": 30, "reward_n": 60,
		"messages": 270, "content_null": 90, "content_empty": 90, "reasoning_null": 180,
		"calls_null": 90 + 30, "calls_empty": 90, "tool_calls": 60,
		"token_ids": 450, "logprobs": 450, "logprobs_null": 270, "logprobs_zero": 90, "sampled": 270,
	})
	for _, arguments := range []string{`{"a":1}`, `{"b":{"c":[2]}}`} {
		if n := f["arguments"].(map[string]any)[arguments]; n != 30.0 {
			t.Errorf("tool arguments %s: expected 30 times as they were written, got %v", arguments, n)
		}
	}
}

// nullTasks are tasks whose rows hold every kind of nothing: answers that are there (reward 0 or 1) and answers that are not
// (reward null), a message with content null, one with "", tools and no tools.
func nullTasks(answered, unanswered int) string {
	var b strings.Builder
	for i := range answered {
		fmt.Fprintf(&b, `{"id":"sum-%d","prompt":"What is %d + %d?","answer":"%d","tools":["calculator"]}`+"\n", i, 17*i+1, 5*i+2, 22*i+3)
	}
	for i := range unanswered {
		fmt.Fprintf(&b, `{"id":"open-%d","messages":[{"role":"system","content":""},{"role":"user","content":"What is 1 + %d?"},`+
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"calculator","arguments":"{\"expression\":\"1+%d\"}"}}]},`+
			`{"role":"tool","tool_call_id":"c%d","name":"calculator","content":"%d"}]}`+"\n", i, i, i, i, i, i+1)
	}
	return b.String()
}

// TestReadersOpenARun writes a run of several parts through the binary and opens it with the readers of others.
func TestReadersOpenARun(t *testing.T) {
	const answered, unanswered, samples = 30, 10, 4
	python(t)
	dir := t.TempDir()
	tasks := write(t, filepath.Join(dir, "tasks.jsonl"), nullTasks(answered, unanswered))
	out := filepath.Join(dir, "run")
	succeed(t, time.Minute, "run", tasks, "-o", out, "-n", fmt.Sprint(samples), "--reward", "numeric",
		"--engine-solve-rate", "0.5", "--part-bytes", "64KiB", "--row-group-bytes", "16KiB", "--progress", "none")

	f := runPython(t, "read_dataset.py", out)
	rows := float64((answered + unanswered) * samples)
	f.want(t, map[string]float64{
		"rows": rows, "keys": rows, "failed": 0, "groups": answered + unanswered,
		"reward_null": unanswered * samples, "reward_n": answered * samples,
		"content_empty": unanswered * samples, // the empty system messages
	})
	if f.number(t, "parts") < 2 {
		t.Errorf("expected several parts at a part size of 64 KiB, got %v", f["parts"])
	}
	if zero := f.number(t, "reward_zero"); zero == 0 || zero == answered*samples {
		t.Errorf("expected right and wrong answers at a solve rate of 0.5, got %v zeros of %d", zero, answered*samples)
	}
	if nulls := f.number(t, "content_null"); nulls < unanswered*samples {
		t.Errorf("expected the %d null contents of the prompts at least, got %v", unanswered*samples, nulls)
	}
	if lp, null := f.number(t, "logprobs"), f.number(t, "logprobs_null"); lp == 0 || null != f.number(t, "masked") {
		t.Errorf("expected a null logprob for every token that was not sampled (%v), got %v nulls of %v", f["masked"], null, lp)
	}
	t.Logf("%v checks, %v parts, mean reward %v over %v", f["checks"], f["parts"], f["reward_mean"], f["reward_n"])
}
