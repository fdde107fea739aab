package scheduler

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
	"tranche/episode"
)

// ends is all episodes that ever ended on a replica.
type ends []remain

// inTheWayOf is the contexts of those that were used later than the one that has been between two calls for longest.
func (e ends) inTheWayOf(r *replica) float64 {
	sum := 0.0
	for _, x := range e {
		if slices.ContainsFunc(r.members, func(l *life) bool {
			return l.turns > 0 && l.used < x.at && l.call == nil
		}) {
			sum += x.tokens
		}
	}
	return sum
}

// TestNoneIsAdmittedIntoTheMargin plays random episodes of many calls and checks, whenever one was admitted beside others, that
// what all inside are projected to need, half a block each included, leaves the margin of so few free. And, always, that what is taken to
// be in their way of those that ended is what a search over all of them finds.
func TestNoneIsAdmittedIntoTheMargin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.SampledFrom([]int{0, 16, 128}).Draw(t, "block")
		c, err := NewCore(Rules{}, []ReplicaConfig{{Name: "a", Capacity: episode.Capacity{KVTokens: 16384, ContextTokens: 8192, BlockTokens: block}}})
		if err != nil {
			t.Fatal(err)
		}
		r, now, next := c.replicas[0], Time(0), Ticket(0)
		var ended ends
		prompts, running := map[string]int{}, map[Ticket]string{}
		offer := func(id string) {
			next++
			running[next] = "" // not launched
			c.Offer(Request{Ticket: next, Episode: id, Group: id, Prompt: prompts[id], Exact: true, Want: 128, MinUseful: 1}, now)
		}
		for i := range rapid.IntRange(2, 30).Draw(t, "episodes") {
			id := fmt.Sprint(i)
			prompts[id] = rapid.IntRange(50, 1500).Draw(t, "prompt")
			offer(id)
		}
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond
			before := c.admissions
			launches, _, _ := c.Next(now)
			if need := r.sum.peakWith(plan{}) * lumpy(r.inside); c.admissions > before && r.inside > 1 && need > r.theta*r.holds()*(1+1e-9) {
				t.Fatalf("step %d: %d episodes were let in that need %.0f tokens with their margin, of %.0f that may be promised", step, r.inside, need, r.theta*r.holds())
			}
			for _, l := range launches {
				running[l.Ticket] = c.calls[l.Ticket].Episode
			}
			if got, want := r.inTheWay(), ended.inTheWayOf(r); math.Abs(got-want) > 1e-6 {
				t.Fatalf("step %d: %.0f tokens of episodes that ended are said to be in the way of those inside, want %.0f", step, got, want)
			}
			for k := Ticket(1); k <= next; k++ {
				id := running[k]
				if id == "" || rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
					continue
				}
				delete(running, k)
				c.Settle(k, nil, Usage{Generated: 100, Cached: -1}, now)
				if prompts[id] += rapid.IntRange(110, 500).Draw(t, "new"); prompts[id] > 6000 || rapid.IntRange(0, 5).Draw(t, "over") == 0 {
					if l := c.lives[id]; l.inside {
						ended = append(ended, remain{at: now, tokens: float64(l.context)})
					}
					c.Leave(id)
					continue
				}
				c.Act(id, "tool", now)
				offer(id)
			}
		}
	})
}

func TestOrdinaryActionsKeepTheirPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mean := time.Duration(rapid.IntRange(500, 3500).Draw(t, "mean")) * time.Millisecond // more than the least hold is too slow anyway
		c, err := NewCore(Rules{}, []ReplicaConfig{{Name: "a", Capacity: episode.Capacity{KVTokens: 4096, ContextTokens: 4096}}})
		if err != nil {
			t.Fatal(err)
		}
		for range 40 { // as long as each other, as far as the mean goes
			c.actions.Add("tool", int(mean/timeUnit))
		}
		c.Offer(Request{Ticket: 1, Episode: "x", Group: "x", Prompt: 300, Exact: true, Want: 100, MinUseful: 1}, 0)
		c.Offer(Request{Ticket: 2, Episode: "y", Group: "y", Prompt: 3000, Exact: true, Want: 100, MinUseful: 1}, 0)
		if l, _, _ := c.Next(0); len(l) != 1 {
			t.Fatalf("%d calls launched, want one: there is no room for two", len(l))
		}
		first := c.lives["x"]
		if !first.inside {
			first = c.lives["y"]
		}
		c.Settle(first.call.Ticket, nil, Usage{Generated: 10, Cached: -1}, 0)
		c.Act(first.id, "tool", 0)
		took := time.Duration(rapid.Float64Range(0, 3.9).Draw(t, "took") * float64(c.usual("tool")) / patientTimes)
		if l, _, _ := c.Next(took); len(l) != 0 || !first.inside {
			t.Fatalf("turned out after %v, of actions that take %v", took, mean)
		}
	})
}

func TestTheOneWithLeastToComputeAgainIsPaused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, err := NewCore(Rules{PauseAt: 2}, []ReplicaConfig{{Name: "a", Capacity: episode.Capacity{KVTokens: 8192, ContextTokens: 8192}}})
		if err != nil {
			t.Fatal(err)
		}
		r := c.replicas[0]
		for i := range rapid.IntRange(2, 8).Draw(t, "inside") {
			l := &life{id: fmt.Sprint(i), context: rapid.IntRange(500, 4000).Draw(t, "context"), siblings: &groupHome{}}
			l.plan[0] = float64(l.context)
			c.enter(l, 0)
		}
		members := slices.Clone(r.members)
		c.rules.PauseAt = 0.97
		c.crowded(members[0])
		if members[0].inside && r.inside > 1 && r.sum[0] > 0.97*8192 {
			t.Fatalf("%.0f tokens of 8192 are left inside in %d episodes", r.sum[0], r.inside)
		}
		for _, out := range members {
			for _, in := range r.members {
				if !out.inside && out.context > in.context {
					t.Fatalf("an episode of %d tokens was paused, one of %d was not", out.context, in.context)
				}
			}
		}
	})
}

func TestGrowthBeyondTheServersOwnReadingNeedsMoreToShowIt(t *testing.T) {
	for name, c := range map[string]struct {
		measured float64
		running  int // of 8 inside
		back     int // contexts that came back whole
		want     float64
	}{
		"told right, a few came back": {1, 6, 99, 1},
		"told right, a hundred did":   {1, 6, 104, 1 + keepStep},
		"told half":                   {2, 6, 16, (1 + keepStep) * (1 + keepStep)},
		"most are between calls":      {1, 3, 16, (1 + keepStep) * (1 + keepStep)},
		"no reading of its memory":    {0, 6, 16, (1 + keepStep) * (1 + keepStep)},
	} {
		t.Run(name, func(t *testing.T) {
			r := &replica{scale: 1, probed: true, inside: 8, running: c.running, gauge: gauge{measured: c.measured}}
			for range c.back {
				r.trim(1000, 1000, true, true)
			}
			if math.Abs(r.scale-c.want) > 1e-9 {
				t.Errorf("taken to hold %g of what we were told, want %g", r.scale, c.want)
			}
		})
	}
}
