package scheduler

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"

	"tranche/bucketing"
	"tranche/episode"
)

// Ticket names an offered call until it is settled for good.
type Ticket int64

// Request is a call as the core sees it.
type Request struct {
	Ticket         Ticket
	Episode, Group string
	Cell           episode.Cell
	Prompt         int  // tokens
	Exact          bool // the server counted Prompt
	Want           int  // tokens the answer may have by turn and episode budgets; 0 = as many as fit
	Context        int  // cap on prompt + answer, tokens; 0 = the endpoint's own
	MinUseful      int  // least room for an answer worth asking for, tokens
}

// Launch says: send this call to that replica now.
type Launch struct {
	Ticket    Ticket
	Replica   int
	MaxTokens int // clamped to what is left; 0 = the server decides (no limit known, none wanted)
	Class     int
	Attempt   int // from 1
}

// Reject says that a call will not be sent.
type Reject struct {
	Ticket      Ticket
	ContextFull bool           // no endpoint has room for a useful answer: a normal end of the episode
	Fault       *episode.Fault // else why
}

// Decision is what became of a call whose attempt was settled.
type Decision int

// Decisions.
const (
	Finished Decision = iota // the attempt stands: success, or a failure that ends the call
	Retrying                 // the core holds the call and will launch it again
	Full                     // the context is full: a normal end of the episode
)

// Core is the scheduling state machine: no goroutine, no clock, no I/O. Not safe for concurrent use. Same calls in the same
// order at the same times give the same answers.
type Core struct {
	rules    Rules
	rnd      *rand.Rand
	replicas []*replica
	calls    map[Ticket]*call
	homes    map[string]*home // by episode
	groups   map[string]*groupHome
	pools    map[string]*pool // by member set
	order    []*pool          // pools by priority: smaller sets first, so an episode at its home before work that can go anywhere
	delayed  delayed
	byAge    bucketing.Queues[*call]
	lengths  bucketing.Lengths[episode.Cell]
	turn     int // rotates ties between equal replicas
}

type call struct {
	Request
	state    callState
	pool     *pool
	place    *bucketing.Item[*call] // in its pool
	age      *bucketing.Item[*call] // in byAge
	class    int
	since    Time // waiting since
	due      Time // not before (backoff)
	heapPos  int
	on       int // replica it runs on
	cost     int // tokens promised there
	attempts int // launches so far
	counted  int // failures that count against the call
	failures int // all failures, for the backoff
	avoid    int // replica that failed it last, -1
	learned  bool
}

type callState int

const (
	waiting callState = iota
	postponed
	running
)

type home struct {
	replica int
	group   string
	warm    bool // a call of the episode succeeded there: its prefix may be cached
}

type groupHome struct {
	replica, open int
}

// NewCore returns a core for these replicas.
func NewCore(rules Rules, replicas []ReplicaConfig) (*Core, error) {
	if err := rules.Validate(); err != nil {
		return nil, err
	}
	rules = rules.withDefaults()
	c := &Core{
		rules: rules, rnd: rand.New(rand.NewPCG(rules.Seed, 0x7261_6e63_6865)),
		calls: map[Ticket]*call{}, homes: map[string]*home{}, groups: map[string]*groupHome{}, pools: map[string]*pool{},
	}
	c.lengths.Prior = 256
	for _, r := range replicas {
		c.replicas = append(c.replicas, &replica{ReplicaConfig: r, theta: 1, cooldown: rules.Cooldown})
	}
	return c, nil
}

// Offer takes a call into the queue.
func (c *Core) Offer(r Request, now Time) {
	w := &call{Request: r, avoid: -1, heapPos: -1}
	c.calls[r.Ticket] = w
	c.enqueue(w, now)
}

// expected is how long the answer is expected to get, tokens.
func (c *Core) expected(w *call) int {
	e := int(c.lengths.Mean(w.Cell))
	if w.Want > 0 {
		e = min(e, w.Want)
	}
	return e
}

// margin is kept free when the prompt's length is only estimated: 1/16 of it and 16 tokens.
func (w *call) margin() int {
	if w.Exact {
		return 0
	}
	return w.Prompt/16 + 16
}

