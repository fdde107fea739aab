package scheduler

import (
	"math"
	"slices"
	"time"

	"tranche/bucketing"
)

// This file is about single calls: episodes without tools. They have one thing to decide: which goes next and where, so that all
// replicas drain at the same time. A step of an engine costs a floor, and the reading of every context that takes part. So a
// replica that takes nothing more is done after
//
//	floor · (tokens that the longest of its calls still generates) + (context tokens that all of its calls still read) · read
//
// whatever their order. A call goes where that sum, with the call, is least. The longest expected go first: what begins late ends
// late. How long one gets is told by its siblings, by those that have ended and by those that run past what is usual.

// flow follows the single calls that run on a replica: how far they have come, and what is still to do.
type flow struct {
	read    float64 // seconds to read one token of context; learned
	steps   float64 // tokens that a call would have generated which ran from the beginning
	at      Time    // of steps
	running int     // single calls
	prompts int     // theirs, tokens
	begun   float64 // sum of steps at their launches
	ahead   drain
	summed  Time // when ahead was added up from the calls
}

// drain is what is expected to be done still.
type drain struct {
	longest float64                   // tokens the longest call generates
	reads   float64                   // context tokens that all calls read
	memory  [len(tokensAhead)]float64 // context that all calls hold when each has generated so many more, tokens
}

// tokensAhead are the points, in tokens from now, at which the memory of single calls is projected.
var tokensAhead = [...]float64{0, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}

const (
	sumEvery     = time.Second // how old what was added up may be
	flowLeast    = 32          // tokens of an answer that tells something of the speed
	flowStep     = 0.02        // how far one answer corrects it, as a power
	pastHalf     = 0.5         // what a call past its expectation still gets, as a share of what it has
	siblingPast  = 1.3         // how far a waiting call gets, seen from a sibling past its expectation
	siblingDoubt = 4           // how many times worse than expected siblings on one replica are taken to be: they err together
	longTimes    = 2           // times the usual length, of an answer that is a long one
	lookLeast    = time.Second // least time between two looks at a group
)

// still is what a call of x tokens so far, expected to get e, at most want (0 = no bound), has to do yet.
func still(prompt int, x, e float64, want int) drain {
	left := max(e-x, x*pastHalf, 1)
	if want > 0 {
		left = min(left, max(float64(want)-x, 1))
	}
	held := float64(prompt) + x
	d := drain{longest: left, reads: left*held + left*left/2}
	for i, h := range tokensAhead {
		if h >= 2*left {
			break
		}
		d.memory[i] = (held + h) * (1 - h/(2*left)) // it ends anywhere up to twice the mean
	}
	return d
}

// peakWith is the most memory that is projected when o is added.
func (d *drain) peakWith(o *drain) float64 {
	most := 0.0
	for i := range d.memory {
		most = max(most, d.memory[i]+o.memory[i])
	}
	return most
}

func (d *drain) add(o drain) {
	d.longest = max(d.longest, o.longest)
	d.reads += o.reads
	for i := range d.memory {
		d.memory[i] += o.memory[i]
	}
}

// sub leaves longest as it is until all is added up anew.
func (d *drain) sub(o drain) {
	d.reads = max(d.reads-o.reads, 0)
	for i := range d.memory {
		d.memory[i] = max(d.memory[i]-o.memory[i], 0)
	}
}

// forward lets time pass. others is the context of what else runs there, tokens; floor is Rules.StepReads.
func (p *flow) forward(now Time, floor, others float64) {
	if now <= p.at {
		return
	}
	held := float64(p.prompts) + float64(p.running)*p.steps - p.begun
	p.steps += (now - p.at).Seconds() / (p.read * (floor + held + others))
	p.at = now
}

// learn corrects the speed by a call that generated so many tokens while steps went on by `steps`.
func (p *flow) learn(generated int, steps float64) {
	if generated >= flowLeast && steps > 0 {
		p.read *= math.Pow(min(max(steps/float64(generated), 0.25), 4), flowStep)
	}
}

// drained is how long until all is done with a call added, seconds.
func (p *flow) drained(o *drain, floor float64) float64 {
	return p.read * (floor*max(p.ahead.longest, o.longest) + p.ahead.reads + o.reads)
}

// sum brings r's flow up to now and adds up anew what is still to do there when that is too old; it reports whether it did.
func (c *Core) sum(r *replica) bool {
	p := &r.flow
	p.forward(c.now, c.rules.StepReads, r.sum[0])
	if p.summed > 0 && c.now-p.summed < sumEvery {
		return false
	}
	p.summed, p.ahead = max(c.now, 1), drain{}
	for _, l := range r.members {
		if w := l.call; l.single && w != nil && w.state == running {
			w.guess = c.answer(w)
			p.ahead.add(p.left(w))
		}
	}
	return true
}

// left is what a running call has to do yet.
func (p *flow) left(w *call) drain { return still(w.Prompt, p.steps-w.begun, w.guess, w.Want) }

