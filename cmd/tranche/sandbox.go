package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	backendNS       = "ns"
	backendLandlock = "landlock"
	backendBwrap    = "bwrap"
	backendDocker   = "docker"
	backendHTTP     = "http"
	backendPlain    = "plain"
)

// backendOptions are the back ends there are, each with the options that it takes.
func backendOptions() map[string][]string {
	return map[string][]string{
		backendNS: {}, backendLandlock: {"dir"}, backendBwrap: {"program"}, backendPlain: {},
		backendDocker: {"socket", "image", "runtime", "dir"}, backendHTTP: {"url", "dialect", "key-env", "patience"},
	}
}

// neededOptions are those that a back end cannot do without.
func neededOptions(name string) []string {
	switch name {
	case backendDocker:
		return []string{"image"}
	case backendHTTP:
		return []string{"url", "dialect"}
	}
	return nil
}

// showsRootfs tells that a back end can show a program another root file system than the host's, or than an image's.
func showsRootfs(backend string) bool { return backend == backendNS || backend == backendBwrap }

// checkBackendOptions reports an unknown back end, options that it does not take, and those that it lacks.
func checkBackendOptions(name string, options map[string]string) []error {
	known, ok := backendOptions()[name]
	if !ok {
		return []error{fmt.Errorf("backend: expected one of %s, found %q", joined(slices.Sorted(maps.Keys(backendOptions()))), name)}
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(options)) {
		if slices.Contains(known, key) {
			continue
		}
		takes := "takes none"
		if len(known) > 0 {
			takes = "takes " + joined(known)
		}
		errs = append(errs, fmt.Errorf("options: the back end %s %s, found %q%s", name, takes, key, didYouMean(key, known)))
	}
	for _, key := range neededOptions(name) {
		if options[key] == "" {
			errs = append(errs, fmt.Errorf("options: the back end %s needs %s", name, key))
		}
	}
	return errs
}

// optionFlags are --option flags, KEY=VALUE each.
type optionFlags []string

// read returns the options, and what is wrong with them for a back end.
func (o optionFlags) read(backend string) (map[string]string, error) {
	options := map[string]string{}
	var errs []error
	for _, text := range o {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			errs = append(errs, fmt.Errorf("--option %q: expected KEY=VALUE", text))
			continue
		}
		options[key] = value
	}
	return options, errors.Join(append(errs, checkBackendOptions(backend, options)...)...)
}

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
