//go:build linux

package rootfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// homes are the trees that are in a cache.
func homes(t *testing.T, cfg Config) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	entries, err := os.ReadDir(cfg.Cache)
	must(t, err)
	for _, e := range entries {
		if e.IsDir() {
			all[e.Name()] = true
		}
	}
	return all
}

// unpackedAt unpacks a tree that was last used some time ago, and lets go of it unless it is held.
func unpackedAt(t *testing.T, cfg Config, name string, ago time.Duration, hold bool) (home string) {
	t.Helper()
	made, err := Prepare(t.Context(), cfg, tarFile(t, false, file("of", name, 0o644)))
	must(t, err)
	t.Cleanup(func() { must(t, made.Close()) })
	lock := filepath.Dir(made.Dir) + lockSuffix
	if !hold {
		must(t, made.Close())
	}
	then := time.Now().Add(-ago)
	must(t, os.Chtimes(lock, then, then))
	return filepath.Base(filepath.Dir(made.Dir))
}

// A tree that nobody uses goes when it is old, or when there is too much of such, the oldest first; one in use stays whatever its age.
func TestUnusedTreesAreRemoved(t *testing.T) {
	cfg := config(t)
	roomy := cfg
	roomy.MaxAge, roomy.MaxUnused = 1000*time.Hour, 1<<40
	old := unpackedAt(t, roomy, "old", 100*time.Hour, false)
	older := unpackedAt(t, roomy, "older", 200*time.Hour, true)
	young := unpackedAt(t, roomy, "young", time.Hour, false)
	younger := unpackedAt(t, roomy, "younger", time.Minute, false)
	build, err := NewBuild(t.Context(), roomy, tarFile(t, false, image()...))
	must(t, err)
	going := filepath.Base(build.home)
	left := filepath.Join(cfg.Cache, buildPrefix+"left")
	must(t, os.MkdirAll(filepath.Join(left, treeName), 0o700))
	must(t, os.WriteFile(left+lockSuffix, nil, 0o600))
	note := filepath.Join(cfg.Cache, "note-of-long-ago.json")
	must(t, os.WriteFile(note, nil, 0o600))
	long := time.Now().Add(-60 * time.Hour)
	must(t, os.Chtimes(note, long, long))

	want := func(why string, names ...string) {
		t.Helper()
		got := homes(t, cfg)
		for _, name := range names {
			if !got[name] {
				t.Errorf("%s: a tree is gone that should not be", why)
			}
			delete(got, name)
		}
		if len(got) > 0 {
			t.Errorf("%s: left are %v", why, got)
		}
	}
	want("before", old, older, young, younger, going, filepath.Base(left))
	cfg.MaxAge, cfg.MaxUnused = 50*time.Hour, 1<<40
	cfg.clean(t.Context(), time.Now())
	want("by age", older, young, younger, going)
	if _, err := os.Stat(note); err == nil {
		t.Error("an old note is left")
	}
	cfg.MaxUnused = sizeOf(filepath.Join(cfg.Cache, young)) + 10 // one of two has room
	cfg.clean(t.Context(), time.Now())
	want("by size", older, younger, going)
	must(t, build.Close())
	want("closed", older, younger)
	locks, _ := filepath.Glob(filepath.Join(cfg.Cache, "*"+lockSuffix))
	if len(locks) != 2 {
		t.Errorf("locks of what is gone are left: %v", locks)
	}
}

// A tree can be had again after it was removed, also by one who had waited at its lock.
func TestRemovedTreesAreUnpackedAgain(t *testing.T) {
	cfg := config(t)
	path := tarFile(t, true, image()...)
	first, err := Prepare(t.Context(), cfg, path)
	must(t, err)
	must(t, first.Close())
	for _, u := range cfg.unused() {
		must(t, u.remove())
		if f, err := tryLock(u.home+lockSuffix, 1); err != nil { // a new file has that name
			t.Error(err)
		} else {
			must(t, f.Close())
		}
		must(t, u.lock.Close())
	}
	if got := homes(t, cfg); len(got) > 0 {
		t.Fatalf("left: %v", got)
	}
	if again := prepare(t, cfg, path); again.Digest != first.Digest {
		t.Errorf("the digest was %s and is %s", first.Digest, again.Digest)
	}
}

