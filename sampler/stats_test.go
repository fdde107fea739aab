package sampler

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"gonum.org/v1/gonum/stat"

	"tranche/episode"
)

// TestPassAtK holds both estimates against counting every choice of k samples.
func TestPassAtK(t *testing.T) {
	for n := 1; n <= 8; n++ {
		for c := 0; c <= n; c++ {
			for k := 1; k <= n; k++ {
				anyPass, allPass, all := 0, 0, 0
				for choice := range 1 << n {
					size, passed := 0, 0
					for i := range n {
						if choice>>i&1 == 1 {
							size++
							if i < c {
								passed++
							}
						}
					}
					if size == k {
						all++
						if passed > 0 {
							anyPass++
						}
						if passed == k {
							allPass++
						}
					}
				}
				if got, want := PassAtK(n, c, k), float64(anyPass)/float64(all); math.Abs(got-want) > 1e-9 {
					t.Errorf("pass@%d of %d in %d: %v, want %v", k, c, n, got, want)
				}
				if got, want := PassAllK(n, c, k), float64(allPass)/float64(all); math.Abs(got-want) > 1e-9 {
					t.Errorf("pass^%d of %d in %d: %v, want %v", k, c, n, got, want)
				}
			}
		}
	}
	if v := PassAtK(2000, 3, 1000); !(v > 0.87 && v < 0.88) { // 1 - 1/8, nearly; a product of factorials would overflow
		t.Errorf("pass@1000 of 3 in 2000: %v", v)
	}
	if !math.IsNaN(PassAtK(3, 1, 4)) || !math.IsNaN(PassAllK(3, 1, 4)) {
		t.Error("k over n gave a number")
	}
}

