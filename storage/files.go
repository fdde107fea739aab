package storage

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// fileSystem is what storage does to a disk, and nothing more. The tests put a faulty one in its place: short writes, a full
// disk, a failed fsync or rename at any operation, and the loss of everything that was not synced.
type fileSystem interface {
	MakeDir(path string) error // with parents; an existing one is fine
	Create(path string) (file, error)
	Open(path string) (file, error) // read only
	Rename(from, to string) error   // replaces to
	Remove(path string) error
	Truncate(path string, size int64) error // durable when it returns
	SyncDir(path string) error
	ReadDir(path string) ([]fs.DirEntry, error)
	Stat(path string) (fs.FileInfo, error)
	Lock(path string) (io.Closer, error) // ErrLocked when another process holds it
	Free(path string) (bytes int64, known bool)
}

type file interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.Closer
	Sync() error
	Truncate(size int64) error // moves the write position there as well
	Stat() (fs.FileInfo, error)
}

// disk is the real file system.
type disk struct{}

type diskFile struct{ *os.File }

func (f diskFile) Truncate(size int64) error {
	if err := f.File.Truncate(size); err != nil {
		return err
	}
	_, err := f.Seek(size, io.SeekStart)
	return err
}

func (disk) MakeDir(path string) error { return os.MkdirAll(path, 0o755) }

func (disk) Create(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

func (disk) Open(path string) (file, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

func (disk) Rename(from, to string) error { return os.Rename(from, to) }

func (disk) Remove(path string) error { return os.Remove(path) }

func (disk) Truncate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	return f.Sync()
}

func (disk) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (disk) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }

func (disk) Stat(path string) (fs.FileInfo, error) { return os.Stat(path) }

func (disk) Lock(path string) (io.Closer, error) { return lockFile(path) }

func (disk) Free(path string) (int64, bool) { return FreeBytes(path) }

func readFile(fsys fileSystem, path string) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// replaceFile gives path new content in one step: a reader, and a crash at any moment, sees the old or the new bytes whole.
func replaceFile(fsys fileSystem, path string, data []byte) error {
	dir, name := filepath.Split(path)
	temp := filepath.Join(dir, tempPrefix+name)
	if err := writeNew(fsys, temp, data); err != nil {
		_ = fsys.Remove(temp) // a full disk is not to be filled with halves; what stays is swept by the next Open
		return fmt.Errorf("write %s: %w", temp, err)
	}
	if err := fsys.Rename(temp, path); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sync the folder of %s: %w", path, err)
	}
	return nil
}

// writeNew writes a whole file and makes its content durable; its name is durable only after SyncDir.
func writeNew(fsys fileSystem, path string, data []byte) error {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
