package scheduler

import "fmt"

// Where replicas that pad can go on from token ids (ReplicaConfig.Continues), an answer need not be made at one go. A batch asks for at
// most what its class is cut at; what has not ended by then waits again, with its context so far, for a batch of its like. So a batch
// waits no longer than that for its longest answer, however long answers get, and nobody has to know how long they get. The price is that
// a context is computed again at each cut. This file is what happens to a call that is cut; steps.go finds where, cutbatch.go which go together.

// cuts says whether the answer of a call in the pool may be cut.
func (p *pool) cuts(w *call) bool { return w.Continues && p.continues }

// goesOn says whether r can take the call as it is: one that was cut needs a replica that goes on from ids.
func (r *replica) goesOn(w *call) bool { return w.got == 0 || r.Continues }

// bounded takes a launched call's limit down to what its batch is cut at. The call keeps what it may have in all.
func (c *Core) bounded(l Launch, w *call, cut int) Launch {
	if cut <= 0 || !w.pool.cuts(w) || l.MaxTokens > 0 && l.MaxTokens <= cut {
		return l
	}
	if l.MaxTokens > 0 {
		c.replicas[l.Replica].promised -= l.MaxTokens - cut
		w.cost -= l.MaxTokens - cut
	}
	w.most, l.MaxTokens, l.Cut = l.MaxTokens, cut, true
	return l
}

// Cut reports that a launched attempt's answer was cut at Launch.MaxTokens and has not ended: the core holds the call and launches it again, its
// prompt being what it was and the tokens that came. prompt is what the server counted, tokens; 0 = it did not.
func (c *Core) Cut(t Ticket, prompt int, u Usage, now Time) Decision {
	w := c.calls[t]
	if w == nil || w.state != running || w.most == 0 && w.Want > 0 {
		panic(fmt.Sprintf("scheduler: call %d is cut and was not launched to be", t))
	}
	r := c.landed(w, nil, u, u.Generated, now)
	c.acquit(w, r, now)
	c.answers.left(w.Cell, w.launched, now, -1) // it has not ended: how long it gets is not known
	c.healthy(w, r, now)
	r.served++
	if prompt > 0 {
		w.Prompt, w.Exact = prompt, true
	}
	c.padding.lasting.learn(w.got, w.got+u.Generated, false)
	c.padding.parts++
	w.got += u.Generated
	w.Prompt += u.Generated
	if w.most > 0 {
		w.Want = max(w.most-u.Generated, 1) // a server may give more than it was asked for; nought would be no limit
	}
	w.counted, w.failures, w.avoid, w.most, w.MinUseful = 0, 0, -1, 0, 1 // what is begun is worth going on with
	c.enqueue(w, now)
	return Continuing
}

// Whole reports that a launched attempt's answer was cut and cannot be gone on with: the core holds the call and launches it again, to be made at one
// go from its beginning.
func (c *Core) Whole(t Ticket, now Time) Decision {
	w := c.calls[t]
	if w == nil || w.state != running {
		panic(fmt.Sprintf("scheduler: call %d is to be made again and was not running", t))
	}
	r := c.landed(w, nil, Usage{Cached: -1}, -1, now)
	c.acquit(w, r, now)
	c.answers.left(w.Cell, w.launched, now, -1)
	c.healthy(w, r, now)
	r.served++
	w.Prompt -= w.got
	w.Want = 0
	if w.most > 0 {
		w.Want = w.most + w.got
	}
	w.got, w.most, w.Continues = 0, 0, false
	c.enqueue(w, now)
	return Retrying
}
