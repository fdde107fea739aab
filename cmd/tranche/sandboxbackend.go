//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"

	"tranche/action/sandbox"
	"tranche/action/sandbox/bwrap"
	"tranche/action/sandbox/landlock"
	"tranche/action/sandbox/ns"
	trusting "tranche/action/sandbox/plain" // plain is a function here
)

// sandboxInit makes this process the first one of a sandbox where it was started as that; it returns at once otherwise.
func sandboxInit() {
	ns.Init()
	trusting.Init()
	landlock.Init()
}

// openExecutor makes a back end by its name, with options that checkBackendOptions has passed.
func openExecutor(name string, options map[string]string) (sandbox.Executor, error) {
	switch name {
	case backendNS:
		return ns.New(ns.Config{})
	case backendLandlock:
		return landlock.New(landlock.Config{Dir: options["dir"]})
	case backendBwrap:
		return bwrap.New(bwrap.Config{Program: options["program"]})
	case backendPlain:
		return trusting.New(trusting.Config{})
	}
	return nil, fmt.Errorf("there is no back end %q", name)
}
