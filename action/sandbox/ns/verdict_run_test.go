//go:build linux && (amd64 || arm64)

package ns

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche/action/sandbox"
)

const mib = 1 << 20

// spec is a small sandbox.
func spec() sandbox.Spec {
	return sandbox.Spec{Limits: sandbox.Limits{Memory: 128 * mib, Pids: 32, Disk: 16 * mib, FileSize: 8 * mib, OpenFiles: 64}}
}

// tiersHere are the tiers that this machine has.
func tiersHere(t testing.TB) []sandbox.Tier {
	e := newExecutor(t, Config{})
	if e.can.Tier == sandbox.TierRlimit {
		return []sandbox.Tier{sandbox.TierRlimit}
	}
	return []sandbox.Tier{e.can.Tier, sandbox.TierRlimit}
}

func py(code string) []string { return []string{"python3", "-c", code} }
func sh(code string) []string { return []string{"sh", "-c", code} }

// TestStatus runs programs that end in every way, one after the other in one sandbox: none may disturb the next.
func TestStatus(t *testing.T) {
	group := func(tier sandbox.Tier) bool { return tier != sandbox.TierRlimit }
	cases := []struct {
		name string
		cmd  sandbox.Cmd
		want sandbox.Status
		only func(sandbox.Tier) bool
	}{
		{"ok", sandbox.Cmd{Args: []string{"true"}}, sandbox.StatusOK, nil},
		{"nonzero", sandbox.Cmd{Args: sh("exit 7")}, sandbox.StatusNonzero, nil},
		{"not there", sandbox.Cmd{Args: []string{"no-such-program"}}, sandbox.StatusNotFound, nil},
		{"not executable", sandbox.Cmd{Args: []string{"/etc/passwd"}}, sandbox.StatusNotFound, nil},
		{"folder that is not there", sandbox.Cmd{Args: []string{"true"}, Dir: "nowhere"}, sandbox.StatusNotFound, nil},
		{"zero byte in an argument", sandbox.Cmd{Args: []string{"echo", "a\x00b"}}, sandbox.StatusNotFound, nil},
		{"kills itself", sandbox.Cmd{Args: sh("kill -KILL $$")}, sandbox.StatusSignaled, nil},
		{"segmentation fault", sandbox.Cmd{Args: sh("kill -SEGV $$")}, sandbox.StatusSignaled, nil},
		{"SIGXCPU without a limit", sandbox.Cmd{Args: sh("kill -XCPU $$")}, sandbox.StatusSignaled, nil},
		{"sleeps", sandbox.Cmd{Args: []string{"sleep", "60"}, Wall: 200 * time.Millisecond}, sandbox.StatusWallLimit, nil},
		{"ignores signals", sandbox.Cmd{Args: sh("trap '' TERM INT HUP; sleep 60; sleep 60"), Wall: 200 * time.Millisecond}, sandbox.StatusWallLimit, nil},
		{"burns", sandbox.Cmd{Args: sh("while :; do :; done"), CPU: 300 * time.Millisecond}, sandbox.StatusCPULimit, nil},
		{"burns in children", sandbox.Cmd{Args: sh("for i in 1 2 3 4; do (while :; do :; done) & done; wait"), CPU: 400 * time.Millisecond}, sandbox.StatusCPULimit, nil},
		{"writes too much", sandbox.Cmd{Args: sh("yes"), OutputLimit: mib}, sandbox.StatusOutputLimit, nil},
		{"large file", sandbox.Cmd{Args: sh("exec head -c 9000000 /dev/zero >f")}, sandbox.StatusFileLimit, nil},
		{"allocates", sandbox.Cmd{Args: py("b = bytearray(500 << 20)")}, sandbox.StatusMemoryLimit, group},
		{"allocates in children", sandbox.Cmd{Args: py("import os\nfor i in range(4):\n if os.fork() == 0:\n  b = bytearray(60 << 20); import time; time.sleep(5); os._exit(0)\nfor i in range(4): os.wait()")}, sandbox.StatusMemoryLimit, group},
		{"allocates, per process", sandbox.Cmd{Args: py("b = bytearray(500 << 20)")}, sandbox.StatusNonzero, func(t sandbox.Tier) bool { return !group(t) }},
		{"fork bomb", sandbox.Cmd{Args: py("import os, time\nwhile True:\n os.fork()"), Wall: 30 * time.Second}, sandbox.StatusPidsLimit, group},
		{"another architecture's call", sandbox.Cmd{Args: py("import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\nctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()")}, sandbox.StatusDenied, nil},
	}
	for _, tier := range tiersHere(t) {
		e := newExecutor(t, Config{Tier: tier})
		b := open(t, e, spec())
		for _, c := range cases {
			t.Run(string(tier)+"/"+c.name, func(t *testing.T) {
				if c.only != nil && !c.only(tier) {
					t.Skip("another tier's")
				}
				began := time.Now()
				res := run(t, b, c.cmd)
				if res.Status != c.want || res.Tier != tier || res.Backend != "ns" {
					t.Errorf("%s by %s, want %s; exit %d, signal %d, %+v, %v\n%s", res.Status, res.Tier, c.want, res.Exit, res.Signal, res.Usage, time.Since(began), res.Stderr.Tail)
				}
				if next := run(t, b, sandbox.Cmd{Args: sh("echo next")}); next.Status != sandbox.StatusOK || string(next.Stdout.Head) != "next\n" || next.LeftBehind != 0 {
					t.Errorf("the next run: %+v", next)
				}
			})
		}
	}
}

