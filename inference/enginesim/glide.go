package enginesim

import "time"

// Advance runs the steps that begin before until, the first one at now in any case, and stops behind the first in which something
// happened. It returns the events and the time the steps took together; the history is that of single Steps, to the nanosecond.
// Steps in which all sequences only decode are run in one go. The events are valid until the next call.
func (m *Model) Advance(now, until time.Duration) ([]Event, time.Duration) {
	m.events = m.events[:0]
	at := now
	for at == now || at < until {
		glided := m.glide(at, until)
		at += glided
		if glided > 0 && at >= until {
			break
		}
		d := m.one(at)
		at += d
		if d == 0 || len(m.events) > 0 {
			break
		}
	}
	return m.events, at - now
}

// Quiet is how long from now, the end of the last step, nothing happens for sure when nothing is offered or aborted: until then nobody
// need look. 0 = the next step may bring an event.
func (m *Model) Quiet() time.Duration {
	steps, w := m.calm()
	var d time.Duration
	for range steps {
		d += m.step.duration(w)
		w.reads += w.growth
	}
	return d
}

// glide runs the calm steps that begin before until, at least one when there is one, and returns how long they took.
func (m *Model) glide(now, until time.Duration) time.Duration {
	steps, w := m.calm()
	if steps == 0 {
		return 0
	}
	m.begin()
	at, n := now, 0
	for n < steps && (n == 0 || at < until && !m.pool.come) { // come: what is known of the head of the queue is out of date
		m.cross(n)
		at += m.step.duration(w)
		w.reads += w.growth
		n++
	}
	m.settle(n)
	m.counters.Steps += int64(n)
	m.counters.Busy += at - now
	return at - now
}

// calm counts the steps before the next that may do more than decode, and says what the first of them computes: nobody in them comes
// or goes, has a first token, wants each token told or finds no block.
func (m *Model) calm() (steps int, w work) {
	if m.batching.pads() {
		return m.launch.calm(m)
	}
	n := len(m.running)
	if n == 0 || n > m.budget || m.mayAdmit() {
		return 0, w
	}
	w = work{tokens: n, seqs: n, growth: n}
	steps = m.running[0].goal
	for _, s := range m.running {
		if !s.decodes() || s.EachToken {
			return 0, w
		}
		w.reads += s.computed
		steps = min(steps, s.goal-s.total()-1)
	}
	return m.heedHead(m.withinPool(steps)), w
}

// mayAdmit says whether the next step would look at the head of the queue and not know the answer.
func (m *Model) mayAdmit() bool {
	if m.waiting.Len() == 0 || len(m.running) >= m.maxSeqs || len(m.running) >= m.budget {
		return false
	}
	return !m.stillBlocked(m.waiting.Front().Value.(*sequence))
}

// withinPool is how many of so many decoding steps find their blocks.
func (m *Model) withinPool(steps int) int {
	if m.wantedBlocks(steps) <= m.pool.free {
		return steps
	}
	low, high := 0, steps // low fits, high does not
	for high-low > 1 {
		if mid := (low + high) / 2; m.wantedBlocks(mid) <= m.pool.free {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

func (m *Model) wantedBlocks(steps int) int {
	n := 0
	for _, s := range m.running {
		n += m.missing(s, s.computed+steps)
	}
	return n
}

// heedHead is how many of so many steps pass before the head of the queue could find one more block of its prompt in the cache: before
// someone continues the text that its prompt begins with, or gets there and continues it.
func (m *Model) heedHead(steps int) int {
	if m.waiting.Len() == 0 || m.pool.watched == nil || len(m.running) >= m.maxSeqs {
		return steps
	}
	for _, s := range m.running {
		filled := m.tokens - 1 - s.computed%m.tokens // steps before the one that fills its block
		if s.tip != m.pool.watched {
			filled += m.tokens
		}
		steps = min(steps, filled)
	}
	return steps
}

// begin notes where in its block each running sequence stands.
func (m *Model) begin() {
	m.phase = m.phase[:0]
	if m.batching.pads() {
		return
	}
	for _, s := range m.running {
		m.phase = append(m.phase, s.computed%m.tokens)
	}
}

// cross does for calm step n what compute does with blocks: those who begin a block take one, those who fill one enter it in the
// cache, in order.
func (m *Model) cross(n int) {
	for i, p := range m.phase {
		if p == 0 {
			m.pool.take(1)
			m.running[i].held++
		}
		if p++; p == m.tokens {
			s := m.running[i]
			s.tip = m.pool.fill(s.tip, s.text, (s.computed+n+1)/m.tokens)
			p = 0
		}
		m.phase[i] = p
	}
}

// settle gives every running sequence the tokens of n calm steps.
func (m *Model) settle(n int) {
	if m.batching.pads() {
		m.launch.settle(m, n)
		return
	}
	for _, s := range m.running {
		s.computed += n
		s.sampled += n
	}
	m.counters.GeneratedTokens += int64(n * len(m.running))
}
