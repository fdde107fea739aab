//go:build linux

package keeper

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// keeperName is the first argument of a process that is a keeper.
const keeperName = "tranche-keeper"

// The keeper's descriptors. 0, 1 and 2 are the program's, as is ControlFD where it asked for one.
const linkFD = sandbox.ControlFD + 1

// order is the first thing a keeper is told: what to run. Folder and environment are the keeper's own.
type order struct {
	Args       []string
	CPU        time.Duration
	FileSize   int64
	OpenFiles  int
	Control    bool
	Background bool
	Last       string // the name of the step that confines the program and becomes it; "" = it is started as it is
	Confine    []byte // what that step is told
}

// command is what it may be told later.
type command string

const (
	interrupt command = "interrupt"
	kill      command = "kill"
	tellUsage command = "usage"
	pause     command = "pause"
	resume    command = "resume"
)

// report is what a keeper tells.
type report struct {
	Kind     string // started, absent, failed, usage, paused, ended
	Why      string
	Code     int // -1 where a signal ended it
	Signal   int
	CPU      time.Duration
	Peak     int64 // bytes
	Left     int   // processes that were still there
	CPULimit bool
	Unkilled int // processes that would not die
	Going    int // processes that would not stop
}

// unkillable is how long processes get to die of SIGKILL. They need the processor for it, which a busy host gives them late.
const unkillable = 30 * time.Second

// Init turns this process into a keeper where it was started as one, and then never returns. main calls it before all else.
func Init() {
	if os.Args[0] != keeperName {
		return
	}
	ignored := make(chan os.Signal, 8) // caught, not ignored: what is ignored, the program would inherit
	signal.Notify(ignored, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGXCPU, unix.SIGPIPE)
	_ = unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // programs of the same user are kept from its memory and descriptors; an error leaves it to their confinement
	k := keeper{link: os.NewFile(linkFD, "link")}
	k.say = json.NewEncoder(k.link)
	k.run()
	os.Exit(0)
}

// keeper runs one program and all that it starts.
type keeper struct {
	link *os.File
	say  *json.Encoder
	order
	pid     int // of the program; its process group too
	ended   bool
	killing time.Time // since when; zero = not
	last    report    // of the end
}

// death is one process that was waited for.
type death struct {
	pid    int
	status unix.WaitStatus
	peak   int64
}

func (k *keeper) run() {
	d := json.NewDecoder(k.link)
	if err := d.Decode(&k.order); err != nil {
		return
	}
	if r := k.start(); r.Kind != "started" {
		_ = k.say.Encode(r)
		return
	}
	_ = k.say.Encode(report{Kind: "started"})
	deaths, commands := make(chan death), make(chan command)
	go reap(deaths)
	go func() {
		defer close(commands)
		for {
			var c command
			if d.Decode(&c) != nil {
				return // the host is gone, or done with us
			}
			commands <- c
		}
	}()
	k.watch(deaths, commands)
}

// start makes this process the one that orphans fall to, and starts the program.
func (k *keeper) start() report {
	failed := func(err error) report { return report{Kind: "failed", Why: err.Error()} }
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return failed(err)
	}
	for resource, most := range map[int]uint64{unix.RLIMIT_FSIZE: uint64(k.FileSize), unix.RLIMIT_NOFILE: uint64(k.OpenFiles), unix.RLIMIT_CORE: 0} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return failed(err)
		}
	}
	if r := k.begin(); r.Kind != "started" {
		return r
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	for fd := range linkFD { // the program's ends are the program's alone
		if err == nil {
			err = unix.Dup3(null, fd, unix.O_CLOEXEC)
		}
	}
	if err != nil {
		return failed(err)
	}
	return report{Kind: "started"}
}

