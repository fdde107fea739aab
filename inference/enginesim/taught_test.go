package enginesim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// What runs against a real vLLM (0.32, CPU, a tiny model, blocks of 128 tokens of which one is reserved) taught about admission, and what
// the model must show as well. Step times are of that order; hit rates and preemptions do not hang on them.

// realLoad is one of the two workloads that were run there: uniform lengths, tokens, and exponential actions.
type realLoad struct {
	kv, episodes int
	first        [2]int // tokens of the prompt, from … to
	turns        [2]int
	out, in      [2]int // tokens a turn
	action       time.Duration
	step         StepTime
}

func cpuStep() StepTime {
	return StepTime{Base: 15e-3, PerToken: 0.25e-3, PerSeq: 0.5e-3, PerRead: 0.5e-6, PerPair: 20e-9}
}

func loadA() realLoad {
	return realLoad{16512, 40, [2]int{360, 840}, [2]int{3, 9}, [2]int{24, 103}, [2]int{120, 380}, 500 * time.Millisecond, cpuStep()}
}

func loadB() realLoad {
	return realLoad{32896, 36, [2]int{1080, 2520}, [2]int{4, 12}, [2]int{16, 47}, [2]int{120, 380}, 600 * time.Millisecond, cpuStep()}
}

func (l realLoad) config() Config {
	return Config{
		ContextTokens: 8192, KVTokens: l.kv, BlockTokens: 128, NullBlock: true, MaxSeqs: 64, StepBudget: 2048,
		Step: l.step,
	}
}

func (l realLoad) draw(seed uint64) (out []*agentEpisode) {
	r := rand.New(rand.NewPCG(seed, 11))
	within := func(b [2]int) int { return b[0] + r.IntN(b[1]-b[0]+1) }
	for range l.episodes {
		e := &agentEpisode{first: within(l.first)}
		for range within(l.turns) {
			e.turns = append(e.turns, agentTurn{within(l.out), within(l.in), time.Duration(r.ExpFloat64() * float64(l.action))})
		}
		out = append(out, e)
	}
	return out
}

// played is what came of a load under a cap on open episodes, over a few seeds.
type played struct {
	makespan    time.Duration // mean
	hit         float64       // of all
	preemptions int64
	computed    int64 // prompt tokens
}

func (l realLoad) play(limit int) (p played) {
	const seeds = 5
	var sum Counters
	for seed := range uint64(seeds) {
		a := newAgents(l.config(), 1, limit, l.draw(seed))
		p.makespan += a.run() / seeds
		c := a.counters()
		sum.PrefixHits += c.PrefixHits
		sum.PrefixQueries += c.PrefixQueries
		p.preemptions += c.Preemptions
		p.computed += c.ComputedTokens / seeds
	}
	p.hit = hitRate(sum)
	return p
}

func (p played) String() string {
	return fmt.Sprintf("%.0f s, hit %.2f, %d preemptions, %d computed", p.makespan.Seconds(), p.hit, p.preemptions, p.computed)
}

// The hit rates that the real engine had, under the caps that were tried there. One run each there, five here.
func TestHitRatesOfRealRuns(t *testing.T) {
	oneGoroutine(t)
	for name, c := range map[string]struct {
		load  realLoad
		limit int
		hit   float64
		off   float64 // how far we may be off
	}{
		"A, flood":  {loadA(), 0, 0.02, 0.05},
		"A, cap 16": {loadA(), 16, 0.13, 0.05},
		"A, cap 10": {loadA(), 10, 0.58, 0.05},
		"A, cap 8":  {loadA(), 8, 0.75, 0.05},
		"A, cap 6":  {loadA(), 6, 0.76, 0.05},
		"A, cap 4":  {loadA(), 4, 0.76, 0.05},
		"B, flood":  {loadB(), 0, 0.02, 0.05},
		"B, cap 12": {loadB(), 12, 0.32, 0.20}, // on the edge: 0.40 to 0.58 by seed here, one run there
		"B, cap 8":  {loadB(), 8, 0.83, 0.05},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.load.play(c.limit)
			if d := got.hit - c.hit; d > c.off || d < -c.off {
				t.Errorf("%v; the real engine hit %.2f", got, c.hit)
			}
		})
	}
}

// Workload B, flooded: next to no preemptions, and yet three times the work. The hit rate tells.
func TestPreemptionsAloneDoNotShowTheHarm(t *testing.T) {
	oneGoroutine(t)
	flood, right := loadB().play(0), loadB().play(8)
	if flood.preemptions > 5*2 || right.preemptions != 0 {
		t.Errorf("preemptions in five runs: %d flooded, %d under a cap of 8; want at most 2 a run, and none", flood.preemptions, right.preemptions)
	}
	if flood.makespan < 2*right.makespan || flood.computed < 4*right.computed {
		t.Errorf("flood %v, cap 8 %v; want more than twice the time and four times the prefill", flood, right)
	}
	if flood.hit > 0.05 || right.hit < 0.8 {
		t.Errorf("flood %v, cap 8 %v; want hit rates that tell them apart", flood, right)
	}
}

// Twice the right number open and nearly every turn is computed anew, but not so many are there to share its steps as without a cap. The
// real engine was 14 % slower in its one run each; the model is by 1 %, whatever the seed.
func TestCapTooHighIsWorseThanNone(t *testing.T) {
	oneGoroutine(t)
	l := loadA()
	l.step, l.action = StepTime{Base: 60e-3, PerToken: 0.25e-3, PerRead: 0.5e-6}, 1500*time.Millisecond
	right, high, none := l.play(10), l.play(20), l.play(0)
	if right.makespan*105/100 > none.makespan || high.makespan <= none.makespan {
		t.Errorf("cap 10: %v\ncap 20: %v\nnone:   %v\nwant the first at least 5 %% faster than the last, the second slower", right, high, none)
	}
}

// The longer actions take, the more of what their episodes left is pushed out by others, the finished among them: memory that counts
// as free is not free to use.
func TestLongActionsLoseTheirBlocks(t *testing.T) {
	oneGoroutine(t)
	before := played{hit: 1}
	for _, action := range []time.Duration{500, 2000, 8000} {
		l := loadA()
		l.action = action * time.Millisecond
		got := l.play(8)
		if got.hit > before.hit-0.02 {
			t.Errorf("actions of %v: hit %.2f, with shorter ones %.2f; want it to fall", l.action, got.hit, before.hit)
		}
		before = got
	}
}

// Of every open episode, half a block is lost to the part that is not full.
func TestHalfABlockIsLostPerEpisode(t *testing.T) {
	oneGoroutine(t)
	const n, block = 400, 128
	r := rand.New(rand.NewPCG(1, 1))
	m := NewModel(Config{ContextTokens: 4096, KVTokens: n * 1024, BlockTokens: block, MaxSeqs: n, StepBudget: n * 1024})
	tokens := 0
	for i := range n {
		k := 100 + r.IntN(800)
		tokens += k
		m.Offer(Request{ID: uint64(i), Outline: []Segment{{uint64(i), 0, k}}, Continuation: Segment{uint64(i), k, 2}}, 0)
	}
	m.Step(0)
	lost := float64(m.Counters().BlocksUsed) - float64(tokens)/block
	if perEpisode := lost / n; perEpisode < 0.45 || perEpisode > 0.55 {
		t.Errorf("%.2f blocks are lost per open episode, want about a half", perEpisode)
	}
}
