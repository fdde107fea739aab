package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/rootfs"
)

type sandboxPrepareCmd struct {
	Base   string   `required:"" placeholder:"BASE" help:"What to begin with: a folder, a .tar or .tar.gz (docker export makes one), or host: a copy of this machine's /usr."`
	Run    []string `sep:"none" placeholder:"COMMAND" help:"Shell command that installs something, as 'pip install numpy'; may be given more than once, in order."`
	Script string   `placeholder:"FILE" help:"Script that installs something, run after the commands: by its first line (#!), else by sh."`
	File   []string `sep:"none" placeholder:"FILE" help:"File to copy into the folder where they run, under the same name; may be given more than once."`
	Net    bool     `help:"Give them the host's network. Default: none."`
	Env    []string `short:"e" sep:"none" placeholder:"KEY=VALUE" help:"Variable to set for them; may be given more than once. Nothing else of the environment is passed on, and nothing of it is kept."`
	Out    string   `short:"o" required:"" placeholder:"FILE" help:"Tar file to write; compressed where its name ends in gz."`

	Backend string `enum:"ns,landlock,bwrap,docker,http,plain" default:"ns" help:"Back end to install in. Only ns lets programs change a root file system; others are refused. Default: ${default}."`

	Timeout *time.Duration `placeholder:"TIME" help:"Wall time of each command. Default: 1h."`
	Memory  *Bytes         `placeholder:"SIZE" help:"Memory of all processes. Default: 4GiB."`
	Pids    *int           `placeholder:"N" help:"Processes and threads at once. Default: 512."`
}

// Help is kong's long text of the command.
func (sandboxPrepareCmd) Help() string {
	return "Copies the base, runs the commands in a sandbox that may write to the copy, and freezes it into a tar file. What they print goes to stderr, the digest and the name of the file to stdout. Use it by sandbox: {rootfs: FILE, rootfs-digest: …} in a settings file or by sandbox run --rootfs FILE. The commands run as an ordinary user to whom every file of the copy belongs, so pip, npm or make install work; apt-get, which has to be root, does not: take the export of an image as the base. When one fails, no file is written."
}

// The limits of an installation, where no flag says otherwise.
const (
	prepareTimeout = time.Hour
	prepareMemory  = 4 << 30
	preparePids    = 512
	prepareFiles   = 4096    // descriptors
	prepareDisk    = 1 << 30 // of its work folder: what is installed is not there
	prepareFile    = 1 << 40 // one file; wheels hold some that are large
)

