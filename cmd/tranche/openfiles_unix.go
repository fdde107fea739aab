//go:build unix

package main

import "syscall"

// openFiles is how many files and connections this process may have open at once, false where it is not known. Go has raised it as far as it goes.
func openFiles() (limit uint64, known bool) {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0, false
	}
	return uint64(l.Cur), true
}
