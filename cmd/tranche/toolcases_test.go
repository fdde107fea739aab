package main

import (
	"encoding/json"
	"strings"
	"testing"

	"tranche/internal/mock"
)

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
