//go:build linux

package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tranche/action/sandbox"
)

const backend = "http"

// Executor opens sandboxes on a far side.
type Executor struct {
	config Config
	far    far

	mu     sync.Mutex
	open   map[*box]struct{} // guarded by mu
	closed bool              // guarded by mu
}

// far is a dialect: it has the aide do something to the folder of a sandbox.
type far interface {
	// make returns a new, empty folder.
	make(ctx context.Context) (folder, error)
	// do has the aide answer a request about a folder, and may change it. within is how long the answer may take.
	do(ctx context.Context, f *folder, r request, within time.Duration) (answer, error)
	// unmake lets go of a folder.
	unmake(ctx context.Context, f *folder) error
}

// folder is the work folder of a sandbox: its path over there, or, where nothing is kept there, what is in it.
type folder struct {
	path string
	tree []byte // a tar file
}

// request is what the aide is asked.
type request struct {
	Op   string `json:"op"`
	Work string `json:"work,omitempty"`
	Most int64  `json:"most,omitempty"` // bytes of a tree that comes and goes

	// run
	Args        []string `json:"args,omitempty"`
	Env         []string `json:"env,omitempty"`
	Dir         string   `json:"dir"`
	Stdin       []byte   `json:"stdin"`
	WallSeconds float64  `json:"wall_s"`
	CPUSeconds  int64    `json:"cpu_s"` // of one process
	Keep        int      `json:"keep"`  // bytes of each stream; -1 = all
	OutputLimit int64    `json:"output_limit"`
	Memory      int64    `json:"memory"` // bytes of address space of one process
	FileSize    int64    `json:"file_size"`
	OpenFiles   int      `json:"open_files"`

	// put and get
	Path  string `json:"path,omitempty"`
	Data  []byte `json:"data"`
	Mode  uint32 `json:"mode,omitempty"`
	Limit int64  `json:"limit,omitempty"`
}

// answer is what the aide says.
type answer struct {
	Error string `json:"error"` // it could not do its work

	Missing int     `json:"missing"` // errno of a program that cannot be executed
	Wait    *uint32 `json:"status"`  // of waitpid
	Stopped sandbox.Status
	Stdout  stream
	Stderr  stream
	WallS   float64 `json:"wall_s"`
	CPUS    float64 `json:"cpu_s"`
	Peak    int64
	Left    int

	Fault string // of a path: escape, path, large, missing, full
	Why   string
	Size  int64
	Data  []byte
	Mode  uint32
}

type stream struct {
	Head, Tail []byte
	Total      int64
}

// New returns the back end; it talks to nobody yet.
func New(c Config) (*Executor, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", backend, err)
	}
	x := &Executor{config: c.withDefaults(), open: map[*box]struct{}{}}
	w := wire{base: strings.TrimRight(c.URL, "/"), key: c.Key, client: x.config.Client}
	x.far = &fusion{wire: w}
	if c.Dialect == SWEReX {
		x.far = &swerex{wire: w, patience: x.config.Patience}
	}
	return x, nil
}

// Capabilities says that nothing is known of what the far side holds.
func (*Executor) Capabilities() sandbox.Capabilities {
	c := sandbox.Capabilities{Backend: backend, Tier: sandbox.TierRemote, Promises: map[sandbox.Promise]sandbox.Strength{}, Why: map[sandbox.Promise]string{}}
	for _, p := range []sandbox.Promise{sandbox.PromisePids, sandbox.PromiseNet, sandbox.PromiseFiles, sandbox.PromiseDisk, sandbox.PromiseSyscalls} {
		c.Promises[p], c.Why[p] = sandbox.Absent, "it is the far side's, which does not say whether it holds it"
	}
	c.Promises[sandbox.PromiseMemory], c.Why[sandbox.PromiseMemory] = sandbox.BestEffort, "a limit of address space of each process; what the far side holds besides is not known"
	c.Promises[sandbox.PromiseCPU], c.Why[sandbox.PromiseCPU] = sandbox.Absent, "a limit of each process only"
	c.Promises[sandbox.PromiseKill], c.Why[sandbox.PromiseKill] = sandbox.Absent, "what goes on over there after a request was cut off cannot be told; it ends with the program's wall time"
	c.Promises[sandbox.PromiseSnapshot], c.Why[sandbox.PromiseSnapshot] = sandbox.Absent, "file trees are not copied from there"
	return c
}

