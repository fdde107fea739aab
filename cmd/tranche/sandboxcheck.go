package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tranche/action/sandbox"
)

// checkPatience bounds the trial of a back end.
const checkPatience = 30 * time.Second

type sandboxCheckCmd struct {
	Backend string   `enum:"ns,landlock,bwrap,docker,http,plain" default:"ns" help:"Back end to check: ns, landlock, bwrap, docker, http or plain. Default: ${default}."`
	Option  []string `sep:"none" placeholder:"KEY=VALUE" help:"Option of the back end, as image=python:3.12 of docker; may be given more than once. docs/sandbox.md has them. Default: none."`
	Require []string `placeholder:"PROMISE" help:"Promises that must be enforced, not best effort, as memory,pids. Default: none."`
	JSON    bool     `name:"json" help:"Print one JSON document."`
}

// Help is kong's long text of the command.
func (sandboxCheckCmd) Help() string {
	return "Opens a sandbox, runs a program in it and tells for each promise how well it is held here: enforced, best effort (it can be got round, or only single processes are bounded) or absent, why, and what would make it more. The exit code is 0 when the back end runs programs and holds all that --require names. docs/sandbox.md says what each promise means."
}

// checked is what the check found.
type checked struct {
	Backend  string         `json:"backend"`
	Works    bool           `json:"works"`
	Error    string         `json:"error,omitempty"` // why it does not
	Tier     sandbox.Tier   `json:"tier,omitempty"`
	Promises []heldPromise  `json:"promises,omitempty"`
	Started  *durationsOfIt `json:"started,omitempty"`
}

type heldPromise struct {
	Promise  sandbox.Promise  `json:"promise"`
	Strength sandbox.Strength `json:"strength"`
	Why      string           `json:"why,omitempty"`
}

// durationsOfIt are those of the program that was run.
type durationsOfIt struct {
	OpenSeconds float64 `json:"open_s"`
	RunSeconds  float64 `json:"run_s"`
}

func (c *sandboxCheckCmd) do(ctx context.Context, a *app) error {
	require, err := required(c.Require)
	options, wrong := optionFlags(c.Option).read(c.Backend)
	if err := errors.Join(err, wrong); err != nil {
		return withCode(codeUsage, err)
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	found, err := checkBackend(ctx, c.Backend, options, require)
	if errors.Is(context.Cause(ctx), errInterrupted) {
		return outcome(stopped())
	}
	if c.JSON {
		return errors.Join(a.printJSON(found), err)
	}
	return errors.Join(a.print(found.text()), err)
}

// checkBackend tries a back end. The error is the first reason why it cannot be used.
func checkBackend(ctx context.Context, name string, options map[string]string, require []sandbox.Promise) (*checked, error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	found := &checked{Backend: name}
	fail := func(err error) (*checked, error) {
		found.Error = err.Error()
		return found, fmt.Errorf("the back end %s does not do here: %w", name, err)
	}
	executor, err := openExecutor(ctx, name, options)
	if err != nil {
		return fail(err)
	}
	found.describe(executor.Capabilities())
	err = errors.Join(found.tryOut(ctx, executor, require), executor.Close())
	if err != nil {
		return fail(err)
	}
	found.Works = true
	return found, nil
}

func (f *checked) describe(caps sandbox.Capabilities) {
	f.Tier = caps.Tier
	for _, p := range sandbox.Promises() {
		strength := caps.Promises[p]
		if strength == "" {
			strength = sandbox.Absent
		}
		f.Promises = append(f.Promises, heldPromise{p, strength, caps.Why[p]})
	}
}

// tryOut runs a program that does nothing: what can be opened need not run.
func (f *checked) tryOut(ctx context.Context, executor sandbox.Executor, require []sandbox.Promise) (err error) {
	began := time.Now()
	box, err := executor.Open(ctx, sandbox.Spec{Require: require, Trusted: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	opened := time.Now()
	p, err := box.Start(ctx, sandbox.Cmd{Args: []string{"true"}})
	if err != nil {
		return err
	}
	r, err := p.Wait(ctx)
	switch {
	case err != nil:
		return err
	case r.Status != sandbox.StatusOK:
		return fmt.Errorf("the program true ended with status %s: %s%s", r.Status, r.Stderr.Head, r.Stderr.Tail)
	}
	f.Started = &durationsOfIt{opened.Sub(began).Seconds(), time.Since(opened).Seconds()}
	return nil
}

func (f *checked) text() string {
	var b strings.Builder
	switch {
	case f.Works:
		fmt.Fprintf(&b, "back end %s works; limits are held by %s\n", f.Backend, f.Tier)
		fmt.Fprintf(&b, "opened in %.1f ms, `true` took %.1f ms\n", 1e3*f.Started.OpenSeconds, 1e3*f.Started.RunSeconds)
	case f.Tier != "":
		fmt.Fprintf(&b, "back end %s does not work as asked; limits are held by %s\n", f.Backend, f.Tier)
	default:
		return fmt.Sprintf("back end %s does not work here\n", f.Backend)
	}
	for _, p := range f.Promises {
		fmt.Fprintf(&b, "  %-9s  %s\n", p.Promise, p.Strength)
		if p.Why != "" {
			fmt.Fprintf(&b, "             %s\n", p.Why)
		}
	}
	return visible(b.String())
}
