package enginesim

import "time"

// Engines that pad. They take what waits, up to MaxSeqs, as one rectangle of rows; nobody joins before the last row is done. There is
// no prefix cache and no preemption: the memory of the whole rectangle is held from the beginning. A batch of one long and many short
// answers costs what the long one costs in every row, which is why the order of arrival matters so much to them.

// Batching is how an engine puts sequences together.
type Batching string

// Kinds of batching.
const (
	// Continuous is the default: sequences come and go at every step, nothing is padded.
	Continuous Batching = "continuous"
	// Static takes the first that wait, pads every prompt to the longest among them, and answers all when the longest answer is done.
	Static Batching = "static"
	// Shaped compiles for fixed shapes, as engines on TPUs and HPUs do: a batch takes the first that waits and those behind it whose
	// prompt pads to the same of Config.Shapes; rows are padded to a power of two and contexts to the next shape. An answer is told
	// when it is done, its row computes on.
	Shaped Batching = "shaped"
)

func (b Batching) pads() bool { return b == Static || b == Shaped }

// launch is the rectangle in progress.
type launch struct {
	rows   int // padding included
	prompt int // tokens, padded
	depth  int // tokens sampled in every row
	answer int // tokens of the longest answer
}

// held is the memory of the rectangle, blocks.
func (l *launch) held(blockTokens int) int {
	return (l.rows*(l.prompt+l.answer) + blockTokens - 1) / blockTokens
}

// paddedStep computes all prompts, or one more token in every row; 0 = there was nothing to do.
func (m *Model) paddedStep(now time.Duration) time.Duration {
	if len(m.running) == 0 && !m.load(now) {
		return 0
	}
	l := &m.launch
	w := l.work(m)
	if l.depth == 0 {
		n := l.rows * l.prompt
		w = work{tokens: n, seqs: l.rows, pairs: float64(n) * float64(l.prompt) / 2}
		m.counters.ComputedTokens += int64(n)
	}
	l.depth++
	m.fill()
	return m.step.duration(w)
}

// work is what the next decoding step computes.
func (l *launch) work(m *Model) work {
	w := work{tokens: l.rows, seqs: l.rows, reads: l.rows * m.padded(l.prompt+l.depth-1)}
	if m.batching == Static {
		w.growth = l.rows
	}
	return w
}

// load takes the next rectangle from the queue; false when nobody waits.
func (m *Model) load(now time.Duration) bool {
	m.launch = launch{}
	l := &m.launch
	for e := m.waiting.Front(); e != nil && len(m.running) < m.maxSeqs; {
		s, next := e.Value.(*sequence), e.Next()
		if m.batching == Shaped && len(m.running) > 0 && m.padded(s.prompt) != l.prompt {
			e = next
			continue
		}
		wider := launch{rows: m.rows(len(m.running) + 1), prompt: max(l.prompt, m.padded(s.prompt)), answer: max(l.answer, s.goal-s.prompt)}
		if len(m.running) > 0 && wider.held(m.tokens) > m.pool.total {
			break
		}
		*l = wider
		m.waiting.Remove(e)
		s.place = nil
		m.running = append(m.running, s)
		m.admission(s, now, 0)
		e = next
	}
	return len(m.running) > 0
}

// rows is the number of rows that so many sequences occupy.
func (m *Model) rows(n int) int {
	if m.batching == Static {
		return n
	}
	rows := 1
	for rows < n {
		rows *= 2
	}
	return min(rows, m.maxSeqs)
}

// padded is the length that a context takes: the next shape, beyond the largest a multiple of it.
func (m *Model) padded(n int) int {
	if m.batching == Static {
		return n
	}
	for _, s := range m.shapes {
		if n <= s {
			return s
		}
	}
	largest := m.shapes[len(m.shapes)-1]
	return (n + largest - 1) / largest * largest
}

// fill gives every row that has not ended its token, and tells who is done.
func (m *Model) fill() {
	for _, s := range m.running {
		if s.total() < s.goal {
			m.gain(s)
		}
		if s.sampled == 1 && m.launch.depth == 1 {
			m.counters.PromptTokens += int64(s.prompt)
		}
	}
	over := m.launch.depth >= m.longest()
	kept := m.running[:0]
	for _, s := range m.running {
		if over || m.batching == Shaped && s.total() == s.goal {
			m.finish(s)
			continue
		}
		kept = append(kept, s)
	}
	clear(m.running[len(kept):])
	m.running = kept
}

// longest is the longest answer among the rows that have not been told: an aborted row is not waited for.
func (m *Model) longest() int {
	n := 0
	for _, s := range m.running {
		n = max(n, s.goal-s.prompt)
	}
	return n
}

// calm counts the decoding steps before the next event, all of one padded length.
func (l *launch) calm(m *Model) (steps int, w work) {
	if len(m.running) == 0 || l.depth == 0 {
		return 0, w
	}
	steps = m.longest()
	for _, s := range m.running {
		switch {
		case s.EachToken:
			return 0, w
		case m.batching == Shaped:
			steps = min(steps, s.goal-s.prompt)
		}
	}
	w = l.work(m)
	steps -= l.depth + 1
	if m.batching == Shaped {
		steps = min(steps, w.reads/l.rows-(l.prompt+l.depth-1)+1)
	}
	return max(0, steps), w
}

// settle gives every row the tokens of n calm steps.
func (l *launch) settle(m *Model, n int) {
	l.depth += n
	for _, s := range m.running {
		more := min(n, s.goal-s.total())
		s.sampled += more
		m.counters.GeneratedTokens += int64(more)
	}
}
