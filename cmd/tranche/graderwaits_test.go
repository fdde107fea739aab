package main

import (
	"context"
	"errors"
	"testing"

	"tranche/action/sandbox"
)

// executorOfNothing is a back end that is only made and closed.
type executorOfNothing struct {
	sandbox.Executor
	closed int
}

func (x *executorOfNothing) Close() error { x.closed++; return nil }

// A grading that is told to stop waits for no back end: not for one that it makes, and not for one that another makes.
func TestGradersGiveUpOnTheirBackEnd(t *testing.T) {
	b := newGraderBoxes()
	making, made := make(chan struct{}), make(chan error)
	first, stop := context.WithCancel(t.Context())
	go func() {
		_, err := b.open(first, func(ctx context.Context) (sandbox.Executor, error) {
			close(making)
			<-ctx.Done() // a far side that never answers
			return nil, ctx.Err()
		})
		made <- err
	}()
	<-making
	second, giveUp := context.WithCancel(t.Context())
	giveUp()
	if _, err := b.open(second, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("it waited for another: %v", err)
	}
	stop()
	if err := <-made; !errors.Is(err, context.Canceled) {
		t.Errorf("it waited for the far side: %v", err)
	}
	x := &executorOfNothing{}
	for range 2 {
		got, err := b.open(t.Context(), func(context.Context) (sandbox.Executor, error) {
			if x.closed++; x.closed > 1 {
				t.Error("it is made twice")
			}
			return x, nil
		})
		if err != nil || got != sandbox.Executor(x) {
			t.Errorf("after that: %v, %v", got, err)
		}
	}
	if err := errors.Join(b.close(), newGraderBoxes().close()); err != nil || x.closed != 2 {
		t.Errorf("closed %d times, %v", x.closed-1, err)
	}
}
