// Package bwrap is the sandbox built by bubblewrap, for hosts where only that program may make user namespaces (a security module that names
// it, a setuid copy). Inside runs the same init as in package ns, with the same limits, sessions and files; bubblewrap makes the namespaces and
// the root file system. It is started as an ordinary user without environment, and what it needs to know stands on its command line.
// Open bwrap.go.
package bwrap
