package episode

import (
	"context"
	"errors"
	"io"
)

// ErrEnd is what a Source returns when there is nothing more to draw.
var ErrEnd = io.EOF

// Source hands out draws. The run's feeder is its only caller, one call at a time. It returns ErrEnd at the end; any other
// error ends the run. The Task in a Draw stays valid and unchanged for as long as anyone holds it.
type Source interface {
	Next(ctx context.Context) (Draw, error)
}

// Outcome is what came of one episode of a draw.
type Outcome struct {
	TaskID        string
	Round, Sample int
	Reward        *float64 // nil = no verdict: it failed, was cut, or was not scored
}

// Learner is a Source that is to know what came of its draws. Learn is called once an episode, when its row is durable: from many episodes
// at once, also while Next waits. It returns soon. An episode that was stopped with the run is not told, and neither is one that earlier
// invocations stored; a Learner's Next may wait for outcomes, until its ctx ends.
type Learner interface {
	Learn(o Outcome)
}

// Model makes one attempt of one call at one endpoint: no retry, no queue, no choice of endpoint. The scheduler calls it from
// many goroutines at once. maxTokens is the clamped budget, always sent; 0 = let the server decide. Every error is a *Fault
// with StageModel. It returns soon after ctx is done, having closed the connection.
type Model interface {
	Generate(ctx context.Context, c *Call, attempt int, maxTokens int) (*Reply, error)
}

// Actor carries out the actions of one reply and returns one observation for each, in order. It is called from many episodes at
// once and owns its concurrency. It never returns an error: what went wrong is in the observation, and one bad action never
// harms another. Tools returns the tool definitions (OpenAI JSON list) an episode of this task is offered, nil for none, and
// whether all of them can be run here.
type Actor interface {
	Tools(t *Task) (defs []byte, runnable bool, err error)
	Do(ctx context.Context, e *Episode, acts []Action) []Observation
}

// Ender is an Actor that is to know when it is over with an episode. End is called once for each time an episode is played, on every path,
// after the last Do has returned and the episode is graded, from many episodes at once. It returns within a bound of its own; the episode
// is written after it.
type Ender interface {
	End(e *Episode)
}

// Reader is an Actor for models that write their calls into their text. Prepare is called once, before the first call of an episode: it
// says in the prompt what can be called and how, and adds stop strings. Read is called with each reply before the episode takes it, and
// puts the call that stands in its text into Message.Written. Both return at once and are called from many episodes at once. An Actor that
// reads no text does nothing in either.
type Reader interface {
	Prepare(e *Episode) error
	Read(e *Episode, r *Reply)
}

// Keeper is an Actor that can tell where the state of an episode is. Keeps names the tools that hold something of it which its messages do not
// tell: variables, files, a connection. None = it can be gone on with in another process, from its messages alone. It is called
// between two turns of the episode, from many episodes at once, and returns at once. An Actor that cannot tell is taken to hold something of every episode that
// has acted.
type Keeper interface {
	Keeps(e *Episode) (tools []string)
}

// TurnLog keeps what each turn adds to an episode that goes on, so that it need not begin again when the process is killed. KeepTurn is called after
// the turn, before the next call is asked, from many episodes at once; nobody waits for a disk to be sure of it, and what is lost costs a turn that is played
// again, never a row. There is no error to handle: where the disk fails, Sink says so. It must not keep e or s after it returns.
type TurnLog interface {
	KeepTurn(e *Episode, s *Step)
}

// Scorer turns a closed episode into numbers. It is called from many episodes at once, reads the episode and does not change
// it. It returns an error only when it could not be asked at all (ctx done, pool closed); a grader's own failure is a component
// without a score.
type Scorer interface {
	Score(ctx context.Context, e *Episode) (Verdict, error)
}

// Sink takes finished episodes. It is called from many episodes at once; when it returns nil the episode survives kill -9.
// An error means that the run cannot go on; it names the episode. It must not keep the *Episode after it returns.
type Sink interface {
	Write(ctx context.Context, e *Episode) error
}

// Counter tells the exact length of a call's prompt in the endpoint's own tokens, by asking the server. The scheduler asks only
// when its estimate comes near a limit. ErrUnsupported means that this server has no way to tell.
type Counter interface {
	Count(ctx context.Context, c *Call) (tokens int, err error)
}

// Gauge reads a server's own load figures. One caller per endpoint, every few seconds. ErrUnsupported means that the server
// offers none; any other error means that this reading failed.
type Gauge interface {
	Load(ctx context.Context) (Load, error)
}

// ErrUnsupported is what optional seams return when the other side cannot do it at all.
var ErrUnsupported = errors.New("not supported by this server")
