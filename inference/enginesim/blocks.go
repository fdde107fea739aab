package enginesim

import "math"

// pool is the KV memory: blocks of equal size, each held by the sequences that need its content, or free. A free block keeps its
// content until it is handed out again, least recently freed first; that is the whole prefix cache.
//
// Blocks that continue one another, are held by the same sequences and were freed together are one span: a prompt of 30k tokens
// has 1,900 blocks, of which a simulation that touched each would do little else. Spans form a tree: a path from the root is a text,
// and where texts part, so do the branches. Two rules of the engine make the order of whole spans the order of their blocks: a sequence
// frees its last block first, and whoever holds a block holds all before it. So the tail of a span always goes first, and no block
// outlives the one before it.
//
// Where a sequence fills a block whose content is there already, it takes that one and gives its own back, as SGLang does; vLLM lets
// both live until the sequence ends.
type pool struct {
	block int   // tokens of a block
	total int   // blocks
	free  int   // blocks that nobody holds
	freed int64 // blocks that became free since the beginning; whoever waits for room watches it
	root  span  // the empty text; held for ever
	ring  span  // sentinel of the free list: next = handed out next, prev = freed last

	watched *span // the text whose continuation somebody waits for, see Model.admit; nil = none
	come    bool  // it was continued, or lost a block
}

// span is a run of blocks. Blocks without content are spans too, in the free list alone.
type span struct {
	text       *content // nil = no content
	from, n    int      // blocks of the text
	refs       int      // sequences that hold it
	parent     *span
	child      *span            // what continues it,
	more       map[uint64]*span // and the others, by key; child is nil only when there are none
	prev, next *span            // in the free list; nil when held
}

func newPool(blocks, tokens int) *pool {
	p := &pool{block: tokens, total: blocks}
	p.root.refs = math.MaxInt
	p.ring.prev, p.ring.next = &p.ring, &p.ring
	p.blank(blocks)
	p.freed = 0
	return p
}

func (p *pool) used() int { return p.total - p.free }

// end is the number of blocks of the text that ends with a span.
func (s *span) end() int { return s.from + s.n }

// link puts a span into the free list behind another.
func (p *pool) link(s, behind *span) {
	s.prev, s.next = behind, behind.next
	behind.next.prev, behind.next = s, s
}

func (s *span) unlink() {
	s.prev.next, s.next.prev = s.next, s.prev
	s.prev, s.next = nil, nil
}

// blank frees n blocks without content.
func (p *pool) blank(n int) {
	if n == 0 {
		return
	}
	p.free += n
	p.freed += int64(n)
	if last := p.ring.prev; last != &p.ring && last.text == nil {
		last.n += n
		return
	}
	p.link(&span{n: n}, p.ring.prev)
}

// take hands out n blocks, the least recently freed, and forgets their content. The caller has seen that so many are free.
func (p *pool) take(n int) {
	p.free -= n
	for n > 0 {
		s := p.ring.next
		k := min(n, s.n)
		p.come = p.come || s == p.watched
		s.n -= k
		n -= k
		if s.n == 0 {
			s.unlink()
			p.prune(s)
		}
	}
}

// prune takes an empty span out of the tree.
func (p *pool) prune(s *span) {
	if s.text == nil {
		return
	}
	up := s.parent
	if up.child == s {
		up.child = nil
		for k, c := range up.more { // any of them may be the first
			up.child = c
			delete(up.more, k)
			break
		}
		return
	}
	delete(up.more, s.text.key(s.from, p.block))
}

// find returns the span that continues a text as c does, and how many of its blocks are c's, at most limit; nil when there is none.
func (p *pool) find(after *span, c *content, limit int) (*span, int) {
	if limit == 0 || after.child == nil {
		return nil, 0
	}
	at := after.end()
	if n := c.common(after.child.text, at, min(limit, after.child.n), p.block); n > 0 {
		return after.child, n
	}
	if len(after.more) == 0 {
		return nil, 0
	}
	if s := after.more[c.key(at, p.block)]; s != nil {
		if n := c.common(s.text, at, min(limit, s.n), p.block); n > 0 {
			return s, n
		}
	}
	return nil, 0
}

