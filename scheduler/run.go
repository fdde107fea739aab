package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tranche/episode"
)

// RunConfig is one run: where draws come from, how an episode is opened, where it goes when it has ended.
type RunConfig struct {
	Source  episode.Source
	Open    func(d episode.Draw, sample int) *episode.Episode // makes an episode; called by the feeder alone
	Done    func(episodeID string) bool                       // nil = nothing is done yet
	Good    func(episodeID string) bool                       // of what is done: it ended well, and counts for a quorum; nil = all did
	Quorum  Quorum                                            // when to cut; the zero value waits for everything
	Rollout *Rollout
	Sink    episode.Sink
	MaxOpen int             // episodes open at once; default 256
	Stop    <-chan struct{} // closed = open no more, drain, cut what is left; nil = never
	Drain   time.Duration   // how long running episodes may go on after Stop
	// MaxFailedShare ends the run when more than this share of at least MinSettled episodes failed; 0 = never.
	MaxFailedShare float64
	// MaxUnscoredShare ends the run when graders failed (episode.Verdict.Failed) on more than this share of at least MinSettled
	// episodes that ended well; 0 = never.
	MaxUnscoredShare float64
	// Unscored counts episodes on which graders failed after they were stored, and those that were graded then; asked when an episode is
	// stored, and held to MaxUnscoredShare by itself. nil = there are none such.
	Unscored   func() (failed, graded int64)
	MinSettled int // default 50
	Trace      Trace
}

// Totals counts what became of the episodes of this invocation. Drawn = Skipped + Done + Failed + Cancelled + Cut when Run returns.
type Totals struct {
	Drawn, Skipped, Done, Failed, Cancelled int64
	Cut                                     int64 // by the quorum, and dropped: written as such
	Bias                                    Bias  // what the quorum did to the lengths; zero without one
}

// Errors that end a run before its source does. What was written stays; the run can be resumed.
var (
	ErrStopped         = errors.New("the run was stopped")
	ErrEndpointsDead   = errors.New("no endpoint answers any more")
	ErrTooManyFailed   = errors.New("too large a share of the episodes failed")
	ErrTooManyUnscored = errors.New("graders failed on too large a share of the episodes")
)

// Run plays every episode of the source that is not done yet and writes each to the sink. It returns when all have ended; the
// error says why the run could not go on (ErrStopped after Stop), nil when the source was played to its end. A failed episode
// is not an error.
func Run(ctx context.Context, cfg RunConfig) (Totals, error) {
	def(&cfg.MaxOpen, 256)
	def(&cfg.MinSettled, 50)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &run{cfg: cfg, cancel: cancel, slots: make(chan struct{}, cfg.MaxOpen), stop: make(chan struct{})}
	r.drawing, r.endDrawing = context.WithCancel(ctx)
	defer r.endDrawing()
	r.learner, _ = cfg.Source.(episode.Learner)
	if cfg.Quorum.on() {
		r.trimmer = newTrimmer(cfg.Quorum)
	}
	stopWatch := r.watchStop(ctx)
	err := r.feed(ctx)
	cfg.Rollout.Sched.NoMore()
	r.episodes.Wait()
	err = errors.Join(err, r.lastRound(ctx, err))
	r.episodes.Wait()
	stopWatch()
	return r.totals(), r.verdict(ctx, err)
}

type run struct {
	cfg      RunConfig
	cancel   context.CancelCauseFunc
	slots    chan struct{} // one token an open episode
	stop     chan struct{} // closed: open no more
	stopping sync.Once
	episodes sync.WaitGroup
	trimmer  *trimmer        // nil = nothing is cut
	learner  episode.Learner // the source, if it is to know what came of its draws; else nil

	drawing    context.Context // ends with the run, and as soon as no more is to be opened: a source may be waiting for outcomes
	endDrawing context.CancelFunc

	drawn, skipped, done, failed, cancelled, cut atomic.Int64
	unscored                                     atomic.Int64 // of done: a grader failed
}

