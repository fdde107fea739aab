package enginesim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func ids(n int, from int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = from + int32(i)
	}
	return out
}

// checkLaws fails when the model's books do not balance.
func checkLaws(t *testing.T, m *Model) {
	t.Helper()
	c := m.Counters()
	if c.Offered != c.Done+c.Aborted+int64(c.Running+c.Waiting) {
		t.Fatalf("offered %d != done %d + aborted %d + running %d + waiting %d", c.Offered, c.Done, c.Aborted, c.Running, c.Waiting)
	}
	checkBlocks(t, m)
	checkHead(t, m)
	if len(m.running) > m.maxSeqs {
		t.Fatalf("%d sequences run, at most %d may", len(m.running), m.maxSeqs)
	}
	for e := m.waiting.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*sequence); s.held != 0 || s.computed != 0 {
			t.Fatalf("sequence %d waits and holds %d blocks", s.ID, s.held)
		}
	}
}

// checkHead fails when the head of the queue is taken for blocked and would fit.
func checkHead(t *testing.T, m *Model) {
	t.Helper()
	if m.waiting.Len() == 0 {
		return
	}
	s := m.waiting.Front().Value.(*sequence)
	found := m.pool.match(s.text, (s.total()-1)/m.tokens)
	if lack := m.missing(s, s.total()) - found.hit - (m.pool.free - found.idle); m.stillBlocked(s) && lack <= 0 {
		t.Fatalf("sequence %d fits with %d blocks to spare and nobody looks", s.ID, -lack)
	}
}

// checkBlocks fails when a block is lost or counted twice, or when the tree and the free list do not agree.
func checkBlocks(t *testing.T, m *Model) {
	t.Helper()
	holders := map[*span]int{}
	own := 0
	for _, s := range m.running {
		if need := s.computed; s.held*m.tokens < need || s.held*m.tokens-need >= m.tokens {
			t.Fatalf("sequence %d holds %d tokens in %d blocks of %d", s.ID, need, s.held, m.tokens)
		}
		if s.tip.end() != s.computed/m.tokens {
			t.Fatalf("sequence %d computed %d tokens and has %d blocks in the cache", s.ID, s.computed, s.tip.end())
		}
		own += s.held - s.tip.end()
		for x := s.tip; x != &m.pool.root; x = x.parent {
			holders[x]++
		}
	}
	cached, free, blank := 0, 0, 0
	walk(t, &m.pool.root, func(x *span) {
		cached += x.n
		if x.n == 0 || x.refs != holders[x] || (x.refs == 0) != (x.next != nil) {
			t.Fatalf("span of %d blocks at %d: %d holders, the books say %d; free %v", x.n, x.from, holders[x], x.refs, x.next != nil)
		}
	})
	for x := m.pool.ring.next; x != &m.pool.ring; x = x.next {
		free += x.n
		if x.text == nil {
			blank += x.n
		}
	}
	if free != m.pool.free || cached+blank+own != m.pool.total {
		t.Fatalf("%d blocks free, the books say %d; cached %d + blank %d + sequences' own %d != %d", free, m.pool.free, cached, blank, own, m.pool.total)
	}
}

// walk visits all spans behind one.
func walk(t *testing.T, from *span, visit func(*span)) {
	t.Helper()
	list := []*span{}
	if from.child != nil {
		list = append(list, from.child)
	} else if len(from.more) > 0 {
		t.Fatalf("span at %d has more children and no first", from.from)
	}
	for _, c := range from.more {
		list = append(list, c)
	}
	for _, c := range list {
		if c.parent != from || c.from != from.end() {
			t.Fatalf("span at %d is no continuation of the one that ends at %d", c.from, from.end())
		}
		visit(c)
		walk(t, c, visit)
	}
}

