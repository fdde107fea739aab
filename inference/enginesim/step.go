package enginesim

import (
	"slices"
	"time"
)

// The rules of vLLM's V1 scheduler. A step has one token budget. Running sequences come first, oldest first: one token for each that
// decodes, a chunk for each whose prompt is unfinished. When a block is wanted and none is free, the newest running sequence (by
// priority: the worst) is preempted: it loses its blocks, goes to the front of the queue and is computed again later. Then, unless
// someone was preempted, waiting sequences are admitted strictly in order, each only when its whole prompt fits; a long one at the
// head blocks those behind it.

// continuousStep runs one step; 0 = there was nothing to compute.
func (m *Model) continuousStep(now time.Duration) time.Duration {
	m.left, m.preempted = m.budget, false
	for _, s := range m.running {
		if s.place == nil { // else it was preempted for one before it
			m.advance(s)
		}
	}
	if m.preempted {
		m.running = slices.DeleteFunc(m.running, func(s *sequence) bool { return s.place != nil })
	} else {
		m.admit(now)
	}
	if m.left == m.budget {
		return 0
	}
	w := m.sample()
	w.tokens = m.budget - m.left
	return m.step.duration(w)
}

// advance schedules a running sequence's next tokens: one when it decodes, else as much of its prompt as the budget allows.
func (m *Model) advance(s *sequence) {
	n := min(s.total()-s.computed, m.left)
	if n == 0 {
		return
	}
	for m.missing(s, s.computed+n) > m.pool.free {
		v := m.victim()
		m.preempt(v)
		if v == s {
			return
		}
	}
	m.compute(s, n)
}

// missing is the number of blocks a sequence lacks to hold n tokens.
func (m *Model) missing(s *sequence, n int) int {
	have := s.held * m.tokens
	if n <= have { // nearly always: spares a division
		return 0
	}
	return (n - have + m.tokens - 1) / m.tokens
}

// victim is the running sequence that comes last by rank.
func (m *Model) victim() *sequence {
	var last *sequence
	for _, s := range m.running {
		if s.place == nil && (last == nil || m.before(last, s)) {
			last = s
		}
	}
	return last
}

// preempt takes a running sequence off the engine; it will be computed again. What it was given in this step is taken back: the
// blocks that would have been filled hold nothing. It stays in running until the step is over.
func (m *Model) preempt(s *sequence) {
	s.tip, _ = m.pool.unfill(s.tip, s.computed/m.tokens-(s.computed-s.took)/m.tokens)
	m.left += s.took
	m.drop(s)
	s.computed, s.took = 0, 0
	m.queueFirst(s)
	m.preempted = true
	m.counters.Preemptions++
	m.tell(s, Preempted, s.sampled)
}

// blocked remembers why the head of the queue was not admitted, so that nobody looks again before something changed. Its room can
// only grow when blocks are freed or when the next block of its prompt enters the cache: taking and sharing blocks never help it.
type blocked struct {
	number int64 // of the sequence; 0 = nothing is known
	lack   int64 // blocks that must be freed before it could fit
	freed  int64 // pool.freed when that was found
}

func (m *Model) stillBlocked(s *sequence) bool {
	return m.head.number == s.number && m.pool.freed-m.head.freed < m.head.lack && !m.pool.come
}

func (m *Model) admit(now time.Duration) {
	for m.left > 0 && len(m.running) < m.maxSeqs && m.waiting.Len() > 0 {
		s := m.waiting.Front().Value.(*sequence)
		if m.stillBlocked(s) {
			return
		}
		// The last token is computed in any case: without it there is nothing to sample from.
		whole := (s.total() - 1) / m.tokens
		if m.noCache {
			whole = 0
		}
		found := m.pool.match(s.text, whole)
		if lack := m.missing(s, s.total()) - found.hit - (m.pool.free - found.idle); lack > 0 {
			m.block(s, found, whole, lack)
			return
		}
		m.seat(s, found)
		m.admission(s, now, s.computed)
		m.compute(s, min(s.total()-s.computed, m.left))
	}
}

func (m *Model) block(s *sequence, found match, whole, lack int) {
	m.head = blocked{number: s.number, lack: int64(lack), freed: m.pool.freed}
	m.pool.watched, m.pool.come = nil, false
	if found.hit < whole {
		m.pool.watched = m.pool.cut(found)
	}
}

// seat moves the head of the queue among the running, with the cached blocks of its prompt.
func (m *Model) seat(s *sequence, found match) {
	s.tip = m.pool.cut(found)
	m.pool.hold(s.tip)
	s.held, s.computed = found.hit, found.hit*m.tokens
	m.waiting.Remove(s.place)
	s.place = nil
	m.running = append(m.running, s)
}

// compute takes n tokens of the step's budget for a sequence and the blocks to hold them. Whole blocks enter the cache at
// once, so siblings in one step share their prompt.
func (m *Model) compute(s *sequence, n int) {
	if k := m.missing(s, s.computed+n); k > 0 {
		m.pool.take(k)
		s.held += k
	}
	s.computed += n
	s.tip = m.pool.fill(s.tip, s.text, s.computed/m.tokens)
	s.took = n
	m.left -= n
}

// sample gives every sequence whose tokens are all computed its next one, and adds up what the step computed.
func (m *Model) sample() (w work) {
	kept := m.running[:0]
	for _, s := range m.running {
		m.account(s, &w)
		if s.computed == s.total() {
			m.gain(s)
		}
		if s.total() == s.goal {
			m.finish(s)
			continue
		}
		kept = append(kept, s)
	}
	clear(m.running[len(kept):])
	m.running = kept
	return w
}

func (m *Model) account(s *sequence, w *work) {
	n, before := s.took, s.computed-s.took
	s.took = 0
	if n == 0 {
		return
	}
	w.seqs++
	if before >= s.prompt && n == 1 {
		w.reads += before
		return
	}
	w.pairs += float64(n) * (float64(before) + float64(n)/2)
	m.counters.ComputedTokens += int64(n)
	if s.sampled == 0 && s.computed == s.prompt {
		m.counters.PromptTokens += int64(s.prompt)
	}
}
