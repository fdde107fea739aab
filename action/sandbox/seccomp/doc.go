// Package seccomp holds the filter of system calls that untrusted programs run under, whichever back end starts them. It decides what is
// denied and attaches it to a thread; it starts nothing. Open seccomp.go.
package seccomp
