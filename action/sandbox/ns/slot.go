//go:build linux && (amd64 || arm64)

package ns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// slot is the host's side of one prepared sandbox.
type slot struct {
	class    string // equal specs have equal classes
	once     bool   // no other sandbox may have it: what it can change outlives a reset
	number   int
	guest    int // host id of its programs; -1 = ours
	limits   sandbox.Limits
	group    group // nil in the tier without control groups
	patience time.Duration
	runs     int // programs so far
	lanes    map[int]string

	process starting // nil until it is started
	said    *os.File // what the init wrote before it died
	sock    *os.File
	raw     syscall.RawConn
	dead    chan struct{} // closed when the init is gone and waited for
	stuck   chan struct{} // closed when it was killed and did not go
	ended   error         // why it may not be gone all the same; set before dead is closed
	killed  sync.Once

	mu      sync.Mutex // guards what follows
	next    uint64
	waiting map[uint64]chan reply
	dirty   error // why it cannot be used again
}

// starting is a process that was started: ours, or one of somebody else's.
type starting interface {
	Kill() error
	Wait() (*os.ProcessState, error)
}

// spoil notes why a slot cannot be used again; nil says nothing. The first cause counts.
func (s *slot) spoil(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirty == nil {
		s.dirty = err
	}
}

func (s *slot) spoiled() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dirty
}

// silentError says that the init of a slot is dead or does not answer.
type silentError struct {
	what string
	late bool // alive, as far as is known: it had no answer in time
}

func (e *silentError) Error() string { return "the sandbox's init " + e.what }

// starter starts the inits of all slots, on a thread of its own: the kernel ends a child whose parent's thread ends, and threads of
// others come and go.
type starter struct {
	jobs    chan func()
	stopped chan struct{} // closed by stop
	done    chan struct{} // closed by the thread
}

func newStarter() *starter {
	s := &starter{jobs: make(chan func()), stopped: make(chan struct{}), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer close(s.done)
		const slack = 5 * time.Millisecond // inits inherit it: Go's own thread looks after the others every 20 µs there while a program begins or ends
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0)
		for {
			select {
			case job := <-s.jobs:
				job()
			case <-s.stopped:
				return
			}
		}
	}()
	return s
}

// do runs a job on the thread. It reports whether there still was one.
func (s *starter) do(job func()) bool {
	done := make(chan struct{})
	select {
	case s.jobs <- func() {
		defer close(done)
		job()
	}:
		<-done
		return true
	case <-s.stopped:
		return false
	}
}

func (s *starter) stop() {
	close(s.stopped)
	<-s.done
}

// identity is whom the processes of a slot are on the host.
type identity struct {
	own           bool // ids of their own; else all are the user we are
	init, program int
}

// owner is the host id of the init, -1 where it is ours.
func (id identity) owner() int {
	if id.own {
		return id.init
	}
	return -1
}

// namespaces are those of a slot. Without its own network it has the host's.
func namespaces(net bool) uintptr {
	flags := uintptr(unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP)
	if !net {
		flags |= unix.CLONE_NEWNET
	}
	return flags
}

// attributes are how an init is started. With ids of its own it is 0 in its namespace and its programs are guest. Else there is one
// id, so the init is guest too, and what makes it more than its programs are capabilities that it keeps over the exec.
func (id identity) attributes(net bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: namespaces(net), Pdeathsig: syscall.SIGKILL, Setsid: true}
	if id.own {
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id.init, Size: 1}, {ContainerID: guest, HostID: id.program, Size: 1}}
		a.GidMappings = a.UidMappings
		a.GidMappingsEnableSetgroups = true // so that our groups can be dropped
		a.Credential = &syscall.Credential{Uid: 0, Gid: 0}
		return a
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: guest, HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: guest, HostID: os.Getegid(), Size: 1}}
	a.Credential = &syscall.Credential{Uid: guest, Gid: guest, NoSetGroups: true}
	a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SYS_RESOURCE, unix.CAP_SETPCAP, unix.CAP_DAC_OVERRIDE}
	return a
}

// initEnv is all the environment that an init has. It should stay small. With one processor its threads would wait for the one that
// waits in the kernel until Go's own thread has noticed that; and there is nothing long in it that a signal would have to stop.
func initEnv() []string {
	return []string{"GOMAXPROCS=2", "GOGC=20", "GODEBUG=memprofilerate=0,madvdontneed=1,asyncpreemptoff=1"}
}

