package reward

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"tranche/episode"
	"tranche/internal/workpool"
)

// strays counts the gradings of one grader that were abandoned. They hold no worker, but each may hold a core.
type strays struct {
	now, ever, refused atomic.Int64
	closed             atomic.Bool // the grader is
}

// States of one grading, so that one that ends just when it is given up is counted right.
const (
	stateGoing int32 = iota
	stateEnded
	stateAbandoned
)

// sheet is one grader's work on one episode, or a group grader's on the members of a group.
type sheet struct {
	desk  *desk
	turns []int // of each member
	work  func(context.Context) ([]Judged, error)
	job   *workpool.Job[[]Judged]
	state *atomic.Int32
	end   workpool.End[[]Judged]
	full  bool // it was not asked: too many of its gradings never ended
	tries int
	costs []Cost // of each member, all tries
}

func newSheet(d *desk, in Input) *sheet {
	return &sheet{desk: d, turns: []int{len(in.Turns)}, costs: make([]Cost, 1), work: func(ctx context.Context) ([]Judged, error) {
		f, err := d.grader.Grade(ctx, in)
		return []Judged{{Finding: f}}, err
	}}
}

func (sh *sheet) start(ctx context.Context, s *Scorer) {
	d := sh.desk
	if sh.full = d.strays.now.Load() >= int64(s.cfg.MaxAbandoned); sh.full {
		d.strays.refused.Add(1)
		return
	}
	state := &atomic.Int32{}
	ended := func() {
		if !state.CompareAndSwap(stateGoing, stateEnded) {
			d.strays.now.Add(-1)
		}
	}
	sh.state, sh.tries = state, sh.tries+1
	sh.job = workpool.Start(ctx, s.poolOf(d), d.limit, ended, sh.work)
}

func (sh *sheet) wait() {
	if sh.full {
		sh.end = workpool.End[[]Judged]{}
		return
	}
	before := sh.end
	sh.end = sh.job.Wait()
	if sh.end.Abandoned {
		strays := &sh.desk.strays
		strays.ever.Add(1)
		strays.now.Add(1)
		if !sh.state.CompareAndSwap(stateGoing, stateAbandoned) {
			strays.now.Add(-1)
		}
	}
	for i := range sh.costs {
		cost := sh.finding(i).Cost
		if cost.Wall == 0 {
			cost.Wall = sh.end.Wall / time.Duration(len(sh.costs))
		}
		sh.costs[i] = sh.costs[i].Plus(cost)
	}
	sh.keep(before)
}

// finding is the zero one where the grader gave none.
func (sh *sheet) finding(i int) Finding {
	if i < len(sh.end.Value) {
		return sh.end.Value[i].Finding
	}
	return Finding{}
}

func (sh *sheet) retry() bool {
	if sh.full || sh.end.How != workpool.Finished {
		return false
	}
	return mayPass(sh.end.Err) || slices.ContainsFunc(sh.end.Value, func(j Judged) bool { return mayPass(j.Err) })
}

func mayPass(err error) bool {
	var u *Unjudged
	return errors.As(err, &u) && u.Retry
}

// keep puts the judgements of an earlier try in the place of those that this one lacks.
func (sh *sheet) keep(before workpool.End[[]Judged]) {
	if before.How != workpool.Finished || before.Err != nil || len(before.Value) != len(sh.turns) || sh.end.How != workpool.Finished {
		return
	}
	if sh.end.Err != nil {
		sh.end = before
		return
	}
	for i := range min(len(sh.end.Value), len(before.Value)) {
		if sh.end.Value[i].Err != nil && before.Value[i].Err == nil {
			sh.end.Value[i] = before.Value[i]
		}
	}
}

