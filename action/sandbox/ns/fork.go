//go:build linux && (amd64 || arm64)

package ns

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneArgs is struct clone_args of the kernel.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

func vfork(call, a1, a2, a3 uintptr) (pid, errno uintptr)

// sigaction is what the kernel takes: handler, flags, restorer, mask.
type sigaction [4]uint64

// launch is all that a new process needs between fork and exec, in the form the kernel takes it: the child shares our memory and
// may neither allocate nor call anything that the runtime must know of.
type launch struct {
	clone  cloneArgs // used where into is set
	into   bool      // clone into a control group
	paths  []*byte   // tried one after the other, as execvp does
	args   []*byte   // ended by nil
	env    []*byte   // likewise
	dir    *byte
	fds    [4]uintptr // become 0, 1, …; all of them are above those numbers
	fdsLen uintptr
	limits []rlimit
	guest  uintptr         // user and group id
	filter *unix.SockFprog // nil = the forking thread is under it already

	call, a1, a2  uintptr // what forks
	pidfd         int32   // of what was forked
	handled       [4]uintptr
	defaultAction sigaction
	noSignals     uint64
	allSignals    uint64
	noCaps        [2]unix.CapUserData
	capHeader     unix.CapUserHeader

	step  uintptr       // what failed in the child; a number, since the child may not write a pointer
	errno syscall.Errno // 0 = the program was started
}

type rlimit struct {
	resource uintptr
	cur, max uint64
}

const lastSignal = 64

// handled are the signals that Go has handlers for in an init: faults, and the one that stops a goroutine.
func handled() [4]uintptr {
	return [...]uintptr{uintptr(unix.SIGSEGV), uintptr(unix.SIGBUS), uintptr(unix.SIGFPE), uintptr(unix.SIGURG)}
}

// the steps of the child, and clone before them.
const (
	atClone = iota
	atSetpgid
	atDup
	atClose
	atGroup
	atUser
	atCaps
	atDir
	atLimits
	atPrivs
	atFilter
	atMask
	atExec
)

func stepNames() []string {
	return []string{"clone3", "setpgid", "dup3", "close_range", "setresgid", "setresuid", "drop capabilities", "chdir", "prlimit",
		"no_new_privs", "seccomp", "sigprocmask", "execve"}
}

// start forks and executes. Only the thread that keeps the slot's requests calls it. The error is the child's, and the program was
// not started then.
func (l *launch) start() (pid int, err error) {
	const flags = unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_PIDFD
	l.clone.flags, l.clone.pidfd = flags|unix.CLONE_INTO_CGROUP, uint64(uintptr(unsafe.Pointer(&l.pidfd)))
	l.clone.exitSignal = uint64(unix.SIGCHLD)
	l.handled = handled()
	l.call, l.a1, l.a2 = unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0
	if l.into {
		l.call, l.a1, l.a2 = unix.SYS_CLONE3, uintptr(unsafe.Pointer(&l.clone)), unsafe.Sizeof(l.clone)
	}
	l.allSignals = ^uint64(0)
	l.capHeader.Version = unix.LINUX_CAPABILITY_VERSION_3
	var before uint64
	rtSigprocmask(&l.allSignals, &before) // no handler of ours may run in the child
	n, errno := l.fork()
	rtSigprocmask(&before, nil)
	runtime.KeepAlive(l)
	switch {
	case errno != 0:
		return 0, &launchError{step: atClone, errno: errno}
	case l.errno != 0:
		return int(n), &launchError{step: l.step, errno: l.errno}
	}
	return int(n), nil
}

// launchError says at which step a program could not be started.
type launchError struct {
	step  uintptr
	errno syscall.Errno
}

func (e *launchError) Error() string { return stepNames()[e.step] + ": " + e.errno.Error() }
func (e *launchError) Unwrap() error { return e.errno }

func rtSigprocmask(set, old *uint64) {
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}

// fork is where the child lives: it never leaves this frame, since the parent goes on in it after the exec. Nothing here but
// RawSyscall6.
//
//go:noinline
//go:norace
//go:nocheckptr
func (l *launch) fork() (uintptr, syscall.Errno) {
	pid, errno := vfork(l.call, l.a1, l.a2, uintptr(unsafe.Pointer(&l.pidfd)))
	if pid != 0 || errno != 0 {
		return pid, syscall.Errno(errno)
	}
	var (
		e      syscall.Errno
		step   uintptr
		i      uintptr
		failed syscall.Errno
	)
	for i = 0; i < uintptr(len(l.handled)); i++ { // exec would do that, but a signal may come before it
		syscall.RawSyscall6(unix.SYS_RT_SIGACTION, l.handled[i], uintptr(unsafe.Pointer(&l.defaultAction)), 0, 8, 0, 0)
	}
	step = atSetpgid
	if _, _, e = syscall.RawSyscall6(unix.SYS_SETPGID, 0, 0, 0, 0, 0, 0); e != 0 {
		goto fail
	}
	step = atDup
	for i = 0; i < l.fdsLen; i++ {
		if _, _, e = syscall.RawSyscall6(unix.SYS_DUP3, l.fds[i], i, 0, 0, 0, 0); e != 0 {
			goto fail
		}
	}
	step = atClose
	if _, _, e = syscall.RawSyscall6(unix.SYS_CLOSE_RANGE, l.fdsLen, 0xffffffff, 0, 0, 0, 0); e != 0 {
		goto fail
	}
	step = atGroup
	if _, _, e = syscall.RawSyscall6(unix.SYS_SETRESGID, l.guest, l.guest, l.guest, 0, 0, 0); e != 0 {
		goto fail
	}
	step = atUser
	if _, _, e = syscall.RawSyscall6(unix.SYS_SETRESUID, l.guest, l.guest, l.guest, 0, 0, 0); e != 0 {
		goto fail
	}
	step = atCaps
	if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); e != 0 {
		goto fail
	}
	if _, _, e = syscall.RawSyscall6(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&l.capHeader)), uintptr(unsafe.Pointer(&l.noCaps)), 0, 0, 0, 0); e != 0 {
		goto fail
	}
	step = atDir
	if _, _, e = syscall.RawSyscall6(unix.SYS_CHDIR, uintptr(unsafe.Pointer(l.dir)), 0, 0, 0, 0, 0); e != 0 {
		goto fail
	}
	step = atLimits
	for i = 0; i < uintptr(len(l.limits)); i++ {
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, l.limits[i].resource, uintptr(unsafe.Pointer(&l.limits[i].cur)), 0, 0, 0); e != 0 {
			goto fail
		}
	}
	step = atPrivs
	if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		goto fail
	}
	step = atFilter
	if l.filter == nil {
		goto mask
	}
	if _, _, e = syscall.RawSyscall6(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		uintptr(unsafe.Pointer(l.filter)), 0, 0, 0); e != 0 {
		goto fail
	}
mask:
	step = atMask
	if _, _, e = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&l.noSignals)), 0, 8, 0, 0); e != 0 {
		goto fail
	}
	step = atExec
	for i = 0; i < uintptr(len(l.paths)); i++ {
		_, _, e = syscall.RawSyscall6(unix.SYS_EXECVE, uintptr(unsafe.Pointer(l.paths[i])), uintptr(unsafe.Pointer(&l.args[0])), uintptr(unsafe.Pointer(&l.env[0])), 0, 0, 0)
		if failed == 0 || failed == syscall.ENOENT || failed == syscall.ENOTDIR {
			failed = e // the first that says more than "not here"
		}
	}
	e = failed
fail:
	l.step, l.errno = step, e
	for {
		syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 127, 0, 0, 0, 0, 0)
	}
}
