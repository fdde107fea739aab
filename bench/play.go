package bench

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/scheduler"
)

// live is an open episode.
type live struct {
	index   int
	id      string
	spec    Episode
	spans   []span
	text    *content
	turn    int
	got     int              // tokens of the turn's answer that came before it was cut
	ticket  scheduler.Ticket // of the call that waits or runs; 0 = in an action
	flight  *flight          // of the attempt that runs; nil = none
	offered time.Duration
	over    bool
}

// flight is one attempt of a call on a replica.
type flight struct {
	attempt  uint64
	live     *live
	ticket   scheduler.Ticket
	replica  int
	prompt   int
	out      int  // tokens that will come
	cut      bool // and these are not all
	cached   int
	sent     time.Duration
	finished bool // the engine is through with it; the answer comes when the step is over
	over     bool // answered, failed or broken off
}

type eventKind int8

const (
	evDone     eventKind = iota // a flight is done
	evFail                      // a flight fails
	evTool                      // an episode's action is over
	evCheck                     // a machine may have finished something
	evIncident                  // Incidents[index]
	evPoll                      // metrics
	evWake                      // the policy asked to be asked again
)

type event struct {
	at     time.Duration
	seq    int
	kind   eventKind
	index  int // of the machine or incident
	live   *live
	flight *flight
	fault  *episode.Fault
}

type events []event

func (h events) Len() int { return len(h) }
func (h events) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *events) Push(x any)   { *h = append(*h, x.(event)) }
func (h *events) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

// play is a run in progress.
type play struct {
	Fleet
	w        Workload
	bound    int // calls an episode may make, as a client knows: 1 without tools, else 0 = not known
	p        Policy
	now      time.Duration
	queue    events
	seq      int
	machines []*machine
	checks   []time.Duration // per machine: the check that is queued; 0 = none
	wake     time.Duration
	calls    map[scheduler.Ticket]*live
	tickets  scheduler.Ticket
	attempts uint64
	next     int // of Workload.Episodes to open
	open     map[*live]struct{}
	groups   map[string]*tally
	moved    time.Duration // when something was last sent or answered
	scratch  []ended
	res      Result
	err      error // the first thing that cannot be: ends the run
}

// tally is how far a group is.
type tally struct {
	size, done int
	open       []*live
}

// Play runs a workload to its end in virtual time. An error means that the configuration is wrong or that the policy holds
// work back for ever.
func (f Fleet) Play(w Workload, p Policy) (Result, error) {
	if err := errors.Join(f.Validate(), w.Validate()); err != nil {
		return Result{}, err
	}
	s := &play{
		Fleet: f, w: w, p: p, calls: map[scheduler.Ticket]*live{}, open: map[*live]struct{}{}, groups: map[string]*tally{},
		checks: make([]time.Duration, len(f.Replicas)), res: Result{Replicas: make([]ReplicaUse, len(f.Replicas))},
	}
	for _, c := range f.Replicas {
		s.machines = append(s.machines, newMachine(c))
	}
	s.prepare()
	for s.res.Ended() < len(w.Episodes) {
		if err := s.advance(); err != nil {
			return Result{}, fmt.Errorf("play %s: %w", w.Name, err)
		}
	}
	s.sum()
	return s.res, nil
}

func (s *play) prepare() {
	s.bound = 1
	for _, e := range s.w.Episodes {
		if len(e.Turns) > 1 {
			s.bound = 0
		}
		if s.groups[e.Group] == nil {
			s.groups[e.Group] = &tally{}
		}
		s.groups[e.Group].size++
	}
	for i, x := range s.Incidents {
		s.at(event{at: x.At, kind: evIncident, index: i})
	}
	if s.MetricsEvery > 0 {
		s.at(event{at: s.MetricsEvery, kind: evPoll})
	}
	s.fill()
}

// advance lets the policy decide, then handles all that is due next.
func (s *play) advance() error {
	select {
	case <-s.Stop:
		return ErrStopped
	default:
	}
	s.decide()
	if s.err != nil || s.res.Ended() == len(s.w.Episodes) {
		return s.err
	}
	if len(s.queue) == 0 || s.queue[0].at-s.moved > patience {
		return fmt.Errorf("at %v %d episodes are open and nothing was sent or answered since %v: the policy holds work back", s.now, len(s.open), s.moved)
	}
	s.now = s.queue[0].at
	for len(s.queue) > 0 && s.queue[0].at == s.now {
		s.handle(heap.Pop(&s.queue).(event))
	}
	return s.err
}

