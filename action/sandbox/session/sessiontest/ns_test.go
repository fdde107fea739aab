//go:build linux

package sessiontest_test

import (
	"context"
	"testing"

	"tranche/action/sandbox"
	"tranche/action/sandbox/ns"
	"tranche/action/sandbox/session/sessiontest"
)

func isolating(tb testing.TB) *ns.Executor {
	tb.Helper()
	x, err := ns.New(ns.Config{})
	if err != nil {
		tb.Skipf("this host cannot run the back end ns: %v", err)
	}
	tb.Cleanup(func() {
		if err := x.Close(); err != nil {
			tb.Error(err)
		}
	})
	return x
}

func TestSessionsOnNs(t *testing.T) {
	x := isolating(t)
	sessiontest.Run(t, func(t *testing.T) sandbox.Sandbox {
		b, err := x.Open(context.Background(), sandbox.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}

func BenchmarkOnNs(b *testing.B) {
	x := isolating(b)
	sessiontest.Bench(b, func() (sandbox.Sandbox, error) { return x.Open(context.Background(), sandbox.Spec{}) })
}
