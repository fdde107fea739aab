//go:build !linux && !darwin

package storage

// FreeBytes is not known here.
func FreeBytes(string) (int64, bool) { return 0, false }
