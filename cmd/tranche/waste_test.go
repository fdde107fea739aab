package main

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"tranche/internal/mock"
)

// What failed attempts cost is in the summary: their time, and the tokens the server told before they failed.
func TestFailedAttemptsAreCounted(t *testing.T) {
	var asked atomic.Int64
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if asked.Add(1) > 2 {
			mock.Text("fine").Send(r, w)
			return
		}
		w.Stream()
		w.Event(`{"choices":[{"index":0,"delta":{"role":"assistant","content":"half"}}],"usage":{"prompt_tokens":9,"completion_tokens":20}}`)
		w.Delay(50 * time.Millisecond)
	}})
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 1, ""), "--endpoint", server.URL(), "--stream", "--json", "-o", newRunDir(t), "-q")
	e := s.document().Run.Session.Endpoints[0]
	if e.Calls != 1 || e.Failed != 2 || e.Wasted != 40 || e.Lost < 0.1 {
		t.Errorf("%+v, want 2 failed attempts of 40 tokens and over 100 ms", e)
	}
	if got, want := e.failures(), fmt.Sprintf("2 (%s, about 40 tokens)", seconds(e.Lost)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
