package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"tranche/action/sandbox"
	"tranche/action/sandbox/rootfs"
)

// Exit codes of `sandbox run` besides the program's own; those of timeout(1), env(1) and shells.
const (
	codeTimedOut   code = 124 // CPU or wall time used up
	codeNoSandbox  code = 125 // the sandbox failed: nothing is said about the program
	codeNotFound   code = 127 // no such program in the sandbox, or it cannot be executed
	codeSignalBase code = 128 // + the signal that ended it
)

// inputLimit is how much input is read: it is held in memory before the program starts.
const inputLimit = 256 << 20

type sandboxRunCmd struct {
	Command []string `arg:"" passthrough:"" help:"Program and its arguments, after --."`

	Timeout      *time.Duration `placeholder:"TIME" help:"Wall time from the program's start. Default: 4 times --cpu and 5s, without --cpu no limit."`
	CPU          *time.Duration `name:"cpu" placeholder:"TIME" help:"CPU time of the program and all it starts. Default: no limit."`
	Memory       *Bytes         `placeholder:"SIZE" help:"Memory of all its processes and of the files it writes, such as 256MiB. Default: 512MiB."`
	Pids         *int           `placeholder:"N" help:"Processes and threads at once. Default: 64."`
	Disk         *Bytes         `placeholder:"SIZE" help:"Room in its work folder, and as much again in /tmp. Default: 256MiB."`
	Net          bool           `help:"Give it the host's network. Default: a loopback device of its own."`
	Env          []string       `short:"e" sep:"none" placeholder:"KEY=VALUE" help:"Variable to set; may be given more than once. Nothing else of the environment is passed on."`
	File         []string       `sep:"none" placeholder:"FILE" help:"File to copy into its work folder, under the same name; may be given more than once."`
	Rootfs       *string        `placeholder:"PATH" help:"Folder, .tar or .tar.gz to show read-only as /. A file is unpacked once, into ~/.cache/tranche. Default: the host's /usr."`
	RootfsDigest *string        `placeholder:"SHA256" help:"Digest that it must have, as sandbox prepare prints it. Default: any."`
	Require      []string       `placeholder:"PROMISE" help:"Promises that must be enforced, as memory,pids; without them it is not run. Default: none."`
	Backend      string         `enum:"ns,landlock,bwrap,docker,http,plain" default:"ns" help:"Back end: ns, landlock, bwrap, docker, http, or plain, which isolates nothing. Default: ${default}."`
	Option       []string       `sep:"none" placeholder:"KEY=VALUE" help:"Option of the back end, as image=python:3.12 of docker; may be given more than once. docs/sandbox.md has them. Default: none."`

	TrustThisProgram bool `name:"trust-this-program-with-everything-i-have" help:"Needed for --backend plain: the program can read, change and send whatever you can."`

	Verbose bool `short:"v" help:"Tell on stderr at its end how it ended, what it used, what held it, what did not, and on which root file system it ran."`
}

// Help is kong's long text of the command.
func (sandboxRunCmd) Help() string {
	return "Reads its input to the end (none from a terminal), runs the program in an empty work folder, passes its output on as it comes and ends with its exit code; 128 + N where signal N ended it, 137 over the memory limit, 124 when its time is used up, 127 where there is no such program, 125 where the sandbox failed. A limit that was reached is named on stderr. What the program started is killed when it ends. It gets no variable, file or descriptor that was not named."
}

