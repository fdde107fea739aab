package scheduler

import (
	"context"
	"errors"
	"sync"

	"tranche/episode"
)

// trimmer carries the quorum's rule out: it knows how to end each running episode, and keeps what is to be played again.
type trimmer struct {
	mu       sync.Mutex // guards everything below
	rule     *quorum
	cancels  map[string]context.CancelCauseFunc // of running episodes, by id
	deferred []deferred
	bias     Bias
}

// deferred is an episode that was cut and will be played again.
type deferred struct {
	draw    episode.Draw
	sample  int
	attempt int // that is to be made
}

func newTrimmer(q Quorum) *trimmer {
	return &trimmer{rule: newQuorum(q), cancels: map[string]context.CancelCauseFunc{}}
}

// begin registers an episode; its context ends when it is cut, at once when there are enough already. release must be called after
// the end.
func (c *trimmer) begin(ctx context.Context, e *episode.Episode) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rule == nil { // the last round
		return ctx, func() { cancel(nil) }
	}
	if !c.rule.begin(e.GroupID, e.ID) {
		cancel(errQuorum)
	}
	c.cancels[e.ID] = cancel
	return ctx, func() { cancel(nil) }
}

// end tells the rule and cuts what it says. It reports whether e itself was cut.
func (c *trimmer) end(ctx context.Context, e *episode.Episode) (wasCut bool) {
	good := e.Status == episode.StatusCompleted || e.Status == episode.StatusTruncated
	wasCut = e.Status == episode.StatusCancelled && errors.Is(context.Cause(ctx), errQuorum)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cancels, e.ID)
	if good || wasCut {
		c.bias.count(e, wasCut)
	}
	if c.rule == nil {
		return wasCut
	}
	for _, id := range c.rule.end(e.GroupID, e.ID, e.GroupSize, good) {
		if cancel := c.cancels[id]; cancel != nil {
			cancel(errQuorum)
		}
	}
	return wasCut
}

// found tells the rule of an episode that is stored already.
func (c *trimmer) found(e *episode.Episode, good bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rule != nil {
		c.rule.found(e.GroupID, e.GroupSize, good)
	}
}

func (c *trimmer) putOff(d episode.Draw, sample int, e *episode.Episode) {
	next := deferred{d, sample, e.Attempt}
	if e.Timing.Total > 0 || len(e.Turns) > 0 { // it was begun, here or in an earlier process
		next.attempt++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bias.Deferred++
	c.deferred = append(c.deferred, next)
}

// lastRound hands out what was put off; nothing is cut any more.
func (c *trimmer) lastRound() []deferred {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.deferred
	c.deferred, c.rule = nil, nil
	return left
}

func (c *trimmer) biasNow() Bias {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bias
}
