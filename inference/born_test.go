package inference

import (
	"math"
	"testing"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
)

// A server's metrics tell when its process began, and one process alone has a beginning.
func TestLoadTellsWhenTheServerBegan(t *testing.T) {
	now := float64(time.Now().UnixMilli()) / 1e3
	l, err := simulated(t, enginesim.Config{}).Load(t.Context())
	if err != nil || l.Born == nil || math.Abs(*l.Born-now) > 60 {
		t.Fatalf("%v, began at %v, now is %.2f", err, l.Born, now)
	}
	for text, want := range map[string]float64{
		"process_start_time_seconds 1.72345e+09\n":                                           1.72345e9,
		"process_start_time_seconds{pid=\"1\"} 5\nprocess_start_time_seconds{pid=\"2\"} 6\n": 0,
		"vllm:num_requests_running 1\n":                                                      0,
	} {
		var l episode.Load
		readLoad(&l, parseMetrics(text))
		if got := l.Born; (got == nil) != (want == 0) || got != nil && *got != want {
			t.Errorf("%q: began at %v, want %v", text, got, want)
		}
	}
}
