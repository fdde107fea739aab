//go:build linux

package tree

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// Write writes files below a folder, and the folders on the way to them. A file that is there already is replaced by a new one:
// nothing is written into what a program made, be it a hard link or a FIFO. The error is one of package sandbox where the tree or
// the path is the cause; files before it have been written.
func Write(dir *os.File, files ...sandbox.File) error {
	for _, f := range files {
		name, err := clean(f.Path)
		if err != nil {
			return err
		}
		if err := write(dir, name, f); err != nil {
			return explain(f.Path, err)
		}
	}
	return nil
}

func write(dir *os.File, name string, file sandbox.File) error {
	if name == "." {
		return unix.EISDIR
	}
	parent, err := openParents(dir, path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	f, err := create(parent, path.Base(name))
	if err != nil {
		return err
	}
	_, err = f.Write(file.Data)
	mode := file.Mode.Perm()
	if mode == 0 {
		mode = 0o644
	}
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// openParents opens a folder below dir and makes it, and those above it, where it is missing.
func openParents(dir *os.File, name string) (*os.File, error) {
	f, err := openBelow(int(dir.Fd()), ".", dirFlags, 0)
	if err != nil || name == "." {
		return f, err
	}
	for part := range strings.SplitSeq(name, "/") {
		next, err := openFolder(int(f.Fd()), part, 0o755)
		f.Close()
		if err != nil {
			return nil, err
		}
		f = next
	}
	return f, nil
}

// openFolder opens a folder and makes it where it is missing.
func openFolder(dir int, name string, mode uint32) (*os.File, error) {
	f, err := openBelow(dir, name, dirFlags, 0)
	if errors.Is(err, unix.ENOTDIR) { // which the kernel says of links too
		return nil, linkOr(dir, name, err)
	}
	if !errors.Is(err, unix.ENOENT) {
		return f, err
	}
	if err := unix.Mkdirat(dir, name, mode); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	if f, err = openBelow(dir, name, dirFlags, 0); err != nil {
		return nil, err
	}
	return f, f.Chmod(fs.FileMode(mode)) // the umask is not the tree's
}

// linkOr is ELOOP where a name is a link, else the error given.
func linkOr(dir int, name string, other error) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.ELOOP
	}
	return other
}

// create makes a new file in the place of whatever file has the name. A link there is ELOOP, a folder EISDIR.
func create(dir *os.File, name string) (*os.File, error) {
	const attempts = 100 // against a program that makes the name anew each time
	fd := int(dir.Fd())
	for range attempts {
		f, err := openBelow(fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		if !errors.Is(err, unix.EEXIST) {
			return f, err
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			return nil, unix.ELOOP
		case unix.S_IFDIR:
			return nil, unix.EISDIR
		}
		if err := unix.Unlinkat(fd, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
	}
	return nil, unix.EPERM
}
