//go:build linux

package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"tranche/action/sandbox"
)

const plenty = 64 << 20

func open(t rapid.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func folder(t *testing.T) (string, *os.File) {
	t.Helper()
	path := t.TempDir()
	f := open(t, path)
	t.Cleanup(func() { f.Close() })
	return path, f
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// names that make trouble: line ends, bad UTF-8, spaces, tar's own words, long ones.
var names = rapid.OneOf(
	rapid.SampledFrom([]string{"a", "b", "c", "PaxHeaders.0", "-rf", "x\ny", "\xff\xfe", "é", " ", "...", strings.Repeat("n", 255), "12 path=etc"}),
	rapid.StringMatching(`[a-z]{1,3}`),
)

// grow makes a random tree below a folder.
func grow(t *rapid.T, dir string, depth int) {
	for range rapid.IntRange(0, 5).Draw(t, "entries") {
		path := filepath.Join(dir, names.Draw(t, "name"))
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
		case kind == 0 && depth < 4:
			must(t, os.Mkdir(path, 0o755))
			grow(t, path, depth+1)
			must(t, os.Chmod(path, fs.FileMode(rapid.SampledFrom([]uint32{0o755, 0o700, 0o777, 0o500}).Draw(t, "bits"))))
		case kind == 1:
			must(t, os.Symlink(rapid.SampledFrom([]string{"/etc/shadow", "..", "a", "\xff", strings.Repeat("l", 300)}).Draw(t, "target"), path))
		case kind == 2:
			must(t, unix.Mkfifo(path, 0o644))
		default:
			must(t, os.WriteFile(path, rapid.SliceOfN(rapid.Byte(), 0, 1500).Draw(t, "data"), 0o644))
			must(t, os.Chmod(path, fs.FileMode(rapid.SampledFrom([]uint32{0o644, 0o755, 0o600, 0}).Draw(t, "bits"))))
		}
	}
}

// look describes a tree by the standard library's means, not ours.
func look(t rapid.TB, dir string) (all []string, fifos int) {
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		switch info.Mode().Type() {
		case fs.ModeNamedPipe:
			fifos++
			return nil
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			all = append(all, fmt.Sprintf("%q -> %q", rel, target))
			return err
		case 0:
			data, err := os.ReadFile(path)
			all = append(all, fmt.Sprintf("%q %v %x", rel, info.Mode(), data))
			return err
		}
		all = append(all, fmt.Sprintf("%q %v", rel, info.Mode()))
		return nil
	}))
	return all, fifos
}

// A tree that goes through a stream is the same tree, gives the same bytes again, and nothing is left of it when it is wiped.
func TestTreeThroughTarIsTheSame(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("reads files without any permission bit: needs root")
	}
	rapid.Check(t, func(t *rapid.T) {
		base, err := os.MkdirTemp("", "tree")
		must(t, err)
		defer os.RemoveAll(base)
		var dirs [4]*os.File
		for i := range dirs {
			must(t, os.Mkdir(filepath.Join(base, fmt.Sprint(i)), 0o755))
			dirs[i] = open(t, filepath.Join(base, fmt.Sprint(i)))
			defer dirs[i].Close()
		}
		grow(t, dirs[0].Name(), 0)
		grow(t, dirs[1].Name(), 0)
		first, left, err := Snapshot(plenty, Root{"w", dirs[0]}, Root{"tmp", dirs[1]})
		must(t, err)
		must(t, Untar(bytes.NewReader(first.Tar), plenty, Root{"w", dirs[2]}, Root{"tmp", dirs[3]}))
		fifos := 0
		for i := range 2 {
			want, n := look(t, dirs[i].Name())
			got, _ := look(t, dirs[i+2].Name())
			fifos += n
			if !slices.Equal(got, want) {
				t.Fatalf("the copy is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		if left != (Left{FIFOs: fifos}) {
			t.Fatalf("left out %+v, there are %d FIFOs", left, fifos)
		}
		second, _, err := Snapshot(plenty, Root{"w", dirs[2]}, Root{"tmp", dirs[3]})
		must(t, err)
		if second.Digest != first.Digest || !bytes.Equal(second.Tar, first.Tar) {
			t.Fatal("equal trees have different streams")
		}
		for _, d := range dirs {
			must(t, Wipe(d))
			if rest, _ := os.ReadDir(d.Name()); len(rest) > 0 {
				t.Fatalf("left after the wipe: %v", rest)
			}
		}
	})
}

func TestListIsSorted(t *testing.T) {
	path, dir := folder(t)
	must(t, Write(dir, sandbox.File{Path: "b/z"}, sandbox.File{Path: "b/a/x", Data: []byte("123"), Mode: 0o755}, sandbox.File{Path: "a"}))
	must(t, os.Symlink("x", filepath.Join(path, "c")))
	all, err := list(dir, 6)
	must(t, err)
	var got []string
	for _, e := range all {
		got = append(got, fmt.Sprintf("%s %v %d", e.Path, e.Mode, e.Size))
	}
	want := []string{"a -rw-r--r-- 0", "b drwxr-xr-x 0", "b/a drwxr-xr-x 0", "b/a/x -rwxr-xr-x 3", "b/z -rw-r--r-- 0", "c L--------- 0"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	var large *sandbox.TooLargeError
	if _, err := list(dir, 5); !errors.As(err, &large) {
		t.Errorf("6 entries where 5 are allowed: %v", err)
	}
}

// hostile is a tree as a program would make it to get at the host's files.
func hostile(t *testing.T) (dir *os.File, secret string) {
	t.Helper()
	path, dir := folder(t)
	secret = filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("host"), 0o600))
	outside := filepath.Dir(secret)
	for link, target := range map[string]string{
		"shadow": "/etc/shadow", "secret": secret, "dir": outside, "up": "..", "self": "self", "proc": "/proc/self/root", "inside": "plain", "gone": "nowhere",
	} {
		must(t, os.Symlink(target, filepath.Join(path, link)))
	}
	must(t, os.WriteFile(filepath.Join(path, "plain"), []byte("own"), 0o644))
	must(t, os.Mkdir(filepath.Join(path, "folder"), 0o755))
	must(t, os.Symlink(outside, filepath.Join(path, "folder", "out")))
	must(t, unix.Mkfifo(filepath.Join(path, "fifo"), 0o666))
	must(t, os.Link(filepath.Join(path, "plain"), filepath.Join(path, "hard")))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(path, "socket")}))
	return dir, secret
}

