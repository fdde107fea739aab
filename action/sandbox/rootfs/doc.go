// Package rootfs prepares the root file systems of sandboxes: a folder as it lies, or a tar file that is unpacked once into a cache, each with
// a digest of what is in it. Equal trees have equal digests, whatever they were made from, by whom and when.
//
// It installs nothing and runs nothing: who makes the tree is the user. What is in a tar file leads nowhere but into its own folder. It runs
// on Linux. Open prepare.go.
package rootfs
