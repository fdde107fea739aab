package scheduler

import (
	"slices"

	"tranche/episode"
)

// ReplicaConfig is one endpoint as the core sees it.
type ReplicaConfig struct {
	Name     string
	Capacity episode.Capacity
	MaxCalls int // calls in flight at once; 0 = no bound
	// Strict holds prompt + max_tokens of all calls in flight under KVTokens, whatever is expected: for a budget that a person
	// set. Else what is expected counts, and the engine's own preemption is the last resort.
	Strict bool
	// Rows says that the replica pads: it takes batches of at most so many calls and answers when the longest is done. 0 = it batches
	// continuously.
	Rows int
	// Shapes are the lengths, tokens, rising, that prompts are padded to where the engine is compiled for fixed shapes, its rows then being
	// a power of two; nil = prompts are padded to the longest of their batch. Only with Rows.
	Shapes []int
	// Continues says that the replica goes on from the token ids of an answer that was cut, its own or another such replica's. Only with
	// Rows, where it makes answers be cut at what their batch is.
	Continues bool
}

type replica struct {
	ReplicaConfig
	index             int
	promised, running int
	prompts           int     // of the running calls, tokens
	began             Time    // sum of their launch times
	inside            int     // episodes whose memory is counted here
	members           []*life // them
	sum               plan    // of their plans
	top               float64 // of sum; negative = not known
	singles           singles // those of one call
	reads             int     // of the running calls, tokens: what each step has to read
	cache             cache
	remains           remains
	flow              flow    // of their calls
	theta             float64 // share of what it holds that may be projected
	scale             float64 // what it holds, relative to what we were told; corrected by trim and Observe
	probed            bool    // a held context was lost once
	back, lost        int     // held contexts that came back in this generation, and those among them the cache had lost
	kept              int     // that came back since something was lost or r was taken to hold more
	gateUntil         Time    // 429, Retry-After: nothing is sent before
	gates             int     // how often in a row it asked to be left alone
	streak            int     // failures in a row
	refusals          int     // of all that is asked, in a row
	open              bool    // circuit
	openedAt          Time    // since when it is open
	retryAt           Time    // when an open circuit lets one call try
	parked            bool    // it is open because the server asked to be left alone: answers to what was sent before say nothing of that
	cooldown          Time
	trial             Ticket // the call that tries an open circuit; 0 = none
	ramp              int    // calls still to be spaced
	rampAt            Time   // earliest next spaced call
	load              episode.Load
	gauge             gauge
	served, failed    int64
	book              book
	batch             load // that runs, where Rows is set
	idle              Time // since when none does
	pace              pace
	ward              ward
	pulse             pulse
}

// limit is the most tokens prompt and answer of one call may have on r; 0 = not known.
func (r *replica) limit(w *call) int {
	l := 0
	for _, v := range []int{r.Capacity.ContextTokens, r.Capacity.KVTokens, w.Context} {
		if v > 0 && (l == 0 || v < l) {
			l = v
		}
	}
	return l
}

// maxTokens is the budget the call would be sent with to r.
func (r *replica) maxTokens(w *call) int {
	l := r.limit(w)
	if l == 0 {
		return w.Want
	}
	room := max(l-w.Prompt-w.margin(), 0)
	if w.Want == 0 {
		return room
	}
	return min(w.Want, room)
}

// feasible says whether r's limits leave room for a useful answer, load aside.
func (c *Core) feasible(r *replica, w *call) bool {
	if !r.goesOn(w) || slices.Contains(w.refused, r.index) {
		return false
	}
	if r.limit(w) == 0 {
		return true
	}
	need := max(w.MinUseful, 1)
	if w.Want > 0 {
		need = min(need, w.Want)
	}
	return r.maxTokens(w) >= need
}

// fits says whether the call can be sent to r now without promising more KV than r has.
func (c *Core) fits(r *replica, w *call, now Time) bool {
	if r.Rows > 0 || !r.ready(now) || (r.MaxCalls > 0 && r.running >= r.MaxCalls) || !c.feasible(r, w) || c.barred(r, w) {
		return false
	}
	c0 := r.holds()
	if c0 == 0 || r.running == 0 && r.inside == 0 {
		return true // never more than the budget itself: limit() says so
	}
	if r.Strict {
		return r.running == 0 || r.promised+w.Prompt+r.maxTokens(w) <= int(c0)
	}
	l := w.life
	if l.inside && l.replica == r.index {
		return true
	}
	share := r.theta
	switch {
	case w.Turns != 1 || 2*c.sharedAt(r, w) >= w.Prompt+int(w.likely):
	case w.unknown():
		share = c.thetaOf(w, share)
	default:
		share = min(share, c.rules.ThetaSingle)
	}
	if r.inside == 0 {
		return true
	}
	room := share * c0
	if !w.unknown() && r.peak()*lumpy(r.inside+1) > room { // it is full without the call, as it is most often
		return false
	}
	return c.need(r, w) <= room
}