// history plays random requests and aborts and returns everything that happened, as text.
func history(t *testing.T, seed uint64, check bool) string {
	r := rand.New(rand.NewPCG(seed, 1))
	c := Config{
		ContextTokens: 200, BlockTokens: 1 + r.IntN(16), MaxSeqs: 1 + r.IntN(12), KVTokens: 220 + r.IntN(800),
		StepBudget: 12 + r.IntN(100),
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	m := NewModel(c)
	var log []byte
	var now time.Duration
	for id := uint64(1); id <= 60 || !m.Idle(); {
		for id <= 60 && (r.IntN(3) == 0 || m.Idle()) {
			in := 1 + r.IntN(150)
			out := 1 + r.IntN(200-in)
			m.Offer(Request{ID: id, Prompt: ids(in, int32(r.IntN(3))), Output: ids(out, int32(r.IntN(1000))), Salt: uint64(r.IntN(2))}, now)
			id++
		}
		if r.IntN(40) == 0 {
			victim := 1 + r.Uint64N(id)
			log = fmt.Appendf(log, "abort %d %v\n", victim, m.Abort(victim))
		}
		busy := !m.Idle()
		events, d := m.Step(now)
		if busy && d <= 0 {
			t.Fatalf("seed %d: a busy step took %v", seed, d)
		}
		now += d
		for _, v := range events {
			log = fmt.Appendf(log, "%v %d %d %d %v\n", now, v.ID, v.Kind, v.Tokens, v.Queued)
		}
		if check {
			checkLaws(t, m)
		}
	}
	if m.pool.free != m.pool.total {
		t.Fatalf("seed %d: idle engine holds %d blocks", seed, m.pool.used())
	}
	return string(fmt.Appendf(log, "%+v", m.Counters()))
}

func TestModelLaws(t *testing.T) {
	oneGoroutine(t)
	preempted := false
	for seed := range uint64(30) {
		h := history(t, seed, true)
		preempted = preempted || !strings.Contains(h, "Preemptions:0")
	}
	if !preempted {
		t.Error("no history held a preemption: the loads are too light to test it")
	}
}

func TestModelSameSeedSameHistory(t *testing.T) {
	oneGoroutine(t)
	for seed := range uint64(8) {
		if a, b := history(t, seed, false), history(t, seed, false); a != b {
			t.Fatalf("seed %d: two histories differ", seed)
		}
	}
	if history(t, 1, false) == history(t, 2, false) {
		t.Error("two seeds gave one history")
	}
}

// run steps a model until it is idle.
func run(m *Model, now time.Duration) (events []Event, end time.Duration) {
	for !m.Idle() {
		more, d := m.Step(now)
		events = append(events, more...)
		now += d
	}
	return events, now
}

func TestModelByHand(t *testing.T) {
	step := StepTime{Base: 1e-3, Floor: 2e-3, PerToken: 1e-3, PerRead: 1e-5, PerPair: 1e-6}
	m := NewModel(Config{ContextTokens: 64, KVTokens: 64, BlockTokens: 4, MaxSeqs: 2, StepBudget: 8, Step: step})
	m.Offer(Request{ID: 1, Prompt: ids(10, 0), Output: ids(2, 50), EachToken: true}, 0)
	for i, want := range []struct {
		took   time.Duration
		events []Event
	}{
		// chunk of 8 at context 0: 1 + 8·1 ms + 8·4·1 µs
		{9032 * time.Microsecond, []Event{{ID: 1, Kind: Admitted}}},
		// the other 2 at context 8: 1 + max(2, 2) + 2·9·1 µs
		{3018 * time.Microsecond, []Event{{ID: 1, Kind: Sampled, Tokens: 1}}},
		// decode reading 10: 1 + max(2, 1) + 10·10 µs
		{3100 * time.Microsecond, []Event{{ID: 1, Kind: Sampled, Tokens: 2}, {ID: 1, Kind: Done, Tokens: 2}}},
	} {
		events, d := m.Step(0)
		if diff := d - want.took; diff < -time.Microsecond || diff > time.Microsecond {
			t.Errorf("step %d took %v, want %v", i, d, want.took)
		}
		if !slices.Equal(events, want.events) {
			t.Errorf("step %d: events %+v, want %+v", i, events, want.events)
		}
	}
}

func TestModelPrefixCache(t *testing.T) {
	for name, c := range map[string]struct {
		second Request
		cached int
	}{
		"same prompt, last block computed again": {Request{ID: 2, Prompt: ids(32, 0), Output: ids(1, 90)}, 28},
		"prompt extends prompt and answer":       {Request{ID: 2, Prompt: append(ids(32, 0), ids(20, 90)...), Output: ids(1, 7)}, 36},
		"other salt":                             {Request{ID: 2, Prompt: ids(32, 0), Output: ids(1, 90), Salt: 1}, 0},
		"differs in the first block":             {Request{ID: 2, Prompt: append([]int32{5}, ids(31, 1)...), Output: ids(1, 90)}, 0},
		"differs in the second block":            {Request{ID: 2, Prompt: append(ids(5, 0), ids(27, 50)...), Output: ids(1, 90)}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewModel(Config{ContextTokens: 64, KVTokens: 128, BlockTokens: 4})
			m.Offer(Request{ID: 1, Prompt: ids(32, 0), Output: ids(8, 90)}, 0)
			_, now := run(m, 0)
			m.Offer(c.second, now)
			events, _ := run(m, now)
			if events[0].Kind != Admitted || events[0].Tokens != c.cached {
				t.Errorf("first event %+v, want Admitted with %d cached tokens", events[0], c.cached)
			}
			if got := m.Counters().PrefixHits; got != int64(c.cached) {
				t.Errorf("PrefixHits = %d, want %d", got, c.cached)
			}
		})
	}
}

