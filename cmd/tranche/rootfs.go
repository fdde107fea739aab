package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"tranche/action/sandbox/rootfs"
)

// prepareRootfs makes the root file system of the run's sandboxes ready, and puts its digest into the settings: it is part of the run's
// identity, and a resumed run goes on with no other.
func (s *session) prepareRootfs(ctx context.Context) error {
	spec := &s.set.Sandbox
	if spec.Rootfs == "" {
		return nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("rootfs: no place to keep it: %w", err)
	}
	made, err := rootfs.Prepare(ctx, rootfs.Config{Cache: filepath.Join(cache, "tranche", "rootfs")}, absolutePath(spec.Rootfs))
	if err != nil {
		return fmt.Errorf("rootfs: %w", err)
	}
	if want := spec.RootfsDigest; want != "" && want != made.Digest {
		return fmt.Errorf("rootfs-digest: %s has the digest %s, expected %s", spec.Rootfs, made.Digest, want)
	}
	s.kit.rootfs, spec.RootfsDigest = made, made.Digest
	return nil
}
