package enginesim

// pool is the KV memory: blocks of equal size, each free or shared by sequences that need its content. A free block keeps its
// content until it is handed out again, least recently freed first; that is the whole prefix cache.
type pool struct {
	blocks []block
	cached map[uint64]int32 // prefix hash → the block that holds it
	free   int              // length of the free list
	// The free list is a ring through blocks[len-1], a sentinel: next = handed out next, prev = freed last.
	ring int32
}

type block struct {
	hash       uint64
	hashed     bool // content is whole, and in pool.cached
	refs       int32
	prev, next int32
}

func newPool(n int) *pool {
	p := &pool{blocks: make([]block, n+1), cached: make(map[uint64]int32, n), ring: int32(n)}
	p.blocks[n].prev, p.blocks[n].next = p.ring, p.ring
	for b := range int32(n) {
		p.push(b)
	}
	return p
}

func (p *pool) size() int { return len(p.blocks) - 1 }
func (p *pool) used() int { return p.size() - p.free }

func (p *pool) push(b int32) {
	last := p.blocks[p.ring].prev
	p.blocks[b].prev, p.blocks[b].next = last, p.ring
	p.blocks[last].next, p.blocks[p.ring].prev = b, b
	p.free++
}

func (p *pool) unlink(b int32) {
	x := p.blocks[b]
	p.blocks[x.prev].next, p.blocks[x.next].prev = x.next, x.prev
	p.free--
}

// take hands out the least recently freed block and forgets its content. The caller has seen that one is free.
func (p *pool) take() int32 {
	b := p.blocks[p.ring].next
	p.unlink(b)
	x := &p.blocks[b]
	if x.hashed {
		delete(p.cached, x.hash)
		x.hashed = false
	}
	x.refs = 1
	return b
}

// share adds a holder to a cached block.
func (p *pool) share(b int32) {
	if p.blocks[b].refs == 0 {
		p.unlink(b)
	}
	p.blocks[b].refs++
}

func (p *pool) release(b int32) {
	p.blocks[b].refs--
	if p.blocks[b].refs == 0 {
		p.push(b)
	}
}

// remember enters a whole block under its prefix hash. When another block holds the same content already, that one stays.
func (p *pool) remember(b int32, hash uint64) {
	if _, ok := p.cached[hash]; ok || p.blocks[b].hashed {
		return
	}
	p.blocks[b].hash, p.blocks[b].hashed = hash, true
	p.cached[hash] = b
}

// match returns the longest run of cached blocks that a chain of prefix hashes begins with, and how many of them are free now.
func (p *pool) match(hashes []uint64) (run []int32, idle int) {
	for _, h := range hashes {
		b, ok := p.cached[h]
		if !ok {
			break
		}
		run = append(run, b)
		if p.blocks[b].refs == 0 {
			idle++
		}
	}
	return run, idle
}

// chain hashes one more block of tokens onto the hash of all that comes before it.
func chain(before uint64, tokens []int32) uint64 {
	h := before ^ 0x9e3779b97f4a7c15
	for _, t := range tokens {
		h = mix(h ^ uint64(uint32(t)))
	}
	return h
}

// mix is the finalizer of splitmix64: every bit of the input reaches every bit of the output.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
