package scheduler

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tranche/episode"
)

// Endpoint is one inference server as the scheduler uses it.
type Endpoint struct {
	Name     string
	Model    episode.Model
	Counter  episode.Counter // nil = prompts cannot be counted there
	Gauge    episode.Gauge   // nil = no load figures
	Capacity episode.Capacity
	MaxCalls int   // calls in flight at once; 0 = Config.Concurrency
	Strict   bool  // Capacity.KVTokens is a budget that a person set: see ReplicaConfig.Strict
	Rows     int   // it pads batches of so many calls; 0 = it does not: see ReplicaConfig.Rows
	Shapes   []int // what prompts are padded to there: see ReplicaConfig.Shapes

	Extender episode.Extender // goes on with answers that were cut; nil = cannot. Only with Rows: see ReplicaConfig.Continues
	Lister   episode.Lister   // takes a whole batch in one request; nil = cannot. Only with an Extender
	Begun    bool             // Lister takes only answers that a chat has begun
}

// Config is what a Scheduler needs. The zero value of a field means its default.
type Config struct {
	Endpoints   []Endpoint
	Rules       Rules
	Concurrency int           // calls in flight per endpoint; default 64
	GaugeEvery  time.Duration // how often an endpoint's load is read; default 5 s
	Trace       Trace
}

// Validate reports every fault of the configuration.
func (c Config) Validate() error {
	errs := []error{c.Rules.Validate()}
	if len(c.Endpoints) == 0 {
		errs = append(errs, errors.New("scheduler: no endpoint"))
	}
	for _, e := range c.Endpoints {
		if e.Model == nil {
			errs = append(errs, fmt.Errorf("scheduler: endpoint %q has no model", e.Name))
		}
		if e.Rows < 0 || len(e.Shapes) > 0 && e.Rows == 0 || !slices.IsSorted(e.Shapes) {
			errs = append(errs, fmt.Errorf("scheduler: endpoint %q: %d rows, shapes %v: rows must not be negative, shapes must rise and need rows", e.Name, e.Rows, e.Shapes))
		}
	}
	if c.Concurrency < 0 {
		errs = append(errs, fmt.Errorf("concurrency: %d, expected at least 1", c.Concurrency))
	}
	return errors.Join(errs...)
}

// ErrContextFull is what Generate returns when no endpoint has room for a useful answer: a normal end of an episode.
var ErrContextFull = errors.New("the context is full")

// Scheduler is the shell around a Core: one loop owns the core, every launch is a goroutine that makes one attempt. Safe for
// concurrent use.
type Scheduler struct {
	cfg     Config
	core    *Core // owned by loop
	pending map[Ticket]*pending
	began   time.Time
	inbox   chan func()
	done    <-chan struct{}    // closed by Close
	shut    context.CancelFunc // closes done, and ends readings of gauges
	ended   chan struct{}      // closed by loop when it will answer no more
	running sync.WaitGroup     // loop, gauges, attempts
	words   estimator
	seed    maphash.Seed   // of the names of prefixes
	tickets Ticket         // owned by loop
	halted  error          // why no episode begins any more; nil = they do; owned by loop
	mute    []atomic.Int64 // of each endpoint: until when it is asked to count no prompt, a Time
	whole   atomic.Bool    // an answer that was cut could not be gone on with: no more are cut
}

// pending is a call between Generate and its answer; owned by the loop but for what its attempt goroutine is handed.
type pending struct {
	ctx      context.Context
	call     *episode.Call
	answer   chan answer // buffered, one
	offered  time.Time
	attempts []episode.Attempt
	partial  string            // text of the last attempt that broke off
	flights  map[Ticket]flying // attempts that run; two when the call is hedged
	hedged   bool
	soFar    *episode.Reply // of an answer that was cut
	served   time.Duration  // sum of the times of the attempts that made it
	asks     bool           // ids are asked for that the call does not ask for
	latest   Launch
	begins   bool   // an episode; else it goes on with one, or belongs to none
	counter  string // endpoint that counted the prompt; "" = none did
}

// flying is an attempt that runs.
type flying struct {
	cancel   context.CancelCauseFunc
	endpoint string
	began    time.Time
	list     *listing // that it goes out with; nil = alone
}

// history gives a fault the record of what was tried before it, and what there was of an answer that was cut.
func (p *pending) history(f *episode.Fault) {
	f.Attempts = p.attempts
	f.Wasted += p.tokens()
	if p.soFar != nil {
		f.Partial = p.soFar.Message.Sendable().Text() + f.Partial
	}
	if f.Partial == "" {
		f.Partial = p.partial
	}
}

