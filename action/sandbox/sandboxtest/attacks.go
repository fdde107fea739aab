//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/action/sandbox"
)

// attack is one program of testdata/resources.py and what must become of it.
type attack struct {
	name      string
	needs     []sandbox.Promise // of which none may be absent
	program   string
	arguments []string
	shape     func(*sandbox.Cmd)
	long      bool // left out of short runs
	claims    []claim
}

// claim says what is wrong with a result, "" where nothing is.
type claim func(*stage, sandbox.Result) string

func (a attack) faults(s *stage, r sandbox.Result) []string {
	claims := slices.Concat(a.claims, []claim{honest})
	var list []string
	for _, c := range claims {
		if fault := c(s, r); fault != "" {
			list = append(list, fault)
		}
	}
	return list
}

// ofTier says that the tier in force decides how the attack ends.
func (a attack) ofTier() bool {
	return slices.ContainsFunc(a.needs, func(p sandbox.Promise) bool {
		return p == sandbox.PromiseMemory || p == sandbox.PromisePids || p == sandbox.PromiseCPU
	})
}

// soon is how late a program is stopped at the latest, in CPU time of all its processes, on a host that is not crowded.
const soon = 500 * time.Millisecond

// attacks is the table. Statuses are those of the contract in sandbox.go, by facts: a tier that does not count what the kernel
// killed or refused says less, never something else. late is how much CPU time a program may get over its limit until it is stopped.
func attacks(late time.Duration) []attack {
	memory, pids, cpu, files, disk, kill := sandbox.PromiseMemory, sandbox.PromisePids, sandbox.PromiseCPU, sandbox.PromiseFiles, sandbox.PromiseDisk, sandbox.PromiseKill
	need := func(p ...sandbox.Promise) []sandbox.Promise { return p }
	wall := func(d time.Duration) func(*sandbox.Cmd) { return func(c *sandbox.Cmd) { c.Wall = d } }
	cpuOf := func(d time.Duration) func(*sandbox.Cmd) { return func(c *sandbox.Cmd) { c.CPU = d } }
	short := 300 * time.Millisecond
	return []attack{
		{name: "fork bomb, linear", needs: need(pids, kill), program: "bomb",
			claims: list(status(sandbox.StatusOK), said("refused", "EAGAIN"), most("children", 48), least("children", 20), leftBehind(20), countsRefusedForks)},
		{name: "fork bomb, then a failure", needs: need(pids, kill), program: "bomb_and_fail",
			claims: list(counted(sandbox.StatusPidsLimit, sandbox.StatusNonzero), exit(1), leftBehind(20))},
		{name: "fork bomb, exponential", needs: need(pids, kill), program: "bomb_exponential", claims: list(status(sandbox.StatusOK), within(patience/2))},
		{name: "threads", needs: need(pids), program: "threads", claims: list(status(sandbox.StatusOK), most("threads", 48), least("threads", 4))},
		{name: "2 GiB of memory", needs: need(memory), program: "allocate", claims: list(counted(sandbox.StatusMemoryLimit, sandbox.StatusNonzero), most("held", 256), countsKills)},
		{name: "8 children of 100 MiB", needs: need(memory), program: "allocate_in_children",
			claims: list(counted(sandbox.StatusMemoryLimit, ""), enforced(memory, least("killed", 4)))},
		{name: "memory files", needs: need(memory, files), program: "memory_files", claims: list(counted(sandbox.StatusMemoryLimit, sandbox.StatusOK), most("MiB", 256))},
		{name: "memory that stays: System V segments", needs: need(memory, files), program: "ipc_memory", claims: list(most("MiB", 256))},
		{name: "fill the work folder", needs: need(files, disk), program: "fill", arguments: []string{"/w"},
			claims: list(status(sandbox.StatusOK), said("refused", "ENOSPC"), most("MiB", 32), least("MiB", 24))},
		{name: "fill /tmp", needs: need(files, disk), program: "fill", arguments: []string{"/tmp"},
			claims: list(status(sandbox.StatusOK), said("refused", "ENOSPC"), most("MiB", 32), least("MiB", 24))},
		{name: "fill /dev/shm", needs: need(files, disk), program: "fill", arguments: []string{"/dev/shm"}, claims: list(status(sandbox.StatusOK), said("refused", "ENOSPC"), most("MiB", 64))},
		{name: "a file larger than allowed", needs: need(files), program: "large_file", claims: list(status(sandbox.StatusFileLimit))},
		{name: "a memory file larger than allowed", needs: need(files), program: "large_memory_file", claims: list(counted(sandbox.StatusFileLimit, sandbox.StatusNonzero))},
		{name: "a sparse file of 1 TiB", needs: need(files), program: "sparse_file", claims: list(status(sandbox.StatusFileLimit))},
		{name: "many small files", needs: need(files), program: "inodes", claims: list(status(sandbox.StatusOK), said("refused", "ENOSPC"))},
		{name: "open files", program: "open_files", claims: list(status(sandbox.StatusOK), said("refused", "EMFILE"), most("open", 128), least("open", 100))},

		{name: "100 MiB to stdout", program: "flood", arguments: []string{"100"}, claims: list(status(sandbox.StatusOK), total(100<<20), kept(sandbox.DefaultKeep))},
		{name: "1 GiB to stdout", program: "flood", arguments: []string{"1024"}, long: true, claims: list(status(sandbox.StatusOK), total(1<<30), kept(sandbox.DefaultKeep))},
		{name: "more output than allowed", program: "flood", arguments: []string{"1024"}, shape: func(c *sandbox.Cmd) { c.OutputLimit = 1 << 20 },
			claims: list(status(sandbox.StatusOutputLimit), kept(sandbox.DefaultKeep), within(patience/2))},
		{name: "a grandchild holds stdout", needs: need(kill), program: "hold_stdout", claims: list(status(sandbox.StatusOK), printed("hi\n"), leftBehind(1), within(patience/2))},
		{name: "daemons", needs: need(kill), program: "daemons", claims: list(status(sandbox.StatusOK), leftBehind(5), within(patience/2))},
		{name: "deaf to every signal", program: "deaf", shape: wall(short), claims: list(status(sandbox.StatusWallLimit), lasted(short), within(patience/2))},
		{name: "case SB-o1", shape: func(c *sandbox.Cmd) { shell("sleep 300 & echo hi; sleep 300")(c); c.Wall = time.Second },
			claims: list(status(sandbox.StatusWallLimit), printed("hi\n"), lasted(time.Second), within(patience/2))},
		{name: "asleep past the time", program: "sleep", shape: wall(short), claims: list(status(sandbox.StatusWallLimit), lasted(short), within(patience/2))},
		{name: "stop itself and all", needs: need(sandbox.PromiseSyscalls, files), program: "stop", claims: list(status(sandbox.StatusOK), printed("refused=EPERM\n"))},

		{name: "CPU time of 8 children", needs: need(cpu), program: "burn_in_children", shape: cpuOf(short), claims: list(status(sandbox.StatusCPULimit), burnt(short, late))},
		{name: "CPU time of children in turn", needs: need(cpu), program: "burn_in_turn", shape: cpuOf(short), claims: list(status(sandbox.StatusCPULimit), burnt(short, late))},
		{name: "CPU time of orphans with odd names", needs: need(cpu), program: "burn_unseen", shape: cpuOf(short), claims: list(status(sandbox.StatusCPULimit), burnt(short, late))},
		{name: "CPU time, SIGXCPU ignored", needs: need(cpu), program: "burn_deaf", shape: cpuOf(short), claims: list(status(sandbox.StatusCPULimit), burnt(short, late))},

		{name: "SIGKILL to itself", program: "kill_itself", arguments: []string{"9"}, claims: list(status(sandbox.StatusSignaled), signalled(9))},
		{name: "SIGTERM to itself", program: "kill_itself", arguments: []string{"15"}, claims: list(status(sandbox.StatusSignaled), signalled(15))},
		{name: "a forged CPU limit", program: "kill_itself", arguments: []string{"24"}, claims: list(status(sandbox.StatusSignaled), signalled(24))},
		{name: "a crash", program: "crash", claims: list(status(sandbox.StatusSignaled), signalled(11))},

		{name: "every signal to the init", needs: need(files, kill), program: "signal_init", claims: list(status(sandbox.StatusOK), said("done", "True"))},
		{name: "kill everything", needs: need(files, kill), program: "kill_all", claims: list(status(sandbox.StatusOK), said("done", "True"))},
		{name: "a child of the init", needs: need(files, kill), program: "adopted", claims: list(status(sandbox.StatusOK), exit(0), said("done", "True"))},
		{name: "deep folders", needs: need(files), program: "deep", claims: list(status(sandbox.StatusOK), said("done", "True"))},
		{name: "folders nobody may enter", needs: need(files), program: "forbidden_tree", claims: list(status(sandbox.StatusOK), said("done", "True"))},
		{name: "odd names and kinds", needs: need(files), program: "odd_names", claims: list(status(sandbox.StatusOK), said("done", "True"))},
		{name: "System V and POSIX queues", needs: need(files), program: "ipc", claims: list(status(sandbox.StatusOK), said("mq", "EPERM"))},
		{name: "a port in TIME_WAIT", needs: need(sandbox.PromiseNet), program: "port", claims: list(status(sandbox.StatusOK), said("done", "True"))},
		{name: "the same port again", needs: need(sandbox.PromiseNet), program: "port", claims: list(status(sandbox.StatusOK), said("done", "True"))},
		{name: "raise its limits", needs: need(sandbox.PromiseSyscalls), program: "raise_limits", claims: list(status(sandbox.StatusOK), refusesToRaise)},
		{name: "leave a changed process", needs: need(kill), program: "leave_state", claims: list(status(sandbox.StatusOK), leftBehind(1))},
	}
}

