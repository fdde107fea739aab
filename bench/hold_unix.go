//go:build unix

package bench

import (
	"errors"
	"os"
	"syscall"
)

// holdFile takes an exclusive lock on an open file, which the kernel drops with the process, however it dies.
func holdFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrRealFileHeld
	}
	return err
}