func TestExitCodesComeThrough(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	for code := range 256 {
		if code%17 != 0 {
			continue
		}
		res := run(t, b, sandbox.Cmd{Args: sh(fmt.Sprintf("exit %d", code))})
		if res.Exit != code || res.Signal != 0 {
			t.Errorf("exit %d came as %d, signal %d", code, res.Exit, res.Signal)
		}
	}
	if res := run(t, b, sandbox.Cmd{Args: sh("kill -USR1 $$")}); res.Exit != -1 || res.Signal != 10 {
		t.Errorf("SIGUSR1 came as exit %d, signal %d", res.Exit, res.Signal)
	}
}

// TestCaseSBo1TimeoutEndsAll is case SB-o1: a child holds the pipe, the time limit ends all, and what was written is kept.
func TestCaseSBo1TimeoutEndsAll(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	began := time.Now()
	res := run(t, b, sandbox.Cmd{Args: sh("sleep 300 & echo hi; sleep 300"), Wall: time.Second})
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
	if res.Status != sandbox.StatusWallLimit || string(res.Stdout.Head) != "hi\n" || res.LeftBehind != 2 {
		t.Errorf("%+v", res)
	}
	if n := countProcesses(t, b); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// countProcesses counts the processes of a sandbox beside the init and the one that counts.
func countProcesses(t *testing.T, b sandbox.Sandbox) int {
	t.Helper()
	res := run(t, b, sandbox.Cmd{Args: py("import os; print(sum(p.isdigit() for p in os.listdir('/proc')) - 2)")})
	var n int
	if _, err := fmt.Sscan(string(res.Stdout.Head), &n); err != nil {
		t.Fatalf("count processes: %v in %+v", err, res)
	}
	return n
}

// TestCaseSBo2FloodIsCut is case SB-o2, with 256 MiB.
func TestCaseSBo2FloodIsCut(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	const total = 256 * mib
	before := residentBytes(t)
	res := run(t, b, sandbox.Cmd{Args: sh(fmt.Sprintf("echo begin; head -c %d /dev/zero; echo end", total)), Keep: 64 << 10})
	if grew := residentBytes(t) - before; grew > 50*mib {
		t.Errorf("our memory grew by %d MiB", grew/mib)
	}
	out := res.Stdout
	if res.Status != sandbox.StatusOK || out.Total != total+10 || len(out.Head) != 32<<10 || len(out.Tail) != 32<<10 {
		t.Errorf("%s, %d of %d bytes, kept %d and %d", res.Status, out.Total, total+10, len(out.Head), len(out.Tail))
	}
	if !bytes.HasPrefix(out.Head, []byte("begin\n")) || !bytes.HasSuffix(out.Tail, []byte("end\n")) {
		t.Errorf("the ends are not those of the output")
	}
}

func TestGrandchildThatHoldsThePipeDoesNotHoldUs(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	began := time.Now()
	res := run(t, b, sandbox.Cmd{Args: sh("setsid sleep 100 & setsid sh -c 'sleep 100 & sleep 100' & echo out; sleep 0.1")})
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
	if res.Status != sandbox.StatusOK || string(res.Stdout.Head) != "out\n" || res.LeftBehind < 3 {
		t.Errorf("%+v", res)
	}
}

func TestCanceled(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	ctx, stop := context.WithCancel(t.Context())
	p, err := b.Start(ctx, sandbox.Cmd{Args: []string{"sleep", "100"}})
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, stop)
	res, err := p.Wait(ctx)
	if err != nil || res.Status != sandbox.StatusCanceled {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestStdin(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	for _, size := range []int{0, 1, 32 << 10, 32<<10 + 1, 5 * mib} {
		in := bytes.Repeat([]byte{'x'}, size)
		res := run(t, b, sandbox.Cmd{Args: []string{"wc", "-c"}, Stdin: in})
		if got := strings.TrimSpace(string(res.Stdout.Head)); got != fmt.Sprint(size) {
			t.Errorf("%d bytes came as %s", size, got)
		}
	}
}

func TestArgumentsAsLongAsTheKernelTakes(t *testing.T) {
	b := open(t, newExecutor(t, Config{}), spec())
	long := strings.Repeat("a", 128<<10-1)
	res := run(t, b, sandbox.Cmd{Args: []string{"sh", "-c", "echo ${#0} ${#1}", long, "\xff" + long[1:]}})
	if string(res.Stdout.Head) != "131071 131071\n" {
		t.Errorf("%+v", res)
	}
	if res := run(t, b, sandbox.Cmd{Args: []string{"echo", long + "ab"}}); res.Status != sandbox.StatusNotFound {
		t.Errorf("an argument that no kernel takes: %+v", res)
	}
}
