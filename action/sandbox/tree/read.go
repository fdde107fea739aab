//go:build linux

package tree

import (
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// Read reads one regular file of at most limit bytes below a folder.
func Read(dir *os.File, name string, limit int64) (sandbox.File, error) {
	below, err := clean(name)
	if err != nil {
		return sandbox.File{}, err
	}
	f, err := openBelow(int(dir.Fd()), below, readFlags, 0)
	if err != nil {
		return sandbox.File{}, explain(name, err)
	}
	defer f.Close()
	size, mode, err := regular(f, name)
	if err != nil {
		return sandbox.File{}, err
	}
	if size > limit {
		return sandbox.File{}, &sandbox.TooLargeError{Path: name, Size: size, Limit: limit}
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1)) // it may have grown
	if err != nil {
		return sandbox.File{}, explain(name, err)
	}
	if int64(len(data)) > limit {
		return sandbox.File{}, &sandbox.TooLargeError{Path: name, Size: int64(len(data)), Limit: limit}
	}
	return sandbox.File{Path: name, Data: data, Mode: mode}, nil
}

// regular returns size and permission bits of an open file, or a *sandbox.PathError when it is something else.
func regular(f *os.File, name string) (int64, fs.FileMode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, 0, explain(name, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return st.Size, fs.FileMode(st.Mode & 0o777), nil
	case unix.S_IFDIR:
		return 0, 0, &sandbox.PathError{Path: name, Why: "is a folder"}
	}
	return 0, 0, &sandbox.PathError{Path: name, Why: notRegular}
}
