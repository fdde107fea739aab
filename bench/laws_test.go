package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/scheduler"
)

// The laws of the scheduler's core on random fleets, loads and incidents, played on the simulated engines: every episode ends exactly
// once and whole, no call is lost or doubled, no replica that could work idles while a call waits, nobody waits for ever, and all time is
// accounted for. TestLawsOnRandomFleets plays some; `go test -run - -fuzz FuzzFleet ./bench` looks for more.

// gamble is a random fleet with a random load on it.
type gamble struct {
	fleet    Fleet
	workload Workload
	rules    scheduler.Rules
	down     time.Duration // how long replicas were not up, together
	each     time.Duration // what an episode may take of the others' time
}

// gambleOf makes the gamble of a seed: at most so many replicas, episodes and incidents.
func gambleOf(seed uint64, replicas, episodes, incidents int) gamble {
	r := rand.New(rand.NewPCG(seed, 7))
	g := gamble{each: 10 * time.Second, workload: mixed(1+r.IntN(episodes), seed).Slower([]float64{0.1, 1, 5}[r.IntN(3)])}
	for i := range 1 + r.IntN(replicas) {
		g.fleet.Replicas = append(g.fleet.Replicas, randomReplica(r, i == 0))
	}
	if r.IntN(3) > 0 {
		g.fleet.MaxOpen = 1 + r.IntN(2*len(g.workload.Episodes))
	}
	g.fleet.MetricsEvery = []time.Duration{0, time.Second, 10 * time.Second}[r.IntN(3)]
	g.fleet.Told = func(i int, truth episode.Capacity) episode.Capacity {
		told := float64(truth.KVTokens) * []float64{0.5, 1, 1.5}[(int(seed)+i)%3]
		truth.KVTokens = max(int(told), truth.ContextTokens)
		return truth
	}
	for range r.IntN(incidents + 1) {
		at, out := time.Duration(r.IntN(20_000))*time.Millisecond, time.Duration(1+r.IntN(20_000))*time.Millisecond
		who, what := r.IntN(len(g.fleet.Replicas)), []IncidentKind{Dies, Drains}[r.IntN(2)]
		g.fleet.Incidents = append(g.fleet.Incidents, Incident{who, at, what}, Incident{who, at + out, Heals})
		g.down += out
	}
	g.fleet.Seed = seed
	g.rules = scheduler.Rules{MaxAttempts: 1 << 30, BackoffMax: 2 * time.Second, CooldownMax: 2 * time.Second, Patience: time.Hour, StartLimit: time.Minute}
	return g
}

// randomReplica is one of any size, speed and kind; a sure one holds every episode of the load.
func randomReplica(r *rand.Rand, sure bool) enginesim.Config {
	c := small()
	if !sure {
		c.ContextTokens = 512 + 128*r.IntN(16)
	}
	c.KVTokens = c.ContextTokens + 64 + 512*r.IntN(16)
	c.MaxSeqs = 2 + r.IntN(14)
	c.StepBudget = c.MaxSeqs + r.IntN(512)
	c.NullBlock, c.NoPrefixCache, c.Priority = r.IntN(4) == 0, r.IntN(6) == 0, r.IntN(6) == 0
	slow := []float64{0.5, 1, 4}[r.IntN(3)]
	c.Step.Base, c.Step.Floor, c.Step.PerToken = slow*c.Step.Base, slow*c.Step.Floor, slow*c.Step.PerToken
	if r.IntN(6) == 0 {
		c.Batching = []enginesim.Batching{enginesim.Static, enginesim.Shaped}[r.IntN(2)]
	}
	return c
}

// referee is the core as a policy, watched.
type referee struct {
	*corePolicy
	t        testing.TB
	fleet    Fleet
	told     []scheduler.ReplicaConfig
	calls    map[scheduler.Ticket]*asked
	asks     map[string]bool // episodes with a call
	left     map[string]bool
	empty    []time.Duration // since when each replica is up and empty and gets nothing
	seen     []int           // attempts on each at that time
	sent     []int           // attempts on each
	idle     time.Duration   // how long a replica may be so: its first calls after an outage are spaced
	longest  time.Duration   // that a call waited
	patience time.Duration   // how long a call may wait beside an empty replica: for its own one, and after a failure
}

// asked is a call that was made and is not answered.
type asked struct {
	scheduler.Request
	since  time.Duration // waiting since, or since it failed last
	on     int           // replica where it runs; -1 = it waits
	failed int           // replica that failed it last; -1 = none
}

