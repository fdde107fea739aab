//go:build linux

package keeper

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
	"tranche/action/sandbox/tree"
)

// Kind is what makes a back end of keepers: its name, what it holds, and what confines its programs.
type Kind struct {
	// Can is what it holds. Its Backend is the name in results and in the names of its folders.
	Can sandbox.Capabilities
	// Trusted back ends confine nothing: they run only what the user vouches for, and every result says so.
	Trusted bool
	// Last, where set, is the name under which our own binary is started to confine itself and become the program: see Become.
	Last string
	// Confine prepares a new sandbox for that step: it says who owns its folders and what the step is to be told. nil = nothing.
	Confine func(spec sandbox.Spec, work, tmp string) (Confinement, error)
}

// Confinement is what one sandbox has of its own.
type Confinement struct {
	Owner   int    // the user and group that its folders belong to; 0 = this process's
	Told    []byte // what the last step before the program is told, in a form of the back end's
	Release func() // called when the sandbox is gone; nil = nothing to do
}

// Executor opens work folders and runs programs in them. Make one with New.
type Executor struct {
	kind     Kind
	dir, exe string
	patience time.Duration // how long a keeper that was told to kill its program may take

	mu     sync.Mutex
	boxes  map[*box]struct{} // open; guarded by mu
	closed bool              // guarded by mu
}

// New returns a back end whose work folders lie in dir ("" = the system's folder for temporary files) while they are in use. The
// program that calls it must call Init first thing in its main.
func New(dir string, kind Kind) (*Executor, error) {
	x := &Executor{kind: kind, dir: dir, patience: unkillable + 5*time.Second, boxes: map[*box]struct{}{}}
	if os.Args[0] == keeperName {
		return nil, x.failed("open", errors.New("Init must be called first thing in main")) // else it would start itself for ever
	}
	var err error
	if x.exe, err = os.Executable(); err != nil {
		return nil, x.failed("open", err)
	}
	sweep(cmp.Or(dir, os.TempDir()), kind.Can.Backend)
	return x, nil
}

// failed says what this back end could not do.
func (x *Executor) failed(what string, err error) error {
	return fmt.Errorf("sandbox %s: %s: %w", x.kind.Can.Backend, what, err)
}

// Capabilities says what the back end holds.
func (x *Executor) Capabilities() sandbox.Capabilities { return x.kind.Can }

// Open makes a work folder.
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
		return nil, x.failed("open", errors.New("it is closed"))
	}
	b, err := newBox(x, spec)
	if err != nil {
		return nil, x.failed("make a work folder", err)
	}
	x.boxes[b] = struct{}{}
	return b, nil
}

func (x *Executor) refuse(spec sandbox.Spec) error {
	if x.kind.Trusted && !spec.Trusted {
		return x.failed("open", errors.New("it has no isolation, so it runs only programs that the user vouches for (Spec.Trusted)"))
	}
	if spec.Rootfs != "" {
		return x.failed("open", errors.New("it cannot show a program another root file system"))
	}
	if err := spec.Limits.Validate(); err != nil {
		return x.failed("open", err)
	}
	return x.kind.Can.Hold(spec.Require)
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

	confine []byte // what confines its programs
	user    int    // who owns its folders; 0 = this process's user
	release func() // nil = nothing to do

	files sync.RWMutex // held for reading while work or tmp are in use, for writing to close them

	mu     sync.Mutex
	alive  map[*process]struct{} // with a keeper; guarded by mu
	closed bool                  // guarded by mu
}

func newBox(x *Executor, spec sandbox.Spec) (*box, error) {
	base, lock, err := makeBase(x.dir, x.kind.Can.Backend)
	if err != nil {
		return nil, err
	}
	b := &box{owner: x, spec: spec, limits: spec.Limits.Filled(), base: base, lock: lock, alive: map[*process]struct{}{}}
	b.spec.Limits = b.limits
	if err := b.furnish(); err != nil {
		if b.release != nil {
			b.release()
		}
		return nil, errors.Join(err, os.RemoveAll(base), lock.Close())
	}
	return b, nil
}

