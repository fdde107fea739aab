//go:build linux

package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	lockSuffix = ".lock" // of the file that is locked while a tree is used (shared) or made and removed (alone); its time is the last use
	partSuffix = ".part" // of a tree that is not whole
)

const lockPause = 50 * time.Millisecond // between two tries

// lock waits until a file can be locked. It is locked until it is closed.
func lock(ctx context.Context, name string, how int) (*os.File, error) {
	for {
		f, err := tryLock(name, how)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPause):
		}
	}
}

// tryLock is lock without waiting. The file that is locked is the one of that name: who removes a tree removes its lock too.
func tryLock(name string, how int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	}
	if err == nil && !isAt(f, name) {
		err = syscall.EWOULDBLOCK // it was removed meanwhile
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

func isAt(f *os.File, name string) bool {
	ours, err := f.Stat()
	theirs, err2 := os.Stat(name)
	return err == nil && err2 == nil && os.SameFile(ours, theirs)
}

// unused is an unpacked tree that nobody uses, locked.
type unused struct {
	home  string
	lock  *os.File
	used  time.Time // last
	bytes int64
	dead  bool // a process that was killed left it: a build, which nobody comes back to, or what never became a tree
}

// clean removes trees that nobody uses: old ones, those that are too much, and what a process that was killed has left. What cannot be removed
// now is tried again by the next who comes here.
func (c Config) clean(ctx context.Context, now time.Time) {
	going, staying := c.surplus(c.unused(), now)
	for _, u := range staying { // first: others wait to use them
		u.lock.Close()
	}
	for _, u := range going {
		if ctx.Err() == nil {
			_ = u.remove()
		}
		u.lock.Close()
	}
	c.cleanNotes(now)
}

// surplus divides trees that nobody uses, those first that were used longest ago, into those to be removed and those that stay.
func (c Config) surplus(list []unused, now time.Time) (going, staying []unused) {
	var all int64
	for _, u := range list {
		all += u.bytes
	}
	for _, u := range list {
		if now.Sub(u.used) > c.MaxAge || all > c.MaxUnused || u.dead {
			going, all = append(going, u), all-u.bytes
		} else {
			staying = append(staying, u)
		}
	}
	return going, staying
}

// unused locks the trees that nobody uses, those first that were used longest ago.
func (c Config) unused() []unused {
	locks, _ := filepath.Glob(filepath.Join(c.Cache, "*"+lockSuffix)) // the pattern is fine
	var list []unused
	for _, name := range locks {
		info, err := os.Stat(name)
		if err != nil {
			continue // another was faster
		}
		f, err := tryLock(name, syscall.LOCK_EX)
		if err != nil {
			continue // in use
		}
		home := strings.TrimSuffix(name, lockSuffix)
		u := unused{home: home, lock: f, used: info.ModTime(), dead: isBuild(home) || isMissing(home)}
		if !u.dead {
			u.bytes = sizeOf(home)
		}
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b unused) int { return a.used.Compare(b.used) })
	return list
}

func isMissing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// remove removes a tree. What is half removed is no tree any more.
func (u unused) remove() error {
	part := u.home + partSuffix
	if err := wipe(part); err != nil {
		return err
	}
	if err := os.Rename(u.home, part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := wipe(part); err != nil {
		return err // without its lock file nobody would find the rest
	}
	return os.Remove(u.lock.Name())
}

// sizeOf is how large an unpacked tree is; one of before that was written down is measured.
func sizeOf(home string) int64 {
	if text, err := os.ReadFile(filepath.Join(home, bytesName)); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			return n
		}
	}
	var sum int64
	_ = filepath.WalkDir(home, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // what cannot be looked at counts nothing
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// cleanNotes removes what was remembered long ago: without it a tree is read once more.
func (c Config) cleanNotes(now time.Time) {
	notes, _ := filepath.Glob(filepath.Join(c.Cache, "note-*"))
	for _, name := range notes {
		if info, err := os.Stat(name); err == nil && now.Sub(info.ModTime()) > c.MaxAge {
			_ = os.Remove(name)
		}
	}
}