// Next returns what to launch now, what will never be launched, and how long nothing changes by the passing of time alone
// (negative = for ever). Call it after every other method and when the wait is over.
func (c *Core) Next(now Time) (launches []Launch, rejects []Reject, wait Time) {
	for len(c.delayed) > 0 && c.delayed[0].due <= now {
		c.enqueue(heap.Pop(&c.delayed).(*call), now)
	}
	rejects = c.rejects(now)
	reserved := c.oldestFirst(now, &launches)
	for _, p := range c.order {
		for level := p.queue.Below(64); level >= 0; {
			w := p.queue.Head(level).Value
			i := c.choose(p, w, now, reserved)
			if i < 0 {
				level = p.queue.Below(level)
				continue
			}
			launches = append(launches, c.launch(w, i, now))
			if p.queue.Head(level) == nil {
				level = p.queue.Below(level)
			}
		}
	}
	return launches, rejects, c.untilNext(now)
}

// oldestFirst serves the longest-waiting call before all order when it is past the age limit. When it does not fit yet, it
// returns the replica whose room is kept for it, else -1.
func (c *Core) oldestFirst(now Time, launches *[]Launch) int {
	for c.byAge.Len() > 0 {
		w := c.byAge.Head(0).Value
		if now-w.since <= c.rules.AgeLimit {
			return -1
		}
		if i := c.choose(w.pool, w, now, -1); i >= 0 {
			*launches = append(*launches, c.launch(w, i, now))
			continue
		}
		return c.roomiest(w, now)
	}
	return -1
}

// roomiest is the live replica of the call's pool with the most room, -1 when none is alive.
func (c *Core) roomiest(w *call, now Time) int {
	best, most := -1, 0.0
	for _, i := range w.pool.members {
		r := c.replicas[i]
		if r.ready(now) && (best < 0 || 1-r.fill() > most) {
			best, most = i, 1-r.fill()
		}
	}
	return best
}

// choose picks the replica of the pool that takes the call now, or -1: the group's own when it has room, else the least
// filled; equals take turns. The replica that just failed the call is left out while another is alive.
func (c *Core) choose(p *pool, w *call, now Time, reserved int) int {
	if g := c.groups[w.Group]; g != nil && g.replica != reserved && g.replica != w.avoid &&
		slices.Contains(p.members, g.replica) && c.fits(c.replicas[g.replica], w, now) {
		return g.replica
	}
	best, avoided := -1, -1
	for k := range p.members {
		i := p.members[(k+c.turn)%len(p.members)]
		r := c.replicas[i]
		if i == reserved || !c.fits(r, w, now) {
			continue
		}
		if i == w.avoid {
			avoided = i
			continue
		}
		if best < 0 || r.fill() < c.replicas[best].fill() {
			best = i
		}
	}
	if best < 0 && avoided >= 0 && !c.othersAlive(p, avoided) {
		return avoided
	}
	return best
}

func (c *Core) launch(w *call, i int, now Time) Launch {
	r := c.replicas[i]
	c.unqueue(w)
	most := r.maxTokens(w)
	w.state, w.on, w.cost = running, i, w.Prompt+most
	w.attempts++
	r.running++
	r.promised += w.cost
	if r.open {
		r.trial = w.Ticket
	}
	if r.ramp > 0 {
		r.ramp--
		r.rampAt = now + c.rules.Ramp
	}
	c.settleDown(w, i)
	c.turn++
	return Launch{Ticket: w.Ticket, Replica: i, MaxTokens: most, Class: w.class, Attempt: w.attempts}
}

// settleDown makes i the home of the call's episode and of its group.
func (c *Core) settleDown(w *call, i int) {
	h := c.homes[w.Episode]
	if h == nil {
		h = &home{group: w.Group}
		c.homes[w.Episode] = h
		g := c.groups[w.Group]
		if g == nil {
			g = &groupHome{replica: i}
			c.groups[w.Group] = g
		}
		g.open++
	}
	h.warm = h.warm && h.replica == i
	h.replica = i
}

