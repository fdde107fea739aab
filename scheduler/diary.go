package scheduler

import (
	"time"

	"tranche/episode"
)

// diary has the run's turn log keep what each turn adds to one episode. Without a log it keeps nothing. The last turn is never kept: the row has it.
type diary struct {
	log   episode.TurnLog
	actor episode.Actor
	began time.Time     // in this process
	spent time.Duration // by then
	step  episode.Step  // of the turn that goes on; without a reply there is none
}

func (r *Rollout) diary(e *episode.Episode) diary {
	return diary{log: r.Turns, actor: r.Actor, began: time.Now(), spent: e.Timing.Total}
}

// said notes a reply that the episode is about to take.
func (d *diary) said(e *episode.Episode, r *episode.Reply, t episode.Turn) {
	if d.log != nil {
		d.step = e.Step(r, t)
	}
}

// saw notes what the reply's actions gave.
func (d *diary) saw(obs []episode.Observation) { d.step.Seen = obs }

// keep has the turn kept that has just ended, where the episode goes on.
func (d *diary) keep(e *episode.Episode) {
	if d.step.Reply == nil {
		return
	}
	d.step.Spent = d.spent + time.Since(d.began)
	d.step.Kept = kept(d.actor, e)
	d.log.KeepTurn(e, &d.step)
	d.step = episode.Step{}
}

// kept names what holds something of the episode besides its messages.
func kept(a episode.Actor, e *episode.Episode) []string {
	if k, ok := a.(episode.Keeper); ok {
		return k.Keeps(e)
	}
	if len(e.Actions) == 0 {
		return nil
	}
	return []string{e.Actions[0].Name} // it cannot tell
}

// unplayed ends an episode that is not to be played. What an earlier process had of it stays in it.
func (r *Rollout) unplayed(e *episode.Episode, f *episode.Fault) {
	r.isolate(e, func() {
		if e.Begun == nil {
			return
		}
		if _, _, err := r.tools(e); err == nil { // as play has them: they are part of the prompt that the turns follow
			if err := e.Rebuild(); err != nil { // it goes on nowhere, so nobody is told that it does
				r.Sched.cfg.Trace.resumed(e, err)
			}
		}
	})
	e.Fail(f)
}

// goOn brings an episode that an earlier process began to where that had it.
func (r *Rollout) goOn(e *episode.Episode) {
	if e.Begun == nil || !e.Open() {
		return
	}
	err := e.Rebuild()
	r.Sched.cfg.Trace.resumed(e, err)
}
