package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"tranche/action/sandbox"
)

// Zygote is a python process that has imported modules once and forks for every run: a run starts in the time of a fork and has the
// modules. It shares the sandbox with other runs: its files, what they left behind outside of their process groups, which goes on until the
// sandbox is reset, and the zygote, which is a process of the same user. A run can kill or stop the zygote (that is the run's end, and the next
// begins a new one) and, where the kernel lets it (Yama), write into its memory and so change every later run. Runs that must not be
// able to touch each other need a sandbox each. One goroutine uses it at a time.
type Zygote struct {
	box  sandbox.Sandbox
	opt  Options
	live *interpreter
}

// NewZygote returns a zygote that starts with its first run; Options.Kind is Python.
func NewZygote(box sandbox.Sandbox, opt Options) *Zygote {
	opt.Kind = Python
	if opt.Grace == 0 {
		opt.Grace = DefaultGrace
	}
	return &Zygote{box: box, opt: opt}
}

// Start begins the process and imports the modules, where the first run would. An error is the executor's; modules that cannot be
// imported are one.
func (z *Zygote) Start(ctx context.Context) error {
	if z.live != nil {
		return nil
	}
	in, err := launch(ctx, z.box, z.opt)
	if err == nil {
		err = in.hello(ctx, 'z', z.opt.Modules)
	}
	if err != nil {
		return err
	}
	z.live = in
	return nil
}

// Run runs a program to its end in a process of its own, as `python -c` would. stdout and stderr are one stream, in Stdout. Limits end
// the run and not the zygote. An error is the executor's.
func (z *Zygote) Run(ctx context.Context, code string, stdin []byte, lim Limits) (sandbox.Result, error) {
	if err := z.Start(ctx); err != nil {
		return sandbox.Result{}, err
	}
	text := append(append(fmt.Appendf(nil, "%d\n", len(stdin)), stdin...), z.live.code(code)...)
	z.live.used = z.live.proc.Usage() // what is counted after it is this run's
	began := time.Now()
	told := z.live.send(pythonFrame('r', text))
	w := watch{in: z.live, limits: lim}
	cause, m := w.untilLimit(ctx, told)
	if m == nil {
		m = z.stop(told)
	}
	if m == nil || m.err != nil || len(m.words) != 5 {
		r, err := z.died(m, cause)
		r.Wall = time.Since(began)
		return r, err
	}
	r := z.result(m.words, cause)
	used := z.live.since(z.live.proc.Usage())
	r.Usage.OOMKills, r.Usage.RefusedForks = used.OOMKills, used.RefusedForks
	if r.Signal == 9 && cause == "" && used.OOMKills > 0 {
		r.Status = sandbox.StatusMemoryLimit
	}
	r.Wall = time.Since(began)
	return r, nil
}

// died is the end of a run that took the zygote with it: killed it, stopped it so that it does not answer, or made it say what it never says.
// A zygote that exited by itself could not do its job.
func (z *Zygote) died(m *mark, cause sandbox.Status) (sandbox.Result, error) {
	in := z.live
	z.live = nil
	soon, cancel := context.WithTimeout(context.Background(), z.opt.Grace)
	defer cancel()
	if m == nil {
		cancel() // it had its grace
	}
	r, err := in.proc.Wait(soon)
	if err != nil || r.Signal == 0 && r.Status != sandbox.StatusCanceled {
		return sandbox.Result{}, errors.Join(fmt.Errorf("session: the zygote ended during a run (%s, exit code %d)", r.Status, r.Exit), err)
	}
	r.Exit, r.Usage = -1, in.since(r.Usage)
	if r.Status == sandbox.StatusMemoryLimit && r.Usage.OOMKills == 0 { // that was an earlier run
		r.Status = sandbox.StatusSignaled
	}
	if r.Status == sandbox.StatusCanceled {
		r.Status, r.Signal = sandbox.StatusSignaled, 9
	}
	if cause != "" {
		r.Status = cause
	}
	return r, nil
}

// stop has the zygote kill its run; nil when it does not answer.
func (z *Zygote) stop(told <-chan mark) *mark {
	control := z.live.proc.Control()
	go func() { _, _ = control.Write(pythonFrame('k', nil)) }() // ends with the zygote where that does not read
	late := time.NewTimer(z.opt.Grace)
	defer late.Stop()
	select {
	case m := <-told:
		return &m
	case <-late.C:
		return nil
	}
}

// result reads what the zygote tells of a run: ran, exit code, signal, CPU time in µs, peak memory in KiB.
func (z *Zygote) result(words []string, cause sandbox.Status) sandbox.Result {
	var n [4]int64
	for i := range n {
		n[i], _ = strconv.ParseInt(words[i+1], 10, 64)
	}
	r := sandbox.Result{
		Status: sandbox.StatusOK, Exit: int(n[0]), Signal: int(n[1]),
		Usage: sandbox.Usage{CPU: time.Duration(n[2]) * time.Microsecond, PeakMemory: n[3] << 10},
	}
	r.Stdout, _ = z.live.proc.Take()
	switch {
	case cause != "" && r.Exit != 0:
		r.Status = cause
	case r.Signal != 0:
		r.Status = sandbox.StatusSignaled
	case r.Exit != 0:
		r.Status = sandbox.StatusNonzero
	}
	return r
}

// Close kills the zygote and what its runs left.
func (z *Zygote) Close() error {
	if z.live == nil {
		return nil
	}
	in := z.live
	z.live = nil
	_, err := in.kill()
	return err
}
