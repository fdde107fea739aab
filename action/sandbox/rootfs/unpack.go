//go:build linux

package rootfs

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/tree"
)

// unpack makes the folder home of a tar file whose digest is key. It is there as a whole or not at all.
func (c Config) unpack(ctx context.Context, file, key, home string) error {
	part := home + partSuffix
	if err := wipe(part); err != nil { // of one that was killed
		return err
	}
	top := filepath.Join(part, treeName)
	if err := firstOf(os.MkdirAll(top, 0o755), os.Chmod(part, 0o755), os.Chmod(top, 0o755)); err != nil { // whatever the umask: users of sandboxes go through
		return err
	}
	bytes, err := c.extract(ctx, file, key, top)
	var digest string
	if err == nil {
		digest, err = c.treeDigest(ctx, top)
	}
	for name, text := range map[string]string{digestName: digest, bytesName: strconv.FormatInt(bytes, 10)} {
		if err == nil {
			err = os.WriteFile(filepath.Join(part, name), []byte(text+"\n"), 0o644)
		}
	}
	if err == nil {
		return os.Rename(part, home)
	}
	return errors.Join(err, wipe(part))
}

// wipe removes a folder, whatever bits what is in it has.
func wipe(dir string) error {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return firstOf(tree.Wipe(f), os.Remove(dir))
}

// extract makes what a tar file holds below a folder, and checks that it is the file it was taken for. It returns the length of the stream.
func (c Config) extract(ctx context.Context, file, key, top string) (bytes int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h := sha256.New()
	raw := io.TeeReader(f, untilDone{ctx, h})
	stream, err := plain(raw)
	if err == nil {
		bytes, err = c.unpackStream(stream, top)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, raw)
	}
	if err == nil && hex.EncodeToString(h.Sum(nil)) != key {
		err = fmt.Errorf("%s was changed while it was read", file)
	}
	return bytes, err
}

// unpackStream makes what a tar stream holds below a folder.
func (c Config) unpackStream(stream io.Reader, top string) (bytes int64, err error) {
	root, err := os.OpenRoot(top)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	u := unpacker{root: root, tar: tar.NewReader(stream), left: c.MaxBytes, limit: c.MaxBytes}
	err = u.all()
	return u.limit - u.left, err
}

// plain takes the compression off a stream that has one.
func plain(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	if magic, _ := b.Peek(2); string(magic) == "\x1f\x8b" {
		return gzip.NewReader(b)
	}
	return b, nil
}

// unpacker makes the tree of one stream. Names are resolved below root: no link leads out of it.
type unpacker struct {
	root        *os.Root
	tar         *tar.Reader
	left, limit int64 // bytes
	folders     []folder
}

// folder gets its bits when all that it holds is there.
type folder struct {
	name string
	mode fs.FileMode
}

const tarBlock = 512 // bytes of a header

func (u *unpacker) all() error {
	for {
		h, err := u.tar.Next()
		if err == io.EOF {
			return u.setModes()
		}
		if err != nil {
			return err
		}
		if u.left -= tarBlock + h.Size; u.left < 0 {
			return &sandbox.TooLargeError{Path: h.Name, Size: u.limit - u.left, Limit: u.limit}
		}
		name, err := local(h.Name)
		if err != nil {
			return err
		}
		if err := u.entry(name, h); err != nil {
			return fmt.Errorf("entry %q: %w", h.Name, err)
		}
	}
}

// local is a name of the stream below the folder. Some streams begin all of them with ./ or /.
func local(name string) (string, error) {
	below := path.Clean(strings.TrimLeft(name, "/"))
	if !filepath.IsLocal(below) {
		return "", &sandbox.EscapeError{Path: name}
	}
	return below, nil
}

func (u *unpacker) entry(name string, h *tar.Header) error {
	mode := fs.FileMode(h.Mode & 0o777) // no setuid: nobody gains anything in a sandbox
	if h.Typeflag == tar.TypeDir && name == "." {
		return nil // the top is ours
	}
	if h.Typeflag == tar.TypeDir {
		u.folders = append(u.folders, folder{name, mode})
		return u.folder(name)
	}
	if !slices.Contains([]byte{tar.TypeReg, tar.TypeSymlink, tar.TypeLink}, h.Typeflag) {
		return nil // a device or the like: a sandbox has its own
	}
	if err := u.parents(path.Dir(name)); err != nil {
		return err
	}
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // the later of two is the one that counts
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return u.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		target, err := local(h.Linkname)
		if err != nil {
			return err
		}
		return u.root.Link(target, name)
	}
	return u.file(name, mode, h.ModTime)
}

// parents makes the folders on the way to an entry that the stream has not brought; one that it brings later gets the bits it says.
func (u *unpacker) parents(name string) error {
	for at := name; at != "."; at = path.Dir(at) {
		if _, err := u.root.Lstat(at); err == nil {
			break
		}
		u.folders = append(u.folders, folder{at, 0o755})
	}
	return u.root.MkdirAll(name, 0o755)
}

func (u *unpacker) folder(name string) error {
	if err := u.parents(path.Dir(name)); err != nil {
		return err
	}
	info, err := u.root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = u.root.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return u.root.MkdirAll(name, 0o755) // there already is fine
}

// file makes a file. The time it was written at is kept: a compiled module of python is only used where it is that of its source.
func (u *unpacker) file(name string, mode fs.FileMode, written time.Time) error {
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, u.tar)
	if err = firstOf(err, f.Chmod(mode), f.Close()); err == nil && written.Unix() > 0 {
		err = u.root.Chtimes(name, written, written)
	}
	return err
}

// setModes gives folders their bits, inner ones first: some keep their owner out. One that a later entry replaced has none any more.
func (u *unpacker) setModes() error {
	last := map[string]fs.FileMode{}
	for _, f := range u.folders {
		last[f.name] = f.mode
	}
	slices.SortFunc(u.folders, func(a, b folder) int { return strings.Compare(b.name, a.name) })
	for _, f := range u.folders {
		if info, err := u.root.Lstat(f.name); err != nil || !info.IsDir() {
			continue
		}
		if err := u.root.Chmod(f.name, last[f.name]); err != nil {
			return err
		}
	}
	return nil
}
