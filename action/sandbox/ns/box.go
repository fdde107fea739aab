//go:build linux && (amd64 || arm64)

package ns

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tranche/action/sandbox"
)

// box is an open sandbox: a slot that somebody has.
type box struct {
	exec     *Executor
	slot     *slot
	spec     sandbox.Spec
	queue    time.Duration // told in the result of the first program
	unlisted bool          // made by probe: it takes no room
	once     sync.Once     // of Close: who comes second waits for the first

	mu      sync.Mutex // guards what follows
	running []*process // and those whose leftovers still hold a lane
	used    bool       // a program has run since the last reset
	closed  bool
}

func newBox(e *Executor, s *slot, spec sandbox.Spec) *box { return &box{exec: e, slot: s, spec: spec} }

var errBoxClosed = errors.New("the sandbox is closed")

// Start begins a program.
func (b *box) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(cmd.Args) == 0 {
		return nil, errors.New("start a program in a sandbox: Cmd.Args is empty")
	}
	if cmd.Dir != "" && !filepath.IsLocal(cmd.Dir) {
		return nil, fmt.Errorf("start a program in a sandbox: %w", &sandbox.EscapeError{Path: cmd.Dir})
	}
	p, err := b.start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %q in a sandbox: %w", cmd.Args[0], err)
	}
	return p, nil
}

// freeLane is the lowest lane that no program holds. The lock is held.
func (b *box) freeLane() int {
	for k := 0; ; k++ {
		if !slices.ContainsFunc(b.running, func(p *process) bool { return p.lane == k }) {
			return k
		}
	}
}

// ended lets go of a program's lane, unless it was allowed to leave processes in it.
func (b *box) ended(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !p.cmd.Background {
		b.running = slices.DeleteFunc(b.running, func(q *process) bool { return q == p })
	}
}

// Put writes files.
func (b *box) Put(ctx context.Context, files ...sandbox.File) error {
	for _, f := range files {
		if err := tooLong(f.Path); err != nil {
			return fmt.Errorf("put a file into a sandbox: %w", err)
		}
		if int64(len(f.Data)) > b.spec.Limits.FileSize {
			return fmt.Errorf("put a file into a sandbox: %w", &sandbox.TooLargeError{Path: f.Path, Size: int64(len(f.Data)), Limit: b.spec.Limits.FileSize})
		}
	}
	set := fileSet(files)
	f, err := filled("files", encode(&set))
	if err == nil {
		defer f.Close()
		_, err = b.ask(ctx, &request{Op: opPut}, f)
	}
	if err != nil {
		return fmt.Errorf("put files into a sandbox: %w", err)
	}
	return nil
}

// tooLong refuses a path that no kernel takes, before it travels to the init and back.
func tooLong(path string) error {
	if len(path) < pathBytes {
		return nil
	}
	return &sandbox.PathError{Path: path, Why: fmt.Sprintf("the path has %d bytes, expected less than %d", len(path), pathBytes)}
}