func newReferee(t testing.TB, g gamble) *referee {
	told := g.fleet.Tell(g.workload).Replicas
	core, err := scheduler.NewCore(g.rules, told)
	if err != nil {
		t.Fatal(err)
	}
	return &referee{
		corePolicy: &corePolicy{core}, t: t, fleet: g.fleet, told: told, calls: map[scheduler.Ticket]*asked{}, asks: map[string]bool{}, left: map[string]bool{},
		patience: 8*time.Second + g.rules.BackoffMax + time.Second, idle: time.Second, empty: make([]time.Duration, len(told)), seen: make([]int, len(told)), sent: make([]int, len(told)),
	}
}

func (r *referee) Offer(q scheduler.Request, now scheduler.Time) {
	if r.asks[q.Episode] || r.left[q.Episode] {
		r.t.Errorf("at %v episode %s makes call %d while another is open, or after it left", now, q.Episode, q.Ticket)
	}
	r.asks[q.Episode] = true
	r.calls[q.Ticket] = &asked{q, now, -1, -1}
	r.corePolicy.Offer(q, now)
}

func (r *referee) Next(now scheduler.Time) ([]scheduler.Launch, []scheduler.Reject, scheduler.Time) {
	launches, rejects, wait := r.corePolicy.Next(now)
	for _, l := range launches {
		w := r.calls[l.Ticket]
		if w == nil || w.on >= 0 {
			r.t.Fatalf("at %v call %d is sent and does not wait: sent twice, or never made", now, l.Ticket)
		}
		if c := r.fleet.Replicas[l.Replica]; w.Prompt+l.MaxTokens > c.ContextTokens {
			r.t.Errorf("at %v call %d of %d + %d tokens is sent to a replica with a context of %d", now, l.Ticket, w.Prompt, l.MaxTokens, c.ContextTokens)
		}
		told := r.told[l.Replica].Capacity
		if room := min(told.ContextTokens, told.KVTokens) - w.Prompt; l.Cut && (l.MaxTokens < 1 || l.MaxTokens >= min(w.Want, room)) || !l.Cut && l.MaxTokens != min(w.Want, room) {
			r.t.Errorf("at %v call %d may have %d tokens of the %d wanted, where there is room for %d", now, l.Ticket, l.MaxTokens, w.Want, room)
		}
		if l.MaxTokens < w.Want && !l.Cut && len(r.fleet.Incidents) == 0 && slices.ContainsFunc(r.told, func(o scheduler.ReplicaConfig) bool {
			return min(o.Capacity.ContextTokens, o.Capacity.KVTokens)-w.Prompt >= w.Want
		}) {
			r.t.Errorf("at %v call %d is cut to %d of %d tokens, and another replica has room for all", now, l.Ticket, l.MaxTokens, w.Want)
		}
		r.longest = max(r.longest, now-w.since)
		w.on = l.Replica
		r.sent[l.Replica]++
	}
	for _, x := range rejects {
		r.t.Errorf("at %v call %d is rejected: full %v, %v", now, x.Ticket, x.ContextFull, x.Fault)
	}
	r.nobodyIdles(now)
	return launches, rejects, wait
}

// nobodyIdles is work conservation: no replica is up and empty while a call that it could take waits for longer than it may wait for
// another.
func (r *referee) nobodyIdles(now time.Duration) {
	states, _ := r.core.State()
	for i, s := range states {
		if s.Open || s.GateUntil > now || s.Running > 0 || s.Fill > 0 || r.sent[i] != r.seen[i] {
			r.empty[i], r.seen[i] = now, r.sent[i]
		}
		if now-r.empty[i] <= r.idle {
			continue
		}
		for t, w := range r.calls {
			if w.on < 0 && now-w.since > r.patience && w.failed != i && w.Prompt+w.Want <= min(s.Capacity.ContextTokens, s.Capacity.KVTokens) {
				r.t.Fatalf("at %v replica %d is up and empty, and call %d of %d tokens waits since %v", now, i, t, w.Prompt, w.since)
			}
		}
	}
}

func (r *referee) Settle(t scheduler.Ticket, o Outcome, now scheduler.Time) scheduler.Decision {
	w := r.calls[t]
	if w == nil || w.on < 0 {
		r.t.Fatalf("at %v call %d ends and does not run", now, t)
	}
	d := r.corePolicy.Settle(t, o, now)
	switch d {
	case scheduler.Retrying:
		w.since, w.failed, w.on = now, w.on, -1
		return d
	case scheduler.Continuing:
		w.Prompt, w.Want, w.since, w.failed, w.on = w.Prompt+o.Generated, w.Want-o.Generated, now, -1, -1
		return d
	}
	delete(r.calls, t)
	delete(r.asks, w.Episode)
	return d
}

func (r *referee) Leave(id string, now scheduler.Time) {
	if r.left[id] {
		r.t.Errorf("at %v episode %s leaves a second time", now, id)
	}
	r.left[id] = true
	r.corePolicy.Leave(id, now)
}

