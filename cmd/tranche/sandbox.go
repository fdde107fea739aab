package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tranche/action/sandbox"
)

type sandboxCmd struct {
	Check sandboxCheckCmd `cmd:"" help:"Tell what this machine can hold a program to, and why not more."`
	Run   sandboxRunCmd   `cmd:"" help:"Run one program in a sandbox, its input, output and exit code passed through."`

	Prepare sandboxPrepareCmd `cmd:"" help:"Install what programs need, once, into a file that sandboxes then take as their root file system."`
}

// Names of back ends.
const (
	backendNS    = "ns"
	backendPlain = "plain"
)

func (c *sandboxCmd) do(ctx context.Context, a *app, verb string, given map[string]bool) error {
	if given["require"] && len(c.Check.Require)+len(c.Run.Require) == 0 { // a variable that was not set
		return withCode(codeUsage, fmt.Errorf("--require: is empty; expected some of %v", sandbox.Promises()))
	}
	switch verb {
	case "check":
		return c.Check.do(ctx, a)
	case "prepare":
		return c.Prepare.do(ctx, a)
	}
	return c.Run.do(ctx, a)
}

// required reads the names of promises.
func required(names []string) ([]sandbox.Promise, error) {
	var list []sandbox.Promise
	for _, name := range names {
		p := sandbox.Promise(name)
		if !slices.Contains(sandbox.Promises(), p) {
			return nil, fmt.Errorf("--require: there is no promise %q; there are %s", name, strings.Trim(fmt.Sprint(sandbox.Promises()), "[]"))
		}
		list = append(list, p)
	}
	return list, nil
}

// limitFaults says of each limit that no program could run under what is wrong with it, under its key: flags have "--" before it.
func limitFaults(l sandbox.Limits, dashes string) error {
	keys := map[string]string{"Memory": "memory", "Pids": "pids", "Disk": "disk", "FileSize": "file-size", "OpenFiles": "open-files"}
	var errs []error
	for _, e := range l.Faults() {
		value, least, most := fmt.Sprint(e.Value), fmt.Sprint(e.Least), fmt.Sprint(e.Most)
		if e.Name != "Pids" && e.Name != "OpenFiles" {
			value, least, most = Bytes(e.Value).String(), Bytes(e.Least).String(), Bytes(e.Most).String()
		}
		errs = append(errs, fmt.Errorf("%s%s: expected %s to %s, found %s", dashes, keys[e.Name], least, most, value))
	}
	return errors.Join(errs...)
}

// boxFlags are the limits of a sandbox as flags. What was not given is nil, so that 0 can be told from it.
type boxFlags struct {
	Timeout *time.Duration
	CPU     *time.Duration
	Memory  *Bytes
	Pids    *int
	Disk    *Bytes
	Env     []string
}

// check reports every fault of the flags at once.
func (f boxFlags) check() (sandbox.Limits, error) {
	var errs []error
	for name, v := range map[string]*time.Duration{"--timeout": f.Timeout, "--cpu": f.CPU} {
		if v != nil && *v <= 0 {
			errs = append(errs, fmt.Errorf("%s: expected a time over 0, such as 10s, found %v", name, *v))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	limits := sandbox.Limits{Memory: int64(orZero(f.Memory)), Pids: orZero(f.Pids), Disk: int64(orZero(f.Disk))}
	for name, zero := range map[string]bool{"--memory": isZero(f.Memory), "--pids": isZero(f.Pids), "--disk": isZero(f.Disk)} {
		if zero { // which would be the default
			errs = append(errs, fmt.Errorf("%s: expected more than 0", name))
		}
	}
	errs = append(errs, limitFaults(limits, "--"))
	for _, e := range f.Env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			errs = append(errs, fmt.Errorf("--env %q: expected KEY=VALUE", e))
		}
	}
	return limits, errors.Join(errs...)
}

func orZero[T any](v *T) (zero T) {
	if v == nil {
		return zero
	}
	return *v
}

func isZero[T int | Bytes](v *T) bool { return v != nil && *v == 0 }