func (c *sandboxRunCmd) do(ctx context.Context, a *app) error {
	spec, cmd, err := c.read()
	if err != nil {
		return withCode(codeUsage, err)
	}
	files, err := hostFiles("--file", c.File)
	if err != nil {
		return withCode(codeUsage, err)
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	tree, err := c.openRootfs(ctx, &spec)
	if err != nil {
		return c.interrupted(ctx, stopped, err)
	}
	defer tree.Close() // what can go wrong there is the cache's
	if cmd.Stdin, err = readInput(ctx, os.Stdin); err != nil {
		return c.interrupted(ctx, stopped, withCode(codeUsage, err))
	}
	writing, giveUp := context.WithCancel(ctx)
	defer giveUp()
	stdout, stderr := pass(writing, a.stdout), pass(writing, a.stderr)
	defer stdout.close()
	defer stderr.close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	r, caps, err := c.run(ctx, a, spec, cmd, files, giveUp)
	if err != nil {
		return c.interrupted(ctx, stopped, withCode(codeNoSandbox, err))
	}
	if r.Status == sandbox.StatusCanceled {
		return outcome(stopped())
	}
	if c.Verbose {
		a.notice("%s", howItWent(r, caps))
	}
	if err := c.verdict(cmd, spec, r); codeOf(err) != codeOK {
		return err
	}
	for _, p := range []*passing{stdout, stderr} {
		if err := p.failed.Load(); err != nil {
			return withCode(codeNoSandbox, fmt.Errorf("its output could not be written: %w", *err))
		}
	}
	if !stdout.dropped.Load() && !stderr.dropped.Load() {
		return nil
	}
	return &coded{codeTimedOut, errors.New("its output was not read to the end within its wall time; the rest is dropped")}
}

// interrupted is the outcome where a signal came, err where none did.
func (c *sandboxRunCmd) interrupted(ctx context.Context, stopped func() code, err error) error {
	if errors.Is(context.Cause(ctx), errInterrupted) {
		return outcome(stopped())
	}
	return err
}

// read turns the flags into what to open and what to run, or tells every fault of them.
func (c *sandboxRunCmd) read() (sandbox.Spec, sandbox.Cmd, error) {
	var errs []error
	args := c.Command
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		errs = append(errs, errors.New("no program named; put it after --, as in: tranche sandbox run --timeout 1s -- python3 -c 'print(1)'"))
	}
	limits, err := c.flags().check()
	errs = append(errs, err, c.rootfsFault())
	require, err := required(c.Require)
	_, wrong := optionFlags(c.Option).read(c.Backend)
	errs = append(errs, err, wrong)
	if c.Backend == backendPlain && !c.TrustThisProgram {
		errs = append(errs, errors.New("--backend plain isolates nothing: it needs --trust-this-program-with-everything-i-have"))
	}
	spec := sandbox.Spec{Rootfs: absolutePath(orZero(c.Rootfs)), Net: c.Net, Limits: limits, Require: require, Trusted: c.TrustThisProgram}
	cmd := sandbox.Cmd{Args: args, Env: c.Env, CPU: orZero(c.CPU), Wall: orZero(c.Timeout)}
	return spec, cmd, errors.Join(errs...)
}

func (c *sandboxRunCmd) flags() boxFlags {
	return boxFlags{Timeout: c.Timeout, CPU: c.CPU, Memory: c.Memory, Pids: c.Pids, Disk: c.Disk, Env: c.Env}
}

// rootfsFault is what is wrong with how the rootfs is named. An empty name is no default: it is a variable that was not set.
func (c *sandboxRunCmd) rootfsFault() error {
	switch {
	case c.Rootfs != nil && *c.Rootfs == "":
		return errors.New("--rootfs: is empty; expected a folder or a tar file")
	case c.Rootfs != nil && !showsRootfs(c.Backend):
		return fmt.Errorf("--rootfs: --backend %s cannot show a program another root file system", c.Backend)
	case c.RootfsDigest != nil && c.Rootfs == nil && c.Backend != backendDocker: // whose image is one
		return errors.New("--rootfs-digest: has no meaning without --rootfs")
	case c.RootfsDigest != nil:
		if _, err := readDigest(*c.RootfsDigest); err != nil {
			return fmt.Errorf("--rootfs-digest: %w", err)
		}
	}
	return nil
}

// openRootfs makes ready what was named. A folder is only read where its digest has to be known; an image's is asked for.
func (c *sandboxRunCmd) openRootfs(ctx context.Context, spec *sandbox.Spec) (rootfs.Tree, error) {
	if c.Backend == backendDocker {
		return rootfs.Tree{}, c.pinImage(ctx, spec)
	}
	if spec.Rootfs == "" {
		return rootfs.Tree{}, nil
	}
	if info, err := os.Stat(spec.Rootfs); err == nil && info.IsDir() && c.RootfsDigest == nil && !c.Verbose {
		return rootfs.Tree{}, nil
	}
	made, err := openRootfs(ctx, spec.Rootfs, orZero(c.RootfsDigest))
	if err != nil {
		return made, withCode(codeUsage, fmt.Errorf("--%w", err))
	}
	spec.Rootfs, spec.RootfsDigest = made.Dir, made.Digest
	return made, nil
}

// hostFiles reads those that a flag names, to copy them in.
func hostFiles(flag string, paths []string) ([]sandbox.File, error) {
	var list []sandbox.File
	var errs []error
	for _, path := range paths {
		f, err := hostFile(path)
		if err == nil && slices.ContainsFunc(list, func(other sandbox.File) bool { return other.Path == f.Path }) {
			err = fmt.Errorf("two files are called %s", f.Path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", flag, path, err))
			continue
		}
		list = append(list, f)
	}
	return list, errors.Join(errs...)
}

func hostFile(path string) (sandbox.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return sandbox.File{}, errors.Unwrap(err)
	}
	if !info.Mode().IsRegular() {
		return sandbox.File{}, errors.New("expected a file, found something else")
	}
	data, err := os.ReadFile(path)
	return sandbox.File{Path: filepath.Base(path), Data: data, Mode: info.Mode().Perm()}, err
}