// match is the longest beginning of a content that is cached.
type match struct {
	last *span // the span it ends in
	n    int   // blocks of last that belong to it
	hit  int   // blocks in all
	idle int   // those that nobody holds
}

// match looks for the first blocks of c, at most limit.
func (p *pool) match(c *content, limit int) match {
	m := match{last: &p.root}
	for {
		s, n := p.find(m.last, c, limit-m.hit)
		if s == nil {
			return m
		}
		m.last, m.n, m.hit = s, n, m.hit+n
		if s.refs == 0 {
			m.idle += n
		}
		if n < s.n {
			return m
		}
	}
}

// cut returns the span that ends where a match ends, splitting the one it ends in.
func (p *pool) cut(m match) *span {
	if m.n == m.last.n {
		return m.last
	}
	return p.split(m.last, m.n)
}

// split makes the first n blocks of a span one of their own and returns it. Whoever held the whole holds both.
func (p *pool) split(s *span, n int) *span {
	head := &span{text: s.text, from: s.from, n: n, refs: s.refs, parent: s.parent, child: s}
	if up := s.parent; up.child == s {
		up.child = head
	} else {
		up.more[s.text.key(s.from, p.block)] = head
	}
	s.parent, s.from, s.n = head, s.from+n, s.n-n
	if s.next != nil {
		p.link(head, s)
	}
	return head
}

// hold adds a holder to a span and all before it.
func (p *pool) hold(s *span) {
	for ; s != &p.root; s = s.parent {
		if s.refs == 0 {
			s.unlink()
			p.free -= s.n
		}
		s.refs++
	}
}

// release takes a holder from a span and all before it. They keep their content; the last is freed first.
func (p *pool) release(s *span) {
	for ; s != &p.root; s = s.parent {
		s.refs--
		if s.refs == 0 {
			p.link(s, p.ring.prev)
			p.free += s.n
			p.freed += int64(s.n)
		}
	}
}

// fill enters a sequence's blocks in the cache: from the end of its tip, which it holds, to block end of its content. It returns the new
// tip; the sequence gives up as many blocks of its own.
func (p *pool) fill(tip *span, c *content, end int) *span {
	for tip.end() < end {
		p.come = p.come || tip == p.watched
		s, n := p.find(tip, c, end-tip.end())
		switch {
		case s != nil: // there already
			if n < s.n {
				s = p.split(s, n)
			}
			p.adopt(s)
			tip = s
		case tip.refs == 1 && tip.child == nil:
			tip.text, tip.n = c, end-tip.from
		default:
			tip = p.branch(tip, &span{text: c, from: tip.end(), n: end - tip.end(), refs: 1, parent: tip})
		}
	}
	return tip
}

// adopt adds a holder, who holds all before it, to a cached span in exchange for blocks of its own.
func (p *pool) adopt(s *span) {
	if s.refs == 0 {
		s.unlink()
		p.free -= s.n
	}
	s.refs++
	p.blank(s.n)
}

// branch puts a span into the tree behind another.
func (p *pool) branch(up, s *span) *span {
	switch {
	case up.child == nil:
		up.child = s
	case up.more == nil:
		up.more = map[uint64]*span{s.text.key(s.from, p.block): s}
	default:
		up.more[s.text.key(s.from, p.block)] = s
	}
	return s
}

// unfill takes n blocks at the end of a tip out of the cache, unless others use them too. It returns the tip that is left and how many
// blocks its holder has of its own instead.
func (p *pool) unfill(tip *span, n int) (*span, int) {
	if n = min(n, tip.n); n == 0 || tip.refs != 1 || tip.child != nil {
		return tip, 0
	}
	p.come = p.come || tip == p.watched
	tip.n -= n
	if tip.n > 0 {
		return tip, n
	}
	p.prune(tip)
	return tip.parent, n
}
