package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
	"tranche/episode"
)

// world plays random calls, faults and service times against a core in virtual time, and checks the laws at every step.
type world struct {
	core     *Core
	rnd      *rand.Rand
	now      Time
	running  map[Ticket]flight
	ended    map[Ticket]string
	pending  int
	history  []string
	faulty   float64
	deadTill map[int]Time
	acting   map[string]Time // episodes in an action, until when
	left     map[string]int  // calls each episode still makes
	of       map[Ticket]string
	tickets  Ticket
	launched int // calls
	hedged   int // second attempts
}

type flight struct {
	launch Launch
	until  Time
}

func (w *world) fatal(t *rapid.T, format string, args ...any) {
	t.Fatalf("at %v: %s", w.now, fmt.Sprintf(format, args...))
}

func (w *world) step(t *rapid.T) {
	launches, rejects, wait := w.core.Next(w.now)
	if again, _, _ := w.core.Next(w.now); len(again) > 0 {
		w.fatal(t, "Next left %d calls that could have been launched", len(again))
	}
	for _, r := range rejects {
		w.end(t, w.call(r.Ticket), "rejected")
		w.after(w.call(r.Ticket), true)
	}
	w.checkBatches(t, launches)
	for _, l := range launches {
		if _, twice := w.running[l.Ticket]; twice {
			w.fatal(t, "call %d launched twice at once", l.Ticket)
		}
		w.checkHedge(t, l)
		w.running[l.Ticket] = flight{l, w.now + time.Duration(w.rnd.IntN(2000)+1)*time.Millisecond}
		w.history = append(w.history, fmt.Sprint(w.now, l))
	}
	w.checkBudgets(t)
	w.checkPrefixes(t)
	w.checkIdle(t)
	_, acted, acting := w.nextActor()
	if next, ok := w.earliest(); ok && (wait < 0 || w.running[next].until <= w.now+wait) && (!acting || w.running[next].until <= acted) {
		w.now = max(w.now, w.running[next].until)
		w.settle(t, next)
		return
	}
	if w.pending == 0 && len(w.acting) == 0 && len(w.running) == 0 {
		return
	}
	if id, until, ok := w.nextActor(); ok && (wait < 0 || until <= w.now+wait) {
		w.now = max(w.now, until)
		delete(w.acting, id)
		w.offer(id)
		return
	}
	if wait < 0 {
		for k, c := range w.core.calls {
			t.Logf("call %d %+v\nlife %+v", k, *c, *c.life)
		}
		for _, r := range w.core.replicas {
			t.Logf("%+v", *r)
		}
		w.fatal(t, "%d calls wait and nothing will ever happen; in flight %v, acting %v", w.pending, w.running, w.acting)
	}
	w.now += wait
}

// offer sends the next call of an episode to the core.
func (w *world) offer(id string) {
	w.tickets++
	w.of[w.tickets] = id
	w.pending++
	prompt := 1 + w.rnd.IntN(400)
	w.core.Offer(Request{
		Ticket: w.tickets, Episode: id, Group: "g" + id[:1], Cell: episode.Cell{DataSource: id[:1]}, Prompt: prompt, Prefix: w.begins(prompt), Exact: w.rnd.IntN(2) == 0,
		Want: w.rnd.IntN(200), MinUseful: w.rnd.IntN(16), Turns: w.calls(id), GroupSize: 1 + w.rnd.IntN(4),
	}, w.now)
}

// calls is what the client knows of how many calls an episode may still make: of some nothing, of some that it is one.
func (w *world) calls(id string) int {
	if id[0] == 'a' {
		return w.left[id]
	}
	return 0
}

func (w *world) nextActor() (id string, until Time, ok bool) {
	for e, u := range w.acting {
		if !ok || u < until || (u == until && e < id) {
			id, until, ok = e, u, true
		}
	}
	return id, until, ok
}

// after is what an episode does when a call of it has ended: leave, act, or call again at once.
func (w *world) after(k Ticket, failed bool) {
	id := w.of[k]
	w.left[id]--
	switch {
	case failed || w.left[id] <= 0:
		w.core.Leave(id)
		delete(w.left, id)
	case w.rnd.IntN(3) > 0:
		w.core.Act(id, []string{"quick", "slow"}[w.rnd.IntN(2)], w.now)
		w.acting[id] = w.now + time.Duration(w.rnd.IntN(40000))*time.Millisecond
	default:
		w.offer(id)
	}
}

