//go:build linux && (amd64 || arm64)

package ns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
	"tranche/action/sandbox/output"
)

// process is a program that was started. Its goroutine (watch) enforces what takes time, and ends with the program.
type process struct {
	box     *box
	slot    *slot
	cmd     sandbox.Cmd
	id      uint64
	lane    int
	replies chan reply
	stdout  *output.Pump // nil where the program was refused
	stderr  *output.Pump
	control *os.File
	quiet   sync.Once // streams are stopped

	begin     time.Time     // Start was called
	queue     time.Duration // of the sandbox, told once
	cpuBefore time.Duration // of its lane, before it
	before    events
	alone     atomic.Bool  // nothing else ran in the sandbox since it began
	written   atomic.Int64 // bytes over both streams
	started   atomic.Int64 // CLOCK_MONOTONIC ns; 0 = not yet

	stop chan sandbox.Status // why it is to be stopped
	done chan struct{}       // closed by watch

	// written by watch before done is closed
	facts facts
	usage sandbox.Usage
	wall  time.Duration
	left  int
	err   error
}

// start prepares what a program needs and asks the init for it.
func (b *box) start(cmd sandbox.Cmd) (*process, error) {
	p := &process{box: b, cmd: cmd, begin: time.Now(), stop: make(chan sandbox.Status, 8), done: make(chan struct{})}
	if hasZero(cmd.Args) || hasZero(cmd.Env) || strings.Contains(cmd.Dir, "\x00") {
		return p.refused()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errBoxClosed
	}
	p.slot = b.slot
	p.lane = b.freeLane()
	p.alone.Store(len(b.running) == 0)
	p.queue, b.queue = b.queue, 0
	lane, laneFDs, err := p.slot.lane(p.lane)
	defer closeAll(laneFDs)
	if err != nil {
		return nil, err
	}
	if err := p.measure(); err != nil {
		return nil, err
	}
	fds, err := p.pipes()
	defer closeAll(fds)
	if err == nil {
		p.id, p.replies = p.slot.expect()
		var inside time.Duration // of its CPU time, where nothing but the init can count it
		if p.slot.group == nil {
			inside = cmd.CPU
		}
		err = p.slot.post(&request{
			CPULimit: int64(inside),
			ID:       p.id, Op: opStart, Args: cmd.Args, Env: sandbox.Environment(workDir, tmpDir, cmd.Env), Dir: cmd.Dir, CPUSeconds: uint64((cmd.CPU + time.Second - 1) / time.Second),
			Stdin: len(cmd.Stdin) > 0, Control: cmd.Control, Background: cmd.Background, Lane: lane, LaneFDs: uint64(len(laneFDs)),
		}, append(fds, laneFDs...)...)
	}
	if err != nil {
		p.slot.drop(p.id)
		p.silence()
		p.closeControl()
		return nil, err
	}
	p.slot.runs++
	b.used = true
	for _, q := range b.running {
		q.alone.Store(false)
	}
	b.running = append(b.running, p)
	go p.watch()
	return p, nil
}

func hasZero(list []string) bool {
	for _, s := range list {
		if strings.Contains(s, "\x00") {
			return true
		}
	}
	return false
}

// refused is a program that no kernel can be asked for.
func (p *process) refused() (*process, error) {
	p.facts.missing = true
	close(p.done)
	return p, nil
}

// measure notes what was used before, since groups and slots count on.
func (p *process) measure() (err error) {
	g := p.slot.group
	if g == nil {
		if p.box.used { // else nothing was, since the reset
			p.cpuBefore, err = p.slotUsage()
		}
		return err
	}
	if p.before, err = g.events(); err != nil {
		return err
	}
	if p.alone.Load() {
		g.clearPeak()
	}
	p.cpuBefore, err = g.cpu(p.lane)
	return err
}

// slotUsage asks the init for the time that all in the slot used.
func (p *process) slotUsage() (time.Duration, error) {
	r, err := p.slot.ask(context.Background(), &request{Op: opUsage})
	return time.Duration(r.CPU), err
}

