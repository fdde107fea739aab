//go:build linux && (amd64 || arm64)

package main

import (
	"strings"
	"testing"
	"time"

	"tranche/action/sandbox"
)

func TestHowItWent(t *testing.T) {
	weak := sandbox.Capabilities{Promises: map[sandbox.Promise]sandbox.Strength{}}
	for _, p := range sandbox.Promises() {
		weak.Promises[p] = sandbox.Enforced
	}
	strong := sandbox.Capabilities{Promises: map[sandbox.Promise]sandbox.Strength{}}
	for p := range weak.Promises {
		strong.Promises[p] = sandbox.Enforced
	}
	weak.Promises[sandbox.PromiseMemory], weak.Promises[sandbox.PromiseDisk] = sandbox.BestEffort, sandbox.Absent
	used := sandbox.Usage{CPU: 8 * time.Millisecond, PeakMemory: 9 << 20}
	for _, c := range []struct {
		r    sandbox.Result
		caps sandbox.Capabilities
		want string
	}{
		{sandbox.Result{Status: sandbox.StatusOK, Wall: 12 * time.Millisecond, Usage: used, Backend: "ns", Tier: sandbox.TierCgroup2, Rootfs: "ab12"}, strong,
			"ok; 12ms wall, 8ms CPU, 9216 KiB at most; held by cgroup2; root file system sha256:ab12"},
		{sandbox.Result{Status: sandbox.StatusSignaled, Exit: -1, Signal: 9, Backend: "docker", Tier: sandbox.TierEngine, Rootfs: "sha256:ab12"}, strong,
			"signaled (signal 9); 0s wall, 0s CPU, 0 KiB at most; held by docker/engine; root file system sha256:ab12"},
		{sandbox.Result{Status: sandbox.StatusNonzero, Exit: 3, Backend: "landlock", Tier: sandbox.TierRlimit}, weak,
			"nonzero (exit code 3); 0s wall, 0s CPU, 0 KiB at most; held by landlock/rlimit, best effort: memory, not held: disk; root file system of this machine"},
		{sandbox.Result{Status: sandbox.StatusOK, Backend: "http", Tier: sandbox.TierRemote}, strong,
			"ok; 0s wall, 0s CPU, 0 KiB at most; held by http/remote; root file system of another machine"},
	} {
		if got := howItWent(c.r, c.caps); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// A limit that nothing holds is told where it was named, with its reason, and only then.
func TestLimitsThatNothingHoldsAreTold(t *testing.T) {
	disk, memory := Bytes(1<<20), Bytes(1<<30)
	caps := sandbox.Capabilities{Backend: "landlock", Tier: sandbox.TierRlimit, Why: map[sandbox.Promise]string{sandbox.PromiseDisk: "so it is"},
		Promises: map[sandbox.Promise]sandbox.Strength{sandbox.PromiseDisk: sandbox.Absent, sandbox.PromiseMemory: sandbox.BestEffort, sandbox.PromisePids: sandbox.Absent}}
	for want, cmd := range map[string]sandboxRunCmd{
		"warning: --disk is not held (landlock/rlimit): so it is; --require disk refuses to run then\n": {Disk: &disk, Memory: &memory},
		"": {Memory: &memory},
	} {
		s := newShell(t)
		if cmd.noteUnheld(s.app, caps); s.err.String() != want {
			t.Errorf("got %q, want %q", s.err.String(), want)
		}
	}
}

// The digest of a container's image is part of the result, and one that was named is the only one that is taken.
func TestTheImageIsPinned(t *testing.T) {
	id := digestPrefix + strings.Repeat("ab", 32)
	socket := engineOfImages(t, &id)
	other := digestPrefix + strings.Repeat("cd", 32)
	bare := strings.TrimPrefix(id, digestPrefix)
	for _, c := range []struct {
		name, want string
		given      *string
		code       code
	}{
		{"any", id, nil, codeOK}, {"this one", id, &id, codeOK}, {"this one, without its kind", id, &bare, codeOK}, {"another", "", &other, codeUsage},
	} {
		var spec sandbox.Spec
		cmd := sandboxRunCmd{Command: []string{"true"}, Backend: backendDocker, Option: []string{"socket=" + socket, "image=python:3"}, RootfsDigest: c.given}
		if _, _, err := cmd.read(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := cmd.openRootfs(t.Context(), &spec); codeOf(err) != c.code || spec.RootfsDigest != c.want {
			t.Errorf("%s: %q, %v", c.name, spec.RootfsDigest, err)
		}
	}
}
