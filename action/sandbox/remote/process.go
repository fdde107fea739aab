//go:build linux

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"tranche/action/sandbox"
)

// process is one program over there: a request that is on its way. Its goroutine ends with the answer.
type process struct {
	b      *box
	cmd    sandbox.Cmd
	began  time.Time
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when result and err are set
	taken  bool          // output was returned

	result sandbox.Result // with the output
	err    error
}

var (
	errEnded    = errors.New("the sandbox was reset or closed")
	errCanceled = errors.New("nobody waits for it any more")
)

// Start sends the program. There is no private descriptor, and nothing goes on after it.
func (b *box) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fault := func(err error) (sandbox.Process, error) { return nil, b.x.failed("start a program", err) }
	switch {
	case len(cmd.Args) == 0 || cmd.Args[0] == "":
		return fault(errors.New("it has no name"))
	case cmd.Control:
		return fault(errors.New("there is no private descriptor over HTTP, so no sessions"))
	case cmd.Background:
		return fault(errors.New("nothing can go on after the program over HTTP"))
	}
	if err := local(cmd.Dir); err != nil {
		return nil, err
	}
	if err := b.usable(); err != nil {
		return fault(err)
	}
	if cmd.Wall == 0 && cmd.CPU > 0 {
		cmd.Wall = 4*cmd.CPU + 5*time.Second
	}
	if cmd.Wall == 0 {
		cmd.Wall = b.x.config.MaxWall
	}
	life, cancel := context.WithCancelCause(context.Background())
	p := &process{b: b, cmd: cmd, began: time.Now(), cancel: cancel, done: make(chan struct{})}
	b.mu.Lock()
	b.running[p] = struct{}{}
	b.mu.Unlock()
	go p.run(life)
	return p, nil
}

// run is the program's goroutine.
func (p *process) run(ctx context.Context) {
	defer close(p.done)
	defer p.cancel(nil)
	defer func() {
		p.b.mu.Lock()
		defer p.b.mu.Unlock()
		delete(p.b.running, p)
	}()
	p.result = sandbox.Result{Exit: -1, Backend: backend, Tier: sandbox.TierRemote}
	for _, s := range slices.Concat(p.cmd.Args, p.cmd.Env) {
		if strings.Contains(s, "\x00") {
			p.result.Status = sandbox.StatusNotFound
			return
		}
	}
	a, err := p.b.do(ctx, p.request(), p.cmd.Wall)
	switch cause := context.Cause(ctx); {
	case err != nil && (errors.Is(cause, errEnded) || errors.Is(cause, errCanceled)):
		p.result.Status = sandbox.StatusCanceled
		p.result.Wall = time.Since(p.began)
		p.result.Signal = int(syscall.SIGKILL) // what ends it over there, at its wall time at the latest
	case err != nil:
		p.err = p.b.x.failed(fmt.Sprintf("run %q", p.cmd.Args[0]), err)
	default:
		p.err = p.conclude(a)
	}
}

func (p *process) request() request {
	l := p.b.limits
	r := request{
		Op: "run", Args: p.cmd.Args, Env: sandbox.Environment(workMark, "/tmp", p.cmd.Env), Dir: p.cmd.Dir, Stdin: p.cmd.Stdin, WallSeconds: p.cmd.Wall.Seconds(),
		CPUSeconds: int64((p.cmd.CPU + time.Second - 1) / time.Second), Keep: p.cmd.Keep, OutputLimit: p.cmd.OutputLimit,
		Memory: l.Memory, FileSize: l.FileSize, OpenFiles: l.OpenFiles,
	}
	if r.Keep <= 0 {
		r.Keep = sandbox.DefaultKeep
	}
	if p.cmd.Stdout != nil || p.cmd.Stderr != nil {
		r.Keep = -1
	}
	return r
}

// workMark stands in variables for the work folder, whose path only the aide knows.
const workMark = "\x00work"

// conclude reads what the aide says of the end. An answer that says nothing is an error.
func (p *process) conclude(a answer) error {
	r := &p.result
	if a.Missing != 0 {
		r.Status = sandbox.StatusNotFound
		r.Stderr = sandbox.Output{Head: []byte(a.Why), Total: int64(len(a.Why))}
		return nil
	}
	if a.Wait == nil {
		return p.b.x.failed(fmt.Sprintf("run %q", p.cmd.Args[0]), errors.New("the answer does not say how it ended"))
	}
	ws := syscall.WaitStatus(*a.Wait)
	switch {
	case ws.Signaled():
		r.Signal = int(ws.Signal())
	case ws.Exited():
		r.Exit = ws.ExitStatus()
	default:
		return p.b.x.failed(fmt.Sprintf("run %q", p.cmd.Args[0]), fmt.Errorf("the answer says that it ended with %#x, which is no end", *a.Wait))
	}
	r.Wall = time.Duration(a.WallS * float64(time.Second))
	r.Setup = max(0, time.Since(p.began)-r.Wall)
	r.Usage = sandbox.Usage{CPU: time.Duration(a.CPUS * float64(time.Second)), PeakMemory: a.Peak}
	r.LeftBehind = a.Left
	r.Status = p.status(ws, a.Stopped)
	r.Stdout, r.Stderr = handOn(p.cmd.Stdout, a.Stdout), handOn(p.cmd.Stderr, a.Stderr)
	return nil
}

// handOn gives a stream to its writer, where it has one. What comes of that is not the program's.
func handOn(to io.Writer, s stream) sandbox.Output {
	if to == nil {
		return sandbox.Output(s)
	}
	_, _ = to.Write(s.Head)
	return sandbox.Output{Total: s.Total}
}

// status follows the order that the statuses are documented in.
func (p *process) status(ws syscall.WaitStatus, stopped sandbox.Status) sandbox.Status {
	switch {
	case p.cmd.CPU > 0 && (ws.Signal() == syscall.SIGXCPU || p.result.Usage.CPU >= p.cmd.CPU):
		return sandbox.StatusCPULimit
	case stopped == sandbox.StatusWallLimit, stopped == sandbox.StatusOutputLimit:
		return stopped
	case ws.Signal() == syscall.SIGXFSZ, stopped == sandbox.StatusFileLimit: // or more in its folder than can be kept
		return sandbox.StatusFileLimit
	case ws.Signal() == syscall.SIGSYS:
		return sandbox.StatusDenied
	case ws.Signaled():
		return sandbox.StatusSignaled
	case ws.ExitStatus() != 0:
		return sandbox.StatusNonzero
	}
	return sandbox.StatusOK
}

// Control is nil: there is none.
func (p *process) Control() *os.File { return nil }

// Take returns the output once the program has ended, and nothing before.
func (p *process) Take() (stdout, stderr sandbox.Output) {
	select {
	case <-p.done:
	default:
		return stdout, stderr
	}
	if p.taken {
		return stdout, stderr
	}
	p.taken = true
	return p.result.Stdout, p.result.Stderr
}

// Usage is known at the end.
func (p *process) Usage() sandbox.Usage {
	select {
	case <-p.done:
		return p.result.Usage
	default:
		return sandbox.Usage{}
	}
}

// Interrupt cannot reach a program over there.
func (p *process) Interrupt() error {
	return p.b.x.failed("interrupt a program", errors.New("nothing reaches a program over HTTP before it ends"))
}

// Wait returns with the answer, or cuts the request off when ctx is done.
func (p *process) Wait(ctx context.Context) (sandbox.Result, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		p.cancel(errCanceled)
		<-p.done
	}
	r := p.result
	r.Stdout, r.Stderr = p.Take()
	return r, p.err
}
