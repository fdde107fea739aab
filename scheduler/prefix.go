package scheduler

// Mark says where a prompt's text was cut: prompts with the same mark are equal in their first Tokens tokens.
type Mark struct {
	Hash   uint64 // of all text up to the cut
	Tokens int    // of it
}

// prefix is a beginning that prompts of open episodes have, or that a replica may still have in its cache.
type prefix struct {
	Mark
	step  int     // tokens beyond the mark before it
	open  int     // open episodes that begin with it
	waits int     // calls among them that wait for a first place
	line  []*call // those in order of arrival, among others that wait no more
	homes []home
}

// home is a replica that has, or had, a prefix in its cache.
type home struct {
	replica int
	users   []user // episodes inside; the first is the one that the memory is counted for
	used    int64  // the replica's flow when the last user left
	listed  bool   // among the replica's idle prefixes
}

// user is an episode, and which of its prefixes this is.
type user struct {
	life *life
	at   int
}

// cache is what a replica's prefix cache is taken to have. Servers evict what was left longest ago, so how much came in since
// says what went.
type cache struct {
	flow int64 // tokens that came in since the beginning
	idle []idle
	gone int // of idle, at its beginning
	// trail is the prefixes of the last calls sent here, the latest last: whose sharers go next.
	trail   [][]*prefix
	run     int  // sharers sent in a row out of turn
	stirred bool // something changed since sharers were looked for
}

// idle is a prefix that nobody inside uses.
type idle struct {
	prefix *prefix
	used   int64
}

// assumedCache is what a server that does not tell is taken to cache, tokens.
const assumedCache = 1 << 17

// capacity is how many tokens r's cache holds in all.
func (r *replica) capacity() float64 {
	if h := r.holds(); h > 0 {
		return h
	}
	return assumedCache
}

// surely is how many tokens may have come in since a prefix was left, for it to be there still: what is in use is not for idle
// prefixes.
func (r *replica) surely() int64 {
	return int64(sureShare*r.capacity() - r.sum[0] - float64(r.singles.prompts))
}

// sureShare allows for what our count does not see.
const sureShare = 0.9

// trace finds the prefixes of an episode's first prompt.
func (c *Core) trace(l *life, r Request) {
	if c.rules.MinPrefix < 0 {
		return
	}
	before := 0
	for _, m := range r.Prefix {
		if m.Tokens < c.rules.MinPrefix || m.Tokens <= before || m.Tokens > r.Prompt {
			continue
		}
		n := c.prefixes[m.Hash]
		if n == nil {
			n = &prefix{Mark: m, step: m.Tokens - before}
			c.prefixes[m.Hash] = n
		}
		n.open++
		before = m.Tokens
		l.chain = append(l.chain, n)
	}
	l.spots = make([]int, len(l.chain))
}

// untrace forgets what of the episode's prefixes nobody open has and no replica may have.
func (c *Core) untrace(l *life) {
	for _, n := range l.chain {
		n.open--
		c.forget(n)
	}
}

func (c *Core) forget(n *prefix) {
	if n.open == 0 && len(n.homes) == 0 {
		delete(c.prefixes, n.Hash)
	}
}

func (n *prefix) home(replica int) *home {
	for k := range n.homes {
		if n.homes[k].replica == replica {
			return &n.homes[k]
		}
	}
	return nil
}

// join makes the episode a user of its prefixes at replica i. What others count already is not counted for it.
func (c *Core) join(l *life, i int) {
	l.shared = 0
	for k, n := range l.chain {
		h := n.home(i)
		if h == nil {
			n.homes = append(n.homes, home{replica: i})
			h = &n.homes[len(n.homes)-1]
		}
		if len(h.users) > 0 {
			l.shared += n.step
		}
		l.spots[k] = len(h.users)
		h.users = append(h.users, user{l, k})
	}
}