func TestModelEvictsLeastRecentlyFreed(t *testing.T) {
	m := NewModel(Config{ContextTokens: 32, KVTokens: 64, BlockTokens: 4})
	now := time.Duration(0)
	cached := func(id uint64, from int32) int {
		m.Offer(Request{ID: id, Prompt: ids(29, from), Output: ids(1, 900)}, now)
		var events []Event
		events, now = run(m, now)
		return events[0].Tokens
	}
	for i, want := range []int{0, 0, 28, 0, 28, 0} { // room for two prompts of 8 blocks: A B A C A B
		from := []int32{100, 200, 100, 300, 100, 200}[i]
		if got := cached(uint64(i+1), from); got != want {
			t.Errorf("request %d (prompt %d): %d cached, want %d", i, from, got, want)
		}
	}
}

func TestModelPreemptsNewestAndRecomputes(t *testing.T) {
	m := NewModel(Config{ContextTokens: 40, KVTokens: 48, BlockTokens: 4, MaxSeqs: 4})
	m.Offer(Request{ID: 1, Prompt: ids(16, 0), Output: ids(20, 500)}, 0)
	m.Offer(Request{ID: 2, Prompt: ids(16, 100), Output: ids(20, 600)}, 0)
	events, _ := run(m, 0)
	var order []uint64
	preempted := map[uint64]int{}
	for _, v := range events {
		switch v.Kind {
		case Preempted:
			preempted[v.ID]++
		case Done:
			order = append(order, v.ID)
		}
	}
	if preempted[1] != 0 || preempted[2] == 0 {
		t.Errorf("preemptions by sequence: %v, want only the newer one", preempted)
	}
	if !slices.Equal(order, []uint64{1, 2}) {
		t.Errorf("done in order %v, want 1 then 2", order)
	}
	c := m.Counters()
	if c.Preemptions == 0 || c.GeneratedTokens != 40 || c.PromptTokens != 32 {
		t.Errorf("counters %+v: want preemptions, 40 generated and 32 prompt tokens once each", c)
	}
	if c.ComputedTokens <= 32 {
		t.Errorf("computed %d tokens: recomputation is missing", c.ComputedTokens)
	}
}

func TestModelHeadOfLineBlocks(t *testing.T) {
	m := NewModel(Config{ContextTokens: 64, KVTokens: 64, BlockTokens: 4, MaxSeqs: 8})
	m.Offer(Request{ID: 1, Prompt: ids(20, 0), Output: ids(10, 0)}, 0)
	m.Offer(Request{ID: 2, Prompt: ids(60, 100), Output: ids(1, 0)}, 0) // does not fit beside 1
	m.Offer(Request{ID: 3, Prompt: ids(4, 200), Output: ids(1, 0)}, 0)  // would fit, must wait behind 2
	m.Step(0)
	if c := m.Counters(); c.Running != 1 || c.Waiting != 2 {
		t.Errorf("running %d, waiting %d; want 1 and 2: the long one at the head blocks", c.Running, c.Waiting)
	}
}

func TestModelSharesPromptAmongSiblings(t *testing.T) {
	m := NewModel(Config{ContextTokens: 64, KVTokens: 256, BlockTokens: 4, StepBudget: 256})
	for id := range uint64(4) {
		m.Offer(Request{ID: id + 1, Prompt: ids(33, 0), Output: ids(2, int32(id)*10)}, 0)
	}
	events, _ := m.Step(0)
	for i, want := range []int{0, 32, 32, 32} {
		if v := events[i]; v.Kind != Admitted || v.Tokens != want {
			t.Errorf("sibling %d: %+v, want %d cached", i, v, want)
		}
	}
}

func TestConfigValidateReportsAll(t *testing.T) {
	bad := -1.0
	err := Config{ContextTokens: 1, KVTokens: -1, BlockTokens: -1, MaxSeqs: -1, StepBudget: -2, Speed: -1, SolveRate: &bad, LengthMean: -1,
		KeepAlive: -1, Step: StepTime{Base: -1}, Faults: Faults{Rules: []FaultRule{{Fault: "no", Rate: 2, First: -1}}}}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{"ContextTokens", "BlockTokens", "MaxSeqs", "StepBudget", "Speed", "SolveRate", "LengthMean", "KeepAlive", "Step.Base", "Rules[0].Fault", "Rules[0].Rate", "Rules[0].First"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("error does not name %s:\n%v", field, err)
		}
	}
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("zero value: %v", err)
	}
	if err := (Config{ContextTokens: 100, KVTokens: 99}).Validate(); err == nil || !strings.Contains(err.Error(), "KVTokens is 99") {
		t.Errorf("KV smaller than a context: %v", err)
	}
}

func BenchmarkModelStep(b *testing.B) {
	m := NewModel(Config{MaxSeqs: 64})
	id := uint64(0)
	var now time.Duration
	for b.Loop() {
		for len(m.known) < 64 {
			id++
			m.Offer(Request{ID: id, Prompt: ids(200, int32(id%7)*1000), Output: ids(100, int32(id))}, now)
		}
		_, d := m.Step(now)
		now += d
	}
}