// begin starts the program, or the step that becomes it.
func (k *keeper) begin() (r report) {
	if k.Last != "" {
		k.pid, r = k.confined()
		return r
	}
	path, err := exec.LookPath(k.Args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return report{Kind: "absent", Why: err.Error()}
	}
	files := []uintptr{0, 1, 2}
	if k.Control {
		files = append(files, sandbox.ControlFD)
	}
	k.pid, err = syscall.ForkExec(path, k.Args, &syscall.ProcAttr{Env: os.Environ(), Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	switch {
	case isAbsent(err):
		return report{Kind: "absent", Why: err.Error()}
	case err != nil:
		return report{Kind: "failed", Why: err.Error()}
	}
	return report{Kind: "started"}
}

// isAbsent tells that a program is not there or cannot be executed.
func isAbsent(err error) bool {
	for _, e := range []error{fs.ErrNotExist, fs.ErrPermission, unix.ENOEXEC, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.EISDIR, unix.ELIBBAD} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// reap waits for every process that falls to this one, until there is none.
func reap(deaths chan<- death) {
	defer close(deaths)
	for {
		var d death
		var used unix.Rusage
		pid, err := unix.Wait4(-1, &d.status, 0, &used)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		d.pid, d.peak = pid, used.Maxrss<<10
		deaths <- d
	}
}

// watch carries out commands and limits until no process is left.
func (k *keeper) watch(deaths <-chan death, commands <-chan command) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	if k.CPU == 0 {
		tick.Stop() // until something has to be killed
	}
	for {
		select {
		case d, more := <-deaths:
			if !more {
				k.end(0)
				return
			}
			k.died(d)
		case c, more := <-commands:
			if !more {
				commands, c = nil, kill
			}
			k.obey(c)
		case <-tick.C:
			k.checkCPU()
		}
		if k.killing.IsZero() {
			continue
		}
		tick.Reset(10 * time.Millisecond)
		left := killAll(os.Getpid())
		if left > 0 && time.Since(k.killing) > unkillable {
			k.end(left)
			return
		}
	}
}

func (k *keeper) died(d death) {
	k.last.Peak = max(k.last.Peak, d.peak)
	if d.pid != k.pid {
		return
	}
	k.ended = true
	k.last.Kind, k.last.Code = "ended", -1
	if d.status.Signaled() {
		k.last.Signal = int(d.status.Signal())
	} else {
		k.last.Code = d.status.ExitStatus()
	}
	if k.killing.IsZero() {
		k.last.Left = len(descendants(os.Getpid()))
	}
	if k.Background && k.killing.IsZero() {
		k.last.CPU = k.cpu()
		_ = k.say.Encode(k.last)
		return
	}
	k.kill()
}

func (k *keeper) kill() {
	if !k.killing.IsZero() {
		return
	}
	k.killing = time.Now()
	if !k.ended {
		k.last.Left = max(0, len(descendants(os.Getpid()))-1) // but for the program itself
	}
}

func (k *keeper) obey(c command) {
	switch c {
	case interrupt:
		if !k.ended {
			_ = unix.Kill(-k.pid, unix.SIGINT)
		}
	case tellUsage:
		_ = k.say.Encode(report{Kind: "usage", CPU: k.cpu(), Peak: k.last.Peak})
	case pause:
		all, going := stopAll(os.Getpid())
		others := len(all)
		if !k.ended { // the program itself is no other
			others = max(0, others-1)
		}
		_ = k.say.Encode(report{Kind: "paused", Left: others, Going: going})
	case resume:
		for _, r := range descendants(os.Getpid()) {
			r.send(unix.SIGCONT)
		}
	case kill:
		k.kill()
	}
}

func (k *keeper) checkCPU() {
	if k.CPU > 0 && k.killing.IsZero() && k.cpu() >= k.CPU {
		k.last.CPULimit = true
		k.kill()
	}
}

// cpu is what all processes used so far, those that are gone and those that are there.
func (k *keeper) cpu() time.Duration {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &used) != nil {
		return 0
	}
	sum := time.Duration(used.Utime.Nano() + used.Stime.Nano())
	for _, p := range descendants(os.Getpid()) {
		sum += p.cpu
	}
	return sum
}

func (k *keeper) end(unkilled int) {
	k.last.Kind, k.last.CPU, k.last.Unkilled = "ended", k.cpu(), unkilled
	_ = k.say.Encode(k.last)
}
