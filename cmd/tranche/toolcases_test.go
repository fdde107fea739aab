package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"tranche/episode"
	"tranche/internal/mock"
)

// SP-o1 of the whole program: broken arguments are answered under the same call id, go back as valid JSON, and are stored as they came.
func TestCaseSPo1(t *testing.T) {
	var mu sync.Mutex
	var second string
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if messages := string(r.Field("messages")); strings.Contains(messages, `"role":"tool"`) {
			mu.Lock()
			second = messages
			mu.Unlock()
			mock.Text("#### 7").Send(r, w)
			return
		}
		mock.Tool("c1", "calculator", `{"n": 7`).Send(r, w)
	}})
	dir := newRunDir(t)
	newShell(t).do(codeOK, "run", taskFile(t, 1, ""), "--tools", "calculator", "--endpoint", server.URL(), "--reward", "none", "-o", dir, "-q")
	var sent []episode.Message
	if err := json.Unmarshal([]byte(second), &sent); err != nil {
		t.Fatal(err)
	}
	said, told := sent[len(sent)-2], sent[len(sent)-1]
	if said.ToolCalls[0].Function.Arguments != "{}" || *told.ToolCallID != "c1" || !strings.Contains(told.Text(), "not valid JSON: the text ends too early, after 7 bytes") {
		t.Errorf("sent back %+v and %q under %s", said.ToolCalls, told.Text(), *told.ToolCallID)
	}
	row := rowsIn(t, dir)["t0/0"]
	if stored := row.Messages[1].ToolCalls[0].Function.Arguments; stored != `{"n": 7` || *row.Actions[0].Status != episode.ActionBadArgs {
		t.Errorf("stored %q, %s", stored, *row.Actions[0].Status)
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

// TL-o2 of the whole program: a prompt that does not go on from the turn before is recorded where it breaks.
func TestCaseTLo2(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		prompt := make([]int32, 40)
		if strings.Contains(string(r.Field("messages")), `"role":"tool"`) {
			a := mock.Text("#### 7")
			a.Prompt, a.PromptIDs, a.TokenIDs = 43, append(prompt, 7, 99, 100), []int32{5, 6}
			a.Send(r, w)
			return
		}
		a := mock.Tool("c1", "calculator", `{"expression":"1"}`)
		a.Prompt, a.PromptIDs, a.TokenIDs = 40, prompt, []int32{7, 8, 9}
		a.Send(r, w)
	}})
	dir := newRunDir(t)
	newShell(t).do(codeOK, "run", taskFile(t, 1, ""), "--tools", "calculator", "--endpoint", server.URL(), "--exchange", "chat", "--no-logprobs", "--reward", "none", "-o", dir, "-q")
	row := rowsIn(t, dir)["t0/0"]
	if row.PrefixBreak == nil || *row.PrefixBreak != 41 {
		t.Fatalf("prefix break %v, want 41", row.PrefixBreak)
	}
	if want := append(make([]int32, 40), 7, 99, 100, 5, 6); !slices.Equal(row.TokenIDs, want) {
		t.Errorf("ids %v, want %v", row.TokenIDs, want)
	}
	if want := append(make([]int8, 40), 1, 0, 0, 1, 1); !slices.Equal(row.LossMask, want) {
		t.Errorf("loss mask %v, want %v", row.LossMask, want)
	}
}

// TL-o3 of the whole program: logprobs that were asked for and did not come are counted and not made up.
func TestCaseTLo3(t *testing.T) {
	a := mock.Text("abc")
	a.PromptIDs, a.TokenIDs = []int32{1, 2}, []int32{11, 12, 13}
	server, dir := mock.New(t, mock.Config{Chat: a.Send}), newRunDir(t)
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 3, ""), "--endpoint", server.URL(), "-o", dir, "--reward", "none", "-q", "--json")
	if d := s.document(); d.Dataset.Flags[episode.FlagLogprobsMissing] != 3 {
		t.Errorf("flags %v", d.Dataset.Flags)
	}
	for key, row := range rowsIn(t, dir) {
		if slices.ContainsFunc(row.Logprobs, func(p *float32) bool { return p != nil }) || len(row.TokenIDs) != 5 {
			t.Errorf("%s: ids %v, logprobs %v", key, row.TokenIDs, fmt.Sprint(row.Logprobs))
		}
	}
}
