//go:build linux

package rootfs

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"tranche/action/sandbox/tree"
)

// Prepare returns the tree of a folder, or of a tar file (.tar or .tar.gz, told by its content), which is unpacked where that was not done
// before. Several processes may prepare one file at once. A tree that is read again is only looked at, not read, where the times of its files
// say that nothing changed.
func Prepare(ctx context.Context, cfg Config, path string) (Tree, error) {
	if err := cfg.Validate(); err != nil {
		return Tree{}, err
	}
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 64<<30)
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
	switch {
	case info.IsDir():
		digest, err := cfg.treeDigest(ctx, path)
		return Tree{path, digest}, err
	case info.Mode().IsRegular():
		return cfg.unpacked(ctx, path)
	}
	return Tree{}, fmt.Errorf("expected a folder or a tar file, found %s", path)
}

// What lies in the folder of an unpacked file.
const (
	treeName   = "tree"
	digestName = "digest" // of the tree, as it was unpacked
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
	unlock, err := lock(ctx, home+".lock")
	if err != nil {
		return Tree{}, err
	}
	defer unlock()
	if _, err := os.Lstat(home); err != nil {
		if err := c.unpack(ctx, file, key, home); err != nil {
			return Tree{}, fmt.Errorf("unpack %s: %w", file, err)
		}
	}
	made, err := os.ReadFile(filepath.Join(home, digestName))
	if err != nil {
		return Tree{}, err
	}
	dir := filepath.Join(home, treeName)
	digest, err := c.treeDigest(ctx, dir)
	if err == nil && digest != strings.TrimSpace(string(made)) {
		err = fmt.Errorf("%s was changed since %s was unpacked there: remove it", home, file)
	}
	return Tree{dir, digest}, err
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
