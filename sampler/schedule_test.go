package sampler

import (
	"math"
	"testing"
)

func TestSchedules(t *testing.T) {
	for _, c := range []struct {
		text string
		at   map[int64]float64
	}{
		{"linear:1.2:0.7:100", map[int64]float64{0: 1.2, 50: 0.95, 100: 0.7, 1000: 0.7}},
		{"cosine:1:0:100", map[int64]float64{0: 1, 25: (1 + math.Sqrt2/2) / 2, 50: 0.5, 100: 0, 7000: 0}},
		{"steps:0=1,10=0.8,20=0.5", map[int64]float64{0: 1, 9: 1, 10: 0.8, 19: 0.8, 20: 0.5, 99: 0.5}},
	} {
		s, err := ParseSchedule(c.text)
		if err != nil {
			t.Fatal(err)
		}
		for draw, want := range c.at {
			if got := s.At(draw); math.Abs(got-want) > 1e-12 {
				t.Errorf("%s at %d: %v, want %v", c.text, draw, got, want)
			}
		}
		if s.String() != c.text {
			t.Errorf("%s comes back as %s", c.text, s)
		}
	}
	for _, bad := range []string{"line:1:2:3", "linear:1:2", "linear:1:x:3", "linear:1:NaN:3", "cosine:1:2:0", "steps:", "steps:1=2", "steps:0=1,0=2", "steps:0=1,5=2,3=1", "steps:0"} {
		if s, err := ParseSchedule(bad); err == nil {
			t.Errorf("%q was taken as %s", bad, s)
		}
	}
}

func FuzzParseSchedule(f *testing.F) {
	f.Add("linear:1.2:0.7:100")
	f.Add("steps:0=1,10=0.8")
	f.Add("cosine:1e300:-0:9223372036854775807")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSchedule(text)
		if err != nil || !s.On() {
			return
		}
		again, err := ParseSchedule(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q is written %q, which reads as %q, %v", text, s, again, err)
		}
		for _, draw := range []int64{0, 1, math.MaxInt64} {
			if v := s.At(draw); math.IsNaN(v) {
				t.Fatalf("%s at %d is NaN", s, draw)
			}
		}
	})
}