// play plays the gamble and holds the result to the laws.
func (g gamble) play(t testing.TB) Result {
	t.Helper()
	ref := newReferee(t, g)
	res, err := g.fleet.Play(g.workload, ref)
	if err != nil {
		t.Fatalf("%v\n%+v", err, g.fleet)
	}
	n := len(g.workload.Episodes)
	if res.Completed != n || res.Calls != g.workload.Calls() || res.Useful != int64(g.workload.Load().Generated) || len(ref.left) != n {
		t.Errorf("%d of %d episodes complete, %d left, %d of %d calls, %d of %d tokens", res.Completed, n, len(ref.left), res.Calls, g.workload.Calls(), res.Useful, g.workload.Load().Generated)
	}
	padded := slices.ContainsFunc(g.fleet.Replicas, func(c enginesim.Config) bool { return c.Batching != "" })
	if bound := g.fleet.LowerBound(g.workload); res.Makespan+time.Duration(res.Steps) < bound && res.Truncated == 0 && !padded { // a step is cut to whole nanoseconds; what was cut short is less work; engines that pad have another bound
		t.Errorf("makespan %v beats the bound %v", res.Makespan, bound)
	}
	if len(ref.calls)+len(ref.asks) > 0 {
		t.Errorf("%d calls of %d episodes are open when all episodes have ended", len(ref.calls), len(ref.asks))
	}
	states, waiting := ref.core.State()
	for i, s := range states {
		if s.Running != 0 || s.Promised != 0 || s.Fill != 0 {
			t.Errorf("replica %d still counts %d calls, %d tokens, fill %g", i, s.Running, s.Promised, s.Fill)
		}
		if got := res.Accounts[i].Total(); got != res.Makespan {
			t.Errorf("replica %d accounts for %v of %v", i, got, res.Makespan)
		}
	}
	if waiting != 0 {
		t.Errorf("the core still holds %d calls", waiting)
	}
	t.Logf("longest wait %v of at most %v, makespan %v", ref.longest, g.mostWait(), res.Makespan)
	if most := g.mostWait(); ref.longest > most {
		t.Errorf("a call waited for %v, more than %v", ref.longest, most)
	}
	return res
}

// mostWait is how long a call may wait at most: until its turn comes by age, while all replicas are down, and then until the episodes
// that are inside have ended, one after the other at worst.
func (g gamble) mostWait() time.Duration {
	return g.rules.StartLimit + g.down + time.Duration(len(g.workload.Episodes))*g.each
}

func TestLawsOnRandomFleets(t *testing.T) {
	oneGoroutine(t)
	for seed := range uint64(150) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { gambleOf(seed, 6, 40, 4).play(t) })
	}
}

// The same holds where answers are cut and gone on with: nothing is lost or done twice, nobody gets more than was asked for.
func TestLawsWhereAnswersAreCut(t *testing.T) {
	oneGoroutine(t)
	cuts := 0
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { cuts += paddedOf(seed).play(t).Cuts })
	}
	if cuts < 200 {
		t.Errorf("%d answers were cut in all: this shows nothing", cuts)
	}
}

// paddedOf is a gamble whose replicas all pad, with single answers of very different lengths.
func paddedOf(seed uint64) gamble {
	r := rand.New(rand.NewPCG(seed, 8))
	g := gambleOf(seed, 3, 1, 4)
	g.workload = Reasoning(4+r.IntN(12), 1+r.IntN(8), seed)
	g.workload.MaxNew = 2000 + r.IntN(4000)
	g.each = 30 * time.Second // answers of thousands of tokens, on replicas that take up to 24 ms a token
	for i, e := range g.workload.Episodes {
		e.Turns[0].Out = min(e.Turns[0].Out, g.workload.MaxNew)
		e.Domain = "d" + fmt.Sprint(i%2)
	}
	for i := range g.fleet.Replicas {
		c := &g.fleet.Replicas[i]
		c.Batching = []enginesim.Batching{enginesim.Static, enginesim.Shaped}[r.IntN(2)]
		c.ContextTokens = 8192
		c.KVTokens = 9000 + r.IntN(30_000)
	}
	if g.fleet.MaxOpen > 0 {
		g.fleet.MaxOpen = 1 + r.IntN(2*len(g.workload.Episodes))
	}
	return g
}

func FuzzFleet(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed, uint8(3), uint8(20), uint8(2))
	}
	f.Fuzz(func(t *testing.T, seed uint64, replicas, episodes, incidents uint8) {
		gambleOf(seed, 1+int(replicas%12), 1+int(episodes%80), int(incidents%8)).play(t)
	})
}
