//go:build linux && (amd64 || arm64)

package ns

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
	"tranche/action/sandbox/seccomp"
)

// socketFD is the init's end of the socket.
const socketFD = socketNumber

// closeInherited closes what the host holds open without close-on-exec; what has that mark was opened since, by this process: Go's runtime
// may have begun to poll before main. It asks the kernel itself, for package os would begin to poll.
func closeInherited() error {
	dir, err := unix.Open("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	var names []string
	buf := make([]byte, 8<<10)
	for n := 1; n > 0; {
		if n, err = unix.ReadDirent(dir, buf); err != nil {
			return err
		}
		_, _, names = unix.ParseDirent(buf[:max(n, 0)], -1, names)
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= socketFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd) // an error leaves it closed too
		}
	}
	return nil
}

// Init must be the first thing that main does, and TestMain in tests that use the back end. It returns at once, unless this process
// was started to be the init of a slot: then it never returns.
func Init() {
	if len(os.Args) == 3 && os.Args[1] == initName && os.Getpid() == 1 {
		must("connect to the host", connect(os.Args[2]))
	}
	if n := len(os.Args); n == 0 || n > 2 || os.Args[n-1] != initName || os.Getpid() != 1 { // the name is second where another program starts us
		return
	}
	onFirstThread(func() {
		must("close what the host has open", closeInherited())
		hide()
		debug.FreeOSMemory()
		in := &inside{files: make(chan func()), mounts: make(chan func()), lanes: map[string][]int{}, runs: map[int]*program{}}
		onOtherThread(func() {
			if err := in.serve(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			unix.Exit(1) // takes all of the slot with it
		})
		in.orphans()
	})
}

// hide keeps programs of the slot away from the init, and ends it with its host.
func hide() {
	// Signals: what Go makes of one that nobody listens to is the end of the process. By the kernel's default nothing happens to
	// process 1 of a namespace, and a program inherits the default. What is Go's stays Go's, and launch resets it.
	var byDefault sigaction
	ours := handled()
	for s := uintptr(1); s <= lastSignal; s++ {
		if !slices.Contains(ours[:], s) {
			_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0) // SIGKILL and SIGSTOP cannot be set
		}
	}
	must("prctl", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	must("prctl", unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
	unix.Umask(0o022)
}

func must(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		unix.Exit(1)
	}
}

// onOtherThread runs f on a thread of its own that is not the process's first: the kernel counts the memory of a process where its
// first thread belongs, and the init is to stay outside the group of its programs.
func onOtherThread(f func()) {
	go func() {
		runtime.LockOSThread() // never the first: onFirstThread has it
		f()
	}()
}

// onFirstThread runs f, which does not return, on the process's first thread, and keeps that. It comes before all that takes threads:
// whoever else held the first one would make it look for ever, taking one more thread at each look.
func onFirstThread(f func()) {
	found := make(chan struct{})
	var try func()
	try = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			close(found)
			f()
		}
		go try() // on another thread, since this one is taken
		<-found
		runtime.UnlockOSThread()
	}
	try()
	select {}
}

// inside is the init of a slot.
type inside struct {
	setup  setup
	filter []unix.SockFilter
	work   *os.File // the program's folder, and /tmp
	null   int      // /dev/null: the input of programs that have none
	guest  int      // user and group of programs
	tmp    *os.File
	files  chan func()      // to the thread that works on files as a program would
	mounts chan func()      // to the thread that may mount and stop programs: that of serve is under the filter
	lanes  map[string][]int // descriptors of control groups, by name
	lane   string           // where the thread of serve is
	unused []int            // descriptors of programs that are over; closed before the next wait but one
	lookAt int64            // CLOCK_MONOTONIC in ns: when the CPU time of programs has to be looked at; 0 = none has a limit
	left   int              // programs that ended and were allowed to leave processes
	send   sync.Mutex       // guards writes to the socket
	mu     sync.Mutex       // who reaps holds it; guards what follows
	runs   map[int]*program // by process id; only the thread of serve changes it, so it may read without
	reaped int64            // CPU time of all that was reaped since the last reset, ns
}

// program is one program that was started.
type program struct {
	id         uint64
	pid        int
	fd         int   // a pidfd: ready when it has ended
	out        []int // its output: kept, or the host would be woken by its end just before the reply
	at         int64 // CLOCK_MONOTONIC in ns: when it was started
	lane       string
	background bool
	cpu        int64 // ns
	peak       int64 // bytes
	limit      int64 // ns of CPU time; 0 = none, or seen to by the host
	before     int64 // ns, used in the slot before it began
	over       bool  // it was killed for its CPU time
}

