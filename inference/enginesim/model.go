package enginesim

import (
	"container/list"
	"slices"
	"time"
)

// Model is one replica of an inference engine as a pure state machine: who runs, who waits, which KV blocks they hold and how
// long each step takes. It has no goroutine, no clock and no I/O: time comes in as now (time since the engine began) and goes out
// as a duration, so the same model serves real HTTP and a discrete-event simulation (replica.go). Not safe for concurrent use.
//
// Its rules are those of vLLM's V1 scheduler in its default setting (step.go), or of an engine that pads (padded.go). glide.go runs
// many steps at once where nothing happens but decoding.
type Model struct {
	step     StepTime
	batching Batching
	shapes   []int
	byRank   bool // Config.Priority
	noCache  bool // no prefix cache
	maxSeqs  int
	budget   int // tokens a step
	tokens   int // tokens a block
	pool     *pool
	waiting  *list.List // of *sequence, by rank
	running  []*sequence
	known    map[uint64]*sequence
	spare    []*sequence // done with, to be used again
	events   []Event     // of the steps in progress; reused
	counters Counters
	arrivals int64 // requests offered; numbers them
	clears   int   // how often the cache was cleared

	left      int     // of the step's budget
	preempted bool    // someone was, in this step
	head      blocked // what the last look at the head of the queue found
	launch    launch  // of an engine that pads
	phase     []int   // of glide; reused
}

// Request is one sequence to generate. What will be sampled is known beforehand: the model decides only when. Prompt and output come
// as ids, or, to save a simulation their making, as Outline and Continuation; never a mixture. An outline shares no prefix with ids.
type Request struct {
	ID     uint64  // unique among all requests offered
	Prompt []int32 // token ids, at least one
	Output []int32 // token ids that will be sampled, at least one; the sequence is done after the last

	Outline      []Segment // in the place of Prompt; the model keeps the slice until the request is done
	Continuation Segment   // in the place of Output

	Salt      uint64 // only requests with equal salts share prefixes
	Priority  int    // lower goes first, where Config.Priority is set
	EachToken bool   // wants a Sampled event for every token, not for the first alone
}

// EventKind says what happened to a sequence in a step.
type EventKind int8

// Event kinds.
const (
	Admitted  EventKind = iota // taken from the queue for the first time; Event.Tokens = prompt tokens found in the prefix cache
	Sampled                    // a token came: the first, and each later one where Request.EachToken is set; Event.Tokens = how many so far
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
	ComputedTokens         int64 // prompt and recomputed tokens really run through the model, padding included
	GeneratedTokens        int64
	Steps                  int64
	Busy                   time.Duration // sum of all steps
	BlocksUsed, Blocks     int           // held by running sequences; all that can be held
}

type sequence struct {
	Request
	number   int64         // in order of arrival
	place    *list.Element // in waiting; nil when running
	offered  time.Duration
	prompt   int // tokens of the prompt
	goal     int // tokens of prompt and output
	text     *content
	tip      *span // the cached span it holds with all before it: the whole blocks of what is computed
	held     int   // blocks: those up to the end of tip, and its own
	computed int   // tokens whose KV is held
	sampled  int
	took     int  // tokens computed in the step in progress
	admitted bool // was running before
}

// total is the number of tokens there are: the prompt and what was sampled.
func (s *sequence) total() int { return s.prompt + s.sampled }

// decodes says that all but the token sampled last is computed.
func (s *sequence) decodes() bool { return s.sampled > 0 && s.computed == s.total()-1 }

// NewModel builds an idle engine of the configured size. The configuration has been validated.
func NewModel(c Config) *Model {
	c = c.withDefaults()
	return &Model{
		step: c.Step, batching: c.Batching, shapes: c.Shapes, byRank: c.Priority, noCache: c.NoPrefixCache, maxSeqs: c.MaxSeqs, budget: c.StepBudget,
		tokens: c.BlockTokens, pool: newPool(c.blocks(), c.BlockTokens), waiting: list.New(), known: map[uint64]*sequence{},
	}
}

// Offer puts a request in the queue: at its end, or behind those of no worse priority.
func (m *Model) Offer(r Request, now time.Duration) {
	s := m.fresh()
	m.arrivals++
	s.Request, s.offered, s.number = r, now, m.arrivals
	s.prompt, s.goal = len(r.Prompt), len(r.Prompt)+len(r.Output)
	if len(r.Outline) > 0 {
		s.prompt = length(r.Outline)
		s.goal = s.prompt + r.Continuation.Tokens
	}
	r.Salt = m.saltOf(s)
	s.text, s.tip = newContent(&r, m.tokens), &m.pool.root
	m.queueLast(s)
	m.known[r.ID] = s
	m.counters.Offered++
}

// fresh returns an empty sequence that keeps the memory of one that is gone.
func (m *Model) fresh() *sequence {
	n := len(m.spare)
	if n == 0 {
		return &sequence{}
	}
	s := m.spare[n-1]
	m.spare = m.spare[:n-1]
	*s = sequence{}
	return s
}

