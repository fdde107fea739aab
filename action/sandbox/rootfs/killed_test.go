//go:build linux

package rootfs

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// leaver is the process of TestWhatTheKilledLeaveIsSwept that is killed: in the midst of a build, of the file it freezes, and of unpacking.
const leaver = "TRANCHE_TEST_LEAVER"

func TestWhatTheKilledLeaveIsSwept(t *testing.T) {
	if dir := os.Getenv(leaver); dir != "" {
		leave(t, dir)
	}
	for _, c := range []struct {
		name  string
		comes func(t *testing.T, cfg Config, dir string)
	}{
		{"by the next build", func(t *testing.T, cfg Config, dir string) {
			b, err := NewBuild(t.Context(), cfg, t.TempDir())
			must(t, err)
			must(t, b.Close())
		}},
		{"by the use of a folder", func(t *testing.T, cfg Config, dir string) {
			_, err := Prepare(t.Context(), cfg, t.TempDir())
			must(t, err)
		}},
		{"by the use of a file", func(t *testing.T, cfg Config, dir string) {
			made, err := Prepare(t.Context(), cfg, tarFile(t, false, file("of", "another", 0o644)))
			must(t, err)
			home := filepath.Dir(made.Dir)
			must(t, made.Close())
			must(t, wipe(home))
			must(t, os.Remove(home+lockSuffix))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := Config{Cache: filepath.Join(dir, "cache")}
			kill(t, dir)
			others, err := NewBuild(t.Context(), Config{Cache: cfg.Cache, MaxBytes: 1 << 30}, t.TempDir()) // of a process that lives; it sweeps too
			must(t, err)
			if got := trees(t, cfg); len(got) != 1 {
				t.Errorf("a build swept %v, but for itself", got)
			}
			must(t, others.Close())
			kill(t, dir)
			if got := trees(t, cfg); len(got) != 2 {
				t.Fatalf("the killed one left %v, expected a build and half a tree", got)
			}
			if c.comes(t, cfg, dir); len(trees(t, cfg)) > 0 {
				t.Errorf("left are %v", trees(t, cfg))
			}
			locks, err := filepath.Glob(filepath.Join(cfg.Cache, "*"+lockSuffix))
			if err != nil || len(locks) > 0 {
				t.Errorf("left are %v, %v", locks, err)
			}
		})
	}
}

// A frozen file that was not finished goes when the next of its name is written; one that is being written stays, and so do files of others.
func TestDraftsOfTheKilledAreSwept(t *testing.T) {
	dir := t.TempDir()
	cfg, out := Config{Cache: filepath.Join(dir, "cache")}, filepath.Join(dir, "env.tar")
	kill(t, dir)
	must(t, os.WriteFile(filepath.Join(dir, ".env.tar.bak"), nil, 0o600))
	going, err := newDraft(out)
	must(t, err)
	if got := drafts(t, out); len(got) != 2 {
		t.Fatalf("drafts: %v", got)
	}
	b, err := NewBuild(t.Context(), cfg, t.TempDir())
	must(t, err)
	_, err = b.Freeze(t.Context(), out)
	must(t, err)
	must(t, b.Close())
	if got := drafts(t, out); len(got) != 1 || got[0] != filepath.Base(going.Name()) {
		t.Errorf("drafts: %v, expected %s alone", got, going.Name())
	}
	must(t, going.Close())
	for _, name := range []string{out, filepath.Join(dir, ".env.tar.bak")} {
		_, err := os.Stat(name)
		must(t, err)
	}
}

// leave begins all that can be left, says so, and waits to be killed.
func leave(t *testing.T, dir string) {
	cfg := Config{Cache: filepath.Join(dir, "cache")}.withDefaults()
	base := filepath.Join(dir, "base")
	must(t, os.MkdirAll(base, 0o755))
	b, err := NewBuild(t.Context(), cfg, base)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(b.Dir, "half"), []byte("made"), 0o600))
	must(t, os.Chmod(b.Dir, 0)) // as a program may leave it
	home := filepath.Join(cfg.Cache, "key")
	alone, err := tryLock(home+lockSuffix, syscall.LOCK_EX)
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(home+partSuffix, treeName), 0o700))
	f, err := newDraft(filepath.Join(dir, "env.tar"))
	must(t, err)
	_, err = f.WriteString("half")
	must(t, err)
	_, err = os.Stdout.WriteString("left\n")
	must(t, err)
	time.Sleep(time.Minute)
	t.Fatal("nobody killed it", alone.Name())
}

func kill(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestWhatTheKilledLeaveIsSwept$")
	cmd.Env = append(os.Environ(), leaver+"="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	if err != nil || line != "left\n" {
		t.Fatalf("it said %q, %v", line, err)
	}
}

// trees are all folders of a cache, whole or not.
func trees(t *testing.T, cfg Config) (list []string) {
	t.Helper()
	for name := range homes(t, cfg) {
		list = append(list, name)
	}
	return list
}

func drafts(t *testing.T, path string) (list []string) {
	t.Helper()
	all, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	for _, e := range all {
		if strings.HasPrefix(e.Name(), draftPrefix(path)) {
			list = append(list, e.Name())
		}
	}
	return list
}
