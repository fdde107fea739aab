package later

import (
	"net/http"
	"testing"
	"time"
)

func TestAsked(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name, said, date string
		want             time.Duration
	}{
		{"nothing", "", "", 0},
		{"seconds", "2", "", 2 * time.Second},
		{"a fraction", "0.5", "", time.Second / 2},
		{"a date", "Fri, 02 Jan 2026 03:04:35 GMT", "", 30 * time.Second},
		{"a date by a clock of its own", "Fri, 02 Jan 2026 03:14:35 GMT", "Fri, 02 Jan 2026 03:14:05 GMT", 30 * time.Second},
		{"a date that is over", "Fri, 02 Jan 2026 03:04:00 GMT", "", 0},
		{"a negative number", "-1", "", 0},
		{"no number", "soon", "", 0},
		{"infinity", "+Inf", "", 24 * time.Hour},
		{"a century", "3e9", "", 24 * time.Hour},
		{"spaces", " 2 ", "", 2 * time.Second},
		{"NaN", "NaN", "", 0},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.said)
		h.Set("Date", c.date)
		if got := Asked(h, now); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := Asked(http.Header{"Retry-After-Ms": {"250"}, "Retry-After": {"9"}}, now); got != 250*time.Millisecond {
		t.Errorf("milliseconds: %v", got)
	}
}
