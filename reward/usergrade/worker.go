package usergrade

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"tranche/internal/ends"
	"tranche/internal/offspring"
	"tranche/reward"
)

// crew is the workers of one grader. As many live as gradings go on at once.
type crew struct {
	start func() (*worker, error)
	cases serial

	mu     sync.Mutex
	idle   []*worker // guarded by mu
	closed bool      // guarded by mu
	live   sync.WaitGroup
}

// worker is one process that takes cases, one at a time.
type worker struct {
	cmd    *exec.Cmd
	in     *os.File // its standard input
	out    *os.File // its standard output
	lines  *bufio.Reader
	stderr *ends.Writer
	ended  chan struct{} // closed when the process has ended
	err    error         // how; set before ended is closed
}

// startWorker starts a process, with a goroutine that waits for its end: what ends it is its group being killed.
func (c *command) startWorker() (*worker, error) {
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, stdin.Close(), in.Close())
	}
	w := &worker{in: in, out: out, lines: bufio.NewReaderSize(out, maxAnswer+1), stderr: ends.KeepTail(4 << 10), ended: make(chan struct{})}
	w.cmd = exec.Command(c.opt.Run[0], c.opt.Run[1:]...)
	w.cmd.Dir, w.cmd.Env = c.opt.Dir, c.env
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = stdin, stdout, w.stderr
	offspring.Bind(w.cmd)
	started := make(chan error)
	go func() {
		defer offspring.Leash(w.cmd)()
		err := w.cmd.Start()
		stdin.Close() // the process has its own
		stdout.Close()
		started <- err
		if err != nil {
			return
		}
		w.err = w.cmd.Wait()
		offspring.End(w.cmd)
		close(w.ended)
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", c.opt.Run[0], err), in.Close(), out.Close())
	}
	return w, nil
}

// take gives a worker that waits, or a new one. One that has ended while it waited is nobody's failure.
func (p *crew) take() (*worker, error) {
	w, err := p.waiting()
	if w != nil || err != nil {
		return w, err
	}
	w, err = p.start()
	if err != nil {
		p.live.Done()
		return nil, &reward.Unjudged{Reason: Died, Detail: err.Error(), Retry: true}
	}
	return w, nil
}

// waiting counts the caller in and gives a worker that waits, nil where none does.
func (p *crew) waiting() (*worker, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.New("the grader is closed")
	}
	p.live.Add(1)
	for n := len(p.idle); n > 0; n = len(p.idle) {
		w := p.idle[n-1]
		p.idle = p.idle[:n-1]
		if w.lives() {
			return w, nil
		}
		w.end() // at once: it has ended
	}
	return nil, nil
}

// give has a worker wait for the next case, or ends one that is not fit for it.
func (p *crew) give(w *worker, fit bool) {
	defer p.live.Done()
	p.mu.Lock()
	if fit = fit && !p.closed; fit {
		p.idle = append(p.idle, w)
	}
	p.mu.Unlock()
	if !fit {
		w.end()
	}
}

// close ends all workers and waits for them; those that have a case are ended when they give it back, which is soon: gradings have been told to stop.
func (p *crew) close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, w := range idle {
		w.end()
	}
	p.live.Wait()
}

// lives reports whether the worker has not ended, as far as was seen. Nothing is sent to the group of one that has: its number may be another's by now.
func (w *worker) lives() bool {
	select {
	case <-w.ended:
		return false
	default:
		return true
	}
}

func (w *worker) kill() {
	if w.lives() {
		offspring.End(w.cmd)
	}
}

// end kills the worker's group and waits.
func (w *worker) end() {
	w.kill()
	w.in.Close()
	<-w.ended
	w.out.Close()
}

// grade hands one case to a worker. One that failed in any way gets no other.
func (p *crew) grade(ctx context.Context, c *command, in reward.Input) (f reward.Finding, err error) {
	id := p.cases.next()
	text, err := newCase(c.name, c.opt.Options, in, id)
	if err != nil {
		return f, err
	}
	w, err := p.take()
	if err != nil {
		return f, err
	}
	line, err := w.ask(ctx, text)
	var a answer
	if err == nil {
		if a, err = read(line); err == nil && (a.ID == nil || *a.ID != id) {
			err = errors.New("the answer does not say the id of its case")
		}
		if err != nil {
			err = errors.New(c.hide(fmt.Sprintf("%s: %v", c.opt.Run[0], err)))
		}
	} else if ctx.Err() != nil {
		err = ctx.Err()
	} else {
		err = p.lost(c, w, err)
	}
	p.give(w, err == nil)
	if err != nil {
		return f, err
	}
	return a.finding(c.hide)
}

// lost says how a worker ended that gave no answer. It ends it first.
func (p *crew) lost(c *command, w *worker, err error) error {
	if errors.Is(err, bufio.ErrBufferFull) {
		return fmt.Errorf("%s: a line of more than %d bytes", c.opt.Run[0], maxAnswer)
	}
	select {
	case <-w.ended:
		if w.err != nil {
			err = w.err
		}
	case <-time.After(offspring.PipeWait): // it closed its output and lives on
	}
	return &reward.Unjudged{Reason: Died, Detail: c.told(err, w.stderr), Retry: true}
}

// ask writes a line and reads one. ctx being done kills the worker, which ends both.
func (w *worker) ask(ctx context.Context, line []byte) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() {
		w.kill()
		_ = w.in.SetDeadline(time.Unix(1, 0)) // a process that left the group may hold the pipes
		_ = w.out.SetDeadline(time.Unix(1, 0))
	})
	answer, err := w.exchange(line)
	if !stop() { // it is being killed: also where the answer came just before
		return nil, ctx.Err()
	}
	return answer, err
}

func (w *worker) exchange(line []byte) ([]byte, error) {
	if _, err := w.in.Write(line); err != nil {
		return nil, fmt.Errorf("write the case: %w", err)
	}
	answer, err := w.lines.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return answer, nil
}
