package main

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tranche/internal/mock"
)

// One call of many hangs: with hedging it is asked again at the other endpoint and answered there, long before its time is up.
func TestHedgingAnswersWhatHangs(t *testing.T) {
	var hung atomic.Bool
	server := func(hangs bool) *mock.Server {
		return mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
			wait := 50 * time.Millisecond
			if hangs && userText(r) != "task 0" && hung.CompareAndSwap(false, true) {
				wait = time.Minute
			}
			if w.Delay(wait) {
				mock.Text(strings.Repeat("word ", 20)).Send(r, w)
			}
		}})
	}
	s := newShell(t)
	began := time.Now()
	s.do(codeOK, "run", taskFile(t, 60, ""), "--endpoint", server(true).URL(), "--endpoint", server(false).URL(), "--concurrency", "4",
		"--hedge", "0.5", "-o", newRunDir(t), "--json", "-q")
	if took := time.Since(began); took > 40*time.Second {
		t.Errorf("the run took %v: it waited for the call that hung", took)
	}
	var d struct {
		Run struct{ Session struct{ Tail tailReport } }
	}
	if err := json.Unmarshal(s.out.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	if h := d.Run.Session.Tail.Hedge; h == nil || h.Launched < 1 || h.Won < 1 || h.Lost < 1 || !hung.Load() {
		t.Errorf("hedging: %+v, a call hung: %v", h, hung.Load())
	}
}