// Settle reports the end of a launched attempt: fault nil = success with that many tokens generated.
func (c *Core) Settle(t Ticket, fault *episode.Fault, generated int, now Time) Decision {
	w := c.calls[t]
	if w == nil || w.state != running {
		panic(fmt.Sprintf("scheduler: call %d is settled and was not running", t))
	}
	r := c.replicas[w.on]
	r.running--
	r.promised -= w.cost
	if r.trial == t {
		r.trial = 0
	}
	if fault == nil {
		c.lengths.Add(w.Cell, generated)
		if h := c.homes[w.Episode]; h != nil {
			h.warm = true
		}
		c.healthy(r, now)
		r.served++
		delete(c.calls, t)
		return Finished
	}
	return c.failed(w, r, fault, now)
}

func (c *Core) failed(w *call, r *replica, f *episode.Fault, now Time) Decision {
	r.failed++
	b := blameFor(f)
	if f.Class == episode.ClassCancelled {
		b = blame{}
	}
	if b.gate {
		c.closeGate(r, f, now)
	}
	if b.endpoint {
		c.strike(r, now)
	}
	if f.Class == episode.ClassOverflow {
		return c.overflowed(w, r, f, now)
	}
	w.failures++
	if b.call {
		w.counted++
	}
	if !f.Retry || w.counted >= c.rules.MaxAttempts {
		delete(c.calls, w.Ticket)
		return Finished
	}
	if b.gate && !b.call {
		c.enqueue(w, now) // the gate is the wait, and other endpoints need none
		return Retrying
	}
	w.avoid = w.on
	w.state, w.due = postponed, now+c.rules.backoff(w.failures, c.rnd)
	heap.Push(&c.delayed, w)
	return Retrying
}

// overflowed uses what the server said about its limit and our prompt to try once more with a smaller budget, or finds that
// the context is full.
func (c *Core) overflowed(w *call, r *replica, f *episode.Fault, now Time) Decision {
	if f.Limit > 0 && (r.Capacity.ContextTokens == 0 || f.Limit < r.Capacity.ContextTokens) {
		r.Capacity.ContextTokens = f.Limit
		c.reconsider(now)
	}
	if f.Prompt > 0 {
		w.Prompt, w.Exact = f.Prompt, true
	}
	if w.learned || (f.Limit == 0 && f.Prompt == 0) || len(c.poolFor(w, now).members) == 0 {
		delete(c.calls, w.Ticket)
		return Full
	}
	w.learned = true
	c.enqueue(w, now)
	return Retrying
}

// Withdraw takes a waiting call back; false when it is running (settle it then) or unknown.
func (c *Core) Withdraw(t Ticket) bool {
	w := c.calls[t]
	if w == nil || w.state == running {
		return false
	}
	c.drop(w)
	return true
}

// Leave forgets an episode that makes no more calls.
func (c *Core) Leave(episodeID string) {
	h := c.homes[episodeID]
	if h == nil {
		return
	}
	delete(c.homes, episodeID)
	if g := c.groups[h.group]; g != nil {
		if g.open--; g.open == 0 {
			delete(c.groups, h.group)
		}
	}
}

// untilNext is how long until time alone changes something.
func (c *Core) untilNext(now Time) Time {
	next := Time(-1)
	at := func(t Time) {
		if t > now && (next < 0 || t-now < next) {
			next = t - now
		}
	}
	if len(c.delayed) > 0 {
		at(c.delayed[0].due)
	}
	if c.byAge.Len() == 0 {
		return next
	}
	at(c.byAge.Head(0).Value.since + c.rules.AgeLimit + 1)
	for _, r := range c.replicas {
		at(r.gateUntil)
		if r.open && r.trial == 0 {
			at(r.retryAt)
		}
		if r.ramp > 0 {
			at(r.rampAt)
		}
	}
	for _, p := range c.order {
		if p.queue.Len() == 0 {
			continue
		}
		if dead := c.deadFor(p, now); dead >= 0 {
			at(now - dead + c.rules.Patience)
		}
	}
	return next
}
