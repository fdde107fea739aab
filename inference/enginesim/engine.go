package enginesim

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
)

// Engine is a running simulated server without a network: the Model, the policy and the loop that steps the one and shows
// the other. Handler is its HTTP face; Listen puts that on a TCP port. Safe for concurrent use.
//
// The loop is one goroutine. It exists only while there is work, so an engine nobody asks leaves nothing behind.
type Engine struct {
	config Config
	tokens *Tokenizer
	policy *policy
	jinx   *jinx
	began  time.Time
	loop   sync.WaitGroup

	mu       sync.Mutex       // guards everything below, but not model
	looping  bool             // the loop runs
	paused   bool             // the loop must not
	clear    bool             // the model's cache is to be cleared
	version  string           // of the weights; "" = never told
	offered  []*flow          // not yet told to the model
	aborted  []uint64         // likewise
	flows    map[uint64]*flow // offered and not done
	begun    map[uint64]begun // answers that were cut, by prompt and what was said
	lastID   uint64
	arrivals map[uint64]uint64 // prompt hash → how often it came without seed and session; grows by some 40 bytes a distinct prompt
	finishes [2]int64          // answers done by finish reason: stop, length
	waits    waits             // how long requests waited for what
	counters Counters          // the model's, as of the last step

	model *Model        // the loop's own
	now   time.Duration // model time; the loop's own
	due   time.Time     // when the step in progress ends; the loop's own
}

// flow is one sequence on its way: an answer, and how much of it has come. Its counts are guarded by Engine.mu.
type flow struct {
	answer  *answer
	id      uint64
	salt    uint64
	rank    int // priority
	call    *call
	sampled int
	cached  int
	offered time.Duration // model time
	cut     bool          // ended by a pause, before its answer was complete
	spans   []weightSpan  // the weights of its tokens
}

// call is one HTTP request's sequences: choices of one or several prompts.
type call struct {
	flows  []*flow
	stream bool
	left   int           // flows that are not done; guarded by Engine.mu
	news   chan struct{} // holds one notice: something came that the handler waits for
}

// New builds an engine. It starts nothing; the error lists every fault of the configuration.
func New(c Config) (*Engine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	t := NewTokenizer()
	return &Engine{
		config: c, tokens: t, jinx: newJinx(c.Faults, c.Seed), began: time.Now(),
		policy: &policy{tokens: t, words: strings.Fields(commonWords), solve: *c.SolveRate, mean: c.LengthMean, sigma: c.LengthSigma, answer: c.Answer, odd: c.OddTokens, calls: c.Calls},
		flows:  map[uint64]*flow{}, arrivals: map[uint64]uint64{}, model: NewModel(c), counters: NewModel(c).Counters(),
		version: c.WeightVersion, waits: newWaits(),
	}, nil
}

// Stats is the engine's state and its sums since it began.
type Stats struct {
	Counters
	FinishedStop, FinishedLength int64 // done sequences by finish reason
}

// Stats returns the figures as of the last step.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Stats{Counters: e.counters, FinishedStop: e.finishes[0], FinishedLength: e.finishes[1]}
	s.Offered += int64(len(e.offered)) // on their way to the model: they wait
	s.Waiting += len(e.offered)
	return s
}

