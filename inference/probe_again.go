package inference

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"tranche/episode"
)

// againCalls send the prompt again: twice in one request, which shows lists and, by the cached tokens, whether it was kept.
func (p *prober) againCalls(lists, retention bool) []asking {
	var list []asking
	c := &p.caps
	if lists && p.kind() != KindOpenAI {
		n := 1
		if c.N.Sure() {
			n = 2
		}
		fields := map[string]any{"model": c.Model.Value, "prompt": p.prompts(), "max_tokens": 1, "n": n}
		hot := p.gap > 0 && c.TokenIDsIn.Sure() // the same prompt: see readHot
		if hot {
			fields["temperature"], fields["logprobs"] = hotTemperature, likeliest
		}
		p.sent += 2 * n * len(p.prompt)
		list = append(list, p.post("/v1/completions", fields, func(s said) {
			p.readList(s, 2*n)
			if hot {
				p.readHot(s)
			}
		}))
	}
	switch {
	case !retention || !p.prompted:
		c.PrefixRetained.wonder("no prompt could be sent twice")
	case p.kind() == KindSGLang:
		p.sent += len(p.prompt)
		list = append(list, p.generateSGLang(p.readAgain))
	case !lists:
		p.sent += len(p.prompt)
		list = append(list, p.post("/v1/completions", map[string]any{"model": c.Model.Value, "prompt": p.prompt, "max_tokens": 1, "temperature": 0}, func(s said) {
			if w, ok := p.answer(s); ok {
				p.readCached(usageOf(w).Cached, s.label)
			}
		}))
	}
	return list
}

// prompts are two prompts for one request: ids where the server takes them, else text.
func (p *prober) prompts() any {
	if p.caps.TokenIDsIn.Sure() {
		return [][]int32{p.prompt, p.prompt}
	}
	return []string{"Count: one two three", "Count: four five six"}
}

func (p *prober) readList(s said, want int) {
	c := &p.caps
	w, ok := p.answer(s)
	switch {
	case ok:
		seen := map[int]bool{}
		for i, ch := range w.Choices {
			if ch.Index != nil {
				i = *ch.Index
			}
			seen[i] = true
		}
		whole := len(w.Choices) == want && len(seen) == want && seen[0] && seen[want-1]
		c.ListPrompts.prove(whole, fmt.Sprintf("%s: %d of %d choices, index = prompt · n + sample", s.label, len(seen), want))
		if c.TokenIDsIn.Sure() {
			p.readCached(usageOf(w).Cached, s.label)
		}
	case s.absent() || s.refusedPrompt():
		c.ListPrompts.prove(false, s.label+": "+s.why())
	default:
		p.lacks(s, &c.ListPrompts)
	}
}

func (p *prober) readAgain(s said) {
	var a sglangAnswer
	if !s.ok() || json.Unmarshal(s.body, &a) != nil || a.Meta.Cached == nil {
		p.lacks(s, &p.caps.PrefixRetained)
		return
	}
	n := int32(*a.Meta.Cached)
	p.readCached(&n, s.label)
}

// readCached takes what an answer says of a prompt that had been computed. No hit proves something only where the prompt is longer
// than a block whose size is known.
func (p *prober) readCached(n *int32, label string) {
	f := &p.caps.PrefixRetained
	switch block := p.caps.BlockTokens.Value; {
	case n == nil || f.Sure():
	case *n > 0:
		f.prove(true, fmt.Sprintf("%s: %d tokens of a prompt that came again were cached", label, *n))
	case block > 0 && len(p.prompt) > block:
		f.prove(false, fmt.Sprintf("%s: nothing of a prompt of %d tokens that came again was cached", label, len(p.prompt)))
	default:
		f.wonder(label + ": nothing of a short prompt that came again was cached")
	}
}

// readHits holds the server's counter of prefix hits against what it was before the first prompt. Others' hits count too, so it
// proves something only where nobody else sent prompts meanwhile.
func (p *prober) readHits(s said) {
	var was, is episode.Load
	readLoad(&was, parseMetrics(string(p.before.body)))
	readLoad(&is, parseMetrics(string(s.body)))
	f := &p.caps.PrefixRetained
	if !s.ok() || was.Hits == nil || is.Hits == nil || was.PrefixQueries == nil || is.PrefixQueries == nil {
		f.wonder(s.label + ": no counters of prefix hits")
		return
	}
	hits, queries := *is.Hits-*was.Hits, *is.PrefixQueries-*was.PrefixQueries
	switch {
	case queries > int64(p.sent+chatAllowance):
		f.wonder(s.label + ": others use the server")
	case hits > 0:
		f.prove(true, fmt.Sprintf("%s: %d prefix hits of a prompt that came again", s.label, hits))
	case queries > 0:
		f.prove(false, fmt.Sprintf("%s: no prefix hit of a prompt that came again", s.label))
	}
}

// chatAllowance is more than the tokens of the probe's two chat prompts with any template.
const chatAllowance = 400

// mostOverflow is the longest context that is tried: its prompt makes a request of 2 MiB.
const mostOverflow = 1 << 20

// overflowCalls send one token more than the context holds. A server that takes it makes one token.
func (p *prober) overflowCalls() []asking {
	c := &p.caps
	limit := c.ContextTokens.Value
	switch {
	case p.kind() == KindOllama:
		return nil // it cuts the prompt
	case limit <= 0:
		c.Overflow.wonder("not asked: the context limit is not known")
		return nil
	case !c.TokenIDsIn.Sure():
		c.Overflow.wonder("not asked: an exact length takes token ids")
		return nil
	case limit > mostOverflow:
		c.Overflow.wonder("not asked: the context is too long to try")
		return nil
	}
	// The smallest id makes the shortest request. The first tokens of a prompt may be special ones; this is one of them or of the text.
	prompt := slices.Repeat([]int32{slices.Min(p.prompt)}, limit+1)
	return []asking{p.post("/v1/completions", map[string]any{"model": c.Model.Value, "prompt": prompt, "max_tokens": 1, "temperature": 0}, p.readOverflow)}
}

func (p *prober) readOverflow(s said) {
	c := &p.caps
	if s.err != nil || !canBeOverflow(s.status) && s.status != http.StatusOK {
		p.lacks(s, &c.Overflow)
		return
	}
	o := Overflow{Status: s.status}
	if s.status == http.StatusOK {
		w, ok := p.answer(s)
		if !ok || usageOf(w).Prompt == nil || int(*usageOf(w).Prompt) > c.ContextTokens.Value {
			c.Overflow.wonder(s.label + ": a prompt over the limit was answered, and its count does not say that it was cut")
			return
		}
	} else {
		o = p.learnOverflow(s)
	}
	c.Overflow.prove(o, s.label+" with one token more than the limit")
}
