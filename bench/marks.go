package bench

import "tranche/scheduler"

// marks cuts the first prompt of an episode as a client can that sees only its text: at the ends of segments that pass another
// power of 1.5, and at the end of what may be shared. Where to cut depends on nothing behind the cut, so equal beginnings are cut
// alike.
func (e Episode) marks() []scheduler.Mark {
	var all []scheduler.Mark
	next, tokens, chain := 256, 0, uint64(0)
	for i, s := range e.Prefix {
		tokens += s.Tokens
		chain = chainOf(chain, s)
		if tokens < next && i < len(e.Prefix)-1 {
			continue
		}
		all = append(all, scheduler.Mark{Hash: chain, Tokens: tokens})
		for next <= tokens {
			next += next / 2
		}
	}
	return all
}
