//go:build unix

package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// lockFile takes an exclusive flock, which the kernel drops with the process, however it dies. The file names the holder,
// for the message to the second process; it is never removed, because removing a lock file races with the next taker.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := LockFile(f); err != nil {
		defer f.Close()
		if errors.Is(err, ErrLocked) {
			if pid := holder(f); pid != "" {
				return nil, fmt.Errorf("%w (process %s)", ErrLocked, pid)
			}
			return nil, ErrLocked
		}
		return nil, err
	}
	if err := f.Truncate(0); err == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return f, nil
}

// LockFile takes an exclusive flock on an open file for as long as it is open; ErrLocked when another process has it.
func LockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// holder is the process that a lock file names; "" where it names none.
func holder(r io.Reader) string {
	b, _ := io.ReadAll(io.LimitReader(r, 32))
	return strings.TrimSpace(string(b))
}

// lockHolder says whether a process holds a lock, and which one by its own word. To ask is to hold a shared lock for a moment: who takes
// the lock in that moment is refused.
func lockHolder(path string) (process string, held bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false // no process ever took it
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		return "", false
	}
	return holder(f), true
}
