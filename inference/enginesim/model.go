package enginesim

import (
	"container/list"
	"time"
)

// Model is one replica of a continuous-batching engine as a pure state machine: who runs, who waits, which KV blocks they
// hold and how long each step takes. It has no goroutine, no clock and no I/O: time comes in as now (time since the engine
// began) and goes out as a duration, so the same model serves real HTTP and a discrete-event simulation. Not safe for
// concurrent use.
//
// The rules are those of vLLM's V1 scheduler in its default setting. A step has one token budget. Running sequences come
// first, oldest first: one token for each that decodes, a chunk for each whose prompt is unfinished. When a block is wanted
// and none is free, the newest running sequence is preempted: it loses its blocks, goes to the front of the queue and is
// computed again later. Then, unless someone was preempted, waiting sequences are admitted strictly in order, each only when
// its whole prompt fits; a long one at the head blocks those behind it.
type Model struct {
	step     StepTime
	maxSeqs  int
	budget   int // tokens a step
	tokens   int // tokens a block
	pool     *pool
	waiting  *list.List // of *sequence
	running  []*sequence
	known    map[uint64]*sequence
	events   []Event // of the step in progress; reused
	counters Counters

	left      int     // of the step's budget
	preempted bool    // someone was, in this step
	load      float64 // of the step in progress, see StepTime
	reads     int
}

// Request is one sequence to generate. What will be sampled is known beforehand: the model decides only when.
type Request struct {
	ID     uint64  // unique among all requests offered
	Prompt []int32 // token ids, at least one
	Output []int32 // token ids that will be sampled, at least one; the sequence is done after the last
	Salt   uint64  // only requests with equal salts share prefixes
}

// EventKind says what happened to a sequence in a step.
type EventKind int8

// Event kinds.
const (
	Admitted  EventKind = iota // taken from the queue for the first time; Event.Tokens = prompt tokens found in the prefix cache
	Sampled                    // one more token; Event.Tokens = how many so far
	Done                       // the last token was sampled; comes after its Sampled
	Preempted                  // lost its blocks and waits again
)

// Event is one thing that happened to one sequence, as of the end of the step.
type Event struct {
	ID     uint64
	Kind   EventKind
	Tokens int
	Queued time.Duration // Admitted: from offer to admission
}

// Counters are the model's sums since it began and its state now. Offered = Done + Aborted + Running + Waiting, always.
type Counters struct {
	Offered, Done, Aborted int64 // sequences
	Running, Waiting       int   // sequences now
	Preemptions            int64
	PrefixQueries          int64 // tokens of first admissions
	PrefixHits             int64 // tokens among them found in the cache
	PromptTokens           int64 // tokens of prompts whose prefill is complete
	ComputedTokens         int64 // prompt and recomputed tokens really run through the model
	GeneratedTokens        int64
	Steps                  int64
	Busy                   time.Duration // sum of all steps
	BlocksUsed, Blocks     int           // held by running sequences; all
}

type sequence struct {
	Request
	place    *list.Element // in waiting; nil when running
	offered  time.Duration
	blocks   []int32
	hashes   []uint64 // prefix hash of each whole block of prompt and output so far
	computed int      // tokens whose KV is held
	sampled  int
	admitted bool // was running before
}

func (s *sequence) total() int { return len(s.Prompt) + s.sampled }

func (s *sequence) token(i int) int32 {
	if i < len(s.Prompt) {
		return s.Prompt[i]
	}
	return s.Output[i-len(s.Prompt)]
}

// NewModel builds an idle engine of the configured size. The configuration has been validated.
func NewModel(c Config) *Model {
	c = c.withDefaults()
	return &Model{
		step: c.Step, maxSeqs: c.MaxSeqs, budget: c.StepBudget, tokens: c.BlockTokens,
		pool: newPool(c.KVTokens / c.BlockTokens), waiting: list.New(), known: map[uint64]*sequence{},
	}
}

// Offer puts a request at the end of the queue.
func (m *Model) Offer(r Request, now time.Duration) {
	s := &sequence{Request: r, offered: now}
	s.place = m.waiting.PushBack(s)
	m.known[r.ID] = s
	m.counters.Offered++
}

// Abort forgets a request that waits or runs and frees its blocks; false when there is no such request (any more).
func (m *Model) Abort(id uint64) bool {
	s, ok := m.known[id]
	if !ok {
		return false
	}
	m.counters.Aborted++
	m.forget(s)
	return true
}

// Idle reports whether nothing runs and nothing waits.
func (m *Model) Idle() bool { return len(m.known) == 0 }

// Counters returns the sums so far and the state now.
func (m *Model) Counters() Counters {
	c := m.counters
	c.Running, c.Waiting = len(m.running), m.waiting.Len()
	c.BlocksUsed, c.Blocks = m.pool.used(), m.pool.size()
	return c
}

// Step runs one step that begins at now: it returns what had happened when the step ended and how long it took. The events
// are valid until the next call. On an idle model it does nothing and takes no time.
func (m *Model) Step(now time.Duration) ([]Event, time.Duration) {
	m.events, m.left, m.preempted, m.load, m.reads = m.events[:0], m.budget, false, 0, 0
	for i := 0; i < len(m.running); i++ { // the tail may be preempted while we go
		m.advance(m.running[i])
	}
	if !m.preempted {
		m.admit(now)
	}
	if m.left == m.budget {
		return m.events, 0
	}
	m.sample()
	d := m.step.duration(m.budget-m.left, m.reads, m.load)
	m.counters.Steps++
	m.counters.Busy += d
	return m.events, d
}

