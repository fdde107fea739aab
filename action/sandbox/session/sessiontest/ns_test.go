//go:build linux

package sessiontest_test

import (
	"context"
	"os"
	"testing"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/bwrap"
	"tranche/action/sandbox/landlock"
	"tranche/action/sandbox/ns"
	"tranche/action/sandbox/session"
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

// Sessions go on the other back ends that have private descriptors too.
func TestSessionsOnOthers(t *testing.T) {
	for name, open := range map[string]func() (sandbox.Executor, error){
		"landlock": func() (sandbox.Executor, error) { return landlock.New(landlock.Config{}) },
		"bwrap":    func() (sandbox.Executor, error) { return bwrap.New(bwrap.Config{}) },
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getenv("TRANCHE_ALL_BACKENDS") == "" {
				t.Skip("the same on ns is played; set TRANCHE_ALL_BACKENDS=1")
			}
			x, err := open()
			if err != nil {
				t.Skipf("this host cannot run the back end %s: %v", name, err)
			}
			t.Cleanup(func() {
				if err := x.Close(); err != nil {
					t.Error(err)
				}
			})
			sessiontest.Run(t, func(t *testing.T) sandbox.Sandbox {
				b, err := x.Open(context.Background(), sandbox.Spec{})
				if err != nil {
					t.Fatal(err)
				}
				return b
			})
		})
	}
}

func BenchmarkOnNs(b *testing.B) {
	x := isolating(b)
	sessiontest.Bench(b, func() (sandbox.Sandbox, error) { return x.Open(context.Background(), sandbox.Spec{}) })
}

// The memory limit ends an interpreter that is over it, and only the program where a child of the interpreter is.
func TestMemoryLimitAndSessions(t *testing.T) {
	x := isolating(t)
	if why := x.Capabilities(); why.Promises[sandbox.PromiseMemory] != sandbox.Enforced {
		t.Skipf("no memory limit here: %s", why.Why[sandbox.PromiseMemory])
	}
	ctx := context.Background()
	b, err := x.Open(ctx, sandbox.Spec{Limits: sandbox.Limits{Memory: 64 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, c := range []struct {
		kind session.Kind
		code string
		lost bool
	}{
		{session.Python, "x = b'x' * (1 << 28)", true},
		{session.Bash, "y=1; python3 -c \"x = b'x' * (1 << 28)\"", false},
	} {
		s, err := session.New(b, session.Options{Kind: c.kind})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Do(ctx, c.code, session.Limits{Wall: time.Minute})
		if err != nil || r.Lost != c.lost || r.Usage.OOMKills != 1 || c.lost != (r.Status == sandbox.StatusMemoryLimit) || !c.lost && r.Exit != 137 {
			t.Errorf("%s: %+v printed %q, %v", c.kind, r, r.Output.Head, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
