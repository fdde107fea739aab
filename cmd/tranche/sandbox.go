package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