func list(claims ...claim) []claim { return claims }

// honest holds for every result.
func honest(s *stage, r sandbox.Result) string {
	switch {
	case r.Tier != s.caps.Tier:
		return fmt.Sprintf("tier %s in the result, %s in the capabilities", r.Tier, s.caps.Tier)
	case r.Backend != s.caps.Backend:
		return fmt.Sprintf("back end %s in the result, %s in the capabilities", r.Backend, s.caps.Backend)
	case (r.Exit >= 0) == (r.Signal != 0):
		return fmt.Sprintf("exit code %d and signal %d: one of them must be", r.Exit, r.Signal)
	case r.Trusted != (r.Tier == sandbox.TierNone):
		return fmt.Sprintf("trusted is %v with limits by %s", r.Trusted, r.Tier)
	case r.Usage.CPU <= 0 || r.Wall <= 0:
		return fmt.Sprintf("%v of CPU time and %v of wall time", r.Usage.CPU, r.Wall)
	}
	return ""
}

func status(want sandbox.Status) claim {
	return func(_ *stage, r sandbox.Result) string {
		return unless(r.Status == want, "status %s, want %s", r.Status, want)
	}
}

// counts says that the tier counts what the kernel killed and refused.
func (s *stage) counts() bool {
	return s.caps.Tier == sandbox.TierCgroup1 || s.caps.Tier == sandbox.TierCgroup2
}

