package bench

import (
	"fmt"
	"time"

	"tranche/inference/enginesim"
)

// Turn is one model call of a scripted episode and the action after it.
type Turn struct {
	Cut  int           // tokens dropped from the end of the context before the call: compaction; 0 = none
	New  int           // tokens that the environment adds before the call: the prompt, or an action's observation; at least 1
	Out  int           // tokens the model generates; at least 1
	Tool time.Duration // time of the action after the call; not used after the last
	Kind string        // kind of that action
}

// Segment is a run of prompt tokens whose content depends on its salt alone: two prompts that begin with equal segments begin
// with equal tokens.
type Segment struct {
	Salt   uint64
	Tokens int
}

// Episode is a scripted episode: lengths and times are fixed, whatever schedules it.
type Episode struct {
	Group  string    // episodes of one group are samples of one task
	Domain string    // the cell in which a scheduler may learn
	Prefix []Segment // leading part of the first prompt that other episodes may share; at most Turns[0].New tokens
	Turns  []Turn
}

// PrefixTokens is the length of the part of the first prompt that may be shared.
func (e Episode) PrefixTokens() int {
	n := 0
	for _, s := range e.Prefix {
		n += s.Tokens
	}
	return n
}

// Peak is the longest context of the episode, tokens.
func (e Episode) Peak() int {
	peak := 0
	e.calls(func(c span) { peak = max(peak, c.prompt+c.out) })
	return peak
}

// span is where one call of an episode lies in its context, tokens.
type span struct {
	turn   int
	kept   int // of the context before it
	prompt int // kept + new
	out    int
}

// calls walks the calls of an episode.
func (e Episode) calls(visit func(span)) {
	context := 0
	for i, t := range e.Turns {
		kept := context - t.Cut
		visit(span{turn: i, kept: kept, prompt: kept + t.New, out: t.Out})
		context = kept + t.New + t.Out
	}
}

// Workload is a list of episodes in the order in which they are opened.
type Workload struct {
	Name     string
	Episodes []Episode
	// MaxNew is the most tokens one call may generate, as a policy is told; at least the longest Out.
	MaxNew int
}

// Calls is the number of model calls of the workload.
func (w Workload) Calls() int {
	n := 0
	for _, e := range w.Episodes {
		n += len(e.Turns)
	}
	return n
}

// Peak is the longest context of any episode, tokens.
func (w Workload) Peak() int {
	n := 0
	for _, e := range w.Episodes {
		n = max(n, e.Peak())
	}
	return n
}

// Slower returns the workload with every action taking factor times as long.
func (w Workload) Slower(factor float64) Workload {
	slow := Workload{Name: fmt.Sprintf("%s, actions x%g", w.Name, factor), MaxNew: w.MaxNew}
	for _, e := range w.Episodes {
		turns := make([]Turn, len(e.Turns))
		for i, t := range e.Turns {
			t.Tool = time.Duration(float64(t.Tool) * factor)
			turns[i] = t
		}
		e.Turns = turns
		slow.Episodes = append(slow.Episodes, e)
	}
	return slow
}

// Validate reports the first episode that cannot be played.
func (w Workload) Validate() error {
	if len(w.Episodes) == 0 {
		return fmt.Errorf("workload %s: no episodes", w.Name)
	}
	for i, e := range w.Episodes {
		if err := e.validate(w.MaxNew); err != nil {
			return fmt.Errorf("workload %s: episode %d: %w", w.Name, i, err)
		}
	}
	return nil
}

