package codetools

import (
	"context"
	"sync"
)

// budget is a number of things that are lent: first come, first served.
type budget struct {
	mu      sync.Mutex
	free    int64     // guarded by mu
	waiting []*waiter // in the order they came; guarded by mu
}

// waiter is one caller of take that has to wait.
type waiter struct {
	n    int64
	lent chan struct{} // closed when it has them
}

func newBudget(n int64) *budget { return &budget{free: n} }

// take waits until n of them are free and nobody waits before, or until ctx is done.
func (b *budget) take(ctx context.Context, n int64) error {
	b.mu.Lock()
	if len(b.waiting) == 0 && b.free >= n {
		b.free -= n
		b.mu.Unlock()
		return nil
	}
	w := &waiter{n, make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	select {
	case <-w.lent:
		return nil
	case <-ctx.Done():
		b.leave(w)
		return ctx.Err()
	}
}

// leave takes a waiter out of the queue, or gives back what it has got in this moment.
func (b *budget) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.lent:
		b.free += w.n
	default:
		kept := b.waiting[:0]
		for _, other := range b.waiting {
			if other != w {
				kept = append(kept, other)
			}
		}
		b.waiting = kept
	}
	b.serve()
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.serve()
}

// serve lends to those that wait, as far as there is for the first; mu is held.
func (b *budget) serve() {
	for len(b.waiting) > 0 && b.waiting[0].n <= b.free {
		b.free -= b.waiting[0].n
		close(b.waiting[0].lent)
		b.waiting = b.waiting[1:]
	}
}
