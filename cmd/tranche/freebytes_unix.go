//go:build linux || darwin

package main

import "syscall"

// freeBytes is what an ordinary user may still write to the file system of a directory; false where that is not known.
func freeBytes(dir string) (int64, bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}
