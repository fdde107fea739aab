//go:build linux && (amd64 || arm64)

package ns

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// CPU time without control groups: the kernel limits it for single processes and in whole seconds only, so the init adds up what all processes
// used. It does so itself: it sleeps most of the time and so is woken at once, where the host, with much to do, would ask too late.

// leastLook is how often the time is looked at when it is nearly used up, ns: half of what the kernel counts in.
const leastLook = 5e6

// expect begins to look after a program that is about to be started.
func (in *inside) expect(p *program) {
	in.mu.Lock()
	p.before = in.reaped
	busy := len(in.runs) > 0 || in.left > 0
	in.mu.Unlock()
	if busy {
		p.before = in.usage()
	}
	in.lookBy(p.at + untilUsed(p.limit))
}

// untilUsed is the soonest that so much CPU time can be used up, but not too soon.
func untilUsed(left int64) int64 { return max(leastLook, left/int64(runtime.NumCPU())) }

// lookBy has the time looked at then, or sooner.
func (in *inside) lookBy(at int64) {
	if in.lookAt == 0 || at < in.lookAt {
		in.lookAt = at
	}
}

// untilLook is how long that is from now, in ms as poll takes it; -1 = for ever.
func (in *inside) untilLook() int {
	if in.lookAt == 0 {
		return -1
	}
	const ms = 1e6
	return int(max(0, in.lookAt-monotonic()+ms-1) / ms)
}

// look kills programs that have used up their time, with all that they started where that is all there is.
func (in *inside) look() {
	if in.lookAt == 0 || monotonic() < in.lookAt {
		return
	}
	in.lookAt = 0
	used := int64(-1)
	for pid, p := range in.runs {
		if p.limit == 0 || p.over {
			continue
		}
		if used < 0 {
			used = in.usage()
		}
		if left := p.limit - (used - p.before); left > 0 {
			in.lookBy(monotonic() + untilUsed(left))
			continue
		}
		p.over = true
		if len(in.runs) == 1 && in.left == 0 {
			pid = -1
		}
		_ = unix.Kill(pid, unix.SIGKILL) // ESRCH: it has ended
	}
}
