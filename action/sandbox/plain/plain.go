//go:build linux

package plain

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/tree"
)

// Config says where the work folders are made.
type Config struct {
	// Dir holds the work folders while they are in use. Default: the system's folder for temporary files.
	Dir string
}

// Executor opens work folders and runs programs in them. Make one with New.
type Executor struct {
	dir, exe string
	patience time.Duration // how long a keeper that was told to kill its program may take

	mu     sync.Mutex
	boxes  map[*box]struct{} // open; guarded by mu
	closed bool              // guarded by mu
}

// New returns the back end. The program that calls it must call Init first thing in its main.
func New(cfg Config) (*Executor, error) {
	if os.Args[0] == keeperName {
		return nil, errors.New("sandbox plain: plain.Init must be called first thing in main") // else it would start itself for ever
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("sandbox plain: %w", err)
	}
	sweep(cmp.Or(cfg.Dir, os.TempDir()))
	return &Executor{dir: cfg.Dir, exe: exe, patience: unkillable + 5*time.Second, boxes: map[*box]struct{}{}}, nil
}

const none = "plain runs programs without isolation; the back end ns has it"

// Capabilities says how little this back end holds.
func (*Executor) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Backend: "plain", Tier: sandbox.TierNone,
		Promises: map[sandbox.Promise]sandbox.Strength{
			sandbox.PromiseMemory: sandbox.Absent, sandbox.PromisePids: sandbox.Absent, sandbox.PromiseCPU: sandbox.BestEffort,
			sandbox.PromiseNet: sandbox.Absent, sandbox.PromiseFiles: sandbox.Absent, sandbox.PromiseSyscalls: sandbox.Absent,
			sandbox.PromiseKill: sandbox.BestEffort, sandbox.PromiseSnapshot: sandbox.Enforced,
		},
		Why: map[sandbox.Promise]string{
			sandbox.PromiseMemory: none, sandbox.PromisePids: none, sandbox.PromiseNet: none, sandbox.PromiseFiles: none, sandbox.PromiseSyscalls: none,
			sandbox.PromiseCPU:  "summed over the program's processes every 10 ms; one that nobody waits for takes its time with it",
			sandbox.PromiseKill: "what a program asks another program of the host to start is not seen",
		},
	}
}

// Open makes a work folder for a trusted spec.
func (x *Executor) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := x.refuse(spec); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, errors.New("sandbox plain: it is closed")
	}
	b, err := newBox(x, spec)
	if err != nil {
		return nil, fmt.Errorf("sandbox plain: make a work folder: %w", err)
	}
	x.boxes[b] = struct{}{}
	return b, nil
}

func (x *Executor) refuse(spec sandbox.Spec) error {
	if !spec.Trusted {
		return errors.New("sandbox plain: it has no isolation, so it runs only programs that the user vouches for (Spec.Trusted)")
	}
	if spec.Rootfs != "" {
		return errors.New("sandbox plain: it cannot show a program another root file system")
	}
	return errors.Join(spec.Limits.Validate(), x.Capabilities().Hold(spec.Require))
}

// Close ends every open sandbox.
func (x *Executor) Close() error {
	x.mu.Lock()
	x.closed = true
	open := maps.Clone(x.boxes)
	x.mu.Unlock()
	var errs []error
	for b := range open {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

func (x *Executor) forget(b *box) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.boxes, b)
}

// box is one work folder with the programs in it. Close may be called while another method is at work.
type box struct {
	owner  *Executor
	spec   sandbox.Spec
	limits sandbox.Limits
	base   string   // holds w and tmp
	lock   *os.File // base, locked: somebody uses it
	work   *os.File // w
	tmp    *os.File

	files sync.RWMutex // held for reading while work or tmp are in use, for writing to close them

	mu     sync.Mutex
	alive  map[*process]struct{} // with a keeper; guarded by mu
	closed bool                  // guarded by mu
}

func newBox(x *Executor, spec sandbox.Spec) (*box, error) {
	base, lock, err := makeBase(x.dir)
	if err != nil {
		return nil, err
	}
	b := &box{owner: x, spec: spec, limits: spec.Limits.Filled(), base: base, lock: lock, alive: map[*process]struct{}{}}
	for name, f := range map[string]**os.File{"w": &b.work, "tmp": &b.tmp} {
		path := filepath.Join(base, name)
		if err = os.Mkdir(path, 0o700); err == nil {
			*f, err = os.Open(path)
		}
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(base), lock.Close())
		}
	}
	return b, nil
}

func (b *box) Put(_ context.Context, files ...sandbox.File) error {
	for _, f := range files {
		if n := int64(len(f.Data)); n > b.limits.FileSize {
			return &sandbox.TooLargeError{Path: f.Path, Size: n, Limit: b.limits.FileSize}
		}
	}
	b.files.RLock()
	defer b.files.RUnlock()
	return tree.Write(b.work, files...)
}

func (b *box) Get(_ context.Context, path string, limit int64) (sandbox.File, error) {
	b.files.RLock()
	defer b.files.RUnlock()
	return tree.Read(b.work, path, limit)
}

func (b *box) roots() []tree.Root {
	return []tree.Root{{Name: "w", Dir: b.work}, {Name: "tmp", Dir: b.tmp}}
}

// mostTree is the longest stream of a snapshot: what both folders may hold, and as much again for headers.
func (b *box) mostTree() int64 { return 4 * b.limits.Disk }

func (b *box) Snapshot(context.Context) (*sandbox.Snapshot, error) {
	b.files.RLock()
	defer b.files.RUnlock()
	s, _, err := tree.Snapshot(b.mostTree(), b.roots()...)
	return s, err
}

func (b *box) Restore(ctx context.Context, s *sandbox.Snapshot) error {
	if err := b.Reset(ctx); err != nil {
		return err
	}
	b.files.RLock()
	defer b.files.RUnlock()
	return tree.Untar(bytes.NewReader(s.Tar), b.mostTree(), b.roots()...)
}

func (b *box) Reset(context.Context) error {
	err := b.kill()
	b.files.RLock()
	defer b.files.RUnlock()
	return errors.Join(err, tree.Wipe(b.work), tree.Wipe(b.tmp))
}

// Pause stops all programs.
func (b *box) Pause(ctx context.Context) (others int, err error) {
	for p := range b.running() {
		n, perr := p.pause(ctx)
		others, err = others+n, errors.Join(err, perr)
	}
	return others, err
}

// Resume lets them go on.
func (b *box) Resume(context.Context) error {
	for p := range b.running() {
		p.tell(resume)
	}
	return nil
}

// running are the programs that have a keeper.
func (b *box) running() map[*process]struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.alive)
}

// kill ends all programs of the box and waits for it.
func (b *box) kill() error {
	alive := b.running()
	for p := range alive {
		p.stop(sandbox.StatusCanceled)
	}
	var errs []error
	for p := range alive {
		<-p.gone
		errs = append(errs, p.unkilled())
	}
	return errors.Join(errs...)
}

func (b *box) Close() error {
	b.mu.Lock()
	closed := b.closed
	b.closed = true
	b.mu.Unlock()
	if closed {
		return nil
	}
	defer b.owner.forget(b)
	err := b.kill()
	b.files.Lock()
	defer b.files.Unlock()
	err = errors.Join(err, tree.Wipe(b.work), tree.Wipe(b.tmp))
	return errors.Join(err, b.work.Close(), b.tmp.Close(), os.RemoveAll(b.base), b.lock.Close())
}

// enter notes a program; false when the box is closed.
func (b *box) enter(p *process) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.alive[p] = struct{}{}
	return true
}

func (b *box) leave(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.alive, p)
}
