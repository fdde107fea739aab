package codetools

import "syscall"

// machineMemory is how much memory the machine has, bytes; 0 where that cannot be told.
func machineMemory() int64 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}
