//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox/tree"
)

// basePrefix begins the names of the folders that work folders of a back end lie in.
func basePrefix(backend string) string { return "tranche-" + backend + "-" }

// makeBase makes a folder and locks it for as long as it is open: what of its kind is not locked was left by a process that is gone.
func makeBase(dir, backend string) (path string, lock *os.File, err error) {
	for range 100 { // a sweep of another process may be faster than the lock
		if path, err = os.MkdirTemp(dir, basePrefix(backend)); err != nil {
			return "", nil, err
		}
		if lock, err = lockFolder(path); err == nil {
			return path, lock, nil
		}
	}
	return "", nil, fmt.Errorf("lock %s: %w", path, err)
}

// lockFolder opens a folder and locks it. An error says that somebody else has it, or that it is not there any more.
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		_, err = os.Lstat(path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sweep removes the folders of processes that could not do it: killed, or cut short. What cannot be removed stays for the next.
func sweep(dir, backend string) {
	all, _ := os.ReadDir(dir)
	for _, e := range all {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), basePrefix(backend)) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		lock, err := lockFolder(path)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(int(lock.Fd()), &st) == nil && int(st.Uid) == os.Geteuid() {
			_ = tree.Wipe(lock) // programs may have closed folders to their owner
			_ = os.Remove(path)
		}
		_ = lock.Close()
	}
}
