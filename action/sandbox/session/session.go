package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tranche/action/sandbox"
)

// Kind is an interpreter.
type Kind string

// The kinds.
const (
	Python Kind = "python" // python3, 3.8 or later
	Bash   Kind = "bash"
)

// Options say what a session is.
type Options struct {
	Kind Kind
	// Modules are imported before the first call of a python session. Default none.
	Modules []string
	// Keep is how many bytes of one call's output are kept. Default sandbox.DefaultKeep.
	Keep int
	// Grace is how long a call may go on after it was interrupted, before the interpreter is killed. Default 2s.
	Grace time.Duration
	// Env is added to the interpreter's environment, KEY=VALUE.
	Env []string
}

// DefaultGrace is the grace where Options.Grace is 0.
const DefaultGrace = 2 * time.Second

// Limits bound one call. Zero is no limit.
type Limits struct {
	Wall time.Duration
	CPU  time.Duration // of the interpreter and all that it started
}

// Result is what became of one call.
type Result struct {
	Status     sandbox.Status // nonzero for an exception and for an exit code other than 0
	Exit       int            // exit code of the call; 1 for an exception; -1 where there is none
	Raised     string         // class of the exception that ended a python call
	Output     sandbox.Output // what was printed since the call before, stdout and stderr in order
	Wall       time.Duration
	Usage      sandbox.Usage // of this call; its memory is the peak so far
	LeftBehind int           // processes that it had left and that were killed with the interpreter
	Lost       bool          // the interpreter is gone, and all of its state: the next call begins a new one
	Why        string        // in words, where Lost
}

// Session is one interpreter in a sandbox; while none runs, the next call begins one. One goroutine uses it at a time.
type Session struct {
	box  sandbox.Sandbox
	opt  Options
	live *interpreter
}

// New returns a session that begins at its first call.
func New(box sandbox.Sandbox, opt Options) (*Session, error) {
	if opt.Kind != Python && opt.Kind != Bash {
		return nil, fmt.Errorf("session: kind %q, expected %s or %s", opt.Kind, Python, Bash)
	}
	if opt.Kind == Bash && len(opt.Modules) > 0 {
		return nil, errors.New("session: modules are python's; bash has none")
	}
	if opt.Grace == 0 {
		opt.Grace = DefaultGrace
	}
	return &Session{box: box, opt: opt}, nil
}

// Start begins the interpreter now, where the first call would. The error is as Do's.
func (s *Session) Start(ctx context.Context) error {
	if s.live != nil {
		return nil
	}
	in, err := begin(ctx, s.box, s.opt)
	s.live = in
	return err
}

// InputError says that a text cannot be run at all. Nothing ran.
type InputError struct{ Why string }

func (e *InputError) Error() string { return e.Why }

// Do runs code in the session and returns when it has ended or was ended. ctx being done kills the interpreter without a grace. An
// error is the executor's, or an *InputError.
func (s *Session) Do(ctx context.Context, code string, lim Limits) (Result, error) {
	if s.opt.Kind == Bash && strings.IndexByte(code, 0) >= 0 {
		return Result{}, &InputError{"bash code cannot hold a zero byte"}
	}
	if err := s.Start(ctx); err != nil {
		return Result{}, err
	}
	r, err := s.live.do(ctx, code, lim)
	if r.Lost || err != nil {
		s.live = nil
	}
	return r, err
}

// Open tells whether an interpreter is running.
func (s *Session) Open() bool { return s.live != nil }

// Close kills the interpreter and what it started.
func (s *Session) Close() error {
	if s.live == nil {
		return nil
	}
	in := s.live
	s.live = nil
	_, err := in.kill()
	return err
}
