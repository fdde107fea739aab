package reward

import (
	"testing"

	"tranche/episode"
)

// Combine gives what a Scorer of the same configuration gives.
func TestCombine(t *testing.T) {
	one := func(name string, score *float64, weight float64) episode.Reward {
		return episode.Reward{Name: name, Score: score, Weight: weight}
	}
	gated := []Spec{{Name: "a"}, {Name: "b", Threshold: episode.Ptr(0.5)}}
	half, all := episode.Ptr(0.5), episode.Ptr(1.0)
	for _, c := range []struct {
		name string
		cfg  Config
		list []episode.Reward
		want *float64
	}{
		{"weighted sum by default", Config{}, []episode.Reward{one("a", half, 1), one("b", all, 3)}, episode.Ptr(0.875)},
		{"product", Config{Total: Product}, []episode.Reward{one("a", half, 1), one("b", half, 3)}, episode.Ptr(0.25)},
		{"minimum", Config{Total: Minimum}, []episode.Reward{one("a", half, 1), one("b", all, 3)}, half},
		{"an open gate", Config{Total: Gate, Graders: gated}, []episode.Reward{one("a", all, 1), one("b", half, 0)}, all},
		{"a shut gate", Config{Total: Gate, Graders: gated}, []episode.Reward{one("a", all, 1), one("b", episode.Ptr(0.4), 0)}, episode.Ptr(0.0)},
		{"one that is needed is missing", Config{}, []episode.Reward{one("a", half, 1), one("b", nil, 1)}, nil},
		{"nothing", Config{}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.cfg.Combine(c.list)
			if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
