package storage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrExists: there is a file of that name already.
var ErrExists = errors.New("there is such a file already")

// PublishFile makes a file in one step. What write writes goes to a temporary name beside it, is synced, read back by check, and gets its name then.
// After an error the path is as it was, and nothing is left beside it. An existing file is ErrExists, unless replace says that it may be replaced.
func PublishFile(path string, replace bool, write func(io.Writer) error, check func(path string) error) error {
	return publishFile(disk{}, path, replace, write, check)
}

func publishFile(fsys fileSystem, path string, replace bool, write func(io.Writer) error, check func(path string) error) error {
	if err := free(fsys, path, replace); err != nil {
		return err
	}
	dir, name := filepath.Split(path)
	temp := filepath.Join(dir, halfName(name))
	err := writeThrough(fsys, temp, write)
	if err == nil {
		err = check(temp)
		if err != nil {
			err = fmt.Errorf("read %s back: %w", temp, err)
		}
	}
	if err == nil {
		err = free(fsys, path, replace) // writing may have taken hours
	}
	if err == nil {
		err = fsys.Rename(temp, path)
	}
	if err != nil {
		_ = fsys.Remove(temp)
		return err
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sync the folder of %s: %w", path, err)
	}
	return nil
}

// halfName is what a file is called until it is whole.
func halfName(name string) string { return tempPrefix + strconv.Itoa(os.Getpid()) + "-" + name }

// HalfPublished tells what a file was to be called that PublishFile was writing, in whatever process, when that was killed; false for any other file.
func HalfPublished(base string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(base, tempPrefix)
	process, name, dash := strings.Cut(rest, "-")
	return name, ok && dash && strings.Trim(process, "0123456789") == ""
}

func free(fsys fileSystem, path string, replace bool) error {
	info, err := fsys.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s: expected the name of a file, this is a folder", path)
	case !replace:
		return fmt.Errorf("%s: %w", path, ErrExists)
	}
	return nil
}

func writeThrough(fsys fileSystem, path string, write func(io.Writer) error) error {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	buffer := bufio.NewWriterSize(f, 256<<10)
	err = write(buffer)
	if err == nil {
		err = buffer.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
