//go:build linux

package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
	"tranche/action/sandbox/output"
)

// process is one program, seen from the host.
type process struct {
	box     *box
	cmd     sandbox.Cmd
	keeper  *exec.Cmd
	link    *os.File // the host's end of a stream socket
	control *os.File
	stdout  *output.Pump
	stderr  *output.Pump
	written atomic.Int64 // bytes, over both
	wall    *time.Timer

	setup time.Duration
	began time.Time

	usage  chan report   // the last answer to tellUsage
	paused chan report   // the last answer to pause
	ended  chan struct{} // closed when last is set
	gone   chan struct{} // closed when the keeper has ended; after ended

	mu    sync.Mutex
	cause sandbox.Status // why it was stopped; guarded by mu
	late  *time.Timer    // from the stop, ends a keeper that does not do it; guarded by mu
	last  report         // set before ended is closed, read after
	took  time.Duration  // likewise
	broke error          // likewise: the keeper failed

	asking sync.Mutex    // held from a question to its answer; guards asked
	asked  sandbox.Usage // the last answer
	once   sync.Once     // of Wait
	result sandbox.Result
}

func (b *box) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(cmd.Args) == 0 || cmd.Args[0] == "" {
		return nil, b.owner.failed("start", errors.New("a program without a name"))
	}
	if cmd.Dir != "" && !filepath.IsLocal(cmd.Dir) {
		return nil, &sandbox.EscapeError{Path: cmd.Dir}
	}
	if cmd.Wall == 0 && cmd.CPU > 0 {
		cmd.Wall = 4*cmd.CPU + 5*time.Second
	}
	p := &process{
		box: b, cmd: cmd, usage: make(chan report, 1), paused: make(chan report, 1), ended: make(chan struct{}), gone: make(chan struct{}),
	}
	if err := p.start(); err != nil {
		return nil, b.owner.failed(fmt.Sprintf("start %q", cmd.Args[0]), err)
	}
	return p, nil
}

// start gives a keeper the program's descriptors and waits until it has started it.
func (p *process) start() (err error) {
	from := time.Now()
	var theirs []*os.File // closed here once the keeper has them
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
		if err != nil {
			p.drop()
		}
	}()
	own := func(f *os.File) *os.File {
		theirs = append(theirs, f)
		return f
	}
	stdin, err := input(p.cmd.Stdin)
	if err != nil {
		return err
	}
	own(stdin)
	var link *os.File
	if p.link, link, err = pair(); err != nil {
		return err
	}
	own(link)
	var w [2]*os.File
	to := [2]io.Writer{p.cmd.Stdout, p.cmd.Stderr}
	for i, pump := range []**output.Pump{&p.stdout, &p.stderr} {
		if *pump, w[i], err = output.Stream(to[i], p.cmd.Keep, p.count); err != nil {
			return err
		}
		own(w[i])
	}
	second := stdin // fills the place of ControlFD
	if p.cmd.Control {
		if p.control, second, err = pair(); err != nil {
			return err
		}
		own(second)
	}
	p.keeper = &exec.Cmd{
		Path: p.box.owner.exe, Args: []string{keeperName}, Env: sandbox.Environment(p.box.work.Name(), p.box.tmp.Name(), p.cmd.Env), Dir: filepath.Join(p.box.work.Name(), p.cmd.Dir),
		Stdin: stdin, Stdout: w[0], Stderr: w[1], ExtraFiles: []*os.File{second, link}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if info, err := os.Stat(p.keeper.Dir); err != nil || !info.IsDir() {
		return &sandbox.PathError{Path: p.cmd.Dir, Why: "is no folder to run in"}
	}
	if !p.box.enter(p) {
		return errors.New("the sandbox is closed")
	}
	d := json.NewDecoder(p.link)
	first, err := p.hire(d)
	if err != nil {
		close(p.gone) // somebody may be closing the box already
		p.box.leave(p)
		return err
	}
	p.began = time.Now()
	p.setup = p.began.Sub(from)
	if p.cmd.Wall > 0 && first.Kind == "started" {
		p.wall = time.AfterFunc(p.cmd.Wall, func() { p.stop(sandbox.StatusWallLimit) })
	}
	go p.listen(d, first)
	return nil
}

