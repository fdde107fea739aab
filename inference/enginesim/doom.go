package enginesim

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// doom is the death of an engine by a request: a bug that one prompt meets, after which nothing is answered any more.
type doom struct {
	life   context.Context // ends with the engine
	kill   context.CancelCauseFunc
	silent chan struct{} // closed before that, when the process dies with it
	once   *sync.Once
}

func newDoom() doom {
	life, kill := context.WithCancelCause(context.Background())
	return doom{life: life, kill: kill, silent: make(chan struct{}), once: &sync.Once{}}
}

func (d doom) come(silently bool) {
	d.once.Do(func() {
		if silently {
			close(d.silent)
		}
		d.kill(errDead)
	})
}

func (d doom) dead() bool { return d.life.Err() != nil }

// errDead is why the calls of a dead engine end.
var errDead = errors.New("enginesim: the engine is dead")

// until ends a request's context with the engine.
func (d doom) until(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.life, func() { cancel(errDead) })
	return ctx, func() { stop(); cancel(nil) }
}

// engineDead is what vLLM's server says for a dead engine.
func engineDead() canned {
	return nested(http.StatusInternalServerError, "InternalServerError", "EngineCore encountered an issue. See stack trace (above) for the root cause.")
}

// lastWords tells a client that the engine is dead, unless the process is too: then its connection is closed.
func (d doom) lastWords(w http.ResponseWriter) {
	select {
	case <-d.silent:
		panic(http.ErrAbortHandler)
	default:
	}
	if streaming(w) {
		_, _ = io.WriteString(w, "data: "+engineDead().body+"\n\ndata: [DONE]\n\n")
		return
	}
	engineDead().write(w)
}

// bury closes the server's port and connections once the engine is dead and has said so for a while.
func (s *Server) bury(d doom, linger time.Duration) {
	select {
	case <-d.life.Done():
	case <-s.closing:
		return
	}
	said := time.NewTimer(linger)
	defer said.Stop()
	select {
	case <-d.silent:
	case <-said.C:
	case <-s.closing:
		return
	}
	_ = s.http.Close() // whatever it says, nothing is left to be done
	close(s.died)
}