// pipes makes the descriptors of the program, which the caller closes, and begins to read at our ends.
func (p *process) pipes() (theirs []*os.File, err error) {
	if len(p.cmd.Stdin) > 0 {
		in, err := p.stdin()
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, in)
	}
	for _, s := range []struct {
		pump **output.Pump
		to   io.Writer
	}{{&p.stdout, p.cmd.Stdout}, {&p.stderr, p.cmd.Stderr}} {
		var w *os.File
		if *s.pump, w, err = output.Pipe(s.to, p.cmd.Keep, p.wrote); err != nil {
			return theirs, fmt.Errorf("make a pipe: %w", err)
		}
		theirs = append(theirs, w)
		if err := p.slot.own(w); err != nil {
			return theirs, err
		}
	}
	if !p.cmd.Control {
		return theirs, nil
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return theirs, err
	}
	theirs = append(theirs, os.NewFile(uintptr(fds[1]), "control"))
	err = unix.SetNonblock(fds[0], true)
	p.control = os.NewFile(uintptr(fds[0]), "control")
	return theirs, err
}

// stdin is the program's input: what fits into a pipe is put there at once, more is a file in memory. Nobody has to write it later.
func (p *process) stdin() (*os.File, error) {
	const fits = 32 << 10 // below what a pipe holds by default
	if len(p.cmd.Stdin) > fits {
		return sealedFile(p.cmd.Stdin)
	}
	fds := make([]int, 2)
	if err := unix.Pipe2(fds, unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	r := os.NewFile(uintptr(fds[0]), "input")
	_, err := unix.Write(fds[1], p.cmd.Stdin)
	if err := errors.Join(err, unix.Close(fds[1]), unix.SetNonblock(fds[0], false), p.slot.own(r)); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare a pipe: %w", err), r.Close())
	}
	return r, nil
}

// sealedFile is a file in memory that nobody can change.
func sealedFile(data []byte) (*os.File, error) {
	f, err := filled("input", data)
	if err != nil {
		return nil, err
	}
	const sealed = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fileFD(f)), unix.F_ADD_SEALS, sealed); err != nil {
		return nil, errors.Join(fmt.Errorf("seal the input: %w", err), f.Close())
	}
	return f, nil
}

// wrote counts output against the limit.
func (p *process) wrote(n int) {
	if all := p.written.Add(int64(n)); p.cmd.OutputLimit > 0 && all > p.cmd.OutputLimit && all-int64(n) <= p.cmd.OutputLimit {
		p.end(sandbox.StatusOutputLimit)
	}
}

// end asks watch to stop the program.
func (p *process) end(why sandbox.Status) {
	select {
	case p.stop <- why:
	default: // it has been asked often enough
	}
}

