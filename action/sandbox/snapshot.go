package sandbox

import "context"

// Snapshot is a copy of a sandbox's file tree, as one tar stream, uncompressed.
type Snapshot struct {
	Tar    []byte // regular files, folders and symbolic links, sorted by name, times and owners left out
	Digest string // sha256 of Tar, in hex: equal trees have equal digests
}

// Digester is a Sandbox that can tell two file trees apart without a copy of either.
type Digester interface {
	// Digest is what a Snapshot would have as Digest, and the bytes of its Tar. No more than most of these are read: a tree that has more is a
	// *TooLargeError.
	Digest(ctx context.Context, most int64) (digest string, bytes int64, err error)
}