// Open makes a work folder over there.
func (x *Executor) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := x.refuse(spec); err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, x.config.Patience)
	defer stop()
	f, err := x.far.make(ctx)
	if err != nil {
		return nil, x.failed("open a sandbox", err)
	}
	b := &box{x: x, limits: spec.Limits.Filled(), turn: make(chan struct{}, 1), folder: f, running: map[*process]struct{}{}}
	if !x.enter(b) {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), x.config.Patience)
		defer stop()
		return nil, x.failed("open a sandbox", errors.Join(errClosed, x.far.unmake(ctx, &f)))
	}
	return b, nil
}

// enter notes a sandbox; false when the executor is closed.
func (x *Executor) enter(b *box) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.closed {
		x.open[b] = struct{}{}
	}
	return !x.closed
}

var errClosed = errors.New("it is closed")

func (x *Executor) failed(what string, err error) error {
	return fmt.Errorf("sandbox %s (%s at %s): %s: %w", backend, x.config.Dialect, x.config.URL, what, err)
}

func (x *Executor) refuse(spec sandbox.Spec) error {
	if spec.Rootfs != "" {
		return x.failed("open a sandbox", errors.New("it cannot show a program another root file system"))
	}
	if err := spec.Limits.Validate(); err != nil {
		return x.failed("open a sandbox", err)
	}
	return x.Capabilities().Hold(spec.Require)
}

// closedAtOnce is how many sandboxes are let go of at the same time.
const closedAtOnce = 64

// Close ends what is open. A far side that is silent takes its patience once.
func (x *Executor) Close() error {
	x.mu.Lock()
	x.closed = true
	open := maps.Clone(x.open)
	x.mu.Unlock()
	ctx, stop := context.WithTimeout(context.Background(), x.config.Patience)
	defer stop()
	var (
		mu   sync.Mutex
		errs []error // guarded by mu
		all  sync.WaitGroup
	)
	room := make(chan struct{}, closedAtOnce)
	for b := range open {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if err := b.close(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	all.Wait()
	x.config.Client.CloseIdleConnections()
	return errors.Join(errs...)
}

// box is a sandbox. One request about its folder goes at a time.
type box struct {
	x      *Executor
	limits sandbox.Limits
	turn   chan struct{} // holds one token while a request about the folder goes; guards folder; never closed
	folder folder

	mu      sync.Mutex
	running map[*process]struct{} // guarded by mu
	cut     bool                  // a request was cut off: something may still go on in the folder; guarded by mu
	closed  bool                  // guarded by mu
}

var errCut = errors.New("a program was cut off, and may still be at work in the folder: reset the sandbox first")

// take waits for the turn, which leave gives on: behind a request that may go for as long as its program.
func (b *box) take(ctx context.Context) error {
	if ctx.Err() != nil { // else chance may choose the turn
		return context.Cause(ctx)
	}
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *box) leave() { <-b.turn }

// do asks the aide.
func (b *box) do(ctx context.Context, r request, within time.Duration) (answer, error) {
	if err := b.take(ctx); err != nil {
		return answer{}, err
	}
	defer b.leave()
	if err := b.usable(); err != nil {
		return answer{}, err
	}
	ctx, stop := context.WithTimeoutCause(ctx, within+b.x.config.Patience, fmt.Errorf("there is no answer after %v", within+b.x.config.Patience))
	defer stop()
	r.Most = b.limits.Disk
	a, err := b.x.far.do(ctx, &b.folder, r, within)
	if err == nil && a.Error != "" {
		err = errors.New("over there: " + a.Error)
	}
	if err != nil {
		b.mu.Lock()
		b.cut = true
		b.mu.Unlock()
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(cause, err)
		}
	}
	return a, err
}

func (b *box) usable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return errClosed
	case b.cut:
		return errCut
	}
	return nil
}

