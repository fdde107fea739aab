package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// This file is what signals do to a run: the first lets what has begun end, the second ends all.

// stopState is what a signal does to a run.
type stopState struct {
	mu      sync.Mutex // guards signal and playing
	signal  os.Signal  // the first one
	playing bool       // episodes are running: drain them; else just end
	stop    chan struct{}
}

// errInterrupted ends what runs before the first episode.
var errInterrupted = errors.New("stopped before the first episode")

// watchSignals turns the first signal into a drain and the second into an exit at once. The returned function ends and
// awaits the watcher.
func (s *session) watchSignals(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	var w sync.WaitGroup
	w.Go(func() {
		for n := 0; ; n++ {
			select {
			case sig := <-s.a.signals:
				if n > 0 {
					s.a.exit(int(codeOfSignal(sig)))
					return
				}
				s.interrupt(sig, cancel)
			case <-over:
				return
			}
		}
	})
	return ctx, func() { close(over); w.Wait(); cancel(nil) }
}

func (s *session) interrupt(sig os.Signal, cancel context.CancelCauseFunc) {
	s.stopped.mu.Lock()
	defer s.stopped.mu.Unlock()
	s.stopped.signal = sig
	close(s.stopped.stop)
	if !s.stopped.playing {
		cancel(withCode(codeOfSignal(sig), errInterrupted))
		return
	}
	fmt.Fprintf(s.a.stderr, "\nstopping: no new episodes, waiting up to %s for those whose first call was sent; ctrl-c again stops at once\n", s.set.DrainTimeout)
}

// begin says that episodes run from now on; false when a signal came first.
func (s *session) begin() bool {
	s.stopped.mu.Lock()
	defer s.stopped.mu.Unlock()
	s.stopped.playing = true
	return s.stopped.signal == nil
}

func (s *session) signal() os.Signal {
	s.stopped.mu.Lock()
	defer s.stopped.mu.Unlock()
	return s.stopped.signal
}

func codeOfSignal(sig os.Signal) code {
	switch sig {
	case syscall.SIGTERM:
		return codeTerm
	case syscall.SIGHUP:
		return codeHup
	}
	return codeInt
}