// drop closes what a start that failed had opened here.
func (p *process) drop() {
	for _, pump := range []*output.Pump{p.stdout, p.stderr} {
		if pump != nil {
			pump.Close()
		}
	}
	for _, f := range []*os.File{p.control, p.link} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// hire starts the keeper, tells it what to run and returns what it says of the start.
func (p *process) hire(d *json.Decoder) (r report, err error) {
	if err := p.keeper.Start(); err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			_ = p.link.Close()
			p.end() // it would end now by itself, if nobody has stopped it
			_ = p.keeper.Wait()
		}
	}()
	err = json.NewEncoder(p.link).Encode(order{
		Args: p.cmd.Args, CPU: p.cmd.CPU, FileSize: p.box.limits.FileSize, OpenFiles: p.box.limits.OpenFiles,
		Control: p.cmd.Control, Background: p.cmd.Background, Last: p.box.owner.kind.Last, Confine: p.box.confine,
	})
	if err == nil {
		_ = p.link.SetReadDeadline(time.Now().Add(unkillable))
		err = d.Decode(&r)
		_ = p.link.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return r, fmt.Errorf("the keeper did not answer (is Init called first thing in main?): %w", err)
	}
	if r.Kind == "failed" {
		return r, errors.New(r.Why)
	}
	return r, nil
}

// listen reads what the keeper tells until it ends.
func (p *process) listen(d *json.Decoder, r report) {
	var err error
	for err == nil {
		switch r.Kind {
		case "usage", "paused":
			answer := p.usage
			if r.Kind == "paused" {
				answer = p.paused
			}
			select {
			case answer <- r:
			default: // nobody waits for the one before any more, nor for this
			}
		case "ended", "absent":
			p.settle(r, nil)
		}
		r = report{}
		err = d.Decode(&r)
	}
	p.settle(report{}, p.box.owner.failed(fmt.Sprintf("run %q", p.cmd.Args[0]), fmt.Errorf("its keeper ended before it: %w", err)))
	_ = p.keeper.Wait()
	_ = p.link.Close()
	p.mu.Lock()
	if p.late != nil {
		p.late.Stop()
	}
	p.mu.Unlock()
	close(p.gone)
	p.box.leave(p)
}

// settle sets how the program ended; the first word counts.
func (p *process) settle(r report, broke error) {
	select {
	case <-p.ended:
		return
	default:
	}
	if p.wall != nil {
		p.wall.Stop()
	}
	p.last, p.broke, p.took = r, broke, time.Since(p.began)
	close(p.ended)
}

// stop kills the program for a cause; the first cause counts, but for a cancellation. A program can stop its keeper, which is a process of
// the same user: one that does not do what it is told in its time is ended from here.
func (p *process) stop(cause sandbox.Status) {
	p.mu.Lock()
	if p.cause == "" || cause == sandbox.StatusCanceled {
		p.cause = cause
	}
	if p.late == nil {
		p.late = time.AfterFunc(p.box.owner.patience, p.end)
	}
	p.mu.Unlock()
	p.tell(kill)
}