// draw is what decides an answer's text, given its prompt: the engine's seed and the sample key. The key is the request's
// seed, else its session, else how often this prompt came before; greedy decoding has none. index tells the samples of
// one request apart.
func (e *Engine) draw(prompt []int32, k *knobs, session string, index int) uint64 {
	h := hashTokens(uint64(e.config.Seed), prompt)
	switch {
	case k.Temperature != nil && *k.Temperature == 0:
		return h
	case k.Seed != nil:
		return mix(h ^ mix(uint64(*k.Seed)+uint64(index)))
	case session != "":
		return mix(h ^ hashText(uint64(index)+1, session))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.arrivals[h]++
	return mix(h + e.arrivals[h])
}

// submit hands answers to the loop, as the sequences of one call.
func (e *Engine) submit(answers []*answer, k *knobs) *call {
	c := &call{stream: k.Stream, left: len(answers), news: make(chan struct{}, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range answers {
		e.lastID++
		f := &flow{answer: a, id: e.lastID, salt: hashText(0, k.CacheSalt), rank: k.Priority, call: c}
		c.flows = append(c.flows, f)
		e.flows[f.id] = f
		e.offered = append(e.offered, f)
	}
	e.start()
	return c
}

// start lets the loop run, unless it does or must not; mu is held.
func (e *Engine) start() {
	if !e.looping && !e.paused {
		e.looping = true
		e.loop.Go(e.run)
	}
}

// cancel aborts what is left of a call. A call that is done is left alone.
func (e *Engine) cancel(c *call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.left == 0 {
		return
	}
	for _, f := range c.flows {
		if _, open := e.flows[f.id]; open {
			e.aborted = append(e.aborted, f.id)
			delete(e.flows, f.id)
		}
	}
}

// finished waits until every sequence of a call is done; an error means that the client is gone, and the call cancelled.
func (e *Engine) finished(ctx context.Context, c *call) error {
	for {
		e.mu.Lock()
		left := c.left
		e.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-c.news:
		case <-ctx.Done():
			e.cancel(c)
			return fmt.Errorf("enginesim: call abandoned: %w", ctx.Err())
		}
	}
}

// progress returns how many tokens of each sequence have come, and whether all have.
func (e *Engine) progress(c *call, into []int) (all bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, f := range c.flows {
		into[i] = f.sampled
	}
	return c.left == 0
}

// cutChoices lists the choices of a call that a pause ended.
func (e *Engine) cutChoices(c *call) (cut []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, f := range c.flows {
		if f.cut {
			cut = append(cut, i)
		}
	}
	return cut
}

// run is the loop: show what came of the last step, take in what is new, step, let the step's time pass, until there is
// nothing left to do.
func (e *Engine) run() {
	e.wake()
	var events []Event
	for e.exchange(events) {
		var d time.Duration
		events, d = e.model.Step(e.now)
		e.pass(d)
	}
}

// exchange is the one place where the loop and the requests meet: it shows what the step did and tells the model what came in.
// false = there is nothing to do and the loop ends.
func (e *Engine) exchange(events []Event) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publish(events)
	for _, f := range e.offered {
		f.offered = e.now
		e.model.Offer(Request{ID: f.id, Prompt: f.answer.prompt, Output: f.answer.ids, Salt: f.salt, Priority: f.rank, EachToken: true}, e.now)
	}
	for _, id := range e.aborted {
		e.model.Abort(id)
	}
	if e.clear {
		e.model.ClearCache()
		e.clear = false
	}
	clear(e.offered)
	e.offered, e.aborted = e.offered[:0], e.aborted[:0]
	e.counters = e.model.Counters()
	e.looping = !e.model.Idle() && !e.paused
	return e.looping
}

// publish shows what happened in a step; mu is held.
func (e *Engine) publish(events []Event) {
	for _, v := range events {
		f := e.flows[v.ID]
		if f == nil {
			continue // cancelled while the step ran
		}
		switch v.Kind {
		case Admitted:
			f.cached = v.Tokens
			e.waits.queue.add(v.Queued)
		case Sampled:
			f.sampled = v.Tokens
			f.weigh(e.version)
			if v.Tokens == 1 {
				e.waits.first.add(e.now - f.offered)
			}
			if f.call.stream {
				notify(f.call.news)
			}
		case Done:
			e.waits.whole.add(e.now - f.offered)
			e.done(f)
		}
	}
}

func (e *Engine) done(f *flow) {
	delete(e.flows, f.id)
	if f.answer.finish == "length" {
		e.finishes[1]++
	} else {
		e.finishes[0]++
	}
	f.close()
}

// close ends a flow as far as its call is concerned; Engine.mu is held.
func (f *flow) close() {
	f.call.left--
	if f.call.left == 0 || f.call.stream {
		notify(f.call.news)
	}
}

func notify(news chan struct{}) {
	select {
	case news <- struct{}{}:
	default: // a notice is waiting already
	}
}

// maxLag bounds how much lost time the loop makes up for: a step that woke late is followed by shorter waits, a machine that
// was suspended is not.
const maxLag = 100 * time.Millisecond

// wake sets the clock after a time without work.
func (e *Engine) wake() {
	if e.config.Speed == 0 {
		return
	}
	e.due = time.Now()
	e.now = max(e.now, e.scaled(time.Since(e.began)))
}

// pass lets d of model time pass.
func (e *Engine) pass(d time.Duration) {
	e.now += d
	if e.config.Speed == 0 {
		return
	}
	e.due = e.due.Add(time.Duration(float64(d) / e.config.Speed))
	if late := time.Since(e.due); late > maxLag {
		e.due = e.due.Add(late - maxLag)
	}
	time.Sleep(time.Until(e.due))
}

func (e *Engine) scaled(d time.Duration) time.Duration {
	return time.Duration(min(float64(d)*e.config.Speed, math.MaxInt64/2))
}

// usage counts what a call took; cached tokens only where the configuration tells them.
func (e *Engine) usage(c *call, sampled []int, prompts int) usage {
	var u usage
	cached := 0
	e.mu.Lock()
	for i, f := range c.flows {
		u.CompletionTokens += sampled[i]
		if i%(len(c.flows)/prompts) == 0 { // samples of one prompt share it: counted once
			u.PromptTokens += len(f.answer.prompt)
			cached += f.cached
		}
	}
	e.mu.Unlock()
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	if !e.config.HideCached {
		u.Details = &promptDetail{CachedTokens: cached}
	}
	return u
}