// watchStop turns the caller's Stop into no new episodes at once and a cut after the drain time. The returned function ends
// and awaits it.
func (r *run) watchStop(ctx context.Context) func() {
	over := make(chan struct{})
	var w sync.WaitGroup
	w.Go(func() {
		select {
		case <-r.cfg.Stop:
		case <-over:
			return
		}
		r.halt()
		r.cfg.Rollout.Sched.halt(ErrStopped)
		if r.cfg.Rollout.Sched.AllDead() { // nothing that runs can end well
			r.cancel(ErrStopped)
			return
		}
		select {
		case <-time.After(r.cfg.Drain):
			r.cancel(ErrStopped)
		case <-over:
		}
	})
	return func() { close(over); w.Wait() }
}

// halt stops opening episodes.
func (r *run) halt() { r.stopping.Do(func() { close(r.stop); r.endDrawing() }) }

// feed draws and opens until the source ends or the run is stopped.
func (r *run) feed(ctx context.Context) error {
	for {
		select {
		case <-r.stop:
			return ErrStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		d, err := r.cfg.Source.Next(r.drawing)
		switch {
		case errors.Is(err, episode.ErrEnd):
			return nil
		case err != nil && r.drawing.Err() != nil:
			continue // why it ended is told above
		case err != nil:
			r.cancel(err)
			return fmt.Errorf("draw the next task: %w", err)
		}
		if err := r.open(ctx, d); err != nil {
			return err
		}
	}
}

// open starts the episodes of one draw, back to back, each as a slot becomes free.
func (r *run) open(ctx context.Context, d episode.Draw) error {
	for sample, to := d.Span(); sample < to; sample++ {
		e := r.cfg.Open(d, sample)
		if r.cfg.Done != nil && r.cfg.Done(e.ID) {
			r.drawn.Add(1)
			r.skipped.Add(1)
			r.cfg.Trace.skipped(e.ID)
			if r.trimmer != nil {
				r.trimmer.found(e, r.cfg.Good == nil || r.cfg.Good(e.ID))
			}
			continue
		}
		if err := r.start(ctx, e, d, sample); err != nil {
			return err
		}
		r.drawn.Add(1)
	}
	return nil
}

// start plays an episode in a goroutine of its own, as soon as a slot is free.
func (r *run) start(ctx context.Context, e *episode.Episode, d episode.Draw, sample int) error {
	select {
	case r.slots <- struct{}{}:
	case <-r.stop:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	r.episodes.Go(func() {
		defer func() { <-r.slots }()
		if r.play(ctx, e) {
			r.trimmer.putOff(d, sample, e)
			return
		}
		r.store(ctx, e)
	})
	return nil
}

// lastRound plays what the quorum put off, when all else has ended well; else it stays undone and a resumed run plays it.
func (r *run) lastRound(ctx context.Context, fed error) error {
	if r.trimmer == nil {
		return nil
	}
	left := r.trimmer.lastRound()
	for i, d := range left {
		if fed == nil {
			e := r.cfg.Open(d.draw, d.sample)
			e.Begun, e.Attempt = nil, d.attempt // from its beginning, also where the turns before the cut are known
			fed = r.start(ctx, e, d.draw, d.sample)
		}
		if fed != nil {
			r.cancelled.Add(int64(len(left) - i))
			return fed
		}
	}
	return nil
}

// play plays one episode to its end. It reports whether it was cut and is to be played again.
func (r *run) play(ctx context.Context, e *episode.Episode) (again bool) {
	e.Created = time.Now()
	r.cfg.Trace.opened(e)
	defer r.cfg.Trace.closed(e)
	if r.trimmer == nil {
		r.cfg.Rollout.Run(ctx, e)
		r.judge(e)
		return false
	}
	ctx, release := r.trimmer.begin(ctx, e)
	defer release()
	if errors.Is(context.Cause(ctx), errQuorum) {
		r.cfg.Rollout.unplayed(e, cancelled(errQuorum))
	} else {
		r.cfg.Rollout.Run(ctx, e)
	}
	r.judge(e)
	if !r.trimmer.end(ctx, e) {
		return false
	}
	e.Stop = episode.StopQuorum
	return r.cfg.Quorum.Defer
}

// store writes an episode that has ended.
func (r *run) store(ctx context.Context, e *episode.Episode) {
	if e.Status == episode.StatusCancelled && e.Stop != episode.StopQuorum {
		r.cancelled.Add(1)
		if r.learner != nil { // it is not told of what is not stored, and may not wait for it
			r.halt()
		}
		return
	}
	if err := r.cfg.Sink.Write(context.WithoutCancel(ctx), e); err != nil {
		r.cancelled.Add(1)
		r.halt()
		r.cancel(err) // it names the episode
		return
	}
	r.tell(e)
	if e.Status == episode.StatusCancelled {
		r.cut.Add(1)
		return
	}
	if e.Status != episode.StatusFailed {
		r.done.Add(1)
		if e.Verdict.Failed {
			failed := r.unscored.Add(1)
			r.giveUp(ErrTooManyUnscored, r.cfg.MaxUnscoredShare, failed, r.done.Load()) // counted after: never fewer than failed
		}
		if r.cfg.Unscored != nil {
			failed, graded := r.cfg.Unscored()
			r.giveUp(ErrTooManyUnscored, r.cfg.MaxUnscoredShare, failed, graded)
		}
		return
	}
	failed := r.failed.Add(1)
	r.giveUp(ErrTooManyFailed, r.cfg.MaxFailedShare, failed, failed+r.done.Load())
}

// giveUp ends the run where bad is more than a share of all, and there are enough to tell.
func (r *run) giveUp(why error, share float64, bad, all int64) {
	if share > 0 && all >= int64(r.cfg.MinSettled) && float64(bad) > share*float64(all) {
		r.halt()
		r.cancel(fmt.Errorf("%w: %d of %d", why, bad, all))
	}
}

// tell passes on what came of an episode.
func (r *run) tell(e *episode.Episode) {
	if r.learner != nil {
		r.learner.Learn(episode.Outcome{TaskID: e.Task.ID, Round: e.Round, Sample: e.Sample, Reward: e.Verdict.Total})
	}
}

// judge keeps the death of all endpoints from becoming a failure of every episode: the run ends and can be resumed.
func (r *run) judge(e *episode.Episode) {
	if e.Fault == nil || !blamesAll(e.Fault) || !r.cfg.Rollout.Sched.AllDead() {
		return
	}
	e.Status = episode.StatusCancelled
	r.halt()
	r.cancel(fmt.Errorf("%w: %w", ErrEndpointsDead, e.Fault))
}

// blamesAll says whether a fault is that of the endpoints, and no episode could have ended otherwise.
func blamesAll(f *episode.Fault) bool {
	return f.Refused || f.Class == episode.ClassNoEndpoint || f.Class == episode.ClassSuspect
}

func (r *run) totals() Totals {
	t := Totals{Drawn: r.drawn.Load(), Skipped: r.skipped.Load(), Done: r.done.Load(), Failed: r.failed.Load(), Cancelled: r.cancelled.Load(), Cut: r.cut.Load()}
	if r.trimmer != nil {
		t.Bias = r.trimmer.biasNow()
	}
	return t
}

// verdict is the run's error: the cause that ended it, unless everything was played all the same.
func (r *run) verdict(ctx context.Context, fed error) error {
	cause := context.Cause(ctx)
	if cause == nil {
		select {
		case <-r.stop: // and what had not begun was given back, if anything
			cause = ErrStopped
		default:
		}
	}
	if cause != nil && (fed != nil || r.cancelled.Load() > 0) {
		return cause
	}
	return fed
}
