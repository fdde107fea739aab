// Package tree reads and writes the file trees of sandboxes, through an open descriptor of their top folder and nothing else. A
// program that nobody trusts may have made every name and link in such a tree, and may change them meanwhile: every path is
// resolved by the kernel in one step, below the folder and through no link (openat2), and what was opened is looked at, not its
// name. Nothing here waits for a FIFO or opens a device.
//
// It knows no sandbox and no process. It runs on Linux 5.6 or later. Open write.go and tar.go.
package tree