// cancelled is the fault of a call that is given up between two attempts.
func (p *pending) cancelled(cause error) *episode.Fault {
	f := cancelled(cause)
	if p.soFar != nil { // the model was at it
		f.Stage = episode.StageModel
	}
	p.history(f)
	return f
}

type answer struct {
	reply *episode.Reply
	turn  episode.Turn
	err   error
}

// New starts a scheduler. Close it after the last Generate has returned.
func New(cfg Config) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	def(&cfg.Concurrency, 64)
	def(&cfg.GaugeEvery, 5*time.Second)
	replicas := make([]ReplicaConfig, len(cfg.Endpoints))
	for i, e := range cfg.Endpoints {
		if e.Rows > 0 {
			def(&e.MaxCalls, e.Rows)
		}
		def(&e.MaxCalls, cfg.Concurrency)
		replicas[i] = ReplicaConfig{
			Name: e.Name, Capacity: e.Capacity, MaxCalls: e.MaxCalls, Strict: e.Strict, Rows: e.Rows, Shapes: e.Shapes, Continues: e.Rows > 0 && e.Extender != nil,
		}
	}
	core, err := NewCore(cfg.Rules, replicas)
	if err != nil {
		return nil, err
	}
	open, shut := context.WithCancel(context.Background())
	s := &Scheduler{
		cfg: cfg, core: core, pending: map[Ticket]*pending{}, began: time.Now(), mute: make([]atomic.Int64, len(cfg.Endpoints)),
		inbox: make(chan func(), 256), seed: maphash.MakeSeed(), done: open.Done(), shut: shut, ended: make(chan struct{}),
	}
	s.running.Go(s.loop)
	for i, e := range cfg.Endpoints {
		if e.Gauge != nil {
			s.running.Go(func() { s.watch(open, i, e.Gauge) })
		}
	}
	return s, nil
}

// Close stops the loop and waits for what it started. Calls still waiting are answered as cancelled.
func (s *Scheduler) Close() {
	s.shut()
	s.running.Wait()
}

func (s *Scheduler) now() Time { return time.Since(s.began) }

// loop owns the core: it applies what comes in, then carries out what the core decides.
func (s *Scheduler) loop() {
	defer close(s.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := s.pump()
		if wait < 0 {
			wait = time.Hour
		}
		timer.Reset(wait)
		select {
		case f := <-s.inbox:
			f()
			s.drainInbox()
		case <-timer.C:
		case <-s.done:
			s.cancelAll()
			return // pending calls are answered; their attempts see their own contexts
		}
	}
}

// drainInbox takes what else has come in, so that one decision serves a burst.
func (s *Scheduler) drainInbox() {
	for range cap(s.inbox) {
		select {
		case f := <-s.inbox:
			f()
		default:
			return
		}
	}
}

// pump carries out the core's decisions and returns how long to wait.
func (s *Scheduler) pump() Time {
	launches, rejects, wait := s.core.Next(s.now())
	for _, r := range rejects {
		p := s.pending[r.Ticket.call()]
		a := s.full(p)
		if !r.ContextFull {
			p.history(r.Fault)
			a = answer{err: r.Fault}
		}
		s.finish(r.Ticket.call(), p, a)
	}
	lists, row := s.listings(launches), map[*listing]int{}
	for i, l := range launches {
		p := s.pending[l.Ticket.call()]
		s.cfg.Trace.launched(s.cfg.Endpoints[l.Replica].Name, l)
		ctx, cancel := context.WithCancelCause(p.ctx)
		p.flights[l.Ticket] = flying{cancel, s.cfg.Endpoints[l.Replica].Name, time.Now(), lists[i]}
		p.hedged = p.hedged || l.Hedge
		errand := s.errandFor(p, l)
		if list := lists[i]; list != nil {
			n := row[list]
			if row[list]++; n == 0 {
				list.begin(s)
			}
			errand = func(ctx context.Context) (*episode.Reply, error) { return list.wait(ctx, n) }
		}
		s.running.Go(func() {
			defer cancel(nil)
			s.attempt(ctx, p, l, errand)
		})
	}
	return wait
}

// do runs f in the loop; false when the scheduler is closed.
func (s *Scheduler) do(f func()) bool {
	select {
	case s.inbox <- f:
		return true
	case <-s.done:
		return false
	}
}

func (s *Scheduler) finish(t Ticket, p *pending, a answer) {
	delete(s.pending, t)
	p.answer <- a
}

