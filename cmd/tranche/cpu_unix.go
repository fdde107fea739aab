//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuTime is the processor time this process has used, over all threads; false where it is not known.
func cpuTime() (time.Duration, bool) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
