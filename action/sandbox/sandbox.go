package sandbox

import (
	"context"
	"io"
	"io/fs"
	"os"
	"time"
)

// Executor opens sandboxes on one back end. Its methods may be called at once.
type Executor interface {
	// Capabilities says what this back end can hold on this host, found out once: by trying to run a program under the limits. What
	// each limit then does to a program is not tried here but in the tests.
	Capabilities() Capabilities
	// Open returns a clean sandbox for a spec, from a warm pool where the back end keeps one. It waits for room until ctx is
	// done. An error says that the executor could not do its job, a *RequireError that this host cannot hold what the spec
	// requires; neither says anything about a program.
	Open(ctx context.Context, spec Spec) (Sandbox, error)
	// Close ends every sandbox that is still open and waits until nothing of them is left: no process, mount, cgroup or file.
	Close() error
}

// Sandbox is one file tree with the processes in it. One goroutine uses it at a time.
type Sandbox interface {
	// Start begins a program. Several may go on at once: a session and a program beside it. The error says that the executor
	// failed; a program that is not there, or may not be run, is a Result with StatusNotFound. Wait must be called.
	Start(ctx context.Context, cmd Cmd) (Process, error)
	// Put writes files below the work folder, parents too. A path that leaves it, by name or through a link that a program
	// made, is an *EscapeError; what a program may not exceed in bytes, Put may not either (*TooLargeError, *FullError). A file
	// that is there already is replaced, never written into: whoever has it open keeps the old one. *PathError where no file can be.
	Put(ctx context.Context, files ...File) error
	// Get reads one regular file below the work folder, by path. It follows no link (*EscapeError) and reads at most limit
	// bytes (*TooLargeError). fs.ErrNotExist where there is none, *PathError where there is something else.
	Get(ctx context.Context, path string, limit int64) (File, error)
	// Reset kills every process and makes the file tree as it was at Open.
	Reset(ctx context.Context) error
	// Snapshot copies the file tree: the work folder and /tmp, not the processes. Sessions go on and may change files
	// meanwhile; stop them first where that matters.
	Snapshot(ctx context.Context) (*Snapshot, error)
	// Restore is Reset, then the file tree of the snapshot. One snapshot may be restored in many sandboxes.
	Restore(ctx context.Context, s *Snapshot) error
	// Close kills every process, and gives the sandbox back or destroys it. Once is enough; again does nothing.
	Close() error
}

// Process is one program that was started in a sandbox.
type Process interface {
	// Control is the host's end of the program's private descriptor, a stream socket; nil unless Cmd.Control asked for it. It
	// is closed by Wait.
	Control() *os.File
	// Take returns what came out since the last Take, having read first what lies in the pipes at this moment.
	Take() (stdout, stderr Output)
	// Usage is what the program and all that it started used so far.
	Usage() Usage
	// Interrupt sends SIGINT to the program's process group.
	Interrupt() error
	// Wait returns when the program has ended: by itself, by a limit, or because ctx was done (StatusCanceled). What the
	// program left behind is killed first unless Cmd.Background; output is what no Take has returned.
	Wait(ctx context.Context) (Result, error)
}

// Spec says what a sandbox is. Sandboxes of equal specs share warm slots.
type Spec struct {
	// Rootfs is a folder that is seen read-only as /, with its digest in RootfsDigest. "" = the host's /usr and what belongs
	// to it.
	Rootfs       string
	RootfsDigest string
	// RootfsWritable lets programs change the tree of Rootfs, which becomes theirs and stays changed after Reset: to install what others will
	// run on. One sandbox at a time.
	RootfsWritable bool
	// Net gives the sandbox the host's network. Without it there is a loopback device and nothing else.
	Net bool
	// Limits bound the sandbox as a whole. Zero fields take DefaultLimits.
	Limits Limits
	// Require names the promises that must be enforced, not best effort: Open fails with a *RequireError where one is not.
	Require []Promise
	// Trusted says that the user vouches for the programs: the back end `plain` runs nothing else.
	Trusted bool
}

// Limits bound a whole sandbox: all its processes together, except where the tier in force cannot (see Capabilities).
type Limits struct {
	Memory    int64 // bytes, of all processes and the files in memory; per process in the tiers without cgroups
	Pids      int   // processes and threads at once
	Disk      int64 // bytes in the work folder, as many again in /tmp, and as many in /dev/shm
	FileSize  int64 // bytes of one file
	OpenFiles int   // descriptors of one process
}

// Cmd is one program to run.
type Cmd struct {
	Args  []string // Args[0] is looked up in PATH of the sandbox where it has no slash
	Env   []string // KEY=VALUE, on top of the fixed environment (PATH, HOME, LANG, TZ, PYTHONHASHSEED, ...); nothing of the host's
	Dir   string   // below the work folder; "" = the work folder itself
	Stdin []byte   // all of its input; nil = empty

	CPU  time.Duration // CPU time of the program and all it started; 0 = no limit
	Wall time.Duration // from its start; 0 = 4 x CPU + 5 s, or no limit where CPU is 0
	Keep int           // bytes kept of each stream: the first half and the last half of them; 0 = DefaultKeep
	// OutputLimit stops a program that wrote more than so many bytes, over both streams. 0 = none: what is over Keep is counted and dropped.
	OutputLimit int64
	// Stdout and Stderr, where set, get what the program writes as it comes; it is counted then and not kept. A writer that is slow
	// holds the program up, and Wait. After an error of a writer the rest is dropped.
	Stdout, Stderr io.Writer

	Control    bool // give the program a private descriptor, number ControlFD; nothing else is inherited
	Background bool // let what the program started go on after its end, until Reset or Close
}

