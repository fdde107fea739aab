//go:build linux

package tree

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Wipe removes all that a folder holds, whatever its bits, depth and names. Inner folders are moved up to the top before they are
// emptied, so no path becomes long and two descriptors are enough. An error says that something was left.
func Wipe(dir *os.File) error {
	const rounds = 8 // more than one only where something still writes there
	w := wiper{top: int(dir.Fd())}
	for range rounds {
		names, err := namesOf(dir)
		if err != nil {
			return fmt.Errorf("wipe: %w", err)
		}
		if len(names) == 0 {
			return nil
		}
		w.folders, w.err = nil, nil
		w.empty(w.top, names)
		for len(w.folders) > 0 {
			last := len(w.folders) - 1
			name := w.folders[last]
			w.folders = w.folders[:last]
			w.folder(name)
		}
	}
	return fmt.Errorf("wipe: there is still something left: %w", errors.Join(w.err, unix.ENOTEMPTY))
}

// wiper empties one folder.
type wiper struct {
	top     int
	folders []string // directly below top, to be emptied and removed
	moved   int      // names given so far
	err     error    // the last thing that failed
}

func namesOf(dir *os.File) ([]string, error) {
	f, err := openTop(dir, dirFlags)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// folder empties one folder, its inner ones being moved up, and removes it.
func (w *wiper) folder(name string) {
	f, err := openBelow(w.top, name, dirFlags, 0)
	if errors.Is(err, unix.EACCES) {
		if err = chmod(w.top, name, 0o700); err == nil {
			f, err = openBelow(w.top, name, dirFlags, 0)
		}
	}
	if err != nil {
		w.err = err
		return
	}
	defer f.Close()
	if err := f.Chmod(0o700); err != nil {
		w.err = err
	}
	names, err := f.Readdirnames(-1)
	if err != nil {
		w.err = err
	}
	w.empty(int(f.Fd()), names)
	if err := unix.Unlinkat(w.top, name, unix.AT_REMOVEDIR); err != nil {
		w.err = err
	}
}

// empty removes the names of one open folder; what is a folder is left for later, at the top.
func (w *wiper) empty(fd int, names []string) {
	for _, name := range names {
		err := unix.Unlinkat(fd, name, 0)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
		case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM): // EPERM: what POSIX says of a folder
			w.err = err
		case fd == w.top:
			w.folders = append(w.folders, name)
		default:
			w.lift(fd, name)
		}
	}
}

// lift moves a folder to the top, under a new name.
func (w *wiper) lift(fd int, name string) {
	for {
		up := fmt.Sprintf(".wipe-%d", w.moved)
		w.moved++
		err := unix.Renameat2(fd, name, w.top, up, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EACCES) && chmod(fd, name, 0o700) == nil { // its ".." changes: it must be writable
			err = unix.Renameat2(fd, name, w.top, up, unix.RENAME_NOREPLACE)
		}
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			w.err = err
			return
		}
		w.folders = append(w.folders, up)
		return
	}
}
