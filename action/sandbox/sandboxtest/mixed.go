//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tranche/action/sandbox"
)

// enoughForTimes is from how many runs on the slowest hundredth of the honest ones is judged: of fewer it is a handful.
const enoughForTimes = 5000

// mixedAttacks are those of the table that are played among honest programs, each in one of a hundred runs.
func mixedAttacks() []string {
	return []string{"fork bomb, linear", "fork bomb, exponential", "2 GiB of memory", "fill the work folder", "fill /dev/shm", "100 MiB to stdout",
		"a grandchild holds stdout", "daemons", "deaf to every signal", "CPU time of 8 children", "SIGKILL to itself", "every signal to the init",
		"kill everything", "odd names and kinds", "folders nobody may enter", "System V and POSIX queues", "leave a changed process", "a file larger than allowed"}
}

// honestPrograms are what the other runs do.
func honestPrograms() []attack {
	return []attack{
		{name: "true", claims: list(status(sandbox.StatusOK), exit(0)), shape: shell("true")},
		{name: "exit 3", claims: list(status(sandbox.StatusNonzero), exit(3)), shape: shell("exit 3")},
		{name: "echo", claims: list(status(sandbox.StatusOK), printed("x\n")), shape: shell("echo x >f; cat f; rm f")},
		{name: "python", claims: list(status(sandbox.StatusOK), printed("1\n")), shape: func(c *sandbox.Cmd) {
			c.Args = []string{python, "-I", "-S", "-c", "print(1)"}
		}},
	}
}

func shell(script string) func(*sandbox.Cmd) {
	return func(c *sandbox.Cmd) { c.Args = []string{"/bin/sh", "-c", script} }
}

// Mixed plays so many runs by so many callers at once, one in a hundred of each attack among honest ones, and holds every status,
// what is left, this process's memory and the time of the honest runs to what they are without attacks.
func Mixed(t *testing.T, runs, callers int, open func() (sandbox.Executor, error)) {
	s := newStage(t, open)
	s.need(t, "mixed runs", sandbox.PromisePids, sandbox.PromiseFiles, sandbox.PromiseKill)
	honest := honestPrograms()
	quiet := s.play(t, runs/4, callers, func(r *rand.Rand) attack { return honest[r.IntN(len(honest))] })
	before := resident(t)
	hostile := s.hostile()
	mixed := s.play(t, runs, callers, func(r *rand.Rand) attack {
		if n := r.IntN(100); n < len(hostile) {
			return hostile[n]
		}
		return honest[r.IntN(len(honest))]
	})
	after := resident(t)
	t.Logf("%d runs by %d callers, %d attacks; honest runs: quiet p50 %v p99 %v, among attacks p50 %v p99 %v (%.1f times); resident %d MiB, then %d MiB",
		runs, callers, mixed.attacks, quiet.quantile(0.5), quiet.quantile(0.99), mixed.quantile(0.5), mixed.quantile(0.99),
		mixed.quantile(0.99).Seconds()/quiet.quantile(0.99).Seconds(), before>>20, after>>20)
	if after > before+32<<20 {
		t.Errorf("this process grew from %d to %d MiB", before>>20, after>>20)
	}
	if runs >= enoughForTimes && mixed.quantile(0.99) > 3*quiet.quantile(0.99) {
		t.Errorf("p99 of honest runs is %v among attacks, %v without", mixed.quantile(0.99), quiet.quantile(0.99))
	}
	s.checkNextIsClean(t)
}

func (s *stage) hostile() []attack {
	names := mixedAttacks()
	var list []attack
	for _, a := range attacks(2 * time.Second) { // among so many callers a look comes late
		if slices.Contains(names, a.name) {
			list = append(list, a)
		}
	}
	return list
}

// tally is what came of many runs.
type tally struct {
	mu      sync.Mutex
	honest  []time.Duration // from Open to Close; guarded by mu
	attacks int             // guarded by mu
	faults  map[string]int  // guarded by mu
}

func (y *tally) add(a attack, took time.Duration, faults []string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if a.program == "" {
		y.honest = append(y.honest, took)
	} else {
		y.attacks++
	}
	for _, f := range faults {
		y.faults[a.name+": "+f]++
	}
}

func (y *tally) quantile(q float64) time.Duration {
	if len(y.honest) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(y.honest))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// play runs what pick draws; every run has a seed of its own, so the same runs are played whoever is first.
func (s *stage) play(t *testing.T, runs, callers int, pick func(*rand.Rand) attack) *tally {
	t.Helper()
	y := &tally{faults: map[string]int{}}
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(runs); i = next.Add(1) {
				a := pick(rand.New(rand.NewPCG(6, uint64(i))))
				began := time.Now()
				faults := s.one(a)
				y.add(a, time.Since(began), faults)
			}
		})
	}
	all.Wait()
	for fault, n := range y.faults {
		t.Errorf("%d times: %s", n, fault)
	}
	return y
}

// one plays an attack in a sandbox of its own and returns what is wrong.
func (s *stage) one(a attack) (faults []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	box, err := s.executor.Open(ctx, s.spec)
	if err != nil {
		return []string{fmt.Sprintf("open: %v", err)}
	}
	defer func() {
		if err := box.Close(); err != nil {
			faults = append(faults, fmt.Sprintf("close: %v", err))
		}
	}()
	cmd := s.command("resources", append([]string{a.program}, a.arguments...)...)
	if a.shape != nil {
		a.shape(&cmd)
	}
	r, err := play(box, cmd)
	if err != nil {
		return []string{fmt.Sprintf("the executor failed: %v", err)}
	}
	faults = a.faults(s, r)
	if len(faults) > 0 && r.Stderr.Total > 0 {
		faults[0] += fmt.Sprintf(" (stderr: %.200s)", r.Stderr.Head)
	}
	return faults
}

// resident is the memory of this process, bytes, with what the collector can give back given back.
func resident(t testing.TB) int64 {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
