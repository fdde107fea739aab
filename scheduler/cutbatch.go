package scheduler

import (
	"cmp"
	"math"
	"slices"
)

// A batch of answers that are cut is worth what its rows do not cost any more afterwards, in the full batches of their like for which steps
// tell the price. Of what waits, that is taken together which is worth most for its time; where a class has a full batch it is that,
// of several the one whose answers are the longest so far, since those have the most to go.

// stepsOf are the steps of a class of prompts.
func (c *Core) stepsOf(prompt int) *steps {
	d := c.padding
	for len(d.steps) <= prompt {
		d.steps = append(d.steps, nil)
	}
	if d.steps[prompt] == nil {
		s := stepsFor(d.usualPrompt(prompt), d.most, &d.lasting, c.yard())
		d.steps[prompt] = &s
	}
	return d.steps[prompt]
}

// usualPrompt is the mean prompt of a class, tokens.
func (d *padding) usualPrompt(class int) int {
	sum, n := 0, 0
	for _, p := range d.prompts.lengths {
		if d.promptClass(p) == class {
			sum, n = sum+p, n+1
		}
	}
	if n == 0 {
		return 1
	}
	return max(sum/n, 1)
}

// yard is the mean of the replicas that go on from ids, with the most rows and memory that any has.
func (c *Core) yard() yard {
	var y yard
	n := 0.0
	for _, r := range c.replicas {
		if !r.Continues {
			continue
		}
		n++
		for i, cost := range r.pace.cost {
			y.cost.cost[i] += (cost - y.cost.cost[i]) / n
		}
		if y.pads == nil {
			y.pads = r
		}
		y.rows, y.memory = max(y.rows, r.most()), max(y.memory, r.holds())
	}
	return y
}

// cutBatch takes the calls of r's next batch off their racks, and says at how many tokens it is cut.
func (c *Core) cutBatch(r *replica, cells []*cell, first *call) ([]*call, int) {
	b := c.newMix(r, cells, first)
	if tokens := b.whole(); tokens > 0 {
		return c.draw(b, first), tokens
	}
	b.gather()
	return c.draw(b, first), b.tokens
}

// draw takes the rows of the mix, oldest first, but for one that is to be among them.
func (c *Core) draw(b *mix, first *call) []*call {
	l := &lot{r: b.r, f: c.padding.forecast, cut: b.tokens}
	if first != nil {
		l.take(c, first)
		b.parts[0].rows--
	}
	for _, p := range b.parts {
		l.fill(c, p.cell, p.rows)
	}
	return l.calls
}

// mixTimes are the times at which a mix is looked at: of two that follow each other the later is a quarter longer.
const mixTimes = 62

func mixTime(i int) int { return leastCut + int(math.Exp(float64(i)*0.25)) }

// mix is a batch in the making whose answers are cut.
type mix struct {
	r      *replica
	cells  []*portion // all that may go into it; the anchor is the first
	parts  []*portion // what does
	rows   int
	prompt int // the longest context, tokens
	none   [mixTimes]float64
	gain   [mixTimes]float64
	tokens int     // at which it is cut
	worth  float64 // seconds saved a second
}

// portion is rows of one class.
type portion struct {
	*cell
	rows int
	ends [mixTimes]float64 // logarithm of the chance that a row has ended by then
	gain [mixTimes]float64 // what a row is expected to cost less by then, seconds
	rest float64           // what a row costs still, seconds
	step int               // tokens until it is cut in a batch of its own
}

func (c *Core) newMix(r *replica, cells []*cell, first *call) *mix {
	b := &mix{r: r}
	for _, x := range cells {
		b.cells = append(b.cells, c.portion(x))
	}
	anchor := 0
	for i, p := range b.cells {
		if first != nil && p.cell == first.shelved.cell || first == nil && b.before(p, b.cells[anchor]) {
			anchor = i
		}
	}
	b.cells[0], b.cells[anchor] = b.cells[anchor], b.cells[0]
	return b
}