// furnish makes the folders and gives them to whom the programs are.
func (b *box) furnish() error {
	for name, f := range map[string]**os.File{"w": &b.work, "tmp": &b.tmp} {
		path := filepath.Join(b.base, name)
		err := os.Mkdir(path, 0o700)
		if err == nil {
			*f, err = os.Open(path)
		}
		if err != nil {
			return err
		}
	}
	if b.owner.kind.Confine == nil {
		return nil
	}
	c, err := b.owner.kind.Confine(b.spec, b.work.Name(), b.tmp.Name())
	if err != nil {
		return err
	}
	b.confine, b.user, b.release = c.Told, c.Owner, c.Release
	if b.user == 0 {
		return nil
	}
	return errors.Join(b.lock.Chmod(0o711), b.work.Chown(b.user, b.user), b.tmp.Chown(b.user, b.user))
}

func (b *box) Put(_ context.Context, files ...sandbox.File) error {
	for _, f := range files {
		if n := int64(len(f.Data)); n > b.limits.FileSize {
			return &sandbox.TooLargeError{Path: f.Path, Size: n, Limit: b.limits.FileSize}
		}
	}
	b.files.RLock()
	defer b.files.RUnlock()
	return b.asOwner(func() error { return tree.Write(b.work, files...) })
}

func (b *box) Get(_ context.Context, path string, limit int64) (f sandbox.File, err error) {
	b.files.RLock()
	defer b.files.RUnlock()
	err = b.asOwner(func() error {
		f, err = tree.Read(b.work, path, limit)
		return err
	})
	return f, err
}

func (b *box) roots() []tree.Root {
	return []tree.Root{{Name: "w", Dir: b.work}, {Name: "tmp", Dir: b.tmp}}
}

// mostTree is the longest stream of a snapshot: what both folders may hold, and as much again for headers.
func (b *box) mostTree() int64 { return 4 * b.limits.Disk }

func (b *box) Snapshot(context.Context) (s *sandbox.Snapshot, err error) {
	b.files.RLock()
	defer b.files.RUnlock()
	err = b.asOwner(func() error {
		s, _, err = tree.Snapshot(b.mostTree(), b.roots()...)
		return err
	})
	return s, err
}

// Digest tells trees apart.
func (b *box) Digest(_ context.Context, most int64) (digest string, bytes int64, err error) {
	b.files.RLock()
	defer b.files.RUnlock()
	err = b.asOwner(func() error {
		digest, bytes, err = tree.Digest(most, b.roots()...)
		return err
	})
	return digest, bytes, err
}

func (b *box) Restore(ctx context.Context, s *sandbox.Snapshot) error {
	if err := b.Reset(ctx); err != nil {
		return err
	}
	b.files.RLock()
	defer b.files.RUnlock()
	return b.asOwner(func() error { return tree.Untar(bytes.NewReader(s.Tar), b.mostTree(), b.roots()...) })
}

func (b *box) Reset(context.Context) error {
	err := b.kill()
	b.files.RLock()
	defer b.files.RUnlock()
	return errors.Join(err, b.wipe())
}

// wipe makes the folders as they were made.
func (b *box) wipe() error {
	return b.asOwner(func() error {
		return errors.Join(tree.Wipe(b.work), tree.Wipe(b.tmp), b.work.Chmod(0o700), b.tmp.Chmod(0o700))
	})
}

// asOwner does something to the files with the rights of their owner and no more: what a program made of its folder is then no way to what
// this process may do.
func (b *box) asOwner(do func() error) error {
	if b.user == 0 {
		return do()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function, and its rights with it
		done <- func() error {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
				return fmt.Errorf("drop groups: %w", errno)
			}
			for _, call := range []uintptr{unix.SYS_SETFSGID, unix.SYS_SETFSUID} {
				_, _, _ = unix.RawSyscall(call, uintptr(b.user), 0, 0)
				if now, _, _ := unix.RawSyscall(call, ^uintptr(0), 0, 0); int(now) != b.user { // it has no other way to say that it failed
					return fmt.Errorf("become user %d for the files: not permitted", b.user)
				}
			}
			return do()
		}()
	}()
	return <-done
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
	err = errors.Join(err, b.wipe())
	err = errors.Join(err, b.work.Close(), b.tmp.Close(), os.RemoveAll(b.base), b.lock.Close())
	if b.release != nil && err == nil { // else what is left may still be somebody's
		b.release()
	}
	return err
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