// watch sees a program through to its end.
func (p *process) watch() {
	defer close(p.done)
	defer p.box.ended(p)
	defer p.slot.drop(p.id)
	var (
		limit   = wallLimit(p.cmd)
		silence = time.NewTimer(p.slot.patience) // then the init is asked; it has as long to answer, and after a kill
		asked   = false
		reading = time.NewTimer(p.unread())
		wall    = time.NewTimer(cmp.Or(limit, forever))
		cpu     = time.NewTimer(forever)
	)
	if p.cmd.CPU > 0 && p.slot.group != nil { // else the init sees to it
		cpu.Reset(nextLook(p.cmd.CPU))
	}
	defer silence.Stop()
	defer wall.Stop()
	defer cpu.Stop()
	defer reading.Stop()
	ask := func() {
		asked = true
		silence.Reset(p.slot.patience)
		_ = p.slot.post(&request{Op: opBegun, Target: p.id}) // an error shows in dead
	}
	kill := func(why sandbox.Status) {
		if !p.facts.stopped[why] {
			p.facts.stop(why)
			asked = true
			silence.Reset(p.slot.patience)
			_ = p.slot.post(&request{Op: opKill, Target: p.id}) // an error shows in dead
		}
	}
	for {
		select {
		case r := <-p.replies:
			if p.heard(r) {
				if p.cmd.Background { // what it left goes on printing
					p.read()
				}
				p.finish()
				return
			}
			if p.facts.stopped == nil {
				silence.Reset(forever)
			}
			if limit > 0 {
				wall.Reset(time.Duration(p.started.Load()-monotonic()) + limit)
			}
		case <-reading.C:
			p.read()
		case why := <-p.stop:
			kill(why)
		case <-wall.C:
			if p.started.Load() == 0 { // the time before it began is not its own
				ask()
				continue
			}
			kill(sandbox.StatusWallLimit)
		case <-cpu.C:
			used, err := p.cpuUsed()
			if err != nil {
				p.lost(err)
				return
			}
			if used >= p.cmd.CPU {
				kill(sandbox.StatusCPULimit)
				continue
			}
			cpu.Reset(nextLook(p.cmd.CPU - used))
		case <-silence.C:
			if !asked {
				ask()
				continue
			}
			p.slot.kill()
			p.lost(p.slot.late(p.slot.patience))
			return
		case <-p.slot.dead:
			p.lost(p.slot.lost(errors.New("has died")))
			return
		case <-p.slot.stuck:
			p.lost(p.slot.lost(errStuck))
			return
		}
	}
}

// unread is how long the output may lie in the pipes. Most programs are over by then, and what they printed is taken from there: that
// spares each run the waking of two goroutines. Nothing lies there that somebody waits for or that has to be counted.
func (p *process) unread() time.Duration {
	if p.cmd.Stdout != nil || p.cmd.Stderr != nil || p.cmd.OutputLimit > 0 && p.cmd.OutputLimit < 2*output.HoldsBytes {
		return 0
	}
	return 5 * time.Millisecond
}

// read begins to read output as it comes.
func (p *process) read() {
	p.stdout.Begin()
	p.stderr.Begin()
}

const forever = 1 << 62 * time.Nanosecond

// nextLook is when the time used has to be looked at again: sooner than it can be used up, but not too often.
func nextLook(left time.Duration) time.Duration {
	const least = 10 * time.Millisecond
	return max(least, left/time.Duration(runtime.NumCPU()))
}

// wallLimit is how long a program may take; 0 = as long as it wants.
func wallLimit(cmd sandbox.Cmd) time.Duration {
	switch {
	case cmd.Wall > 0:
		return cmd.Wall
	case cmd.CPU > 0:
		return 4*cmd.CPU + 5*time.Second
	}
	return 0
}

// heard takes in a reply, and reports that the run is over.
func (p *process) heard(r reply) bool {
	switch r.What {
	case saidStarted:
		p.started.Store(r.At)
		return false
	case saidMissing:
		p.started.Store(r.At)
		p.facts.notStarted(unix.Errno(r.Errno))
	case saidEnded:
		p.started.Store(r.Began)
		p.wall = time.Duration(r.At - p.started.Load())
		p.left = int(r.Left)
		p.facts.wait = unix.WaitStatus(r.Wait)
		if r.Over {
			p.facts.stop(sandbox.StatusCPULimit)
		}
		p.usage = sandbox.Usage{CPU: time.Duration(r.CPU), PeakMemory: r.Peak}
	default:
		p.err = r.err()
	}
	return true
}

// lost is the end of a run that nothing is known of.
func (p *process) lost(err error) {
	p.err = err
	p.slot.spoil(err)
	p.silence()
}