// halt gives back the calls that begin an episode and have not been sent, and those that come: the run was told to stop. What has begun goes on.
func (s *Scheduler) halt(cause error) {
	s.do(func() {
		s.halted = cause
		for t, p := range s.pending {
			if p.begins && len(p.attempts) == 0 && p.soFar == nil && s.core.Withdraw(t) {
				s.finish(t, p, answer{err: cancelled(cause)})
			}
		}
	})
}

func (s *Scheduler) cancelAll() {
	for t, p := range s.pending {
		s.finish(t, p, answer{err: cancelled(errors.New("the scheduler was closed"))})
	}
}

func cancelled(cause error) *episode.Fault {
	return &episode.Fault{Stage: episode.StageAdmission, Class: episode.ClassCancelled, Cause: cause}
}

// Generate waits for admission, sends the call, retries by the rules, and returns the reply with the record of its turn. The
// error is ErrContextFull or a *episode.Fault. It returns soon after ctx is done.
func (s *Scheduler) Generate(ctx context.Context, c *episode.Call, b episode.Budget) (*episode.Reply, episode.Turn, error) {
	return s.generate(ctx, c, b, false)
}

// generate is Generate; begins says that with the call an episode begins, so that it is not made once the run has been told to stop.
func (s *Scheduler) generate(ctx context.Context, c *episode.Call, b episode.Budget, begins bool) (*episode.Reply, episode.Turn, error) {
	if err := ctx.Err(); err != nil {
		return nil, episode.Turn{}, cancelled(context.Cause(ctx))
	}
	offered := time.Now() // counting is waiting
	counter := s.measure(ctx, c, b)
	p := &pending{ctx: ctx, call: c, counter: counter, answer: make(chan answer, 1), offered: offered, flights: map[Ticket]flying{}, begins: begins}
	var marks []Mark
	if c.Turn == 0 { // later the episode's own context is what counts, and it has a home
		marks = s.marks(c)
	}
	var t Ticket
	ok := s.do(func() {
		s.tickets++
		t = s.tickets
		s.pending[t] = p
		if begins && s.halted != nil {
			s.finish(t, p, answer{err: cancelled(s.halted)})
			return
		}
		s.core.Offer(Request{
			Ticket: t, Episode: c.Episode, Group: c.Group, Cell: c.Cell, Prompt: c.PromptTokens, Exact: c.PromptExact,
			Want: c.Want, Context: b.ContextTokens, MinUseful: b.MinUseful, Turns: callsLeft(c, b), GroupSize: c.GroupSize,
			Prefix: marks, Continues: s.cuttable(c),
		}, s.now())
	})
	if !ok {
		return nil, episode.Turn{}, cancelled(errors.New("the scheduler is closed"))
	}
	select {
	case a := <-p.answer:
		return a.reply, a.turn, a.err
	case <-s.ended:
		return p.last()
	case <-ctx.Done():
	}
	s.do(func() { // a running attempt sees ctx itself and settles
		if s.pending[t] == p {
			s.withdrawn(t, p)
		}
	})
	select {
	case a := <-p.answer:
		return a.reply, a.turn, a.err
	case <-s.ended:
		return p.last()
	}
}

// last is the answer of a call whose scheduler has ended: the loop may have given one just before.
func (p *pending) last() (*episode.Reply, episode.Turn, error) {
	select {
	case a := <-p.answer:
		return a.reply, a.turn, a.err
	default:
		return nil, episode.Turn{}, cancelled(errors.New("the scheduler was closed"))
	}
}

// callsLeft is how many calls the episode may still make, this one included; 0 = not known. Without tools there is but one.
func callsLeft(c *episode.Call, b episode.Budget) int {
	switch {
	case len(c.Tools) == 0:
		return 1
	case b.Turns == 0:
		return 0
	}
	return max(b.Turns-c.Turn, 1)
}

// attempt makes one attempt of a launched call, outside the loop.
func (s *Scheduler) attempt(ctx context.Context, p *pending, l Launch, errand func(context.Context) (*episode.Reply, error)) {
	e := s.cfg.Endpoints[l.Replica]
	began := time.Now()
	reply, err := safely(ctx, errand)
	fault := episode.AsFault(episode.StageModel, err)
	if fault != nil && errors.Is(context.Cause(ctx), errStalled) {
		fault.Class, fault.Retry, fault.Cause = episode.ClassIdle, true, fmt.Errorf("endpoint %s: %w", e.Name, errStalled)
	}
	took := time.Since(began)
	s.cfg.Trace.settled(e.Name, took, fault)
	if fault == nil {
		s.words.learn(p.call, reply.Usage.Prompt)
	}
	s.do(func() { s.settle(p, l, reply, fault, began, took) })
}

