// Package offspring ties programs that are started here to this process: each heads a process group of its own, which is ended as a
// whole, and with Leash, where the system can, it dies when we are killed. It is for programs the user trusts: one that leaves its group (setsid) is out of
// reach. Open offspring.go.
package offspring

import (
	"os/exec"
	"runtime"
	"time"
)

// PipeWait is how long output is still read after a program has ended: what it left behind may hold the pipes open for ever.
const PipeWait = 150 * time.Millisecond

// Bind makes cmd, before it is started, the head of a group that is killed when cmd's context ends. Call End when it has ended.
func Bind(cmd *exec.Cmd) {
	bind(cmd)
	cmd.WaitDelay = PipeWait
	if cmd.Cancel != nil { // made with a context
		cmd.Cancel = func() error { return kill(cmd.Process) }
	}
}

// Leash has the kernel kill the program when this process is killed, where it can: nothing else would be left to do it. Call it behind Bind,
// on the goroutine that starts the program and waits for it, and release when it has ended: the kernel goes by the thread, which must be nobody
// else's to end until then.
func Leash(cmd *exec.Cmd) (release func()) {
	runtime.LockOSThread()
	leash(cmd)
	return runtime.UnlockOSThread
}

// End kills what a started program and its group have left running. It is harmless where nothing is left.
func End(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = kill(cmd.Process) // mostly there is nothing to kill, which is an error
	}
}
