package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tranche/episode"
)

// Tool is one thing a model can call. Its methods are called from many episodes at once.
//
// A tool that runs untrusted code, keeps a session or touches files holds its own executor and keys what it keeps by
// Env.Episode; nothing of that is known here, but for its end (see Ender). What such a run needs to tell has its place in Result: exit code, CPU time,
// limit tier, and bytes that were dropped before they reached this process.
type Tool interface {
	// Name is what the model calls it by: letters, digits, _ and -, at most 64.
	Name() string
	// Definition is the OpenAI tool definition, {"type":"function","function":{"name","description","parameters"}}. The
	// parameters are a JSON schema; Run is only called with arguments that fit it.
	Definition() json.RawMessage
	// Run carries out one call. args is a JSON object. It must return soon after ctx is done; one that does not is
	// abandoned, its result thrown away. A *ToolError is the model's to handle and becomes an observation. Any other error
	// says that the tool could not do its job: the episode fails and gets no reward. When ctx ended first, a Result
	// returned within a quarter of a second is still shown to the model as what came before the cut.
	Run(ctx context.Context, args json.RawMessage, env Env) (Result, error)
}

// Ender is a Tool that keeps something for an episode between its runs: a session, a sandbox, files.
type Ender interface {
	// End lets go of what is kept for an episode; episode is the Env.Episode of its runs. It is called once, when the episode has been
	// graded, however it ended (done, failed, cancelled), and also for one that was offered the tool and never called it. No run begins
	// after it, but one that was abandoned may still go on: End should put an end to that too. It is called for many episodes at once, in
	// the pool of the runs and under their time limit; the row is written after it. An error, or the failure to return in time, is
	// told in the summary and harms no episode. A process that is killed calls nothing: what has to go then needs an owner outside.
	End(ctx context.Context, episode string) error
}

// Keeper is a Tool that says whether it holds something of an episode between its runs which the episode's messages do not tell: variables of a
// session, files, a connection, an entry in somebody's database. An episode whose tools hold nothing can be gone on with in another process after a crash. Keeps is called
// between runs and returns at once; episode is the Env.Episode of its runs. A Tool that does not say so is taken to hold something of every episode that has
// called it.
type Keeper interface {
	Keeps(episode string) bool
}

// Repeatable is a Tool that says whether a run of it may be repeated: that twice does no more than once. A run of such a tool that
// could not do its job is repeated once, with the same arguments and action id, within the same time limit.
type Repeatable interface {
	Repeatable() bool
}

// Timed is a Tool with a time limit of its own for one run, in the place of Config.Timeout; 0 = that one.
type Timed interface {
	Timeout() time.Duration
}

// Waiter is a Tool whose runs need something scarce first: a sandbox, a core. Wait is called before a run is queued and returns when the run
// may begin: it holds no worker, and no time limit counts but the episode's, so a full house makes an action longer and is never a
// timeout. Actions of one reply wait one after the other. done is called once, when the run has ended, however late, or will never
// begin. An error that is not ctx's says that the tool cannot do its job.
type Waiter interface {
	Wait(ctx context.Context, env Env) (done func(), err error)
}

// ErrNotRun in an error of Run says that nothing was done at all: no process was started, no request was sent. Such a run of any tool is
// repeated once.
var ErrNotRun = errors.New("it was not begun")

// Env is what a tool may know of where it runs.
type Env struct {
	Episode string        // episode id
	Action  string        // action id, unique; fit to name a file or a sandbox request
	Turn    int           // model call that asked for it, from 0
	Task    *episode.Task // read-only, shared
}

// Result is what one run gave back.
type Result struct {
	Text      string             // what the model sees; cut to the cap afterwards
	Done      bool               // the episode ends here
	Submitted *string            // the answer handed in, when Done
	ExitCode  *int32             // of the process, where there was one
	CPU       *time.Duration     // nil = not measured
	OutBytes  int64              // bytes produced, where the tool kept only part of them; 0 = the length of Text
	Truncated bool               // the tool kept only part of the output
	Tier      string             // limit tier in force; "" where none applies
	Rootfs    string             // digest of the root file system that was declared; "" = the host's, or none applies
	Footprint *episode.Footprint // of a run in a sandbox; nil = there was none
}

// ToolError is a failure that the model can do something about: a wrong argument, a program that ended badly.
type ToolError struct {
	Text     string // told to the model as it is, after "error: "
	TimedOut bool   // the tool itself ended the run at its time limit
}

func (e *ToolError) Error() string { return e.Text }

// Reject makes a *ToolError, worded for the model.
func Reject(format string, args ...any) *ToolError {
	return &ToolError{Text: fmt.Sprintf(format, args...)}
}

// Builtins returns the tools that come with the program.
func Builtins() []Tool { return []Tool{Calculator{}, Submit{}} }