// readInput reads what there is for the program, nothing from a terminal. A read that ctx ends goes on until the program does.
func readInput(ctx context.Context, in *os.File) ([]byte, error) {
	if term.IsTerminal(int(in.Fd())) {
		return nil, nil
	}
	type input struct {
		data []byte
		err  error
	}
	read := make(chan input, 1)
	go func() { // ends with the input; a read of a pipe cannot be called back
		data, err := io.ReadAll(io.LimitReader(in, inputLimit+1))
		read <- input{data, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case got := <-read:
		if len(got.data) > inputLimit {
			got.err = fmt.Errorf("the input has more than %s", Bytes(inputLimit))
		}
		return got.data, got.err
	}
}

// passing hands on what is written to it until its context is done: whoever is to read it may be stuck, and ctrl-c must end even so.
type passing struct {
	ctx     context.Context
	pieces  chan []byte
	taken   chan error // one a piece
	dropped atomic.Bool
	failed  atomic.Pointer[error] // the first fault of a write
}

func pass(ctx context.Context, to io.Writer) *passing {
	p := &passing{ctx: ctx, pieces: make(chan []byte), taken: make(chan error, 1)}
	go func() { // ends with close, or with the program where the last write does not
		for b := range p.pieces {
			_, err := to.Write(b)
			if err != nil {
				p.failed.CompareAndSwap(nil, &err)
			}
			p.taken <- err
		}
	}()
	return p
}

func (p *passing) Write(b []byte) (int, error) {
	select {
	case p.pieces <- bytes.Clone(b):
	case <-p.ctx.Done():
		return p.drop()
	}
	select {
	case err := <-p.taken:
		return len(b), err
	case <-p.ctx.Done():
		return p.drop()
	}
}

func (p *passing) drop() (int, error) {
	p.dropped.Store(true)
	return 0, p.ctx.Err()
}

func (p *passing) close() { close(p.pieces) }

// readersTime is how long after a program's wall time its output may still wait for who reads it.
const readersTime = 2 * time.Second

// wallOf is a program's wall time; 0 = it has no limit.
func wallOf(cmd sandbox.Cmd) time.Duration {
	if cmd.Wall == 0 && cmd.CPU > 0 {
		return 4*cmd.CPU + 5*time.Second
	}
	return cmd.Wall
}

// run plays the program in a sandbox of its own, of which nothing is left when it returns. giveUp is called when its wall time is long over:
// the end of a program waits for its output.
func (c *sandboxRunCmd) run(ctx context.Context, a *app, spec sandbox.Spec, cmd sandbox.Cmd, files []sandbox.File, giveUp func()) (r sandbox.Result, caps sandbox.Capabilities, err error) {
	options, err := optionFlags(c.Option).read(c.Backend)
	if err != nil {
		return r, caps, err
	}
	executor, err := openExecutor(ctx, c.Backend, options)
	if err != nil {
		return r, caps, err
	}
	defer func() { err = errors.Join(err, executor.Close()) }()
	caps = executor.Capabilities()
	box, err := executor.Open(ctx, spec)
	if err != nil {
		return r, caps, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	c.noteUnheld(a, caps)
	if len(files) > 0 {
		if err := box.Put(ctx, files...); err != nil {
			return r, caps, err
		}
	}
	p, err := box.Start(ctx, cmd)
	if err != nil {
		return r, caps, err
	}
	if wall := wallOf(cmd); wall > 0 {
		defer time.AfterFunc(wall+readersTime, giveUp).Stop()
	}
	r, err = p.Wait(ctx)
	return r, caps, err
}

// verdict turns a result into the exit code, and a limit that was reached into a line.
func (c *sandboxRunCmd) verdict(cmd sandbox.Cmd, spec sandbox.Spec, r sandbox.Result) error {
	status := code(r.Exit)
	if r.Signal != 0 {
		status = codeSignalBase + code(r.Signal)
	}
	said := func(c code, format string, args ...any) error { return &coded{c, fmt.Errorf(format, args...)} }
	switch limits := spec.Limits.Filled(); r.Status {
	case sandbox.StatusWallLimit:
		return said(codeTimedOut, "stopped: its wall time is used up (%v)", r.Wall.Round(time.Millisecond))
	case sandbox.StatusCPULimit:
		return said(codeTimedOut, "stopped: its CPU time of %v is used up", cmd.CPU)
	case sandbox.StatusMemoryLimit:
		return said(codeSignalBase+9, "stopped: over the memory limit of %v", Bytes(limits.Memory))
	case sandbox.StatusFileLimit:
		return said(status, "stopped: a file of more than %v", Bytes(limits.FileSize))
	case sandbox.StatusDenied:
		return said(status, "stopped: a system call that is denied")
	case sandbox.StatusPidsLimit:
		return said(status, "failed after it was refused a process: the limit is %d", limits.Pids)
	case sandbox.StatusNotFound:
		return said(codeNotFound, "there is no program %s in the sandbox, or it cannot be executed", cmd.Args[0])
	}
	return outcome(status)
}
