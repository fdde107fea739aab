package inference

import (
	"bytes"
	"io"
	"sync"
)

// desk is the memory in which one answer is read. It is lent to one answer after the other, so that what is made for each is little more
// than the reply itself.
type desk struct {
	body   bytes.Buffer // of a whole answer
	events events       // of a stream
	wire   wireAnswer   // what was read last
	room   scanRoom
	mould  mould
}

// mostKept is the largest piece of memory that is used again, bytes.
const mostKept = 1 << 20

// mostElement is more than an element of any list of a desk has, bytes.
const mostElement = 256

// mostListed is the longest list that is used again.
const mostListed = mostKept / mostElement

// desks are those that are free. Some are kept for good: the collector empties a pool every other time, and where answers are long that is many times a
// second.
type desks struct {
	mu   sync.Mutex
	kept []*desk // the one that was used last is the last
	size int     // of the kept ones, bytes
	more sync.Pool
}

// mostDesks is how much memory of free desks an endpoint keeps for good, bytes.
const mostDesks = 4 << 20

func (d *desks) take() *desk {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last := len(d.kept) - 1; last >= 0 {
		t := d.kept[last]
		d.kept[last], d.kept = nil, d.kept[:last]
		d.size -= t.size()
		return t
	}
	if t, ok := d.more.Get().(*desk); ok {
		return t
	}
	return &desk{}
}

func (d *desks) put(t *desk) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := t.size(); d.size+n <= mostDesks {
		d.kept, d.size = append(d.kept, t), d.size+n
		return
	}
	d.more.Put(t)
}

// size is the memory of a desk in bytes, but for what is always small.
func (d *desk) size() int {
	v := &d.events
	return d.body.Cap() + cap(d.room.texts) + cap(v.buf) + cap(v.line) + cap(v.data) + cap(v.kind) + cap(d.mould.form) +
		(cap(d.room.choices)+cap(d.room.holes)+cap(d.mould.holes))*mostElement
}

// deskFor lends a desk to an answer.
func (e *Endpoint) deskFor(a *answer) *desk {
	a.desk = e.desks.take()
	return a.desk
}

// clear takes the desk of an answer back. Nothing of the answer may be used afterwards but what was made of it: its texts may lie there.
func (e *Endpoint) clear(a *answer) {
	d := a.desk
	a.desk = nil
	if d == nil || d.isLarge() {
		return
	}
	d.body.Reset()
	d.events.reset(nil, 0)
	d.wire = wireAnswer{}
	d.room.forget()
	d.mould.forget()
	e.desks.put(d)
}

// isLarge reports whether an answer has made a desk larger than it is worth keeping.
func (d *desk) isLarge() bool {
	v := &d.events
	return max(d.body.Cap(), cap(d.room.texts), cap(v.line), cap(v.data), cap(v.kind)) > mostKept ||
		max(cap(d.room.choices), cap(d.room.holes), cap(d.mould.holes)) > mostListed
}

// readAll is io.ReadAll that trusts a stated length, within reason, to spare the growing.
func readAll(b *bytes.Buffer, r io.Reader, length int64) ([]byte, error) {
	if length > 0 {
		b.Grow(int(min(length, 4<<20)) + bytes.MinRead)
	}
	_, err := b.ReadFrom(r)
	return b.Bytes(), err
}
