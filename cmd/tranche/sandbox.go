package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tranche/action/sandbox"
)

type sandboxCmd struct {
	Check sandboxCheckCmd `cmd:"" help:"Tell what this machine can hold a program to, and why not more."`
	Run   sandboxRunCmd   `cmd:"" help:"Run one program in a sandbox, its input, output and exit code passed through."`
}

// Names of back ends.
const (
	backendNS    = "ns"
	backendPlain = "plain"
)

func (c *sandboxCmd) do(ctx context.Context, a *app, verb string) error {
	if verb == "check" {
		return c.Check.do(ctx, a)
	}
	return c.Run.do(ctx, a)
}

// promises are all there are, in the order they are told.
func promises() []sandbox.Promise {
	return []sandbox.Promise{sandbox.PromiseMemory, sandbox.PromisePids, sandbox.PromiseCPU, sandbox.PromiseNet, sandbox.PromiseFiles,
		sandbox.PromiseSyscalls, sandbox.PromiseKill, sandbox.PromiseSnapshot}
}

// required reads the names of promises.
func required(names []string) ([]sandbox.Promise, error) {
	var list []sandbox.Promise
	for _, name := range names {
		p := sandbox.Promise(name)
		if !slices.Contains(promises(), p) {
			return nil, fmt.Errorf("--require: there is no promise %q; there are %s", name, strings.Trim(fmt.Sprint(promises()), "[]"))
		}
		list = append(list, p)
	}
	return list, nil
}
