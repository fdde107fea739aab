//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A rootfs has its digest in the settings and the identity of its run, wherever it lies; another is refused where one is expected.
func TestRootfsInTheIdentity(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	identityOf := func(text string) (*session, string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		s := &session{set: Settings{Sandbox: SandboxSpec{Rootfs: dir}}}
		if err := s.prepareRootfs(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s, identity(&s.set, "", nil)["sandbox"]
	}
	one, same := identityOf("a")
	_, alike := identityOf("a")
	other, differs := identityOf("b")
	if same != alike || same == differs || !strings.Contains(same, one.kit.rootfs.Digest) {
		t.Errorf("identities %s, %s and %s", same, alike, differs)
	}
	other.set.Sandbox.RootfsDigest = one.kit.rootfs.Digest
	if err := other.prepareRootfs(t.Context()); err == nil || !strings.Contains(err.Error(), "rootfs-digest") {
		t.Errorf("another than what was expected: %v", err)
	}
	f := &faults{}
	SandboxSpec{RootfsDigest: "x"}.check(f)
	if err := f.err(); err == nil || !strings.Contains(err.Error(), "no meaning without rootfs") {
		t.Errorf("a digest of nothing: %v", err)
	}
}
