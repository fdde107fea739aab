//go:build linux

package tree

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// Entry is one name of a tree.
type Entry struct {
	Path string      // below the folder
	Mode fs.FileMode // type, and permission bits but for links; no setuid, setgid or sticky bit
	Size int64       // bytes of a regular file
}

// walker goes through a tree. It holds one descriptor at a time however deep the tree is. Where bits keep even the owner out, they are
// set until close.
type walker struct {
	dir    *os.File
	room   int // entries that may still come
	locked []Entry
}

// walk calls visit for every entry, a folder before what it holds.
func (w *walker) walk(visit func(Entry) error) error {
	pending, err := w.below(".")
	for err == nil && len(pending) > 0 {
		last := len(pending) - 1
		e := pending[last]
		pending = pending[:last]
		if err = visit(e); err != nil || !e.Mode.IsDir() {
			continue
		}
		var inner []Entry
		inner, err = w.below(e.Path)
		pending = append(pending, inner...)
	}
	return err
}

// below lists one folder, the last name first.
func (w *walker) below(at string) ([]Entry, error) {
	f, err := w.open(at, dirFlags)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, nil // gone, or something else, since its folder was listed
	}
	if err != nil {
		return nil, explain(at, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(w.room + 1)
	if err != nil && err != io.EOF {
		return nil, explain(at, err)
	}
	if len(names) > w.room {
		return nil, &sandbox.TooLargeError{Path: at, Size: int64(len(names)), Limit: int64(w.room)}
	}
	w.room -= len(names)
	slices.Sort(names)
	list := make([]Entry, 0, len(names))
	for _, name := range slices.Backward(names) {
		var st unix.Stat_t
		if err := unix.Fstatat(int(f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil { // else it is gone
			list = append(list, entry(path.Join(at, name), &st))
		}
	}
	return list, nil
}

func entry(name string, st *unix.Stat_t) Entry {
	e := Entry{Path: name, Mode: fs.FileMode(st.Mode & 0o777)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Size = st.Size
	case unix.S_IFDIR:
		e.Mode |= fs.ModeDir
	case unix.S_IFLNK:
		e.Mode = fs.ModeSymlink
	case unix.S_IFIFO:
		e.Mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		e.Mode |= fs.ModeSocket
	default:
		e.Mode |= fs.ModeDevice
	}
	return e
}

// open opens a path of the tree, whatever its bits.
func (w *walker) open(name string, flags int) (*os.File, error) {
	if name == "." {
		return openTop(w.dir, flags)
	}
	f, err := openBelow(int(w.dir.Fd()), name, flags, 0)
	if !errors.Is(err, unix.EACCES) {
		return f, err
	}
	if err := w.unlock(name); err != nil {
		return nil, err
	}
	return openBelow(int(w.dir.Fd()), name, flags, 0)
}

func (w *walker) unlock(name string) error {
	parent, err := w.parent(name)
	if err != nil {
		return err
	}
	defer parent.Close()
	var st unix.Stat_t
	if err := unix.Fstatat(int(parent.Fd()), path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	w.locked = append(w.locked, entry(name, &st))
	return chmod(int(parent.Fd()), path.Base(name), st.Mode&0o777|0o700)
}

func (w *walker) parent(name string) (*os.File, error) {
	return openBelow(int(w.dir.Fd()), path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0)
}

// close gives the entries that were unlocked their bits back.
func (w *walker) close() error {
	var errs []error
	for _, e := range slices.Backward(w.locked) {
		parent, err := w.parent(e.Path)
		if err == nil {
			err = chmod(int(parent.Fd()), path.Base(e.Path), uint32(e.Mode.Perm()))
			parent.Close()
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, explain(e.Path, err))
		}
	}
	return errors.Join(errs...)
}
