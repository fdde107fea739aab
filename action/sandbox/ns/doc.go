// Package ns runs programs in Linux namespaces, without a daemon, a setuid helper or any other program: the default back end.
//
// A slot is a prepared sandbox: a process of our own binary (Init) that is process 1 of new user, pid, mount, net, ipc, uts and
// cgroup namespaces. It built a root file system of read-only binds and sized tmpfs, and waits on a socket for what to do. A
// program is forked by it, so that no namespace is made and no mount done while a caller waits. When a program has ended, all that
// is left of it is killed and wiped, and the slot is as before; a slot that is not is thrown away.
//
// What holds the limits is found out once, by trying: cgroup v2, cgroup v1, or per-process limits alone (Capabilities). The
// kernel is the host's: who finds a hole in it is out. See docs/decisions/0030.
//
// Files that begin with "inside" run in the slot, the others in the host. Open executor.go, then slot.go and inside.go; fork.go is
// where a program begins.
package ns
