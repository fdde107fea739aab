package scheduler

import (
	"testing"
	"time"

	"tranche/episode"
)

func TestWithoutFreshGaugesNothingGrowsBeyondWhatWeWereTold(t *testing.T) {
	for name, c := range map[string]struct {
		from  float64
		fresh bool
		want  float64
	}{
		"what was lost is regained": {0.9, false, 1},
		"no further":                {1, false, 1},
		"what was there stays":      {1.4, false, 1.4},
		"fresh ones let it grow":    {0.9, true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := &replica{scale: c.from}
			for range 300 {
				r.grow(probeStep, c.fresh)
			}
			if r.scale != c.want {
				t.Errorf("from %g to %g, want %g", c.from, r.scale, c.want)
			}
		})
	}
}

func TestALossMakesTheServersOwnReadingCount(t *testing.T) {
	for name, c := range map[string]struct {
		used    float64 // of the cache, when 16,000 of the 32,000 tokens we were told are in running prompts
		waiting int
		want    float64 // scale after a loss of a twentieth
	}{
		"it holds what we were told":      {0.5, 0, 0.95},
		"it holds two thirds":             {0.75, 0, 2.0 / 3},
		"never under a half":              {1, 0, 0.5},
		"a queue makes the reading vague": {0.75, 3, 0.95},
		"more than we were told":          {0.25, 0, 0.95},
	} {
		t.Run(name, func(t *testing.T) {
			core, err := NewCore(Rules{Overhead: 1e-9}, []ReplicaConfig{{Name: "a", Capacity: episode.Capacity{KVTokens: 32000, ContextTokens: 32000}}})
			if err != nil {
				t.Fatal(err)
			}
			core.Offer(Request{Ticket: 1, Episode: "e", Group: "g", Prompt: 16000, Exact: true, Want: 64}, 0)
			if launches, _, _ := core.Next(0); len(launches) != 1 {
				t.Fatalf("%d calls were sent, want 1", len(launches))
			}
			reading := episode.Load{KVUsed: &c.used, Waiting: &c.waiting, Preemptions: episode.Ptr(int64(0))}
			core.Observe(0, reading, time.Second)
			if got := core.replicas[0].scale; got != 1 {
				t.Errorf("a reading alone made the scale %g", got)
			}
			reading.Preemptions = episode.Ptr(int64(1))
			core.Observe(0, reading, 2*time.Second)
			if got := core.replicas[0].scale; got < c.want-1e-6 || got > c.want+1e-6 {
				t.Errorf("scale %g after a preemption, want %g", got, c.want)
			}
		})
	}
}
