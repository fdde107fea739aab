package scheduler

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

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
	Prompt         int    // tokens
	Exact          bool   // the server counted Prompt
	Want           int    // tokens the answer may have by turn and episode budgets; 0 = as many as fit
	Context        int    // cap on prompt + answer, tokens; 0 = the endpoint's own
	MinUseful      int    // least room for an answer worth asking for, tokens
	Turns          int    // calls the episode may still make, this one included; 0 = not known
	GroupSize      int    // episodes of its group; 0 = not known
	Continues      bool   // the answer may be cut, and gone on with from its tokens: see ReplicaConfig.Continues
	Prefix         []Mark // where the prompt's text was cut, in ascending order; an episode's first call tells, later ones need not
}

// Launch says: send this call to that replica now.
type Launch struct {
	Ticket    Ticket
	Replica   int
	MaxTokens int // clamped to what is left; 0 = the server decides (no limit known, none wanted)
	Class     int
	Attempt   int  // from 1
	Hedge     bool // a second attempt while the first goes on; Ticket is the call's, negated
	Cut       bool // an answer that gets to MaxTokens has not ended: Core.Cut, not Settle, is told of it
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
	Finished   Decision = iota // the attempt stands: success, or a failure that ends the call
	Retrying                   // the core holds the call and will launch it again
	Full                       // the context is full: a normal end of the episode
	Outlived                   // it failed, and the call's other attempt goes on
	Continuing                 // its answer was cut: the core holds the call and will launch it again, to go on
	Lost                       // the call's other attempt had been answered: this one counts for nothing
)

// Core is the scheduling state machine: no goroutine, no clock, no I/O. Not safe for concurrent use. Same calls in the same
// order at the same times give the same answers.
type Core struct {
	rules    Rules
	rnd      *rand.Rand
	replicas []*replica
	calls    map[Ticket]*call
	lives    map[string]*life // by episode
	groups   map[string]*groupHome
	pools    map[string]*pool // by member set
	order    []*pool          // pools by priority: smaller sets first, so an episode at its home before work that can go anywhere
	delayed  delayed
	byAge    bucketing.Queues[*call]
	answers  answers
	turn     int  // rotates ties between equal replicas
	now      Time // as last told

	future     *foresight
	actions    bucketing.Lengths[string] // by kind, in timeUnits
	siblings   bucketing.Lengths[string] // answer lengths by group, tokens
	alarms     alarms
	admissions int
	launches   int                // of calls, hedges not counted
	hedges     int                // second attempts launched
	doubled    []Launch           // second attempts of this Next
	prefixes   map[uint64]*prefix // by hash
	view       view

	sentenced       []Reject // for the next Next
	acting, scoring int      // open episodes that make no call now
	noMore          bool     // no episode will come that has not come yet
	booked          Time     // until when the replicas' books are kept
	padding         *padding // nil = no replica pads
}

const timeUnit = 10 * time.Millisecond

type call struct {
	Request
	state    callState
	pool     *pool
	place    *bucketing.Item[*call] // in its pool
	age      *bucketing.Item[*call] // in byAge
	class    int
	since    Time // waiting since
	launched Time
	due      Time // not before (backoff)
	heapPos  int
	on       int            // replica it runs on
	cost     int            // tokens promised there
	attempts int            // launches so far
	counted  int            // failures that count against the call
	failures int            // all failures, for the backoff
	last     *episode.Fault // the last of them, where it was a living server's answer; else nil
	avoid    int            // replica that failed it last, -1
	refused  []int          // replicas that refuse all there is
	learned  bool
	life     *life
	moved    bool    // waited long enough for its origin
	held     bool    // its episode's memory was held when it came
	likely   float64 // tokens its answer is expected to get; as c.size found it last
	guess    float64 // of a running single call: tokens it was expected to get when it was launched
	begun    float64 // and flow.steps of its replica then
	flows    bool    // it is counted in its replica's flow
	twin     *call   // the other attempt, while both run
	lost     bool    // the other attempt was answered first
	shelved  shelved
	lined    bool // in the lines of its prefixes
	reads    int  // what each step is expected to read for it, tokens
	cached   int  // tokens of its prompt that are taken to be cached where it runs
	got      int  // tokens of its answer that there are, of one that was cut; Prompt counts them too
	most     int  // of a running one that is to be cut: what it might have without that, tokens; 0 = not bounded
	suspect
}

