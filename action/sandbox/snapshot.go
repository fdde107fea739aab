package sandbox

// Snapshot is a copy of a sandbox's file tree, as one tar stream, uncompressed.
type Snapshot struct {
	Tar    []byte // regular files, folders and symbolic links, sorted by name, times and owners left out
	Digest string // sha256 of Tar, in hex: equal trees have equal digests
}
