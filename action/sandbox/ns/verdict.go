//go:build linux && (amd64 || arm64)

package ns

import (
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// facts are what is known of a run's end. Its status follows from them alone, and none of them is a guess: that a program was killed
// does not say by what.
type facts struct {
	stopped      map[sandbox.Status]bool // what we stopped it for
	missing      bool                    // it could not be executed
	wait         unix.WaitStatus
	oomKills     int
	refusedForks int
	cpu          time.Duration
	cpuLimit     time.Duration // 0 = none
}

func (f *facts) stop(why sandbox.Status) {
	if f.stopped == nil {
		f.stopped = map[sandbox.Status]bool{}
	}
	f.stopped[why] = true
}

// notStarted notes why a program could not be executed. That there is no process or memory left is the doing of others in the sandbox.
func (f *facts) notStarted(errno unix.Errno) {
	f.missing = true
	switch errno {
	case unix.EAGAIN:
		f.refusedForks = 1
	case unix.ENOMEM:
		f.oomKills = 1
	}
}

// result is the part of a result that the facts decide.
func (f *facts) result() sandbox.Result {
	r := sandbox.Result{Exit: -1, Status: f.status()}
	switch {
	case f.missing:
	case f.wait.Signaled():
		r.Signal = int(f.wait.Signal())
	case f.wait.Exited():
		r.Exit = f.wait.ExitStatus()
	}
	return r
}

// status follows the order that the statuses are documented in.
func (f *facts) status() sandbox.Status {
	signal := unix.Signal(0)
	if !f.missing && f.wait.Signaled() {
		signal = f.wait.Signal()
	}
	bad := f.missing || signal != 0 || f.wait.ExitStatus() != 0
	switch {
	case f.stopped[sandbox.StatusCanceled]:
		return sandbox.StatusCanceled
	case f.oomKills > 0:
		return sandbox.StatusMemoryLimit
	case f.cpuLimit > 0 && (f.cpu >= f.cpuLimit || signal == unix.SIGXCPU || f.stopped[sandbox.StatusCPULimit]):
		return sandbox.StatusCPULimit
	case f.stopped[sandbox.StatusWallLimit]:
		return sandbox.StatusWallLimit
	case f.stopped[sandbox.StatusOutputLimit]:
		return sandbox.StatusOutputLimit
	case signal == unix.SIGXFSZ:
		return sandbox.StatusFileLimit
	case signal == unix.SIGSYS:
		return sandbox.StatusDenied
	case f.refusedForks > 0 && bad:
		return sandbox.StatusPidsLimit
	case f.missing:
		return sandbox.StatusNotFound
	case signal != 0:
		return sandbox.StatusSignaled
	case bad:
		return sandbox.StatusNonzero
	}
	return sandbox.StatusOK
}