type callState int

const (
	waiting callState = iota
	postponed
	running
)

// groupHome is what the episodes of one group share.
type groupHome struct {
	replica   int // where the first was sent; -1 = nowhere yet
	open      int
	answers   logs           // lengths of the members' answers, where replicas pad
	probe     *call          // waits to be the first
	running   []*call        // single calls
	looking   bool           // an alarm is set to look how far they have come
	waiting   map[*call]bool // calls of episodes not begun: what a sibling's length teaches moves them
	suspicion *suspicion     // against their common prompt; nil = none
	firsts    int            // calls with it that run: the first of each episode
}

// NewCore returns a core for these replicas.
func NewCore(rules Rules, replicas []ReplicaConfig) (*Core, error) {
	if err := rules.Validate(); err != nil {
		return nil, err
	}
	def(&rules.Overhead, halfBlock(replicas))
	rules = rules.withDefaults()
	c := &Core{
		rules: rules, rnd: rand.New(rand.NewPCG(rules.Seed, 0x7261_6e63_6865)),
		calls: map[Ticket]*call{}, lives: map[string]*life{}, future: newForesight(), groups: map[string]*groupHome{}, pools: map[string]*pool{},
		prefixes: map[uint64]*prefix{},
	}
	c.answers.cells = map[episode.Cell]*answered{}
	c.actions.Prior = 100
	for _, r := range replicas {
		theta := rules.Theta
		if r.Strict {
			theta = 1
		}
		c.replicas = append(c.replicas, &replica{
			ReplicaConfig: r, index: len(c.replicas), theta: theta, scale: 1, cooldown: rules.Cooldown, flow: flow{read: rules.ReadToken.Seconds()}, pace: newPace(rules.PrefillToken.Seconds()),
		})
	}
	c.padding = newPadding(replicas, rules.Seed)
	return c, nil
}

// Offer takes a call into the queue.
func (c *Core) Offer(r Request, now Time) {
	c.now = now
	w := &call{Request: r, avoid: -1, heapPos: -1}
	c.calls[r.Ticket] = w
	l := c.lives[r.Episode]
	if l == nil {
		l = c.meet(r)
	}
	w.life, l.bound = l, r.Turns
	if !l.inside {
		l.single, l.prompt = l.turns == 0 && r.Turns == 1, r.Prompt
	}
	c.acted(l, now)
	if w.held = l.inside; w.held {
		c.replan(l, c.planFor(w))
		c.crowded(l)
	}
	l.call = w
	c.expect(r.Prompt)
	c.enqueue(w, now)
}

// meet takes up an episode that was not known before.
func (c *Core) meet(r Request) *life {
	g := c.groups[r.Group]
	if g == nil {
		g = &groupHome{replica: -1, waiting: map[*call]bool{}}
		c.groups[r.Group] = g
	}
	g.open++
	l := &life{id: r.Episode, group: r.Group, domain: r.Cell.DataSource, replica: -1, siblings: g}
	if r.Cell.Turn > 0 { // another process played its first turns
		l.turns, l.context = r.Cell.Turn, r.Prompt
	}
	c.lives[r.Episode] = l
	c.trace(l, r)
	return l
}

// planFor projects the memory of the call's episode.
func (c *Core) planFor(w *call) plan {
	if w.life.single {
		return plan{}
	}
	return c.planOf(w, c.expected(w))
}

// planOf is planFor with an answer of so many tokens, for an episode of more calls than one.
func (c *Core) planOf(w *call, answer int) plan {
	return c.future.plan(w.life.domain, w.life.turns, max(w.Prompt-w.life.shared, 0)+answer, w.Turns, c.rules.Overhead)
}

