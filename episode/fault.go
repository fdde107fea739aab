package episode

import (
	"errors"
	"fmt"
	"time"
)

// Stage is where in an episode's walk something failed.
type Stage string

// Stages, in the order of the walk.
const (
	StageInput     Stage = "input"
	StageAdmission Stage = "admission"
	StageModel     Stage = "model"
	StageAction    Stage = "action"
	StageReward    Stage = "reward"
	StageStorage   Stage = "storage"
)

// Class is a closed list of causes; summaries count by it and retry rules branch on it.
type Class string

// Classes of faults. The comment says how far things got.
const (
	ClassBadRequest      Class = "bad_request"      // the server refused this request as wrong (400, 422): never sent again
	ClassOverflow        Class = "context_overflow" // prompt, or prompt + max_tokens, over the context limit
	ClassAuth            Class = "auth"             // 401, 403
	ClassNotFound        Class = "not_found"        // 404: no such model or route
	ClassToolUse         Class = "tool_use_failed"  // the server could not read what the model wrote as a tool call, and refused it: sampled again
	ClassRateLimited     Class = "rate_limited"     // 429
	ClassServerError     Class = "server_error"     // 5xx other than 503
	ClassUnavailable     Class = "unavailable"      // 503: loading, full, draining
	ClassConnect         Class = "connect"          // no connection: the request was not sent
	ClassReset           Class = "reset"            // the connection broke before any answer byte
	ClassTimeout         Class = "timeout"          // the attempt's deadline passed
	ClassIdle            Class = "idle_timeout"     // no byte for the idle time while an answer was running
	ClassTruncatedStream Class = "truncated_stream" // the stream ended with no finish reason and no end marker
	ClassLineTooLong     Class = "line_too_long"    // an SSE line over the byte cap
	ClassMalformed       Class = "malformed_reply"  // an answer that is no such answer: bad JSON, no choices, wrong type
	ClassAborted         Class = "aborted"          // the server ended the call itself
	ClassPoison          Class = "poison"           // it alone was in flight each time an engine died: never sent again
	ClassSuspect         Class = "suspect"          // in flight when an engine died that did not come back: not tried elsewhere
	ClassNoEndpoint      Class = "no_endpoint"      // no endpoint can take the call: all dead, or limits too small
	ClassDeadline        Class = "deadline"         // the episode's total deadline passed
	ClassCancelled       Class = "cancelled"        // the run is stopping
	ClassActionPanic     Class = "action_panic"     // a tool's own code panicked
	ClassHarness         Class = "harness_error"    // the sandbox or tool set could not do its job
	ClassVerifier        Class = "verifier_error"   // a grader failed: no verdict
	ClassScoreTimeout    Class = "score_timeout"    // a grader did not end in time: no verdict
	ClassDisk            Class = "disk"             // the dataset could not be written
	ClassInternal        Class = "internal"         // a bug here
)

// Fault is a failure with what is needed to act on it. It is an error; use errors.As to reach it.
type Fault struct {
	Stage Stage
	Class Class
	Cause error // what happened, for people; never branched on
	// Retry says that the same call may succeed later or elsewhere.
	Retry bool
	// Died says that the server itself said that its engine is dead: this attempt, or another one in flight, may have killed it.
	Died bool
	// Refused says that the endpoint refuses whatever is asked of it, not this call: the key is wrong, the account empty, no such model or route there.
	// The call may be sent elsewhere, never there again.
	Refused bool
	// After is the wait the server asked for (Retry-After); 0 = none given.
	After time.Duration
	// Limit is the context limit the server named in an overflow, tokens; 0 = not named. Prompt is its count of our prompt.
	Limit, Prompt int
	// Partial is the text received before the failure; kept in the failure row.
	Partial string
	// Raw is the answer that was the failure, or what had come of one, as it came; nil = none came, or none are kept.
	Raw *Raw
	// Wasted is the number of tokens the attempt generated for nothing: counted by the server or by what came; estimated where only text came.
	Wasted int
	// Answer is what the server said to a Call.Request it refused; nil = it said nothing, or there was none.
	Answer *Answer
	// Attempts lists when each attempt of the call ended and how, the last one included. Filled by the scheduler.
	Attempts []Attempt
}

// Attempt is one failed try of a call.
type Attempt struct {
	Endpoint string    `json:"endpoint"`
	Class    Class     `json:"class"`
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"`
	Cause    string    `json:"cause,omitempty"`
}

func (f *Fault) Error() string {
	if f.Cause == nil {
		return fmt.Sprintf("%s: %s", f.Stage, f.Class)
	}
	return fmt.Sprintf("%s: %s: %v", f.Stage, f.Class, f.Cause)
}

func (f *Fault) Unwrap() error { return f.Cause }

// AsFault returns err's Fault, or wraps err as an internal fault of that stage. nil stays nil.
func AsFault(stage Stage, err error) *Fault {
	if err == nil {
		return nil
	}
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return &Fault{Stage: stage, Class: ClassInternal, Cause: err}
}
