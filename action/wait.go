package action

import (
	"context"
	"fmt"

	"tranche/episode"
)

func envOf(e *episode.Episode, act episode.Action) Env {
	return Env{Episode: e.ID, Action: act.ID, Turn: act.Turn, Task: e.Task}
}

// await waits for what a run needs, where its tool says that there is such a thing; done lets go of it. Without it the action is not begun,
// and what is observed is returned.
func (s *Set) await(ctx context.Context, t Tool, e *episode.Episode, act episode.Action) (done func(), refusal *episode.Observation) {
	scarce, ok := t.(Waiter)
	if !ok {
		return func() {}, nil
	}
	done, err := guarded(ctx, scarce, envOf(e, act))
	if err == nil {
		return done, nil
	}
	s.release(act.ID)
	if ctx.Err() != nil {
		return nil, s.refused(act, episode.ActionCanceled, "the run is stopping")
	}
	o := harness(act, err)
	return nil, &o
}

// guarded makes a panic of Wait an error: it would end the whole run.
func guarded(ctx context.Context, t Waiter, env Env) (done func(), err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("it panicked while it waited: %v", v)
		}
	}()
	return t.Wait(ctx, env)
}

// release lets go of the claim on an action that was never begun.
func (s *Set) release(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.going, id)
}
