//go:build linux && (amd64 || arm64)

package ns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// backend is the name of this back end in results, where it builds the sandboxes itself.
const backend = "ns"

func (c Config) backend() string {
	if c.Launch != nil {
		return c.Launch.Backend
	}
	return backend
}

// Executor keeps a pool of slots. It is a sandbox.Executor.
type Executor struct {
	config  Config
	starter *starter
	program string   // what is started as an init
	copied  *os.File // our own program in memory, where its file may not be executed by others
	ids     *idRange // nil: programs run under our own id
	tier    *tier
	can     sandbox.Capabilities
	broken  error           // why no sandbox can be opened here
	room    chan struct{}   // holds an entry for every open sandbox
	life    context.Context // ends with Close
	end     context.CancelFunc
	takes   sync.WaitGroup // who is taking a slot; counted up under mu while closed is false

	mu      sync.Mutex // guards what follows
	idle    []*slot    // the one used last at the end
	open    map[*box]bool
	numbers []int // of slots that are gone, to be used again
	slots   int   // numbers given out so far
	closed  bool
}

var errClosed = errors.New("the sandbox executor is closed")

// New makes an executor and finds out, by making a slot and running a program, what this host can hold. The error is a fault of the
// configuration, of which a tier that this host lacks is one; what else it lacks is in Capabilities, and in the error of Open.
func New(config Config) (*Executor, error) { return NewWithin(context.Background(), config) }

// NewWithin is New for who does not wait for ever: when ctx is done, what it tries fails.
func NewWithin(ctx context.Context, config Config) (*Executor, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", config.backend(), err)
	}
	config = config.withDefaults()
	e := &Executor{config: config, starter: newStarter(), room: make(chan struct{}, roomFor(config.MaxOpen, openFilesLimit())), open: map[*box]bool{}}
	e.life, e.end = context.WithCancel(context.Background())
	e.probe(ctx)
	if config.Tier != "" && e.broken != nil {
		return nil, errors.Join(e.broken, e.Close())
	}
	return e, nil
}

// roomFor is how many sandboxes may be open where this process may have so many descriptors.
func roomFor(wanted int, descriptors uint64) int {
	const (
		each   = 12  // a slot and a program in it
		others = 256 // for the rest of the process
	)
	if descriptors < others+each {
		return 1
	}
	return int(min(uint64(wanted), (descriptors-others)/each))
}

// openFilesLimit is how many descriptors this process may have. Go has raised it as far as it goes.
func openFilesLimit() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return l.Cur
}

// Capabilities says what was found out.
func (e *Executor) Capabilities() sandbox.Capabilities { return e.can }

// Open returns a warm slot of the spec's class or builds one.
func (e *Executor) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	began := time.Now()
	if err := spec.Limits.Validate(); err != nil {
		return nil, fmt.Errorf("open a sandbox: %w", err)
	}
	if err := e.can.Hold(spec.Require); err != nil {
		return nil, err
	}
	if spec.RootfsWritable && e.config.Launch != nil {
		return nil, fmt.Errorf("open a sandbox: the back end %s cannot let programs change a root file system; ns can", e.config.backend())
	}
	if e.broken != nil {
		return nil, fmt.Errorf("open a sandbox: %w", e.broken)
	}
	select {
	case e.room <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-e.life.Done():
		return nil, fmt.Errorf("open a sandbox: %w", errClosed)
	}
	spec.Limits = spec.Limits.Filled()
	queue := time.Since(began)
	b, err := e.openIn(ctx, spec)
	if err != nil {
		<-e.room
		return nil, fmt.Errorf("open a sandbox: %w", err)
	}
	b.queue = queue
	return b, nil
}

// openIn opens a sandbox that there is room for.
func (e *Executor) openIn(ctx context.Context, spec sandbox.Spec) (*box, error) {
	ctx, leave, err := e.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	s, err := e.take(ctx, spec)
	if err != nil {
		return nil, e.orClosed(err)
	}
	return e.boxed(s, spec)
}