// kindOf names the kind of an error.
func kindOf(err error) string {
	var escape *sandbox.EscapeError
	var large *sandbox.TooLargeError
	var path *sandbox.PathError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &escape):
		return "escape"
	case errors.As(err, &large):
		return "too large"
	case errors.As(err, &path):
		return "path"
	case errors.Is(err, fs.ErrNotExist):
		return "not there"
	}
	return err.Error()
}

func TestHostileTreeLeadsNowhere(t *testing.T) {
	dir, secret := hostile(t)
	for _, c := range []struct{ path, read, write string }{
		{"shadow", "escape", "escape"},
		{"secret", "escape", "escape"},
		{"dir/secret", "escape", "escape"},
		{"dir/new", "escape", "escape"},
		{"up/x", "escape", "escape"},
		{"self", "escape", "escape"},
		{"proc/etc/passwd", "escape", "escape"},
		{"inside", "escape", "escape"},
		{"gone", "escape", "escape"},
		{"folder/out/secret", "escape", "escape"},
		{"../x", "escape", "escape"},
		{"/etc/passwd", "escape", "escape"},
		{"folder/../../x", "escape", "escape"},
		{"", "path", "path"},
		{"a\x00b", "path", "path"},
		{"folder", "path", "path"},
		{".", "path", "path"},
		{"plain/x", "path", "path"},
		{strings.Repeat("x", 256), "path", "path"},
		{strings.Repeat("xxxxxxxxx/", 450) + "x", "path", "ok"},
		{"none", "not there", "ok"},
		{"none/such", "path", "path"}, // the one before made it a file
		{"no/such", "not there", "ok"},
		{"folder/./../plain", "ok", "ok"},
		{"socket", "path", "ok"},
		{"fifo", "path", "ok"},
		{"hard", "ok", "ok"},
	} {
		name := strings.ToValidUTF8(fmt.Sprintf("%.40q", c.path), "")
		if _, err := Read(dir, c.path, 100); kindOf(err) != c.read {
			t.Errorf("read %s: %v, want %s", name, err, c.read)
		}
		if err := Write(dir, sandbox.File{Path: c.path, Data: []byte("evil")}); kindOf(err) != c.write {
			t.Errorf("write %s: %v, want %s", name, err, c.write)
		}
	}
	if data, _ := os.ReadFile(secret); string(data) != "host" {
		t.Errorf("the host's file is now %q", data)
	}
	if all, _ := os.ReadDir(filepath.Dir(secret)); len(all) != 1 {
		t.Errorf("files came into the host's folder: %v", all)
	}
	must(t, Wipe(dir))
	if _, err := os.Stat(secret); err != nil {
		t.Errorf("the wipe reached the host's file: %v", err)
	}
}

