package inference

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"tranche/episode"
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

// limits are the deadlines of one attempt; 0 = none.
type limits struct{ attempt, idle time.Duration }

// limits are the configured deadlines, lengthened for a call of that size.
func (c Config) limits(prompt, answer int) limits {
	return limits{episode.Stretch(c.AttemptTimeout, prompt, answer), episode.Stretch(c.IdleTimeout, prompt, answer)}
}

func newWatch(caller context.Context, l limits) *watch {
	w := &watch{caller: caller, idleFor: l.idle}
	w.ctx, w.cancel = context.WithCancelCause(caller)
	if d := l.attempt; d > 0 {
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

// reader watches the gaps in an answer, from its first byte on. What only keeps the connection alive, comments in a stream and white space
// before a body, is none of it: an engine that hangs behind a server that pings is found out.
func (w *watch) reader(r io.Reader) io.Reader {
	if w.idleFor <= 0 {
		return r
	}
	return &idleReader{r: r, w: w, fresh: true}
}

type idleReader struct {
	r       io.Reader
	w       *watch
	fresh   bool // a line begins
	comment bool // the line is one
}

func (i *idleReader) Read(p []byte) (int, error) {
	n, err := i.r.Read(p)
	switch {
	case !i.tells(p[:n]):
	case i.w.idle == nil:
		d := i.w.idleFor
		i.w.idle = time.AfterFunc(d, func() { i.w.cancel(&deadlineError{after: d, idle: true}) })
	default:
		i.w.idle.Reset(i.w.idleFor)
	}
	return n, err
}

// tells reports whether there is something of the answer in b.
func (i *idleReader) tells(b []byte) (something bool) {
	for len(b) > 0 {
		if i.fresh {
			i.comment = b[0] == ':'
		}
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		if !i.comment && len(bytes.TrimSpace(line)) > 0 {
			something = true
		}
		if last := bytes.LastIndexByte(rest, '\n'); something && last >= 0 {
			rest = rest[last+1:] // what lies between makes no difference
		}
		i.fresh = ended
		b = rest
	}
	return something
}
