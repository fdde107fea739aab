package mock

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func post(t *testing.T, c *http.Client, url, id string) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequest("POST", url+"/chat/completions", strings.NewReader(`{"model":"mock","stream":false}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", id)
	resp, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

func TestRecordsRequestsAndConnections(t *testing.T) {
	s := New(t, Config{})
	c := &http.Client{Transport: &http.Transport{}}
	for _, id := range []string{"a", "b"} {
		if _, body, err := post(t, c, s.URL(), id); err != nil || !json.Valid([]byte(body)) {
			t.Fatalf("answer %q, error %v", body, err)
		}
	}
	got := s.Chats()
	if len(got) != 2 || got[0].ID != "a" || got[1].ID != "b" {
		t.Fatalf("requests recorded: %+v", got)
	}
	if !got[0].NewConn || got[1].NewConn || got[0].Conn != got[1].Conn || s.Conns() != 1 {
		t.Fatalf("two requests on one kept connection were recorded as %+v, %+v; %d connections", got[0], got[1], s.Conns())
	}
	if string(got[0].Field("model")) != `"mock"` {
		t.Fatalf("field model = %s", got[0].Field("model"))
	}
}

func TestPeakCountsRequestsInFlight(t *testing.T) {
	const n = 8
	var all sync.WaitGroup
	all.Add(n)
	s := New(t, Config{Chat: func(_ *Request, w *Reply) { all.Done(); all.Wait(); w.JSON(200, "{}") }})
	c := &http.Client{Transport: &http.Transport{}}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { _, _, _ = post(t, c, s.URL(), "x") })
	}
	wg.Wait()
	if s.Peak() != n {
		t.Fatalf("peak %d, want %d", s.Peak(), n)
	}
}

func TestFaultsReachTheClient(t *testing.T) {
	for name, h := range map[string]Handler{
		"reset before headers": func(_ *Request, w *Reply) { w.Reset() },
		"cut in the body":      func(_ *Request, w *Reply) { w.Stream(); w.Write("data: {"); w.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			s := New(t, Config{Chat: h})
			if _, body, err := post(t, &http.Client{Transport: &http.Transport{}}, s.URL(), "x"); err == nil {
				t.Fatalf("no error; body %q", body)
			}
		})
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	s := New(t, Config{Idle: 20 * time.Millisecond})
	c := &http.Client{Transport: &http.Transport{}}
	for range 2 {
		if _, _, err := post(t, c, s.URL(), "x"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if s.Conns() != 2 {
		t.Fatalf("%d connections, want 2: the first was idle for five times the limit", s.Conns())
	}
}

func TestStreamHoldsTheWholeAnswer(t *testing.T) {
	s := New(t, Config{Chat: func(_ *Request, w *Reply) {
		w.Stream()
		for _, d := range Text("two words").Chunks() {
			w.Event(d)
		}
		w.Done()
	}})
	_, body, err := post(t, &http.Client{Transport: &http.Transport{}}, s.URL(), "x")
	if err != nil {
		t.Fatal(err)
	}
	var text string
	for sc := bufio.NewScanner(strings.NewReader(body)); sc.Scan(); {
		var c struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if data, ok := strings.CutPrefix(sc.Text(), "data: {"); ok && json.Unmarshal([]byte("{"+data), &c) == nil && len(c.Choices) == 1 {
			text += c.Choices[0].Delta.Content
		}
	}
	if text != "two words" || !strings.Contains(body, "[DONE]") {
		t.Fatalf("stream %q gave %q", body, text)
	}
}
