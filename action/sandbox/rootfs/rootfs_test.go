//go:build linux

package rootfs

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// entry is one of a stream; what a regular file holds is its text.
type entry struct {
	tar.Header
	text string
}

func file(name, text string, mode int64) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, text}
}

func dir(name string, mode int64) entry {
	return entry{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}, ""}
}

func link(kind byte, name, target string) entry {
	return entry{tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o777}, ""}
}

// tarFile writes a stream to a file.
func tarFile(t *testing.T, zip bool, entries ...entry) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.Size, e.ModTime, e.Uid = int64(len(e.text)), time.Unix(int64(len(e.Name)), 0), len(e.Name)
		must(t, w.WriteHeader(&e.Header))
		_, err := io.WriteString(w, e.text)
		must(t, err)
	}
	must(t, w.Close())
	raw := b.Bytes()
	if zip {
		var z bytes.Buffer
		g := gzip.NewWriter(&z)
		_, err := g.Write(raw)
		must(t, errors.Join(err, g.Close()))
		raw = z.Bytes()
	}
	name := filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(name, raw, 0o644))
	return name
}

// image is the stream of one tree, the other way round than it is sorted.
func image() []entry {
	return []entry{
		link(tar.TypeSymlink, "sbin", "/usr/bin"), dir("./", 0o700), dir("./usr", 0o755), dir("usr/bin/", 0o555), file("usr/bin/tool", "#!", 0o4755),
		link(tar.TypeLink, "usr/bin/other", "./usr/bin/tool"), file("/etc/deep/conf", "a=1", 0o640), {Header: tar.Header{Typeflag: tar.TypeChar, Name: "dev/null", Mode: 0o666}},
	}
}

// folderOf is the tree of image as a folder.
func folderOf(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	must(t, os.MkdirAll(at("usr/bin"), 0o755))
	must(t, os.MkdirAll(at("etc/deep"), 0o755))
	must(t, os.WriteFile(at("usr/bin/tool"), []byte("#!"), 0o755))
	must(t, os.WriteFile(at("usr/bin/other"), []byte("#!"), 0o755))
	must(t, os.WriteFile(at("etc/deep/conf"), []byte("a=1"), 0o640))
	must(t, os.Symlink("/usr/bin", at("sbin")))
	must(t, os.Chmod(at("usr/bin"), 0o555))
	t.Cleanup(func() { os.Chmod(at("usr/bin"), 0o755) })
	return top
}

func config(t *testing.T) Config {
	t.Helper()
	cfg := Config{Cache: t.TempDir()}
	t.Cleanup(func() {
		homes, _ := filepath.Glob(cfg.Cache + "/*")
		for _, home := range homes {
			if info, err := os.Lstat(home); err == nil && info.IsDir() {
				must(t, wipe(home))
			}
		}
	})
	return cfg
}

func prepare(t *testing.T, cfg Config, path string) Tree {
	t.Helper()
	made, err := Prepare(t.Context(), cfg, path)
	must(t, err)
	t.Cleanup(func() { must(t, made.Close()) })
	return made
}

// One tree has one digest, whether it is a folder, a tar file or a compressed one, whoever made it and when.
func TestEqualTreesHaveEqualDigests(t *testing.T) {
	cfg := config(t)
	want := prepare(t, cfg, folderOf(t)).Digest
	for name, path := range map[string]string{"tar": tarFile(t, false, image()...), "tar.gz": tarFile(t, true, image()...)} {
		made := prepare(t, cfg, path)
		if made.Digest != want {
			t.Errorf("%s: digest %s, of the folder %s", name, made.Digest, want)
		}
		info, err := os.Stat(filepath.Join(made.Dir, "usr/bin/tool"))
		must(t, err)
		if info.Mode() != 0o755 {
			t.Errorf("%s: the tool has mode %v", name, info.Mode())
		}
	}
	for name, change := range map[string]func(at string) error{
		"a mode":    func(at string) error { return os.Chmod(filepath.Join(at, "etc/deep/conf"), 0o600) },
		"a content": func(at string) error { return os.WriteFile(filepath.Join(at, "etc/deep/conf"), []byte("a=2"), 0) },
		"a target": func(at string) error {
			return errors.Join(os.Remove(filepath.Join(at, "sbin")), os.Symlink("/usr/sbin", filepath.Join(at, "sbin")))
		},
		"a name": func(at string) error { return os.Rename(filepath.Join(at, "etc"), filepath.Join(at, "etc2")) },
	} {
		other := folderOf(t)
		before := prepare(t, cfg, other).Digest
		must(t, change(other))
		if prepare(t, cfg, other).Digest == before {
			t.Errorf("%s makes no difference", name)
		}
	}
}

