//go:build linux && (amd64 || arm64)

package landlock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
	"tranche/action/sandbox/keeper"
)

// Config is how the back end works on this host. Zero fields take the defaults.
type Config struct {
	// Dir holds the work folders while they are in use. As root it must be one that other users may pass through, since programs are
	// others. Default: the system's folder for temporary files.
	Dir string
	// FirstID is the first of IDCount host ids that programs run under where this process is root; no account may have one of them.
	// 0 = 0x72000000 and 2^20 of them, which systemd's list of ids calls unused.
	FirstID, IDCount uint32
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	if c.FirstID != 0 && c.IDCount < 1 {
		return fmt.Errorf("IDCount is %d, expected 1 or more beside FirstID", c.IDCount)
	}
	return nil
}

const (
	backend  = "landlock"
	lastStep = "tranche: last step before a program"

	defaultFirstID, defaultIDs = 0x72000000, 1 << 20

	// leastABI is the first that knows truncation: before, a program may empty what it may not open (Linux 6.2).
	leastABI = 3
	// scopeABI is the first that keeps signals and abstract sockets in (Linux 6.12).
	scopeABI = 6
)

// Init must be the first thing that main does. It returns at once, unless this process was started to keep a program or to become one.
func Init() {
	keeper.Init()
	keeper.Become(lastStep, confine)
}

// New makes the back end and tries it by running a program. The error says why programs cannot be held here.
func New(c Config) (*keeper.Executor, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", backend, err)
	}
	abi, err := version()
	if err == nil && abi < leastABI {
		err = fmt.Errorf("this kernel has Landlock version %d, which cannot hold files; %d or later can (Linux 6.2)", abi, leastABI)
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox %s does not work on this host: %w", backend, err)
	}
	k := kind{abi: abi, root: os.Geteuid() == 0}
	if k.root {
		k.ids, err = newIDs(cmp.Or(c.FirstID, defaultFirstID), cmp.Or(c.IDCount, defaultIDs))
	}
	var x *keeper.Executor
	if err == nil {
		x, err = keeper.New(c.Dir, k.kind())
	}
	if err == nil {
		err = try(x)
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox %s does not work on this host: %w", backend, err)
	}
	return x, nil
}

// version is that of Landlock in this kernel.
func version() (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch errno {
	case 0:
		return int(v), nil
	case unix.ENOSYS:
		return 0, errors.New("this kernel has no Landlock (Linux 5.13 and later can be built with it)")
	case unix.EOPNOTSUPP:
		return 0, errors.New("this kernel has Landlock switched off: its boot option lsm= must name it")
	}
	return 0, fmt.Errorf("ask for the version of Landlock: %w", errno)
}

// try runs a program that needs its folders: a work folder below one that others may not pass through is of no use.
func try(x *keeper.Executor) error {
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	box, err := x.Open(ctx, sandbox.Spec{})
	if err != nil {
		return errors.Join(err, x.Close())
	}
	p, err := box.Start(ctx, sandbox.Cmd{Args: []string{"/bin/sh", "-c", `: > "$HOME/f" && : > "$TMPDIR/f"`}})
	if err == nil {
		var r sandbox.Result
		if r, err = p.Wait(ctx); err == nil && r.Status != sandbox.StatusOK {
			err = fmt.Errorf("a program that writes to its folders ended with %s (may others pass through the folder for temporary files?): %s", r.Status, r.Stderr.Head)
		}
	}
	if err := errors.Join(err, box.Close()); err != nil {
		return errors.Join(err, x.Close())
	}
	return nil
}

// kind is this back end on this host.
type kind struct {
	abi  int
	root bool
	ids  *ids // of programs, where root
}

func (k kind) kind() keeper.Kind {
	return keeper.Kind{Can: k.can(), Last: lastStep, Confine: k.confine}
}

// confine says what one sandbox is held to.
func (k kind) confine(spec sandbox.Spec, work, tmp string) (keeper.Confinement, error) {
	l := spec.Limits
	c := cage{ABI: k.abi, Work: work, Tmp: tmp, Net: spec.Net, Memory: uint64(l.Memory)}
	var made keeper.Confinement
	if k.root {
		id, err := k.ids.take()
		if err != nil {
			return made, err
		}
		c.User, c.Pids = int(id), uint64(l.Pids)
		made.Owner, made.Release = int(id), func() { k.ids.give(id) }
	}
	var err error
	made.Told, err = json.Marshal(c)
	return made, err
}

// can says what holds here.
func (k kind) can() sandbox.Capabilities {
	c := sandbox.Capabilities{Backend: backend, Tier: sandbox.TierRlimit, Promises: map[sandbox.Promise]sandbox.Strength{}, Why: map[sandbox.Promise]string{}}
	for _, p := range []sandbox.Promise{sandbox.PromiseNet, sandbox.PromiseSyscalls, sandbox.PromiseSnapshot, sandbox.PromisePids, sandbox.PromiseKill} {
		c.Promises[p] = sandbox.Enforced
	}
	weak := func(p sandbox.Promise, s sandbox.Strength, why string) { c.Promises[p], c.Why[p] = s, why }
	const asRoot = "; as root each sandbox has a user of its own"
	weak(sandbox.PromiseMemory, sandbox.BestEffort, "the limit is one of each process, not of all together; the back end ns with control groups has it")
	weak(sandbox.PromiseCPU, sandbox.BestEffort, "summed over the program's processes every 10 ms; one that nobody waits for takes its time with it")
	files := "what is not declared cannot be opened, but that it is there can be seen, as can the command lines of other processes; the disk is not bounded"
	weak(sandbox.PromiseDisk, sandbox.Absent, "each file is bounded, all together are not: they lie on the host's disk; the back end ns has room of a set size in memory")
	if !k.root {
		files += "; bits and times of what this user owns can be changed" + asRoot
		weak(sandbox.PromisePids, sandbox.Absent, "processes are counted by user, and programs are this one"+asRoot)
	}
	weak(sandbox.PromiseFiles, sandbox.BestEffort, files)
	if !k.root && k.abi < scopeABI {
		weak(sandbox.PromiseKill, sandbox.BestEffort, fmt.Sprintf("a program can signal other processes of this user, also the one that keeps it: that needs Landlock version %d (Linux 6.12), here is %d", scopeABI, k.abi)+asRoot)
	}
	return c
}
