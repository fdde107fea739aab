//go:build linux && (amd64 || arm64)

package ns

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
	"tranche/action/sandbox/seccomp"
)

// monotonic is the clock that host and slots share, in ns.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail for this clock
	return t.Nano()
}

// start forks a program and tells the host what became of it.
func (in *inside) start(req *request, fds []int) {
	std := 2
	for _, more := range []bool{req.Stdin, req.Control} {
		if more {
			std++
		}
	}
	if len(fds) != std+int(req.LaneFDs) {
		in.done(req.ID, fmt.Errorf("start: %d descriptors came along, not %d", len(fds), std+int(req.LaneFDs)))
		return
	}
	out := 0 // where the output is among them
	if req.Stdin {
		out = 1
	}
	keep := fds[out : out+2]
	defer func() {
		closeFDs(fds[:out])
		closeFDs(fds[out+2 : std])
		closeFDs(keep)
	}()
	if req.LaneFDs > 0 {
		in.lanes[req.Lane] = fds[std:]
	}
	l, err := in.launch(req, in.withStdin(req, fds[:std]))
	if err != nil {
		in.done(req.ID, err)
		return
	}
	if err := in.enterLane(req.Lane, l); err != nil {
		in.done(req.ID, err)
		return
	}
	p := &program{id: req.ID, lane: req.Lane, background: req.Background, at: monotonic(), limit: req.CPULimit}
	if p.limit > 0 {
		in.expect(p)
	}
	err = in.fork(l, p)
	var failed *launchError
	switch {
	case err == nil: // its end says when it began
		p.out, keep = keep, nil
	case errors.As(err, &failed) && failed.missing():
		in.reply(reply{ID: req.ID, What: saidMissing, Errno: uint64(failed.errno), At: p.at, Text: failed.Error()})
	default:
		in.done(req.ID, err)
	}
}

func (in *inside) withStdin(req *request, fds []int) []int {
	if req.Stdin {
		return fds
	}
	return append([]int{in.null}, fds...)
}

// missing reports that the program or its folder is the cause, or that the sandbox has no room for another process.
func (e *launchError) missing() bool {
	return e.step == atExec || e.step == atDir || e.step == atClone && (e.errno == unix.EAGAIN || e.errno == unix.ENOMEM)
}

// fork starts the program.
func (in *inside) fork(l *launch, p *program) error {
	pid, err := l.start()
	switch {
	case err == nil:
		p.pid, p.fd = pid, int(l.pidfd)
		if in.setup.Launched { // the init is counted with its programs: not it should be killed for their memory
			_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("500"), 0) // an error: it has ended
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		in.runs[pid] = p
	case pid != 0: // it is a process, but not a program
		in.mu.Lock()
		defer in.mu.Unlock()
		_, _, ru, _ := wait(pid, 0) // it has ended by itself
		in.account(nil, &ru)
		unix.Close(int(l.pidfd))
	}
	return err
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// launch puts a request into the form that the kernel takes.
func (in *inside) launch(req *request, fds []int) (*launch, error) {
	l := &launch{fdsLen: uintptr(len(fds)), guest: uintptr(in.guest), into: in.setup.IntoCgroup}
	if l.into {
		l.filter = seccomp.Prog(in.filter)
	}
	for i, fd := range fds {
		if fd <= highestFD {
			return nil, fmt.Errorf("start: descriptor %d is in the way", fd)
		}
		l.fds[i] = uintptr(fd)
	}
	var err error
	if l.args, err = vector(req.Args); err != nil {
		return nil, err
	}
	if l.env, err = vector(req.Env); err != nil {
		return nil, err
	}
	if l.dir, err = unix.BytePtrFromString(path.Join(workDir, req.Dir)); err != nil {
		return nil, err
	}
	for _, p := range candidates(req.Args[0], req.Env) {
		b, err := unix.BytePtrFromString(p)
		if err != nil {
			return nil, err
		}
		l.paths = append(l.paths, b)
	}
	l.limits = in.setup.rlimits(req.CPUSeconds, in.counted())
	return l, nil
}

// highestFD is the highest descriptor that a program is given.
const highestFD = sandbox.ControlFD

func vector(list []string) ([]*byte, error) {
	all := make([]*byte, len(list)+1)
	for i, s := range list {
		b, err := unix.BytePtrFromString(s)
		if err != nil {
			return nil, fmt.Errorf("%q has a zero byte", s)
		}
		all[i] = b
	}
	return all, nil
}

// candidates are the paths that a program's name may mean.
func candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var all []string
	for _, e := range env {
		if dirs, ok := strings.CutPrefix(e, "PATH="); ok {
			all = nil // the last one counts
			for dir := range strings.SplitSeq(dirs, ":") {
				all = append(all, path.Join(workDir, "/")+"/"+name)
				if strings.HasPrefix(dir, "/") {
					all[len(all)-1] = dir + "/" + name
				}
			}
		}
	}
	return all
}