// safely turns a panic of a client into a fault of this one call.
func safely(ctx context.Context, errand func(context.Context) (*episode.Reply, error)) (r *episode.Reply, err error) {
	defer func() {
		if x := recover(); x != nil {
			r, err = nil, panicked(x)
		}
	}()
	return errand(ctx)
}

func panicked(x any) *episode.Fault {
	return &episode.Fault{Stage: episode.StageModel, Class: episode.ClassInternal, Cause: fmt.Errorf("panic: %v", x)}
}

// settle is run by the loop when an attempt has ended.
func (s *Scheduler) settle(p *pending, l Launch, reply *episode.Reply, fault *episode.Fault, began time.Time, took time.Duration) {
	was, endpoint := s.core.down(l.Replica, s.now()), s.cfg.Endpoints[l.Replica].Name
	p.latest = l
	if fault == nil && s.cutShort(p, l, reply, endpoint, took) {
		s.notice(endpoint, was, s.core.down(l.Replica, s.now()), nil)
		return
	}
	decision := s.tell(p, l, reply, fault)
	s.notice(endpoint, was, s.core.down(l.Replica, s.now()), fault)
	delete(p.flights, l.Ticket)
	t := l.Ticket.call()
	if decision == Lost {
		s.cfg.Trace.wasted(endpoint, wasted(reply, fault))
		return
	}
	if fault == nil {
		for _, other := range p.flights {
			other.cancel(errHedged)
			s.cfg.Trace.lost(other.endpoint, time.Since(other.began))
		}
		if l.Hedge {
			s.cfg.Trace.won(endpoint)
		}
		s.finish(t, p, answer{reply: p.asAsked(reply), turn: s.turn(p, l, reply, endpoint, began, took)})
		return
	}
	p.attempts = append(p.attempts, episode.Attempt{
		Endpoint: endpoint, Class: fault.Class, Began: began, Ended: began.Add(took), Cause: fmt.Sprint(fault.Cause),
	})
	if fault.Partial != "" {
		p.partial = fault.Partial
	}
	switch {
	case decision == Outlived:
		s.cfg.Trace.lost(endpoint, took)
		s.cfg.Trace.wasted(endpoint, wasted(reply, fault))
	case decision == Full:
		s.finish(t, p, s.full(p))
	case decision == Retrying && s.withdrawn(t, p):
	case decision == Retrying:
		s.cfg.Trace.retrying(endpoint, fault)
	default:
		p.history(fault)
		s.finish(t, p, answer{err: fault})
	}
}

// withdrawn gives a call up that would be launched again and whose caller has gone. One that the core has sentenced meanwhile is none: its
// end comes with the next decision.
func (s *Scheduler) withdrawn(t Ticket, p *pending) bool {
	if p.ctx.Err() == nil || !s.core.Withdraw(t) {
		return false
	}
	s.finish(t, p, answer{err: p.cancelled(context.Cause(p.ctx))})
	return true
}

// errHedged is the cause of the end of an attempt whose call the other one answered.
var errHedged = errors.New("the other attempt was answered first")

// wasted is the tokens an attempt generated for nothing, counted or estimated.
func wasted(r *episode.Reply, f *episode.Fault) int {
	if f != nil {
		return f.Wasted
	}
	return usage(r).Generated
}

// notice tells when an endpoint was lost or found by what was just settled.
func (s *Scheduler) notice(endpoint string, was, is Time, fault *episode.Fault) {
	switch {
	case was == 0 && is > 0:
		s.cfg.Trace.down(endpoint, fault, is)
	case was > 0 && is == 0:
		s.cfg.Trace.up(endpoint)
	}
}

func usage(r *episode.Reply) Usage {
	u := Usage{Cached: -1}
	if r == nil {
		return u
	}
	if r.Usage.Completion != nil {
		u.Generated = int(*r.Usage.Completion)
	}
	if r.Usage.Cached != nil {
		u.Cached = int(*r.Usage.Cached)
	}
	return u
}

// failedBefore is how long attempts that failed took until then: of two that ran side by side one may have failed while the other went on.
func (p *pending) failedBefore(then time.Time) (sum time.Duration) {
	for _, a := range p.attempts {
		if a.Began.Before(then) {
			sum += min(a.Ended.Sub(a.Began), then.Sub(a.Began))
		}
	}
	return sum
}

