//go:build linux && (amd64 || arm64)

package ns

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// initName is the name under which our own binary is started to be the init of a slot.
const initName = "tranche: init of a sandbox"

// socketFD is the init's end of the socket.
const socketFD = 3

// Init must be the first thing that main does, and TestMain in tests that use the back end. It returns at once, unless this process
// was started to be the init of a slot: then it never returns.
func Init() {
	if len(os.Args) != 1 || os.Args[0] != initName || os.Getpid() != 1 {
		return
	}
	// What the host holds open without close-on-exec is none of ours.
	must("close_range", unix.CloseRange(socketFD+1, math.MaxUint32, 0))
	hide()
	done := make(chan struct{})
	onOtherThread(func() {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		unix.Exit(1) // takes all of the slot with it
	})
	<-done
}

// hide keeps programs of the slot away from the init, and ends it with its host.
func hide() {
	// Signals: what Go makes of one that nobody listens to is the end of the process. SIGCHLD must stay, or children vanish unreaped;
	// SIGURG is how Go stops goroutines.
	for s := syscall.Signal(1); s <= lastSignal; s++ {
		if s != syscall.SIGCHLD && s != syscall.SIGURG && s != syscall.SIGKILL && s != syscall.SIGSTOP {
			signal.Ignore(s)
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
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		onOtherThread(f)
		select {} // keeps the first thread
	}()
}

// inside is the init of a slot.
type inside struct {
	setup  setup
	filter []unix.SockFilter
	work   *os.File // the program's folder, and /tmp
	null   int      // /dev/null: the input of programs that have none
	tmp    *os.File
	files  chan func()      // to the thread that works on files as a program would
	mounts chan func()      // to the thread that may mount: that of serve is under the filter
	lanes  map[string][]int // descriptors of control groups, by name
	lane   string           // where the thread of serve is
	send   sync.Mutex       // guards writes to the socket
	ends   sync.Mutex       // held while a program begins, and while what one has left is killed; taken before mu
	mu     sync.Mutex       // guards what follows
	gone   *sync.Cond       // childless has become true
	runs   map[int]*program // by process id
	left   int              // programs that ended and were allowed to leave processes
	forks  int              // children so far
	alone  bool             // there is no child
	reaped int64            // CPU time of all that was reaped since the last reset, ns
	forked chan struct{}    // wakes reap
}

// program is one program that was started.
type program struct {
	id         uint64
	pid        int
	lane       string
	background bool
	cpu        int64 // ns
	peak       int64 // bytes
}

// serve does what the host asks for until the host is gone.
func serve() error {
	in := &inside{files: make(chan func()), mounts: make(chan func()), lanes: map[string][]int{}, runs: map[int]*program{}, alone: true, forked: make(chan struct{}, 1)}
	in.gone = sync.NewCond(&in.mu)
	buf := make([]byte, frameBytes)
	for {
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

// receive waits for one request. It is nil when the host is gone.
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
	case opPut, opGet, opSnapshot, opRestore:
		in.files <- func() { in.file(req, fds[0]) }
		return
	default:
		in.done(req.ID, fmt.Errorf("unknown request %d", req.Op))
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// prepare makes this process what the slot is to be.
func (in *inside) prepare(s setup, fds []int) error {
	in.setup = s
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
	in.filter = filter(refusals{systemV: r.shmStays || s.Memory > 0, memoryFiles: s.Memory > 0})
	in.startThreads()
	if !s.OwnIdentity {
		in.setup.Processes += threads()
	}
	if err := skipPids(r.lastPid); err != nil || s.IntoCgroup {
		return err
	}
	return confineThread(in.filter)
}

// startThreads starts the threads that the init will ever need, so that all of them have low ids (filterLowestPid).
func (in *inside) startThreads() {
	ready := make(chan struct{})
	begin := func(f func()) {
		onOtherThread(func() {
			ready <- struct{}{}
			f()
		})
	}
	begin(in.reap)
	begin(in.asGuest)
	begin(in.asRoot)
	const begun = 3
	for range begun {
		<-ready
	}
	const spare = 3 // threads that Go takes when others wait in the kernel
	hold, held := make(chan struct{}), make(chan struct{})
	for range spare {
		go func() {
			runtime.LockOSThread()
			held <- struct{}{}
			<-hold
			runtime.UnlockOSThread()
		}()
	}
	for range spare {
		<-held
	}
	close(hold)
}

// threads is how many the init has: where it has the same id as its programs, they count as processes of that.
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

// guest is the id of programs in a slot.
const guest = 1000

// skipPids lets programs get process ids from filterLowestPid on.
func skipPids(last *os.File) error {
	defer last.Close()
	if _, err := fmt.Fprint(last, filterLowestPid-1); err != nil {
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
