//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"strings"
	"testing"
	"time"

	"tranche/action/sandbox"
)

// Every attack's claims refuse the result of a sandbox that holds nothing: a table that passes whatever comes proves nothing.
func TestClaimsBite(t *testing.T) {
	strong := sandbox.Capabilities{Backend: "ns", Tier: sandbox.TierCgroup1, Promises: map[sandbox.Promise]sandbox.Strength{}}
	for _, p := range []sandbox.Promise{sandbox.PromiseMemory, sandbox.PromisePids, sandbox.PromiseCPU, sandbox.PromiseNet, sandbox.PromiseFiles, sandbox.PromiseDisk, sandbox.PromiseSyscalls, sandbox.PromiseKill} {
		strong.Promises[p] = sandbox.Enforced
	}
	s := &stage{caps: strong}
	// What a program says that nothing stopped: all its forks, all its bytes, all its files.
	free := "children=300\nthreads=300\nheld=2048\nkilled=0\nMiB=1024\nfiles=100000\nopen=5000\nRLIMIT_NOFILE=ok\n"
	unbound := sandbox.Result{Status: sandbox.StatusOK, Tier: sandbox.TierCgroup1, Backend: "ns", Wall: time.Hour, Usage: sandbox.Usage{CPU: time.Minute}, Stdout: sandbox.Output{Head: []byte(free), Total: 1}}
	for _, a := range attacks(soon) {
		if faults := a.faults(s, unbound); len(faults) == 0 {
			t.Errorf("%s: a sandbox that holds nothing passes", a.name)
		}
		killed := unbound
		killed.Status, killed.Exit, killed.Signal, killed.Backend = sandbox.StatusCanceled, -1, 9, "other"
		if faults := a.faults(s, killed); !strings.Contains(strings.Join(faults, "\n"), "back end other") {
			t.Errorf("%s: a result of another back end passes: %v", a.name, faults)
		}
	}
}

// So do the probes: an outcome that is no refusal is a fault unless it is listed.
func TestProbesBite(t *testing.T) {
	for _, c := range []struct {
		probe, what, outcome string
		fault                bool
	}{
		{"system calls", "bpf", "EPERM", false},
		{"system calls", "bpf", "SIGSYS", false},
		{"system calls", "bpf", "ok", true},
		{"system calls", "bpf", "ok 5", true},
		{"system calls", "bpf", "EINVAL", true},
		{"system calls", "bpf", "EFAULT", true},
		{"system calls", "bpf", "TypeError", true},
		{"system calls", "unshare user", "ENOSPC", false},
		{"system calls", "mount tmpfs", "ENOSPC", true},
		{"identity", "CapEff", "000001ffffffffff", true},
		{"identity", "setuid 0", "EINVAL", false},
		{"identity", "setuid 0", "ok", true},
		{"files", "folders it can write to", "/dev/shm /tmp /w", false},
		{"files", "folders it can write to", "/ /dev/shm /tmp /w", true},
		{"files", "files it found and can write to", "", false},
		{"files", "files it found and can write to", "/etc/passwd", true},
		{"files", "see /etc/shadow", "ENOENT", false},
		{"network", "TCP 127.0.0.1", "ECONNREFUSED", false},
		{"network", "TCP 127.0.0.1", "ok", true},
		{"network", "TCP 127.0.0.1", "SIGALRM", true},
		{"network", "own server", "EPERM", true},
	} {
		for _, p := range probes() {
			if p.name == c.probe && (p.fault(c.what, c.outcome) != "") != c.fault {
				t.Errorf("%s, %s, %s: fault %q", c.probe, c.what, c.outcome, p.fault(c.what, c.outcome))
			}
		}
	}
}

func TestCanariesAreCompared(t *testing.T) {
	if d := difference("a=1\nb=2\n", "a=1\nb=3\nc=4\n"); d != "  b: 3, want 2\n  c: 4, want \n" {
		t.Errorf("difference %q", d)
	}
}