// salt keeps apart what was computed before and after the cache was cleared.
func (m *Model) salt(s uint64) uint64 { return mix(s + mix(uint64(m.clears))) }

// saltOf is the salt of a sequence's text. Without a prefix cache it has one of its own, so that it shares no block either.
func (m *Model) saltOf(s *sequence) uint64 {
	if m.noCache {
		return m.salt(mix(s.Salt) ^ uint64(s.number))
	}
	return m.salt(s.Salt)
}

// before says whether a comes before b in the queue, and keeps its blocks longer.
func (m *Model) before(a, b *sequence) bool {
	if m.byRank && a.Priority != b.Priority {
		return a.Priority < b.Priority
	}
	return a.number < b.number
}

// queueLast puts a newcomer in its place, looked for from the end.
func (m *Model) queueLast(s *sequence) {
	e := m.waiting.Back()
	for e != nil && m.before(s, e.Value.(*sequence)) {
		e = e.Prev()
	}
	if e == nil {
		s.place = m.waiting.PushFront(s)
		return
	}
	s.place = m.waiting.InsertAfter(s, e)
}

// queueFirst puts back one that ran already, looked for from the front.
func (m *Model) queueFirst(s *sequence) {
	e := m.waiting.Front()
	for e != nil && m.before(e.Value.(*sequence), s) {
		e = e.Next()
	}
	if e == nil {
		s.place = m.waiting.PushBack(s)
		return
	}
	s.place = m.waiting.InsertBefore(s, e)
}

// Abort forgets a request that waits or runs and frees its blocks; false when there is no such request (any more).
func (m *Model) Abort(id uint64) bool {
	s, ok := m.known[id]
	if !ok {
		return false
	}
	m.counters.Aborted++
	if s.place != nil {
		m.waiting.Remove(s.place)
	} else {
		m.running = slices.DeleteFunc(m.running, func(r *sequence) bool { return r == s })
	}
	m.discard(s)
	return true
}

// discard lets go of a sequence that neither runs nor waits any more.
func (m *Model) discard(s *sequence) {
	m.drop(s)
	delete(m.known, s.ID)
	m.spare = append(m.spare, s)
}

// drop releases a sequence's blocks, the last first: the tail of a context is worth less to others than its head.
func (m *Model) drop(s *sequence) {
	m.pool.blank(s.held - s.tip.end())
	m.pool.release(s.tip)
	s.tip, s.held = &m.pool.root, 0
}

// ClearCache makes sure that what is admitted from now on finds nothing of what was computed before in the cache: new weights make old
// KV wrong. Sequences that run keep what they hold.
func (m *Model) ClearCache() {
	m.clears++
	m.head = blocked{}
	for e := m.waiting.Front(); e != nil; e = e.Next() {
		s := e.Value.(*sequence)
		text := *s.text // the old one may be in the cache
		text.salt = m.saltOf(s)
		s.text = &text
	}
}

// Idle reports whether nothing runs and nothing waits.
func (m *Model) Idle() bool { return len(m.known) == 0 }

// Counters returns the sums so far and the state now.
func (m *Model) Counters() Counters {
	c := m.counters
	c.Running, c.Waiting = len(m.running), m.waiting.Len()
	c.BlocksUsed, c.Blocks = m.pool.used(), m.pool.total
	if m.batching.pads() && len(m.running) > 0 {
		c.BlocksUsed = m.launch.held(m.tokens)
	}
	return c
}

// Step runs one step that begins at now: it returns what had happened when the step ended and how long it took. The events
// are valid until the next call. On an idle model it does nothing and takes no time.
func (m *Model) Step(now time.Duration) ([]Event, time.Duration) {
	m.events = m.events[:0]
	d := m.one(now)
	return m.events, d
}

// one runs one step and adds to the events.
func (m *Model) one(now time.Duration) time.Duration {
	var d time.Duration
	if m.batching.pads() {
		d = m.paddedStep(now)
	} else {
		d = m.continuousStep(now)
	}
	if d > 0 {
		m.counters.Steps++
		m.counters.Busy += d
	}
	return d
}

func (m *Model) tell(s *sequence, kind EventKind, tokens int) {
	m.events = append(m.events, Event{ID: s.ID, Kind: kind, Tokens: tokens})
}

// admission tells and counts that a sequence leaves the queue for the first time.
func (m *Model) admission(s *sequence, now time.Duration, hit int) {
	if s.admitted {
		return
	}
	s.admitted = true
	if !m.noCache {
		m.counters.PrefixQueries += int64(s.total())
	}
	m.counters.PrefixHits += int64(hit)
	m.events = append(m.events, Event{ID: s.ID, Kind: Admitted, Tokens: hit, Queued: now - s.offered})
}

// gain gives a sequence its next token.
func (m *Model) gain(s *sequence) {
	s.sampled++
	m.counters.GeneratedTokens++
	if s.sampled == 1 || s.EachToken {
		m.tell(s, Sampled, s.sampled)
	}
}

// finish reports a sequence as done and lets go of it.
func (m *Model) finish(s *sequence) {
	m.tell(s, Done, s.sampled)
	m.counters.Done++
	m.discard(s)
}