func (w *world) earliest() (Ticket, bool) {
	best, found := Ticket(0), false
	for t, f := range w.running {
		if !found || f.until < w.running[best].until || (f.until == w.running[best].until && t < best) {
			best, found = t, true
		}
	}
	return best, found
}

func (w *world) settle(t *rapid.T, k Ticket) {
	f := w.running[k]
	delete(w.running, k)
	var fault *episode.Fault
	switch {
	case w.now < w.deadTill[f.launch.Replica]:
		fault = &episode.Fault{Class: episode.ClassConnect, Retry: true, Cause: errors.New("dead")}
	case w.rnd.Float64() < w.faulty:
		classes := []episode.Class{episode.ClassServerError, episode.ClassRateLimited, episode.ClassReset, episode.ClassBadRequest, episode.ClassTimeout, episode.ClassOverflow}
		c := classes[w.rnd.IntN(len(classes))]
		fault = &episode.Fault{Class: c, Retry: c != episode.ClassBadRequest, Cause: errors.New("x"), After: time.Duration(w.rnd.IntN(3)) * time.Second}
	}
	_, answered := w.ended[w.call(k)]
	switch d := w.core.Settle(k, fault, Usage{w.rnd.IntN(f.launch.MaxTokens + 1), w.rnd.IntN(400) - 1}, w.now); d {
	case Retrying:
	case Lost:
		if !answered {
			w.fatal(t, "attempt %d lost to one that was not answered", k)
		}
	case Outlived:
		if _, ok := w.running[-k]; !ok || answered {
			w.fatal(t, "attempt %d is outlived by one that does not run, or after the answer", k)
		}
	default:
		w.end(t, w.call(k), "settled")
		w.after(w.call(k), fault != nil)
	}
}

// call is the ticket of the call that an attempt belongs to.
func (w *world) call(k Ticket) Ticket { return max(k, -k) }

// checkHedge holds second attempts to their budget, and to being one beside the first, elsewhere.
func (w *world) checkHedge(t *rapid.T, l Launch) {
	if !l.Hedge {
		w.launched++
		return
	}
	w.hedged++
	if first, ok := w.running[w.call(l.Ticket)]; !ok || l.Ticket > 0 || first.launch.Replica == l.Replica {
		w.fatal(t, "%+v is no second attempt on another replica of %+v", l, first)
	}
	if float64(w.hedged) > w.core.rules.Hedge*float64(w.launched) {
		w.fatal(t, "%d second attempts of %d calls, at most %g of them may be", w.hedged, w.launched, w.core.rules.Hedge)
	}
}

func (w *world) end(t *rapid.T, k Ticket, how string) {
	if was, twice := w.ended[k]; twice {
		w.fatal(t, "call %d ended twice: %s, then %s", k, was, how)
	}
	w.ended[k] = how
	w.pending--
}

// checkBatches: a replica that pads is given nothing while it runs a batch, and no more than it has rows.
func (w *world) checkBatches(t *rapid.T, launches []Launch) {
	given := map[int]int{}
	for _, l := range launches {
		given[l.Replica]++
	}
	for i, r := range w.core.replicas {
		if r.Rows == 0 || given[i] == 0 {
			continue
		}
		for k, f := range w.running {
			if f.launch.Replica == i {
				w.fatal(t, "%s is given %d calls while it runs call %d", r.Name, given[i], k)
			}
		}
		if given[i] > r.Rows {
			w.fatal(t, "%s is given %d calls and has %d rows", r.Name, given[i], r.Rows)
		}
	}
}

