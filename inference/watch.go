package inference

import (
	"context"
	"errors"
	"io"
	"time"
)

// watch ends one attempt when one of its clocks runs out, and knows afterwards which one it was.
type watch struct {
	caller  context.Context
	ctx     context.Context // the attempt's own
	cancel  context.CancelCauseFunc
	attempt *time.Timer // nil = no bound
	idle    *time.Timer // nil = no bound, or no byte yet
	idleFor time.Duration
	grace   *time.Timer // nil = the answer is not finished yet
}

// errGrace is the cause when an answer was finished and its stream stayed open.
var errGrace = errors.New("the answer was finished, its stream stayed open")

func newWatch(caller context.Context, cfg Config) *watch {
	w := &watch{caller: caller, idleFor: cfg.IdleTimeout}
	w.ctx, w.cancel = context.WithCancelCause(caller)
	if d := cfg.AttemptTimeout; d > 0 {
		w.attempt = time.AfterFunc(d, func() { w.cancel(&deadlineError{after: d}) })
	}
	return w
}

// finished says that the answer is complete: what may still come gets this long.
func (w *watch) finished(grace time.Duration) {
	if w.grace == nil {
		w.grace = time.AfterFunc(grace, func() { w.cancel(errGrace) })
		return
	}
	w.grace.Reset(grace)
}

// stop frees the clocks. A connection whose answer was not read to the end is closed by it.
func (w *watch) stop() {
	for _, t := range [...]*time.Timer{w.attempt, w.idle, w.grace} {
		if t != nil {
			t.Stop()
		}
	}
	w.cancel(nil)
}

// why replaces the transport's error by the reason this side had for ending the attempt, if it had one.
func (w *watch) why(err error) error {
	if err := w.caller.Err(); err != nil {
		return &callerError{err}
	}
	var deadline *deadlineError
	if cause := context.Cause(w.ctx); errors.As(cause, &deadline) {
		return deadline
	}
	return err
}

// reader watches the gaps between bytes, from the first byte on.
func (w *watch) reader(r io.Reader) io.Reader {
	if w.idleFor <= 0 {
		return r
	}
	return &idleReader{r: r, w: w}
}

type idleReader struct {
	r io.Reader
	w *watch
}

func (i *idleReader) Read(p []byte) (int, error) {
	n, err := i.r.Read(p)
	switch {
	case n == 0:
	case i.w.idle == nil:
		d := i.w.idleFor
		i.w.idle = time.AfterFunc(d, func() { i.w.cancel(&deadlineError{after: d, idle: true}) })
	default:
		i.w.idle.Reset(i.w.idleFor)
	}
	return n, err
}
