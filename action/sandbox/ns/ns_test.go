//go:build linux && (amd64 || arm64)

package ns

import (
	"context"
	"os"
	"testing"
	"time"

	"tranche/action/sandbox"
)

func TestMain(m *testing.M) {
	Init()
	os.Exit(m.Run())
}

// newExecutor makes an executor that is closed at the end; a test of a back end that cannot work here is skipped.
func newExecutor(t testing.TB, c Config) *Executor {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if e.broken != nil {
		t.Fatalf("no sandbox here: %v", e.broken)
	}
	return e
}

func open(t testing.TB, e *Executor, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	b, err := e.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

func run(t testing.TB, b sandbox.Sandbox, cmd sandbox.Cmd) sandbox.Result {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	p, err := b.Start(ctx, cmd)
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestRuns(t *testing.T) {
	e := newExecutor(t, Config{})
	t.Logf("%+v", e.Capabilities())
	b := open(t, e, sandbox.Spec{})
	for _, args := range [][]string{{"true"}, {"python3", "-c", "import os; print(os.getuid(), os.getpid(), os.listdir('/'), os.listdir('/dev'))"},
		{"sh", "-c", "cat /proc/self/mountinfo /proc/self/cgroup /proc/self/status; ulimit -a; id; ls -la / /etc /w /tmp /dev; env; cat /proc/self/maps | head -3"}} {
		res := run(t, b, sandbox.Cmd{Args: args})
		t.Logf("%v: %+v\n%s%s\n%s", args, res.Status, res.Stdout.Head, res.Stdout.Tail, res.Stderr.Head)
		t.Logf("%+v", res.Usage)
	}
}
