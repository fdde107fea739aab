//go:build !unix

package storage

import (
	"errors"
	"io"
	"os"
)

// LockFile refuses: this system has no flock.
func LockFile(*os.File) error {
	return errors.New("files cannot be locked on this system: " + errors.ErrUnsupported.Error())
}

// lockFile refuses: without a lock two processes could write one run, and this system has no flock.
func lockFile(string) (io.Closer, error) {
	return nil, errors.New("run directories cannot be locked on this system: " + errors.ErrUnsupported.Error())
}

// lockHolder knows of none: nobody can take a lock here.
func lockHolder(string) (process string, held bool) { return "", false }