// What could not be removed keeps its lock file, by which it is found again.
func TestWhatIsLeftIsFoundAgain(t *testing.T) {
	cfg := config(t)
	home := filepath.Join(cfg.Cache, "tree-of-one")
	must(t, os.WriteFile(home, nil, 0o600)) // no folder, so it cannot be emptied
	must(t, os.WriteFile(home+lockSuffix, nil, 0o600))
	for _, u := range cfg.unused() {
		if u.remove() == nil {
			t.Error("it was removed")
		}
		must(t, u.lock.Close())
	}
	_, err := os.Stat(home + lockSuffix)
	must(t, err)
	build, err := NewBuild(t.Context(), cfg, t.TempDir())
	must(t, err)
	must(t, wipe(build.home))
	must(t, os.WriteFile(build.home, nil, 0o600))
	if build.Close() == nil {
		t.Error("the build was removed")
	}
	_, err = os.Stat(build.home + lockSuffix)
	must(t, err)
	if f, err := tryLock(build.home+lockSuffix, syscall.LOCK_EX); err != nil {
		t.Errorf("the build is locked: %v", err)
	} else {
		must(t, f.Close())
	}
}

// What goes is old, too much or a build; and who is told to stop removes nothing and holds nothing.
func TestSurplus(t *testing.T) {
	cfg, now := Config{MaxAge: 10 * time.Hour, MaxUnused: 100}, time.Now()
	tree := func(home string, ago time.Duration, bytes int64) unused {
		return unused{home: home, used: now.Add(-ago), bytes: bytes}
	}
	for _, c := range []struct {
		list []unused
		want string // that go
	}{
		{nil, ""},
		{[]unused{tree("a", 9*time.Hour, 60), tree("b", time.Hour, 40)}, ""},
		{[]unused{tree("a", 9*time.Hour, 60), tree("b", time.Hour, 41)}, "a"},
		{[]unused{tree("a", 11*time.Hour, 60), tree("b", 9*time.Hour, 60), tree("c", time.Hour, 40)}, "a"},
		{[]unused{tree("a", 9*time.Hour, 1), tree("b", time.Hour, 101)}, "ab"},
		{[]unused{tree("a", 9*time.Hour, 1), {home: "b", used: now, dead: true}}, "b"},
	} {
		going, staying := cfg.surplus(c.list, now)
		var got string
		for _, u := range going {
			got += u.home
		}
		if got != c.want || len(going)+len(staying) != len(c.list) {
			t.Errorf("%v: going are %q, want %q; staying %v", c.list, got, c.want, staying)
		}
	}

	cfg = config(t)
	roomy := cfg
	roomy.MaxAge, roomy.MaxUnused = 1000*time.Hour, 1<<40
	home := unpackedAt(t, roomy, "old", 100*time.Hour, false)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	cfg.clean(done, time.Now())
	if !homes(t, cfg)[home] {
		t.Error("it was removed")
	}
	f, err := tryLock(filepath.Join(cfg.Cache, home+lockSuffix), syscall.LOCK_EX)
	must(t, err)
	must(t, f.Close())
}

// Nobody waits for a tree that stays until others are removed.
func TestTreesThatStayAreFreeAtOnce(t *testing.T) {
	cfg := config(t)
	roomy := cfg
	roomy.MaxAge, roomy.MaxUnused = 1000*time.Hour, 1<<40
	old := unpackedAt(t, roomy, "old", 100*time.Hour, false)
	young := unpackedAt(t, roomy, "young", time.Hour, false)
	cfg.MaxAge, cfg.MaxUnused = 50*time.Hour, 1<<40
	part := filepath.Join(cfg.Cache, old+partSuffix)
	must(t, syscall.Mkfifo(part, 0o600)) // removing waits until it has a writer
	info, err := os.Stat(filepath.Join(cfg.Cache, old+lockSuffix))
	must(t, err)
	held := fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)
	done := make(chan struct{})
	go func() {
		defer close(done)
		cfg.clean(t.Context(), time.Now())
	}()
	defer func() {
		f, err := os.OpenFile(part, os.O_RDWR, 0)
		must(t, err)
		<-done
		must(t, f.Close())
	}()
	for text := ""; !strings.Contains(text, held); time.Sleep(time.Millisecond) {
		all, err := os.ReadFile("/proc/locks")
		must(t, err)
		text = string(all)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	f, err := lock(ctx, filepath.Join(cfg.Cache, young+lockSuffix), syscall.LOCK_SH)
	must(t, err)
	must(t, f.Close())
}
