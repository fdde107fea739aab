package enginesim

import (
	"math"
	"time"
)

// Never is the time of what does not come.
const Never = time.Duration(math.MaxInt64)

// Replica is a Model in virtual time, for a discrete-event simulation. It keeps the time of its own steps and runs them as late as it
// may, many at once where nothing happens. The simulation takes the replica with the earliest Next, calls Run for that time, and offers
// whatever follows. Times given must not fall. Not safe for concurrent use.
//
// A step in progress is never disturbed, as on a real engine: what is offered or aborted during it counts from its end.
type Replica struct {
	model  *Model
	at     time.Duration // when the last step run ends; may lie ahead
	stuck  bool          // nobody runs and the head of the queue is too long for the memory
	wake   time.Duration // nothing is to be told or begun before; Never = idle
	untold []Event       // of steps run
	given  []Event       // what Run returned last; its memory serves again
}

// NewReplica builds an idle replica. The configuration has been validated.
func NewReplica(c Config) *Replica { return &Replica{model: NewModel(c), wake: Never} }

// Next is the earliest time at which there may be something to run; Never on an idle replica.
func (r *Replica) Next() time.Duration { return r.wake }

// Run goes on to now. It returns what has happened by now and was not told; the events are valid until the next call of Run. Events that
// come with the end of a step are returned before the next step begins, so that what is offered in answer to them takes part in it.
func (r *Replica) Run(now time.Duration) []Event {
	r.given = r.given[:0]
	if now < r.wake {
		return nil
	}
	r.reach(now)
	if len(r.untold) == 0 && r.at <= now {
		r.begin()
	}
	if r.at <= now { // else they are of the step in progress
		r.given, r.untold = r.untold, r.given
	}
	r.plan()
	return r.given
}

// Offer puts a request in the queue.
func (r *Replica) Offer(q Request, now time.Duration) {
	r.reach(now)
	r.model.Offer(q, now)
	r.stuck = false
	r.plan()
}

// Abort forgets a request; false when there is none, or when the step in progress ends it.
func (r *Replica) Abort(id uint64, now time.Duration) bool {
	r.reach(now)
	ok := r.model.Abort(id)
	r.stuck = r.stuck && !ok
	r.plan()
	return ok
}

// Counters are the model's as of the end of the step in progress.
func (r *Replica) Counters() Counters { return r.model.Counters() }

// reach runs the quiet steps that begin before now.
func (r *Replica) reach(now time.Duration) {
	if r.model.Idle() {
		r.at = max(r.at, now)
		return
	}
	for r.at < now && len(r.untold) == 0 && !r.stuck {
		events, d := r.model.Advance(r.at, now)
		r.stuck = d == 0
		r.at += d
		r.untold = append(r.untold, events...)
	}
}

// begin runs the next step.
func (r *Replica) begin() {
	events, d := r.model.Step(r.at)
	r.stuck = d == 0
	r.at += d
	r.untold = append(r.untold, events...)
}

func (r *Replica) plan() {
	switch {
	case len(r.untold) > 0:
		r.wake = r.at
	case r.model.Idle(), r.stuck:
		r.wake = Never
	default:
		r.wake = r.at + r.model.Quiet()
	}
}