// size looks at how long the call's answer is expected to get, once for all replicas.
func (c *Core) size(w *call) {
	if w.life.single {
		w.likely = c.answer(w)
		return
	}
	w.likely = float64(c.expected(w))
}

// expected is how long the answer is expected to get, tokens.
func (c *Core) expected(w *call) int {
	if w.life.single {
		return int(c.answer(w))
	}
	e := c.answers.mean(w.Cell, w.Want, c.now)
	if n := float64(c.siblings.Seen(w.Group)); n > 0 && w.Turns == 1 {
		e = (2*n*c.siblings.Of(w.Group) + e) / (2*n + 1) // siblings are alike: one says more than the cell's mean
	}
	return int(e)
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
	c.now = now
	c.charge(now)
	c.doubled = nil
	c.ring(now)
	launches = c.doubled
	rejects = c.rejects(now)
	launches = c.batches(now, launches)
	c.view.moves = 0
	reserved := c.oldestFirst(now, &launches)
	for n, pools := -1, 0; n < len(launches) || pools < len(c.order); { // a launch that moves an episode makes room where it was
		n, pools = len(launches), len(c.order)
		for _, p := range c.order { // what is begun and in place goes first
			launches = c.serve(p, bucketing.MaxClasses, reserved, now, launches)
		}
		launches = c.follow(reserved, now, launches)
		for _, p := range c.order {
			launches = c.serve(p, -1, reserved, now, launches)
		}
	}
	c.judgeBounds(now)
	return launches, rejects, c.untilNext(now)
}

// serve launches what fits of a pool's levels above `above`, the highest first; a level whose head does not fit waits, lower ones
// may go. Not past a single call with a long answer, unless a person's budget leaves room that nothing long would ever fill.
func (c *Core) serve(p *pool, above, reserved int, now Time, launches []Launch) []Launch {
	for level := p.queue.Below(64); level > above; {
		w := p.queue.Head(level).Value
		i := c.choose(w, now, reserved)
		if i < 0 && w.unknown() && !c.strict(p) {
			return launches // else the shorter ones, for which there is room sooner, would all go first
		}
		if i < 0 && !c.await(p, w, level) {
			level = p.queue.Below(level)
			continue
		}
		if i >= 0 {
			launches = append(launches, c.launch(w, i, now))
			c.replicas[i].cache.run = 0
		}
		if p.queue.Head(level) == nil {
			level = p.queue.Below(level)
		}
	}
	return launches
}

