package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"tranche/episode"
	"tranche/scheduler"
)

// Real plays a workload on a real server, in real time: the same policies behind the same seam as on a simulated fleet, driven by a loop
// of its own. The scheduler's core is driven by it too, and not by the scheduler's own shell: all policies then pay the same for the
// client, and only the decisions differ. Prompts are random ids, the server's own ids go back exactly, answers have the lengths the
// workload says, so every policy asks for the same work.
type Real struct {
	Server   episode.Continuer
	Gauge    episode.Gauge    // counters of the prefix cache and of preemptions before and after each run
	Capacity episode.Capacity // what policies are told, as the server said it
	Workload Workload
	Policies []Contestant // flood is played in any case
	// Repeats is how often each policy plays, all policies in turn. Default 1.
	Repeats int
	// Had are runs of the same measurement that are there already: they are not played again, and the report is of them too.
	Had []RealRun
	// GaugeEvery is how often policies see the server's gauges. Default 5 s, as in a run.
	GaugeEvery time.Duration
	// Run names this measurement: no other may have left prefixes in the server under the same name.
	Run string
	// Seed decides the prompts and is handed to the policies.
	Seed uint64
	// Done is told of each run that ended, to keep it. An error of it ends the measurement. May be nil.
	Done func(r RealRun) error
	// Identity, TimeScale and Build are for the record: who the server is, what share of their time actions last, and which program plays.
	Identity  ServerIdentity
	TimeScale float64
	Build     string
}

// Measured is what all runs of this measurement have in common.
func (r Real) Measured() Measured {
	return Measured{
		Workload: r.Workload.Name, Seed: r.Seed, Episodes: len(r.Workload.Episodes), Calls: r.Workload.Calls(), TimeScale: r.TimeScale,
		Digest: r.Workload.Digest(), GaugeSeconds: r.withDefaults().GaugeEvery.Seconds(), Server: r.Identity, Policies: PoliciesVersion,
	}
}

func (r Real) withDefaults() Real {
	r.Repeats = max(r.Repeats, 1)
	if r.GaugeEvery == 0 {
		r.GaugeEvery = 5 * time.Second
	}
	return r
}

// Validate reports every fault at once.
func (r Real) Validate() error {
	errs := []error{r.Workload.Validate()}
	if r.Server == nil || r.Gauge == nil {
		errs = append(errs, errors.New("real: a server and its gauge are needed"))
	}
	if limit := r.Capacity.ContextTokens; limit > 0 && r.Workload.Peak() > limit {
		errs = append(errs, fmt.Errorf("real: %s has contexts of up to %d tokens, the server takes %d", r.Workload.Name, r.Workload.Peak(), limit))
	}
	if r.Repeats < 0 || r.GaugeEvery < 0 {
		errs = append(errs, fmt.Errorf("real: %d repeats, gauges every %v: must not be negative", r.Repeats, r.GaugeEvery))
	}
	return errors.Join(errs...)
}

// Play plays every policy Repeats times, in turn, but for what was Had, and sums up. When ctx ends, or a call fails, the report holds
// the runs that were complete by then beside the error: a comparison in which calls failed is none.
func (r Real) Play(ctx context.Context) (RealReport, error) {
	if err := r.Validate(); err != nil {
		return RealReport{}, err
	}
	r = r.withDefaults()
	var err error
	if r.Policies, err = withFlood(r.Policies); err != nil {
		return RealReport{}, err
	}
	runs := slices.Clone(r.Had)
	for repeat := 1; repeat <= r.Repeats && err == nil; repeat++ {
		runs, err = r.round(ctx, repeat, runs)
	}
	return ReportOf(r.Measured(), runs), err
}

// round plays every policy that has not played this repeat, and returns all runs there are.
func (r Real) round(ctx context.Context, repeat int, runs []RealRun) ([]RealRun, error) {
	for k := range r.Policies {
		c := r.Policies[(k+repeat-1)%len(r.Policies)] // who comes first differs: a server may slow down or warm up
		if has(runs, c.Name, repeat) {
			continue
		}
		got, err := r.run(ctx, c, repeat)
		if err != nil {
			return runs, fmt.Errorf("%s, repeat %d: %w", c.Name, repeat, err)
		}
		run := RealRun{Policy: c.Name, Repeat: repeat, Ended: time.Now().UTC().Truncate(time.Second), Build: r.Build, Result: got}
		runs = append(runs, run)
		if r.Done == nil {
			continue
		}
		if err := r.Done(run); err != nil {
			return runs, err
		}
	}
	return runs, nil
}