// A file that is written anew is another file: a hard link to the old one keeps what it had.
func TestWriteReplaces(t *testing.T) {
	path, dir := folder(t)
	must(t, os.WriteFile(filepath.Join(path, "a"), []byte("old"), 0o644))
	must(t, os.Link(filepath.Join(path, "a"), filepath.Join(path, "b")))
	must(t, Write(dir, sandbox.File{Path: "a", Data: []byte("new"), Mode: 0o4755}))
	f, err := Read(dir, "a", 3)
	must(t, err)
	if old, _ := os.ReadFile(filepath.Join(path, "b")); string(f.Data) != "new" || f.Mode != 0o755 || string(old) != "old" {
		t.Errorf("a is %q %v, b is %q", f.Data, f.Mode, old)
	}
}

func TestReadKeepsItsLimit(t *testing.T) {
	path, dir := folder(t)
	must(t, os.WriteFile(filepath.Join(path, "f"), make([]byte, 100), 0o644))
	if f, err := Read(dir, "f", 100); err != nil || len(f.Data) != 100 {
		t.Errorf("%d bytes, %v", len(f.Data), err)
	}
	if _, err := Read(dir, "f", 99); kindOf(err) != "too large" {
		t.Errorf("100 bytes with a limit of 99: %v", err)
	}
	must(t, os.Truncate(filepath.Join(path, "f"), 1<<40))
	if _, err := Read(dir, "f", 1<<20); kindOf(err) != "too large" {
		t.Errorf("a sparse file of 1 TiB: %v", err)
	}
	if _, _, err := Snapshot(1<<20, Root{"w", dir}); kindOf(err) != "too large" {
		t.Errorf("a snapshot of it: %v", err)
	}
	must(t, os.Truncate(filepath.Join(path, "f"), 1<<20))
	if _, _, err := Snapshot(1<<20, Root{"w", dir}); kindOf(err) != "too large" {
		t.Errorf("a snapshot whose headers are over the limit: %v", err)
	}
}

// While a program swaps a folder for a link to the host's and back, nothing of the host is read, written or removed.
func TestSwappedFoldersLeadNowhere(t *testing.T) {
	dir, secret := hostile(t)
	path, outside := dir.Name(), filepath.Dir(secret)
	must(t, os.Mkdir(filepath.Join(path, "real"), 0o755))
	must(t, os.WriteFile(filepath.Join(path, "real", "secret"), []byte("own"), 0o644))
	must(t, os.Symlink(outside, filepath.Join(path, "link")))
	var stop atomic.Bool
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for !stop.Load() {
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(path, "real"), unix.AT_FDCWD, filepath.Join(path, "link"), unix.RENAME_EXCHANGE)
		}
	})
	escapes, reads := 0, 0
	for end := time.Now().Add(10 * time.Second); (escapes < 50 || reads < 50) && time.Now().Before(end); {
		f, err := Read(dir, "real/secret", 100)
		if err == nil && string(f.Data) != "own" {
			t.Fatalf("read %q of the host", f.Data)
		}
		switch kindOf(err) {
		case "ok":
			reads++
		case "escape":
			escapes++
		case "not there":
		default:
			t.Fatal(err)
		}
		_ = Write(dir, sandbox.File{Path: "real/secret", Data: []byte("own")}, sandbox.File{Path: "real/deep/new", Data: []byte("x")})
		if s, _, err := Snapshot(plenty, Root{"w", dir}); err == nil && bytes.Contains(s.Tar, []byte("host")) {
			t.Fatal("the snapshot holds the host's file")
		}
	}
	_ = Wipe(dir) // with the swapper at work
	stop.Store(true)
	swapper.Wait()
	must(t, Wipe(dir))
	if escapes == 0 || reads == 0 {
		t.Errorf("%d escapes and %d reads: the race was not run", escapes, reads)
	}
	data, err := os.ReadFile(secret)
	if all, _ := os.ReadDir(outside); err != nil || string(data) != "host" || len(all) != 1 {
		t.Errorf("the host's folder holds %v, its file is %q, %v", all, data, err)
	}
}

// chain makes a folder in a folder, n times: far deeper than any path can name.
func chain(t *testing.T, dir *os.File, n int) {
	t.Helper()
	at, err := unix.Dup(int(dir.Fd()))
	must(t, err)
	for range n {
		must(t, unix.Mkdirat(at, "dddddddd", 0o755))
		next, err := unix.Openat(at, "dddddddd", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(at))
		at = next
	}
	must(t, unix.Close(at))
}

