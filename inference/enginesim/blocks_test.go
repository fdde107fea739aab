package enginesim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// slowPool is what pool does, block by block: the truth that spans are compared with.
type slowPool struct {
	keys  []string       // content of each block, "" = none
	refs  []int          // holders
	found map[string]int // content → block
	free  []int          // handed out next … freed last
}

func newSlowPool(n int) *slowPool {
	p := &slowPool{keys: make([]string, n), refs: make([]int, n), found: map[string]int{}}
	for b := range n {
		p.free = append(p.free, b)
	}
	return p
}

func (p *slowPool) take() int {
	b := p.free[0]
	p.free = p.free[1:]
	delete(p.found, p.keys[b])
	p.keys[b], p.refs[b] = "", 1
	return b
}

func (p *slowPool) hold(b int) {
	if p.refs[b] == 0 {
		p.free = slices.DeleteFunc(p.free, func(x int) bool { return x == b })
	}
	p.refs[b]++
}

func (p *slowPool) release(b int) {
	if p.refs[b]--; p.refs[b] == 0 {
		p.free = append(p.free, b)
	}
}

// twin is one sequence in both pools.
type twin struct {
	text *content
	keys []string // content of the beginning up to each block
	// in the pool of spans
	tip *span
	own int
	// block by block
	held []int
}

const twinBlock, twinBlocks = 4, 12

// newTwin makes a sequence of one of few texts, which part at a few places.
func newTwin(r *rand.Rand, p *pool) *twin {
	q := Request{Salt: uint64(r.IntN(5) / 4)}
	tokens := 0
	for tokens < twinBlock*twinBlocks {
		g := Segment{Content: uint64(r.IntN(4) / 2), From: tokens, Tokens: 1 + r.IntN(3*twinBlock)}
		g.Tokens = min(g.Tokens, twinBlock*twinBlocks-tokens)
		q.Outline = append(q.Outline, g)
		tokens += g.Tokens
	}
	s := &twin{text: newContent(&q, twinBlock), tip: &p.root}
	key := fmt.Sprint(q.Salt)
	for b := range twinBlocks {
		for i := range twinBlock {
			at := b*twinBlock + i
			key += fmt.Sprint(" ", s.text.pieces[s.text.at(at)].Content)
		}
		s.keys = append(s.keys, key)
	}
	return s
}

func TestSpansEqualBlocks(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		size := 20 + r.IntN(60)
		fast, slow := newPool(size, twinBlock), newSlowPool(size)
		var live []*twin
		for range 300 {
			switch n := r.IntN(10); {
			case n < 2 && len(live) < 8:
				live = append(live, begin(t, r, fast, slow))
			case n < 3 && len(live) > 0:
				i := r.IntN(len(live))
				end(fast, slow, live[i])
				live = slices.Delete(live, i, i+1)
			case n < 4: // somebody looks where a text ends in the cache, as a blocked head of the queue does, and takes nothing
				fast.cut(fast.match(newTwin(r, fast).text, twinBlocks))
			case len(live) > 0:
				grow(r, fast, slow, live[r.IntN(len(live))])
			}
			if a, b := listFast(fast), listSlow(slow); !slices.Equal(a, b) {
				t.Fatalf("seed %d: free blocks, next first:\nspans  %q\nblocks %q", seed, a, b)
			}
		}
	}
}

// begin finds what is cached of a new sequence in both pools and holds it.
func begin(t *testing.T, r *rand.Rand, fast *pool, slow *slowPool) *twin {
	s := newTwin(r, fast)
	limit := r.IntN(twinBlocks)
	found := fast.match(s.text, limit)
	hit, idle := 0, 0
	for hit < limit {
		b, ok := slow.found[s.keys[hit]]
		if !ok {
			break
		}
		if slow.refs[b] == 0 {
			idle++
		}
		hit++
		s.held = append(s.held, b)
	}
	if found.hit != hit || found.idle != idle {
		t.Fatalf("spans: %d blocks found, %d of them free; blocks: %d, %d", found.hit, found.idle, hit, idle)
	}
	s.tip = fast.cut(found)
	fast.hold(s.tip)
	for _, b := range s.held {
		slow.hold(b)
	}
	return s
}

// grow gives a sequence a few blocks more and enters some of them in the cache, if there is room.
func grow(r *rand.Rand, fast *pool, slow *slowPool, s *twin) {
	n := 1 + r.IntN(3)
	if len(s.held)+n > twinBlocks || n > fast.free {
		return
	}
	fast.take(n)
	s.own += n
	for range n {
		s.held = append(s.held, slow.take())
	}
	before := s.tip.end()
	whole := before + r.IntN(s.own+1)
	s.tip = fast.fill(s.tip, s.text, whole)
	s.own -= whole - before
	for b := before; b < whole; b++ {
		slow.enter(s, b)
	}
}

// enter puts block b of a sequence into the cache, or changes it for the one that is there.
func (p *slowPool) enter(s *twin, b int) {
	there, ok := p.found[s.keys[b]]
	if !ok {
		p.keys[s.held[b]], p.found[s.keys[b]] = s.keys[b], s.held[b]
		return
	}
	p.hold(there)
	p.release(s.held[b])
	s.held[b] = there
}

func end(fast *pool, slow *slowPool, s *twin) {
	fast.blank(s.own)
	fast.release(s.tip)
	for _, b := range slices.Backward(s.held) {
		slow.release(b)
	}
}

// listFast lists the contents of the free blocks, the next to be handed out first.
func listFast(p *pool) (out []string) {
	for s := p.ring.next; s != &p.ring; s = s.next {
		for b := s.end() - 1; b >= s.from; b-- {
			key := ""
			if s.text != nil {
				key = fmt.Sprint(s.text.salt)
				for at := range (b + 1) * p.block {
					key += fmt.Sprint(" ", s.text.pieces[s.text.at(at)].Content)
				}
			}
			out = append(out, key)
		}
	}
	return out
}

func listSlow(p *slowPool) (out []string) {
	for _, b := range p.free {
		out = append(out, p.keys[b])
	}
	return out
}