// tell is what a policy is told.
func (r Real) tell() Told {
	return Told{Seed: r.Seed, Replicas: []scheduler.ReplicaConfig{{Name: "r0", Capacity: r.Capacity}}, Played: r.Workload}
}

// run plays the workload once, between two readings of the server's counters.
func (r Real) run(ctx context.Context, c Contestant, repeat int) (Result, error) {
	p, err := c.New(r.tell())
	if err != nil {
		return Result{}, err
	}
	before, err := r.Gauge.Load(ctx)
	if err != nil {
		return Result{}, orStopped(ctx, err)
	}
	s := newStage(r, p, fmt.Sprintf("%s.%s.%d", r.Run, c.Name, repeat))
	if err := s.play(ctx); err != nil {
		return Result{}, orStopped(ctx, err)
	}
	after, err := r.Gauge.Load(ctx)
	if err != nil {
		return Result{}, orStopped(ctx, err)
	}
	return s.sum(before, after)
}

// orStopped is ErrStopped where the error is that the caller wanted no more.
func orStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ErrStopped
	}
	return err
}

// stage is one run. Its loop owns everything here; calls, actions and the gauge's readings are goroutines that hand it what
// came of them.
type stage struct {
	Real
	policy  Policy
	salt    string
	began   time.Time
	inbox   chan func()
	helpers sync.WaitGroup
	actors  map[scheduler.Ticket]*actor
	tickets scheduler.Ticket
	open    int
	res     Result
	err     error // ends the run
}

// actor is an open episode.
type actor struct {
	id      string
	spec    Episode
	spans   []span
	ids     []int32 // its context
	turn    int
	offered time.Duration
	random  *rand.Rand
}

func newStage(r Real, p Policy, salt string) *stage {
	// At most one event of each episode and of the gauge is on its way: no sender ever waits for long.
	return &stage{Real: r, policy: p, salt: salt, inbox: make(chan func(), len(r.Workload.Episodes)+1), actors: map[scheduler.Ticket]*actor{}}
}

func (s *stage) now() time.Duration { return time.Since(s.began) }

