package inference

import (
	"bytes"
	"io"
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

// mostListed is the longest list that is used again; its elements have less than 256 bytes.
const mostListed = mostKept / 256

// deskFor lends a desk to an answer.
func (e *Endpoint) deskFor(a *answer) *desk {
	d, ok := e.desks.Get().(*desk)
	if !ok {
		d = &desk{}
	}
	a.desk = d
	return d
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
	e.desks.Put(d)
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
