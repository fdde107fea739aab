package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"tranche/storage"
)

// longestAbsent is the pause between two tries while the store cannot be reached.
const longestAbsent = time.Minute

// Follower pushes what a run publishes, while it publishes, in a goroutine of its own: nothing of the run waits for it.
type Follower struct {
	pusher *Pusher
	store  Store        // the pusher's own; it has one that tells of movement meanwhile
	moved  atomic.Int64 // when bytes went out, or an answer came, the last time; Unix, ns
	tell   func(text string)
	stop   chan struct{} // closed by Finish
	done   chan struct{} // closed by the goroutine
	cancel context.CancelFunc
	final  error // why it ended by itself; read after done
}

// Follow begins. tell gets what a person should know: that the store went away, came back, or belongs to another. The caller ends it
// with Finish or Close.
func Follow(ctx context.Context, p *Pusher, tell func(text string)) *Follower {
	ctx, cancel := context.WithCancel(ctx)
	f := &Follower{pusher: p, store: p.Store, tell: tell, stop: make(chan struct{}), done: make(chan struct{}), cancel: cancel}
	p.Store, p.moves = &movingStore{p.Store, f.moves}, f.moves
	go f.run(ctx)
	return f
}

// hopeless tells whether no later pass can go well, because the place is somebody else's.
func hopeless(err error) bool {
	for _, kind := range []error{ErrConflict, ErrOtherRun, ErrAhead, ErrStray} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func (f *Follower) run(ctx context.Context) {
	defer close(f.done)
	wait, seen, away := f.pusher.Every, state{}, false
	for f.awake(ctx, wait) {
		now := stateOf(f.pusher.Dir)
		if now == seen {
			continue
		}
		began := time.Now()
		err := f.pusher.Pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			// At least half of the time is left to others.
			seen, wait = now, max(f.pusher.Every, time.Since(began))
			if away {
				f.tell(fmt.Sprintf("%s: publishing goes on", f.pusher.Store))
			}
			away = false
		case hopeless(err):
			f.final = err
			f.tell(fmt.Sprintf("nothing more is published: %v", err))
			return
		case !errors.Is(err, storage.ErrNotRun): // else the run has not begun
			if !away {
				f.tell(fmt.Sprintf("%v; the run goes on, and publishing is tried again", err))
			}
			wait, away = min(2*wait, longestAbsent), true
		}
	}
}

// awake waits; false when the follower is to end.
func (f *Follower) awake(ctx context.Context, wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-f.stop:
		return false
	case <-ctx.Done():
		return false
	}
}

// state tells one manifest file from the one that replaces it.
type state struct {
	changed time.Time
	bytes   int64
}

func stateOf(dir string) state {
	info, err := os.Stat(filepath.Join(dir, manifestKey))
	if err != nil {
		return state{}
	}
	return state{info.ModTime(), info.Size()}
}

// Finish pushes what there is now, after the run, and ends. It gives up when nothing went out for Push.Patience, or ctx ends. The error
// says why the store lacks something.
func (f *Follower) Finish(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	stuck := false                       // read after watch
	if _, ok := f.store.(*folder); !ok { // where syncing a large file takes its time
		f.moves()
		watch.Go(func() {
			if stuck = f.standsStill(ctx); stuck {
				cancel()
			}
		})
	}
	err := f.finish(ctx)
	cancel()
	watch.Wait()
	f.pusher.Store = f.store
	if err != nil && stuck && f.final == nil {
		why := fmt.Errorf("nothing went out for %v", f.pusher.Patience)
		if !errors.Is(err, context.Canceled) { // what the store said before
			why = fmt.Errorf("%w: %w", why, err)
		}
		return named(f.store, &Error{Op: "push", Err: why})
	}
	return err
}

func (f *Follower) moves() { f.moved.Store(time.Now().UnixNano()) }

// standsStill waits until nothing has moved for Push.Patience, true, or ctx ends. A request to a store that does not answer takes longer than that, and is
// made again.
func (f *Follower) standsStill(ctx context.Context) bool {
	for {
		left := f.pusher.Patience - time.Since(time.Unix(0, f.moved.Load()))
		if left <= 0 {
			return true
		}
		if sleep(ctx, left) != nil {
			return false
		}
	}
}

// movingStore tells of every answer, and of every stretch of a body that is taken. A Sweep of very many uploads is one answer.
type movingStore struct {
	Store
	moves func()
}

func (m *movingStore) Put(ctx context.Context, key string, body io.ReaderAt, size int64, sum string, when Condition) (Object, error) {
	return told(m, func() (Object, error) {
		return m.Store.Put(ctx, key, &movingBody{body, m.moves}, size, sum, when)
	})
}

func (m *movingStore) Stat(ctx context.Context, key string) (Object, error) {
	return told(m, func() (Object, error) { return m.Store.Stat(ctx, key) })
}

func (m *movingStore) List(ctx context.Context) ([]Object, error) {
	return told(m, func() ([]Object, error) { return m.Store.List(ctx) })
}

func (m *movingStore) Get(ctx context.Context, key string) (io.ReadCloser, Object, error) {
	body, o, err := m.Store.Get(ctx, key)
	if err == nil {
		m.moves()
	}
	return body, o, err
}

func (m *movingStore) Sweep(ctx context.Context) error {
	_, err := told(m, func() (struct{}, error) { return struct{}{}, m.Store.Sweep(ctx) })
	return err
}

func (m *movingStore) Delete(ctx context.Context, key string) error {
	_, err := told(m, func() (struct{}, error) { return struct{}{}, m.Store.Delete(ctx, key) })
	return err
}

func told[T any](m *movingStore, ask func() (T, error)) (T, error) {
	v, err := ask()
	if err == nil {
		m.moves()
	}
	return v, err
}

type movingBody struct {
	io.ReaderAt
	moves func()
}

func (m *movingBody) ReadAt(b []byte, at int64) (int, error) {
	m.moves()
	return m.ReaderAt.ReadAt(b, at)
}

func (f *Follower) finish(ctx context.Context) error {
	defer f.cancel()
	close(f.stop)
	select {
	case <-f.done:
	case <-ctx.Done():
		f.cancel()
		<-f.done
	}
	if f.final != nil {
		return f.final
	}
	return f.flush(ctx)
}

func (f *Follower) flush(ctx context.Context) error {
	moved, since := f.pusher.Progress().Sent, time.Now()
	var last error
	for wait := f.pusher.Every; ; wait = min(2*wait, longestAbsent) {
		err := f.pusher.Pass(ctx)
		if err == nil {
			err = f.pusher.Verify(ctx)
		}
		switch {
		case err != nil && ctx.Err() != nil && last != nil:
			return last // of a round that was cut it is known that it was cut
		case err == nil || !MayPass(err) || ctx.Err() != nil:
			return err
		}
		last = err
		if n := f.pusher.Progress().Sent; n > moved {
			moved, since = n, time.Now()
		}
		if time.Since(since)+wait > f.pusher.Patience || sleep(ctx, wait) != nil {
			return err
		}
	}
}

// Close ends without pushing; what was begun is given up.
func (f *Follower) Close() {
	f.cancel()
	<-f.done
	f.pusher.Store = f.store
}
