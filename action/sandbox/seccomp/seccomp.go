//go:build linux && (amd64 || arm64)

package seccomp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter denies what a program has no business with and what would widen the kernel's surface; everything else is allowed, so
// that a program of tomorrow runs. Most answers are EPERM. ENOSYS is given where libraries know how to do without.

// LowestPid is the lowest process id that programs of a slot get: below are the init's threads, which run under the same
// id where there is only one, and which no program may signal, limit or reschedule.
const LowestPid = 100

// deniedEverywhere are calls that fail with EPERM.
func deniedEverywhere() []uint32 {
	return append([]uint32{
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
		unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS, unix.SYS_UNSHARE,
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE,
		unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_MEMFD_SECRET,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
		unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
		unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
		unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP, unix.SYS_NFSSERVCTL,
		unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES, unix.SYS_MQ_OPEN,
	}, deniedHere()...)
}

// missing are calls that fail with ENOSYS: clone3 hides its flags in memory, where no filter sees them, pidfds reach the init
// through /proc/1, and the kernel has one number for all contexts of asynchronous I/O on the host.
func missing() []uint32 {
	return []uint32{unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_PIDFD_SEND_SIGNAL,
		unix.SYS_IO_SETUP}
}

// firstArgIsPid are calls that may not name one of the init's threads.
func firstArgIsPid() []uint32 {
	return []uint32{
		unix.SYS_PIDFD_OPEN, unix.SYS_PRLIMIT64,
		unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETAFFINITY,
	}
}

// sender is a call that sends a signal, with the place of its number.
type sender struct{ call, number uint32 }

// senders may not name one of the init's threads either.
func senders() []sender {
	return []sender{{unix.SYS_KILL, 1}, {unix.SYS_TKILL, 1}, {unix.SYS_TGKILL, 2}, {unix.SYS_RT_SIGQUEUEINFO, 1}, {unix.SYS_RT_TGSIGQUEUEINFO, 2}}
}

// stops are the signals that stop a process. None may be sent: who stops all there is would stop a program that is just being
// started, between fork and exec, and with it the init, which waits for the exec. A terminal still stops what runs on it. Nor may the one that
// undoes a stop: two that send it to each other could not be held.
func stops() []uint32 {
	return []uint32{uint32(unix.SIGSTOP), uint32(unix.SIGTSTP), uint32(unix.SIGTTIN), uint32(unix.SIGTTOU), uint32(unix.SIGCONT)}
}

const (
	newNamespace = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

	socketKind = 0xf // the bits of a socket's type that are not flags

	offNumber, offArch, offArgs = 0, 4, 16 // of struct seccomp_data
	x32Bit                      = 0x40000000
)

// assembler writes a classic BPF program over struct seccomp_data.
type assembler struct{ code []unix.SockFilter }

func (a *assembler) load(offset uint32) { a.op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0) }
func (a *assembler) ret(v uint32)       { a.op(unix.BPF_RET|unix.BPF_K, v, 0, 0) }
func (a *assembler) op(code uint16, k uint32, yes, no uint8) {
	a.code = append(a.code, unix.SockFilter{Code: code, K: k, Jt: yes, Jf: no})
}

// when appends a block that runs where a comparison holds; the block must end in ret or with the number loaded again.
func (a *assembler) when(code uint16, k uint32, block func()) {
	at := len(a.code)
	a.op(unix.BPF_JMP|unix.BPF_K|code, k, 0, 0)
	block()
	a.code[at].Jf = uint8(len(a.code) - at - 1) // a block has some instructions
}

func (a *assembler) fail(errno unix.Errno) { a.ret(unix.SECCOMP_RET_ERRNO | uint32(errno)) }
func (a *assembler) deny(calls []uint32, errno unix.Errno) {
	for _, nr := range calls {
		a.when(unix.BPF_JEQ, nr, func() { a.fail(errno) })
	}
}

// args appends a block for one call, which looks at the lower half of an argument; reaching its end allows the call.
func (a *assembler) args(nr uint32, arg uint32, block func()) {
	a.when(unix.BPF_JEQ, nr, func() {
		a.load(offArgs + 8*arg)
		block()
		a.ret(unix.SECCOMP_RET_ALLOW)
	})
}

// initThread denies a call whose loaded argument names a thread of the init.
func (a *assembler) initThread() {
	a.when(unix.BPF_JGE, 1, func() {
		a.op(unix.BPF_JMP|unix.BPF_K|unix.BPF_JGE, LowestPid, 1, 0)
		a.fail(unix.EPERM)
	})
}

// systemV are the calls that make System V objects, which outlive processes and count as nobody's memory.
func systemV() []uint32 { return []uint32{unix.SYS_SHMGET, unix.SYS_SEMGET, unix.SYS_MSGGET} }

// Refusals are calls that are refused besides, for what a back end cannot hold by other means.
type Refusals struct {
	SystemV     bool // System V objects: memory that outlives its processes and that no limit of a process counts
	MemoryFiles bool // memfd_create, where no control group counts what is written into the file
	Sockets     bool // all but pairs of the program's own that stay connected to each other, where no namespace stands between it and the host
	Others      bool // limits and priorities of whoever is named by a number, where no process namespace does
}

