package scheduler

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
	"tranche/episode"
)

// How long answers last is found from parts of them, although the short ones end first and the long ones are cut again and again.
func TestLastingLearnsFromParts(t *testing.T) {
	for name, draw := range map[string]func(*rand.Rand) int{
		"log-normal": func(r *rand.Rand) int { return int(800*math.Exp(r.NormFloat64())) + 1 },
		"all alike":  func(*rand.Rand) int { return 700 },
		"two kinds":  func(r *rand.Rand) int { return 20 + 4000*r.IntN(2) },
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			l, all := &lasting{prior: 256}, []int(nil)
			for range 4000 {
				n, at := draw(r), 0
				all = append(all, n)
				parts := []int{100, 300, 1000, 3000, 1 << 20}
				if r.IntN(3) == 0 {
					parts = parts[:1+r.IntN(3)] // of one in three no more is seen
				}
				for _, step := range parts {
					if l.learn(at, min(n, at+step), n <= at+step); n <= at+step {
						break
					}
					at += step
				}
			}
			l.tabulate()
			for _, x := range []int{10, 50, 200, 600, 900, 2000, 3500, 8000} {
				longer := 0
				for _, n := range all {
					if n > x {
						longer++
					}
				}
				if want, got := float64(longer)/float64(len(all)), l.share(0, x); math.Abs(got-want) > 0.04 {
					t.Errorf("%.3f of the answers are longer than %d tokens, learned %.3f", want, x, got)
				}
			}
		})
	}
}

// The share that lasts falls from one to nought and depends on nothing but where it is asked.
func TestLastingIsAShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &lasting{}
		l.expect(rapid.IntRange(0, 100_000).Draw(t, "want"))
		for range rapid.IntRange(0, 40).Draw(t, "parts") {
			from := rapid.IntRange(0, 1<<23).Draw(t, "from")
			l.learn(from, from+rapid.IntRange(1, 1<<23).Draw(t, "more"), rapid.Bool().Draw(t, "ended"))
		}
		l.tabulate()
		a := rapid.IntRange(0, 1<<24).Draw(t, "a")
		b := a + rapid.IntRange(0, 1<<24).Draw(t, "b")
		c := b + rapid.IntRange(0, 1<<24).Draw(t, "c")
		ab, bc, ac := l.share(a, b), l.share(b, c), l.share(a, c)
		if !(ac >= 0 && ac <= ab && ab <= 1) || math.Abs(ab*bc-ac) > 1e-9 {
			t.Fatalf("from %d, %g last to %d and %g to %d; of those, %g", a, ab, b, ac, c, bc)
		}
	})
}

// yardOf is one replica whose batches cost what the prior says.
func yardOf(rows int, kv float64) yard {
	return yard{cost: newPace(25e-6), rows: rows, memory: kv, pads: &replica{}}
}

// No other choice of lengths to cut at is cheaper: tried by hand for all that there are among few.
func TestStepsAreTheCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(20, 45).Draw(t, "most")
		prompt, y := rapid.IntRange(1, 20_000).Draw(t, "prompt"), yardOf(rapid.IntRange(1, 64).Draw(t, "rows"), float64(rapid.IntRange(0, 100_000).Draw(t, "memory")))
		l := &lasting{}
		l.expect(most)
		for range rapid.IntRange(0, 60).Draw(t, "answers") {
			l.learn(0, rapid.IntRange(1, most).Draw(t, "length"), true)
		}
		l.tabulate()
		s := stepsFor(prompt, most, l, y)
		inner := s.edges[1 : len(s.edges)-1]
		least := math.Inf(1)
		for set := range 1 << len(inner) {
			at := []int{0}
			for i, e := range inner {
				if set>>i&1 == 1 {
					at = append(at, e)
				}
			}
			least = min(least, priceOf(append(at, most), prompt, l, y, s.edges))
		}
		if got := s.left(0); math.Abs(got/least-1) > 1e-9 {
			t.Fatalf("the steps cost %g s a row, the best %g", got, least)
		}
		if got := priceOf(s.chosen(), prompt, l, y, s.edges); math.Abs(got/least-1) > 1e-9 {
			t.Fatalf("cutting at %v costs %g s a row, the best %g", s.chosen(), got, least)
		}
	})
}

// chosen are the lengths at which an answer is cut one after the other.
func (s *steps) chosen() []int {
	at := []int{0}
	for i := 0; s.next[i] > i; i = s.next[i] {
		at = append(at, s.edges[s.next[i]])
	}
	return at
}

// priceOf is what a row costs when it is cut there.
func priceOf(at []int, prompt int, l *lasting, y yard, edges []int) float64 {
	sum := 0.0
	for i := 0; i+1 < len(at); i++ {
		var between []int
		for _, e := range edges {
			if e >= at[i] && e <= at[i+1] {
				between = append(between, e)
			}
		}
		y.from(prompt, between, l, func(j int, cost, _ float64) {
			if j == len(between)-1 {
				sum += l.share(0, at[i]) * cost
			}
		})
	}
	return sum
}

