package bucketing

import "math/bits"

// Queues holds items in first-in-first-out order per level, a level being a class or any other small number below 64. Push, Pop
// and Remove take constant time; finding the highest level that holds something takes one instruction.
type Queues[T any] struct {
	heads, tails [64]*Item[T]
	held         uint64 // bit i set: level i is not empty
	n            int
}

// Item is one place in a queue.
type Item[T any] struct {
	Value      T
	level      int
	queue      *Queues[T]
	prev, next *Item[T]
}

// Push appends v to a level and returns its place, for Remove.
func (q *Queues[T]) Push(level int, v T) *Item[T] {
	it := &Item[T]{Value: v, level: level, queue: q, prev: q.tails[level]}
	if it.prev == nil {
		q.heads[level] = it
	} else {
		it.prev.next = it
	}
	q.tails[level] = it
	q.held |= 1 << level
	q.n++
	return it
}

// Head returns the oldest item of a level, nil when it is empty.
func (q *Queues[T]) Head(level int) *Item[T] { return q.heads[level] }

// Below returns the highest level under `under` that holds something, -1 when there is none. Below(64) is the highest of all.
func (q *Queues[T]) Below(under int) int {
	mask := q.held
	if under < 64 {
		mask &= 1<<under - 1
	}
	return bits.Len64(mask) - 1
}

// Remove takes the item out of its queue; a second call does nothing.
func (it *Item[T]) Remove() {
	q := it.queue
	if q == nil {
		return
	}
	if it.prev == nil {
		q.heads[it.level] = it.next
	} else {
		it.prev.next = it.next
	}
	if it.next == nil {
		q.tails[it.level] = it.prev
	} else {
		it.next.prev = it.prev
	}
	if q.heads[it.level] == nil {
		q.held &^= 1 << it.level
	}
	q.n--
	it.queue, it.prev, it.next = nil, nil, nil
}

// Len is the number of items on all levels.
func (q *Queues[T]) Len() int { return q.n }
