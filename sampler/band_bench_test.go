package sampler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"

	"tranche/episode"
)

// learner is a model that learns from groups, made up for the test. A task i is solved with chance p = sigmoid(skill[i] + common). A group
// of n samples with c passes is trained on with the variance of its rewards, 4·(c/n)·(1-c/n), which is what a group-relative gradient has: nothing
// where all are alike. It adds `stride` times that to the task's skill, so that a task takes some twenty groups to go through the band of 0.2 to
// 0.8, and `shared` times that to what all tasks have in common. Skills begin as a normal distribution with mean -2 and deviation 5: a fifth of the
// tasks is in the band, half is harder.
type learner struct {
	skill  map[string]float64
	common float64
}

const (
	stride = 0.15
	shared = 0.0002
)

func newLearner(tasks []*episode.Task, rng *rand.Rand) *learner {
	l := &learner{skill: map[string]float64{}}
	for _, t := range tasks {
		l.skill[t.ID] = -2 + 5*rng.NormFloat64()
	}
	return l
}

func (l *learner) rate(task string) float64 { return 1 / (1 + math.Exp(-l.skill[task]-l.common)) }

// mean is the pass rate over all tasks: what is wanted to grow.
func (l *learner) mean() float64 {
	sum := 0.0
	for task := range l.skill {
		sum += l.rate(task)
	}
	return sum / float64(len(l.skill))
}

func (l *learner) train(task string, passes, samples int) {
	share := float64(passes) / float64(samples)
	l.skill[task] += stride * 4 * share * (1 - share)
	l.common += shared * 4 * share * (1 - share)
}

// teach draws groups until the mean pass rate has grown by `goal` and returns how many that took; most bounds it. So many are open at once, which
// end in an order that chance decides; the learner learns of them then.
func teach(t testing.TB, cfg PlanConfig, seed uint64, atOnce int, goal float64, most int) int {
	tasks := made(400, 1)
	for _, task := range tasks {
		task.Split = ""
	}
	rng := rand.New(rand.NewPCG(seed, 11))
	l := newLearner(tasks, rng)
	cfg.Config = Config{Samples: 8, Order: OrderShuffle, Seed: int64(seed)}
	cfg.Draws = int64(most)
	p := newPlan(t, cfg, tasks, &memory{})
	goal += l.mean()
	var open []episode.Draw
	for n := 1; ; {
		d, wait, err := p.decide(t.Context())
		if err != nil {
			return most
		}
		if !wait {
			open = append(open, d)
		}
		if !wait && len(open) < atOnce {
			continue
		}
		i := rng.IntN(len(open))
		d = open[i]
		open = slices.Delete(open, i, i+1)
		passes := 0
		for s := range d.Samples {
			reward := 0.0
			if rng.Float64() < l.rate(d.Task.ID) {
				reward = 1
				passes++
			}
			p.Learn(episode.Outcome{TaskID: d.Task.ID, Round: d.Round, Sample: s, Reward: &reward})
		}
		l.train(d.Task.ID, passes, d.Samples)
		if n%20 == 0 && l.mean() >= goal {
			return n
		}
		n++
	}
}

// speedUp is how many times as many groups it takes to draw every task alike as to draw by the band, with the 95 % interval of its mean over
// seeds (Student's t).
func speedUp(t testing.TB, seeds, atOnce int) (mean, low, high float64) {
	const goal, most = 0.1, 20_000
	var factors []float64
	for seed := range uint64(seeds) {
		alike := teach(t, PlanConfig{}, seed, atOnce, goal, most)
		band := teach(t, PlanConfig{Band: Band{Low: 0.2, High: 0.8}}, seed, atOnce, goal, most)
		if alike == most || band == most {
			t.Fatalf("seed %d: the goal was not reached", seed)
		}
		t.Logf("seed %d: %d groups alike, %d by the band", seed, alike, band)
		factors = append(factors, float64(alike)/float64(band))
	}
	mean, sd := stat.MeanStdDev(factors, nil)
	student := map[int]float64{2: 12.706, 3: 4.303, 5: 2.776}[seeds]
	half := student * sd / math.Sqrt(float64(seeds))
	return mean, mean - half, mean + half
}

// TestBandsBeatUniform holds the factor that docs/sampling.md states, on two seeds.
func TestBandsBeatUniform(t *testing.T) {
	oneGoroutine(t)
	for _, atOnce := range []int{1, 64} {
		if mean, _, _ := speedUp(t, 2, atOnce); mean < 1.5 {
			t.Errorf("with %d open, drawing by the band is %.2f times as quick as drawing every task alike, want 1.5 or more", atOnce, mean)
		}
	}
}

// BenchmarkBandsBeatUniform tells the factor over five seeds.
func BenchmarkBandsBeatUniform(b *testing.B) {
	for _, atOnce := range []int{1, 64, 256} {
		b.Run(fmt.Sprint(atOnce, " open"), func(b *testing.B) {
			for range b.N {
				mean, low, high := speedUp(b, 5, atOnce)
				b.ReportMetric(mean, "times")
				b.ReportMetric(low, "low")
				b.ReportMetric(high, "high")
				b.Logf("%.2f times (%.2f to %.2f) as quick as drawing every task alike", mean, low, high)
			}
		})
	}
}
