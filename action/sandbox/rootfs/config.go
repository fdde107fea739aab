package rootfs

import "errors"

// Config says where prepared trees are kept.
type Config struct {
	Cache    string // folder of the cache, made where it is missing; nobody else may write there
	MaxBytes int64  // of a tree, contents and headers. Default 64 GiB
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var errs []error
	if c.Cache == "" {
		errs = append(errs, errors.New("cache: is missing; expected a folder"))
	}
	if c.MaxBytes < 0 {
		errs = append(errs, errors.New("max-bytes: expected 0 or more"))
	}
	return errors.Join(errs...)
}

// Tree is a root file system that can be used.
type Tree struct {
	Dir    string // an absolute path
	Digest string // sha256 in hex of its files, folders and symbolic links: names, permission bits and contents, not times and owners
}
