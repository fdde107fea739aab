// Package workpool runs work on a bounded number of workers under deadlines that really free the worker: what does not stop is
// abandoned and counted. The tools of package action and the graders of package reward run on it. It does not order or
// retry work and knows nothing of episodes. Open pool.go.
package workpool

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alitto/pond/v2"
)

// Pool runs work on a bounded number of workers and never waits for work that does not end: after its limit and a short
// grace the work is abandoned, and its worker takes the next.
//
// Two things are added around pond: a blocked pond submit listens to nothing but the pool, so waiting for room is done on
// a channel of our own, which the caller's context can end; and pond's futures know no deadline, so each run is watched by
// its worker while the work itself has its own goroutine.
type Pool struct {
	workers pond.Pool
	room    chan struct{}   // holds one token for each run that waits or goes on; full = callers wait
	base    context.Context // ends at close
	stop    context.CancelFunc
	running atomic.Int64
	lost    atomic.Int64 // abandoned and still going on

	mu     sync.Mutex
	closed bool           // guarded by mu
	runs   sync.WaitGroup // runs taken in; only added to under mu while not closed
}

// Grace is how long work may go on after it was told to stop before it is abandoned.
const Grace = 250 * time.Millisecond

// New returns a pool of so many workers, with room for `queue` more runs to wait; callers beyond that wait in Start.
func New(workers, queue int) *Pool {
	p := &Pool{
		workers: pond.NewPool(workers, pond.WithQueueSize(workers+queue)),
		room:    make(chan struct{}, workers+queue),
	}
	p.base, p.stop = context.WithCancel(context.Background())
	return p
}

// How work ended.
type How int

const (
	Finished  How = iota // it returned in time
	Panicked             // it panicked, or ended its goroutine
	TimedOut             // its limit passed first
	Cancelled            // the caller or the pool stopped first
)

// End is the outcome of one run.
type End[T any] struct {
	How      How
	Returned bool // value and err are what the work returned, in time or in its grace
	Value    T
	Err      error
	Panicked string // what it panicked with, and where
	Wall     time.Duration
	// Abandoned work did not return within its grace and goes on.
	Abandoned bool
}

// Job is one run on its way.
type Job[T any] struct {
	pool    *Pool
	ctx     context.Context
	limit   time.Duration
	after   func() // nil, or called once when the work has ended, however long after it was given up, or will never start
	work    func(context.Context) (T, error)
	claimed atomic.Bool   // set by whoever decides its fate first: the worker that starts it or the caller that leaves
	done    chan struct{} // closed by the worker once end is set
	end     End[T]
}

// Start hands work to the pool. It waits while the queue is full, no longer than ctx. Call Wait exactly once.
func Start[T any](
	ctx context.Context, p *Pool, limit time.Duration, after func(), work func(context.Context) (T, error),
) *Job[T] {
	if after == nil {
		after = func() {}
	}
	j := &Job[T]{pool: p, ctx: ctx, limit: limit, after: after, work: work, done: make(chan struct{})}
	if !p.enter(ctx) {
		return j.refuse()
	}
	err := p.workers.Go(func() {
		defer p.leave()
		j.run()
	})
	if err != nil { // only a stopped pond pool says no, and we never stop it
		p.leave()
		return j.refuse()
	}
	return j
}

func (j *Job[T]) refuse() *Job[T] {
	j.after()
	j.end.How = Cancelled
	close(j.done)
	return j
}

// Wait returns how the run ended. Work that has not started when ctx ends never starts.
func (j *Job[T]) Wait() End[T] {
	select {
	case <-j.done:
		return j.end
	case <-j.ctx.Done():
	}
	if j.claimed.CompareAndSwap(false, true) && !j.settled() {
		j.after()
		return End[T]{How: Cancelled}
	}
	<-j.done // it has started: its worker returns within the grace
	return j.end
}

func (j *Job[T]) settled() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// run is the worker's part: watch the work until it returns or is given up.
func (j *Job[T]) run() {
	if !j.claimed.CompareAndSwap(false, true) {
		return
	}
	defer close(j.done)
	if j.ctx.Err() != nil || j.pool.base.Err() != nil {
		j.after()
		j.end.How = Cancelled
		return
	}
	j.pool.running.Add(1)
	defer j.pool.running.Add(-1)
	ctx, cancel := context.WithTimeout(j.ctx, j.limit)
	defer cancel()
	defer context.AfterFunc(j.pool.base, cancel)()

	began := time.Now()
	j.end = j.watch(ctx)
	j.end.Wall = time.Since(began)
	if j.end.How != Panicked && ctx.Err() != nil {
		j.end.How = TimedOut
		if j.ctx.Err() != nil || j.pool.base.Err() != nil {
			j.end.How = Cancelled
		}
	}
}

// watch starts the work and returns its end, or an abandoned end when it outlives ctx by more than the grace.
func (j *Job[T]) watch(ctx context.Context) End[T] {
	ends := make(chan End[T], 1)
	var over atomic.Bool // set by whoever comes first: the work when it ends, the worker when it gives up
	go func() {
		e := End[T]{How: Panicked, Panicked: "it ended its goroutine"}
		defer func() {
			if v := recover(); v != nil {
				e.Panicked = fmt.Sprintf("%v%s", v, panicPlace())
			}
			j.after()
			ends <- e
			if !over.CompareAndSwap(false, true) {
				j.pool.lost.Add(-1)
			}
		}()
		e.Value, e.Err = j.work(ctx)
		e.How, e.Returned = Finished, true
	}()
	select {
	case e := <-ends:
		return e
	case <-ctx.Done():
	}
	patience := time.NewTimer(Grace)
	defer patience.Stop()
	select {
	case e := <-ends:
		return e
	case <-patience.C:
	}
	j.pool.lost.Add(1)
	if !over.CompareAndSwap(false, true) { // it ended this very moment
		j.pool.lost.Add(-1)
		return <-ends
	}
	return End[T]{Abandoned: true}
}

// panicPlace names the line that panicked, " at file.go:12"; called while recovering.
func panicPlace() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	raised := false
	for {
		f, more := frames.Next()
		if f.Function == "runtime.gopanic" {
			raised = true
		} else if raised && !strings.HasPrefix(f.Function, "runtime.") {
			return fmt.Sprintf(" at %s:%d", path.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

// enter takes a place in the pool, waiting for one until ctx or the pool ends.
func (p *Pool) enter(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case p.room <- struct{}{}:
	case <-ctx.Done():
		return false
	case <-p.base.Done():
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		<-p.room
		return false
	}
	p.runs.Add(1)
	return true
}

func (p *Pool) leave() {
	<-p.room
	p.runs.Done()
}

// Close lets no new run in, tells those that go on to stop and waits until they have ended or were abandoned, which takes
// the grace at most. It reports how many were left going on; calling it again is harmless. The pond pool is not stopped:
// an idle one holds no goroutine, and its Stop runs on a pool that the whole process shares.
func (p *Pool) Close() (abandoned int64) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	p.runs.Wait()
	return p.lost.Load()
}

// Running is the number of runs that go on and are waited for.
func (p *Pool) Running() int64 { return p.running.Load() }

// Waiting is the number of runs taken in that have not begun.
func (p *Pool) Waiting() int64 { return max(0, int64(len(p.room))-p.Running()) }

// Abandoned is the number of runs given up that still go on.
func (p *Pool) Abandoned() int64 { return p.lost.Load() }