// advance schedules a running sequence's next tokens: one when it decodes, else as much of its prompt as the budget allows.
func (m *Model) advance(s *sequence) {
	n := min(s.total()-s.computed, m.left)
	if n == 0 {
		return
	}
	for missing := m.missing(s, s.computed+n); missing > m.pool.free; {
		last := m.running[len(m.running)-1]
		m.preempt(last)
		if last == s {
			return
		}
	}
	m.compute(s, n)
}

// missing is the number of blocks a sequence lacks to hold n tokens.
func (m *Model) missing(s *sequence, n int) int {
	return (n+m.tokens-1)/m.tokens - len(s.blocks)
}

func (m *Model) admit(now time.Duration) {
	for m.left > 0 && len(m.running) < m.maxSeqs && m.waiting.Len() > 0 {
		s := m.waiting.Front().Value.(*sequence)
		m.hash(s, s.total())
		// The last token is computed in any case: without it there is nothing to sample from.
		hit, idle := m.pool.match(s.hashes[:(s.total()-1)/m.tokens])
		if m.missing(s, s.total())-len(hit) > m.pool.free-idle {
			return
		}
		for _, b := range hit {
			m.pool.share(b)
		}
		s.blocks = append(s.blocks, hit...)
		s.computed = len(hit) * m.tokens
		m.waiting.Remove(s.place)
		s.place = nil
		m.running = append(m.running, s)
		if !s.admitted {
			s.admitted = true
			m.counters.PrefixQueries += int64(s.total())
			m.counters.PrefixHits += int64(s.computed)
			m.events = append(m.events, Event{ID: s.ID, Kind: Admitted, Tokens: s.computed, Queued: now - s.offered})
		}
		m.compute(s, min(s.total()-s.computed, m.left))
	}
}

// compute takes n tokens of the step's budget for a sequence and the blocks to hold them. Whole blocks enter the cache at
// once, so siblings in one step share their prompt.
func (m *Model) compute(s *sequence, n int) {
	decode := s.computed >= len(s.Prompt) && n == 1
	if decode {
		m.reads += s.computed
	} else {
		m.load += float64(n) * (float64(s.computed) + float64(n)/2)
		m.counters.ComputedTokens += int64(n)
	}
	for range m.missing(s, s.computed+n) {
		s.blocks = append(s.blocks, m.pool.take())
	}
	m.hash(s, s.computed+n)
	for b := s.computed / m.tokens; b < (s.computed+n)/m.tokens; b++ {
		m.pool.remember(s.blocks[b], s.hashes[b])
	}
	if s.sampled == 0 && s.computed+n == len(s.Prompt) {
		m.counters.PromptTokens += int64(len(s.Prompt))
	}
	s.computed += n
	m.left -= n
}

// hash extends a sequence's prefix hashes to cover the whole blocks of its first n tokens.
func (m *Model) hash(s *sequence, n int) {
	for len(s.hashes) < n/m.tokens {
		from := len(s.hashes) * m.tokens
		before := s.Salt
		if from > 0 {
			before = s.hashes[len(s.hashes)-1]
		}
		s.hashes = append(s.hashes, chain(before, m.window(s, from)))
	}
}

// window returns the tokens of one block, copying only where it spans the end of the prompt.
func (m *Model) window(s *sequence, from int) []int32 {
	to, p := from+m.tokens, len(s.Prompt)
	switch {
	case to <= p:
		return s.Prompt[from:to]
	case from >= p:
		return s.Output[from-p : to-p]
	}
	w := make([]int32, 0, m.tokens)
	for i := from; i < to; i++ {
		w = append(w, s.token(i))
	}
	return w
}

// sample gives every sequence whose tokens are all computed its next one.
func (m *Model) sample() {
	kept := m.running[:0]
	for _, s := range m.running {
		if s.computed < s.total() {
			kept = append(kept, s)
			continue
		}
		s.sampled++
		m.counters.GeneratedTokens++
		m.events = append(m.events, Event{ID: s.ID, Kind: Sampled, Tokens: s.sampled})
		if s.sampled < len(s.Output) {
			kept = append(kept, s)
			continue
		}
		m.events = append(m.events, Event{ID: s.ID, Kind: Done, Tokens: s.sampled})
		m.counters.Done++
		m.drop(s)
		delete(m.known, s.ID)
	}
	clear(m.running[len(kept):])
	m.running = kept
}

// preempt takes the newest running sequence off the engine; it will be computed again.
func (m *Model) preempt(last *sequence) {
	m.drop(last)
	m.running[len(m.running)-1] = nil
	m.running = m.running[:len(m.running)-1]
	last.computed = 0
	last.place = m.waiting.PushFront(last)
	m.preempted = true
	m.counters.Preemptions++
	m.events = append(m.events, Event{ID: last.ID, Kind: Preempted, Tokens: last.sampled})
}

// drop releases a sequence's blocks, the last first: the tail of a context is worth less to others than its head.
func (m *Model) drop(s *sequence) {
	for i := len(s.blocks) - 1; i >= 0; i-- {
		m.pool.release(s.blocks[i])
	}
	s.blocks = s.blocks[:0]
}

func (m *Model) forget(s *sequence) {
	m.drop(s)
	delete(m.known, s.ID)
	if s.place != nil {
		m.waiting.Remove(s.place)
		return
	}
	for i, r := range m.running {
		if r == s {
			m.running = append(m.running[:i], m.running[i+1:]...)
			return
		}
	}
}