func (b *box) Put(ctx context.Context, files ...sandbox.File) error {
	for _, f := range files {
		if n := int64(len(f.Data)); n > b.limits.FileSize {
			return &sandbox.TooLargeError{Path: f.Path, Size: n, Limit: b.limits.FileSize}
		}
	}
	for _, f := range files {
		r := request{Op: "put", Path: f.Path, Data: f.Data, Mode: uint32(cmp.Or(f.Mode.Perm(), 0o644))}
		if err := local(f.Path); err != nil {
			return err
		}
		a, err := b.do(ctx, r, 0)
		if err != nil {
			return b.x.failed("put a file", err)
		}
		if err := a.fault(r); err != nil {
			return err
		}
	}
	return nil
}

func (b *box) Get(ctx context.Context, path string, limit int64) (sandbox.File, error) {
	if err := local(path); err != nil {
		return sandbox.File{}, err
	}
	r := request{Op: "get", Path: path, Limit: limit}
	a, err := b.do(ctx, r, 0)
	if err != nil {
		return sandbox.File{}, b.x.failed("get a file", err)
	}
	if err := a.fault(r); err != nil {
		return sandbox.File{}, err
	}
	return sandbox.File{Path: path, Data: a.Data, Mode: fs.FileMode(a.Mode).Perm()}, nil
}

// local refuses a path that names its way out.
func local(path string) error {
	if path != "" && !filepath.IsLocal(path) {
		return &sandbox.EscapeError{Path: path}
	}
	return nil
}

// fault is the error that a path is the cause of.
func (a answer) fault(r request) error {
	switch a.Fault {
	case "":
		return nil
	case "escape":
		return &sandbox.EscapeError{Path: r.Path}
	case "large":
		return &sandbox.TooLargeError{Path: r.Path, Size: a.Size, Limit: r.Limit}
	case "full":
		return &sandbox.FullError{Path: r.Path}
	case "missing":
		return &fs.PathError{Op: "open", Path: r.Path, Err: fs.ErrNotExist}
	}
	return &sandbox.PathError{Path: r.Path, Why: a.Why}
}

// Reset lets go of the folder and makes another.
func (b *box) Reset(ctx context.Context) error {
	b.end()
	if err := b.take(ctx); err != nil {
		return b.x.failed("reset a sandbox", err)
	}
	defer b.leave()
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return b.x.failed("reset a sandbox", errClosed)
	}
	ctx, stop := context.WithTimeout(ctx, b.x.config.Patience)
	defer stop()
	fresh, err := b.x.far.make(ctx)
	if err != nil {
		return b.x.failed("reset a sandbox", err)
	}
	old := b.folder
	b.folder = fresh
	b.mu.Lock()
	b.cut = false
	b.mu.Unlock()
	if err := b.x.far.unmake(ctx, &old); err != nil {
		return b.x.failed("remove a folder", err)
	}
	return nil
}

var errNoSnapshot = errors.New("this back end copies no file trees")

func (b *box) Snapshot(context.Context) (*sandbox.Snapshot, error) {
	return nil, b.x.failed("snapshot a sandbox", errNoSnapshot)
}

func (b *box) Restore(context.Context, *sandbox.Snapshot) error {
	return b.x.failed("restore a snapshot", errNoSnapshot)
}

// end cuts off what runs and waits for that.
func (b *box) end() {
	b.mu.Lock()
	running := maps.Clone(b.running)
	b.mu.Unlock()
	for p := range running {
		p.cancel(errEnded)
	}
	for p := range running { // in no order: one may wait for the turn of another
		<-p.done
	}
}

func (b *box) Close() error {
	ctx, stop := context.WithTimeout(context.Background(), b.x.config.Patience)
	defer stop()
	return b.close(ctx)
}

func (b *box) close(ctx context.Context) error {
	b.mu.Lock()
	closed := b.closed
	b.closed = true
	b.mu.Unlock()
	if closed {
		return nil
	}
	b.end()
	b.x.mu.Lock()
	delete(b.x.open, b)
	b.x.mu.Unlock()
	if err := b.take(ctx); err != nil {
		return b.x.failed("remove a folder", err)
	}
	defer b.leave()
	if err := b.x.far.unmake(ctx, &b.folder); err != nil {
		return b.x.failed("remove a folder", err)
	}
	return nil
}