// checkBudgets is law 2: what is promised never exceeds a replica's budget, and is the sum over its running calls.
func (w *world) checkBudgets(t *rapid.T) {
	perReplica := map[int]int{}
	calls := map[int]int{}
	for k, f := range w.running {
		perReplica[f.launch.Replica] += w.core.calls[k].Prompt + f.launch.MaxTokens
		calls[f.launch.Replica]++
	}
	firsts, all := map[*groupHome]int{}, map[*groupHome]int{}
	for k := range w.running {
		l := w.core.calls[k].life
		if all[l.siblings]++; l.turns == 0 && w.core.calls[k].got == 0 {
			firsts[l.siblings]++
		}
	}
	for _, g := range w.core.groups {
		if g.firsts < firsts[g] || g.firsts > all[g] {
			w.fatal(t, "a group is said to have %d first calls running, of its %d running %d are", g.firsts, all[g], firsts[g])
		}
	}
	states, _ := w.core.State()
	for i, s := range states {
		if s.Promised != perReplica[i] || s.Running != calls[i] {
			w.fatal(t, "%s says %d tokens in %d calls, its calls make %d in %d", s.Name, s.Promised, s.Running, perReplica[i], calls[i])
		}
		if w.core.replicas[i].Strict && s.Capacity.KVTokens > 0 && s.Promised > s.Capacity.KVTokens {
			w.fatal(t, "%s promised %d tokens of %d", s.Name, s.Promised, s.Capacity.KVTokens)
		}
		if r := w.core.replicas[i]; r.peak() != r.sum.peakWith(plan{}) {
			w.fatal(t, "%s is taken to need %g tokens at most, its episodes' plans make %g", s.Name, r.peak(), r.sum.peakWith(plan{}))
		}
	}
}

func newWorld(t *rapid.T, seed uint64) *world {
	var replicas []ReplicaConfig
	for i := range rapid.IntRange(1, 5).Draw(t, "replicas") {
		rows := rapid.SampledFrom([]int{0, 0, 1, 3, 8}).Draw(t, "rows")
		var shapes []int
		if rows > 0 && rapid.Bool().Draw(t, "shaped") {
			shapes = []int{64, 128, 256}
		}
		replicas = append(replicas, ReplicaConfig{
			Rows: rows, Shapes: shapes, Strict: rapid.Bool().Draw(t, "strict"), Name: fmt.Sprint("r", i), MaxCalls: rapid.IntRange(0, 4).Draw(t, "calls"),
			Capacity: episode.Capacity{KVTokens: rapid.SampledFrom([]int{0, 500, 4000}).Draw(t, "kv"), ContextTokens: rapid.SampledFrom([]int{0, 300, 2000}).Draw(t, "context")},
		})
	}
	hedge := rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(t, "hedge")
	core, err := NewCore(Rules{Seed: seed, Hedge: hedge, HedgeAfter: 50 * time.Millisecond, EarlyYield: rapid.Bool().Draw(t, "early"), AgeLimit: 5 * time.Second, Patience: 10 * time.Second, Cooldown: 500 * time.Millisecond, MinPrefix: 32, SharersInRow: 3}, replicas)
	if err != nil {
		t.Fatal(err)
	}
	return &world{
		core: core, rnd: rand.New(rand.NewPCG(seed, 1)), running: map[Ticket]flight{}, ended: map[Ticket]string{}, deadTill: map[int]Time{},
		acting: map[string]Time{}, left: map[string]int{}, of: map[Ticket]string{},
		faulty: rapid.SampledFrom([]float64{0, 0.05, 0.5}).Draw(t, "faulty"),
	}
}

// TestLaws: every offered call ends exactly once (law 1), budgets hold at every step (law 2), nothing waits for ever (law 3).
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		w := newWorld(t, seed)
		for i := range w.core.replicas {
			if w.rnd.IntN(3) == 0 {
				w.deadTill[i] = time.Duration(w.rnd.IntN(30)) * time.Second
			}
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "episodes") {
			id := fmt.Sprintf("%c%d", 'a'+rune(w.rnd.IntN(5)), i)
			w.left[id] = 1 + w.rnd.IntN(6)
			w.offer(id)
			if w.rnd.IntN(4) > 0 {
				w.step(t)
			}
		}
		for steps := 0; w.pending > 0 || len(w.acting) > 0 || len(w.running) > 0; steps++ {
			if steps > 100000 {
				w.fatal(t, "%d calls have still not ended", w.pending)
			}
			w.step(t)
		}
		if _, waiting := w.core.State(); waiting != 0 || len(w.core.calls) != 0 {
			w.fatal(t, "the core still holds %d waiting, %d known calls", waiting, len(w.core.calls))
		}
		for _, r := range w.core.replicas {
			if r.flow.running != 0 || r.flow.prompts != 0 || r.flow.begun != 0 || r.flow.ahead != (drain{}) {
				w.fatal(t, "%s still counts %+v", r.Name, r.flow)
			}
			if r.inside != 0 || len(r.members) != 0 || r.sum != (plan{}) || r.singles != (singles{}) {
				w.fatal(t, "%s still counts %d episodes, %v", r.Name, r.inside, r.sum)
			}
		}
		if p := w.core.padding; p != nil && p.waiting != 0 {
			w.fatal(t, "%d calls are still taken to wait for replicas that pad", p.waiting)
		}
		if len(w.core.lives) != 0 || len(w.core.groups) != 0 {
			w.fatal(t, "the core still knows %d episodes, %d groups", len(w.core.lives), len(w.core.groups))
		}
	})
}

