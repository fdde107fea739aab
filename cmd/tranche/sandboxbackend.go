//go:build linux && (amd64 || arm64)

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/bwrap"
	"tranche/action/sandbox/docker"
	"tranche/action/sandbox/landlock"
	"tranche/action/sandbox/ns"
	trusting "tranche/action/sandbox/plain" // plain is a function here
	"tranche/action/sandbox/remote"
)

// sandboxInit makes this process the first one of a sandbox where it was started as that; it returns at once otherwise.
func sandboxInit() {
	ns.Init()
	trusting.Init()
	landlock.Init()
}

// openExecutor makes a back end by its name, with options that checkBackendOptions has passed. What asks somebody else heeds ctx.
func openExecutor(ctx context.Context, name string, options map[string]string) (sandbox.Executor, error) {
	switch name {
	case backendNS:
		return ns.New(ns.Config{})
	case backendLandlock:
		return landlock.New(landlock.Config{Dir: options["dir"]})
	case backendBwrap:
		return bwrap.New(bwrap.Config{Program: options["program"]})
	case backendDocker:
		return docker.New(ctx, dockerConfig(options))
	case backendHTTP:
		return openRemote(options)
	case backendPlain:
		return trusting.New(trusting.Config{})
	}
	return nil, fmt.Errorf("there is no back end %q", name)
}

func dockerConfig(options map[string]string) docker.Config {
	return docker.Config{Socket: options["socket"], Image: options["image"], Runtime: options["runtime"], Dir: options["dir"]}
}

// imageDigest is that of the image of the back end docker.
func imageDigest(ctx context.Context, options map[string]string) (string, error) {
	return docker.ImageID(ctx, dockerConfig(options))
}

// openRemote makes the back end on another machine. Its key stands in a variable that the option key-env names.
func openRemote(options map[string]string) (sandbox.Executor, error) {
	c := remote.Config{URL: options["url"], Dialect: options["dialect"]}
	if name := options["key-env"]; name != "" {
		if c.Key = os.Getenv(name); c.Key == "" {
			return nil, fmt.Errorf("options: key-env: the variable %s is not set", name)
		}
	}
	if text := options["patience"]; text != "" {
		var err error
		if c.Patience, err = time.ParseDuration(text); err != nil {
			return nil, fmt.Errorf("options: patience: expected a time with its unit such as 30s, found %q", text)
		}
	}
	return remote.New(c)
}
