//go:build !unix

package bench

import (
	"errors"
	"os"
)

// holdFile refuses: without a lock two measurements could write one file, and this system has no flock.
func holdFile(*os.File) error {
	return errors.New("files cannot be locked on this system: " + errors.ErrUnsupported.Error())
}
