//go:build linux && (amd64 || arm64)

package ns

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"tranche/action/sandbox"
)

// A trial that ran out of time says nothing of its tier: the next weaker one must not be taken for it.
func TestLateIsNoFault(t *testing.T) {
	s := new(slot)
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no answer in time": {fmt.Errorf("cgroup1: %w", s.late(time.Second)), true},
		"deadline":          {fmt.Errorf("cgroup1: %w", context.DeadlineExceeded), true},
		"died":              {fmt.Errorf("cgroup1: %w", s.lost(errors.New("has died"))), false},
		"refused":           {&failedError{text: "mount: not permitted"}, false},
		"none":              {nil, false},
	} {
		if got := late(c.err); got != c.want {
			t.Errorf("%s: late is %v", name, got)
		}
	}
	e := &Executor{}
	e.can.Promises, e.can.Why = map[sandbox.Promise]sandbox.Strength{}, map[sandbox.Promise]string{}
	if e.nothing(s.late(time.Second)); !errors.As(e.broken, new(*silentError)) || e.broken.Error() != "sandbox ns could not be tried on this host, which is busy; try again: the sandbox's init did not answer within 1s" {
		t.Error(e.broken)
	}
}