// counted is a status that only the tiers with cgroups can know; "" = those without may say what they see.
func counted(want, without sandbox.Status) claim {
	return func(s *stage, r sandbox.Result) string {
		switch {
		case s.counts():
			return status(want)(s, r)
		case without != "":
			return status(without)(s, r)
		}
		return ""
	}
}

// enforced is a claim on those that hold a promise fully.
func enforced(p sandbox.Promise, c claim) claim {
	return func(s *stage, r sandbox.Result) string {
		if !s.holds(p) {
			return ""
		}
		return c(s, r)
	}
}

func exit(want int) claim {
	return func(_ *stage, r sandbox.Result) string {
		return unless(r.Exit == want, "exit code %d, want %d", r.Exit, want)
	}
}

func signalled(want int) claim {
	return func(_ *stage, r sandbox.Result) string {
		return unless(r.Signal == want, "signal %d, want %d", r.Signal, want)
	}
}

func said(what, want string) claim {
	return func(_ *stage, r sandbox.Result) string {
		got := outcomes(text(r.Stdout))[what]
		return unless(got == want, "%s is %q, want %q", what, got, want)
	}
}

func printed(want string) claim {
	return func(_ *stage, r sandbox.Result) string {
		return unless(text(r.Stdout) == want, "stdout is %.100q, want %q", text(r.Stdout), want)
	}
}