// Where all answers are alike, or a batch has one row, nothing is gained by cutting and little is cut; where a few are far longer than the
// rest, all are cut near where the rest end.
func TestStepsCutWhereItPays(t *testing.T) {
	for name, c := range map[string]struct {
		rows   int
		length func(i int) int
		first  [2]int // the first cut lies between
	}{
		"alike":            {64, func(int) int { return 700 }, [2]int{700, 8000}},
		"one row":          {1, func(i int) int { return 1 + i*37%6000 }, [2]int{3000, 8000}},
		"few far longer":   {64, func(i int) int { return 300 + 6700*(i%20/19) }, [2]int{300, 400}},
		"long prompts too": {64, func(i int) int { return 300 + 6700*(i%20/19) }, [2]int{300, 400}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lasting{}
			l.expect(8000)
			for i := range 2000 {
				l.learn(0, c.length(i), true)
			}
			l.tabulate()
			s := stepsFor(500, 8000, l, yardOf(c.rows, 0))
			if first := s.chosen()[1]; first < c.first[0] || first > c.first[1] {
				t.Errorf("cut at %v, expected the first between %v", s.chosen(), c.first)
			}
		})
	}
}

func padsAndGoesOn(name string, rows, context int) ReplicaConfig {
	return ReplicaConfig{Name: name, Rows: rows, Continues: true, Capacity: episode.Capacity{ContextTokens: context}}
}

// Whatever answers do, a call that is cut gets no more than it may have in all, its prompt grows by what came, and no token is asked for twice.
func TestCutCallsKeepTheirLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		limit := rapid.IntRange(0, 1).Draw(t, "limited") * 2500
		core, err := NewCore(Rules{}, []ReplicaConfig{padsAndGoesOn("a", 4, limit), padsAndGoesOn("b", 3, limit)})
		if err != nil {
			t.Fatal(err)
		}
		type state struct{ prompt, want, got, length int }
		calls, flying := map[Ticket]*state{}, map[Ticket]Launch{}
		for i := range 15 {
			s := &state{prompt: 1 + r.IntN(1000), want: r.IntN(2000), length: 1 + r.IntN(1<<r.IntN(13))}
			if limit > 0 && s.want == 0 {
				s.want = 1 + r.IntN(2000)
			}
			calls[Ticket(i+1)] = s
			core.Offer(Request{
				Ticket: Ticket(i + 1), Episode: fmt.Sprint(i), Group: fmt.Sprint(i / 3), Prompt: s.prompt, Exact: true, Want: s.want, Turns: 1, GroupSize: 3, Continues: i%7 != 0,
			}, 0)
		}
		now := Time(0)
		for round := 0; len(calls) > 0; round++ {
			launches, rejects, wait := core.Next(now)
			if len(rejects) > 0 || round > 20_000 {
				t.Fatalf("%v: rejected %v, %d calls left", now, rejects, len(calls))
			}
			for _, l := range launches {
				s := calls[l.Ticket]
				rest := s.want
				if s.want > 0 {
					rest = s.want - s.got
				}
				if limit > 0 {
					rest = min(rest, limit-s.prompt-s.got)
				}
				if l.Cut && (l.MaxTokens < 1 || rest > 0 && l.MaxTokens >= rest) || !l.Cut && l.MaxTokens != rest {
					t.Fatalf("call %d of %+v: launched for %d tokens, cut %v, expected %d in all", l.Ticket, *s, l.MaxTokens, l.Cut, rest)
				}
				flying[l.Ticket] = l
			}
			if len(flying) == 0 {
				now += max(wait, 1)
				continue
			}
			now += time.Second
			for k, l := range flying {
				s := calls[k]
				delete(flying, k)
				left := s.length - s.got
				switch {
				case r.IntN(10) == 0:
					if core.Settle(k, &episode.Fault{Class: episode.ClassServerError, Cause: errors.New("scripted"), Retry: true}, Usage{}, now) != Retrying {
						delete(calls, k)
					}
				case l.Cut && left > l.MaxTokens:
					s.got += l.MaxTokens
					if d := core.Cut(k, 0, Usage{l.MaxTokens, -1}, now); d != Continuing {
						t.Fatalf("decision %d", d)
					}
				default:
					core.Settle(k, nil, Usage{max(left, 1), -1}, now)
					delete(calls, k)
				}
			}
		}
		if states, waiting := core.State(); waiting != 0 || states[0].Promised != 0 || states[1].Promised != 0 {
			t.Fatalf("%d wait, %+v", waiting, states)
		}
	})
}