// TestGroupStatisticsOfRealTrials: 50 tasks of the airline domain in 4 trials each, as the data's own note counts them.
func TestGroupStatisticsOfRealTrials(t *testing.T) {
	dir := os.Getenv("TRANCHE_DATA")
	f, err := os.Open(filepath.Join(dir, "trajectories-taubench", "gpt-4o-airline.jsonl.gz"))
	if dir == "" || err != nil {
		t.Skipf("no real data (TRANCHE_DATA): %v", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var g Groups
	passed := map[int]int{} // tasks by how many of their trials passed
	byTask := map[int]int{}
	for d := json.NewDecoder(z); d.More(); {
		var run struct {
			Task   int `json:"task_id"`
			Reward float64
		}
		if err := d.Decode(&run); err != nil {
			t.Fatal(err)
		}
		g.Add(fmt.Sprint(run.Task), "", "airline", 4, &run.Reward)
		byTask[run.Task] += int(run.Reward)
	}
	for _, c := range byTask {
		passed[c]++
	}
	note := map[int]int{0: 14, 1: 12, 2: 10, 3: 4, 4: 10} // "groups of 4: 14 tasks 0/4, 12 1/4, 10 2/4, 4 3/4, 10 4/4"
	for c, n := range note {
		if passed[c] != n {
			t.Errorf("%d tasks passed %d of 4 trials, the note says %d", passed[c], c, n)
		}
	}
	s := g.Stats(1)["airline"]
	if s.Groups != 50 || s.Samples != 200 || s.Useful != 26 || math.Abs(s.Mean-0.42) > 1e-9 { // "26 of 50 tasks carry a signal …; mean reward 0.42"
		t.Errorf("%+v, the note says 50 tasks, 26 with a signal, mean 0.42", s)
	}
	// pass^k and pass@k from the note's counts.
	for i, want := range []struct{ any, all float64 }{
		{0.42, 0.42},
		{(12*0.5 + 10*5./6 + 14) / 50, (10*1./6 + 4*0.5 + 10) / 50},
		{(12*0.75 + 24) / 50, (4*0.25 + 10) / 50},
		{36. / 50, 10. / 50},
	} {
		if p := s.Pass[i]; p.K != i+1 || p.Groups != 50 || math.Abs(p.Any-want.any) > 1e-9 || math.Abs(p.All-want.all) > 1e-9 {
			t.Errorf("%+v, want pass@%d %v, pass^%d %v", p, i+1, want.any, i+1, want.all)
		}
	}
	if !(*s.Low > 0.30 && *s.Low < 0.35 && *s.High > 0.50 && *s.High < 0.55) { // 1.96 standard errors of 50 group means are 0.105
		t.Errorf("the interval is %v to %v", *s.Low, *s.High)
	}
}

// TestGroupsDoNotMindTheOrder: rewards in any order give the same statistics, and what has no verdict says nothing.
func TestGroupsDoNotMindTheOrder(t *testing.T) {
	type sample struct {
		group, task, domain string
		reward              *float64
	}
	var all []sample
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 200 {
		for range 4 {
			s := sample{group: fmt.Sprint(i), task: fmt.Sprint(i / 4), domain: []string{"a", "b"}[i%2], reward: episode.Ptr(float64(rng.IntN(3)) / 2)}
			if rng.IntN(5) == 0 {
				s.reward = nil
			}
			all = append(all, s)
		}
	}
	stats := func(again bool) string {
		g := Groups{Again: again}
		for _, s := range all {
			g.Add(s.group, s.task, s.domain, 4, s.reward)
		}
		text, err := json.Marshal(g.Stats(3))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, again := range []bool{false, true} {
		want := stats(again)
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if got := stats(again); got != want {
			t.Errorf("another order gave\n%s\nwant\n%s", got, want)
		}
	}
	var none Groups
	none.Add("g", "", "d", 2, nil)
	none.Add("g", "", "d", 2, nil)
	if none.Stats(1) != nil {
		t.Error("groups without a verdict have statistics")
	}
}

// TestIntervalsCover: of many made datasets, about 95 % of the intervals hold the true mean.
func TestIntervalsCover(t *testing.T) {
	oneGoroutine(t)
	rng := rand.New(rand.NewPCG(7, 7))
	const sets, truth = 200, 0.4
	held := 0
	for range sets {
		var g Groups
		for i := range 80 {
			p := rng.Float64() * 2 * truth // of this group's task
			for range 4 {
				r := 0.0
				if rng.Float64() < p {
					r = 1
				}
				g.Add(fmt.Sprint(i), "", "d", 4, &r)
			}
		}
		if s := g.Stats(rng.Uint64())["d"]; *s.Low <= truth && truth <= *s.High {
			held++
		}
	}
	if share := float64(held) / sets; share < 0.90 || share > 0.99 {
		t.Errorf("%.3f of the intervals hold the mean, want about 0.95", share)
	}
}

// TestDropsAreFlagged: a set that gets worse by much is flagged, one that wobbles is not.
func TestDropsAreFlagged(t *testing.T) {
	play := func(rates ...float64) []Evaluation {
		var v Evaluations
		rng := rand.New(rand.NewPCG(3, 9))
		for round, rate := range rates {
			for task := range 60 {
				for range 4 {
					r := 0.0
					if rng.Float64() < rate {
						r = 1
					}
					v.Add(round, fmt.Sprint(task), &r)
				}
			}
		}
		return v.List(1)
	}
	flags := func(list []Evaluation) (out []bool) {
		for _, e := range list {
			out = append(out, e.Dropped)
		}
		return out
	}
	if got := play(0.4, 0.6, 0.6, 0.3); fmt.Sprint(flags(got)) != "[false false false true]" || *got[3].Change.High > -0.15 {
		t.Errorf("0.4, 0.6, 0.6, 0.3: %v, last %+v", flags(got), got[3].Change)
	}
	if got := play(0.5, 0.5, 0.5); fmt.Sprint(flags(got)) != "[false false false]" {
		t.Errorf("0.5, 0.5, 0.5: %v", flags(got))
	}
	var few Evaluations
	for task := range leastTasks - 1 {
		few.Add(0, fmt.Sprint(task), episode.Ptr(1.0))
		few.Add(1, fmt.Sprint(task), episode.Ptr(0.0))
	}
	if last := few.List(1)[1]; last.Dropped || last.Low != nil || last.Change.Low != nil {
		t.Errorf("so few tasks say nothing: %+v", last)
	}
}

// TestSteadySetsAreSeldomFlagged: over 30 evaluations of a set that stays as good as it is, hardly one is flagged, and hardly ever two in a row; one that loses
// a tenth is flagged soon.
func TestSteadySetsAreSeldomFlagged(t *testing.T) {
	const runs, tasks, rounds = 60, 200, 30
	flagged, double, caught := 0, 0, 0
	rng := rand.New(rand.NewPCG(11, 5))
	for range runs {
		rates := make([]float64, tasks)
		for i := range rates {
			rates[i] = 0.1 + 0.8*rng.Float64()
		}
		var seen []map[string]float64
		best, inRow := 0, 0
		play := func(loss float64) bool {
			now := map[string]float64{}
			for i, p := range rates {
				now[fmt.Sprint(i)] = 0
				if rng.Float64() < p-loss {
					now[fmt.Sprint(i)] = 1
				}
			}
			was := len(seen) > 0 && dropped(differences(seen[best], now), len(seen))
			if seen = append(seen, now); stat.Mean(inOrder(now), nil) > stat.Mean(inOrder(seen[best]), nil) {
				best = len(seen) - 1
			}
			return was
		}
		twice := false
		for range rounds {
			if !play(0) {
				inRow = 0
				continue
			}
			flagged++
			inRow++
			twice = twice || inRow == 2
		}
		if twice {
			double++
		}
		if a, b := play(0.1), play(0.1); a || b {
			caught++
		}
	}
	t.Logf("flagged %.4f of the evaluations, two in a row in %d of %d runs; a loss of a tenth seen in two evaluations in %d", float64(flagged)/(runs*(rounds-1)), double, runs, caught)
	if share := float64(flagged) / (runs * (rounds - 1)); share > 0.025 || double > runs/20 || caught < runs*3/4 {
		t.Errorf("flagged %.4f, double %d, caught %d of %d", share, double, caught, runs)
	}
}

// TestIntervalsAreOverTasks: groups of one task are alike, so that playing it often does not make the mean of all tasks surer.
func TestIntervalsAreOverTasks(t *testing.T) {
	oneGoroutine(t)
	rng := rand.New(rand.NewPCG(17, 7))
	const sets, truth = 200, 0.4
	held := 0
	for range sets {
		g := Groups{Again: true}
		for task := range 30 {
			p := rng.Float64() * 2 * truth
			for round := range 6 {
				for range 4 {
					r := 0.0
					if rng.Float64() < p {
						r = 1
					}
					g.Add(fmt.Sprint(task, round), fmt.Sprint(task), "d", 4, &r)
				}
			}
		}
		if s := g.Stats(rng.Uint64())["d"]; *s.Low <= truth && truth <= *s.High {
			held++
		}
	}
	if share := float64(held) / sets; share < 0.90 || share > 0.99 {
		t.Errorf("%.3f of the intervals hold the mean, want about 0.95", share)
	}
	few := Groups{Again: true}
	for i := range 100 {
		few.Add(fmt.Sprint(i), fmt.Sprint(i%(leastTasks-1)), "d", 1, episode.Ptr(float64(i%2)))
	}
	if s := few.Stats(1)["d"]; s.Low != nil || s.High != nil || s.Groups != 100 {
		t.Errorf("%d tasks have an interval: %+v", leastTasks-1, s)
	}
}

// TestIntervalsOfManyTasksAreThoseOfDrawingAgain: where the normal distribution takes over, nothing jumps.
func TestIntervalsOfManyTasksAreThoseOfDrawingAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	var units []unit
	for range 4000 {
		n := 1 + rng.IntN(5)
		units = append(units, unit{float64(n) * rng.Float64(), float64(n), 1})
	}
	sum, n := 0.0, 0.0
	for _, u := range units {
		sum, n = sum+u.sum, n+u.n
	}
	low, high := interval(units, 1)
	l, h := normal(units, len(units), sum/n, n)
	if width := *high - *low; math.Abs(*low-*l) > 0.15*width || math.Abs(*high-*h) > 0.15*width {
		t.Errorf("drawn again %v to %v, normal %v to %v", *low, *high, *l, *h)
	}
}

// TestPassAtKCountsGroupsThatEndedEarly: groups that were stopped because they were sure are in pass@k for every k, whether their end is told
// before, between or after their samples; without them the unsure ones would be alone.
func TestPassAtKCountsGroupsThatEndedEarly(t *testing.T) {
	for _, when := range []int{0, 2, 4} {
		var g Groups
		for i := range 8 { // three ended with four passes, three with four zeros, two went on with four of eight
			group := fmt.Sprint(i)
			samples := []int{4, 8}[i/6]
			for s := range samples {
				if samples == 4 && s == when {
					g.End(group, 4, 8)
				}
				g.Add(group, "", "d", 8, episode.Ptr([]float64{1, 0, float64(s % 2)}[i/3]))
			}
			if samples == 4 && when == 4 {
				g.End(group, 4, 8)
			}
		}
		if len(g.open)+len(g.short) != 0 {
			t.Errorf("end told after %d samples: %d groups are open, %d ends wait", when, len(g.open), len(g.short))
		}
		s := g.Stats(1)["d"]
		last := s.Pass[len(s.Pass)-1]
		if last.K != 8 || last.Groups != 8 || last.Any != 5./8 || last.All != 3./8 || s.Samples != 6*4+2*8 || s.Useful != 2 {
			t.Errorf("end told after %d samples: %+v of %+v, want pass@8 5/8 and pass^8 3/8 over 8 groups", when, last, s)
		}
	}
}

// TestOneEvaluationIsThatOfTheList: what is told when an evaluation is whole is what the summary says of it.
func TestOneEvaluationIsThatOfTheList(t *testing.T) {
	var v Evaluations
	rng := rand.New(rand.NewPCG(5, 5))
	for round := range 6 {
		var told Evaluation
		for i := range 40 {
			if n := v.Add(round, fmt.Sprint(i%20), episode.Ptr(float64(rng.IntN(2)))); n != i+1 {
				t.Fatalf("%d samples, want %d", n, i+1)
			}
			p, ok := v.Against(round)
			if !ok {
				t.Fatal("no evaluation")
			}
			if i == 39 {
				told = p.Evaluation(3)
			}
		}
		list := v.List(3)
		if got, want := told, list[len(list)-1]; !reflect.DeepEqual(got, want) {
			t.Errorf("told %+v, listed %+v", got, want)
		}
	}
}
