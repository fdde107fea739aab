package scheduler

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
	"tranche/episode"
)

// TestNoneIsAdmittedIntoTheMargin plays random episodes of many calls and checks, whenever one was admitted beside others, that
// what all inside are projected to need, half a block each included, leaves the margin of so few free.
func TestNoneIsAdmittedIntoTheMargin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.SampledFrom([]int{0, 16, 128}).Draw(t, "block")
		c, err := NewCore(Rules{}, []ReplicaConfig{{Name: "a", Capacity: episode.Capacity{KVTokens: 16384, ContextTokens: 8192, BlockTokens: block}}})
		if err != nil {
			t.Fatal(err)
		}
		r, now, next := c.replicas[0], Time(0), Ticket(0)
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
			for k := Ticket(1); k <= next; k++ {
				id := running[k]
				if id == "" || rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
					continue
				}
				delete(running, k)
				c.Settle(k, nil, Usage{Generated: 100, Cached: -1}, now)
				if prompts[id] += rapid.IntRange(110, 500).Draw(t, "new"); prompts[id] > 6000 || rapid.IntRange(0, 5).Draw(t, "over") == 0 {
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
