//go:build !linux

package codetools

// machineMemory is how much memory the machine has, bytes; 0 where that cannot be told.
func machineMemory() int64 { return 0 }
