package sampler

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tranche/episode"
)

// TestPacerLaw: after any number of draws every domain has had its share, but for less than one draw.
func TestPacerLaw(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := rapid.SliceOfN(rapid.Float64Range(0.001, 1), 1, 30).Draw(rt, "weights")
		shares := between(w, 0, 1)
		p := newPacer(shares)
		for n := 1; n <= 400; n++ {
			p.take(p.order()[0])
			for i, s := range shares {
				if off := float64(p.drawn[i]) - s*float64(n); math.Abs(off) >= 1 {
					rt.Fatalf("after %d draws domain %d with share %v has %d, which is off by %v", n, i, s, p.drawn[i], off)
				}
			}
		}
	})
}

// TestBetween: shares have the sum 1, keep their bounds and the order of the weights; those within the bounds keep their proportion.
func TestBetween(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := rapid.SliceOfN(rapid.Float64Range(0, 5), 1, 12).Draw(rt, "weights")
		n := 0
		for i := range w {
			if w[i] < 1e-3 {
				w[i] = 0
			} else {
				n++
			}
		}
		if n == 0 {
			return
		}
		floor := rapid.Float64Range(0, 1/float64(n)).Draw(rt, "floor")
		most := rapid.Float64Range(1/float64(n), 1).Draw(rt, "cap")
		got, sum := between(w, floor, most), 0.0
		const slack = 1e-6
		for i, s := range got {
			sum += s
			if w[i] == 0 && s != 0 {
				rt.Fatalf("a weight of 0 became %v", s)
			}
			if w[i] > 0 && (s < floor-slack || s > most+slack) {
				rt.Fatalf("share %v is not from %v to %v", s, floor, most)
			}
			for j := range got {
				if w[i] > w[j] && s < got[j]-slack {
					rt.Fatalf("weights %v and %v became %v and %v", w[i], w[j], s, got[j])
				}
				free := func(k int) bool { return got[k] > floor+slack && got[k] < most-slack }
				if free(i) && free(j) && math.Abs(s*w[j]-got[j]*w[i]) > slack*5 {
					rt.Fatalf("weights %v and %v became %v and %v, which is another proportion", w[i], w[j], s, got[j])
				}
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			rt.Fatalf("the shares are %v in all", sum)
		}
	})
}