// most bounds a number that the program says; one that was killed before it could say any had no more either.
func most(what string, limit int) claim {
	return func(_ *stage, r sandbox.Result) string {
		got, ok := outcomes(text(r.Stdout))[what]
		if !ok && r.Status != sandbox.StatusOK && r.Status != sandbox.StatusNonzero {
			return ""
		}
		n, err := strconv.Atoi(got)
		return unless(err == nil && n <= limit, "%s is %q, want %d at most", what, got, limit)
	}
}

func least(what string, limit int) claim {
	return func(_ *stage, r sandbox.Result) string {
		got := outcomes(text(r.Stdout))[what]
		n, err := strconv.Atoi(got)
		return unless(err == nil && n >= limit, "%s is %q, want %d at least", what, got, limit)
	}
}

func leftBehind(least int) claim {
	return func(_ *stage, r sandbox.Result) string {
		return unless(r.LeftBehind >= least, "%d processes left behind, want %d at least", r.LeftBehind, least)
	}
}

func countsRefusedForks(s *stage, r sandbox.Result) string {
	return unless(!s.counts() || r.Usage.RefusedForks > 0, "no refused fork was counted")
}

func countsKills(s *stage, r sandbox.Result) string {
	return unless(!s.counts() || r.Usage.OOMKills > 0, "no kill for memory was counted")
}

func total(want int64) claim {
	return func(_ *stage, r sandbox.Result) string {
		return unless(r.Stdout.Total == want, "%d bytes of output counted, want %d", r.Stdout.Total, want)
	}
}

// kept holds a flood to what may be kept of it, and what is kept to the place it had in the stream.
func kept(limit int) claim {
	return func(_ *stage, r sandbox.Result) string {
		head, tail := r.Stdout.Head, r.Stdout.Tail
		if len(head)+len(tail) > limit || len(head) < limit/2 || len(tail) < limit/2 {
			return fmt.Sprintf("%d bytes of the head and %d of the tail kept, want %d of each", len(head), len(tail), limit/2)
		}
		from := r.Stdout.Total - int64(len(tail))
		for i, c := range head {
			if c != byte(i) {
				return fmt.Sprintf("byte %d of the head is %d", i, c)
			}
		}
		for i, c := range tail {
			if c != byte(from+int64(i)) {
				return fmt.Sprintf("byte %d of the tail is %d", i, c)
			}
		}
		return ""
	}
}

// within bounds the wall time far above what it should be: it must only tell waiting for a sleeper from not waiting.
func within(d time.Duration) claim {
	return func(_ *stage, r sandbox.Result) string {
		return unless(r.Wall <= d, "it took %v, want %v at most", r.Wall, d)
	}
}

func lasted(d time.Duration) claim {
	return func(_ *stage, r sandbox.Result) string {
		return unless(r.Wall >= d, "it was stopped after %v, want %v", r.Wall, d)
	}
}

// burnt holds CPU time to its limit: what is over comes of the time between two looks, on every core.
func burnt(limit, late time.Duration) claim {
	return func(_ *stage, r sandbox.Result) string {
		return unless(r.Usage.CPU >= limit*9/10 && r.Usage.CPU <= limit+late, "%v of CPU time under a limit of %v", r.Usage.CPU, limit)
	}
}

func refusesToRaise(_ *stage, r sandbox.Result) string {
	said := outcomes(text(r.Stdout))
	if said["RLIMIT_NOFILE"] == "" {
		return "no limit was tried"
	}
	for what, outcome := range said {
		switch {
		case what == "cores" && outcome != "0" && outcome != "1": // 1: nor may a core be piped to a program of the host
			return "core files may have " + outcome + " bytes"
		case what != "cores" && what != "memory lock" && strings.HasPrefix(outcome, "ok"), what == "memory lock" && outcome == "ok 0":
			return what + " could be raised"
		}
	}
	return ""
}

func unless(holds bool, format string, args ...any) string {
	if holds {
		return ""
	}
	return fmt.Sprintf(format, args...)
}
