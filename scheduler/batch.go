package scheduler

import (
	"cmp"
	"math"
	"slices"
)

// batches gives every idle replica that pads its next batch.
func (c *Core) batches(now Time, launches []Launch) []Launch {
	d := c.padding
	if d == nil {
		return launches
	}
	c.refresh(now)
	for _, r := range c.replicas {
		if d.waiting == 0 || c.startsAt(r, now) > now {
			continue
		}
		batch, cut := c.batch(r, now)
		for _, w := range batch {
			r.batch.add(w, now)
			launches = append(launches, c.bounded(c.launch(w, r.index, now), w, cut))
		}
	}
	return launches
}

// never is later than everything.
const never = Time(math.MaxInt64)

// startsAt is when a replica may be given a batch of what waits; never = not by the passing of time.
func (c *Core) startsAt(r *replica, now Time) Time {
	switch {
	case r.Rows == 0 || r.running > 0:
		return never
	case now < r.gateUntil:
		return r.gateUntil
	case r.open && now < r.retryAt:
		return r.retryAt
	case c.padding.waiting >= r.most():
		return now
	}
	return max(r.idle, c.padding.since) + c.rules.Linger // more may be on its way
}

// batch takes the calls of r's next batch off their racks, and says at how many tokens their answers are cut; 0 = they are not.
func (c *Core) batch(r *replica, now Time) ([]*call, int) {
	first := c.overdue(r, now)
	whole, cut := c.kinds(r)
	if len(whole)+len(cut) == 0 {
		return nil, 0
	}
	d := c.padding
	d.batches++
	d.flowing, d.offered = d.prompts.seen > d.offered, d.prompts.seen
	if c.cutsNow(whole, cut, first) {
		return c.cutBatch(r, cut, first)
	}
	anchor := c.anchor(r, whole, first)
	b := &lot{r: r, f: d.forecast}
	if first != nil {
		b.take(c, first)
	}
	if anchor.queue.Len() > 0 {
		b.fill(c, anchor, b.best(anchor))
	}
	c.ride(b, anchor, whole)
	return b.calls, 0
}

// kinds are the classes in which calls wait that r may take: of answers that are made at one go, and of those that may be cut.
func (c *Core) kinds(r *replica) (whole, cut []*cell) {
	for _, p := range c.order {
		if !p.padded || !slices.Contains(p.members, r.index) {
			continue
		}
		for _, x := range p.rack.order {
			switch {
			case x.queue.Len() == 0:
			case x.cut:
				cut = append(cut, x)
			default:
				whole = append(whole, x)
			}
		}
	}
	return whole, cut
}

// cutsNow says of which kind the next batch is: that of the one call that is overdue, else of the one that has waited longest.
func (c *Core) cutsNow(whole, cut []*cell, first *call) bool {
	switch {
	case first != nil:
		return first.shelved.cell.cut
	case len(cut) == 0 || len(whole) == 0:
		return len(cut) > 0
	}
	oldest := func(cells []*cell) Time {
		since := never
		for _, x := range cells {
			since = min(since, x.queue.Head(0).Value.since)
		}
		return since
	}
	return oldest(cut) <= oldest(whole)
}

// overdueEvery is one in how many batches goes to what waited too long: where much waits, all has.
const overdueEvery = 8

// anchor is the class that r's next batch is of: now and then that of the call that waits longest, which is first then, else the class
// of the highest rank.
func (c *Core) anchor(r *replica, cells []*cell, first *call) *cell {
	if first != nil {
		return first.shelved.cell
	}
	var anchor *cell
	var best rank
	for _, x := range cells {
		if k := c.rank(r, x); anchor == nil || k.over(best) {
			anchor, best = x, k
		}
	}
	return anchor
}

