//go:build unix

package inference

import (
	"errors"
	"syscall"
)

// isQuiet reports whether an idle connection is open, as far as is known here, and nothing has come that nobody asked for.
func (c *lane) isQuiet() bool {
	if c.socket == nil {
		return true
	}
	quiet := false
	err := c.socket.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK)
		quiet = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && quiet
}