// orClosed adds to an error what caused it where Close did.
func (e *Executor) orClosed(err error) error {
	if e.life.Err() != nil {
		return errors.Join(errClosed, err)
	}
	return err
}

// boxed notes an open sandbox, so that Close finds it.
func (e *Executor) boxed(s *slot, spec sandbox.Spec) (*box, error) {
	b := newBox(e, s, spec)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errors.Join(errClosed, s.destroy())
	}
	e.open[b] = true
	return b, nil
}

// class tells specs apart whose slots differ.
func class(spec sandbox.Spec) string {
	return fmt.Sprintf("%q %q %v %v %v", spec.Rootfs, spec.RootfsDigest, spec.RootfsWritable, spec.Net, spec.Limits)
}

func (e *Executor) take(ctx context.Context, spec sandbox.Spec) (*slot, error) {
	for {
		s := e.warm(class(spec))
		if s == nil {
			return e.build(ctx, spec, e.tier)
		}
		if s.alive() {
			return s, nil
		}
		if err := e.discard(s); err != nil {
			return nil, err
		}
	}
}

// enter begins to take a slot, which Close waits for but not for long; leave ends it.
func (e *Executor) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, nil, errClosed
	}
	e.takes.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.life, cancel)
	return ctx, func() {
		stop()
		cancel()
		e.takes.Done()
	}, nil
}

// warm takes the slot of a class that was used last.
func (e *Executor) warm(class string) *slot {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, s := range slices.Backward(e.idle) {
		if s.class == class {
			e.idle = slices.Delete(e.idle, i, i+1)
			return s
		}
	}
	return nil
}

// giveBack keeps a clean slot for the next Open, or ends it.
func (e *Executor) giveBack(s *slot) error {
	var out *slot
	e.mu.Lock()
	switch {
	case e.closed, s.once, s.spoiled() != nil, s.runs >= e.config.RunsPerSlot, e.config.MaxIdle == 0:
		out = s
	default:
		e.idle = append(e.idle, s)
		if len(e.idle) > e.config.MaxIdle {
			out = e.idle[0]
			e.idle = slices.Delete(e.idle, 0, 1)
		}
	}
	e.mu.Unlock()
	if out == nil {
		return nil
	}
	return e.discard(out)
}

// discard ends a slot. Its number may be used again, unless something of it is left.
func (e *Executor) discard(s *slot) error {
	if err := s.destroy(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.numbers = append(e.numbers, s.number)
	return nil
}

func (e *Executor) number() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.numbers); n > 0 {
		last := e.numbers[n-1]
		e.numbers = e.numbers[:n-1]
		return last
	}
	e.slots++
	return e.slots - 1
}

// build makes a new slot.
func (e *Executor) build(ctx context.Context, spec sandbox.Spec, t *tier) (*slot, error) {
	s := &slot{
		class: class(spec), once: spec.RootfsWritable, number: e.number(), guest: -1, limits: spec.Limits, patience: e.config.Patience,
		lanes: map[int]string{}, dead: make(chan struct{}), stuck: make(chan struct{}), waiting: map[uint64]chan reply{},
	}
	err := e.prepare(ctx, s, spec, t)
	if err != nil {
		return nil, errors.Join(err, e.discard(s))
	}
	return s, nil
}

func (e *Executor) prepare(ctx context.Context, s *slot, spec sandbox.Spec, t *tier) (err error) {
	id := identity{}
	if e.ids != nil {
		init, program := e.ids.pair(os.Getpid(), s.number)
		if e.config.Launch != nil {
			init = program // what builds the sandbox maps one id
		}
		id = identity{true, int(init), int(program)}
		s.guest = int(program)
	}
	if t.group != nil {
		if s.group, err = t.group(fmt.Sprintf("slot-%d", s.number), id.owner(), spec.Limits); err != nil {
			return fmt.Errorf("make a control group: %w", err)
		}
	}
	if err := s.startInit(ctx, e.starter, e.config.Launch, e.program, id, spec); err != nil {
		return err
	}
	req := &request{Op: opSetup, Setup: setupOf(spec, t, e.ids != nil && e.config.Launch == nil)}
	req.Setup.Launched = e.config.Launch != nil
	if spec.RootfsWritable {
		if err := giveTree(ctx, spec.Rootfs, s.guest); err != nil {
			return fmt.Errorf("give the rootfs to its programs: %w", err)
		}
	}
	tree, err := e.rootfs(spec)
	if err != nil {
		return err
	}
	if tree == nil {
		_, err = s.ask(ctx, req)
		return err
	}
	defer tree.Close()
	req.Setup.RootfsTree = true
	_, err = s.ask(ctx, req, tree)
	return err
}

