//go:build linux

package tree

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// openBelow opens a path below a folder. "." is the folder itself. A link anywhere on the way, the last name included, is ELOOP.
func openBelow(dir int, name string, flags int, mode uint32) (*os.File, error) {
	how := unix.OpenHow{
		Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Mode: uint64(mode),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// readFlags open a regular file, and do not wait where it turns out to be a FIFO.
const (
	readFlags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	dirFlags  = unix.O_RDONLY | unix.O_DIRECTORY
)

// openTop opens the folder itself anew, also where its bits keep the owner out.
func openTop(dir *os.File, flags int) (*os.File, error) {
	f, err := openBelow(int(dir.Fd()), ".", flags, 0)
	if errors.Is(err, unix.EACCES) && dir.Chmod(0o700) == nil {
		return openBelow(int(dir.Fd()), ".", flags, 0)
	}
	return f, err
}

// chmod changes the bits of what a name is, never of what it links to.
func chmod(dir int, name string, mode uint32) error {
	err := unix.Fchmodat(dir, name, mode, unix.AT_SYMLINK_NOFOLLOW)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	f, err := openBelow(dir, name, unix.O_PATH, 0) // a kernel before 6.6, or a link, which this does not open
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), mode)
}

// clean returns a path as the tree knows it; one that names its way out is an *sandbox.EscapeError.
func clean(name string) (string, error) {
	if strings.IndexByte(name, 0) >= 0 {
		return "", &sandbox.PathError{Path: name, Why: "a name has no zero byte"}
	}
	if name == "" {
		return "", &sandbox.PathError{Path: name, Why: "is empty, expected the path of a file"}
	}
	if !filepath.IsLocal(name) {
		return "", &sandbox.EscapeError{Path: name}
	}
	return path.Clean(name), nil
}

// explain turns what the kernel said about a path into what it means.
func explain(name string, err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err
	}
	switch errno {
	case unix.ELOOP, unix.EXDEV:
		return &sandbox.EscapeError{Path: name}
	case unix.ENOENT:
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case unix.ENOSPC, unix.EDQUOT:
		return &sandbox.FullError{Path: name}
	case unix.EISDIR:
		return &sandbox.PathError{Path: name, Why: "is a folder"}
	case unix.ENOTDIR:
		return &sandbox.PathError{Path: name, Why: "goes through something that is no folder"}
	case unix.EEXIST:
		return &sandbox.PathError{Path: name, Why: "is there already"}
	case unix.ENXIO:
		return &sandbox.PathError{Path: name, Why: notRegular}
	case unix.ENAMETOOLONG, unix.EACCES, unix.EPERM, unix.EFBIG, unix.ENOTEMPTY, unix.ETXTBSY:
		return &sandbox.PathError{Path: name, Why: errno.Error()}
	}
	return &fs.PathError{Op: "open", Path: name, Err: err}
}

const notRegular = "is no regular file"
