package enginesim

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A killed engine's server says so to those in flight and to those that come, then its port is closed; a crashed one says nothing.
func TestAnEngineDies(t *testing.T) {
	for fault, says := range map[string]bool{FaultKill: true, FaultCrash: false} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			e, err := New(Config{Speed: 1, Faults: Faults{Linger: 2 * time.Second, Rules: []FaultRule{{Fault: fault, Rate: 1, Match: "poison"}}}})
			if err != nil {
				t.Fatal(err)
			}
			s, err := e.Listen("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			c := client{t, "http://" + s.Addr(), &http.Client{Transport: &http.Transport{}}}
			told := func(who string, status int, body []byte, err error) {
				t.Helper()
				if dead := err == nil && strings.Contains(string(body), "EngineCore encountered an issue") && (status == 500 || who == "streamed"); dead != says {
					t.Errorf("%s: status %d, %v: %s", who, status, err, body)
				}
			}
			var flying sync.WaitGroup
			for who, body := range map[string]string{
				"whole":    `{"prompt": "a", "max_tokens": 5000, "ignore_eos": true}`,
				"streamed": `{"prompt": "b", "max_tokens": 5000, "ignore_eos": true, "stream": true}`,
			} {
				flying.Go(func() {
					status, _, b, err := c.try("/v1/completions", body)
					told(who, status, b, err)
				})
			}
			await(t, func() bool { return e.Stats().Running == 2 })
			status, _, b, err := c.try("/v1/completions", `{"prompt": "poison"}`)
			told("poison", status, b, err)
			flying.Wait()
			if says {
				status, _, b, err := c.try("/v1/completions", `{"prompt": "c"}`)
				told("late", status, b, err)
				if r, err := c.http.Get(c.base + "/health"); err != nil || r.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("health of the dead: %v, %v", r, err)
				}
			}
			<-s.Died()
			if conn, err := net.Dial("tcp", s.Addr()); err == nil {
				conn.Close()
				t.Error("the port of the dead takes connections")
			}
			await(t, func() bool { st := e.Stats(); return st.Running == 0 && st.Waiting == 0 })
		})
	}
}