// startInit starts the process and returns our end of its socket.
func (s *slot) startInit(ctx context.Context, st *starter, l *Launch, program string, id identity, spec sandbox.Spec) error {
	if l != nil && l.Start != nil {
		return s.engage(ctx, l, spec)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "socket")
	defer theirs.Close()
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return err
	}
	s.sock = os.NewFile(uintptr(fds[0]), "sandbox")
	if s.raw, err = s.sock.SyscallConn(); err != nil {
		return err
	}
	if s.said, err = memoryFile("init"); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	std := []*os.File{null, null, s.said, theirs}
	if l != nil {
		if err := s.startLaunched(st, l, program, id, spec, std); err != nil {
			return err
		}
		go s.listen()
		return nil
	}
	if err := s.begin(st, program, []string{initName}, std, id.attributes(spec.Net)); err != nil {
		return fmt.Errorf("start an init in new namespaces: %w", err)
	}
	go s.listen()
	return nil
}

// begin starts the process that is the slot's, in its control group.
func (s *slot) begin(st *starter, program string, args []string, files []*os.File, a *syscall.SysProcAttr) error {
	if s.group != nil {
		home, err := s.group.home()
		if err != nil {
			return fmt.Errorf("open a control group: %w", err)
		}
		if home != nil {
			defer home.Close()
			a.UseCgroupFD, a.CgroupFD = true, fileFD(home)
		}
	}
	err := errClosed
	st.do(func() {
		var p *os.Process
		if p, err = os.StartProcess(program, args, &os.ProcAttr{Dir: "/", Env: initEnv(), Files: files, Sys: a}); err == nil {
			s.process = p
		}
	})
	return err
}

// memoryFile makes a file in memory.
func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// listen passes replies on until the init is gone, then waits for it.
func (s *slot) listen() {
	defer close(s.dead)
	buf := make([]byte, replyBytes)
	for {
		n, err := s.sock.Read(buf)
		if err != nil || n == 0 {
			break
		}
		var r reply
		if err := decode(buf[:n], &r); err != nil {
			break // it is not ours any more
		}
		s.pass(r)
	}
	_ = s.process.Kill() // it is gone, or does not do what it should
	_, s.ended = s.process.Wait()
}

// pass hands a reply to who waits for it. What nobody waits for any more is dropped.
func (s *slot) pass(r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.waiting[r.ID]; c != nil {
		select {
		case c <- r:
		default: // more replies than a request has: not from our init
		}
	}
}

// expect makes a channel for the replies of one request; drop ends that.
func (s *slot) expect() (uint64, chan reply) {
	const replies = 4 // a program was asked for twice at most, and ends
	c := make(chan reply, replies)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.waiting[s.next] = c
	return s.next, c
}

func (s *slot) drop(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, id)
}

// post sends a request with descriptors, which stay the caller's.
func (s *slot) post(req *request, fds ...*os.File) error {
	body := encode(req)
	frame := append([]byte{frameInline}, body...)
	if len(frame) > frameBytes {
		f, err := memoryFile("request")
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.Write(body); err != nil {
			return fmt.Errorf("write a request: %w", err)
		}
		frame, fds = []byte{frameFile}, append(fds, f)
	}
	numbers := make([]int, len(fds))
	for i, f := range fds {
		numbers[i] = fileFD(f)
	}
	var oob []byte
	if len(numbers) > 0 {
		oob = unix.UnixRights(numbers...)
	}
	var sendErr error
	err := s.raw.Write(func(fd uintptr) bool {
		_, sendErr = unix.SendmsgN(int(fd), frame, oob, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		return !errors.Is(sendErr, unix.EAGAIN)
	})
	runtime.KeepAlive(fds)
	if err := errors.Join(err, sendErr); err != nil {
		return s.lost(fmt.Errorf("cannot be reached: %w", err))
	}
	return nil
}

// fileFD is a file's descriptor, without making it blocking as os.File.Fd once did.
func fileFD(f *os.File) int {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1
	}
	n := -1
	_ = raw.Control(func(fd uintptr) { n = int(fd) }) // an error: it is closed, and -1 is refused
	return n
}