// TestCoreIsDeterministic: the same calls at the same times give the same decisions (law 7).
func TestCoreIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		fleet := rapid.IntRange(1, 4).Draw(t, "fleet")
		play := func() []string {
			var rs []ReplicaConfig
			for i := range fleet {
				rs = append(rs, ReplicaConfig{Name: fmt.Sprint(i), MaxCalls: 2, Rows: 3 * (i % 2)})
			}
			core, _ := NewCore(Rules{Seed: seed, MinPrefix: 32}, rs)
			w := &world{core: core, rnd: rand.New(rand.NewPCG(seed, 2)), running: map[Ticket]flight{}, ended: map[Ticket]string{}, faulty: 0.3,
				acting: map[string]Time{}, left: map[string]int{}, of: map[Ticket]string{}}
			for i := range 20 {
				id := fmt.Sprintf("%c%d", 'a'+rune(i%3), i)
				w.left[id] = 1 + i%4
				w.offer(id)
			}
			for w.pending > 0 || len(w.acting) > 0 {
				w.step(t)
			}
			return w.history
		}
		if a, b := play(), play(); fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("two histories of one seed:\n%v\n%v", a, b)
		}
	})
}

// BenchmarkCore measures one offer, launch and settle with 50,000 episodes open on 8 replicas: groups of 8 whose prompts have nothing in
// common with other groups', or a first text that all have, a second that 64 have, and so on.
func BenchmarkCore(b *testing.B) {
	for name, cuts := range map[string]int{"apart": 0, "prefixes": 12} {
		b.Run(name, func(b *testing.B) { benchmarkCore(b, cuts) })
	}
}

func benchmarkCore(b *testing.B, cuts int) {
	var rs []ReplicaConfig
	for i := range 8 {
		rs = append(rs, ReplicaConfig{Name: fmt.Sprint(i), MaxCalls: 64, Capacity: episode.Capacity{KVTokens: 400000, ContextTokens: 32768}})
	}
	core, _ := NewCore(Rules{}, rs)
	r := rand.New(rand.NewPCG(1, 2))
	next := Ticket(0)
	offer := func() {
		next++
		var begins []Mark
		for k, tokens := 0, 256; k < cuts; k, tokens = k+1, tokens*5/4 {
			share := []Ticket{1 << 40, 64, 64, 8}[min(k, 3)]
			begins = append(begins, Mark{Hash: uint64(k)<<40 + uint64(next/share), Tokens: tokens})
		}
		prompt := 100 + r.IntN(8000)
		if cuts > 0 {
			prompt += begins[cuts-1].Tokens
		}
		core.Offer(Request{Ticket: next, Episode: fmt.Sprint(next), Group: fmt.Sprint(next / 8), Prompt: prompt, Exact: true, Want: 512, Prefix: begins}, 0)
	}
	for range 50000 {
		offer()
	}
	var flying []Ticket
	b.ReportAllocs()
	for b.Loop() {
		ls, _, _ := core.Next(0)
		for _, l := range ls {
			flying = append(flying, l.Ticket)
		}
		t := flying[0]
		flying = flying[1:]
		core.Settle(t, nil, Usage{100, -1}, 0)
		core.Leave(fmt.Sprint(t))
		offer()
	}
}
