package main

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"syscall"
	"testing"

	"tranche/action"
	"tranche/internal/mock"
)

// notebook is a tool that keeps a session for each episode; opened and ended count them.
type notebook struct {
	mu      sync.Mutex
	open    map[string]bool
	ended   int
	begun   chan struct{} // told when a run begins; never blocks
	stubble chan struct{} // runs of episodes whose task says so wait for it, deaf to their context
}

func (*notebook) Name() string { return "notebook" }

func (*notebook) Definition() json.RawMessage {
	return json.RawMessage(`{"type":"function","function":{"name":"notebook","parameters":{"type":"object"}}}`)
}

func (n *notebook) Run(ctx context.Context, _ json.RawMessage, env action.Env) (action.Result, error) {
	n.mu.Lock()
	n.open[env.Episode] = true
	n.mu.Unlock()
	select {
	case n.begun <- struct{}{}:
	default:
	}
	if env.Task.ID == "t1" {
		<-n.stubble
	}
	return action.Result{Text: "noted"}, nil
}

func (n *notebook) End(_ context.Context, episode string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended++
	delete(n.open, episode)
	return nil
}

// callsNotebook is a server that has the tool called in every turn but the third.
func callsNotebook(t *testing.T) *mock.Server {
	return mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if strings.Count(string(r.Field("messages")), `"tool"`) >= 2 {
			mock.Text("#### 7").Send(r, w)
			return
		}
		mock.Tool("c1", "notebook", `{}`).Send(r, w)
	}})
}

// Sessions are let go of however their episodes ended; runs that are deaf to their deadline are named by their tool.
func TestSessionsEndWithTheirEpisodes(t *testing.T) {
	n := &notebook{open: map[string]bool{}, stubble: make(chan struct{})}
	s := newShell(t)
	s.app.tools = []action.Tool{n}
	dir := newRunDir(t)
	s.do(codeOK, "run", taskFile(t, 5, ""), "--endpoint", callsNotebook(t).URL(), "--tools", "notebook", "--action-timeout", "500ms", "-o", dir, "-q", "--reward", "none")
	close(n.stubble)
	if n.ended != 5 || len(n.open) != 0 {
		t.Errorf("%d episodes were ended, %d sessions are open; want 5, none", n.ended, len(n.open))
	}
	if want := "tool notebook: 2 runs did not stop when told to and were abandoned; 2 of them had not ended by then"; !strings.Contains(s.out.String(), want) {
		t.Errorf("the summary lacks %q:\n%s", want, s.out.String())
	}
}

func TestSessionsEndWhenTheRunIsStopped(t *testing.T) {
	n := &notebook{open: map[string]bool{}, stubble: make(chan struct{}), begun: make(chan struct{}, 1)}
	s := newShell(t)
	s.app.tools = []action.Tool{n}
	go func() { <-n.begun; s.signals <- syscall.SIGINT }()
	s.do(codeInt, "run", taskFile(t, 2, ""), "--endpoint", callsNotebook(t).URL(), "--tools", "notebook", "--drain-timeout", "50ms", "--concurrency", "1", "-n", "40", "-o", newRunDir(t), "-q", "--reward", "none")
	close(n.stubble)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended == 0 || len(n.open) != 0 {
		t.Errorf("%d episodes were ended, sessions %v are open; want some, none", n.ended, n.open)
	}
}
