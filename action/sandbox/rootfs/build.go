//go:build linux

package rootfs

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/tree"
)

// HostBase stands for the part of this machine's files that a sandbox sees where no rootfs is declared.
const HostBase = "host"

// Build is a tree of one's own that programs may change, to be frozen into a file.
type Build struct {
	Dir string // a folder of the cache

	cfg  Config
	home string
	lock *os.File
}

const buildPrefix = "build-"

// BuildTemp is a folder for what is only needed while programs install something. It is empty in the frozen tree.
const BuildTemp = "var/tmp"

func isBuild(home string) bool { return strings.HasPrefix(filepath.Base(home), buildPrefix) }

// NewBuild copies a base: a folder, a tar file (.tar or .tar.gz), or HostBase. Close removes the copy.
func NewBuild(ctx context.Context, cfg Config, base string) (*Build, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(cfg.Cache, 0o700); err != nil {
		return nil, err
	}
	home, err := filepath.Abs(filepath.Join(cfg.Cache, buildPrefix+rand.Text()))
	if err != nil {
		return nil, err
	}
	b := &Build{Dir: filepath.Join(home, treeName), cfg: cfg, home: home}
	if b.lock, err = lock(ctx, home+lockSuffix, syscall.LOCK_EX); err != nil {
		return nil, err
	}
	cfg.clean(ctx, time.Now()) // before it: what a killed one has left may be the room that this one needs
	err = b.fill(ctx, base)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy %s: %w", base, err), b.Close())
	}
	return b, nil
}

// fill makes the copy. Folders that programs look for and the base lacks are made: nothing can be added at the top later.
func (b *Build) fill(ctx context.Context, base string) error {
	if err := firstOf(os.MkdirAll(b.Dir, 0o755), os.Chmod(b.home, 0o755), os.Chmod(b.Dir, 0o755)); err != nil {
		return err
	}
	if err := b.copy(ctx, base); err != nil {
		return err
	}
	for _, name := range []string{"etc", "opt", "usr", "var", BuildTemp} {
		if err := os.Mkdir(filepath.Join(b.Dir, name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (b *Build) copy(ctx context.Context, base string) error {
	if base == HostBase {
		return b.host(ctx)
	}
	info, err := os.Stat(base)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		key, err := b.cfg.fileDigest(ctx, base)
		if err == nil {
			_, err = b.cfg.extract(ctx, base, key, b.Dir)
		}
		return err
	}
	return b.folder(ctx, base, ".")
}

// folder copies a folder to a place in the tree, which links in it do not lead out of.
func (b *Build) folder(ctx context.Context, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.MkdirAll(filepath.Join(b.Dir, to), 0o755); err != nil {
		return err
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() { // ends with the stream, which whoever reads it closes
		_, err := tree.TarWithTimes(untilDone{ctx, w}, b.cfg.MaxBytes, tree.Root{Name: ".", Dir: f})
		packed <- err
		w.CloseWithError(err)
	}()
	stream := bufio.NewReaderSize(r, 1<<20)
	if _, err = b.cfg.unpackStream(stream, filepath.Join(b.Dir, to)); err == nil {
		_, err = io.Copy(io.Discard, stream) // what fills the last block
	}
	r.CloseWithError(err)
	return firstOf(<-packed, err)
}

// host copies what of this machine a sandbox sees, and writes the files that it gets in the place of the host's.
func (b *Build) host(ctx context.Context) error {
	held := sandbox.HostFolders()
	for _, name := range sandbox.HostEtc(true) {
		if name != "resolv.conf" { // it is the machine's of the day that a program runs on
			held = append(held, "/etc/"+name)
		}
	}
	for _, path := range held {
		if err := b.one(ctx, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for name, text := range sandbox.EtcFiles() {
		if err := os.WriteFile(filepath.Join(b.Dir, "etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// one copies a path of the host: a link stays one.
func (b *Build) one(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	to := filepath.Join(b.Dir, path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return b.folder(ctx, path, strings.TrimPrefix(path, "/"))
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}

// Resolvable makes a place for the names of servers, which a sandbox with a network puts the host's file over. It is empty in the frozen tree.
func (b *Build) Resolvable() error {
	root, err := os.OpenRoot(b.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	const name = "etc/resolv.conf"
	if info, err := root.Lstat(name); err == nil && info.Mode().IsRegular() {
		return nil
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // a link to where the base's system had it
		return err
	}
	return root.WriteFile(name, nil, 0o644)
}

// Freeze writes the tree into a tar file, compressed where its name ends in gz, and returns the digest that the tree then has. The file is
// there as a whole or not at all. No program may run in the tree any more.
func (b *Build) Freeze(ctx context.Context, path string) (digest string, err error) {
	if err := b.sweep(); err != nil {
		return "", fmt.Errorf("empty /%s: %w", BuildTemp, err)
	}
	sweepDrafts(path)
	f, err := newDraft(path)
	if err != nil {
		return "", err
	}
	defer f.Close() // behind the renaming: its lock says that it is somebody's
	err = firstOf(b.write(ctx, f, strings.HasSuffix(path, "gz")), f.Chmod(0o644), f.Sync())
	if err == nil {
		digest, err = b.cfg.treeDigest(ctx, b.Dir)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return digest, nil
}

// draftPrefix begins the names of files that are to become path.
func draftPrefix(path string) string { return "." + filepath.Base(path) + ".tranche-" }

// newDraft makes one, locked as long as it is open. Where a file system has no locks it is not, and no sweep gets a lock there either.
func newDraft(path string) (f *os.File, err error) {
	for range 100 { // a sweep of another may be faster than the lock
		name := filepath.Join(filepath.Dir(path), draftPrefix(path)+rand.Text())
		if f, err = tryLock(name, syscall.LOCK_EX); err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
	return nil, err
}

// sweepDrafts removes those that nobody has locked: their process was killed.
func sweepDrafts(path string) {
	all, _ := os.ReadDir(filepath.Dir(path)) // what cannot be seen cannot be written either
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), draftPrefix(path)) || !e.Type().IsRegular() {
			continue
		}
		if f, err := tryLock(filepath.Join(filepath.Dir(path), e.Name()), syscall.LOCK_EX); err == nil {
			_ = os.Remove(f.Name())
			_ = f.Close()
		}
	}
}

// sweep empties the folder for what was needed meanwhile.
func (b *Build) sweep() error {
	root, err := os.OpenRoot(b.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if info, err := root.Lstat(BuildTemp); err != nil || !info.IsDir() {
		return nil // it is something else now
	}
	f, err := root.Open(BuildTemp)
	if err != nil {
		return err
	}
	defer f.Close()
	return tree.Wipe(f)
}

func (b *Build) write(ctx context.Context, to io.Writer, compressed bool) error {
	dir, err := os.Open(b.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	buffered := bufio.NewWriterSize(to, 1<<20)
	out, closers := io.Writer(buffered), []func() error{buffered.Flush}
	if compressed {
		z := gzip.NewWriter(buffered)
		out, closers = z, []func() error{z.Close, buffered.Flush}
	}
	_, err = tree.TarWithTimes(untilDone{ctx, out}, b.cfg.MaxBytes, tree.Root{Name: ".", Dir: dir})
	for _, end := range closers {
		err = firstOf(err, end())
	}
	return err
}

// Close removes the tree.
func (b *Build) Close() error {
	err := wipe(b.home)
	if err == nil { // else clean finds the rest by its lock file
		err = os.Remove(b.lock.Name())
	}
	return errors.Join(err, b.lock.Close())
}
