//go:build linux

package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tranche/action/sandbox/tree"
)

// Prepare returns the tree of a folder, or of a tar file (.tar or .tar.gz, told by its content), which is unpacked where that was not done
// before. Several processes may prepare one file at once. A tree that is read again is only looked at, not read, where the times of its files
// say that nothing changed. Close the tree when it is not used any more.
func Prepare(ctx context.Context, cfg Config, path string) (Tree, error) {
	if err := cfg.Validate(); err != nil {
		return Tree{}, err
	}
	cfg = cfg.withDefaults()
	path, err := filepath.Abs(path)
	if err != nil {
		return Tree{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return Tree{}, err
	}
	if err := os.MkdirAll(cfg.Cache, 0o700); err != nil {
		return Tree{}, err
	}
	defer func() { cfg.clean(ctx, time.Now()) }() // behind it, when what is used is locked
	switch {
	case info.IsDir():
		digest, err := cfg.treeDigest(ctx, path)
		return Tree{Dir: path, Digest: digest}, err
	case info.Mode().IsRegular():
		return cfg.unpacked(ctx, path)
	}
	return Tree{}, fmt.Errorf("expected a folder or a tar file, found %s", path)
}

// What lies in the folder of an unpacked file.
const (
	treeName   = "tree"
	digestName = "digest" // of the tree, as it was unpacked
	bytesName  = "bytes"  // of the stream it came from
)

// unpacked is the tree of a tar file.
func (c Config) unpacked(ctx context.Context, file string) (Tree, error) {
	key, err := c.fileDigest(ctx, file)
	if err != nil {
		return Tree{}, err
	}
	home, err := filepath.Abs(filepath.Join(c.Cache, key))
	if err != nil {
		return Tree{}, err
	}
	held, err := c.hold(ctx, file, key, home)
	if err != nil {
		return Tree{}, err
	}
	t := Tree{Dir: filepath.Join(home, treeName), held: held}
	made, err := os.ReadFile(filepath.Join(home, digestName))
	if err == nil {
		t.Digest, err = c.treeDigest(ctx, t.Dir)
	}
	if err == nil && t.Digest != strings.TrimSpace(string(made)) {
		err = fmt.Errorf("%s was changed since %s was unpacked there: remove it", home, file)
	}
	if err != nil {
		return Tree{}, errors.Join(err, t.Close())
	}
	return t, nil
}

// hold unpacks a file where that was not done before, and returns the lock that its users share.
func (c Config) hold(ctx context.Context, file, key, home string) (*os.File, error) {
	for {
		held, err := lock(ctx, home+lockSuffix, syscall.LOCK_SH)
		if err != nil {
			return nil, err
		}
		if _, err := os.Lstat(home); err == nil {
			now := time.Now()
			if err := os.Chtimes(held.Name(), now, now); err != nil { // it was used
				return nil, errors.Join(err, held.Close())
			}
			return held, nil
		}
		held.Close() // it cannot become another's lock in one step
		alone, err := tryLock(home+lockSuffix, syscall.LOCK_EX)
		if errors.Is(err, syscall.EWOULDBLOCK) { // another makes it, or has made it and uses it: as long as its run lasts, so nobody waits for this lock
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(lockPause/2 + rand.N(lockPause)): // not all at the same time
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, err = os.Lstat(home); err != nil {
			err = c.unpack(ctx, file, key, home)
		}
		alone.Close()
		if err != nil {
			return nil, fmt.Errorf("unpack %s: %w", file, err)
		}
	}
}

// treeDigest is the digest of a folder.
func (c Config) treeDigest(ctx context.Context, dir string) (string, error) {
	return c.digest(ctx, dir, func(w io.Writer) error {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = tree.Tar(w, c.MaxBytes, tree.Root{Name: "rootfs", Dir: f}) // devices and the like are not the tree's: a sandbox has its own /dev
		return err
	})
}

// fileDigest is the digest of one file's bytes.
func (c Config) fileDigest(ctx context.Context, file string) (string, error) {
	return c.digest(ctx, file, func(w io.Writer) error {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	})
}