// rlimits are the limits of every process; counted are processes of its id that are not the program's. They bound what no control group counts, and all where there is none.
func (s setup) rlimits(cpuSeconds uint64, counted int64) []rlimit {
	const stack = 8 << 20
	all := []rlimit{
		{unix.RLIMIT_CORE, 1, 1}, // not 0: that would still feed a core_pattern that names a program of the host
		{unix.RLIMIT_NOFILE, uint64(s.OpenFiles), uint64(s.OpenFiles)},
		{unix.RLIMIT_FSIZE, uint64(s.FileSize), uint64(s.FileSize)},
		{unix.RLIMIT_NPROC, uint64(s.Processes + counted), uint64(s.Processes + counted)},
		{unix.RLIMIT_STACK, stack, stack},
		{unix.RLIMIT_MSGQUEUE, 0, 0},
		{unix.RLIMIT_NICE, 0, 0},
		{unix.RLIMIT_RTPRIO, 0, 0},
	}
	if s.Memory > 0 {
		all = append(all, rlimit{unix.RLIMIT_AS, uint64(s.Memory), uint64(s.Memory)})
	}
	if cpuSeconds > 0 {
		all = append(all, rlimit{unix.RLIMIT_CPU, cpuSeconds, cpuSeconds + 1})
	}
	return all
}

// enterLane lets what is forked next begin in a control group: this thread moves there, or the child is cloned into it.
func (in *inside) enterLane(lane string, l *launch) error {
	fds := in.lanes[lane]
	if l.into {
		l.clone.cgroup = uint64(fds[0])
		return nil
	}
	if lane == in.lane {
		return nil
	}
	for _, fd := range fds {
		if _, err := unix.Pwrite(fd, []byte("0"), 0); err != nil {
			return fmt.Errorf("enter the control group %s: %w", lane, err)
		}
	}
	in.lane = lane
	return nil
}

// signal sends a signal to a program, or to its process group, where it still runs.
func (in *inside) signal(id uint64, s unix.Signal, group bool) {
	for pid, p := range in.runs {
		if p.id != id {
			continue
		}
		if group {
			pid = -pid
		}
		_ = unix.Kill(pid, s) // ESRCH: it has ended
	}
}

// begun says when a program that still runs was started.
func (in *inside) begun(id uint64) {
	for _, p := range in.runs {
		if p.id == id {
			in.reply(reply{ID: id, What: saidStarted, At: p.at})
		}
	}
}

// orphans reaps what programs leave to the init, while they run: what has ended counts as a process until then. It belongs to the
// first thread and programs to the one that forks, so neither sees those of the other.
func (in *inside) orphans() {
	mask, any := uint64(1)<<(unix.SIGCHLD-1), unix.Siginfo{}
	rtSigprocmaskBlock(&mask)
	for {
		err := unix.Waitid(unix.P_ALL, 0, &any, unix.WEXITED|unix.WNOWAIT|unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case err == nil:
			in.reapOrphans()
		case errors.Is(err, unix.ECHILD):
			// The next one says so by a signal to this thread. One that ends before this waits is reaped with the next, or at the program's end.
			_, _, _ = unix.Syscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&mask)), 0, 0, 8, 0, 0)
		}
	}
}

