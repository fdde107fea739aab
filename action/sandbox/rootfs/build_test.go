//go:build linux

package rootfs

import (
	"archive/tar"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What is frozen is what was there: the digest that was told is that of the file when it is used, whatever the base and the compression, and the
// times that files were written at are kept.
func TestFrozenIsWhatIsUsed(t *testing.T) {
	cfg := config(t)
	written := time.Unix(1_600_000_000, 0)
	folder := folderOf(t)
	must(t, os.Chtimes(filepath.Join(folder, "etc/deep/conf"), written, written))
	for name, base := range map[string]string{"folder": folder, "tar": tarFile(t, false, image()...), "tar.gz": tarFile(t, true, image()...)} {
		for _, ending := range []string{".tar", ".tar.gz"} {
			b, err := NewBuild(t.Context(), cfg, base)
			must(t, err)
			must(t, b.Resolvable())
			must(t, os.WriteFile(filepath.Join(b.Dir, "opt/new"), []byte("installed"), 0o755))
			must(t, os.WriteFile(filepath.Join(b.Dir, BuildTemp, "rest"), []byte("needed meanwhile"), 0o644))
			out := filepath.Join(t.TempDir(), "env"+ending)
			digest, err := b.Freeze(t.Context(), out)
			must(t, err)
			dir := b.Dir
			must(t, b.Close())
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s: the copy is still there", name)
			}
			used := prepare(t, cfg, out)
			if used.Digest != digest {
				t.Errorf("%s%s: told %s, found %s", name, ending, digest, used.Digest)
			}
			for path, want := range map[string]string{"opt/new": "installed", "etc/deep/conf": "a=1", "etc/resolv.conf": "", "usr/bin/tool": "#!"} {
				if got, err := os.ReadFile(filepath.Join(used.Dir, path)); err != nil || string(got) != want {
					t.Errorf("%s%s: %s is %q, %v", name, ending, path, got, err)
				}
			}
			if rest, err := os.ReadDir(filepath.Join(used.Dir, BuildTemp)); err != nil || len(rest) > 0 {
				t.Errorf("%s%s: what was needed meanwhile is there: %v, %v", name, ending, rest, err)
			}
			info, err := os.Stat(filepath.Join(used.Dir, "etc/deep/conf"))
			must(t, err)
			if name == "folder" && !info.ModTime().Equal(written) {
				t.Errorf("it was written at %v, now it says %v", written, info.ModTime())
			}
		}
	}
}

// The tree's own links lead the one who freezes it nowhere, and nobody's file is written over by half a one.
func TestFreezingLeadsNowhere(t *testing.T) {
	cfg := config(t)
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("host"), 0o600))
	b, err := NewBuild(t.Context(), cfg, t.TempDir())
	must(t, err)
	defer func() { must(t, b.Close()) }()
	must(t, os.Remove(filepath.Join(b.Dir, BuildTemp)))
	must(t, os.Symlink(outside, filepath.Join(b.Dir, BuildTemp)))
	must(t, os.RemoveAll(filepath.Join(b.Dir, "etc")))
	must(t, os.Symlink(outside, filepath.Join(b.Dir, "etc")))
	if err := b.Resolvable(); err == nil {
		t.Error("a file was made through a link")
	}
	out := filepath.Join(t.TempDir(), "env.tar")
	must(t, os.WriteFile(out, []byte("before"), 0o644))
	_, err = b.Freeze(t.Context(), out)
	must(t, err)
	if all, _ := os.ReadDir(outside); len(all) != 1 {
		t.Errorf("outside there is %v", all)
	}
	f, err := os.Open(out)
	must(t, err)
	defer f.Close()
	stream, links := tar.NewReader(f), 0
	for h, err := stream.Next(); err != io.EOF; h, err = stream.Next() {
		must(t, err)
		if strings.Contains(h.Name, "secret") {
			t.Errorf("%s was taken along", h.Name)
		}
		if h.Typeflag == tar.TypeSymlink {
			links++
		}
	}
	if links != 2 {
		t.Errorf("%d links, want 2", links)
	}

	b.cfg.MaxBytes = 1024
	must(t, os.WriteFile(filepath.Join(b.Dir, "opt/large"), make([]byte, 5000), 0o644))
	kept, err := os.ReadFile(out)
	must(t, err)
	if _, err := b.Freeze(t.Context(), out); err == nil {
		t.Error("more was frozen than may be")
	}
	now, err := os.ReadFile(out)
	must(t, err)
	if rest, _ := filepath.Glob(filepath.Dir(out) + "/.*"); string(now) != string(kept) || len(rest) > 0 {
		t.Errorf("the file has %d bytes, had %d; left: %v", len(now), len(kept), rest)
	}
}

// A base that is none leaves nothing.
func TestBasesThatAreNone(t *testing.T) {
	cfg := config(t)
	broken := filepath.Join(t.TempDir(), "x.tar")
	must(t, os.WriteFile(broken, []byte(strings.Repeat("no tar ", 1000)), 0o644))
	for _, base := range []string{broken, filepath.Join(t.TempDir(), "none")} {
		if _, err := NewBuild(t.Context(), cfg, base); err == nil {
			t.Errorf("%s was taken", base)
		}
	}
	if rest, _ := filepath.Glob(filepath.Join(cfg.Cache, buildPrefix+"*")); len(rest) > 0 {
		t.Errorf("left: %v", rest)
	}
}