func (e Episode) validate(most int) error {
	if len(e.Turns) == 0 {
		return fmt.Errorf("no turns")
	}
	if e.PrefixTokens() > e.Turns[0].New {
		return fmt.Errorf("the shared prefix has %d tokens, the first prompt %d", e.PrefixTokens(), e.Turns[0].New)
	}
	var err error
	e.calls(func(c span) {
		t := e.Turns[c.turn]
		if err == nil && (t.New < 1 || t.Out < 1 || t.Out > most || t.Cut < 0 || c.kept < 0 || t.Tool < 0) {
			err = fmt.Errorf("turn %d: %d new tokens, %d generated of at most %d, %d cut leaving %d, action %v: new and generated must be at least 1, nothing negative",
				c.turn, t.New, t.Out, most, t.Cut, c.kept, t.Tool)
		}
	})
	return err
}

// Load is what a workload asks of a fleet at least, tokens.
type Load struct {
	Generated int
	Prompt    int // unique prompt tokens: what a cache that forgets nothing would still have to prefill
}

// Load sums the workload.
func (w Workload) Load() Load {
	var l Load
	seen := map[uint64]bool{}
	for _, e := range w.Episodes {
		for i, t := range e.Turns {
			l.Generated += t.Out
			l.Prompt += t.New
			if i == 0 {
				l.Prompt -= repeated(e.Prefix, seen)
			}
		}
	}
	return l
}

// repeated is the number of leading tokens of a prefix that were seen before; it enters the rest.
func repeated(prefix []Segment, seen map[uint64]bool) int {
	n, chain := 0, uint64(0)
	for _, s := range prefix {
		chain = chainOf(chain, s) // once one was not seen, none after it was
		if seen[chain] {
			n += s.Tokens
		}
		seen[chain] = true
	}
	return n
}

// chainOf names a segment together with all that comes before it.
func chainOf(before uint64, s Segment) uint64 { return mix(mix(before^s.Salt) + uint64(s.Tokens)) }

// content names the tokens of one open episode: those of its prefix, then a text of its own from beginning to end. What comes after
// a cut is new text.
type content struct {
	own    uint64 // names the text that no one shares
	spec   Episode
	turn   int                 // of prompt and answer; -1 = before the first
	prompt []enginesim.Segment // of the last call
	answer enginesim.Segment
}

func newContent(index int, e Episode) *content {
	return &content{own: mix(uint64(index) ^ 0x6f776e), spec: e, turn: -1}
}

// call returns prompt and answer of a call. Calls come in order; asking for the same one again gives the same.
func (c *content) call(s span) (prompt []enginesim.Segment, answer enginesim.Segment) {
	if s.turn == c.turn {
		return c.prompt, c.answer
	}
	c.turn = s.turn
	next := make([]enginesim.Segment, 0, len(c.prompt)+2)
	if s.turn == 0 {
		for _, g := range c.spec.Prefix {
			next = append(next, enginesim.Segment{Content: g.Salt, Tokens: g.Tokens})
		}
	} else {
		next = appendUpTo(next, s.kept, append(c.prompt, c.answer))
	}
	from := c.answer.From + c.answer.Tokens
	fresh := s.prompt - tokensOf(next)
	c.prompt = appendUpTo(next, s.prompt, []enginesim.Segment{{Content: c.own, From: from, Tokens: fresh}})
	c.answer = enginesim.Segment{Content: c.own, From: from + fresh, Tokens: s.out}
	return c.prompt, c.answer
}

// appendUpTo appends segments until there are n tokens, joining what continues.
func appendUpTo(to []enginesim.Segment, n int, more []enginesim.Segment) []enginesim.Segment {
	have := tokensOf(to)
	for _, g := range more {
		if g.Tokens = min(g.Tokens, n-have); g.Tokens <= 0 {
			continue
		}
		have += g.Tokens
		if k := len(to) - 1; k >= 0 && to[k].Content == g.Content && to[k].From+to[k].Tokens == g.From {
			to[k].Tokens += g.Tokens
			continue
		}
		to = append(to, g)
	}
	return to
}

func tokensOf(segments []enginesim.Segment) int {
	n := 0
	for _, g := range segments {
		n += g.Tokens
	}
	return n
}

// mix is the finalizer of splitmix64: every bit of the input reaches every bit of the output.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