// Filter is the program that every untrusted process runs under.
func Filter(r Refusals) []unix.SockFilter {
	a := begin()
	a.when(unix.BPF_JGE, x32Bit, func() { a.fail(unix.ENOSYS) })
	a.deny(deniedEverywhere(), unix.EPERM)
	a.deny(missing(), unix.ENOSYS)
	if r.SystemV {
		a.deny(systemV(), unix.ENOSYS)
	}
	if r.MemoryFiles { // no limit of a process counts what is written into them
		a.deny([]uint32{unix.SYS_MEMFD_CREATE}, unix.ENOSYS)
	}
	if r.Sockets {
		a.deny([]uint32{unix.SYS_SOCKET}, unix.EACCES)
	}
	a.args(unix.SYS_CLONE, 0, func() { a.when(unix.BPF_JSET, newNamespace, func() { a.fail(unix.EPERM) }) })
	for _, nr := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		a.args(nr, 0, func() {
			if r.Sockets { // a pair of datagrams can be connected anew, to any socket of the host that has a path
				a.load(offArgs + 8*1)
				a.op(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, socketKind, 0, 0)
				a.only(unix.EACCES, unix.SOCK_STREAM, unix.SOCK_SEQPACKET)
				a.load(offArgs)
			}
			a.only(unix.EAFNOSUPPORT, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6)
			a.load(offArgs + 8*2) // other protocols would make the kernel load modules that hardly anybody looks at
			a.only(unix.EPROTONOSUPPORT, 0, unix.IPPROTO_ICMP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6)
		})
	}
	for _, nr := range firstArgIsPid() {
		if r.Others && nr != unix.SYS_PIDFD_OPEN { // that reaches nobody: no signal goes that way
			a.args(nr, 0, func() { a.only(unix.EPERM, 0) })
			continue
		}
		a.args(nr, 0, a.initThread)
	}
	for _, s := range senders() {
		a.args(s.call, 0, func() {
			a.initThread()
			a.load(offArgs + 8*s.number)
			a.deny(stops(), unix.EPERM)
		})
	}
	for _, nr := range []uint32{unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET} {
		a.priority(nr, r.Others)
	}
	a.args(unix.SYS_FCNTL, 1, func() { a.deny([]uint32{unix.F_SETOWN, unix.F_SETOWN_EX}, unix.EPERM) }) // a signal to the init
	a.args(unix.SYS_IOCTL, 1, func() {
		a.deny([]uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD, fiosetown, siocspgrp}, unix.EPERM)
	})
	a.ret(unix.SECCOMP_RET_ALLOW)
	return a.code
}

// Outer denies only what neither programs nor the process that starts them have any business with: another tool may put it around both.
func Outer() []unix.SockFilter {
	a := begin()
	a.deny(deniedEverywhere(), unix.EPERM)
	a.ret(unix.SECCOMP_RET_ALLOW)
	return a.code
}

// begin kills who makes calls of another architecture, which have other numbers, and loads the number of the call.
func begin() *assembler {
	a := &assembler{}
	a.load(offArch)
	a.op(unix.BPF_JMP|unix.BPF_K|unix.BPF_JEQ, auditArch, 1, 0)
	a.ret(unix.SECCOMP_RET_KILL_PROCESS)
	a.load(offNumber)
	return a
}

// Prog is a filter in the form the kernel takes.
func Prog(code []unix.SockFilter) *unix.SockFprog {
	return &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
}

// ConfineThread puts this thread, and what it forks, under the filter: once, since attaching it takes longer than the rest of a start.
// It cannot call clone3 then.
func ConfineThread(code []unix.SockFilter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(Prog(code))))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

// the ioctls that do what F_SETOWN does.
const fiosetown, siocspgrp = 0x8901, 0x8902

// only denies a call whose loaded argument is none of some values.
func (a *assembler) only(errno unix.Errno, values ...uint32) {
	for i, v := range values {
		a.op(unix.BPF_JMP|unix.BPF_K|unix.BPF_JEQ, v, uint8(len(values)-i), 0)
	}
	a.fail(errno)
}

// priority denies a call whose second argument names a thread of the init (or anybody but the caller), or whose first says that it means all
// of a user.
func (a *assembler) priority(nr uint32, others bool) {
	const ofUser, ofUserIO = unix.PRIO_USER, 3
	a.when(unix.BPF_JEQ, nr, func() {
		a.load(offArgs)
		a.deny([]uint32{map[bool]uint32{true: ofUser, false: ofUserIO}[nr == unix.SYS_SETPRIORITY]}, unix.EPERM)
		a.load(offArgs + 8)
		if others {
			a.only(unix.EPERM, 0)
		} else {
			a.initThread()
		}
		a.ret(unix.SECCOMP_RET_ALLOW)
	})
}
