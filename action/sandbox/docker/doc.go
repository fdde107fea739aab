// Package docker is the sandbox that a container engine builds: one container a sandbox, through the Engine API on its socket, without network,
// read-only, with the engine's limits of memory and processes, and with another runtime (gVisor's runsc) where one is named. The first process in it
// is our own binary, the same init as in package ns, which the container gets by a bind mount, as it gets the socket over which the init takes its
// work: so sessions, files, limits and endings are those of ns. The engine must be on this machine. Open docker.go, then engine.go.
package docker
