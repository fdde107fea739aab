// Package landlock is the sandbox for hosts that allow no user namespaces: hardened ones, and many containers. Programs are processes of
// the host in folders of the host, kept by package keeper, and confined by what the kernel lets anybody give up: files by Landlock, sockets and other
// system calls by seccomp, memory and processes by rlimits, privileges for good; as root every sandbox has a user of its own besides.
//
// It is weaker than `ns`, and says so in its Capabilities: a program sees the host's names, processes and paths, though it can open few of them;
// the disk is not bounded; memory is bounded for each process only. Open landlock.go, then confine.go.
package landlock
