package enginesim

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// answer is one whole answer to one prompt. All of it is known before the first step: the model decides only when each token
// comes, and the HTTP face shows as much of it as has come.
type answer struct {
	prompt []int32
	ids    []int32 // as sampled, the end token included
	text   string  // what the client sees of ids: valid UTF-8, no special tokens, nothing behind a stop string
	shown  []int   // bytes of text that may be shown after each token; len(ids), never falling, never inside a rune
	finish string  // "stop" or "length"
	stop   any     // the stop string or token id that ended it; nil = the end token, or none
	draw   uint64  // what the logprobs are drawn from
	past   int     // tokens of the same answer that came in requests before; they are part of the prompt
	tokens *Tokenizer
	spread *spread // of its logprobs; nil = made up
}

// limits are the request's bounds on one answer.
type limits struct {
	max, min  int
	stops     []string
	stopIDs   []int32
	keepStop  bool // the stop string stays in the text
	ignoreEOS bool
}

// compose asks the policy and cuts what it says to the limits.
func (p *policy) compose(prompt []int32, draw uint64, w want, l limits) *answer {
	a := &answer{prompt: prompt, draw: draw, tokens: p.tokens, finish: "stop"}
	said := p.say(prompt, draw, w)
	a.ids = p.tokens.EncodePlain(said)
	if p.odd {
		a.ids = p.tokens.oddly(a.ids)
	}
	floor := min(l.min, l.max)
	if l.ignoreEOS {
		floor = l.max
	}
	if len(a.ids) < floor {
		a.ids = p.tokens.EncodePlain(p.pad(said, draw, floor))[:floor]
	}
	if !l.ignoreEOS {
		a.ids = append(a.ids, imEnd)
	}
	visible := a.cutAtStop(l)
	if len(a.ids) > l.max || l.ignoreEOS && a.stop == nil {
		a.ids = a.ids[:l.max]
		a.finish, a.stop, visible = "length", nil, -1
	}
	a.show(visible)
	return a
}

// pad lengthens a text to at least n tokens.
func (p *policy) pad(text string, draw uint64, n int) string {
	d := newDice(mix(draw ^ 0x9ad))
	for size := n; ; size *= 2 {
		longer := text + " " + p.prose(d, size)
		if len(p.tokens.EncodePlain(longer)) >= n {
			return longer
		}
	}
}

// cutAtStop ends the ids at the first stop string or stop token past the minimum. It returns how many bytes stay visible, -1
// for all.
func (a *answer) cutAtStop(l limits) int {
	if len(l.stops) == 0 && len(l.stopIDs) == 0 {
		return -1
	}
	longest := 0
	for _, s := range l.stops {
		longest = max(longest, len(s))
	}
	var text []byte
	for i, id := range a.ids[:min(len(a.ids), l.max)] {
		before := len(text)
		if !special(id) {
			text = append(text, a.tokens.pieces[id]...)
		}
		if i < l.min {
			continue
		}
		for _, stop := range l.stopIDs {
			if id == stop {
				a.ids, a.stop = a.ids[:i+1], id
				return visibleTo(before, len(text), l.keepStop)
			}
		}
		from := max(0, before-longest+1)
		if at, stop := firstStop(string(text[from:]), l.stops); stop != "" {
			a.ids, a.stop = a.ids[:i+1], stop
			return visibleTo(from+at, from+at+len(stop), l.keepStop)
		}
	}
	return -1
}

func visibleTo(from, to int, keep bool) int {
	if keep {
		return to
	}
	return from
}

func firstStop(text string, stops []string) (at int, stop string) {
	at = len(text)
	for _, s := range stops {
		if i := strings.Index(text, s); i >= 0 && i < at {
			at, stop = i, s
		}
	}
	return at, stop
}

// show works out the visible text and how much of it each token uncovers. visible cuts it, -1 = nothing to cut.
func (a *answer) show(visible int) {
	var b strings.Builder
	a.shown = make([]int, len(a.ids))
	for i, id := range a.ids {
		if !special(id) {
			b.WriteString(a.tokens.pieces[id])
		}
		a.shown[i] = b.Len()
	}
	raw := b.String()
	if visible >= 0 {
		raw = raw[:visible]
	}
	whole := wholeRunes(raw)
	a.text = raw[:whole]
	if whole < len(raw) { // cut inside a rune: the last token shows a replacement, as detokenizers do
		a.text += string(utf8.RuneError)
	}
	for i, n := range a.shown {
		a.shown[i] = runeStart(raw, min(n, whole))
	}
	if len(a.shown) > 0 {
		a.shown[len(a.shown)-1] = len(a.text)
	}
}

// wholeRunes is the length of s without an incomplete rune at its end.
func wholeRunes(s string) int {
	for back := 1; back <= min(utf8.UTFMax-1, len(s)); back++ {
		if c := s[len(s)-back]; utf8.RuneStart(c) {
			if !utf8.FullRuneInString(s[len(s)-back:]) {
				return len(s) - back
			}
			return len(s)
		}
	}
	return len(s)
}

func runeStart(s string, n int) int {
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}

// alternative is a token with its log-probability.
type alternative struct {
	id      int32
	logprob float64
}

// logprob makes up the log-probability of the i-th sampled token, never above 0, and of k alternatives, likeliest first;
// together they are no more than certain.
func (a *answer) logprob(i, k int) (float64, []alternative) {
	if a.spread != nil {
		return a.spread.logprob(a, i, k)
	}
	h := mix(a.draw ^ mix(uint64(a.past+i)+0x10c))
	x := unit(h)
	own := round6(-0.02 - 2.2*x*x*x*x) // mostly sure, now and then not
	if k == 0 {
		return own, nil
	}
	out := make([]alternative, 0, k)
	out = append(out, alternative{a.ids[i], own})
	rest := math.Log(-math.Expm1(own)) // what probability is left, as a logarithm
	for len(out) < k {
		h = mix(h)
		rest = min(rest-math.Ln2, own) // each takes half of what is left, and is no likelier than the token sampled
		out = append(out, alternative{a.otherToken(out, h), round6(rest)})
	}
	return own, out
}

func (a *answer) otherToken(taken []alternative, h uint64) int32 {
	n := uint64(a.tokens.Size()) - uint64(firstWord)
next:
	for ; ; h = mix(h) {
		id := firstWord + int32(h%n)
		for _, t := range taken {
			if t.id == id {
				continue next
			}
		}
		return id
	}
}

func round6(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// callID names a tool call; equal answers give equal ids.
func (a *answer) callID(i int) string {
	h := mix(a.draw + uint64(i) + 0xca11)
	return fmt.Sprintf("call_%016x%08x", h, uint32(mix(h)))
}