func (in *inside) reapOrphans() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for {
		pid, _, ru, err := wait(-1, unix.WNOHANG|unix.WNOTHREAD)
		if err != nil || pid == 0 {
			return
		}
		in.account(nil, &ru)
	}
}

func rtSigprocmaskBlock(set *uint64) {
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, uintptr(unsafe.Pointer(set)), 0, 8, 0, 0)
}

func wait(which, options int) (pid int, ws unix.WaitStatus, ru unix.Rusage, err error) {
	for {
		pid, err = unix.Wait4(which, &ws, options|unix.WALL, &ru)
		if !errors.Is(err, unix.EINTR) {
			return pid, ws, ru, err
		}
	}
}

// ended reaps a program whose pidfd is ready. The rest of it is killed before its run ends.
func (in *inside) ended(pid int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	p := in.runs[pid]
	got, ws, ru, err := wait(pid, unix.WNOHANG)
	if p == nil || err != nil || got != pid {
		return
	}
	at := monotonic()
	in.account(p, &ru)
	delete(in.runs, pid)
	left := 0
	switch {
	case p.background:
		in.left++
	case len(in.runs) == 0 && in.left == 0:
		left = in.sweep(p)
	default:
		left = in.sweepLane(p)
	}
	in.finish(p, ws, at, left)
}

// finish tells the host of a program's end.
func (in *inside) finish(p *program, ws unix.WaitStatus, at int64, left int) {
	in.reply(reply{ID: p.id, What: saidEnded, Began: p.at, At: at, Wait: uint64(ws), CPU: p.cpu, Peak: p.peak, Left: uint64(left), Over: p.over})
	unix.Close(p.fd)
	in.unused = append(in.unused, p.out...)
}

// account adds what a reaped process used to its program's account, or, where it is not known whose it was, to the only one there is.
// The lock is held.
func (in *inside) account(p *program, ru *unix.Rusage) {
	used := ru.Utime.Nano() + ru.Stime.Nano()
	in.reaped += used
	if p == nil && len(in.runs) == 1 {
		for _, only := range in.runs {
			p = only
		}
	}
	if p != nil {
		p.cpu += used
		p.peak = max(p.peak, ru.Maxrss<<10)
	}
}

// sweep kills all that is left in the slot and reaps it. What had ended by itself before is not counted. The lock is held.
func (in *inside) sweep(p *program) int {
	for {
		pid, _, ru, err := wait(-1, unix.WNOHANG)
		if errors.Is(err, unix.ECHILD) {
			return 0 // all processes descend from the init
		}
		if err != nil || pid == 0 {
			break
		}
		in.account(p, &ru)
	}
	if err := unix.Kill(-1, unix.SIGKILL); err != nil {
		return 0 // ESRCH: nobody is left
	}
	left := 0
	for {
		_, _, ru, err := wait(-1, 0)
		if err != nil {
			return left
		}
		in.account(p, &ru)
		left++
	}
}

// sweepLane kills what one program left behind while others go on. A killed process keeps its place among the permitted ones until it
// is reaped, and nothing is reaped meanwhile but by parents, so a program that forks without end runs out of places.
func (in *inside) sweepLane(p *program) int {
	killed := map[int]bool{}
	for range 1000 {
		found := false
		for _, q := range in.members(p) {
			found = true
			killed[q] = true
			_ = unix.Kill(q, unix.SIGKILL)
		}
		if !found {
			break
		}
	}
	in.reapAmong(killed)
	return len(killed)
}

// reapAmong reaps those of the killed processes that are children by now; the others come to orphans, by and by.
func (in *inside) reapAmong(killed map[int]bool) {
	for pid := range killed {
		var ws unix.WaitStatus
		var ru unix.Rusage
		if got, err := unix.Wait4(pid, &ws, unix.WALL, &ru); err == nil && got == pid {
			in.account(nil, &ru)
		}
	}
}

