//go:build linux && (amd64 || arm64)

package ns

import (
	"os/exec"
	"testing"
	"time"

	"tranche/action/sandbox"
)

// The same program plainly executed, to hold the others against.
func BenchmarkTruePlain(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// In one open sandbox.
func BenchmarkTrueInSandbox(b *testing.B) {
	box := open(b, newExecutor(b, Config{}), sandbox.Spec{})
	for b.Loop() {
		run(b, box, sandbox.Cmd{Args: []string{"/bin/true"}})
	}
}

// Each in a sandbox that is opened for it and closed after it.
func BenchmarkTrueInSandboxOfItsOwn(b *testing.B) {
	e := newExecutor(b, Config{})
	for b.Loop() {
		box, err := e.Open(b.Context(), sandbox.Spec{})
		if err != nil {
			b.Fatal(err)
		}
		run(b, box, sandbox.Cmd{Args: []string{"/bin/true"}})
		if err := box.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// A slot that is built and thrown away.
func BenchmarkSlot(b *testing.B) {
	e := newExecutor(b, Config{MaxIdle: -1})
	for b.Loop() {
		box, err := e.Open(b.Context(), sandbox.Spec{})
		if err != nil {
			b.Fatal(err)
		}
		if err := box.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// Eight processes that use up 300 ms of CPU time together, where no control group counts it: how much more they got before they were stopped.
func BenchmarkCPULimitOfManyProcesses(b *testing.B) {
	const limit = 300 * time.Millisecond
	e := newExecutor(b, Config{Tier: sandbox.TierRlimit})
	var most time.Duration
	for b.Loop() {
		box, err := e.Open(b.Context(), sandbox.Spec{})
		if err != nil {
			b.Fatal(err)
		}
		r := run(b, box, sandbox.Cmd{CPU: limit, Args: sh("for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait")})
		if r.Status != sandbox.StatusCPULimit {
			b.Fatalf("%+v", r)
		}
		if most = max(most, r.Usage.CPU-limit); box.Close() != nil {
			b.Fatal("close")
		}
	}
	b.ReportMetric(most.Seconds()*1e3, "most-over-ms")
}

// What a call of an episode costs more because its sandbox stands still between calls: with a program and three loops in it.
func BenchmarkPauseAndResume(b *testing.B) {
	box := open(b, newExecutor(b, Config{}), sandbox.Spec{})
	p, err := box.Start(b.Context(), sandbox.Cmd{Args: sh("for i in 1 2 3; do (while :; do :; done) & done; wait"), Background: true})
	if err != nil {
		b.Fatal(err)
	}
	pauser := box.(sandbox.Pauser)
	for b.Loop() {
		if _, err := pauser.Pause(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := pauser.Resume(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	if err := box.Reset(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err := p.Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
}