// begin counts a single call that is launched on r.
func (c *Core) begin(w *call, r *replica) {
	if w.flows = w.life.single; !w.flows {
		return
	}
	p := &r.flow
	p.forward(c.now, c.rules.StepReads, r.sum[0])
	w.guess, w.begun = c.answer(w), p.steps
	if !c.sum(r) || w.life.replica != r.index { // else it was just added up with the others
		p.ahead.add(p.left(w))
	}
	p.running++
	p.prompts += w.Prompt
	p.begun += w.begun
	g := w.life.siblings
	g.running = append(g.running, w)
	c.revisit(g, c.now)
}

// over takes a single call that has ended on r out of the count; generated < 0 = it failed.
func (c *Core) over(w *call, r *replica, generated int) {
	if !w.flows {
		return
	}
	w.flows = false
	p := &r.flow
	p.forward(c.now, c.rules.StepReads, r.sum[0])
	p.ahead.sub(p.left(w))
	p.running--
	p.prompts -= w.Prompt
	p.begun -= w.begun
	if p.running == 0 { // no rounding is carried on
		p.begun, p.ahead = 0, drain{}
	}
	p.learn(generated, p.steps-w.begun)
	g := w.life.siblings
	g.running = slices.DeleteFunc(g.running, func(o *call) bool { return o == w })
}

// answer is how long a single call's answer is expected to get, tokens: by its cell; by the siblings that have ended, of which one
// says more than the cell; and by those that run past what the cell says, since the short ones end first and would make a long
// group look short.
func (c *Core) answer(w *call) float64 {
	e := c.answers.mean(w.Cell, w.Want, c.now)
	n := float64(c.siblings.Seen(w.Group))
	sum := n * c.siblings.Of(w.Group)
	for _, o := range w.life.siblings.running {
		if x := c.replicas[o.on].flow.steps - o.begun; x > e && o != w {
			n++
			sum += siblingPast * x
		}
	}
	e = (2*sum + e) / (2*n + 1)
	if w.Want > 0 {
		e = min(e, float64(w.Want))
	}
	return e
}

// place picks the replica for a single call, or -1: of those with room, the one that has drained first with the call in it. A
// replica that has not seen the group's prompt computes it first. Siblings are spread where they are long: what is wrong in the
// expectation of one is wrong in that of all.
func (c *Core) place(p *pool, w *call, now Time, reserved int) int {
	w.life.ahead = still(w.Prompt, 0, w.likely, w.Want)
	g, x, need := w.life.siblings, float64(w.Prompt), &w.life.ahead
	refill := c.rules.PrefillToken.Seconds()*x + c.rules.PrefillPair.Seconds()*x*x/2
	best, soonest := -1, math.Inf(1)
	for k := range p.members {
		i := p.members[(k+c.turn)%len(p.members)]
		if i == reserved || !c.fits(c.replicas[i], w, now) {
			continue
		}
		r := c.replicas[i]
		c.sum(r)
		t := r.flow.drained(need, c.rules.StepReads) + r.flow.read*siblingDoubt*float64(g.on(i))*need.longest*need.longest/2
		if i != g.replica {
			t += refill
		}
		if t < soonest {
			best, soonest = i, t
		}
	}
	return best
}

// thetaOf is the share of a replica's memory, at most theta, that may be projected with a call in it whose answer is most of its work.
// Some is left for the long ones, which are known as such only when others have run for a while.
func (c *Core) thetaOf(w *call, theta float64) float64 {
	single, e := c.rules.ThetaAnswer, w.likely
	if e >= longTimes*c.answers.mean(w.Cell, w.Want, c.now) {
		single = c.rules.ThetaLong
	}
	return theta - max(theta-single, 0)*e/(e+float64(w.Prompt))
}

// unknown says that most of a single call's work is its answer, which nobody knows. Else it is its prompt's, which is known, and
// perhaps cached where its group is.
func (c *Core) unknown(w *call) bool { return w.life.single && c.answer(w) > float64(w.Prompt) }

// unknown is the same by what was last expected.
func (w *call) unknown() bool { return w.life.single && w.likely > float64(w.Prompt) }

// strict says whether a member of the pool has a budget that a person set.
func (c *Core) strict(p *pool) bool {
	return slices.ContainsFunc(p.members, func(i int) bool { return c.replicas[i].Strict })
}

// on is how many single calls of the group run on replica i.
func (g *groupHome) on(i int) int {
	n := 0
	for _, w := range g.running {
		if w.on == i {
			n++
		}
	}
	return n
}

// level is where a call waits in its queue: longest expected first, by prompt and answer, or by the answer alone where that is most of it, so
// that a short prompt does not wait behind a long one; single calls shortest answer first with EarlyYield. Levels are two and a
// half an octave.
func (c *Core) level(w *call) int {
	tokens := float64(w.Prompt + c.expected(w))
	if w.life.single && (c.rules.EarlyYield || c.unknown(w)) {
		tokens = c.answer(w)
	}
	level := min(max(int(2.5*math.Log2(tokens/32)), 0), bucketing.MaxClasses-1)
	if c.rules.EarlyYield && w.life.single {
		level = bucketing.MaxClasses - 1 - level
	}
	return level
}

// revisit sets the time at which the waiting members of a group are ranked anew, because those that run have come further.
func (c *Core) revisit(g *groupHome, now Time) {
	if g.looking || len(g.running) == 0 || len(g.waiting) == 0 {
		return
	}
	g.looking = true
	c.alarm(alarm{at: now + max((now-g.running[0].launched)/4, lookLeast), group: g})
}