// bbh reads the 27 domains of BIG-Bench Hard, or skips.
func bbh(t testing.TB) []*episode.Task {
	t.Helper()
	dir := os.Getenv("TRANCHE_DATA")
	if dir == "" {
		t.Skip("TRANCHE_DATA is not set: no real data")
	}
	text, err := os.ReadFile(filepath.Join(dir, "tasks-bbh", "bbh.firsthalf.jsonl"))
	if err != nil {
		t.Skipf("no real data: %v", err)
	}
	var tasks []*episode.Task
	for line := range strings.Lines(string(text)) {
		var row struct {
			Task, Target string
			I            int
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if row.Task == "" { // the canary
			continue
		}
		id := fmt.Sprintf("%s/%d", row.Task, row.I)
		tasks = append(tasks, &episode.Task{ID: id, Hash: id, DataSource: row.Task, Answer: &row.Target})
	}
	return tasks
}

// slice is a pass over tasks in memory.
type slice struct {
	tasks []*episode.Task
	at    int
}

func (s *slice) Next() (*episode.Task, error) {
	if s.at == len(s.tasks) {
		return nil, episode.ErrEnd
	}
	s.at++
	return s.tasks[s.at-1], nil
}

func (s *slice) Close() error { return nil }

func passOver(tasks []*episode.Task) func(context.Context) (Tasks, error) {
	return func(context.Context) (Tasks, error) { return &slice{tasks: tasks}, nil }
}

// TestSharesOfRealDomains: 27 domains of real tasks, several ways to mix them, and every window of 1000 draws within 1 % of the target.
func TestSharesOfRealDomains(t *testing.T) {
	oneGoroutine(t)
	tasks := bbh(t)
	sizes := map[string]int{}
	for _, task := range tasks {
		sizes[task.DataSource]++
	}
	if len(sizes) != 27 {
		t.Fatalf("%d domains, want 27", len(sizes))
	}
	weighted := map[string]float64{"*": 1, "navigate": 5, "word_sorting": 0.25, "web_of_lies": 0}
	total := 27.0 - 3 + 5 + 0.25
	target := map[string]func(name string) float64{
		"temperature 2": func(name string) float64 {
			sum := 0.0
			for _, n := range sizes {
				sum += math.Sqrt(float64(n))
			}
			return math.Sqrt(float64(sizes[name])) / sum
		},
		"weights": func(name string) float64 {
			w, ok := weighted[name]
			if !ok {
				w = weighted["*"]
			}
			return w / total
		},
		"capped": func(name string) float64 { // 5 of 29.25 is over 0.1: the others share what is left
			if name == "navigate" {
				return 0.1
			}
			w, ok := weighted[name]
			if !ok {
				w = weighted["*"]
			}
			return 0.9 * w / (total - 5)
		},
	}
	for name, mix := range map[string]Mix{
		"temperature 2": {By: MixTemperature, Temperature: 2}, "weights": {By: MixWeights, Weights: weighted}, "capped": {By: MixWeights, Weights: weighted, Cap: 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			const draws, window = 4000, 1000
			cfg := PlanConfig{Config: Config{Order: OrderShuffle, Seed: 5}, Mix: mix, Draws: draws}
			p, err := NewPlan(t.Context(), cfg, PlanParts{Open: passOver(tasks)})
			if err != nil {
				t.Fatal(err)
			}
			var seen []string
			for {
				d, err := p.Next(t.Context())
				if err == episode.ErrEnd {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				seen = append(seen, d.Task.DataSource)
			}
			if len(seen) != draws {
				t.Fatalf("%d draws, want %d", len(seen), draws)
			}
			for from := 0; from+window <= draws; from += 250 {
				got := map[string]int{}
				for _, d := range seen[from : from+window] {
					got[d]++
				}
				for d := range sizes {
					if want := target[name](d); math.Abs(float64(got[d])/window-want) > 0.01*max(want, 0.2) { // two draws of a thousand at the least
						t.Errorf("draws %d to %d: %s has %d of %d, want %.4f", from, from+window, d, got[d], window, want)
					}
				}
			}
		})
	}
}

func TestMixFaultsAreTold(t *testing.T) {
	tasks := []*episode.Task{{ID: "a", DataSource: "a"}, {ID: "b", DataSource: "b"}, {ID: "c"}}
	for name, c := range map[string]struct {
		mix  Mix
		says string
	}{
		"no weight":          {Mix{By: MixWeights, Weights: map[string]float64{"a": 1}}, "no weight for the domains (none), b"},
		"no such domain":     {Mix{By: MixWeights, Weights: map[string]float64{"*": 1, "x": 1}}, `a weight for "x"`},
		"floors too high":    {Mix{By: MixTemperature, Floor: 0.4}, "cannot hold for 3 domains"},
		"cap too low":        {Mix{By: MixProgress, Cap: 0.3}, "cannot hold for 3 domains"},
		"floor over cap":     {Mix{By: MixTemperature, Floor: 0.4, Cap: 0.3}, "is over cap"},
		"negative":           {Mix{By: MixWeights, Weights: map[string]float64{"*": -1}}, `weight of "*"`},
		"weights for others": {Mix{By: MixProgress, Weights: map[string]float64{"a": 1}}, "stand with by: weights"},
	} {
		cfg := PlanConfig{Mix: c.mix}
		if _, err := NewPlan(t.Context(), cfg, PlanParts{Open: passOver(tasks), Record: &memory{}}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q in it", name, err, c.says)
		}
	}
}