// prepareEnv makes two installations of the same things alike, and keeps what is only needed meanwhile off the memory: python's compiled
// modules go by the content of their source instead of its time where SOURCE_DATE_EPOCH is set, and zip files have no year before 1980.
func prepareEnv() []string {
	return []string{"TMPDIR=/" + rootfs.BuildTemp, "PIP_NO_CACHE_DIR=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "SOURCE_DATE_EPOCH=315532800"}
}

func (c *sandboxPrepareCmd) do(ctx context.Context, a *app) error {
	limits, steps, files, err := c.read()
	if err != nil {
		return withCode(codeUsage, err)
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	digest, err := c.prepare(ctx, a, limits, steps, files)
	if errors.Is(context.Cause(ctx), errInterrupted) {
		return outcome(stopped())
	}
	if err != nil {
		return err
	}
	return a.print(fmt.Sprintf("%s%s  %s\n", digestPrefix, digest, c.Out))
}

// read turns the flags into what to run, or tells every fault of them.
func (c *sandboxPrepareCmd) read() (sandbox.Limits, []sandbox.Cmd, []sandbox.File, error) {
	limits, err := boxFlags{Timeout: c.Timeout, Memory: c.Memory, Pids: c.Pids, Env: c.Env}.check()
	errs := []error{err}
	if c.Backend != backendNS {
		errs = append(errs, fmt.Errorf("--backend: %s cannot let programs change a root file system; %s can, and what it makes is a root file system for %s too", c.Backend, backendNS, backendBwrap))
	}
	if c.Base != rootfs.HostBase {
		if _, err := os.Stat(c.Base); err != nil {
			errs = append(errs, fmt.Errorf("--base: expected a folder, a tar file or %s: %w", rootfs.HostBase, err))
		}
	}
	if info, err := os.Stat(filepath.Dir(c.Out)); err != nil || !info.IsDir() || c.Out == "" {
		errs = append(errs, fmt.Errorf("--out: %q is in no folder that is there", c.Out))
	}
	files, err := hostFiles("--file", c.File)
	errs = append(errs, err)
	steps, script, err := c.steps()
	errs = append(errs, err)
	limits.Memory, limits.Pids = cmp.Or(limits.Memory, prepareMemory), cmp.Or(limits.Pids, preparePids)
	limits.Disk, limits.FileSize, limits.OpenFiles = prepareDisk, prepareFile, prepareFiles
	return limits, steps, append(files, script...), errors.Join(errs...)
}

// steps are what is run, and the script among them as a file.
func (c *sandboxPrepareCmd) steps() (steps []sandbox.Cmd, script []sandbox.File, err error) {
	wall := prepareTimeout
	if c.Timeout != nil {
		wall = *c.Timeout
	}
	step := func(args ...string) {
		steps = append(steps, sandbox.Cmd{Args: args, Env: append(prepareEnv(), c.Env...), Wall: wall})
	}
	for _, line := range c.Run {
		step("sh", "-c", line)
	}
	if c.Script != "" {
		if script, err = hostFiles("--script", []string{c.Script}); err != nil {
			return nil, nil, err
		}
		script[0].Mode |= 0o700
		if name := "./" + script[0].Path; bytes.HasPrefix(script[0].Data, []byte("#!")) {
			step(name)
		} else {
			step("sh", name)
		}
	}
	return steps, script, nil
}

// prepare makes the file and returns the digest of what is in it.
func (c *sandboxPrepareCmd) prepare(ctx context.Context, a *app, limits sandbox.Limits, steps []sandbox.Cmd, files []sandbox.File) (digest string, err error) {
	cfg, err := rootfsConfig()
	if err != nil {
		return "", err
	}
	a.notice("copying %s …", c.Base)
	build, err := rootfs.NewBuild(ctx, cfg, c.Base)
	if err != nil {
		return "", withCode(codeUsage, fmt.Errorf("--base: %w", err))
	}
	defer func() { err = errors.Join(err, build.Close()) }()
	if c.Net {
		if err := build.Resolvable(); err != nil {
			return "", err
		}
	}
	if err := c.install(ctx, a, build.Dir, limits, steps, files); err != nil {
		return "", err
	}
	a.notice("writing %s …", c.Out)
	digest, err = build.Freeze(ctx, c.Out)
	return digest, withCode(codeDisk, err)
}

// install runs the steps in one sandbox, of which nothing is left when it returns.
func (c *sandboxPrepareCmd) install(ctx context.Context, a *app, dir string, limits sandbox.Limits, steps []sandbox.Cmd, files []sandbox.File) (err error) {
	failed := func(err error) error { return withCode(codeNoSandbox, err) }
	executor, err := openExecutor(ctx, c.Backend, nil)
	if err != nil {
		return failed(err)
	}
	defer func() { err = errors.Join(err, failed(executor.Close())) }()
	box, err := executor.Open(ctx, sandbox.Spec{Rootfs: dir, RootfsWritable: true, Net: c.Net, Limits: limits})
	if err != nil {
		return failed(err)
	}
	defer func() { err = errors.Join(err, failed(box.Close())) }()
	if err := box.Put(ctx, files...); err != nil {
		return failed(err)
	}
	for _, step := range steps {
		a.notice("+ %s", step.Args[len(step.Args)-1])
		step.Stdout, step.Stderr = a.stderr, a.stderr
		p, err := box.Start(ctx, step)
		if err != nil {
			return failed(err)
		}
		r, err := p.Wait(ctx)
		if err != nil {
			return failed(err)
		}
		if r.Status != sandbox.StatusOK {
			return installFault(step, limits, r)
		}
	}
	return nil
}

// installFault says how an installation failed.
func installFault(step sandbox.Cmd, limits sandbox.Limits, r sandbox.Result) error {
	said := fmt.Sprintf("%q ended with %s", step.Args[len(step.Args)-1], r.Status)
	switch r.Status {
	case sandbox.StatusNonzero:
		said += fmt.Sprintf(" (exit code %d)", r.Exit)
	case sandbox.StatusSignaled:
		said += fmt.Sprintf(" (signal %d)", r.Signal)
	case sandbox.StatusWallLimit:
		said += fmt.Sprintf(" (--timeout %v)", step.Wall)
	case sandbox.StatusMemoryLimit:
		said += fmt.Sprintf(" (--memory %v)", Bytes(limits.Memory))
	case sandbox.StatusPidsLimit:
		said += fmt.Sprintf(" (--pids %d)", limits.Pids)
	case sandbox.StatusNotFound:
		said += fmt.Sprintf(" (there is no %s in the base)", step.Args[0])
	}
	return fmt.Errorf("%s: no file was written", said)
}
