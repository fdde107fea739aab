package reward

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

// pool runs work on a bounded number of workers and never waits for work that does not end: after its limit and a short
// grace the work is abandoned, and its worker takes the next.
//
// Two things are added around pond: a blocked pond submit listens to nothing but the pool, so waiting for room is done on
// a channel of our own, which the caller's context can end; and pond's futures know no deadline, so each run is watched by
// its worker while the work itself has its own goroutine.
type pool struct {
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

// grace is how long work may go on after it was told to stop before it is abandoned.
const grace = 250 * time.Millisecond

func newPool(workers, queue int) *pool {
	p := &pool{
		workers: pond.NewPool(workers, pond.WithQueueSize(workers+queue)),
		room:    make(chan struct{}, workers+queue),
	}
	p.base, p.stop = context.WithCancel(context.Background())
	return p
}

// how work ended.
type how int

const (
	finished  how = iota // it returned in time
	panicked             // it panicked, or ended its goroutine
	timedOut             // its limit passed first
	cancelled            // the caller or the pool stopped first
)

// end is the outcome of one run.
type end[T any] struct {
	how      how
	value    T
	err      error
	panicked string // what it panicked with, and where
}

// job is one run on its way.
type job[T any] struct {
	pool    *pool
	ctx     context.Context
	limit   time.Duration
	work    func(context.Context) (T, error)
	claimed atomic.Bool   // set by whoever decides its fate first: the worker that starts it or the caller that leaves
	done    chan struct{} // closed by the worker once end is set
	end     end[T]
}

// start hands work to the pool. It waits while the queue is full, no longer than ctx. Call wait exactly once.
func start[T any](ctx context.Context, p *pool, limit time.Duration, work func(context.Context) (T, error)) *job[T] {
	j := &job[T]{pool: p, ctx: ctx, limit: limit, work: work, done: make(chan struct{})}
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

func (j *job[T]) refuse() *job[T] {
	j.end.how = cancelled
	close(j.done)
	return j
}

// wait returns how the run ended. Work that has not started when ctx ends never starts.
func (j *job[T]) wait() end[T] {
	select {
	case <-j.done:
		return j.end
	case <-j.ctx.Done():
	}
	if j.claimed.CompareAndSwap(false, true) && !j.settled() {
		return end[T]{how: cancelled}
	}
	<-j.done // it has started: its worker returns within the grace
	return j.end
}

func (j *job[T]) settled() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// run is the worker's part: watch the work until it returns or is given up.
func (j *job[T]) run() {
	if !j.claimed.CompareAndSwap(false, true) {
		return
	}
	defer close(j.done)
	if j.ctx.Err() != nil || j.pool.base.Err() != nil {
		j.end.how = cancelled
		return
	}
	j.pool.running.Add(1)
	defer j.pool.running.Add(-1)
	ctx, cancel := context.WithTimeout(j.ctx, j.limit)
	defer cancel()
	defer context.AfterFunc(j.pool.base, cancel)()

	j.end = j.watch(ctx)
	if j.end.how != panicked && ctx.Err() != nil {
		j.end.how = timedOut
		if j.ctx.Err() != nil || j.pool.base.Err() != nil {
			j.end.how = cancelled
		}
	}
}

// watch starts the work and returns its end, or an empty end when it outlives ctx by more than the grace.
func (j *job[T]) watch(ctx context.Context) end[T] {
	ends := make(chan end[T], 1)
	var over atomic.Bool // set by whoever comes first: the work when it ends, the worker when it gives up
	go func() {
		e := end[T]{how: panicked, panicked: "it ended its goroutine"}
		defer func() {
			if v := recover(); v != nil {
				e.panicked = fmt.Sprintf("%v%s", v, panicPlace())
			}
			ends <- e
			if !over.CompareAndSwap(false, true) {
				j.pool.lost.Add(-1)
			}
		}()
		e.value, e.err = j.work(ctx)
		e.how = finished
	}()
	select {
	case e := <-ends:
		return e
	case <-ctx.Done():
	}
	patience := time.NewTimer(grace)
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
	return end[T]{}
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
func (p *pool) enter(ctx context.Context) bool {
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

func (p *pool) leave() {
	<-p.room
	p.runs.Done()
}

// close lets no new run in, tells those that go on to stop and waits until they have ended or were abandoned, which takes
// the grace at most. It reports how many were left going on; calling it again is harmless. The pond pool is not stopped:
// an idle one holds no goroutine, and its Stop runs on a pool that the whole process shares.
func (p *pool) close() (abandoned int64) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	p.runs.Wait()
	return p.lost.Load()
}