// end kills all below the keeper, and the keeper.
func (p *process) end() {
	pid := p.keeper.Process.Pid
	for range 100 { // each may have started others meanwhile; they fall to the keeper
		if killAll(pid) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	_ = p.keeper.Process.Kill()
}

// linkPatience is how long a keeper may take to read or answer on a busy host, where nothing hangs on it.
const linkPatience = 5 * time.Second

func (p *process) tell(c command) {
	_ = p.link.SetWriteDeadline(time.Now().Add(linkPatience))
	_ = json.NewEncoder(p.link).Encode(c) // a keeper that is gone needs no word
}

// count is told of every read of either stream.
func (p *process) count(n int) {
	if most := p.cmd.OutputLimit; p.written.Add(int64(n)) > most && most > 0 {
		p.stop(sandbox.StatusOutputLimit)
	}
}

func (p *process) Control() *os.File { return p.control }

func (p *process) Take() (stdout, stderr sandbox.Output) { return p.stdout.Take(), p.stderr.Take() }

func (p *process) Interrupt() error {
	p.tell(interrupt)
	return nil
}

// Usage is what was used as far as the keeper tells it in time.
func (p *process) Usage() sandbox.Usage {
	p.asking.Lock()
	defer p.asking.Unlock()
	select {
	case <-p.usage: // that came too late
	default:
	}
	p.tell(tellUsage)
	late := time.NewTimer(linkPatience)
	defer late.Stop()
	select {
	case r := <-p.usage:
		p.asked = sandbox.Usage{CPU: r.CPU, PeakMemory: r.Peak}
	case <-p.ended:
		p.asked = sandbox.Usage{CPU: p.last.CPU, PeakMemory: p.last.Peak}
	case <-late.C:
	}
	return p.asked
}

// pause has the keeper stop all that the program started, and returns how many processes there are besides it.
func (p *process) pause(ctx context.Context) (others int, err error) {
	select {
	case <-p.paused: // that came too late
	default:
	}
	p.tell(pause)
	late := time.NewTimer(p.box.owner.patience)
	defer late.Stop()
	select {
	case r := <-p.paused:
		if r.Going > 0 {
			err = p.box.owner.failed(fmt.Sprintf("pause %q", p.cmd.Args[0]), fmt.Errorf("%d processes go on though they were stopped for %v", r.Going, stopTime))
		}
		return r.Left, err
	case <-p.gone:
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-late.C:
		return 0, p.box.owner.failed(fmt.Sprintf("pause %q", p.cmd.Args[0]), fmt.Errorf("its keeper did not stop it within %v", p.box.owner.patience))
	}
}

func (p *process) Wait(ctx context.Context) (sandbox.Result, error) {
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.stop(sandbox.StatusCanceled)
		<-p.ended
	}
	if !p.cmd.Background {
		<-p.gone
	}
	p.once.Do(p.conclude)
	return p.result, errors.Join(p.broke, p.unkilled())
}

// unkilled is the error of an end that left something running; to be called after ended.
func (p *process) unkilled() error {
	if p.last.Unkilled == 0 {
		return nil
	}
	return p.box.owner.failed(fmt.Sprintf("end %q", p.cmd.Args[0]), fmt.Errorf("%d processes could not be killed", p.last.Unkilled))
}

func (p *process) conclude() {
	r := sandbox.Result{
		Exit: p.last.Code, Signal: p.last.Signal, Setup: p.setup, Wall: p.took, Usage: sandbox.Usage{CPU: p.last.CPU, PeakMemory: p.last.Peak},
		LeftBehind: p.last.Left, Tier: p.box.owner.kind.Can.Tier, Backend: p.box.owner.kind.Can.Backend, Trusted: p.box.owner.kind.Trusted,
	}
	r.Stdout, r.Stderr = p.stdout.Close(), p.stderr.Close()
	if p.control != nil {
		_ = p.control.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Status = status(p.cause, p.last); r.Status == sandbox.StatusNotFound {
		r.Exit = -1
		r.Stderr = sandbox.Output{Head: []byte(p.last.Why), Total: int64(len(p.last.Why))}
	}
	p.result = r
}

// status names an end, in the order of the statuses.
func status(cause sandbox.Status, r report) sandbox.Status {
	switch {
	case r.Kind == "absent":
		return sandbox.StatusNotFound
	case cause == sandbox.StatusCanceled:
		return cause
	case r.CPULimit:
		return sandbox.StatusCPULimit
	case cause == sandbox.StatusOutputLimit, cause != "" && r.Code != 0: // else it ended well just before
		return cause
	case r.Signal == int(unix.SIGXFSZ):
		return sandbox.StatusFileLimit
	case r.Signal == int(unix.SIGSYS):
		return sandbox.StatusDenied
	case r.Signal != 0:
		return sandbox.StatusSignaled
	case r.Code != 0:
		return sandbox.StatusNonzero
	}
	return sandbox.StatusOK
}

// input is a file that holds the program's whole input, so that nobody has to feed it.
func input(data []byte) (*os.File, error) {
	if len(data) == 0 {
		return os.Open(os.DevNull)
	}
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "stdin")
	if _, err = f.Write(data); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// pair is a stream socket: the host's end, which the poller knows, and the other, which waits as a program expects.
func pair() (host, program *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket"), nil
}
