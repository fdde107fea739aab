package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tranche/action/sandbox"
)

// noteUnheld tells of every limit that was asked for by name and that nothing holds here: it is not dropped in silence.
func (c *sandboxRunCmd) noteUnheld(a *app, caps sandbox.Capabilities) {
	for _, limit := range []struct {
		flag    string
		given   bool
		promise sandbox.Promise
	}{
		{"--memory", c.Memory != nil, sandbox.PromiseMemory}, {"--pids", c.Pids != nil, sandbox.PromisePids},
		{"--cpu", c.CPU != nil, sandbox.PromiseCPU}, {"--disk", c.Disk != nil, sandbox.PromiseDisk},
	} {
		if strength := caps.Promises[limit.promise]; limit.given && (strength == sandbox.Absent || strength == "") {
			a.notice("warning: %s is not held (%s): %s; --require %s refuses to run then", limit.flag, caps.HeldBy(), caps.Why[limit.promise], limit.promise)
		}
	}
}

// pinImage puts the digest of the image where that of a root file system stands, so that the result says on what it ran.
func (c *sandboxRunCmd) pinImage(ctx context.Context, spec *sandbox.Spec) error {
	options, err := optionFlags(c.Option).read(c.Backend)
	if err != nil {
		return withCode(codeUsage, err)
	}
	digest, err := imageDigest(ctx, options)
	if err != nil {
		return withCode(codeNoSandbox, fmt.Errorf("ask the engine: %w", err))
	}
	if c.RootfsDigest != nil {
		if want, err := readDigest(*c.RootfsDigest); err != nil || want != strings.TrimPrefix(digest, digestPrefix) {
			return withCode(codeUsage, fmt.Errorf("--rootfs-digest: the image %s has the digest %s, expected %s", options["image"], digest, *c.RootfsDigest))
		}
	}
	spec.RootfsDigest = digest
	return nil
}

// howItWent is a result on one line, for a person.
func howItWent(r sandbox.Result, caps sandbox.Capabilities) string {
	how := string(r.Status)
	switch {
	case r.Signal != 0:
		how += fmt.Sprintf(" (signal %d)", r.Signal)
	case r.Status == sandbox.StatusNonzero:
		how += fmt.Sprintf(" (exit code %d)", r.Exit)
	}
	parts := []string{
		how, fmt.Sprintf("%v wall, %v CPU, %d KiB at most", r.Wall.Round(time.Millisecond), r.Usage.CPU.Round(time.Millisecond), r.Usage.PeakMemory>>10),
		"held by " + r.HeldBy() + weakly(caps), "root file system " + rootOf(r),
	}
	return strings.Join(parts, "; ")
}

// weakly names what a program was held to by less than enforcement, and to what it was not held.
func weakly(caps sandbox.Capabilities) string {
	var best, not []string
	for _, p := range sandbox.Promises() {
		switch caps.Promises[p] {
		case sandbox.Enforced:
		case sandbox.BestEffort:
			best = append(best, string(p))
		default:
			not = append(not, string(p))
		}
	}
	text := ""
	if len(best) > 0 {
		text += ", best effort: " + joined(best)
	}
	if len(not) > 0 {
		text += ", not held: " + joined(not)
	}
	return text
}

// rootOf is what a program saw as /: by its digest, so that two runs can be held against each other.
func rootOf(r sandbox.Result) string {
	switch {
	case r.Rootfs != "":
		return digestPrefix + strings.TrimPrefix(r.Rootfs, digestPrefix)
	case r.Backend == backendHTTP:
		return "of another machine"
	}
	return "of this machine"
}
