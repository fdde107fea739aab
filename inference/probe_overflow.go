package inference

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"tranche/episode"
)

const (
	// mostOverflow is the longest context that is tried with a prompt, of 4 to 5 bytes a token: two thirds of a MiB.
	mostOverflow = 1 << 17
	// shortOverflow is the longest that is, of servers which are known to refuse a max_tokens over the limit as an overflow too.
	shortOverflow = 1 << 14
)

// overflowCalls send more than the context holds: where token ids are taken one token more, else a text that must be more. A server that takes it makes one token.
func (p *prober) overflowCalls() []asking {
	c := &p.caps
	limit := c.ContextTokens.Value
	switch {
	case p.kind() == KindOllama:
		return nil // it cuts the prompt
	case limit <= 0:
		c.Overflow.wonder("not asked: the context limit is not known")
		return nil
	case c.ContextTokens.Proof == Set:
		c.Overflow.wonder("not asked: the context limit is the configuration's, and the server's may be higher")
		return nil
	case limit > shortOverflow && p.refusesTokens():
		return []asking{p.manyTokens(limit)}
	case limit > mostOverflow:
		c.Overflow.wonder("not asked: the context is too long to try")
		return nil
	case c.TokenIDsIn.Sure():
		return overlong(p.longIDs(limit))
	case p.samples == 0:
		c.Overflow.wonder("not asked: no prompt within the limit was answered")
		if slices.Contains(p.missed, AskChat) {
			p.missed = append(p.missed, AskOverflow)
		}
		return nil
	}
	return overlong(p.longText(limit))
}

// refusesTokens reports whether the server's kind refuses a request for more tokens than its context has, before it makes any.
func (p *prober) refusesTokens() bool {
	return p.kind() == KindVLLM || p.kind() == KindSim || p.kind() == KindSGLang
}

// manyTokens asks for more tokens than the context has, which is an overflow as much as a long prompt is, and none is sent. A server that makes tokens all the
// same stops at the first letters.
func (p *prober) manyTokens(limit int) asking {
	text := "Count: one two three"
	a := p.post("/v1/chat/completions", map[string]any{
		"model": p.caps.Model.Value, "messages": []episode.Message{{Role: episode.RoleUser, Content: &text}}, p.limitField(): limit + 1, "stop": []string{" ", "e", "a", "\n"},
	}, p.readManyTokens)
	a.long = true
	return a
}

func (p *prober) readManyTokens(s said) {
	f := &p.caps.Overflow
	switch o := p.learnOverflow(s, 0); {
	case s.err == nil && canBeOverflow(s.status) && o.Recognised:
		f.prove(o, s.label+" with max_tokens over the limit")
	case s.ok():
		f.wonder(s.label + ": max_tokens over the limit was not refused, and the context is too long to try with a prompt")
	default:
		p.lacks(s, f)
	}
}

func overlong(a asking) []asking {
	a.long = true
	return []asking{a}
}

func (p *prober) longIDs(limit int) asking {
	// The smallest id makes the shortest request. The first tokens of a prompt may be special ones; this is one of them or of the text.
	prompt := slices.Repeat([]int32{slices.Min(p.prompt)}, limit+1)
	return p.post("/v1/completions", map[string]any{"model": p.caps.Model.Value, "prompt": prompt, "max_tokens": 1, "temperature": 0}, func(s said) {
		p.readOverflow(s, limit+1, "one token more than the limit")
	})
}

// longText is a chat of more words than the context has tokens, by a quarter: tokens do not span words. How many tokens it has is not known.
func (p *prober) longText(limit int) asking {
	words := limit + limit/4 + 16
	text := strings.TrimSpace(strings.Repeat("one ", words))
	return p.post("/v1/chat/completions", map[string]any{
		"model": p.caps.Model.Value, "messages": []episode.Message{{Role: episode.RoleUser, Content: &text}}, p.limitField(): 1,
	}, func(s said) { p.readOverflow(s, 0, fmt.Sprintf("%d words", words)) })
}

// readOverflow takes what a prompt over the limit got. sent is its length in tokens, 0 = not known.
func (p *prober) readOverflow(s said, sent int, with string) {
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
		o = p.learnOverflow(s, sent)
	}
	c.Overflow.prove(o, s.label+" with "+with)
}

// learnOverflow reads the refusal of a prompt over the limit. That it is for its length is known of the request; the words are learned where
// they name one of its numbers, or say that something is too much, and were no other request's refusal.
func (p *prober) learnOverflow(s said, sent int) Overflow {
	said := readRefusal(s.body)
	o := Overflow{Status: s.status, Says: clip(said.Message, 200)}
	o.Limit, o.Prompt, o.Recognised = overflow(said, s.body)
	limit := p.caps.ContextTokens.Value
	w := wordingOf(s.status, said, cmp.Or(o.Limit, limit), cmp.Or(o.Prompt, sent))
	own := (w.Limit > 0 || w.Prompt > 0 || ofExcess(said.Message)) && !slices.Contains(p.refusals, said.Message)
	if !o.Recognised && !own {
		return o
	}
	if !o.Recognised && w.Limit > 0 {
		o.Limit = limit
	}
	if !o.Recognised && w.Prompt > 0 {
		o.Prompt = sent
	}
	o.Recognised, o.Wordings = true, []Wording{w}
	return o
}
