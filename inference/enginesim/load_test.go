package enginesim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// arrival is one thing that comes to a model from outside: a request, or, where abort is set, the end of one.
type arrival struct {
	at    time.Duration
	offer Request
	abort uint64
}

// randomLoad makes a small engine in some mode and what comes to it, in order of time. Prompts of few contents overlap, as turns and
// siblings do; memory is short.
func randomLoad(seed uint64, outlined bool) (Config, []arrival) {
	r := rand.New(rand.NewPCG(seed, 77))
	c := Config{
		ContextTokens: 200, BlockTokens: 1 + r.IntN(16), MaxSeqs: 1 + r.IntN(12), KVTokens: 240 + r.IntN(800), StepBudget: 12 + r.IntN(100),
		Step:     StepTime{Base: 1e-3, Floor: 2e-3, PerToken: 1e-4, PerSeq: 1e-5, PerRead: 1e-6, PerPair: 1e-7},
		Priority: r.IntN(3) == 0, NullBlock: r.IntN(2) == 0,
		Batching: []Batching{Continuous, Continuous, Continuous, Static, Shaped}[r.IntN(5)], Shapes: []int{16, 50, 120},
	}
	var list []arrival
	at := time.Duration(0)
	for id := uint64(1); id <= 60; id++ {
		at += time.Duration(r.ExpFloat64() * float64(60*time.Millisecond))
		text, in := uint64(r.IntN(6)), 1+r.IntN(150)
		q := Request{ID: id, Salt: uint64(r.IntN(8) / 7), Priority: r.IntN(3), EachToken: r.IntN(10) == 0}
		shared := r.IntN(in + 1)
		q.Outline = []Segment{{Content: 100, Tokens: shared}, {Content: text, From: shared, Tokens: in - shared}}
		q.Continuation = Segment{Content: text + uint64(r.IntN(2)), From: in, Tokens: 1 + r.IntN(200-in)}
		if !outlined {
			q = spelled(q)
		}
		list = append(list, arrival{at: at, offer: q})
		if r.IntN(20) == 0 {
			at += time.Duration(r.IntN(50)) * time.Millisecond
			list = append(list, arrival{at: at, abort: 1 + r.Uint64N(id)})
		}
	}
	return c, list
}

// spelled is a request with its outline written out as ids.
func spelled(q Request) Request {
	write := func(g Segment) (out []int32) {
		for i := range g.Tokens {
			out = append(out, int32(mix(g.Content<<32|uint64(g.From+i))))
		}
		return out
	}
	for _, g := range q.Outline {
		q.Prompt = append(q.Prompt, write(g)...)
	}
	q.Output = write(q.Continuation)
	q.Outline, q.Continuation = nil, Segment{}
	return q
}

// driver takes what comes and writes down what happens.
type driver struct {
	model *Model
	log   []byte
	now   time.Duration
	rest  []arrival
}

// stepThrough runs a model to its end by a way of stepping: from now to a time that must not be passed but by the last step.
func stepThrough(c Config, list []arrival, step func(m *Model, now, until time.Duration) ([]Event, time.Duration), check func(*Model)) string {
	d := &driver{model: NewModel(c), rest: list}
	for len(d.rest) > 0 || !d.model.Idle() {
		until := Never
		if d.model.Idle() && d.rest[0].at > d.now {
			d.now = d.rest[0].at
		}
		for len(d.rest) > 0 && d.rest[0].at <= d.now {
			d.take(d.rest[0])
			d.rest = d.rest[1:]
		}
		if len(d.rest) > 0 {
			until = d.rest[0].at
		}
		events, took := step(d.model, d.now, until)
		d.now += took
		d.write(events)
		check(d.model)
	}
	return string(fmt.Appendf(d.log, "%+v", d.model.Counters()))
}

func (d *driver) take(a arrival) {
	if a.abort != 0 {
		d.log = fmt.Appendf(d.log, "%v abort %d %v\n", d.now, a.abort, d.model.Abort(a.abort))
		return
	}
	d.model.Offer(a.offer, a.at)
}

func (d *driver) write(events []Event) {
	if len(events) == 0 {
		return
	}
	for _, v := range events {
		d.log = fmt.Appendf(d.log, "%v %d %d %d %v\n", d.now, v.ID, v.Kind, v.Tokens, v.Queued)
	}
	d.log = fmt.Appendf(d.log, "%+v\n", d.model.Counters())
}

// parting shows where two histories part.
func parting(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d:\n%s\n%s", i, x[i], y[i])
		}
	}
	return "one ends earlier"
}

func singly(m *Model, now, _ time.Duration) ([]Event, time.Duration) { return m.Step(now) }

func unchecked(*Model) {}

const randomLoads = 80

func TestAdvanceEqualsSteps(t *testing.T) {
	oneGoroutine(t)
	glided := int64(0)
	for seed := range uint64(randomLoads) {
		c, list := randomLoad(seed, true)
		calls := int64(0)
		advance := func(m *Model, now, until time.Duration) ([]Event, time.Duration) {
			calls++
			return m.Advance(now, until)
		}
		var last Counters
		a := stepThrough(c, list, singly, unchecked)
		b := stepThrough(c, list, advance, func(m *Model) { checkLaws(t, m); last = m.Counters() })
		if a != b {
			t.Fatalf("seed %d, single steps and advanced: %s", seed, parting(a, b))
		}
		glided += last.Steps - calls
	}
	if glided < 10*randomLoads {
		t.Errorf("only %d steps were run together: the loads do not test it", glided)
	}
}

