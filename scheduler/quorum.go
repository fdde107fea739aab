package scheduler

import (
	"errors"
	"maps"
	"slices"
	"time"

	"tranche/episode"
)

// Quorum says when enough is enough: what still runs then is cut off, its connections closed. What is cut is of the long ones, so what
// is kept is shorter than what the model would have said: Bias tells by how much. The zero value waits for everything.
type Quorum struct {
	Samples  int   // good episodes of a group after which the others of it are cut; 0 = all are waited for
	Episodes int64 // good episodes of this invocation after which the rest of the run is cut; 0 = all are waited for
	// Defer plays what was cut again, from its beginning, when all else has ended. Else it is dropped: written as cancelled with stop
	// reason quorum.
	Defer bool
}

func (q Quorum) on() bool { return q.Samples > 0 || q.Episodes > 0 }

// Bias compares what a quorum kept with what it cut. Tokens are what the servers counted and what had been streamed; the part of an
// answer that came in one piece and was cut is not known, so the times say more.
type Bias struct {
	Kept, Cut     int64 // episodes that ended well; cut ones whose first call had been sent, deferred ones included
	Unbegun       int64 // cut before that
	Deferred      int64 // of Cut and Unbegun: played again
	KeptTokens    int64 // generated, sum
	CutTokens     int64
	KeptTime      time.Duration // from opening to the end, sum
	CutTime       time.Duration // from opening to the cut, sum
	KeptUncounted int64         // of Kept: with a turn whose tokens no server counted
	CutUncounted  int64         // of Cut: in a call whose answer would have come in one piece: what it had generated is not known
}

// count adds one episode that ended well or was cut.
func (b *Bias) count(e *episode.Episode, cut bool) {
	switch {
	case !cut:
		b.Kept++
		b.KeptTokens += int64(e.Generated())
		b.KeptTime += e.Timing.Total
		if slices.ContainsFunc(e.Turns, func(t episode.Turn) bool { return t.CompletionTokens == nil }) {
			b.KeptUncounted++
		}
	case e.Timing.Total == 0 || len(e.Turns) == 0 && e.Fault != nil && e.Fault.Stage == episode.StageAdmission:
		b.Unbegun++
	default:
		b.Cut++
		b.CutTime += e.Timing.Total
		switch f := e.Fault; {
		case f != nil && f.Stage == episode.StageModel && f.Wasted == 0:
			b.CutUncounted++
		case f != nil:
			b.CutTokens += int64(e.Generated()) + int64(f.Wasted)
		default:
			b.CutTokens += int64(e.Generated())
		}
	}
}

// errQuorum is the cause of the end of an episode that was cut.
var errQuorum = errors.New("enough others have ended: cut by the quorum")

// quorum is the rule: told which episodes open and end, it says which are to be cut. No goroutine, no clock; the run guards it.
type quorum struct {
	Quorum
	groups  map[string]*quota
	good    int64
	stopped bool // all was cut
}

// quota is how far a group is.
type quota struct {
	good, ended int
	running     map[string]struct{} // ids of episodes that are not to be cut yet
}

// cut appends what runs; it is to be cut once.
func (g *quota) cut(ids []string) []string {
	ids = slices.AppendSeq(ids, maps.Keys(g.running))
	clear(g.running)
	return ids
}

func newQuorum(q Quorum) *quorum { return &quorum{Quorum: q, groups: map[string]*quota{}} }

func (q *quorum) of(group string) *quota {
	g := q.groups[group]
	if g == nil {
		g = &quota{running: map[string]struct{}{}}
		q.groups[group] = g
	}
	return g
}

// over says whether the whole run has enough.
func (q *quorum) over() bool { return q.Episodes > 0 && q.good >= q.Episodes }

// enough says whether a group needs no more.
func (q *quorum) enough(g *quota) bool { return q.over() || q.Samples > 0 && g.good >= q.Samples }

// begin takes an episode that opens; false = there are enough already, it is to be cut at once.
func (q *quorum) begin(group, id string) bool {
	g := q.of(group)
	if q.enough(g) {
		return false
	}
	g.running[id] = struct{}{}
	return true
}

// end takes an episode that has ended, one of size in its group, and returns those to be cut now, in order. good = it counts.
func (q *quorum) end(group, id string, size int, good bool) (cut []string) {
	g := q.of(group)
	delete(g.running, id)
	if good {
		g.good++
		q.good++
	}
	switch {
	case !good || q.stopped:
	case q.over():
		q.stopped = true
		for _, o := range q.groups {
			cut = o.cut(cut)
		}
	case q.enough(g):
		cut = g.cut(nil)
	}
	q.leave(group, g, size)
	slices.Sort(cut)
	return cut
}

// found takes an episode that earlier invocations stored. It counts for its group; the run's share is of this invocation.
func (q *quorum) found(group string, size int, good bool) {
	g := q.of(group)
	if good {
		g.good++
	}
	q.leave(group, g, size)
}

// leave counts the end of one of a group and forgets the group after its last.
func (q *quorum) leave(group string, g *quota, size int) {
	if g.ended++; g.ended >= size {
		delete(q.groups, group)
	}
}