// turn is the record of a successful call. Queue is all the time it spent neither in the successful attempt nor in failed ones.
// Class is that of the length the call really had, so that the record does not depend on what had been learned by then; where the
// server does not count, that of the length expected at launch.
func (s *Scheduler) turn(p *pending, l Launch, r *episode.Reply, endpoint string, began time.Time, took time.Duration) episode.Turn {
	class := l.Class
	if u := r.Usage; u.Prompt != nil && u.Completion != nil {
		class = s.core.rules.Ladder.Class(int(*u.Prompt) + int(*u.Completion))
	}
	service := r.Service
	if service == 0 {
		service = took
	}
	counted := 0
	if p.counter != "" && p.counter == endpoint { // another's tokenizer may be another
		counted = p.call.PromptTokens
	}
	return episode.Turn{
		Counted: counted, PromptTokens: r.Usage.Prompt, CompletionTokens: r.Usage.Completion, CachedTokens: r.Usage.Cached,
		Finish: r.RawEnd, StopSeq: r.StopSeq, Endpoint: endpoint,
		Queue: max(began.Sub(p.offered)-p.failedBefore(began)-p.served, 0), TTFT: r.TTFT, Service: service,
		Retries: int16(len(p.attempts)), Class: int16(class), VersionStart: r.FirstVersion(), VersionEnd: r.Version, Hedged: p.hedged, Exchange: r.Exchange, LogprobsOf: r.LogprobsOf,
	}
}

// Act tells the scheduler that the episode goes into an action of that kind, between two calls.
func (s *Scheduler) Act(episodeID, kind string) {
	s.do(func() { s.core.Act(episodeID, kind, s.now()) })
}

// Leave tells the scheduler that the episode makes no more calls.
func (s *Scheduler) Leave(episodeID string) { s.do(func() { s.core.Leave(episodeID) }) }

// NoMore tells the scheduler that no episode will come that has not come yet.
func (s *Scheduler) NoMore() { s.do(func() { s.core.NoMore() }) }

// score tells that an episode that has left goes into grading (+1), or comes out of it (-1).
func (s *Scheduler) score(change int) { s.do(func() { s.core.Score(change) }) }

// Accounts says what kept more work from each endpoint until now; nil after Close.
func (s *Scheduler) Accounts() []Account {
	got := make(chan []Account, 1)
	if !s.do(func() { got <- s.core.Accounts(s.now()) }) {
		return nil
	}
	select {
	case a := <-got:
		return a
	case <-s.ended:
		return nil
	}
}

// State returns the endpoints as they are and how many calls wait; nil after Close.
func (s *Scheduler) State() (replicas []ReplicaState, waiting int) {
	got := make(chan struct{})
	if !s.do(func() { replicas, waiting = s.core.State(); close(got) }) {
		return nil, 0
	}
	select {
	case <-got:
		return replicas, waiting
	case <-s.ended:
		return nil, 0
	}
}

// AllDead reports whether no endpoint is taken to be alive.
func (s *Scheduler) AllDead() bool {
	states, _ := s.State()
	for _, r := range states {
		if !r.Open {
			return false
		}
	}
	return len(states) > 0
}

// watch reads one endpoint's gauges until ctx ends with Close, or until the server says that it has none.
func (s *Scheduler) watch(ctx context.Context, i int, g episode.Gauge) {
	tick := time.NewTicker(s.cfg.GaugeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		load, err := s.read(ctx, g)
		if errors.Is(err, episode.ErrUnsupported) {
			return
		}
		if err == nil {
			s.do(func() { s.observe(i, load) })
		}
	}
}

// errStalled is the cause of the end of attempts at an engine that hangs.
var errStalled = errors.New("the engine's counters stand still: it hangs")

// observe is run by the loop for a reading. Attempts at an engine that it shows to hang are ended: they may go elsewhere.
func (s *Scheduler) observe(i int, l episode.Load) {
	was := s.core.down(i, s.now())
	if s.core.Observe(i, l, s.now()) {
		s.cfg.Trace.began(s.cfg.Endpoints[i].Name)
	}
	is := s.core.down(i, s.now())
	if was > 0 || is == 0 {
		return
	}
	endpoint := s.cfg.Endpoints[i].Name
	s.notice(endpoint, was, is, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassIdle, Retry: true, Cause: errStalled})
	for _, p := range s.pending {
		for _, f := range p.flights {
			if f.endpoint == endpoint {
				f.cancel(errStalled)
			}
		}
	}
}

// read takes one reading, cut short when the scheduler closes or the reading is older than the next one.
func (s *Scheduler) read(ctx context.Context, g episode.Gauge) (episode.Load, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.GaugeEvery)
	defer cancel()
	return g.Load(ctx)
}
