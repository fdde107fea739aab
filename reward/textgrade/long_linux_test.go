package textgrade

import (
	"context"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// A long text of anything (128 KiB; BenchmarkMegabyte measures) takes no grader long: the bound is in the thread's own CPU time, far above what
// it takes and far below what a quadratic one would.
func TestALongTextTakesNoGraderLong(t *testing.T) {
	if testing.Short() {
		t.Skip("long texts")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	graders := each(t)
	for what, text := range hard(1 << 17) {
		for name, p := range graders {
			before := threadCPU(t)
			if _, err := p.grader.Grade(context.Background(), answered(p.task, text)); err != nil {
				t.Errorf("%s of %s: %v", name, what, err)
			}
			if took := threadCPU(t) - before; took > 5*time.Second {
				t.Errorf("%s of %s: %s of CPU time", name, what, took)
			}
		}
	}
}

func threadCPU(t *testing.T) time.Duration {
	t.Helper()
	const thisThread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thisThread, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
