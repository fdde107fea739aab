//go:build linux && (amd64 || arm64)

package ns

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// A sandbox that somebody else built and could not remove is not taken for gone.
func TestLaunchedRemains(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		t.Fatal(err)
	}
	remains := errors.New("it cannot be removed")
	l := &Launch{Start: func(context.Context, LaunchOrder) (Launched, error) {
		kill := func() error { return unix.Shutdown(fds[1], unix.SHUT_RDWR) }
		return Launched{Socket: os.NewFile(uintptr(fds[0]), "sandbox"), Kill: kill, Wait: func() error { return remains }}, nil
	}}
	s := &slot{patience: time.Minute, dead: make(chan struct{}), stuck: make(chan struct{}), waiting: map[uint64]chan reply{}}
	if err := s.engage(t.Context(), l, sandbox.Spec{}); err != nil {
		t.Fatal(err)
	}
	if err := s.destroy(); !errors.Is(err, remains) {
		t.Error(err)
	}
}

// Without control groups the number of files is not bounded where somebody else builds the sandbox, their bytes are.
func TestPromisesOfALaunchedSandbox(t *testing.T) {
	e := &Executor{config: Config{Launch: &Launch{}}, tier: &tier{name: sandbox.TierRlimit}}
	e.can.Promises, e.can.Why = map[sandbox.Promise]sandbox.Strength{}, map[sandbox.Promise]string{}
	e.promise(nil)
	if disk, files := e.can.Promises[sandbox.PromiseDisk], e.can.Promises[sandbox.PromiseFiles]; disk != sandbox.Enforced || files != sandbox.BestEffort {
		t.Errorf("disk: %v, files: %v", disk, files)
	}
}
