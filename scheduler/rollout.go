package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tranche/episode"
)

// Rollout is the life of an episode. One value serves all episodes of a run at once.
type Rollout struct {
	Sched          *Scheduler
	Actor          episode.Actor   // nil = no tools
	Scorer         episode.Scorer  // nil = no rewards
	Turns          episode.TurnLog // nil = an episode that is interrupted begins again
	EpisodeTimeout time.Duration   // from opening to the last turn, all waits included, longer where the prompt or a turn may be very long (episode.Stretch); 0 = none
	ScoreTimeout   time.Duration   // over all graders of one episode; 0 = none
}

// errEpisodeDeadline is the cause of a context that ended with the episode's own deadline.
var errEpisodeDeadline = errors.New("the episode's total deadline passed")

// errDue is the cause of a context that ended at the time by which the task was wanted.
var errDue = errors.New("the task's own deadline passed")

// Run plays the episode to its end and scores it. It never returns an error: what went wrong is in the episode.
func (r *Rollout) Run(ctx context.Context, e *episode.Episode) {
	began := time.Now()
	r.isolate(e, func() { r.play(ctx, e) })
	r.Sched.Leave(e.ID)
	r.isolate(e, func() { r.score(ctx, e) })
	if x, ok := r.Actor.(episode.Ender); ok {
		r.isolate(e, func() { x.End(e) })
	}
	e.Timing.Total += time.Since(began)
}

// play is the loop: model call, actions, observations, until the episode closes.
func (r *Rollout) play(ctx context.Context, e *episode.Episode) {
	limit := r.limit(e)
	tools, runnable, err := r.tools(e)
	if err != nil {
		e.Fail(&episode.Fault{Stage: episode.StageAction, Class: episode.ClassHarness, Cause: err})
		return
	}
	r.goOn(e)
	if r.EpisodeTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit-e.Timing.Total, errEpisodeDeadline)
		defer cancel()
	}
	if !e.Due.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, e.Due, errDue)
		defer cancel()
	}
	text, _ := r.Actor.(episode.Reader)
	notes := r.diary(e)
	for {
		call, ok := e.NextCall()
		if !ok {
			return
		}
		notes.keep(e)
		call.Tools, call.PromptTokens = tools, r.Sched.continued(e)
		reply, turn, err := r.Sched.generate(ctx, &call, e.Budget, len(e.Turns) == 0)
		if err != nil {
			stop(ctx, e, err)
			return
		}
		if text != nil {
			text.Read(e, reply)
		}
		notes.said(e, reply, turn)
		e.AddReply(reply, turn)
		if acts := e.PendingActions(); len(acts) > 0 {
			notes.saw(r.act(ctx, e, acts, runnable))
		}
	}
}

// limit is how long an episode that begins may take: EpisodeTimeout, lengthened by its prompt and the longest turn it may have.
func (r *Rollout) limit(e *episode.Episode) time.Duration {
	bytes := len(e.Task.Tools)
	for _, m := range e.Messages {
		bytes += m.Bytes()
	}
	return episode.Stretch(r.EpisodeTimeout, r.Sched.words.tokensFor(bytes), e.Budget.TurnTokens)
}

func (r *Rollout) tools(e *episode.Episode) (defs []byte, runnable bool, err error) {
	if r.Actor == nil {
		return e.Task.Tools, false, nil
	}
	if text, ok := r.Actor.(episode.Reader); ok {
		if err := text.Prepare(e); err != nil {
			return nil, false, err
		}
	}
	return r.Actor.Tools(e.Task)
}

// act carries out the tool calls of the last reply and returns what the episode was told of them. When the task declares tools that nobody here runs,
// the calls are the episode's result.
func (r *Rollout) act(ctx context.Context, e *episode.Episode, acts []episode.Action, runnable bool) []episode.Observation {
	if !runnable {
		e.Close(episode.StatusCompleted, episode.StopToolCalls)
		return nil
	}
	r.Sched.Act(e.ID, acts[0].Call.Function.Name)
	obs := r.Actor.Do(ctx, e, acts)
	if ctx.Err() != nil {
		stop(ctx, e, cancelled(context.Cause(ctx)))
		return nil
	}
	for _, o := range obs {
		e.AddObservation(o)
	}
	return obs
}

// stop ends an episode whose call did not succeed.
func stop(ctx context.Context, e *episode.Episode, err error) {
	if errors.Is(err, ErrContextFull) {
		e.Close(episode.StatusTruncated, episode.StopContextFull)
		return
	}
	f := episode.AsFault(episode.StageModel, err)
	for _, passed := range []error{errEpisodeDeadline, errDue} {
		if errors.Is(context.Cause(ctx), passed) {
			f = deadline(f, passed)
		}
	}
	e.Fail(f)
}

// deadline is the fault of an episode whose time ran out: it tells what had been tried until then, and where that failed.
func deadline(f *episode.Fault, passed error) *episode.Fault {
	d := &episode.Fault{Stage: f.Stage, Class: episode.ClassDeadline, Cause: passed, Partial: f.Partial, Attempts: f.Attempts}
	if n := len(f.Attempts); n > 0 {
		last := f.Attempts[n-1]
		d.Stage = episode.StageModel
		d.Cause = fmt.Errorf("%w after %d failed attempts of a call, the last at %s: %s: %s", passed, n, last.Endpoint, last.Class, last.Cause)
	}
	return d
}

// score asks for the verdict of an episode that ended by itself. A failed or cancelled one has none: null, not zero.
func (r *Rollout) score(ctx context.Context, e *episode.Episode) {
	if r.Scorer == nil || e.Fault != nil {
		return
	}
	r.Sched.score(1)
	defer r.Sched.score(-1)
	began := time.Now()
	grading := ctx
	if r.ScoreTimeout > 0 {
		var cancel context.CancelFunc
		grading, cancel = context.WithTimeout(ctx, r.ScoreTimeout)
		defer cancel()
	}
	v, err := r.Scorer.Score(grading, e)
	e.Timing.Score = time.Since(began)
	if err != nil && ctx.Err() != nil {
		e.Fail(cancelled(context.Cause(ctx)))
		return
	}
	if err != nil {
		why := episode.ClassVerifier
		if grading.Err() != nil {
			why = episode.ClassScoreTimeout
		}
		v = episode.Verdict{Failed: true, Rewards: []episode.Reward{{
			Name: "score", Weight: 1, Outcome: episode.NoVerdict + ": " + string(why), Evidence: err.Error(),
		}}}
	}
	e.Verdict = v
}

// isolate keeps a panic in one stage of one episode from harming the others.
func (r *Rollout) isolate(e *episode.Episode, f func()) {
	defer func() {
		if x := recover(); x != nil {
			e.Fail(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassInternal, Cause: fmt.Errorf("panic: %v", x)})
		}
	}()
	f()
}
