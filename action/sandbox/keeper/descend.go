//go:build linux

package keeper

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// relative is a process that descends from this one and has not ended.
type relative struct {
	pid, parent int
	stopped     bool
	blocked     bool          // in a sleep that signals do not end
	cpu         time.Duration // its own, and of its children that it waited for
}

// descendants lists the processes below one.
func descendants(of int) []relative {
	var all []relative
	pending := []int{of}
	for len(pending) > 0 {
		pid := pending[0]
		pending = pending[1:]
		for _, child := range children(pid) {
			if r, alive := look(child); alive && r.parent == pid {
				all = append(all, r)
				pending = append(pending, child)
			}
		}
	}
	return all
}

// children lists the children of a process: of each of its threads.
func children(pid int) (all []int) {
	lists, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list) // gone by now, or not
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// tick is the kernel's unit in /proc/*/stat: USER_HZ is 100 on all platforms that Go knows.
const tick = 10 * time.Millisecond

// look reads what a process is; a zombie is not alive.
func look(pid int) (r relative, alive bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return r, false
	}
	words := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // its name may hold anything
	if len(words) < 15 {
		return r, false
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(string(words[i]), 10, 64)
		return n
	}
	r = relative{pid: pid, parent: int(number(1)), stopped: words[0][0] == 'T', blocked: words[0][0] == 'D' || words[0][0] == 't'}
	for i := 11; i <= 14; i++ { // utime, stime, cutime, cstime
		r.cpu += time.Duration(number(i)) * tick
	}
	return r, words[0][0] != 'Z'
}

// How long processes get to stop. They need the processor for it, which a busy host gives them late.
const (
	stopRounds = 100 // where all that have not stopped are blocked
	stopTime   = 2 * time.Second
)

// stopAll stops all processes below one. It looks again until it finds none that runs: each may have started others meanwhile. It says how
// many still ran when it gave up.
func stopAll(below int) (all []relative, going int) {
	began, told := time.Now(), map[int]bool{}
	for round := 0; ; round++ {
		if round > 1 { // most have stopped when they are looked at again
			time.Sleep(time.Millisecond)
		}
		all, going = descendants(below), 0
		late := false
		for _, r := range all {
			if r.goes(told[r.pid]) {
				going++
			}
			if !r.stopped {
				late, told[r.pid] = true, true
				r.send(unix.SIGSTOP)
			}
		}
		if !late || going == 0 && round >= stopRounds || time.Since(began) > stopTime {
			return all, going
		}
	}
}

// goes tells whether a process can go on. One that is blocked, having been told to stop, ends its system call at most: the parent of a vfork
// does not even that as long as its child is stopped.
func (r relative) goes(told bool) bool { return !r.stopped && !(r.blocked && told) }

// send sends a signal. The number may be another's by now; with a descriptor open it stays this one's.
func (r relative) send(s unix.Signal) {
	fd, err := unix.PidfdOpen(r.pid, 0)
	if err != nil {
		return
	}
	if now, alive := look(r.pid); alive && now.parent == r.parent {
		_ = unix.PidfdSendSignal(fd, s, nil, 0)
	}
	_ = unix.Close(fd)
}

// killAll sends SIGKILL to all processes below one that orphans fall to, and says how many there were. Their own children fall to that
// process then: it is called until there is none.
func killAll(below int) int {
	all := descendants(below)
	for _, r := range all {
		r.send(unix.SIGKILL)
	}
	return len(all)
}
