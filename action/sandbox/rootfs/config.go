package rootfs

import (
	"cmp"
	"errors"
	"os"
	"time"
)

// Config says where prepared trees are kept, and how long. Zero fields take the defaults.
type Config struct {
	Cache    string // folder of the cache, made where it is missing; nobody else may write there
	MaxBytes int64  // of a tree, contents and headers. Default 64 GiB
	// MaxUnused bounds the unpacked trees that nobody uses, bytes: those that were used longest ago are removed. Default 32 GiB.
	MaxUnused int64
	// MaxAge is how long an unpacked tree is kept that nobody uses. Default 30 days.
	MaxAge time.Duration
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var errs []error
	if c.Cache == "" {
		errs = append(errs, errors.New("cache: is missing; expected a folder"))
	}
	if c.MaxBytes < 0 || c.MaxUnused < 0 {
		errs = append(errs, errors.New("max-bytes, max-unused: expected 0 or more"))
	}
	if c.MaxAge < 0 {
		errs = append(errs, errors.New("max-age: expected 0 or more"))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, 64<<30)
	c.MaxUnused = cmp.Or(c.MaxUnused, 32<<30)
	c.MaxAge = cmp.Or(c.MaxAge, 30*24*time.Hour)
	return c
}

// Tree is a root file system that can be used, until Close where it was unpacked.
type Tree struct {
	Dir    string // an absolute path
	Digest string // sha256 in hex of its files, folders and symbolic links: names, permission bits and contents, not times and owners

	held *os.File // the lock of its place in the cache, which keeps it from being removed; nil = it is the user's own folder
}

// Close lets go of the tree: it may be removed from the cache some time. Again it does nothing.
func (t *Tree) Close() error {
	if t.held == nil {
		return nil
	}
	f := t.held
	t.held = nil
	now := time.Now()
	return errors.Join(os.Chtimes(f.Name(), now, now), f.Close())
}