// play runs until the last episode ends, a call fails or ctx ends, and waits for all it started.
func (s *stage) play(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.helpers.Wait()
	defer cancel()
	s.began = time.Now()
	s.helpers.Go(func() { s.watch(ctx) })
	for i, e := range s.Workload.Episodes {
		a := &actor{id: strconv.Itoa(i), spec: e, random: rand.New(rand.NewPCG(s.Seed, uint64(i)))}
		e.calls(func(c span) { a.spans = append(a.spans, c) })
		s.open++
		s.offer(a)
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for s.open > 0 && s.err == nil {
		timer.Reset(s.decide(ctx))
		if s.err != nil {
			break
		}
		select {
		case f := <-s.inbox:
			f()
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.err
}

// offer hands the policy an episode's next call.
func (s *stage) offer(a *actor) {
	at := a.spans[a.turn]
	a.ids = a.ids[:at.kept]
	for len(a.ids) < at.prompt {
		a.ids = append(a.ids, firstID+a.random.Int32N(someIDs))
	}
	s.tickets++
	s.actors[s.tickets] = a
	a.offered = s.now()
	s.policy.Offer(scheduler.Request{
		Ticket: s.tickets, Episode: a.id, Group: a.spec.Group, Cell: episode.Cell{DataSource: a.spec.Domain, Turn: a.turn},
		Prompt: at.prompt, Exact: true, Want: s.Workload.MaxNew, MinUseful: 1, GroupSize: 1,
	}, a.offered)
}

// The ids that prompts are made of: every vocabulary has them, and none ends a text. Prompts of a few hundred of them are unlike.
const (
	firstID int32 = 300
	someIDs int32 = 700
)

// decide carries out what the policy wants and returns how long nothing changes by time alone.
func (s *stage) decide(ctx context.Context) time.Duration {
	launches, rejects, wait := s.policy.Next(s.now())
	for _, r := range rejects {
		s.fail(fmt.Errorf("the policy gave up episode %s", s.actors[r.Ticket].id))
	}
	for _, l := range launches {
		a := s.actors[l.Ticket]
		if l.MaxTokens > 0 && l.MaxTokens < a.spans[a.turn].out {
			s.fail(fmt.Errorf("the policy would cut an answer of episode %s short", a.id))
			return 0
		}
		s.launch(ctx, a, l.Ticket)
	}
	if wait < 0 {
		return time.Hour
	}
	return max(wait, time.Microsecond)
}

func (s *stage) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

func (s *stage) launch(ctx context.Context, a *actor, t scheduler.Ticket) {
	s.res.Attempts++
	c := episode.Continuation{
		ID: fmt.Sprintf("%s/%s/%d", s.salt, a.id, a.turn), Episode: s.salt + "/" + a.id, Prompt: slices.Clone(a.ids), Tokens: a.spans[a.turn].out, Salt: s.salt,
	}
	s.helpers.Go(func() {
		got, err := s.Server.Continue(ctx, c)
		s.hand(ctx, func() { s.settle(ctx, a, t, got, err) })
	})
}

// hand hands the loop what came; not after the run is over.
func (s *stage) hand(ctx context.Context, f func()) {
	select {
	case s.inbox <- f:
	case <-ctx.Done():
	}
}

func (s *stage) settle(ctx context.Context, a *actor, t scheduler.Ticket, got episode.Continued, err error) {
	if err != nil {
		s.fail(fmt.Errorf("a call failed: %w", err))
		return
	}
	at, now := a.spans[a.turn], s.now()
	delete(s.actors, t)
	s.res.Calls++
	s.res.Generated += int64(len(got.IDs))
	s.res.latency = append(s.res.latency, now-a.offered)
	s.policy.Settle(t, Outcome{Generated: len(got.IDs), Prompt: at.prompt, Cached: got.Cached}, now)
	if a.turn == len(a.spans)-1 {
		s.end(a, now)
		return
	}
	a.ids = append(a.ids, got.IDs...)
	tool := a.spec.Turns[a.turn]
	a.turn++
	s.policy.Act(a.id, tool.Kind, now)
	s.helpers.Go(func() { s.act(ctx, a, tool.Tool) })
}

func (s *stage) end(a *actor, now time.Duration) {
	s.policy.Leave(a.id, now)
	s.open--
	s.res.Completed++
	s.res.Makespan = now
	if s.res.Completed == share(0.9, len(s.Workload.Episodes)) {
		s.res.T90 = now
	}
}

// act is an action: a pause.
func (s *stage) act(ctx context.Context, a *actor, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		s.hand(ctx, func() { s.offer(a) })
	case <-ctx.Done():
	}
}

// watch shows the policy the server's gauges. A reading that fails is left out, as in a run.
func (s *stage) watch(ctx context.Context) {
	tick := time.NewTicker(s.GaugeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if l, err := s.Gauge.Load(ctx); err == nil {
			s.hand(ctx, func() { s.policy.Observe(0, l, s.now()) })
		}
	}
}

// ErrNoCounters is a server whose metrics do not say what has to be compared.
var ErrNoCounters = errors.New("the server's metrics lack prefix-cache queries, hits or preemptions")

// sum closes the books with what the server counted in between.
func (s *stage) sum(before, after episode.Load) (Result, error) {
	r := s.res
	for _, c := range []struct {
		was, is *int64
		to      *int64
	}{{before.PrefixQueries, after.PrefixQueries, &r.Queried}, {before.Hits, after.Hits, &r.Hits}, {before.Preemptions, after.Preemptions, &r.Preemptions}} {
		if c.was == nil || c.is == nil {
			return Result{}, ErrNoCounters
		}
		*c.to = *c.is - *c.was
	}
	r.Useful, r.Unique, r.Computed = r.Generated, int64(s.Workload.Load().Prompt), r.Queried-r.Hits
	slices.Sort(r.latency)
	r.LatencyP50, r.LatencyP99 = quantile(r.latency, 0.5), quantile(r.latency, 0.99)
	return r, nil
}