// ask sends a request and waits for its reply.
func (s *slot) ask(ctx context.Context, req *request, fds ...*os.File) (reply, error) {
	id, c := s.expect()
	defer s.drop(id)
	req.ID = id
	if err := s.post(req, fds...); err != nil {
		return reply{}, err
	}
	timer := time.NewTimer(s.patienceFor(req.Op))
	defer timer.Stop()
	select {
	case r := <-c:
		return r, r.err()
	case <-s.dead:
		return reply{}, s.lost(errors.New("has died"))
	case <-s.stuck:
		return reply{}, s.lost(errStuck)
	case <-ctx.Done():
		s.kill() // what it is doing cannot be stopped otherwise
		return reply{}, ctx.Err()
	case <-timer.C:
		s.kill()
		return reply{}, s.late(s.patienceFor(req.Op))
	}
}

// patienceFor is longer where there is work that takes time.
func (s *slot) patienceFor(o op) time.Duration {
	switch o {
	case opPut, opGet, opSnapshot, opRestore, opDigest:
		return 10 * s.patience
	case opSetup, opReset:
		return 3 * s.patience
	}
	return s.patience
}

// err is the error that a reply stands for.
func (r *reply) err() error {
	switch r.What {
	case saidFailed:
		return &failedError{r.Text, syscall.Errno(r.Errno)}
	case saidFile:
		return r.fault()
	}
	return nil
}

// failedError is what the init could not do.
type failedError struct {
	text  string
	errno syscall.Errno
}

func (e *failedError) Error() string { return "in the sandbox: " + e.text }
func (e *failedError) Unwrap() error { return e.errno }

// late says that the init had no answer in time.
func (s *slot) late(within time.Duration) error {
	said := s.lost(fmt.Errorf("did not answer within %v", within))
	said.late = true
	return said
}

// lost says what became of the init, with its last words.
func (s *slot) lost(err error) *silentError {
	said := &silentError{what: err.Error()}
	if s.said != nil {
		buf := make([]byte, 2000)
		if n, _ := s.said.ReadAt(buf, 0); n > 0 {
			said.what += ": " + strings.TrimSpace(string(buf[:n]))
		}
	}
	return said
}

// kill ends the init, and with it everything in the slot. A process that the kernel holds in a call of its own does not end: what
// waits for it does not wait for ever.
func (s *slot) kill() {
	s.killed.Do(func() {
		_ = s.process.Kill() // an error: it has ended
		time.AfterFunc(s.patienceFor(opReset), func() { close(s.stuck) })
	})
}

var errStuck = errors.New("was killed, and has not ended: the kernel holds one of its processes")

// destroy ends the slot and waits until nothing of it is left, or gives up.
func (s *slot) destroy() error {
	var err error
	if s.process != nil {
		s.kill()
		select {
		case <-s.dead:
			err = s.ended
		case <-s.stuck:
			err = s.lost(errStuck)
		}
	}
	closeAll([]*os.File{s.sock, s.said})
	if s.group != nil {
		err = errors.Join(err, s.group.remove())
	}
	return err
}

// alive reports that the init is there. That it has gone shows on its socket before listen has waited for it.
func (s *slot) alive() bool {
	select {
	case <-s.dead:
		return false
	default:
	}
	gone := false
	err := s.raw.Control(func(fd uintptr) {
		on := []unix.PollFd{{Fd: int32(fd)}} // a hang-up is told unasked
		n, err := unix.Poll(on, 0)
		gone = err == nil && n > 0
	})
	return err == nil && !gone
}

// lane returns the name of a lane, and its descriptors the first time. Without control groups there is neither.
func (s *slot) lane(k int) (string, []*os.File, error) {
	if s.group == nil {
		return "", nil, nil
	}
	if name, ok := s.lanes[k]; ok {
		return name, nil, nil
	}
	name, fds, err := s.group.lane(k)
	if err != nil {
		return "", nil, fmt.Errorf("make a control group: %w", err)
	}
	s.lanes[k] = name
	return name, fds, nil
}

// own gives a pipe to the programs' id, so that they may open it again by way of /dev/stdout.
func (s *slot) own(f *os.File) error {
	if s.guest < 0 {
		return nil
	}
	if err := unix.Fchown(fileFD(f), s.guest, s.guest); err != nil {
		return fmt.Errorf("prepare a pipe: %w", err)
	}
	return nil
}