// oldestFirst serves the longest-waiting call before all order when it is past the age limit. When it does not fit yet, it
// returns the replica whose room is kept for it, else -1.
func (c *Core) oldestFirst(now Time, launches *[]Launch) int {
	for level, limit := range []Time{c.rules.StartLimit, c.rules.AgeLimit} { // episodes not begun, episodes begun
		for head := c.byAge.Head(level); head != nil && now-head.Value.since > limit; head = c.byAge.Head(level) {
			w := head.Value
			i := c.choose(w, now, -1)
			if i < 0 {
				return c.roomiest(w, now)
			}
			*launches = append(*launches, c.launch(w, i, now))
		}
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
// filled; equals take turns.
func (c *Core) choose(w *call, now Time, reserved int) int {
	c.size(w)
	if l := w.life; !l.inside {
		l.plan = plan{}
		if !l.single {
			l.plan = c.planOf(w, int(w.likely))
		}
	}
	if w.unknown() {
		c.view.awaits = -1
		c.look(w)
		return c.place(w.reach(), w, now, reserved)
	}
	if i, known := c.near(w, now, reserved); known {
		return i
	}
	p := w.reach()
	if g := w.life.siblings; slices.Contains(p.members, g.replica) && c.takes(g.replica, w, now, reserved) {
		return g.replica
	}
	best := -1
	for k := range p.members {
		i := p.members[(k+c.turn)%len(p.members)]
		if c.takes(i, w, now, reserved) && (best < 0 || c.replicas[i].fill() < c.replicas[best].fill()) {
			best = i
		}
	}
	return best
}

// takes says whether replica i can take the call now, its room not being kept for another.
func (c *Core) takes(i int, w *call, now Time, reserved int) bool {
	return (i != reserved || w.life.inside) && c.fits(c.replicas[i], w, now)
}

func (c *Core) launch(w *call, i int, now Time) Launch {
	r := c.replicas[i]
	c.unqueue(w)
	most := r.maxTokens(w)
	w.state, w.on, w.cost = running, i, w.Prompt+most
	w.attempts++
	r.rouse(now)
	r.running++
	r.promised += w.cost
	r.prompts += w.Prompt
	r.began += now
	w.launched = now
	c.answers.launched(w.Cell, now)
	if r.open {
		r.trial = w.Ticket
	}
	if r.ramp > 0 {
		r.ramp--
		r.rampAt = now + c.rules.Ramp
	}
	if g := w.life.siblings; g.replica < 0 {
		g.replica = i
		c.teach(g, now)
	}
	r.ride(w, c.suspected(w))
	c.sent(w, r)
	if r.Rows == 0 {
		c.enter(w.life, i)
		c.begin(w, r)
		c.mark(w)
	}
	c.launches++
	c.turn++
	return Launch{Ticket: w.Ticket, Replica: i, MaxTokens: most, Class: w.class, Attempt: w.attempts}
}

// Usage is what a successful attempt took, tokens.
type Usage struct {
	Generated int
	Cached    int // of the prompt, found in the server's prefix cache; -1 = the server does not tell
}

// Settle reports the end of a launched attempt: fault nil = success.
func (c *Core) Settle(t Ticket, fault *episode.Fault, u Usage, now Time) Decision {
	w := c.calls[t]
	if w == nil || w.state != running {
		panic(fmt.Sprintf("scheduler: call %d is settled and was not running", t))
	}
	got := u.Generated
	if fault != nil {
		got = -1
	}
	r := c.landed(w, fault, u, got, now)
	c.answers.left(w.Cell, w.launched, now, got)
	if w.lost {
		delete(c.calls, t)
		return Lost
	}
	if fault == nil {
		c.won(w)
		c.acquit(w, r, now)
		c.succeeded(w, r, u, now)
		if !r.posthumous(w) {
			c.healthy(w, r, now)
		}
		r.served++
		delete(c.calls, t)
		return Finished
	}
	return c.failed(w, r, fault, now)
}

// landed takes an attempt that has ended off its replica; got < 0 = it failed.
func (c *Core) landed(w *call, fault *episode.Fault, u Usage, got int, now Time) *replica {
	r := c.replicas[w.on]
	r.running--
	r.promised -= w.cost
	r.prompts -= w.Prompt
	r.began -= w.launched
	r.alight(w)
	c.now = now
	r.answered(w, fault, u)
	r.unload(got, now)
	c.over(w, r, got)
	if r.trial == w.Ticket {
		r.trial = 0
	}
	return r
}

// succeeded learns from a call and projects its episode anew.
func (c *Core) succeeded(w *call, r *replica, u Usage, now Time) {
	u.Generated += w.got
	c.answers.of(w.Cell).tokens += float64(w.got)
	c.heed(w, u.Generated)
	if w.Turns == 1 {
		c.siblings.Add(w.Group, u.Generated)
		c.teach(w.life.siblings, now)
	}
	l, x := w.life, w.Prompt-w.got+u.Generated
	if l.warm && w.held && u.Cached >= 0 {
		r.trim(l.context, u.Cached, c.byAge.Len() > 0, r.fresh(now, c.rules.StaleAfter))
	}
	l.call = nil
	l.warm = r.Rows == 0 // nothing is kept where batches are padded
	l.turns++
	c.future.reach(l.domain, l.turns, x-l.context)
	l.context, l.used = x, now
	if l.single {
		return
	}
	if l.inside {
		r.pauses(l)
	}
	grown := int(c.future.growth.Mean(growthCell{l.domain, stage(l.turns + 1)}))
	c.replan(l, c.future.plan(l.domain, l.turns, max(x-l.shared, 0)+grown, max(w.Turns-1, 0), c.rules.Overhead))
}

// teach sorts the waiting calls of a group by what its members' lengths have told.
func (c *Core) teach(g *groupHome, now Time) {
	moved := slices.SortedFunc(maps.Keys(g.waiting), func(a, b *call) int { return cmp.Compare(a.Ticket, b.Ticket) })
	for _, w := range moved {
		w.place.Remove()
		c.enqueue(w, now)
	}
}

func (c *Core) failed(w *call, r *replica, f *episode.Fault, now Time) Decision {
	r.failed++
	b := blameFor(f)
	if f.Class == episode.ClassCancelled {
		b = blame{}
	}
	if b.gate {
		c.closeGate(w, r, f, now)
	}
	if b.endpoint {
		c.witness(w, r, f, now)
		c.strike(w, r, f, now)
	}
	if w.twin != nil {
		c.outlived(w, b.call)
		return Outlived
	}
	if c.convict(w, f) {
		return Finished
	}
	if f.Class == episode.ClassOverflow {
		return c.overflowed(w, r, f, now)
	}
	if f.Refused {
		return c.refusedAt(w, r, now)
	}
	w.failures++
	w.last = nil
	if answeredFault(f) {
		w.last = f
	}
	if (b.call || f.Died && r.Rows > 0) && !r.died(w) { // where batches are padded there are no suspects: else who killed it would be sent for ever
		w.counted++
	}
	if !f.Retry || w.counted >= c.rules.MaxAttempts {
		delete(c.calls, w.Ticket)
		return Finished
	}
	if b.gate && !b.call || b.sample {
		c.enqueue(w, now) // the gate is the wait, and other endpoints need none; a sample needs none either
		return Retrying
	}
	return c.postpone(w, f, now)
}

// refusedAt sends a call elsewhere that r refused as it refuses all, or ends it where there is nobody else: the server was asked, and asking it again
// says nothing new.
func (c *Core) refusedAt(w *call, r *replica, now Time) Decision {
	w.refused = append(w.refused, r.index)
	if !slices.ContainsFunc(c.replicas, func(o *replica) bool { return c.feasible(o, w) }) {
		delete(c.calls, w.Ticket)
		return Finished
	}
	c.exit(w.life)
	w.life.warm = false
	c.enqueue(w, now)
	return Retrying
}

// postpone has a call that failed wait for its next attempt.
func (c *Core) postpone(w *call, f *episode.Fault, now Time) Decision {
	w.avoid = w.on
	c.exit(w.life) // what the attempt held is gone, and others may try first
	w.state, w.due = postponed, now+c.wait(w, f)
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
	if w == nil {
		w = c.calls[-t] // only its second attempt is left
	}
	if w == nil || w.state == running {
		return false
	}
	c.drop(w)
	return true
}

// Leave forgets an episode that makes no more calls.
func (c *Core) Leave(episodeID string) {
	l := c.lives[episodeID]
	if l == nil {
		return
	}
	c.exit(l)
	c.future.end(l.domain, l.turns)
	c.rest(l)
	delete(c.lives, episodeID)
	c.untrace(l)
	if g := l.siblings; g.open > 1 {
		g.open--
		return
	}
	delete(c.groups, l.group)
	c.siblings.Forget(l.group)
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
	if c.byAge.Len() == 0 && c.rules.Hedge == 0 {
		return next
	}
	if len(c.alarms) > 0 {
		at(c.alarms[0].at)
	}
	for level, limit := range []Time{c.rules.StartLimit, c.rules.AgeLimit} {
		if head := c.byAge.Head(level); head != nil {
			at(head.Value.since + limit + 1)
		}
	}
	for _, r := range c.replicas {
		if r.Rows > 0 && c.padding.waiting > 0 {
			if t := c.startsAt(r, now); t != never {
				at(t)
			}
		}
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
