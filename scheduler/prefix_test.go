package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
	"tranche/episode"
)

// checkPrefixes is what holds of prefixes at every step: an episode inside is a user of each of its prefixes, once, and what is not counted
// for it is counted for the first user; lines and counts agree.
func (w *world) checkPrefixes(t *rapid.T) {
	waits, open := map[*prefix]int{}, map[*prefix]int{}
	for _, l := range w.core.lives {
		shared := 0
		for k, n := range l.chain {
			open[n]++
			if l.call != nil && l.call.lined {
				waits[n]++
			}
			if !l.inside {
				continue
			}
			h := n.home(l.replica)
			if h == nil || l.spots[k] >= len(h.users) || h.users[l.spots[k]].life != l {
				w.fatal(t, "%s is inside %d and no user of its prefix of %d tokens", l.id, l.replica, n.Tokens)
			}
			if l.spots[k] > 0 {
				shared += n.step
			}
		}
		if l.shared != shared {
			w.fatal(t, "%s: %d tokens of prefixes are said to be counted for others, %d are", l.id, l.shared, shared)
		}
	}
	for _, n := range w.core.prefixes {
		if n.open != open[n] || n.waits != waits[n] || len(n.line) < n.waits {
			w.fatal(t, "a prefix of %d tokens says %d open, %d waiting with %d in line; it is %d and %d", n.Tokens, n.open, n.waits, len(n.line), open[n], waits[n])
		}
		if n.open == 0 && len(n.homes) == 0 {
			w.fatal(t, "a prefix of %d tokens that nobody has is remembered", n.Tokens)
		}
	}
}

// checkIdle is work conservation: after Next no replica has nothing to do while a call waits that it could take, its origin's time of
// grace and a call past its age limit aside.
func (w *world) checkIdle(t *rapid.T) {
	c := w.core
	for level, limit := range []Time{c.rules.StartLimit, c.rules.AgeLimit} {
		if head := c.byAge.Head(level); head != nil && w.now-head.Value.since > limit {
			return
		}
	}
	for i, r := range c.replicas {
		if r.Rows > 0 || r.running > 0 || r.inside > 0 || !r.ready(w.now) {
			continue
		}
		for _, k := range c.calls {
			if k.state == waiting && slices.Contains(k.reach().members, i) && !c.barred(r, k) {
				w.fatal(t, "%s has nothing to do while call %d waits (%+v)", r.Name, k.Ticket, k.Request)
			}
		}
	}
}

// begins draws what an episode's prompt begins with: one of two texts, then one of four that continue it, then all of it.
func (w *world) begins(prompt int) []Mark {
	a, b := w.rnd.Uint64N(2), w.rnd.Uint64N(4)
	all := []Mark{{Hash: 1 + a, Tokens: 40}, {Hash: 10 + 4*a + b, Tokens: 90}, {Hash: 100 + 8*uint64(prompt) + 4*a + b, Tokens: prompt}}
	return slices.DeleteFunc(all, func(m Mark) bool { return m.Tokens > prompt })[:w.rnd.IntN(2)*min(3, 1+prompt/90)]
}