// overdue is the longest-waiting call past its age limit that r can take.
func (c *Core) overdue(r *replica, now Time) *call {
	if c.padding.batches%overdueEvery != overdueEvery-1 {
		return nil
	}
	for level, limit := range []Time{c.rules.StartLimit, c.rules.AgeLimit} {
		if h := c.byAge.Head(level); h != nil && now-h.Value.since > limit && h.Value.shelved.cell != nil && slices.Contains(h.Value.pool.members, r.index) {
			return h.Value
		}
	}
	return nil
}

// rank orders classes: those with a full batch first, probes among them before all; of full ones the dearest, which at the end of a run
// should not be what is left; of others the one that comes nearest to the price of a full batch.
type rank struct {
	level  int
	within float64
}

func (a rank) over(b rank) bool {
	return a.level > b.level || a.level == b.level && a.within > b.within
}

func (c *Core) rank(r *replica, x *cell) rank {
	cost, rows := c.own(r, x, r.most())
	full := x.queue.Len() >= rows
	switch {
	case x.standing == follower:
		return rank{0, cost}
	case full && x.standing == probe:
		return rank{3, cost}
	case full:
		return rank{2, cost}
	}
	now, _ := c.own(r, x, x.queue.Len())
	return rank{1, cost / now}
}

// own is the least that a call of the class costs among its own, seconds, in batches of at most so many, and with how many rows.
func (c *Core) own(r *replica, x *cell, most int) (cost float64, rows int) {
	m, f := math.Exp(x.mean()), c.padding.forecast
	s, apart := &f.misses[x.standing.evidence()], x.apart(f.alike(x.standing.evidence()))
	cost = math.Inf(1)
	for n := 1; n <= most; n = next(n, 2*n, most) {
		once, twice := s.longestOf(max(1, float64(n)*apart))
		t1, t2 := capped(m*once, m*m*twice, x.want)
		if each := r.pace.of(float64(r.rows(n)), float64(r.shape(x.prompt)), t1, t2) / float64(n); each < cost {
			cost, rows = each, n
		}
	}
	return cost, rows
}

// next is the number after n to be tried: `step`, but the most that there is room for before anything greater.
func next(n, step, most int) int {
	if n < most {
		return min(step, most)
	}
	return most + 1
}

// capped bounds an expected length and square by what an answer may have.
func capped(t1, t2 float64, want int) (float64, float64) {
	if want > 0 {
		return min(t1, float64(want)), min(t2, float64(want)*float64(want))
	}
	return t1, t2
}

// lot is a batch in the making.
type lot struct {
	r        *replica
	f        *forecast
	calls    []*call
	promised int              // tokens
	prompt   int              // the longest, tokens
	want     int              // greatest limit of an answer, tokens; 0 = none
	cut      int              // where answers are cut, tokens; 0 = they are not
	odds     [lotBins]float64 // by bin: the logarithm of the chance that no answer is longer
}

// lotBins reach to e^(lotBins·missWidth) tokens, four million.
const lotBins = 62

// best is how many rows of the class make the batch cheapest a row.
func (b *lot) best(x *cell) int {
	best, least := 0, math.Inf(1)
	if n := len(b.calls); n > 0 {
		least = b.with(nil, 0) / float64(n)
	}
	most := min(b.r.most()-len(b.calls), x.queue.Len())
	for n := 1; n <= most; {
		if each := b.with(x, n) / float64(len(b.calls)+n); each < least {
			best, least = n, each
		}
		step := n + max(n/3, 1)
		if len(b.r.Shapes) > 0 {
			step = 2 * n
		}
		n = next(n, step, most)
	}
	return best
}

// with is the expected cost of the batch with k more rows of a class, seconds; infinite where the memory would not hold it.
func (b *lot) with(x *cell, k int) float64 {
	rows, prompt, want := len(b.calls)+k, b.prompt, b.want
	if k > 0 {
		prompt, want = max(b.prompt, x.prompt), limitOf(len(b.calls), b.want, x.want)
	}
	t1, t2 := b.longest(x, k)
	t1, t2 = capped(t1, t2, want)
	if kv := b.r.holds(); kv > 0 && rows > 1 && float64(rows)*(float64(prompt)+t1) > kv {
		return math.Inf(1)
	}
	return b.r.pace.of(float64(b.r.rows(rows)), float64(b.r.shape(prompt)), t1, t2)
}

