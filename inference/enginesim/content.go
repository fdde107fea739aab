package enginesim

import "sort"

// Segment is a stretch of text that is named instead of spelled out: tokens From … From+Tokens of the endless text Content. Two
// positions hold the same token when both name the same offset of the same text. A simulation gives every episode a text of its
// own, of which each prompt is a beginning and each answer the continuation: then a prompt of 100k tokens is one segment.
type Segment struct {
	Content      uint64
	From, Tokens int // tokens
}

// length is the number of tokens of several segments.
func length(gs []Segment) int {
	n := 0
	for _, g := range gs {
		n += g.Tokens
	}
	return n
}

// content is all a sequence will ever say, prompt and output, in the form in which it is compared with others. It never changes:
// the cache keeps it for as long as it holds a block of it.
type content struct {
	salt   uint64
	pieces []piece  // of an outline
	hashes []uint64 // of ids: the hash of all tokens up to the end of each whole block
}

// piece is a segment that does not continue the one before it.
type piece struct {
	Segment
	end int // tokens of all pieces up to the end of this one
}

func newContent(r *Request, block int) *content {
	c := &content{salt: r.Salt}
	if len(r.Outline) == 0 {
		c.hashes = prefixHashes(r.Prompt, r.Output, block)
		return c
	}
	c.pieces = make([]piece, 0, len(r.Outline)+1)
	for _, g := range r.Outline {
		c.add(g)
	}
	c.add(r.Continuation)
	return c
}

// add appends a segment; one that continues the last piece lengthens it, so that equal text looks alike however it was cut.
func (c *content) add(g Segment) {
	n := len(c.pieces)
	switch {
	case g.Tokens == 0:
	case n > 0 && c.pieces[n-1].Content == g.Content && c.pieces[n-1].From+c.pieces[n-1].Tokens == g.From:
		c.pieces[n-1].Tokens += g.Tokens
		c.pieces[n-1].end += g.Tokens
	case n > 0:
		c.pieces = append(c.pieces, piece{g, c.pieces[n-1].end + g.Tokens})
	default:
		c.pieces = append(c.pieces, piece{g, g.Tokens})
	}
}

// at is the piece that holds a token.
func (c *content) at(token int) int {
	if len(c.pieces) == 1 {
		return 0
	}
	return sort.Search(len(c.pieces), func(i int) bool { return c.pieces[i].end > token })
}

// common is the number of whole blocks from a block on that two contents share, at most limit, given that they agree before it.
func (c *content) common(o *content, from, limit, block int) int {
	if c.salt != o.salt || (c.hashes == nil) != (o.hashes == nil) {
		return 0
	}
	if c.hashes == nil {
		return min(limit, (from*block+c.agree(o, from*block, limit*block))/block-from)
	}
	n := 0
	for n < limit && from+n < min(len(c.hashes), len(o.hashes)) && c.hashes[from+n] == o.hashes[from+n] {
		n++
	}
	return n
}

// agree is the number of tokens from one on that two outlines share; it need not look beyond limit.
func (c *content) agree(o *content, from, limit int) int {
	at, i, j := from, c.at(from), o.at(from)
	for at-from < limit && i < len(c.pieces) && j < len(o.pieces) {
		x, y := &c.pieces[i], &o.pieces[j]
		if x.Content != y.Content || x.From+x.Tokens-x.end != y.From+y.Tokens-y.end { // another text, or elsewhere in it
			break
		}
		at = min(x.end, y.end)
		if x.end == at {
			i++
		}
		if y.end == at {
			j++
		}
	}
	return max(0, at-from)
}

// key tells blocks apart that continue the same text: a hash of what the block holds.
func (c *content) key(b, block int) uint64 {
	if c.hashes != nil {
		return mix(c.salt) ^ c.hashes[b]
	}
	h := mix(c.salt)
	for at, i := b*block, c.at(b*block); at < (b+1)*block; i++ {
		p := &c.pieces[i]
		end := min(p.end, (b+1)*block)
		h = mix(h ^ p.Content)
		h = mix(h ^ uint64(p.From+p.Tokens-p.end+at)<<20 ^ uint64(end-at))
		at = end
	}
	return h
}

// prefixHashes hashes ids block by block, each onto the hash of all before it.
func prefixHashes(prompt, output []int32, block int) []uint64 {
	out := make([]uint64, 0, (len(prompt)+len(output))/block)
	h, n := uint64(golden), 0
	for _, ids := range [][]int32{prompt, output} {
		for _, id := range ids {
			h = mix(h ^ uint64(uint32(id)))
			if n++; n == block {
				out, n = append(out, h), 0
			}
		}
	}
	return out
}

// chain hashes tokens onto the hash of what comes before.
func chain(before uint64, tokens []int32) uint64 {
	h := before ^ golden
	for _, t := range tokens {
		h = mix(h ^ uint64(uint32(t)))
	}
	return h
}

const golden = 0x9e3779b97f4a7c15 // 2^64 / golden ratio

// mix is the finalizer of splitmix64: every bit of the input reaches every bit of the output.
func mix(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
