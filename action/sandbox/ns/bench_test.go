//go:build linux && (amd64 || arm64)

package ns

import (
	"os/exec"
	"testing"

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
