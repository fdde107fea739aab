//go:build linux || darwin

package storage

import "syscall"

// FreeBytes is what an ordinary user may still write to the file system of a path; false where that is not known.
func FreeBytes(path string) (int64, bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(path, &s) != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}