func TestDeepTrees(t *testing.T) {
	_, dir := folder(t)
	chain(t, dir, 1000)
	if _, _, err := Snapshot(plenty, Root{"w", dir}); kindOf(err) != "path" {
		t.Errorf("a snapshot of paths that no one can name: %v", err)
	}
	must(t, Wipe(dir))
	if rest, _ := os.ReadDir(dir.Name()); len(rest) != 0 {
		t.Errorf("left: %v", rest)
	}
}

func TestWipeOfManyAndLocked(t *testing.T) {
	path, dir := folder(t)
	for _, sub := range []string{"", "a", "a/b"} {
		must(t, os.MkdirAll(filepath.Join(path, sub), 0o755))
		for i := range 300 {
			must(t, os.WriteFile(filepath.Join(path, sub, fmt.Sprint(".wipe-", i)), nil, 0))
		}
	}
	must(t, os.Chmod(filepath.Join(path, "a/b"), 0))
	must(t, os.Chmod(filepath.Join(path, "a"), 0))
	must(t, Wipe(dir))
	if rest, _ := os.ReadDir(path); len(rest) != 0 {
		t.Errorf("left: %v", rest)
	}
}

// stream is a tar of anybody's making.
func stream(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		must(t, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			_, err := w.Write(make([]byte, h.Size))
			must(t, err)
		}
	}
	must(t, w.Close())
	return &b
}

func TestUntarOfHostileStreams(t *testing.T) {
	outside := t.TempDir()
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 4} }
	for _, c := range []struct {
		name string
		list []tar.Header
		want string
	}{
		{"up", []tar.Header{file("w/../../x")}, "escape"},
		{"absolute", []tar.Header{file("/etc/x")}, "escape"},
		{"another root", []tar.Header{file("etc/x")}, "escape"},
		{"through a link", []tar.Header{link("w/l", outside), file("w/l/x")}, "escape"},
		{"onto a link", []tar.Header{link("w/l", outside+"/x"), file("w/l")}, "path"},
		{"a folder onto a link", []tar.Header{link("w/l", outside), {Typeflag: tar.TypeDir, Name: "w/l/"}}, "escape"},
		{"twice", []tar.Header{file("w/x"), file("w/x")}, "path"},
		{"device", []tar.Header{{Typeflag: tar.TypeChar, Name: "w/null", Devmajor: 1, Devminor: 3}}, "path"},
		{"fifo", []tar.Header{{Typeflag: tar.TypeFifo, Name: "w/fifo"}}, "path"},
		{"hard link", []tar.Header{{Typeflag: tar.TypeLink, Name: "w/h", Linkname: "/etc/passwd"}}, "path"},
		{"root as a file", []tar.Header{file("w")}, "path"},
		{"too large", []tar.Header{{Typeflag: tar.TypeReg, Name: "w/big", Size: 5000}}, "too large"},
		{"setuid", []tar.Header{{Typeflag: tar.TypeReg, Name: "w/su", Mode: 0o6755}}, "ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, dir := folder(t)
			if err := Untar(stream(t, c.list...), 4096, Root{"w", dir}); kindOf(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if info, err := os.Stat(filepath.Join(path, "su")); err == nil && info.Mode() != 0o755 {
				t.Errorf("mode %v", info.Mode())
			}
		})
	}
	if all, _ := os.ReadDir(outside); len(all) != 0 {
		t.Errorf("it reached %v", all)
	}
}

// No stream makes Untar panic, hang or leave its folder.
func FuzzUntar(f *testing.F) {
	path := f.TempDir()
	must(f, os.WriteFile(filepath.Join(path, "x"), []byte("abc"), 0o644))
	must(f, os.Symlink("..", filepath.Join(path, "l")))
	dir := open(f, path)
	s, _, err := Snapshot(plenty, Root{"w", dir})
	must(f, err)
	must(f, dir.Close())
	f.Add(s.Tar)
	f.Fuzz(func(t *testing.T, data []byte) {
		base, err := os.MkdirTemp("", "untar")
		must(t, err)
		defer os.RemoveAll(base)
		must(t, os.Mkdir(filepath.Join(base, "w"), 0o755))
		d := open(t, filepath.Join(base, "w"))
		defer d.Close()
		_ = Untar(bytes.NewReader(data), 1<<20, Root{"w", d})
		if all, _ := os.ReadDir(base); len(all) != 1 {
			t.Fatalf("beside its folder: %v", all)
		}
		must(t, Wipe(d))
	})
}

// list returns the entries below a folder, what a folder holds right after it, sorted by name. More than so many are a
// *sandbox.TooLargeError.
func list(dir *os.File, most int) (all []Entry, err error) {
	w := walker{dir: dir, room: most}
	defer func() { err = errors.Join(err, w.close()) }()
	err = w.walk(func(e Entry) error {
		all = append(all, e)
		return nil
	})
	return all, err
}
