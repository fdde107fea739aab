package main

import (
	"strings"
	"testing"
	"time"
)

func TestProgressLine(t *testing.T) {
	cases := []struct {
		name string
		s    snapshot
		rate float64
		want string
	}{
		{"the first instant", snapshot{total: 10}, 0, "0/10 done (0%) · 0 failed · 0 open · 0 tok/s"},
		{"half way", snapshot{total: 100, done: 40, failed: 10, open: 8, tokens: 5000, reward: 30, scored: 40, elapsed: 10 * time.Second,
			endpoints: []endpointLoad{{"a:1", 6}}}, 512.4, "50/100 done (50%) · 10 failed · 8 open · 512 tok/s · reward 0.750 (n=40) · ETA 10s · a:1: 6 in flight"},
		{"resumed", snapshot{total: 100, skipped: 90, done: 5, elapsed: 5 * time.Second}, 0, "95/100 done (95%) · 0 failed · 0 open · 0 tok/s · ETA 5s"},
		{"no usage", snapshot{total: 4, done: 2, unknown: 2}, 0, "2/4 done (50%) · 0 failed · 0 open · tok/s unknown"},
		{"failed ones have ended too", snapshot{total: 6, failed: 2}, 0, "2/6 done (33%) · 2 failed · 0 open · 0 tok/s"},
		{"nothing ends any more", snapshot{total: 100, done: 50, elapsed: 80 * time.Second, still: 70 * time.Second}, 0, "50/100 done (50%) · 0 failed · 0 open · 0 tok/s · none ended for 1m10s"},
		{"slow, as ever", snapshot{total: 10, done: 5, elapsed: 570 * time.Second, still: 70 * time.Second}, 0, "5/10 done (50%) · 0 failed · 0 open · 0 tok/s · ETA 9m30s"},
		{"stopping", snapshot{total: 100, done: 50, open: 3, elapsed: time.Second, stopping: true}, 1, "50/100 done (50%) · 0 failed · 3 open · 1 tok/s · stopping"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := progressLine(c.s, c.rate); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// With the only server down the time left is not made up, however long that lasts, and it is told again when the next one ends.
func TestProgressWhileNothingEnds(t *testing.T) {
	var out strings.Builder
	s := snapshot{total: 100, done: 50, elapsed: 10 * time.Second}
	p := &progress{out: &out, snap: func() snapshot { return s }}
	for _, at := range []struct {
		elapsed time.Duration
		done    int64
		want    string
	}{{10, 50, "ETA 10s"}, {20, 50, "ETA 20s"}, {90, 50, "none ended for 1m20s"}, {600, 50, "none ended for 9m50s"}, {610, 60, "ETA 6m47s"}} {
		s.elapsed, s.done = at.elapsed*time.Second, at.done
		out.Reset()
		p.draw()
		if !strings.Contains(out.String(), at.want) {
			t.Errorf("at %ds: %s, want %s", at.elapsed, out.String(), at.want)
		}
	}
}

func TestProgressLineListsFewEndpoints(t *testing.T) {
	s := snapshot{total: 1, endpoints: make([]endpointLoad, 9)}
	if line := progressLine(s, 0); !strings.HasSuffix(line, "and 5 more") {
		t.Error(line)
	}
}

func TestRateIsOverTheLastSeconds(t *testing.T) {
	var r rate
	if got := r.add(2*time.Second, 100); got != 50 {
		t.Errorf("first reading: %v tokens/s, want 50 (since the start)", got)
	}
	for i := 3; i <= 30; i++ {
		r.add(time.Duration(i)*time.Second, 100) // nothing more comes
	}
	if got := r.add(31*time.Second, 100); got != 0 {
		t.Errorf("after 29 silent seconds: %v tokens/s, want 0", got)
	}
	if got := r.add(32*time.Second, 1100); got < 90 || got > 110 {
		t.Errorf("1000 tokens in the last second of ten: %v tokens/s, want about 100", got)
	}
	if len(r.at) > 20 {
		t.Errorf("%d readings are kept", len(r.at))
	}
}

func TestCutTo(t *testing.T) {
	if got := cutTo("héllo wörld", 6); got != "héllo…" {
		t.Errorf("%q", got)
	}
	if got := cutTo("short", 80); got != "short" {
		t.Errorf("%q", got)
	}
}
