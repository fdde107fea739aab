package inference

import (
	"encoding/json"
	"fmt"

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
