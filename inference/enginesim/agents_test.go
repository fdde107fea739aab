package enginesim

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// agents is a load of multi-turn episodes on a few replicas in virtual time: each stays on its replica, at most limit of a replica's
// are open at once, in order. It stands in for the scheduler in tests of what admission does to an engine.
type agents struct {
	replicas []*Replica
	episodes []*agentEpisode
	limit    int         // open episodes a replica; 0 = all
	queue    [][]int     // episodes of each replica that were not begun
	returns  returnQueue // ends of actions
	done     int
}

// agentEpisode is one conversation: all its contexts are beginnings of one text.
type agentEpisode struct {
	first int // tokens of the prompt
	turns []agentTurn
	turn  int // in progress
	at    int // tokens of the context so far
}

type agentTurn struct {
	out, in int           // tokens sampled; tokens of what the action gave back
	action  time.Duration // how long the action takes
}

type comeback struct {
	at      time.Duration
	episode int
}

type returnQueue []comeback

func (q returnQueue) Len() int           { return len(q) }
func (q returnQueue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q returnQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *returnQueue) Push(x any)        { *q = append(*q, x.(comeback)) }
func (q *returnQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

func newAgents(c Config, replicas, limit int, episodes []*agentEpisode) *agents {
	a := &agents{episodes: episodes, limit: limit, queue: make([][]int, replicas)}
	for range replicas {
		a.replicas = append(a.replicas, NewReplica(c))
	}
	for i := range episodes {
		a.queue[i%replicas] = append(a.queue[i%replicas], i)
	}
	return a
}

// run plays all episodes and returns the makespan.
func (a *agents) run() time.Duration {
	now := time.Duration(0)
	for r := range a.replicas {
		for n := 0; len(a.queue[r]) > 0 && (a.limit == 0 || n < a.limit); n++ {
			a.begin(r, now)
		}
	}
	for a.done < len(a.episodes) {
		r, at := a.soonest()
		if len(a.returns) > 0 && a.returns[0].at <= at {
			back := heap.Pop(&a.returns).(comeback)
			now = back.at
			a.offer(back.episode, now)
			continue
		}
		now = at
		for _, v := range a.replicas[r].Run(now) {
			if v.Kind == Done {
				a.answered(int(v.ID-1)/1000, r, now)
			}
		}
	}
	return now
}

func (a *agents) soonest() (replica int, at time.Duration) {
	at = Never
	for i, r := range a.replicas {
		if n := r.Next(); n < at {
			replica, at = i, n
		}
	}
	return replica, at
}

func (a *agents) begin(r int, now time.Duration) {
	i := a.queue[r][0]
	a.queue[r] = a.queue[r][1:]
	a.episodes[i].at, a.episodes[i].turn = a.episodes[i].first, 0
	a.offer(i, now)
}

func (a *agents) offer(i int, now time.Duration) {
	e := a.episodes[i]
	text := uint64(i + 1)
	a.replicas[i%len(a.replicas)].Offer(Request{
		ID: uint64(i*1000 + e.turn + 1), Outline: []Segment{{text, 0, e.at}}, Continuation: Segment{text, e.at, e.turns[e.turn].out},
	}, now)
}

func (a *agents) answered(i, r int, now time.Duration) {
	e := a.episodes[i]
	t := e.turns[e.turn]
	e.at += t.out + t.in
	if e.turn++; e.turn < len(e.turns) {
		heap.Push(&a.returns, comeback{now + t.action, i})
		return
	}
	a.done++
	if len(a.queue[r]) > 0 && a.limit > 0 {
		a.begin(r, now)
	}
}

// counters adds up the replicas'.
func (a *agents) counters() (sum Counters) {
	for _, r := range a.replicas {
		c := r.Counters()
		sum.Done += c.Done
		sum.Preemptions += c.Preemptions
		sum.PrefixQueries += c.PrefixQueries
		sum.PrefixHits += c.PrefixHits
		sum.ComputedTokens += c.ComputedTokens
		sum.GeneratedTokens += c.GeneratedTokens
		sum.Steps += c.Steps
	}
	return sum
}

func hitRate(c Counters) float64 { return float64(c.PrefixHits) / float64(c.PrefixQueries) }

// codingAgents is a load with the shape of public coding-agent trajectories: 38 turns and a longest context of 27.7k tokens in the mean,
// actions log-normal around 0.8 s.
func codingAgents(n int, seed uint64) []*agentEpisode {
	r := rand.New(rand.NewPCG(seed, 5))
	episodes := make([]*agentEpisode, n)
	for i := range episodes {
		e := &agentEpisode{first: 1500 + r.IntN(2000)}
		turns := min(120, max(4, int(38*math.Exp(0.5*r.NormFloat64()-0.125))))
		for range turns {
			e.turns = append(e.turns, agentTurn{
				out:    max(1, int(160*math.Exp(0.8*r.NormFloat64()))),
				in:     max(1, int(350*math.Exp(0.8*r.NormFloat64()))),
				action: time.Duration(0.8 * math.Exp(0.8*r.NormFloat64()) * float64(time.Second)),
			})
		}
		episodes[i] = e
	}
	return episodes
}

// One op is one run of 768 episodes, some 29,000 calls, on four replicas of Llama-3.1-8B on an H100; contexts grow to 30k tokens and
// beyond. On two shared cores, one used: 70 k (flood) and 180 k (cap 14) calls a minute with blocks one by one and a map from hash to
// block, 1.5 M and 6 M with spans and named texts.
func BenchmarkAgents(b *testing.B) {
	machine, err := Preset("llama-3.1-8b-h100")
	if err != nil {
		b.Fatal(err)
	}
	c := machine.Config()
	c.ContextTokens, c.MaxSeqs = 200_000, 256
	episodes := codingAgents(768, 1)
	for name, limit := range map[string]int{"flood": 0, "cap14": 14} {
		b.Run(name, func(b *testing.B) {
			var a *agents
			var end time.Duration
			for b.Loop() {
				a = newAgents(c, 4, limit, episodes)
				end = a.run()
			}
			sum := a.counters()
			b.ReportMetric(float64(sum.Done)*float64(b.N)/b.Elapsed().Minutes(), "calls/min")
			b.ReportMetric(float64(sum.Steps), "steps")
			b.ReportMetric(hitRate(sum), "hit-rate")
			b.ReportMetric(end.Seconds(), "simulated-s")
		})
	}
}

// One op is 4,096 samples in groups of 8 on four replicas, all at once: answers of 1.1k tokens in the median, up to 32k, alike within
// a group. Nearly all of it is decoding, so it measures what a quiet step costs.
func BenchmarkReasoning(b *testing.B) {
	machine, err := Preset("llama-3.1-8b-h100")
	if err != nil {
		b.Fatal(err)
	}
	c := machine.Config()
	c.MaxSeqs = 256
	for _, batching := range []Batching{Continuous, Static} {
		b.Run(string(batching), func(b *testing.B) {
			c.Batching = batching
			episodes := reasoning(4096, 1)
			var a *agents
			for b.Loop() {
				a = newAgents(c, 4, 0, episodes)
				a.run()
			}
			sum := a.counters()
			b.ReportMetric(float64(sum.Done)*float64(b.N)/b.Elapsed().Minutes(), "calls/min")
			b.ReportMetric(float64(sum.GeneratedTokens), "tokens")
			b.ReportMetric(float64(sum.Steps), "steps")
		})
	}
}

func reasoning(n int, seed uint64) (out []*agentEpisode) {
	r := rand.New(rand.NewPCG(seed, 6))
	group := 0.0
	for i := range n {
		if i%8 == 0 {
			group = 1100 * math.Exp(0.9*r.NormFloat64())
		}
		tokens := min(32_000, max(1, int(group*math.Exp(0.5*r.NormFloat64()))))
		out = append(out, &agentEpisode{first: 100 + r.IntN(300), turns: []agentTurn{{out: tokens}}})
	}
	return out
}