// longest is the expected longest answer with k more rows of a class, tokens, and its square.
func (b *lot) longest(x *cell, k int) (t1, t2 float64) {
	odds := b.odds
	if k > 0 {
		b.join(&odds, x, k)
	}
	below := 0.0
	for i := range odds {
		if up := math.Exp(odds[i]); up > below {
			t := math.Exp(float64(i) * missWidth)
			t1 += (up - below) * t
			t2 += (up - below) * t * t
			below = up
		}
	}
	return t1, t2
}

// join takes k rows of a class into the odds.
func (b *lot) join(odds *[lotBins]float64, x *cell, k int) {
	e := x.standing.evidence()
	n := float64(k) * x.apart(b.f.alike(e))
	shift := int(math.Round(x.mean()/missWidth)) - missZero
	for i := range odds {
		odds[i] += n * b.f.misses[e].at(i-shift)
	}
}

// fill takes k calls of the class, oldest first.
func (b *lot) fill(c *Core, x *cell, k int) {
	for ; k > 0 && x.queue.Len() > 0; k-- {
		if !b.take(c, x.queue.Head(0).Value) {
			return
		}
	}
}

// take puts a call into the batch, unless a budget that a person set would not hold it.
func (b *lot) take(c *Core, w *call) bool {
	cost := w.Prompt + b.r.maxTokens(w)
	if b.cut > 0 {
		cost = w.Prompt + min(b.cut, b.r.maxTokens(w))
	}
	if kv := b.r.Capacity.KVTokens; b.r.Strict && kv > 0 && len(b.calls) > 0 && b.promised+cost > kv {
		return false
	}
	b.join(&b.odds, w.shelved.cell, 1)
	b.want = limitOf(len(b.calls), b.want, w.Want)
	b.prompt = max(b.prompt, w.Prompt)
	b.promised += cost
	b.calls = append(b.calls, w)
	c.unshelve(w)
	return true
}

// rider is a class whose calls may ride along.
type rider struct {
	*cell
	own  float64 // cost of a row among its own, seconds
	gain float64 // what a row saves at most by riding along
}

// ride lets calls of other classes ride along where a row costs less here than among its own, those that gain most first.
func (c *Core) ride(b *lot, anchor *cell, cells []*cell) {
	for _, x := range c.riders(b, anchor, cells) {
		cost := b.with(nil, 0)
		for k := min(b.r.most()-len(b.calls), x.queue.Len()); k > 0; k /= 2 {
			if b.with(x.cell, k)-cost < float64(k)*x.own {
				b.fill(c, x.cell, k)
				break
			}
		}
	}
}

func (c *Core) riders(b *lot, anchor *cell, cells []*cell) []rider {
	if len(b.calls) >= b.r.most() {
		return nil
	}
	var all []rider
	t1, t2 := b.longest(nil, 0)
	for _, x := range cells {
		if x.queue.Len() == 0 {
			continue
		}
		if x.standing == follower && anchor.standing != follower {
			continue
		}
		rows := b.r.most()
		if !c.padding.flowing { // no more come: what waits is all that it can be together with
			rows = min(rows, x.queue.Len())
		}
		own, _ := c.own(b.r, x, rows)
		if gain := own - b.r.pace.row(float64(b.r.shape(max(b.prompt, x.prompt))), t1, t2); gain > 0 {
			all = append(all, rider{x, own, gain})
		}
	}
	slices.SortStableFunc(all, func(a, b rider) int { return cmp.Compare(b.gain, a.gain) })
	return all
}