// TestPrefixesAreForgotten: what the core remembers of prefixes that nobody open has is bounded by what the replicas can hold.
func TestPrefixesAreForgotten(t *testing.T) {
	core, err := NewCore(Rules{}, []ReplicaConfig{{Name: "a", Capacity: episode.Capacity{KVTokens: 100_000}}, {Name: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for i := range 5000 {
		n, id := Ticket(i+1), fmt.Sprint(i)
		core.Offer(Request{Ticket: n, Episode: id, Group: id, Prompt: 2000, Want: 10, Exact: true, Turns: 1, Prefix: []Mark{{uint64(2 * i), 1000}, {uint64(2*i + 1), 2000}}}, 0)
		if ls, _, _ := core.Next(0); len(ls) != 1 {
			t.Fatalf("call %d: %v", i, ls)
		}
		core.Settle(n, nil, Usage{10, -1}, 0)
		core.Leave(id)
		most = max(most, len(core.prefixes))
	}
	if limit := 2 * (100_000 + assumedCache) / 2000; most > limit+8 {
		t.Errorf("%d prefixes were remembered, the replicas hold %d", most, limit)
	}
	for _, r := range core.replicas {
		if len(r.cache.idle) > 1000 {
			t.Errorf("%s lists %d idle prefixes", r.Name, len(r.cache.idle))
		}
	}
}

// TestOddOneIsNotStarved: sharers that never end do not keep out a call that shares nothing, whatever its length.
func TestOddOneIsNotStarved(t *testing.T) {
	for _, prompt := range []int{300, 20_000} {
		t.Run(fmt.Sprint(prompt), func(t *testing.T) {
			core, err := NewCore(Rules{StartLimit: time.Minute}, []ReplicaConfig{{Name: "a", MaxCalls: 2, Capacity: episode.Capacity{KVTokens: 100_000}}})
			if err != nil {
				t.Fatal(err)
			}
			next := Ticket(1)
			offer := func(now Time) {
				next++
				core.Offer(Request{Ticket: next, Episode: fmt.Sprint(next), Group: "g", Prompt: 8000, Exact: true, Want: 10, Turns: 1, Prefix: []Mark{{7, 8000}}}, now)
			}
			core.Offer(Request{Ticket: 1, Episode: "odd", Group: "odd", Prompt: prompt, Exact: true, Want: 10, Turns: 1}, 0)
			for range 32 {
				offer(0)
			}
			var flying []Ticket
			for step := range 1000 {
				now := time.Duration(step) * 100 * time.Millisecond
				ls, _, _ := core.Next(now)
				for _, l := range ls {
					if l.Ticket == 1 {
						if now > time.Minute+time.Second {
							t.Errorf("sent after %v only", now)
						}
						return
					}
					flying = append(flying, l.Ticket)
				}
				core.Settle(flying[0], nil, Usage{10, -1}, now)
				core.Leave(fmt.Sprint(flying[0]))
				flying = flying[1:]
				offer(now)
			}
			t.Error("never sent")
		})
	}
}

// TestMemoryIsCountedOnce: whoever comes and goes in whatever order, a replica counts the tokens of each prefix once and the rest of each
// prompt.
func TestMemoryIsCountedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		core, err := NewCore(Rules{}, []ReplicaConfig{{Name: "a", Capacity: episode.Capacity{KVTokens: 10_000_000}}})
		if err != nil {
			t.Fatal(err)
		}
		inside := map[Ticket]Request{}
		next := Ticket(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(inside) == 0 || rnd.IntN(3) > 0 {
				next++
				doc, rest := rnd.Uint64N(3), 1+rnd.IntN(500)
				r := Request{Ticket: next, Episode: fmt.Sprint(next), Group: "g", Prompt: 1000*int(doc+1) + rest, Exact: true, Want: 10, Turns: 1,
					Prefix: []Mark{{10 + doc, 1000 * int(doc+1)}}}
				core.Offer(r, 0)
				core.Next(0)
				inside[next] = r
			} else {
				k := slices.Sorted(func(yield func(Ticket) bool) {
					for k := range inside {
						if !yield(k) {
							return
						}
					}
				})[rnd.IntN(len(inside))]
				core.Settle(k, nil, Usage{5, -1}, 0)
				core.Leave(fmt.Sprint(k))
				delete(inside, k)
			}
			want, docs := 0, map[uint64]bool{}
			for _, r := range inside {
				m := r.Prefix[0]
				if want += r.Prompt - m.Tokens; !docs[m.Hash] {
					want, docs[m.Hash] = want+m.Tokens, true
				}
			}
			if got := core.replicas[0].singles.prompts; got != want {
				t.Fatalf("%d tokens are counted, %d are held", got, want)
			}
		}
	})
}
