package inference

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// forgotten reports whether nothing of what was written to a new connection has been acknowledged: the server's machine had no room for one more that
// waits to be accepted, and has dropped this one, which looks open from here.
func forgotten(socket syscall.RawConn) bool {
	forgotten := false
	err := socket.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		forgotten = err == nil && info.Unacked > 0 && info.Bytes_acked <= 1 // 1: opening it counts as a byte
	})
	return err == nil && forgotten
}