// filled makes a file in memory that holds something.
func filled(name string, data []byte) (*os.File, error) {
	f, err := memoryFile(name)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Get reads a file.
func (b *box) Get(ctx context.Context, path string, limit int64) (sandbox.File, error) {
	err := tooLong(path)
	var data []byte
	var r reply
	if err == nil {
		data, r, err = b.fetch(ctx, &request{Op: opGet, Path: path, Limit: limit}, limit)
	}
	if err != nil {
		return sandbox.File{}, fmt.Errorf("get a file from a sandbox: %w", err)
	}
	return sandbox.File{Path: path, Data: data, Mode: fs.FileMode(r.Mode).Perm()}, nil
}

// fetch asks for something that comes in a file in memory.
func (b *box) fetch(ctx context.Context, req *request, limit int64) ([]byte, reply, error) {
	f, err := memoryFile("answer")
	if err != nil {
		return nil, reply{}, err
	}
	defer f.Close()
	r, err := b.ask(ctx, req, f)
	if err != nil {
		return nil, r, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, r, err
	}
	if st.Size() > limit {
		return nil, r, &sandbox.TooLargeError{Path: req.Path, Size: st.Size(), Limit: limit}
	}
	data := make([]byte, st.Size())
	_, err = f.ReadAt(data, 0)
	if err == io.EOF {
		err = nil
	}
	return data, r, err
}

// mostBytes bounds a snapshot: both folders full, and what a tar stream adds to their files. Sparse files could be more than that, and
// all of it is held in memory outside of every budget.
func (b *box) mostBytes() int64 {
	const each = 1024 // a header, and what fills up the last block
	return 2*b.spec.Limits.Disk + 2*each*mostFiles(b.spec.Limits.Disk) + 1<<16
}

// Snapshot copies the file tree.
func (b *box) Snapshot(ctx context.Context) (*sandbox.Snapshot, error) {
	data, _, err := b.fetch(ctx, &request{Op: opSnapshot, Limit: b.mostBytes()}, b.mostBytes())
	if err != nil {
		return nil, fmt.Errorf("snapshot a sandbox: %w", err)
	}
	sum := sha256.Sum256(data)
	return &sandbox.Snapshot{Tar: data, Digest: hex.EncodeToString(sum[:])}, nil
}

// Digest has the init hash the file tree: nothing of it comes here.
func (b *box) Digest(ctx context.Context, most int64) (digest string, bytes int64, err error) {
	r, err := b.ask(ctx, &request{Op: opDigest, Limit: most})
	if err != nil {
		return "", 0, fmt.Errorf("digest of a sandbox: %w", err)
	}
	return r.Text, r.Size, nil
}

// Reset makes the sandbox as it was at Open. A slot that cannot be cleaned, whatever a program did to it, is replaced.
func (b *box) Reset(ctx context.Context) error {
	_, err := b.ask(ctx, &request{Op: opReset})
	if errors.Is(err, errBoxClosed) {
		return err
	}
	if err != nil {
		err = b.replace(ctx, err)
	} else {
		b.letGo()
	}
	if err != nil {
		return fmt.Errorf("reset a sandbox: %w", err)
	}
	return nil
}

// Pause stops all programs.
func (b *box) Pause(ctx context.Context) (others int, err error) {
	r, err := b.ask(ctx, &request{Op: opPause})
	if err != nil {
		return 0, fmt.Errorf("pause a sandbox: %w", err)
	}
	return int(r.Left), nil
}

// Resume lets them go on.
func (b *box) Resume(ctx context.Context) error {
	if _, err := b.ask(ctx, &request{Op: opResume}); err != nil {
		return fmt.Errorf("resume a sandbox: %w", err)
	}
	return nil
}

// replace ends the slot, for a cause, and takes another.
func (b *box) replace(ctx context.Context, cause error) error {
	b.mu.Lock()
	old := b.slot
	b.mu.Unlock()
	old.spoil(cause)
	old.kill()
	b.letGo()
	ctx, leave, err := b.exec.enter(ctx)
	if err != nil {
		return errors.Join(cause, err)
	}
	defer leave()
	fresh, err := b.exec.take(ctx, b.spec)
	if err != nil {
		return errors.Join(cause, b.exec.orClosed(err))
	}
	b.mu.Lock()
	if b.closed { // Close has ended the old one, and knows of no other
		b.mu.Unlock()
		return errors.Join(errBoxClosed, b.exec.discard(fresh))
	}
	b.slot = fresh
	b.mu.Unlock()
	return b.exec.discard(old)
}

// letGo forgets programs that a reset has killed, once they are over.
func (b *box) letGo() {
	b.mu.Lock()
	running := b.running
	b.mu.Unlock()
	for _, p := range running {
		<-p.done
		p.silence()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running, b.used = nil, false
}

// Restore makes the file tree that of a snapshot.
func (b *box) Restore(ctx context.Context, s *sandbox.Snapshot) error {
	if err := b.Reset(ctx); err != nil {
		return err
	}
	f, err := filled("snapshot", s.Tar)
	if err == nil {
		defer f.Close()
		_, err = b.ask(ctx, &request{Op: opRestore, Limit: b.mostBytes()}, f)
	}
	if err != nil {
		return fmt.Errorf("restore a snapshot in a sandbox: %w", err)
	}
	return nil
}

func (b *box) ask(ctx context.Context, req *request, fds ...*os.File) (reply, error) {
	b.mu.Lock()
	closed, s := b.closed, b.slot
	b.mu.Unlock()
	if closed {
		return reply{}, errBoxClosed
	}
	return s.ask(ctx, req, fds...)
}

// Close gives the slot back, as it was, or ends it.
func (b *box) Close() (err error) {
	b.once.Do(func() { err = b.shut() })
	return err
}

func (b *box) shut() error {
	b.mu.Lock()
	b.closed = true
	s := b.slot
	b.mu.Unlock()
	if s.spoiled() == nil {
		_, err := s.ask(context.Background(), &request{Op: opReset})
		s.spoil(err)
	}
	if s.spoiled() != nil {
		s.kill()
	}
	b.letGo()
	err := b.exec.giveBack(s)
	if !b.unlisted {
		b.exec.mu.Lock()
		delete(b.exec.open, b)
		b.exec.mu.Unlock()
		<-b.exec.room
	}
	return err
}
