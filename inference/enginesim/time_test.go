package enginesim

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// serveHere answers one request without a network.
func serveHere(e *Engine, ctx context.Context, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/completions", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	e.Handler().ServeHTTP(w, req)
	return w
}

// In scaled time an answer takes exactly its steps, divided by the speed.
func TestSpeedScalesTime(t *testing.T) {
	for name, c := range map[string]struct{ speed, divisor float64 }{
		"real time": {1, 1}, "ten times faster": {10, 10}, "half": {0.5, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, err := New(Config{Speed: c.speed})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute) // idle time costs nothing
				began := time.Now()
				if w := serveHere(e, t.Context(), `{"prompt": "Hello there", "max_tokens": 100, "ignore_eos": true}`); w.Code != 200 {
					t.Fatalf("status %d: %s", w.Code, w.Body)
				}
				took, busy := time.Since(began), e.Stats().Busy
				if want := time.Duration(float64(busy) / c.divisor); took < want-time.Microsecond || took > want+time.Microsecond {
					t.Errorf("took %v, want %v", took, want)
				}
				if floor := 100 * 6800 * time.Microsecond; busy < floor || busy > floor+5*time.Millisecond {
					t.Errorf("100 steps took %v of model time, want 100 floors of 6.8 ms and a little for the context", busy)
				}
			})
		})
	}
}

func TestNoSpeedWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w := serveHere(e, t.Context(), `{"prompt": "Hello there", "max_tokens": 500, "ignore_eos": true}`)
		if took := time.Since(began); w.Code != 200 || took != 0 {
			t.Errorf("status %d after %v of time", w.Code, took)
		}
		if s := e.Stats(); s.Busy < 500*6*time.Millisecond || s.GeneratedTokens != 500 {
			t.Errorf("model time still counts: %+v", s)
		}
	})
}

// Streams come token by token: the first after the prefill, each next one a step later.
func TestStreamPacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Config{Speed: 1})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w := &stampedWriter{ResponseRecorder: httptest.NewRecorder()}
		req := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"prompt": "Tell me", "max_tokens": 20, "ignore_eos": true, "stream": true, "return_token_ids": true}`))
		req.Header.Set("Content-Type", "application/json")
		e.Handler().ServeHTTP(w, req)
		if len(w.stamps) != 21 { // 20 tokens and the end marker
			t.Fatalf("%d events", len(w.stamps))
		}
		for i, at := range w.stamps[:20] {
			step := at.Sub(began) / time.Duration(i+1)
			if step < 6800*time.Microsecond || step > 7*time.Millisecond {
				t.Errorf("token %d came after %v", i, at.Sub(began))
			}
		}
	})
}

type stampedWriter struct {
	*httptest.ResponseRecorder
	stamps []time.Time
}

func (s *stampedWriter) Write(b []byte) (int, error) {
	s.stamps = append(s.stamps, time.Now())
	return s.ResponseRecorder.Write(b)
}

// Many at once share steps: a batch takes about as long as its longest member, and the rest wait their turn.
func TestBatchSharesSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Config{Speed: 1, MaxSeqs: 8})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		done := make(chan int)
		for range 16 {
			go func() {
				done <- serveHere(e, t.Context(), `{"prompt": "Hello there", "max_tokens": 50, "ignore_eos": true}`).Code
			}()
		}
		synctest.Wait()
		if s := e.Stats(); s.Running+s.Waiting != 16 || s.Running > 8 {
			t.Errorf("running %d, waiting %d", s.Running, s.Waiting)
		}
		for range 16 {
			if code := <-done; code != 200 {
				t.Errorf("status %d", code)
			}
		}
		one := 50 * 6800 * time.Microsecond
		if took := time.Since(began); took < 2*one || took > 3*one {
			t.Errorf("16 answers on 8 places took %v, want a little over twice %v", took, one)
		}
	})
}

// A hang costs a test no real time, and ends with its client.
func TestHangEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Config{Faults: Faults{Rules: []FaultRule{{Fault: FaultHang, Rate: 1}}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		serveHere(e, ctx, `{"prompt": "a"}`)
		if took := time.Since(began); took != time.Hour {
			t.Errorf("hung for %v", took)
		}
	})
}

func TestListPromptsAnswerTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Config{Speed: 1, MaxSeqs: 1})
		if err != nil {
			t.Fatal(err)
		}
		w := serveHere(e, t.Context(), `{"prompt": ["Hello", "there", "now"], "n": 2, "max_tokens": 10, "ignore_eos": true}`)
		var r completionReply
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || len(r.Choices) != 6 {
			t.Fatalf("%v: %s", err, w.Body)
		}
		if s := e.Stats(); s.Done != 6 || s.Steps != 60 {
			t.Errorf("stats %+v, want six sequences one after the other in 60 steps", s)
		}
	})
}
