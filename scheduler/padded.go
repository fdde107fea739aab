package scheduler

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"tranche/bucketing"
)

// Replicas that pad (ReplicaConfig.Rows) take a rectangle of rows, pad every prompt to the longest and wait for the longest answer.
// They get whole batches: an idle one is given calls of one class, and no second batch before all of the first have ended. A class is
// a length of prompt, which is known, an expected length of answer, and what that expectation rests on. How many rows a batch has and
// whether calls of other classes ride along follows from what batches cost (pace.go) and how long the longest of so many answers
// gets (forecast.go). This file holds the classes, batch.go picks the calls.

// padding is what the core keeps for replicas that pad.
type padding struct {
	forecast         *forecast
	prompts, answers sample
	promptBounds     []int     // tokens
	answerBounds     []float64 // natural logarithms of tokens
	shapes           []int     // of the first replica that has any: then they are the bounds
	rnd              *rand.Rand
	waiting          int  // calls in racks
	since            Time // since when there are some
	batches          int  // begun so far
	offered          int  // calls until the last batch began
	flowing          bool // calls came between the last two

	lasting   lasting  // of answers that may be cut
	steps     []*steps // by class of prompt; nil = to be made
	most      int      // an answer that may be cut may have, tokens; 0 = not bounded
	cutting   bool     // there was one
	parts     int      // of answers that were cut
	partsUsed int      // of them when bounds were last made
}

// hardClasses is how many classes of prompt length there are, and of answer length.
const hardClasses = 8

// standing is what a call is to its group.
type standing int

const (
	follower standing = iota // its group's first has not ended: it goes only where nothing else waits
	probe                    // the first of its group: it tells how long its siblings get
	single                   // no sibling will tell
	told                     // one sibling has ended; told+1: two, told+2: more
)

// evidence is how many siblings' answers are known, at most evidences-1.
func (s standing) evidence() int { return max(int(s-single), 0) }

// rack holds the waiting calls of a pool by class.
type rack struct {
	cells map[class]*cell
	order []*cell // as they came up
}

// class is what calls have in common. Of an answer that may be cut, `answer` tells how much of it there is, and the standing is nought:
// nobody need know how long it gets.
type class struct {
	cut            bool
	standing       standing
	answer, prompt int
}

// cell is the waiting calls of one class, oldest first.
type cell struct {
	class
	queue  bucketing.Queues[*call] // one level
	likely float64                 // sum of the logarithms of the expected lengths
	prompt int                     // the longest, tokens
	want   int                     // greatest limit of an answer, tokens; 0 = none
	got    int                     // the most that there is of an answer that was cut, tokens
	groups map[*groupHome]int      // calls of each
}

// mean is the logarithm of the answer length that is expected in the class.
func (x *cell) mean() float64 { return x.likely / float64(x.queue.Len()) }

// apart is how many rows that have nothing to do with each other one of the class counts as: rows of one group get long together.
func (x *cell) apart(alike float64) float64 {
	distinct := float64(len(x.groups)) / float64(x.queue.Len())
	return distinct + (1-distinct)*(1-alike)
}

// shelved is a call's place in a rack, and what was expected when it was put there.
type shelved struct {
	cell     *cell // nil = in none
	place    *bucketing.Item[*call]
	likely   float64
	evidence int
}

// newPadding is the padding of a fleet; nil when no replica pads.
func newPadding(replicas []ReplicaConfig, seed uint64) *padding {
	if !slices.ContainsFunc(replicas, func(r ReplicaConfig) bool { return r.Rows > 0 }) {
		return nil
	}
	p := &padding{forecast: newForecast(), rnd: rand.New(rand.NewPCG(seed, 0x7061_64))}
	if i := slices.IndexFunc(replicas, func(r ReplicaConfig) bool { return len(r.Shapes) > 0 }); i >= 0 {
		p.shapes = replicas[i].Shapes
	}
	p.bound()
	return p
}