// patience is how long, in virtual time, nothing may move before the run is given up. Longer than any action.
const patience = 24 * time.Hour

func (s *play) at(e event) {
	s.seq++
	e.seq = s.seq
	heap.Push(&s.queue, e)
}

// fill opens episodes while there may be more.
func (s *play) fill() {
	for s.next < len(s.w.Episodes) && (s.MaxOpen == 0 || len(s.open) < s.MaxOpen) {
		spec := s.w.Episodes[s.next]
		g := s.groups[spec.Group]
		s.next++
		if s.enough(g) {
			s.res.Aborted++
			continue
		}
		l := &live{index: s.next - 1, id: strconv.Itoa(s.next - 1), spec: spec, text: newContent(s.next-1, spec)}
		spec.calls(func(c span) { l.spans = append(l.spans, c) })
		s.open[l] = struct{}{}
		g.open = append(g.open, l)
		s.offer(l)
	}
	if x, ok := s.p.(Explainer); ok && s.next == len(s.w.Episodes) {
		x.NoMore()
	}
}

func (s *play) offer(l *live) {
	s.tickets++
	l.ticket, l.offered = s.tickets, s.now
	s.calls[l.ticket] = l
	var marks []scheduler.Mark
	if l.turn == 0 {
		marks = l.spec.marks()
	}
	s.p.Offer(scheduler.Request{
		Ticket: l.ticket, Episode: l.id, Group: l.spec.Group, Cell: episode.Cell{DataSource: l.spec.Domain, Turn: l.turn},
		Prompt: l.spans[l.turn].prompt, Exact: true, Want: s.w.MaxNew, MinUseful: 1, Turns: s.bound, GroupSize: s.groups[l.spec.Group].size,
		Prefix: marks, Continues: s.bound == 1, // a call with tools is not cut in real either: its answer is more than text
	}, s.now)
}

// decide carries out what the policy wants now.
func (s *play) decide() {
	launches, rejects, wait := s.p.Next(s.now)
	for _, r := range rejects {
		if l := s.calls[r.Ticket]; l != nil && l.flight == nil {
			s.end(l, &s.res.Rejected)
			continue
		}
		s.fail(fmt.Errorf("the policy rejected call %d, which does not wait", r.Ticket))
	}
	for _, c := range launches {
		s.launch(c)
	}
	for i := range s.machines {
		s.watch(i)
	}
	if wait >= 0 {
		at := s.now + max(wait, 1)
		if s.wake <= s.now || at < s.wake {
			s.wake = at
			s.at(event{at: at, kind: evWake})
		}
	}
}

func (s *play) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// watch queues the next look at a machine.
func (s *play) watch(i int) {
	m := s.machines[i]
	if !m.dirty {
		return
	}
	m.dirty = false
	at, ok := m.finishes()
	if s.eager && ok {
		s.at(event{at: max(m.clock, s.now), kind: evWake}) // the policy may want to send something before the next step begins
		at = m.clock + 1
	}
	at = max(at, s.now+1)
	if ok && (s.checks[i] <= s.now || at < s.checks[i]) {
		s.checks[i] = at
		s.at(event{at: at, kind: evCheck, index: i})
	}
}

// bring steps a machine up to now and queues what it finished.
func (s *play) bring(i int) {
	var err error
	if s.scratch, err = s.machines[i].bring(s.now, s.scratch[:0]); err != nil {
		s.fail(fmt.Errorf("replica %d: %w", i, err))
	}
	for _, d := range s.scratch {
		if d.at < s.now {
			s.fail(fmt.Errorf("replica %d finished a call at %v and was looked at only at %v: its steps are shorter than Base + Floor", i, d.at, s.now))
		}
		s.at(event{at: d.at, kind: evDone, flight: d.flight})
	}
}