// need is the most memory the episodes on r, the call's among them, are projected to need, tokens.
func (c *Core) need(r *replica, w *call) float64 {
	prompt, more := -1, c.planAt(r, w)
	if w.life.single {
		prompt = max(w.Prompt-c.sharedAt(r, w), 0)
	}
	more[0] += r.inTheWay()
	need := r.sum.peakWith(more) * lumpy(r.inside+1)
	switch {
	case w.unknown():
		c.sum(r)
		need += r.flow.ahead.peakWith(&w.life.ahead)
	case prompt >= 0 || r.singles.n > 0:
		need += r.singles.peak(prompt, float64(int(w.likely)), c.answers.rate, c.now)
	}
	return need
}

// ready says whether r may be sent anything now.
func (r *replica) ready(now Time) bool {
	switch {
	case now < r.gateUntil:
		return false
	case r.open:
		return now >= r.retryAt && r.trial == 0 // one call tries
	case r.ramp > 0:
		return now >= r.rampAt
	}
	return true
}

// fill is how full r is: the greater of its shares of KV and of calls.
func (r *replica) fill() float64 {
	f := 0.0
	if r.Capacity.KVTokens > 0 {
		f = (r.peak() + float64(r.singles.prompts+256*r.singles.n)) / float64(r.Capacity.KVTokens)
	}
	if r.MaxCalls > 0 {
		f = max(f, float64(r.running)/float64(r.MaxCalls))
	}
	if f == 0 {
		f = float64(r.running) / 1e9 // no bound known at all: fewest calls
	}
	return f
}

// trim corrects what r is taken to hold by what the server's cache kept of the contexts of episodes whose places were held.
// It judges a generation, as many calls as episodes are inside: a share that was lost means that too much was promised, in that
// proportion; nothing lost, while others wait for room, means that there may be more. Until the first loss the figure we were
// told may be far too small, so it grows faster.
func (r *replica) trim(context, cached int, wanted, fresh bool) {
	if context < 256 {
		return
	}
	r.back++
	if cached < context/2 {
		r.lost++
	}
	if r.back < max(r.inside, 8) {
		return
	}
	share := float64(r.lost) / float64(r.back)
	r.kept += r.back
	r.back, r.lost = 0, 0
	switch {
	case share > lossAllowed:
		r.shrink(1 - min(share, 0.3)*lossStep)
	case !wanted || fresh && r.confirmed() && r.kept < enough: // what goes against the server's own reading needs more to show it
	case !r.probed:
		r.grow(probeStep, fresh)
	case share == 0:
		r.grow(keepStep, fresh)
	}
}

// Steps of trim, per generation.
const (
	lossAllowed = 0.01
	lossStep    = 0.5
	probeStep   = 0.01
	keepStep    = 0.005
	enough      = 1 / lossAllowed // contexts that must come back to show the share that may be lost
)

// holds is how many tokens r is taken to hold; 0 = not known.
func (r *replica) holds() float64 {
	if r.Strict {
		return float64(r.Capacity.KVTokens)
	}
	return r.scale * float64(r.Capacity.KVTokens)
}

// ReplicaState is one replica at a moment, for people and tests.
type ReplicaState struct {
	Name              string
	Running, Promised int     // calls; tokens
	Budget            int     // tokens in use of the KV cache at most; 0 = not known
	Open              bool    // circuit open: taken for dead
	GateUntil         Time    // told to wait until then
	Served, Failed    int64   // attempts
	Fill              float64 // 0..1
	Capacity          episode.Capacity
	Load              episode.Load
	theta             float64
}

// State returns the replicas as they are, and how many calls wait.
func (c *Core) State() (replicas []ReplicaState, waiting int) {
	for _, r := range c.replicas {
		replicas = append(replicas, ReplicaState{
			Name: r.Name, Running: r.running, Promised: r.promised, Budget: int(r.theta * r.holds()),
			Open: r.open, GateUntil: r.gateUntil, Served: r.served, Failed: r.failed, Fill: r.fill(),
			Capacity: r.Capacity, Load: r.load, theta: r.theta,
		})
	}
	return replicas, c.byAge.Len() + len(c.delayed)
}