func TestOutlineEqualsIDs(t *testing.T) {
	oneGoroutine(t)
	for seed := range uint64(30) {
		c, outlined := randomLoad(seed, true)
		_, spelled := randomLoad(seed, false)
		if a, b := stepThrough(c, outlined, singly, unchecked), stepThrough(c, spelled, singly, unchecked); a != b {
			t.Fatalf("seed %d, outline and ids: %s", seed, parting(a, b))
		}
	}
}

// However an outline is cut, equal text is equal.
func TestOutlineCutAnywhere(t *testing.T) {
	oneGoroutine(t)
	const block = 8
	whole := newContent(&Request{Outline: []Segment{{7, 0, 100}}, Continuation: Segment{7, 100, 60}}, block)
	cut := newContent(&Request{Outline: []Segment{{7, 0, 3}, {9, 50, 0}, {7, 3, 20}, {7, 23, 77}}, Continuation: Segment{7, 100, 60}}, block)
	later := newContent(&Request{Outline: []Segment{{7, 0, 100}}, Continuation: Segment{7, 101, 60}}, block)
	parted := newContent(&Request{Outline: []Segment{{7, 0, 50}, {8, 50, 50}}, Continuation: Segment{7, 100, 60}}, block)
	for name, c := range map[string]struct {
		other *content
		want  int
	}{
		"cut": {cut, 20}, "goes on elsewhere in the text": {later, 12}, "goes on in another text": {parted, 6},
	} {
		t.Run(name, func(t *testing.T) {
			for from := range 20 {
				want := max(0, c.want-from)
				if from > c.want {
					continue // they part before
				}
				if got := whole.common(c.other, from, 100, block); got != want {
					t.Errorf("%d blocks in common from block %d on, want %d", got, from, want)
				}
				if got := c.other.common(whole, from, 3, block); got != min(want, 3) {
					t.Errorf("%d blocks in common from block %d on, want %d of at most 3", got, from, min(want, 3))
				}
				if same := whole.key(from, block) == c.other.key(from, block); same != (from < c.want) {
					t.Errorf("keys of block %d are equal: %v", from, same)
				}
			}
		})
	}
}

// A Replica that runs as late as it can tells the same, at the same times, as a model stepped one by one.
func TestReplicaEqualsSteps(t *testing.T) {
	oneGoroutine(t)
	for seed := range uint64(randomLoads) {
		c, list := randomLoad(seed, true)
		list = withoutAborts(list)                                  // when an abort falls into a step, only the replica can say what it met
		want := eventsOnly(stepThrough(c, list, singly, unchecked)) // of a step in progress, the counters already know who came
		r := NewReplica(c)
		d := &driver{model: r.model, rest: list}
		for len(d.rest) > 0 || r.Next() != Never {
			d.now = r.Next()
			if len(d.rest) > 0 && d.rest[0].at <= d.now {
				d.now = d.rest[0].at
				r.Offer(d.rest[0].offer, d.now)
				d.rest = d.rest[1:]
				continue
			}
			d.write(r.Run(d.now))
		}
		if got := eventsOnly(string(fmt.Appendf(d.log, "%+v", r.Counters()))); got != want {
			t.Fatalf("seed %d, single steps and replica: %s", seed, parting(want, got))
		}
	}
}

// eventsOnly is a history without the counters after each step, but for the last.
func eventsOnly(history string) string {
	lines := strings.Split(history, "\n")
	last := lines[len(lines)-1]
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l[0] == '{' }), "\n") + last
}

func withoutAborts(list []arrival) (out []arrival) {
	for _, a := range list {
		if a.abort == 0 {
			out = append(out, a)
		}
	}
	return out
}

func TestReplicaAbort(t *testing.T) {
	r := NewReplica(Config{Step: StepTime{Base: 1}})
	r.Offer(Request{ID: 1, Outline: []Segment{{1, 0, 10}}, Continuation: Segment{1, 10, 100}}, 0)
	r.Offer(Request{ID: 2, Outline: []Segment{{2, 0, 10}}, Continuation: Segment{2, 10, 1}}, 0)
	if got := r.Run(0); got != nil || r.Next() != time.Second {
		t.Fatalf("the first step is told before its end: %v, next %v", got, r.Next())
	}
	if r.Abort(2, time.Second/2) {
		t.Error("aborted a request that the step in progress ends")
	}
	if got := r.Run(time.Second); len(got) != 5 || got[4].Kind != Done {
		t.Errorf("events of the first step: %+v", got)
	}
	if !r.Abort(1, 50*time.Second+1) || r.Abort(1, 51*time.Second) {
		t.Error("abort in the middle of quiet steps")
	}
	if c := r.Counters(); r.Next() != Never || c.Steps != 51 || c.Aborted != 1 || c.Done != 1 {
		t.Errorf("next %v, counters %+v; want an idle engine after 51 steps", r.Next(), c)
	}
}

// FuzzModel throws random loads at every mode. However it is stepped, the history is one, the books balance after every step, and an
// engine that is done holds nothing.
func FuzzModel(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		c, list := randomLoad(seed, seed%2 == 0)
		var last *Model
		law := func(m *Model) {
			checkLaws(t, m)
			last = m
		}
		a := stepThrough(c, list, singly, law)
		if b := stepThrough(c, list, func(m *Model, now, until time.Duration) ([]Event, time.Duration) { return m.Advance(now, until) }, law); a != b {
			t.Fatalf("single steps and advanced: %s", parting(a, b))
		}
		if n := last.Counters(); n.Offered != n.Done+n.Aborted || n.BlocksUsed != 0 || last.pool.free != last.pool.total {
			t.Fatalf("at the end: %+v, %d of %d blocks free", n, last.pool.free, last.pool.total)
		}
	})
}