func (s *play) launch(c scheduler.Launch) {
	l, ok := s.calls[c.Ticket]
	if !ok || l.flight != nil || c.Replica < 0 || c.Replica >= len(s.machines) {
		s.fail(fmt.Errorf("the policy launched call %d on replica %d: the call does not wait, or there is no such replica", c.Ticket, c.Replica))
		return
	}
	s.bring(c.Replica)
	s.attempts++
	s.res.Attempts++
	s.res.Replicas[c.Replica].Attempts++
	s.moved = s.now
	m, at := s.machines[c.Replica], l.spans[l.turn]
	f := &flight{attempt: s.attempts, live: l, ticket: c.Ticket, replica: c.Replica, prompt: at.prompt + l.got, out: at.out - l.got}
	l.flight = f
	if c.MaxTokens > 0 && c.MaxTokens < f.out {
		f.out, f.cut = c.MaxTokens, c.Cut
		if !c.Cut {
			s.res.Truncated++
		}
	}
	if fault := m.refusal(f.prompt, max(c.MaxTokens, f.out)); fault != nil {
		s.at(event{at: s.now + refusalTime, kind: evFail, flight: f, fault: fault})
		return
	}
	prompt, answer := l.text.call(at)
	if l.got > 0 {
		prompt = appendUpTo(slices.Clone(prompt), f.prompt, []enginesim.Segment{answer})
		answer.From += l.got
	}
	answer.Tokens = f.out
	m.send(f, enginesim.Request{ID: f.attempt, Outline: prompt, Continuation: answer}, s.now)
}

// refusalTime is how long a server takes to say no.
const refusalTime = time.Millisecond

// refusal is the fault with which a replica turns a call away; nil when it takes it.
func (m *machine) refusal(prompt, most int) *episode.Fault {
	f := &episode.Fault{Stage: episode.StageModel, Retry: true}
	switch {
	case m.state == dead:
		f.Class, f.Cause = episode.ClassConnect, errors.New("simulated: connection refused")
	case m.state == draining:
		f.Class, f.Cause = episode.ClassUnavailable, errors.New("simulated: 503, draining")
	case prompt+most > m.config.ContextTokens:
		f.Class, f.Retry, f.Limit, f.Prompt = episode.ClassOverflow, false, m.config.ContextTokens, prompt
		f.Cause = fmt.Errorf("simulated: %d prompt tokens and max_tokens %d exceed the context of %d", prompt, most, m.config.ContextTokens)
	default:
		return nil
	}
	return f
}

func (s *play) handle(e event) {
	switch e.kind {
	case evDone:
		if !e.flight.over {
			s.done(e.flight)
		}
	case evFail:
		if !e.flight.over {
			s.failed(e.flight, e.fault)
		}
	case evTool:
		if !e.live.over {
			e.live.turn++
			s.offer(e.live)
		}
	case evCheck:
		s.machines[e.index].dirty = true
		s.bring(e.index)
	case evIncident:
		s.happen(s.Incidents[e.index])
	case evPoll:
		s.poll()
	case evWake: // deciding again is all there is to it
	}
}

func (s *play) done(f *flight) {
	l := f.live
	f.over, l.flight = true, nil
	delete(s.machines[f.replica].calls, f.attempt)
	s.moved = s.now
	o := Outcome{Generated: f.out, Prompt: f.prompt, Cached: f.cached, Cut: f.cut}
	if f.cut {
		s.res.Cuts++
		l.got += f.out
		if s.p.Settle(f.ticket, o, s.now) != scheduler.Continuing {
			s.fail(fmt.Errorf("the policy cut call %d and does not go on with it", f.ticket))
		}
		return
	}
	l.ticket, l.got = 0, 0
	delete(s.calls, f.ticket)
	s.res.Calls++
	s.res.latency = append(s.res.latency, s.now-l.offered)
	s.p.Settle(f.ticket, o, s.now)
	if l.turn == len(l.spans)-1 {
		s.complete(l)
		return
	}
	t := l.spec.Turns[l.turn]
	s.p.Act(l.id, t.Kind, s.now)
	s.at(event{at: s.now + t.Tool, kind: evTool, live: l})
}

// failed settles an attempt that brought nothing; the policy says whether it holds the call.
func (s *play) failed(f *flight, fault *episode.Fault) {
	f.over, f.live.flight = true, nil
	s.res.Failures++
	if s.p.Settle(f.ticket, Outcome{Fault: fault}, s.now) != scheduler.Retrying {
		s.end(f.live, &s.res.Rejected)
	}
}