// bound makes the classes' bounds from the lengths observed: those that pad least.
func (p *padding) bound() {
	p.promptBounds = p.shapes
	if p.shapes == nil {
		p.promptBounds = bucketing.LeastPadding(p.prompts.lengths, hardClasses)
	}
	p.answerBounds = nil
	for _, b := range bucketing.LeastPadding(p.answers.lengths, hardClasses) {
		p.answerBounds = append(p.answerBounds, logOf(b))
	}
	p.forecast.tabulate()
	p.lasting.tabulate()
	p.steps, p.partsUsed = nil, p.parts
	p.prompts.used, p.answers.used = p.prompts.seen, p.answers.seen
}

func logOf(tokens int) float64 { return math.Log(float64(max(tokens, 1))) }

// sample is lengths drawn from all that were observed, the older ones fading.
type sample struct {
	lengths []int
	seen    int // observed
	used    int // of them when bounds were last made
}

// A sample's size, and how many times as many of the last lengths it is drawn from.
const (
	sampleSize  = 256
	sampleReach = 16
)

func (s *sample) add(tokens int, rnd *rand.Rand) {
	s.seen++
	if len(s.lengths) < sampleSize {
		s.lengths = append(s.lengths, tokens)
		return
	}
	if i := rnd.IntN(min(s.seen, sampleSize*sampleReach)); i < sampleSize {
		s.lengths[i] = tokens
	}
}

// grew says whether twice as much was observed as bounds were made of, or as much as waits; not for the sake of a few. Making bounds
// moves all that waits, so this keeps the time for one length bounded.
func (s *sample) grew(waiting int) bool {
	return s.seen-s.used >= min(max(8, s.used, waiting/256), max(1024, waiting))
}

// expect takes note of a prompt length.
func (c *Core) expect(prompt int) {
	if c.padding != nil {
		c.padding.prompts.add(prompt, c.padding.rnd)
	}
}

// shelve puts a waiting call where replicas that pad look for work.
func (c *Core) shelve(w *call, now Time) {
	c.unshelve(w)
	if !w.pool.padded {
		return
	}
	d := c.padding
	likely, standing := d.forecast.likely(w.Cell, w.heard(), w.Want), w.standing()
	of := class{false, standing, sort.SearchFloat64s(d.answerBounds, likely), d.promptClass(w.Prompt - w.got)}
	if w.pool.cuts(w) {
		d.expect(w)
		of = class{true, 0, int(lastPlace(w.got)), of.prompt}
	}
	x := w.pool.rack.cell(of)
	x.want, x.got = limitOf(x.queue.Len(), x.want, w.Want), max(x.got, w.got)
	x.likely += likely
	x.prompt = max(x.prompt, w.Prompt)
	x.groups[w.life.siblings]++
	w.shelved = shelved{x, x.queue.Push(0, w), likely, standing.evidence()}
	if d.waiting == 0 {
		d.since = now
	}
	d.waiting++
}

// promptClass is the class of a prompt of so many tokens.
func (p *padding) promptClass(tokens int) int { return sort.SearchInts(p.promptBounds, tokens) }

// expect takes note of what an answer that may be cut may have in all.
func (p *padding) expect(w *call) {
	total := w.Want
	if total > 0 {
		total += w.got
	}
	n := 0
	if p.cutting {
		n = 1
	}
	if most := limitOf(n, p.most, total); most != p.most || !p.cutting {
		p.most, p.cutting, p.steps = most, true, nil
		p.lasting.expect(total)
		p.lasting.tabulate()
	}
}

// limitOf is the greatest limit when one joins n that have `most`; 0 = none.
func limitOf(n, most, one int) int {
	switch {
	case n == 0:
		return one
	case most == 0 || one == 0:
		return 0
	}
	return max(most, one)
}

// cell finds a class's calls.
func (k *rack) cell(of class) *cell {
	x := k.cells[of]
	if x == nil {
		if k.cells == nil {
			k.cells = map[class]*cell{}
		}
		x = &cell{class: of, groups: map[*groupHome]int{}}
		k.cells[of] = x
		k.order = append(k.order, x)
	}
	if x.queue.Len() == 0 {
		x.likely, x.prompt, x.got = 0, 0, 0 // no rounding is carried on
	}
	return x
}

