//go:build linux && (amd64 || arm64)

package ns

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// objects is one kind of System V objects: they outlive the processes that made them.
type objects struct {
	name string  // below /proc/sysvipc
	call uintptr // that asks and removes
	info uintptr // command that asks how many there are
	used int     // where the answer is, in 32-bit words
}

func kinds() []objects {
	const shmInfo, semInfo, msgInfo = 14, 19, 12
	return []objects{{"shm", unix.SYS_SHMCTL, shmInfo, 0}, {"sem", unix.SYS_SEMCTL, semInfo, 7}, {"msg", unix.SYS_MSGCTL, msgInfo, 0}}
}

// removeObjects removes what programs left of them. Mostly there is none, which one call a kind tells.
func removeObjects() error {
	for _, k := range kinds() {
		n, err := k.count()
		if err != nil {
			return fmt.Errorf("count System V objects (%s): %w", k.name, err)
		}
		if n == 0 {
			continue
		}
		if err := k.remove(); err != nil {
			return fmt.Errorf("remove System V objects (%s): %w", k.name, err)
		}
		if n, err = k.count(); n > 0 {
			return fmt.Errorf("%d System V objects (%s) cannot be removed: %w", n, k.name, err)
		}
	}
	return nil
}

// control is shmctl, semctl or msgctl.
func (k objects) control(id, command uintptr, buf *[64]uint32) error {
	var errno unix.Errno
	if k.call == unix.SYS_SEMCTL { // which has one argument more
		_, _, errno = unix.Syscall6(k.call, id, 0, command, uintptr(unsafe.Pointer(buf)), 0, 0)
	} else {
		_, _, errno = unix.Syscall6(k.call, id, command, uintptr(unsafe.Pointer(buf)), 0, 0, 0)
	}
	if errno != 0 {
		return errno
	}
	return nil
}

func (k objects) count() (uint32, error) {
	var buf [64]uint32
	err := k.control(0, k.info, &buf)
	return buf[k.used], err
}

func (k objects) remove() error {
	text, err := os.ReadFile("/proc/sysvipc/" + k.name)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		id, err := strconv.Atoi(f[1])
		if err != nil {
			continue // the heading
		}
		var buf [64]uint32
		if err := k.control(uintptr(id), unix.IPC_RMID, &buf); err != nil {
			return err
		}
	}
	return nil
}
