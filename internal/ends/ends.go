// Package ends keeps the beginning and the end of a stream of any length in a set room: what a program printed, what it wrote to standard
// error. It says nothing of how to show them.
package ends

// Ends is the beginning and the end of a stream. It is not safe for use by several at once. Keep makes one; the zero value keeps nothing.
type Ends struct {
	first int    // bytes of the beginning
	last  int    // bytes of the end
	head  []byte // the first
	tail  []byte // the last, as a ring once it is full
	next  int    // where the ring goes on
	total int64
}

// Keep keeps so many bytes in all, half of them of each end.
func Keep(bytes int) Ends { return Ends{first: bytes / 2, last: bytes / 2} }

// Add takes the next piece of the stream.
func (e *Ends) Add(p []byte) {
	e.total += int64(len(p))
	n := min(len(p), e.first-len(e.head))
	e.head = append(e.head, p[:n]...)
	if p = p[n:]; len(p) >= e.last {
		e.tail, e.next = append(e.tail[:0], p[len(p)-e.last:]...), 0
		return
	}
	n = min(len(p), e.last-len(e.tail))
	e.tail = append(e.tail, p[:n]...)
	for p = p[n:]; len(p) > 0; p = p[n:] {
		n = copy(e.tail[e.next:], p)
		e.next = (e.next + n) % e.last
	}
}

// Skip counts bytes of the stream that somebody else has.
func (e *Ends) Skip(bytes int) { e.total += int64(bytes) }

// Total is how long the stream is so far.
func (e *Ends) Total() int64 { return e.total }

// Missing is how many bytes between the ends are not kept.
func (e *Ends) Missing() int64 { return e.total - int64(len(e.head)+len(e.tail)) }

// Head is the beginning. It belongs to e.
func (e *Ends) Head() []byte { return e.head }

// Tail is a copy of the end, nil where the head is all there is.
func (e *Ends) Tail() []byte {
	if len(e.tail) == 0 {
		return nil
	}
	return append(append(make([]byte, 0, len(e.tail)), e.tail[e.next:]...), e.tail[:e.next]...)
}