// serve does what the host asks for until the host is gone, and sees to the ends of programs: one thread does both, for every
// hand-over between threads takes longer than what is to be done.
func (in *inside) serve() error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 50_000, 0, 0, 0); err != nil { // the kernel's default, in ns: programs inherit it
		return err
	}
	buf := make([]byte, frameBytes)
	for {
		asked, ended, err := in.wait()
		if err != nil {
			return err
		}
		for _, pid := range ended {
			in.ended(pid)
		}
		if !asked {
			continue
		}
		req, fds, err := receive(buf)
		if err != nil {
			return err
		}
		if req == nil {
			return nil
		}
		in.handle(req, fds)
	}
}

// wait waits for a request or the end of a program.
func (in *inside) wait() (asked bool, ended []int, err error) {
	on := append(make([]unix.PollFd, 0, 4), unix.PollFd{Fd: socketFD, Events: unix.POLLIN})
	pids := make([]int, 1, 4)
	for pid, p := range in.runs {
		on, pids = append(on, unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN}), append(pids, pid)
	}
	linger, unused := in.untilLook(), in.unused
	if unused != nil && (linger < 0 || linger > 10) {
		linger = 10 // ms: by then the host has let go of the other ends, or the next request is here
	}
	n, err := unix.Poll(on, linger)
	for err != nil && errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(on, linger)
	}
	if err != nil {
		return false, nil, fmt.Errorf("wait for requests: %w", err)
	}
	in.look()
	in.unused = nil
	for _, fd := range unused {
		unix.Close(fd)
	}
	if n == 0 {
		return false, nil, nil
	}
	for i, p := range on[1:] {
		if p.Revents != 0 {
			ended = append(ended, pids[i+1])
		}
	}
	return on[0].Revents != 0, ended, nil
}

// receive reads one request. It is nil when the host is gone.
func receive(buf []byte) (*request, []int, error) {
	oob := make([]byte, unix.CmsgSpace(4*mostFDs))
	n, oobn, flags, _, err := unix.Recvmsg(socketFD, buf, oob, unix.MSG_CMSG_CLOEXEC)
	switch {
	case errors.Is(err, unix.EINTR):
		return receive(buf)
	case err != nil:
		return nil, nil, fmt.Errorf("read a request: %w", err)
	case n == 0:
		return nil, nil, nil
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		return nil, nil, errors.New("a request was cut")
	}
	fds, err := rights(oob[:oobn])
	if err != nil {
		return nil, nil, err
	}
	body := buf[1:n]
	if buf[0] == frameFile {
		last := len(fds) - 1
		if body, err = readFile(fds[last]); err != nil {
			return nil, nil, err
		}
		unix.Close(fds[last])
		fds = fds[:last]
	}
	req := &request{}
	return req, fds, decode(body, req)
}

func rights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, err
		}
		all = append(all, fds...)
	}
	return all, nil
}

// readFile returns what a memory file holds.
func readFile(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	b := make([]byte, st.Size)
	for at := 0; at < len(b); {
		n, err := unix.Pread(fd, b[at:], int64(at))
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, errShort
		}
		at += n
	}
	return b, nil
}

func (in *inside) reply(r reply) {
	r.clip()
	b := encode(&r)
	in.send.Lock()
	defer in.send.Unlock()
	for {
		_, err := unix.SendmsgN(socketFD, b, nil, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return // a host that is gone is noticed by receive
		}
	}
}

func (in *inside) done(id uint64, err error) {
	if err == nil {
		in.reply(reply{ID: id, What: saidDone})
		return
	}
	in.reply(failure(id, err))
}

// failure is what a reply says of an error. Those of package sandbox keep their type.
func failure(id uint64, err error) reply {
	r := reply{ID: id, What: saidFailed, Text: err.Error()}
	var errno unix.Errno
	if errors.As(err, &errno) {
		r.Errno = uint64(errno)
	}
	packFault(&r, err)
	return r
}