// finish gathers what is known of a run that is over.
func (p *process) finish() {
	if p.err != nil {
		p.lost(p.err)
		return
	}
	if g := p.slot.group; g != nil {
		now, err := g.events()
		if err != nil {
			p.lost(err)
			return
		}
		p.usage.OOMKills, p.usage.RefusedForks = p.own(now)
		if used, err := g.cpu(p.lane); err == nil {
			p.usage.CPU = max(p.usage.CPU, used-p.cpuBefore)
		}
		if peak := g.peak(); p.alone.Load() && peak > 0 { // what the kernel says of a process begins with the init that it was forked from
			p.usage.PeakMemory = peak
		}
	}
	p.facts.oomKills, p.facts.refusedForks = p.usage.OOMKills, max(p.usage.RefusedForks, p.facts.refusedForks)
	p.facts.cpuLimit, p.facts.cpu = p.cmd.CPU, p.usage.CPU
	p.usage.RefusedForks = p.facts.refusedForks
}

// own are those events since the program's start that were its own. Groups count for all that run in a slot: where something else ran
// too, the only kill that is known to be this program's is the one that ended it.
func (p *process) own(now events) (oomKills, refusedForks int) {
	oomKills, refusedForks = now.oomKills-p.before.oomKills, now.refusedForks-p.before.refusedForks
	if p.alone.Load() {
		return oomKills, refusedForks
	}
	if killed := p.facts.wait.Signaled() && p.facts.wait.Signal() == unix.SIGKILL && len(p.facts.stopped) == 0; killed {
		return min(oomKills, 1), 0
	}
	return 0, 0
}

// cpuUsed is the time that the program and its children used so far.
func (p *process) cpuUsed() (time.Duration, error) {
	if g := p.slot.group; g != nil {
		now, err := g.cpu(p.lane)
		return now - p.cpuBefore, err
	}
	now, err := p.slotUsage()
	return now - p.cpuBefore, err
}

// Control is the host's end of the private descriptor.
func (p *process) Control() *os.File { return p.control }

// Take returns what came out since the last time.
func (p *process) Take() (stdout, stderr sandbox.Output) {
	if p.stdout == nil { // refused
		return stdout, stderr
	}
	return p.stdout.Take(), p.stderr.Take()
}

// Usage is what was used so far.
func (p *process) Usage() sandbox.Usage {
	select {
	case <-p.done:
		return p.usage
	default:
	}
	var u sandbox.Usage
	if used, err := p.cpuUsed(); err == nil {
		u.CPU = used
	}
	if g := p.slot.group; g != nil && p.alone.Load() {
		u.PeakMemory = g.peak()
		if now, err := g.events(); err == nil {
			u.OOMKills, u.RefusedForks = now.oomKills-p.before.oomKills, now.refusedForks-p.before.refusedForks
		}
	}
	return u
}

// Interrupt sends SIGINT to the program's process group.
func (p *process) Interrupt() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	_, err := p.slot.ask(context.Background(), &request{Op: opInterrupt, Target: p.id})
	return err
}

// Wait returns when the program has ended.
func (p *process) Wait(ctx context.Context) (sandbox.Result, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		p.end(sandbox.StatusCanceled)
		<-p.done
	}
	defer p.closeControl()
	if p.err != nil {
		return sandbox.Result{}, fmt.Errorf("run %q in a sandbox: %w", p.cmd.Args[0], p.err)
	}
	res := p.facts.result()
	if res.Stdout, res.Stderr = p.Take(); !p.cmd.Background {
		p.silence()
	}
	res.Queue, res.Wall, res.Usage, res.LeftBehind = p.queue, p.wall, p.usage, p.left
	if at := p.started.Load(); at > 0 {
		res.Setup = max(0, time.Duration(at-monotonic())+time.Since(p.begin))
	}
	res.Tier, res.Backend, res.Rootfs = p.box.exec.can.Tier, p.box.exec.can.Backend, p.box.spec.RootfsDigest
	return res, nil
}

// silence ends the reading of output.
func (p *process) silence() {
	p.quiet.Do(func() {
		for _, s := range []*output.Pump{p.stdout, p.stderr} {
			if s != nil {
				s.Close() // what was not taken is not wanted
			}
		}
	})
}

func (p *process) closeControl() {
	if p.control != nil {
		p.control.Close()
	}
}
