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
	t.Parallel()
	var hung atomic.Bool
	server := func(hangs bool) *mock.Server {
		return mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
			wait := 50 * time.Millisecond
			if hangs && userText(r) != "task 0" && hung.CompareAndSwap(false, true) {
				wait = 3 * time.Minute
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
	if took := time.Since(began); took > 2*time.Minute {
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

func TestOversamplingSaysWhatItComesTo(t *testing.T) {
	for _, c := range []struct {
		samples    int
		oversample float64
		want       string
	}{
		{1, 1, ""},
		{4, 1.25, ""}, // exactly 5
		{10, 1.1, ""}, // exactly 11, but for rounding
		{1, 1.25, "--oversample 1.25 of 1: samples are whole, so 2 of each task are begun, 2 times as many: 12 episodes to keep 6"},
		{3, 1.1, "--oversample 1.1 of 3: samples are whole, so 4 of each task are begun, 1.33 times as many: 24 episodes to keep 18"},
	} {
		s := defaults()
		s.Samples, s.Oversample, s.Rounds = c.samples, c.oversample, 2
		if got := s.oversampled(3); got != c.want {
			t.Errorf("%d samples times %g: %q, want %q", c.samples, c.oversample, got, c.want)
		}
	}
}
