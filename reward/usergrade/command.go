package usergrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"tranche/internal/ends"
	"tranche/internal/offspring"
	"tranche/reward"
)

// KindCommand is the kind of grader that is a program of the user's.
const KindCommand = "command"

// How a program is run.
const (
	Each   = "each"   // one process for each grading: the case on standard input, the answer on standard output
	Worker = "worker" // processes that live on: a line in, a line out
)

// ExitUnable is the exit status of a program that could not do its job now (EX_TEMPFAIL of sysexits.h): it is asked again.
const ExitUnable = 75

type commandOptions struct {
	Run     []string        `json:"run"`     // the program and its arguments; no shell is in between
	Dir     string          `json:"dir"`     // where it runs
	Env     []string        `json:"env"`     // names of environment variables it gets
	Mode    string          `json:"mode"`    // each or worker. Default each
	Timeout time.Duration   `json:"timeout"` // of one grading. Default --score-timeout
	Options json.RawMessage `json:"options"` // handed on in the case
}

// command is the grader.
type command struct {
	opt     commandOptions
	name    string
	env     []string
	hide    func(string) string
	workers *crew // nil with Each
}

var (
	_ reward.Grader  = (*command)(nil)
	_ reward.Timed   = (*command)(nil)
	_ reward.Decided = (*command)(nil)
)

func newCommand(s reward.Spec, h Host) (*command, error) {
	c := &command{name: s.Name, opt: commandOptions{Mode: Each}}
	if err := reward.ReadOptions(s, &c.opt); err != nil {
		return nil, err
	}
	var err error
	c.env, c.hide, err = h.Environment(c.opt.Env)
	errs := []error{err}
	if len(c.opt.Run) == 0 || c.opt.Run[0] == "" {
		errs = append(errs, errors.New("run: is missing; expected a list: the program, then its arguments"))
	} else {
		errs = append(errs, h.CanStart(c.opt.Run[0], c.opt.Dir))
	}
	if !slices.Contains([]string{Each, Worker}, c.opt.Mode) {
		errs = append(errs, fmt.Errorf("mode: %q, expected %s or %s", c.opt.Mode, Each, Worker))
	}
	if c.opt.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout: %s, expected more than 0s", c.opt.Timeout))
	}
	if c.opt.Mode == Worker {
		c.workers = &crew{start: c.startWorker}
	}
	return c, errors.Join(errs...)
}

// ID is the kind and its version.
func (*command) ID() string { return KindCommand + "/1" }

// Timeout is the configured one.
func (c *command) Timeout() time.Duration { return c.opt.Timeout }

// Decides is all but where the program runs and how long it may.
func (c *command) Decides() string {
	o := c.opt
	o.Dir, o.Timeout = "", 0
	return digestable(o)
}

// Grade hands the case to a program.
func (c *command) Grade(ctx context.Context, in reward.Input) (reward.Finding, error) {
	if c.workers != nil {
		return c.workers.grade(ctx, c, in)
	}
	text, err := newCase(c.name, c.opt.Options, in, 0)
	if err != nil {
		return reward.Finding{}, err
	}
	out, cpu, err := c.run(ctx, text)
	cost := reward.Cost{CPU: cpu}
	if err != nil {
		return reward.Finding{Cost: cost}, err
	}
	f, err := c.said(out)
	f.Cost = cost
	return f, err
}

// said reads an answer.
func (c *command) said(raw []byte) (reward.Finding, error) {
	a, err := read(raw)
	if err != nil {
		return reward.Finding{}, errors.New(c.hide(fmt.Sprintf("%s: %v", c.opt.Run[0], err)))
	}
	return a.finding(c.hide)
}

// run starts the program and waits for its end, or ends it with ctx.
func (c *command) run(ctx context.Context, stdin []byte) (out []byte, cpu time.Duration, err error) {
	stdout, stderr := ends.KeepHead(maxAnswer+1), ends.KeepTail(4<<10)
	cmd := exec.CommandContext(ctx, c.opt.Run[0], c.opt.Run[1:]...)
	cmd.Dir, cmd.Env = c.opt.Dir, c.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), stdout, stderr
	offspring.Bind(cmd)
	defer offspring.Leash(cmd)()
	if err := cmd.Start(); err != nil {
		return nil, 0, &reward.Unjudged{Reason: Died, Detail: fmt.Sprintf("start %s: %v", c.opt.Run[0], err), Retry: true}
	}
	err = cmd.Wait()
	offspring.End(cmd)
	state := cmd.ProcessState
	if state != nil {
		cpu = state.UserTime() + state.SystemTime()
	}
	switch {
	case ctx.Err() != nil:
		return nil, cpu, ctx.Err()
	case state == nil || !state.Exited():
		return nil, cpu, &reward.Unjudged{Reason: Died, Detail: c.told(err, stderr), Retry: true}
	case state.ExitCode() == ExitUnable:
		return nil, cpu, &reward.Unjudged{Reason: Unable, Detail: c.told(err, stderr), Retry: true}
	case state.ExitCode() != 0:
		return nil, cpu, errors.New(c.told(err, stderr))
	}
	return stdout.Bytes(), cpu, nil
}

// told is a failure with the end of what the program wrote to standard error.
func (c *command) told(err error, stderr *ends.Writer) string {
	text := fmt.Sprintf("%s: %v", c.opt.Run[0], err)
	if end := strings.TrimSpace(strings.ToValidUTF8(string(stderr.Bytes()), "")); end != "" {
		text += ": " + end
	}
	return c.hide(text)
}

// Close ends the workers.
func (c *command) Close() error {
	if c.workers != nil {
		c.workers.close()
	}
	return nil
}

// serial numbers cases over all workers of a grader, so that no answer can be taken for that of another case.
type serial struct{ last atomic.Int64 }

func (s *serial) next() int64 { return s.last.Add(1) }