func (in *inside) handle(req *request, fds []int) {
	switch req.Op {
	case opSetup:
		in.done(req.ID, in.prepare(req.Setup, fds))
	case opStart:
		in.start(req, fds)
		return // it closes what it does not keep
	case opBegun:
		in.begun(req.Target)
	case opKill:
		in.signal(req.Target, unix.SIGKILL, false)
		in.done(req.ID, nil)
	case opInterrupt:
		in.signal(req.Target, unix.SIGINT, true)
		in.done(req.ID, nil)
	case opUsage:
		in.reply(reply{ID: req.ID, What: saidDone, CPU: in.usage()})
	case opReset:
		in.done(req.ID, in.reset())
	case opPause:
		others, err := in.pause()
		if err != nil {
			in.done(req.ID, err)
		} else {
			in.reply(reply{ID: req.ID, What: saidDone, Left: others})
		}
	case opResume:
		in.done(req.ID, in.signalAll(unix.SIGCONT))
	case opPut, opGet, opSnapshot, opRestore:
		in.files <- func() { in.file(req, fds[0]) }
		return
	case opDigest:
		in.files <- func() { in.digest(req) }
	default:
		in.done(req.ID, fmt.Errorf("unknown request %d", req.Op))
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// prepare makes this process what the slot is to be.
func (in *inside) prepare(s setup, fds []int) error {
	if s.Launched {
		return in.prepareLaunched(s)
	}
	in.setup, in.guest = s, guest
	tree := -1
	if s.RootfsTree {
		tree = fds[0]
	}
	var r root
	if err := r.build(s, tree); err != nil {
		return err
	}
	if err := in.openFolders(); err != nil {
		return err
	}
	var err error
	if in.null, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	if !s.Net {
		if err := raiseLoopback(); err != nil {
			return fmt.Errorf("bring lo up: %w", err)
		}
	}
	if err := dropBounding(); err != nil {
		return err
	}
	in.filter = seccomp.Filter(seccomp.Refusals{SystemV: r.shmStays || s.Memory > 0, MemoryFiles: s.Memory > 0})
	in.startThreads()
	if err := skipPids(r.lastPid); err != nil || s.IntoCgroup {
		return err
	}
	return seccomp.ConfineThread(in.filter)
}

// startThreads starts the threads that the init will ever need, so that all of them have low ids (seccomp.LowestPid).
func (in *inside) startThreads() {
	ready := make(chan struct{})
	begin := func(f func()) {
		onOtherThread(func() {
			ready <- struct{}{}
			f()
		})
	}
	begin(in.asGuest)
	begin(in.asRoot)
	const begun = 2
	for range begun {
		<-ready
	}
	if !in.setup.OwnIdentity {
		padThreads()
	}
}

// padThreads makes threads, which Go takes when others wait in the kernel, until there are as many as in each slot: where they count as
// processes of the programs, no slot may be told from another by them, nor one begin later.
func padThreads() {
	const all = 16
	for n := threads(); n != all; n = threads() {
		var held []chan bool
		for ; n < all; n = threads() {
			held = append(held, holdThread())
		}
		for _, h := range held { // the runtime may start one while none is free: the next look sees to that
			h <- true
			<-h
		}
		if len(held) == 0 {
			endThread()
		}
	}
}

// endThread ends one, and waits until it is counted no more; not for ever, for another may have begun meanwhile.
func endThread() {
	h := holdThread()
	n := threads()
	h <- false
	for range 1000 {
		if threads() < n {
			return
		}
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 1e5}, nil)
	}
}

// holdThread keeps a thread from all others. It is sent true for the thread to become free, and answers when it is, or false for it to end.
func holdThread() chan bool {
	h := make(chan bool)
	go func() {
		runtime.LockOSThread()
		h <- true
		if <-h {
			runtime.UnlockOSThread()
			h <- true
		} // else the thread ends with what is locked to it
	}()
	<-h
	return h
}

// counted is how many processes the programs' id has already: where it is the init's own too, those are its threads. It is asked when a program starts, for
// the runtime starts threads when it needs them and ends others.
func (in *inside) counted() int64 {
	if in.setup.OwnIdentity {
		return 0
	}
	return threads()
}

// threads is how many the init has.
func threads() int64 {
	names, err := os.ReadDir("/proc/self/task")
	must("count threads", err)
	return int64(len(names))
}

// asGuest works on files as the user that programs are: without any capability over them.
func (in *inside) asGuest() {
	if in.setup.OwnIdentity {
		_, _ = unix.SetfsgidRetGid(guest)
		_, _ = unix.SetfsuidRetUid(guest)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	must("capset", unix.Capset(&header, &none[0]))
	for f := range in.files {
		f()
	}
}

// asRoot does what serve may not.
func (in *inside) asRoot() {
	for f := range in.mounts {
		f()
	}
}

// asRootDo has it do something.
func (in *inside) asRootDo(f func() error) error {
	done := make(chan error)
	in.mounts <- func() { done <- f() }
	return <-done
}

// guest is the id of programs in a slot.
const guest = sandbox.GuestID

// skipPids lets programs get process ids from seccomp.LowestPid on.
func skipPids(last *os.File) error {
	defer last.Close()
	if _, err := fmt.Fprint(last, seccomp.LowestPid-1); err != nil {
		return fmt.Errorf("set the next process id: %w", err)
	}
	return nil
}

// dropBounding takes from this thread, and what it forks, what an exec could give.
func dropBounding() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}

func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}