func (s *play) complete(l *live) {
	for _, c := range l.spans {
		s.res.Useful += int64(c.out)
	}
	g := s.groups[l.spec.Group]
	g.done++
	s.end(l, &s.res.Completed)
	if s.res.Completed == share(0.9, len(s.w.Episodes)) {
		s.res.T90 = s.now
	}
	if s.Quorum.Group > 0 && s.enough(g) {
		for _, other := range slices.Clone(g.open) {
			s.cut(other)
		}
	}
	if s.Quorum.Run > 0 && s.res.Completed >= share(s.Quorum.Run, len(s.w.Episodes)) {
		s.cutAll()
	}
}

func (s *play) enough(g *tally) bool {
	return s.Quorum.Group > 0 && g.done >= share(s.Quorum.Group, g.size)
}

// share is the least count that is at least a share of n.
func share(q float64, n int) int { return int(math.Ceil(q*float64(n) - 1e-9)) }

// cutAll ends the run.
func (s *play) cutAll() {
	s.res.Aborted += len(s.w.Episodes) - s.next
	s.next = len(s.w.Episodes)
	for _, l := range s.inOrder() {
		s.cut(l)
	}
}

// cut breaks an open episode off.
func (s *play) cut(l *live) {
	switch f := l.flight; {
	case f != nil:
		s.bring(f.replica)
		f.over, l.flight = true, nil
		s.machines[f.replica].abort(f)
		s.p.Settle(f.ticket, Outcome{Fault: &episode.Fault{Stage: episode.StageModel, Class: episode.ClassCancelled, Cause: errors.New("simulated: cut off by the quorum")}}, s.now)
	case l.ticket != 0:
		s.p.Withdraw(l.ticket)
	}
	s.end(l, &s.res.Aborted)
}

// end closes an episode and opens another.
func (s *play) end(l *live, count *int) {
	if l.ticket != 0 {
		delete(s.calls, l.ticket)
	}
	l.over = true
	*count++
	s.p.Leave(l.id, s.now)
	delete(s.open, l)
	g := s.groups[l.spec.Group]
	g.open = slices.DeleteFunc(g.open, func(o *live) bool { return o == l })
	s.res.Makespan = s.now
	s.fill()
}

// inOrder is the open episodes, oldest first.
func (s *play) inOrder() []*live {
	var all []*live
	for l := range s.open {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *live) int { return a.index - b.index })
	return all
}

// flights is a set of attempts in the order of sending.
func flights(set map[uint64]*flight) []*flight {
	var all []*flight
	for _, f := range set {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *flight) int { return int(a.attempt) - int(b.attempt) })
	return all
}

func (s *play) happen(x Incident) {
	m := s.machines[x.Replica]
	s.bring(x.Replica)
	switch x.What {
	case Drains:
		m.state = draining
	case Heals:
		m.state = up
	case Dies:
		m.state = dead
		for _, f := range m.crash() {
			s.failed(f, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassReset, Retry: true, Cause: errors.New("simulated: connection reset")})
		}
	}
}

// poll shows the policy every living replica's gauges.
func (s *play) poll() {
	s.at(event{at: s.now + s.MetricsEvery, kind: evPoll})
	for i, m := range s.machines {
		if m.state == dead {
			continue
		}
		s.bring(i)
		s.p.Observe(i, gauges(m), s.now)
	}
}

func gauges(m *machine) episode.Load {
	c := m.model.Counters()
	used := float64(c.BlocksUsed) / float64(max(c.Blocks, 1))
	firsts, waited := m.firsts, m.waited.Seconds()
	return episode.Load{
		Running: &c.Running, Waiting: &c.Waiting, KVUsed: &used, Preemptions: &c.Preemptions, PrefixQueries: &c.PrefixQueries,
		Hits: &c.PrefixHits, PromptTokens: &c.PromptTokens, Computed: &c.ComputedTokens, GeneratedTokens: &c.GeneratedTokens, Steps: &c.GeneratedTokens,
		Firsts: &firsts, FirstSeconds: &waited,
	}
}
