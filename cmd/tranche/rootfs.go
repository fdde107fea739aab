package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tranche/action/sandbox/rootfs"
)

// digestPrefix may stand before a digest, to say of which kind it is.
const digestPrefix = "sha256:"

// readDigest is a digest as trees have it.
func readDigest(text string) (string, error) {
	digest := strings.TrimPrefix(text, digestPrefix)
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) != 32 {
		return "", fmt.Errorf("expected %s and 64 hex digits, found %q", digestPrefix, text)
	}
	return strings.ToLower(digest), nil
}

// rootfsConfig is where unpacked trees are kept.
func rootfsConfig() (rootfs.Config, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return rootfs.Config{}, fmt.Errorf("no place to keep it: %w", err)
	}
	return rootfs.Config{Cache: filepath.Join(cache, "tranche", "rootfs")}, nil
}

// openRootfs makes a tree ready; one that has not the digest that is wanted is refused. The error begins with the key that it belongs to.
// Close the tree.
func openRootfs(ctx context.Context, path, want string) (made rootfs.Tree, err error) {
	if want != "" {
		if want, err = readDigest(want); err != nil {
			return made, fmt.Errorf("rootfs-digest: %w", err)
		}
	}
	cfg, err := rootfsConfig()
	if err == nil {
		made, err = rootfs.Prepare(ctx, cfg, absolutePath(path))
	}
	if err != nil {
		return made, fmt.Errorf("rootfs: %w", err)
	}
	if want != "" && want != made.Digest {
		err := fmt.Errorf("rootfs-digest: %s has the digest %s, expected %s", path, made.Digest, want)
		return rootfs.Tree{}, errors.Join(err, made.Close())
	}
	return made, nil
}

// prepareRootfs makes the root file system of the run's sandboxes ready, and puts its digest into the settings: it is part of the run's
// identity, and a resumed run goes on with no other.
func (s *session) prepareRootfs(ctx context.Context) error {
	spec := &s.set.Sandbox
	if spec.backend() == backendDocker {
		return s.pinImage(ctx)
	}
	if spec.Rootfs == "" {
		return nil
	}
	made, err := openRootfs(ctx, spec.Rootfs, spec.RootfsDigest)
	if err != nil {
		return err
	}
	s.kit.rootfs, spec.RootfsDigest = made, made.Digest
	return nil
}