func (c *Core) portion(x *cell) *portion {
	s, l := c.stepsOf(x.class.prompt), &c.padding.lasting
	p := &portion{cell: x, rest: s.left(x.got), step: s.cut(x.got) - x.got}
	for i := range mixTimes {
		t := x.got + mixTime(i)
		left := l.share(x.got, t)
		p.ends[i] = math.Log1p(-min(left, 1-1e-9))
		p.gain[i] = p.rest - left*s.left(t)
	}
	return p
}

// before orders anchors: full ones first, then those that have most to go.
func (b *mix) before(p, o *portion) bool {
	if full, other := p.queue.Len() >= b.fit(p), o.queue.Len() >= b.fit(o); full != other {
		return full
	}
	return p.rest > o.rest
}

// fit is how many rows a batch of that class alone can have.
func (b *mix) fit(p *portion) int { return b.room(p.cell.prompt + max(p.step, 1)) }

// room is how many rows of so many tokens there may be.
func (b *mix) room(tokens int) int {
	n := b.r.most()
	if kv := b.r.holds(); kv > 0 {
		n = min(n, max(int(kv)/max(tokens, 1), 1))
	}
	return n
}

// whole makes the mix a full batch of the anchor's class, if there is one, and says at how many tokens it is cut, else 0.
func (b *mix) whole() int {
	p := b.cells[0]
	n := b.fit(p)
	if p.queue.Len() < n {
		return 0
	}
	p.rows = n
	b.parts = append(b.parts, p)
	b.tokens = p.step
	if p.step <= 0 {
		b.tokens = math.MaxInt
	}
	return b.tokens
}

// gather adds rows of other classes to the anchor's while the batch is worth more for its time with them, the likest first.
func (b *mix) gather() {
	anchor := b.cells[0]
	b.add(anchor, min(anchor.queue.Len(), b.r.most()))
	b.tokens, b.worth = b.best(b.rows, b.prompt, &b.none, &b.gain)
	others := b.cells[1:]
	far := func(p *portion) float64 { return math.Abs(logOf(p.cell.prompt) - logOf(anchor.cell.prompt)) }
	slices.SortStableFunc(others, func(p, o *portion) int { return cmp.Compare(far(p), far(o)) })
	for _, p := range others {
		for k := min(b.r.most()-b.rows, p.queue.Len()); k > 0; k /= 2 {
			if b.try(p, k) {
				break
			}
		}
	}
}

// try adds k rows of a class if that makes the batch worth more.
func (b *mix) try(p *portion, k int) bool {
	none, gain := b.none, b.gain
	join(&none, &gain, p, k)
	tokens, worth := b.best(b.rows+k, max(b.prompt, p.cell.prompt), &none, &gain)
	if worth <= b.worth {
		return false
	}
	b.add(p, k)
	b.tokens, b.worth = tokens, worth
	return true
}

func (b *mix) add(p *portion, k int) {
	p.rows = k
	b.parts = append(b.parts, p)
	b.rows += k
	b.prompt = max(b.prompt, p.cell.prompt)
	join(&b.none, &b.gain, p, k)
}

func join(none, gain *[mixTimes]float64, p *portion, k int) {
	for i := range none {
		none[i] += float64(k) * p.ends[i]
		gain[i] += float64(k) * p.gain[i]
	}
}

// best is at how many tokens such a batch is cut so that it is worth most for its time, and what that is. Where the memory holds no such
// batch it is worth nothing.
func (b *mix) best(rows, prompt int, none, gain *[mixTimes]float64) (tokens int, worth float64) {
	n, p := float64(b.r.rows(rows)), float64(b.r.shape(prompt))
	var wait reach
	for i := range mixTimes {
		t := mixTime(i)
		if rows > 1 && rows > b.room(prompt+t) {
			break
		}
		wait.until(t, none[i])
		if w := gain[i] / b.r.pace.of(n, p, wait.t1, wait.t2); w > worth {
			tokens, worth = t, w
		}
	}
	return tokens, worth
}
