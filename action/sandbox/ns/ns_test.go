//go:build linux && (amd64 || arm64)

package ns

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"tranche/action/sandbox"
)

func TestMain(m *testing.M) {
	Init()
	os.Exit(m.Run())
}

// newExecutor makes an executor that is closed at the end. Where the back end cannot work the test fails.
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

// residentBytes is how much memory this process has.
func residentBytes(t testing.TB) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}