// members are the living processes that a program has left. With a control group of its own they are those in it. Without, they
// are all that descend from no program that still runs: whatever the program started is among them, for nothing can become a
// descendant of another program; so are the daemons of others.
func (in *inside) members(p *program) []int {
	list := processes()
	if p.lane != "" {
		var all []int
		for _, q := range list {
			if q.alive && inLane(q.pid, p.lane) {
				all = append(all, q.pid)
			}
		}
		return all
	}
	parent := map[int]int{}
	for _, q := range list {
		parent[q.pid] = q.parent
	}
	var all []int
	for _, q := range list {
		at, steps := q.pid, 0
		for at > 1 && in.runs[at] == nil && steps < len(list) {
			at = parent[at]
			steps++
		}
		if q.alive && in.runs[at] == nil {
			all = append(all, q.pid)
		}
	}
	return all
}

func inLane(pid int, lane string) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return false
	}
	own := ownGroups(string(text))
	for _, c := range []string{"pids", ""} { // in version 1 a lane has no memory group of its own
		if strings.HasSuffix(own[c], "/"+lane) {
			return true
		}
	}
	return false
}

// listed is one line of the process table.
type listed struct {
	pid, parent int
	alive       bool
	ticks       int64 // of CPU time, with that of the children it waited for
}

func processes() []listed {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []listed
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 1 {
			continue
		}
		text, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		if p, ok := parseStat(pid, string(text)); ok {
			all = append(all, p)
		}
	}
	return all
}

// statFields are the fields of a line of /proc/PID/stat after the process's name; that may hold anything, so the last bracket ends it.
func statFields(text string) []string {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return nil
	}
	return strings.Fields(text[end+1:])
}

// parseStat reads a line of /proc/PID/stat.
func parseStat(pid int, text string) (listed, bool) {
	f := statFields(text)
	const state, parent, utime, cstime = 0, 1, 11, 14
	if len(f) <= cstime {
		return listed{}, false
	}
	p := listed{pid: pid, alive: f[state] != "Z" && f[state] != "X"}
	var err error
	if p.parent, err = strconv.Atoi(f[parent]); err != nil {
		return listed{}, false
	}
	for _, s := range f[utime : cstime+1] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return listed{}, false
		}
		p.ticks += n
	}
	return p, true
}

// usage is the CPU time of all that ran since the last reset, in ns.
func (in *inside) usage() int64 {
	const tick = 1e9 / 100 // USER_HZ is 100 everywhere
	var sum int64
	for _, p := range processes() {
		sum += p.ticks * tick
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return sum + in.reaped
}

// signalAll sends a signal to all processes of the slot, where the filter, which is for programs and for this thread, does not refuse it. The
// kernel does that in one step: no process that is being made meanwhile is left out. None is being started, which stops this thread until
// it is executed.
func (in *inside) signalAll(s unix.Signal) error {
	err := in.asRootDo(func() error { return unix.Kill(-1, s) })
	if errors.Is(err, unix.ESRCH) { // nobody is there
		return nil
	}
	return err
}

// pause stops all, and counts those that are no programs. Nobody can catch or ignore SIGSTOP, and who could undo it is stopped too.
func (in *inside) pause() (others uint64, err error) {
	if err := in.signalAll(unix.SIGSTOP); err != nil {
		return 0, fmt.Errorf("stop all processes: %w", err)
	}
	for _, p := range processes() {
		if p.alive && in.runs[p.pid] == nil {
			others++
		}
	}
	return others, nil
}

// reset kills all and makes the folders as they were.
func (in *inside) reset() error {
	in.endAll()
	if err := removeObjects(); err != nil {
		return err
	}
	if in.setup.Launched && !in.setup.Net {
		if err := portsFree(); err != nil {
			return err
		}
	}
	return in.wipe()
}

// endAll kills and reaps everything.
func (in *inside) endAll() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for options := unix.WNOHANG; ; {
		pid, ws, ru, err := wait(-1, options)
		if err != nil {
			break // ECHILD: nobody is left
		}
		if pid == 0 {
			_ = unix.Kill(-1, unix.SIGKILL) // ESRCH: nobody is there
			options = 0
			continue
		}
		p := in.runs[pid]
		in.account(p, &ru)
		if delete(in.runs, pid); p != nil {
			in.finish(p, ws, monotonic(), 0)
		}
	}
	in.left, in.reaped = 0, 0
}