// ControlFD is the number of the private descriptor in a program that asked for one.
const ControlFD = 3

// Status is how a program ended. The list is closed.
type Status string

// The statuses. Where several are true, the first of this order that is.
const (
	StatusCanceled    Status = "canceled"       // ctx was done
	StatusMemoryLimit Status = "memory_limit"   // the kernel killed a process of it for memory; beside other programs, the program itself
	StatusCPULimit    Status = "cpu_limit"      // CPU time used up
	StatusWallLimit   Status = "wall_limit"     // wall time used up
	StatusOutputLimit Status = "output_limit"   // wrote more than OutputLimit
	StatusFileLimit   Status = "file_limit"     // SIGXFSZ: a file larger than FileSize
	StatusDenied      Status = "denied_syscall" // killed for a system call (SIGSYS)
	StatusPidsLimit   Status = "pids_limit"     // ended badly after the kernel refused it a process
	StatusSignaled    Status = "signaled"       // ended by another signal
	StatusNonzero     Status = "nonzero"        // exit code other than 0
	StatusNotFound    Status = "not_found"      // there is no such program, or it cannot be executed
	StatusOK          Status = "ok"             // exit code 0
)

// Result is what became of a program. Everything the program did is here; an error beside it says that the executor failed.
type Result struct {
	Status Status
	Exit   int // exit code; -1 where it did not exit
	Signal int // 0 where no signal ended it
	Stdout Output
	Stderr Output

	Queue time.Duration // waited for a run token or a slot
	Setup time.Duration // from then to the program's start
	Wall  time.Duration // from its start to its end
	Usage Usage

	LeftBehind int    // processes that were still there at its end and were killed
	Tier       Tier   // what held the limits
	Backend    string // ns, landlock, bwrap, docker, http or plain
	Rootfs     string // digest of the root file system; "" = the host's
	Trusted    bool   // ran without isolation because the user vouched for it
}

// HeldBy says in one word what held the program, for rows and verdicts: see Capabilities.HeldBy.
func (r Result) HeldBy() string { return heldBy(r.Backend, r.Tier) }

// Output is one stream: what is kept, and how much there was.
type Output struct {
	Head, Tail []byte // the stream's beginning and end; together the whole where nothing was dropped. Bytes as they came
	Total      int64  // bytes that were written
}

// Usage is what a program and its children used.
type Usage struct {
	CPU          time.Duration // user and system
	PeakMemory   int64         // bytes; of the cgroup where there is one, else of the largest process
	OOMKills     int           // processes killed for memory, where the tier counts them and it is known that they were its own
	RefusedForks int           // likewise
}

// File is a file that goes in or comes out.
type File struct {
	Path string // slash-separated, relative to the work folder
	Data []byte
	Mode fs.FileMode // permission bits; 0 = 0644
}

// Promise is one thing that a sandbox can hold a program to.
type Promise string

// The promises.
const (
	PromiseMemory   Promise = "memory"   // total memory of all processes
	PromisePids     Promise = "pids"     // number of processes
	PromiseCPU      Promise = "cpu"      // CPU time of the whole tree
	PromiseNet      Promise = "net"      // no network but what was asked for
	PromiseFiles    Promise = "files"    // no file of the host but the declared ones, disk use bounded
	PromiseDisk     Promise = "disk"     // bytes of all its files together: of files, the part that Limits.Disk is
	PromiseSyscalls Promise = "syscalls" // deny list of system calls
	PromiseKill     Promise = "kill"     // no process outlives its run
	PromiseSnapshot Promise = "snapshot" // file tree can be copied and restored
)

// Strength is how well a promise is held.
type Strength string

// The strengths.
const (
	Absent     Strength = "absent"
	BestEffort Strength = "best effort"
	Enforced   Strength = "enforced"
)

// Tier is what holds a sandbox's limits, from strong to weak.
type Tier string

// The tiers.
const (
	TierCgroup2 Tier = "cgroup2" // memory and pids by cgroup v2
	TierCgroup1 Tier = "cgroup1" // memory and pids by cgroup v1
	TierRlimit  Tier = "rlimit"  // per-process limits only
	TierEngine  Tier = "engine"  // memory and pids by a container engine, which does not tell what it refused
	TierRemote  Tier = "remote"  // another machine's, of which nothing is known here
	TierNone    Tier = "none"
)

// Capabilities says what a back end holds on this host.
type Capabilities struct {
	Backend  string
	Tier     Tier
	Promises map[Promise]Strength
	Why      map[Promise]string // in words, for each that is not enforced; and what would make it so
}

// HeldBy says in one word what holds programs: the tier, with the back end before it where that is not the default one, as bwrap/cgroup2.
func (c Capabilities) HeldBy() string { return heldBy(c.Backend, c.Tier) }

func heldBy(backend string, tier Tier) string {
	if backend == "ns" || backend == "plain" { // of whose tiers no other has the name "none"
		return string(tier)
	}
	return backend + "/" + string(tier)
}