// rootfs opens the tree of a rootfs where we may do what the slot's user may not: reach it through folders that are closed to others.
func (e *Executor) rootfs(spec sandbox.Spec) (*os.File, error) {
	if spec.Rootfs == "" || e.ids == nil || e.config.Launch != nil {
		return nil, nil
	}
	fd, err := openTree(spec.Rootfs, accessOf(spec.RootfsWritable))
	if err != nil {
		return nil, fmt.Errorf("open the rootfs %s: %w", spec.Rootfs, err)
	}
	return os.NewFile(uintptr(fd), spec.Rootfs), nil
}

// giveTree makes all of a folder a user's; -1 = it is already.
func giveTree(ctx context.Context, top string, id int) error {
	if id < 0 {
		return nil
	}
	return filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = os.Lchown(path, id, id)
		}
		return err
	})
}

// setupOf is what the init of a slot is told. Where a group counts processes and memory, the limits of single processes are only a
// second wall behind it, for what they refuse is counted nowhere.
func setupOf(spec sandbox.Spec, t *tier, own bool) setup {
	const slack = 64
	l := spec.Limits
	s := setup{
		Rootfs: spec.Rootfs, Net: spec.Net, Pids: int64(l.Pids), Processes: int64(l.Pids), Disk: l.Disk, FileSize: l.FileSize,
		OpenFiles: int64(l.OpenFiles), RootfsWritable: spec.RootfsWritable, IntoCgroup: t.into, OwnIdentity: own,
	}
	switch {
	case t.group != nil:
		s.Processes += slack
	default:
		s.Memory = l.Memory
	}
	return s
}

// Close ends all slots, and waits until nothing of them is left.
func (e *Executor) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	idle := e.idle
	e.idle = nil
	var open []*box
	for b := range e.open {
		open = append(open, b)
	}
	e.mu.Unlock()
	e.end()
	var errs []error
	for _, b := range open {
		errs = append(errs, b.Close())
	}
	e.takes.Wait()
	for _, s := range idle {
		errs = append(errs, s.destroy())
	}
	e.starter.stop()
	if e.tier != nil && e.tier.remove != nil {
		e.tier.remove()
	}
	if e.copied != nil {
		errs = append(errs, e.copied.Close())
	}
	return errors.Join(errs...)
}

// ownProgram finds what to start as an init: ourselves. /proc/self/exe leads to the file that runs, whatever has its name now, and
// needs no way to it; but others must be allowed to execute it. Where they are not, a copy in memory is.
func (e *Executor) ownProgram() error {
	const exe = "/proc/self/exe"
	st, err := os.Stat(exe)
	if err != nil {
		return err
	}
	if e.program = exe; e.ids == nil || st.Mode()&0o001 != 0 {
		return nil
	}
	from, err := os.Open(exe)
	if err != nil {
		return err
	}
	defer from.Close()
	if e.copied, err = memoryFile(backend); err != nil {
		return err
	}
	if _, err := io.Copy(e.copied, from); err != nil {
		return fmt.Errorf("copy our own program into memory: %w", err)
	}
	const sealed = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	fd := fileFD(e.copied)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealed); err != nil {
		return fmt.Errorf("seal our own program in memory: %w", err)
	}
	e.program = fmt.Sprintf("/proc/self/fd/%d", fd)
	return nil
}

// oneLine joins the lines of an error.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