// A file is unpacked once, however many ask for it at once, and what a process that was killed left of it is in nobody's way.
func TestFilesAreUnpackedOnce(t *testing.T) {
	cfg := config(t)
	path := tarFile(t, true, image()...)
	key, err := cfg.fileDigest(t.Context(), path)
	must(t, err)
	left := filepath.Join(cfg.Cache, key+".part", treeName, "usr")
	must(t, os.MkdirAll(left, 0o755))
	must(t, os.Chmod(left, 0))
	var all sync.WaitGroup
	var made [8]Tree
	for i := range made {
		all.Go(func() {
			var err error
			if made[i], err = Prepare(t.Context(), cfg, path); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	first, err := os.Stat(made[0].Dir)
	must(t, err)
	for _, m := range append(made[:], prepare(t, cfg, path)) {
		if again, err := os.Stat(m.Dir); err != nil || !os.SameFile(first, again) || m.Dir != made[0].Dir || m.Digest != made[0].Digest {
			t.Errorf("%v, then %v (%v)", made[0], m, err)
		}
	}
	if rest, _ := filepath.Glob(cfg.Cache + "/*.part"); len(rest) > 0 {
		t.Errorf("left: %v", rest)
	}
}

// A tree in the cache that somebody changed is not what the file says.
func TestChangedTreesAreRefused(t *testing.T) {
	cfg := config(t)
	path := tarFile(t, false, image()...)
	conf := filepath.Join(prepare(t, cfg, path).Dir, "etc/deep/conf")
	must(t, os.WriteFile(conf, []byte("a=2"), 0))
	if _, err := Prepare(t.Context(), cfg, path); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("got %v", err)
	}
}

// A digest is remembered for a tree as it was seen: a change that keeps sizes and sets the time of writing back is seen too.
func TestRememberedDigests(t *testing.T) {
	cfg := config(t)
	top := folderOf(t)
	conf := filepath.Join(top, "etc/deep/conf")
	seen, err := stampOf(t.Context(), top)
	must(t, err)
	cfg.remember(top, note{seen.times, "remembered"})
	if got := prepare(t, cfg, top).Digest; got != "remembered" {
		t.Errorf("the digest is %q", got)
	}
	was, err := os.Stat(conf)
	must(t, err)
	time.Sleep(20 * time.Millisecond) // a tick of the file system's clock
	must(t, os.WriteFile(conf, []byte("a=2"), 0))
	must(t, os.Chtimes(conf, was.ModTime(), was.ModTime()))
	if got := prepare(t, cfg, top).Digest; got == "remembered" {
		t.Error("the change was not seen")
	}
	if n, ok := cfg.recall(top, seen); !ok || n != "remembered" {
		t.Errorf("a tree that changed just now was remembered: %q", n)
	}
}

// A stream of anybody's making leads nowhere but into its folder, and one that fails leaves nothing.
func TestHostileStreamsLeadNowhere(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	must(t, os.WriteFile(secret, []byte("host"), 0o640))
	up := strings.Repeat("../", 20)
	for name, entries := range map[string][]entry{
		"up":                          {file("../x", "evil", 0o644)},
		"up from below":               {file("a/../../x", "evil", 0o644)},
		"through an absolute link":    {link(tar.TypeSymlink, "l", outside), file("l/secret", "evil", 0o644)},
		"through a relative link":     {link(tar.TypeSymlink, "l", up+outside[1:]), file("l/secret", "evil", 0o644)},
		"a folder through a link":     {link(tar.TypeSymlink, "l", outside), dir("l/new", 0o777)},
		"bits through a link":         {dir("d", 0o777), dir("d/e", 0o777), {Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "d/e", Linkname: outside}}, file("d/e/secret", "evil", 0o777)},
		"a hard link to the outside":  {link(tar.TypeLink, "h", up+secret[1:])},
		"a hard link through a link":  {link(tar.TypeSymlink, "l", outside), link(tar.TypeLink, "h", "l/secret")},
		"larger than may be":          {file("big", strings.Repeat("x", 5000), 0o644)},
		"a file in a folder's place":  {dir("d", 0o755), file("d/x", "", 0o644), file("d", "evil", 0o644)},
		"a stream that is cut":        {{Header: tar.Header{Typeflag: 'x', Name: "pax"}}},
		"a folder that is a file too": {file("d", "", 0o644), file("d/x", "evil", 0o644)},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			cfg.MaxBytes = 4096
			path := filepath.Join(t.TempDir(), "image")
			if name == "a stream that is cut" {
				must(t, os.WriteFile(path, []byte("\x1f\x8b\x08 and then nothing"), 0o644))
			} else {
				path = tarFile(t, false, entries...)
			}
			if made, err := Prepare(t.Context(), cfg, path); err == nil {
				t.Errorf("it was taken: %v", made)
			}
			if homes, _ := filepath.Glob(cfg.Cache + "/*[^k]"); len(homes) > 0 { // all but .lock
				t.Errorf("left: %v", homes)
			}
			data, err := os.ReadFile(secret)
			info, _ := os.Stat(secret)
			if all, _ := os.ReadDir(outside); err != nil || string(data) != "host" || info.Mode() != 0o640 || len(all) != 1 {
				t.Errorf("the host's folder holds %v, its file is %q %v, %v", all, data, info.Mode(), err)
			}
		})
	}
}