// outcome is "" where the grader gave a valid finding on a member, else the reason of there being none, and what it says for people.
func (sh *sheet) outcome(i int) (reason, detail string) {
	switch e := sh.end; {
	case sh.full:
		return string(episode.ClassScoreTimeout), fmt.Sprintf("not asked: %d gradings of this grader never ended and still go on", sh.desk.strays.now.Load())
	case e.How == workpool.TimedOut:
		return string(episode.ClassScoreTimeout), fmt.Sprintf("no judgement within %s", sh.desk.limit)
	case e.How == workpool.Panicked:
		return string(episode.ClassVerifier), "panic: " + e.Panicked
	case e.Err != nil:
		return reasonOf(e.Err)
	case len(e.Value) != len(sh.turns):
		return string(episode.ClassVerifier), fmt.Sprintf("%d judgements of %d members", len(e.Value), len(sh.turns))
	case e.Value[i].Err != nil:
		return reasonOf(e.Value[i].Err)
	}
	if fault := sh.finding(i).fault(sh.turns[i]); fault != "" {
		return string(episode.ClassVerifier), fault
	}
	return "", ""
}

func reasonOf(err error) (reason, detail string) {
	var nothing *Unjudged
	if errors.As(err, &nothing) {
		return nothing.Reason, nothing.Detail
	}
	return string(episode.ClassVerifier), err.Error()
}

// components makes the stored form of how a grading ended: the main one and its parts.
func (sh *sheet) components(i int) []episode.Reward {
	f := sh.finding(i)
	if reason, detail := sh.outcome(i); reason != "" {
		r := sh.desk.unscored(reason, detail)
		r.Tries, r.Cost, r.Tier = sh.tries, sh.costs[i], f.Tier
		return []episode.Reward{r}
	}
	r := sh.desk.blank()
	r.Score, r.Raw, r.Outcome, r.Evidence = episode.Ptr(f.Score), f.Raw, episode.Scored, clip(f.Evidence)
	r.Tier, r.Tries, r.Cost, r.Credit = f.Tier, sh.tries, sh.costs[i], f.Turns
	if f.Grader != "" {
		r.Grader = f.Grader
	}
	list := []episode.Reward{r}
	for _, p := range f.Parts {
		list = append(list, p.component(r))
	}
	return list
}

// component is a part as it is stored beside its main component. Tries and cost stand there alone.
func (p Part) component(main episode.Reward) episode.Reward {
	r := episode.Reward{
		Name: main.Name + "." + p.Name, Score: p.Score, Weight: main.Weight * p.Weight, Raw: p.Raw, Outcome: episode.Scored,
		Grader: main.Grader, Config: main.Config, Evidence: clip(p.Evidence), Tier: main.Tier,
	}
	if p.Score == nil {
		r.Outcome = noVerdict(NotJudged)
	}
	return r
}

// fault is what a finding breaks of its rules, "" for nothing.
func (f Finding) fault(turns int) string {
	if !isScore(f.Score) {
		return fmt.Sprintf("score %v is not from 0 to 1", f.Score)
	}
	names := map[string]bool{}
	for _, p := range f.Parts {
		switch {
		case p.Name == "" || names[p.Name]:
			return fmt.Sprintf("part %q: expected a name of its own", p.Name)
		case p.Score != nil && !isScore(*p.Score):
			return fmt.Sprintf("part %s: score %v is not from 0 to 1", p.Name, *p.Score)
		case !(p.Weight >= 0) || math.IsInf(p.Weight, 0):
			return fmt.Sprintf("part %s: weight %v, expected 0 or more", p.Name, p.Weight)
		}
		names[p.Name] = true
	}
	if f.Turns != nil && len(f.Turns) != turns {
		return fmt.Sprintf("credit for %d turns, the episode has %d", len(f.Turns), turns)
	}
	for i, c := range f.Turns {
		if math.IsInf(c, 0) {
			return fmt.Sprintf("credit %v of turn %d is not finite", c, i)
		}
	}
	return ""
}

// isScore is false for NaN too.
func isScore(score float64) bool { return score >= 0 && score <= 1 }

func (d *desk) blank() episode.Reward {
	return episode.Reward{Name: d.Name, Weight: *d.Weight, Grader: d.id(), Config: d.config}
}

func (d *desk) unscored(reason, detail string) episode.Reward {
	r := d.blank()
	r.Outcome, r.Evidence = noVerdict(reason), clip(detail)
	return r
}