// unshelve takes it out again; what was expected of it stays known.
func (c *Core) unshelve(w *call) {
	x, g := w.shelved.cell, w.life.siblings
	if x == nil {
		return
	}
	w.shelved.place.Remove()
	w.shelved.cell = nil
	x.likely -= w.shelved.likely
	if x.groups[g]--; x.groups[g] == 0 {
		delete(x.groups, g)
	}
	c.padding.waiting--
}

// heard is what siblings' answers told so far: nothing where an answer is not a whole episode.
func (w *call) heard() logs {
	if w.Turns != 1 {
		return logs{}
	}
	return w.life.siblings.answers
}

func (w *call) standing() standing {
	switch n := int(w.heard().n); {
	case n > 0:
		return told + standing(min(n, evidences-1)) - 1
	case w.Turns != 1 || w.GroupSize <= 1:
		return single
	case w.life.siblings.probe == w || w.attempts > 0: // one that failed is still waited for
		return probe
	}
	return follower
}

// refresh makes the bounds anew when enough was observed, and sorts what waits by them.
func (c *Core) refresh(now Time) {
	d := c.padding
	parts := sample{seen: d.parts, used: d.partsUsed}
	if !d.prompts.grew(d.waiting) && !d.answers.grew(d.waiting) && !parts.grew(d.waiting) {
		return
	}
	d.bound()
	for _, p := range c.order {
		all := p.rack.empty(c)
		p.rack = rack{}
		for _, w := range all {
			c.shelve(w, now)
		}
	}
}

// empty takes all calls out, in the order in which they were offered.
func (k *rack) empty(c *Core) []*call {
	var all []*call
	for _, x := range k.order {
		for x.queue.Len() > 0 {
			w := x.queue.Head(0).Value
			c.unshelve(w)
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *call) int { return int(a.Ticket - b.Ticket) })
	return all
}

// heed learns from an answer.
func (c *Core) heed(w *call, tokens int) {
	d := c.padding
	if d == nil {
		return
	}
	d.answers.add(tokens, d.rnd)
	if w.shelved.place == nil {
		return // it never waited for a replica that pads: nothing was expected
	}
	if w.pool.cuts(w) {
		d.lasting.learn(w.got, tokens, true)
	}
	d.forecast.learn(w.Cell, w.shelved.likely, w.shelved.evidence, w.heard(), tokens)
	if w.Turns == 1 {
		w.life.siblings.answers.add(logOf(tokens))
	}
}

// load is the batch that runs on a replica.
type load struct {
	rows, prompt, longest int // calls; tokens
	began                 Time
	failed                bool // in part: its time tells nothing
}

// add takes a call that is launched into the batch.
func (b *load) add(w *call, now Time) {
	b.rows++
	b.prompt = max(b.prompt, w.Prompt)
	b.began = now
}

// unload takes a call that ended off the batch, generated < 0 = it failed; the last one tells what the batch cost.
func (r *replica) unload(generated int, now Time) {
	if r.Rows == 0 {
		return
	}
	b := &r.batch
	b.longest, b.failed = max(b.longest, generated), b.failed || generated < 0
	if r.running > 0 {
		return
	}
	if kv := r.holds(); !b.failed && (kv == 0 || float64(b.rows*(b.prompt+b.longest)) <= kv) { // else the engine took it in parts
		r.pace.learn(r.rows(b.rows), r.shape(b.prompt), b.longest, (now - b.began).Seconds())
	}
	r.batch, r.idle = load{}, now
}

// most is how many calls r takes at once.
func (r *replica) most() int {
	switch {
	case r.open:
		return 1 // one tries
	case r.MaxCalls > 0:
		return min(r.Rows, r.MaxCalls)
	}
	return r.Rows
}

// rows is how many rows n calls occupy.
func (r *replica) rows(n int) int {
	if len(r.Shapes) == 0 {
		return n
	}
	rows := 1
	for rows < n {
		rows *= 2
	}
	return min(rows, r.Rows)
}

// shape is the length that a prompt is padded to whatever its batch.
func (r *replica) shape(tokens int) int {
	if i := sort.SearchInts(r.Shapes, tokens); i < len(r.Shapes) {
		return r.Shapes[i]
	}
	return tokens
}
