package scheduler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
	"tranche/episode"
)

// The costs of a batch are found from batches of different kinds, whatever they are.
func TestPaceLearns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := pace{cost: [3]float64{
			rapid.Float64Range(0.002, 0.1).Draw(t, "step"), rapid.Float64Range(1e-8, 3e-7).Draw(t, "read"), rapid.Float64Range(5e-6, 1e-4).Draw(t, "fill"),
		}}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		p := newPace(25e-6)
		for range 200 {
			rows, prompt, longest := 1+r.IntN(64), 1+r.IntN(8000), 1+r.IntN(1<<r.IntN(13))
			x := float64(longest)
			p.learn(rows, prompt, longest, truth.of(float64(rows), float64(prompt), x, x*x))
		}
		for _, c := range [][3]float64{{64, 100, 100}, {1, 100, 4000}, {16, 4000, 1000}, {64, 8000, 20}} {
			want, got := truth.of(c[0], c[1], c[2], c[2]*c[2]), p.of(c[0], c[1], c[2], c[2]*c[2])
			if math.Abs(got/want-1) > 0.2 {
				t.Fatalf("a batch of %v takes %.3f s, expected after learning %.3f; costs %v, learned %v", c, want, got, truth.cost, p.cost)
			}
		}
	})
}

// Nothing measured makes a cost negative, nought or infinite.
func TestPaceStaysPositive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPace(25e-6)
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			p.learn(rapid.IntRange(1, 64).Draw(t, "rows"), rapid.IntRange(0, 9000).Draw(t, "prompt"), rapid.IntRange(0, 9000).Draw(t, "longest"), rapid.Float64Range(0, 100).Draw(t, "took"))
		}
		for i, c := range p.cost {
			if !(c > 0) || math.IsInf(c, 0) {
				t.Fatalf("cost %d is %v", i, c)
			}
		}
	})
}

// The forecast finds how alike siblings are, and how long the longest of n answers gets.
func TestForecastLearns(t *testing.T) {
	for name, c := range map[string]struct{ between, within float64 }{"alike": {0.9, 0.3}, "strangers": {0, 0.9}} {
		t.Run(name, func(t *testing.T) {
			f, r := newForecast(), rand.New(rand.NewPCG(3, 4))
			cell := episode.Cell{DataSource: "d"}
			for range 1500 {
				level := math.Log(800) + c.between*r.NormFloat64()
				var seen logs
				for k := range 4 {
					tokens := int(math.Exp(level + c.within*r.NormFloat64()))
					f.learn(cell, f.likely(cell, seen, 32768), k, seen, tokens)
					seen.add(logOf(tokens))
				}
			}
			f.tabulate()
			within, between := f.variances()
			if math.Abs(math.Sqrt(within)-c.within) > 0.05 || c.between > 0 && math.Abs(math.Sqrt(between)-c.between) > 0.1 {
				t.Errorf("found deviations %.2f between groups and %.2f within, the truth is %v", math.Sqrt(between), math.Sqrt(within), c)
			}
			once, _ := f.misses[0].longestOf(16)
			spread := math.Hypot(c.between, c.within)
			sum := 0.0
			for range 4000 {
				most := -9.0
				for range 16 {
					most = max(most, spread*r.NormFloat64())
				}
				sum += math.Exp(most)
			}
			if want := sum / 4000; math.Abs(once/want-1) > 0.15 {
				t.Errorf("the longest of 16 is expected to be %.2f times the usual, it is %.2f", once, want)
			}
		})
	}
}

// The longest of more answers is never expected to be shorter.
func TestLongestGrows(t *testing.T) {
	f := newForecast()
	for e := range f.misses {
		last := 0.0
		for n := 1.0; n < 600; n *= 1.3 {
			once, twice := f.misses[e].longestOf(n)
			if once < last || twice < once*once {
				t.Fatalf("the longest of %.0f: %v after %v, its square %v", n, once, last, twice)
			}
			last = once
		}
	}
}

// crowd is a core with one replica that pads and what makes calls that wait for it, groups of 8.
func crowd(continues bool) (*Core, func()) {
	core, _ := NewCore(Rules{}, []ReplicaConfig{{Name: "a", Rows: 64, Continues: continues, Capacity: episode.Capacity{KVTokens: 400000, ContextTokens: 32768}}})
	r := rand.New(rand.NewPCG(1, 2))
	next := 0
	return core, func() {
		next++
		id := fmt.Sprint(next)
		core.Offer(Request{
			Ticket: Ticket(next), Episode: id, Group: fmt.Sprint(next / 8), GroupSize: 8, Turns: 1, Prompt: 100 + r.IntN(8000), Exact: true, Want: 4096,
			Cell: episode.Cell{DataSource: fmt.Sprint(next % 5)}, Continues: continues,
		}, 0)
	}
}

// BenchmarkBatches measures a launched call, its settling and a new offer with so many calls waiting for a replica that pads.
func BenchmarkBatches(b *testing.B) {
	for _, c := range []struct {
		n   int
		cut bool
	}{{5_000, false}, {50_000, false}, {5_000, true}, {50_000, true}} {
		b.Run(fmt.Sprint(c.n, " cut ", c.cut), func(b *testing.B) {
			core, offer := crowd(c.cut)
			for range c.n {
				offer()
			}
			r := rand.New(rand.NewPCG(5, 6))
			now, done := Time(0), 0
			for b.Loop() {
				if done > 0 {
					done--
					continue
				}
				now += time.Minute
				launches, _, _ := core.Next(now)
				for _, l := range launches {
					if l.Cut && r.IntN(2) == 0 {
						core.Cut(l.Ticket, 0, Usage{l.MaxTokens, -1}, now+time.Second)
						continue
					}
					core.Settle(l.Ticket, nil, Usage{1 + r.IntN(4000), -1}, now+time.Second)
					core.Leave(fmt.Sprint(l.Ticket))
					offer()
				}
				done = len(launches) - 1
			}
		})
	}
}