// part is the contrary of join. What was counted for the episode is counted for another from then on.
func (c *Core) part(l *life) {
	r := c.replicas[l.replica]
	r.cache.stirred = true
	for k, n := range l.chain {
		h, spot := n.home(r.index), l.spots[k]
		last := h.users[len(h.users)-1]
		h.users[spot] = last
		last.life.spots[last.at] = spot
		h.users[len(h.users)-1] = user{}
		h.users = h.users[:len(h.users)-1]
		switch {
		case len(h.users) == 0:
			r.left(n, h)
		case spot == 0:
			c.takeOver(h.users[0].life, n.step)
		}
	}
	l.shared = 0
}

// takeOver counts so many more tokens for an episode inside.
func (c *Core) takeOver(l *life, tokens int) {
	l.shared -= tokens
	if l.single {
		l.prompt += tokens
		c.replicas[l.replica].singles.prompts += tokens
		return
	}
	p := l.plan
	p.add(c.future.kept(l.domain, l.turns, tokens, l.bound), 1)
	c.replan(l, p)
}

// kept projects tokens that an episode holds for as long as it is open.
func (f *foresight) kept(domain string, turns, tokens, bound int) plan {
	t := f.ahead(domain)
	k := min(turns+1, maxTurns)
	var p plan
	for i, at := range horizons {
		if bound > 0 && at >= bound {
			break
		}
		p[i] = t.survival[k+at] / t.survival[k] * float64(tokens)
	}
	return p
}

// left notes that nobody inside r uses a prefix any more.
func (r *replica) left(n *prefix, h *home) {
	h.used = r.cache.flow
	if !h.listed {
		h.listed = true
		r.cache.idle = append(r.cache.idle, idle{n, h.used})
	}
}

// evict forgets the idle prefixes that r's cache has surely lost.
func (c *Core) evict(r *replica) {
	oldest := r.cache.flow - int64(r.capacity())
	for k := &r.cache.gone; *k < len(r.cache.idle) && r.cache.idle[*k].used < oldest; {
		e := r.cache.idle[*k]
		r.cache.idle[*k] = idle{}
		*k++
		h := e.prefix.home(r.index)
		switch {
		case len(h.users) > 0:
			h.listed = false
		case h.used >= oldest:
			r.cache.idle = append(r.cache.idle, idle{e.prefix, h.used})
		default:
			e.prefix.leave(r.index)
			c.forget(e.prefix)
		}
	}
	if g := r.cache.gone; g > 64 && g > len(r.cache.idle)/2 {
		r.cache.idle = append(r.cache.idle[:0], r.cache.idle[g:]...)
		r.cache.gone = 0
	}
}

// leave takes a replica from the homes of a prefix.
func (n *prefix) leave(replica int) {
	for k := range n.homes {
		if n.homes[k].replica == replica {
			last := len(n.homes) - 1
			n.homes[k] = n.homes[last]
			n.homes[last] = home{}
			n.homes = n.homes[:last]
			return
		}
	}
}

// wipe forgets all that r's cache had: the server may be a new one when it comes back.
func (c *Core) wipe(r *replica) {
	r.cache.flow += int64(r.capacity()) + 1
	c.evict(r)
	r.cache.trail = nil
	r.remains = remains{}
}

// view is what the replicas have of one call's prompt, tokens from its beginning.
type view struct {
	cached []int // surely in the cache
	shared []int // of it: counted for episodes inside
	kept   plan  // of one token of it
	moves  int   // calls set aside in this decision
	awaits int   // the replica that the call should rather wait for; -1 = none
}

// look fills c.view for a call that needs a place, and returns the most that any replica has of its prompt.
func (c *Core) look(w *call) int {
	if c.view.cached == nil {
		c.view.cached, c.view.shared = make([]int, len(c.replicas)), make([]int, len(c.replicas))
	}
	clear(c.view.cached)
	clear(c.view.shared)
	if l := w.life; !l.single {
		c.view.kept = c.future.kept(l.domain, l.turns, 1, w.Turns)
	}
	most := 0
	for _, n := range w.life.chain {
		for k := range n.homes {
			h := &n.homes[k]
			r := c.replicas[h.replica]
			if len(h.users) > 0 {
				c.view.shared[h.replica] = n.Tokens
			} else if r.cache.flow-h.used > r.surely() {
				continue
			}
			c.view.cached[h.replica] = n.Tokens
			most = max(most, n.Tokens)
		}
	}
	return most
}