// Where a name comes twice the later entry counts, and writes through no link of the earlier.
func TestLaterEntriesReplace(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("host"), 0o644))
	made := prepare(t, config(t), tarFile(t, false, link(tar.TypeSymlink, "f", secret), file("f", "own", 0o644), link(tar.TypeSymlink, "d", "/"), dir("d", 0o750)))
	own, err := os.ReadFile(filepath.Join(made.Dir, "f"))
	must(t, err)
	info, err := os.Lstat(filepath.Join(made.Dir, "d"))
	must(t, err)
	if host, _ := os.ReadFile(secret); string(own) != "own" || string(host) != "host" || info.Mode() != os.ModeDir|0o750 {
		t.Errorf("own %q, host %q, folder %v", own, host, info.Mode())
	}
}

// A run that is stopped stops preparing and leaves nothing, also one that waits for another process.
func TestPreparingStops(t *testing.T) {
	cfg := config(t)
	path := tarFile(t, false, image()...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Prepare(ctx, cfg, path); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	key, err := cfg.fileDigest(t.Context(), path)
	must(t, err)
	alone, err := lock(t.Context(), filepath.Join(cfg.Cache, key+lockSuffix), syscall.LOCK_EX)
	must(t, err)
	defer alone.Close()
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Prepare(ctx, cfg, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsNoTree(t *testing.T) {
	for _, path := range []string{"/dev/null", filepath.Join(t.TempDir(), "none")} {
		if _, err := Prepare(t.Context(), config(t), path); err == nil {
			t.Errorf("%s was taken", path)
		}
	}
	if _, err := Prepare(t.Context(), Config{MaxBytes: -1}, t.TempDir()); err == nil || !strings.Contains(err.Error(), "cache") || !strings.Contains(err.Error(), "max-bytes") {
		t.Errorf("got %v", err)
	}
}
