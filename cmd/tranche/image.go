package main

import (
	"context"
	"fmt"
)

// pinImage puts the digest of a container engine's image where that of a root file system stands: its name can become another image's.
func (s *session) pinImage(ctx context.Context) error {
	spec := &s.set.Sandbox
	digest, err := imageDigest(ctx, spec.Options)
	if err != nil {
		return err
	}
	if want := spec.RootfsDigest; want != "" && want != digest {
		return fmt.Errorf("rootfs-digest: the image %s has the digest %s, expected %s", spec.Options["image"], digest, want)
	}
	spec.RootfsDigest = digest
	return nil
}
