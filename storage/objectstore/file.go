package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tranche/storage"
)

// folder is a place in a file system, such as a network mount. An object is a file; it gets its name when it is whole and synced.
type folder struct {
	root  string
	tries tries
}

const (
	halfPrefix = ".tmp-"          // of files that are being written
	folderLock = ".tranche-store" // held while a condition is looked at and the file replaced
)

func (f *folder) String() string { return place{scheme: "file", path: f.root}.String() }

func (f *folder) path(key string) string { return filepath.Join(f.root, filepath.FromSlash(key)) }

// fileFault sorts what the file system says.
func fileFault(op, key string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Key: key, Status: -1, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Kind = ErrNotFound
	case errors.Is(err, fs.ErrPermission):
		e.Kind = ErrDenied
	case errors.Is(err, storage.ErrLocked):
		e.Status = 0 // another publisher is at it for a moment
	}
	return e
}

func (f *folder) Put(ctx context.Context, key string, body io.ReaderAt, size int64, sum string, when Condition) (Object, error) {
	err := f.tries.do(ctx, func() error {
		err := f.put(ctx, key, body, size, when)
		if e := (*Error)(nil); errors.As(err, &e) {
			return err
		}
		return fileFault("put", key, err)
	})
	if errors.Is(err, ErrConflict) {
		return settled(ctx, f, key, size, sum, err)
	}
	return Object{Key: key, Bytes: size, SHA256: sum, Version: sum}, err
}

func (f *folder) put(ctx context.Context, key string, body io.ReaderAt, size int64, when Condition) error {
	name := f.path(key)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(name), halfPrefix+filepath.Base(name)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // it is gone when all went well
	_, err = io.Copy(temp, &obedient{ctx, io.NewSectionReader(body, 0, size)})
	if err == nil {
		err = errors.Join(temp.Chmod(0o644), temp.Sync())
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err := f.install(ctx, temp.Name(), key, when); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// install gives a whole file its name, under the lock where there is a condition.
func (f *folder) install(ctx context.Context, temp, key string, when Condition) error {
	if when == (Condition{}) {
		return os.Rename(temp, f.path(key))
	}
	lock, err := os.OpenFile(filepath.Join(f.root, folderLock), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := storage.LockFile(lock); err != nil {
		return err
	}
	o, err := f.Stat(ctx, key)
	switch {
	case err != nil && !errors.Is(err, ErrNotFound):
		return err
	case err == nil && when.Absent, when.Version != "" && o.Version != when.Version:
		return &Error{Op: "put", Key: key, Kind: ErrConflict}
	}
	return os.Rename(temp, f.path(key))
}

// obedient stops reading when its context ends.
type obedient struct {
	ctx context.Context
	r   io.Reader
}

func (o *obedient) Read(b []byte) (int, error) {
	if o.ctx.Err() != nil {
		return 0, context.Cause(o.ctx)
	}
	return o.r.Read(b)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (f *folder) Get(_ context.Context, key string) (io.ReadCloser, Object, error) {
	file, err := os.Open(f.path(key))
	if err != nil {
		return nil, Object{}, fileFault("get", key, err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: no file", fs.ErrNotExist)
	}
	if err != nil {
		return nil, Object{}, fileFault("get", key, errors.Join(err, file.Close()))
	}
	sum, err := sumOf(file, 0, info.Size())
	if err != nil {
		return nil, Object{}, fileFault("get", key, errors.Join(err, file.Close()))
	}
	return file, Object{Key: key, Bytes: info.Size(), SHA256: sum, Version: sum}, nil
}

// Stat reads the whole file: its sum is kept nowhere else.
func (f *folder) Stat(ctx context.Context, key string) (Object, error) {
	file, o, err := f.Get(ctx, key)
	if err != nil {
		return o, err
	}
	return o, file.Close()
}

func (f *folder) List(ctx context.Context) ([]Object, error) {
	var list []Object
	err := f.walk(ctx, func(key string, half bool, d fs.DirEntry) error {
		info, err := d.Info()
		if half || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			list = append(list, Object{Key: key, Bytes: info.Size()})
		}
		return err
	})
	return list, fileFault("list", "", err)
}

// walk visits every file but the lock; half tells those that are being written.
func (f *folder) walk(ctx context.Context, do func(key string, half bool, d fs.DirEntry) error) error {
	return filepath.WalkDir(f.root, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the folder is not there yet, or a file has just gone
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil || !d.Type().IsRegular() || d.Name() == folderLock {
			return err
		}
		key, err := filepath.Rel(f.root, name)
		if err != nil {
			return err
		}
		return do(filepath.ToSlash(key), strings.HasPrefix(d.Name(), halfPrefix), d)
	})
}

func (f *folder) Delete(_ context.Context, key string) error {
	err := os.Remove(f.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncDir(filepath.Dir(f.path(key)))
	}
	return fileFault("delete", key, err)
}

func (f *folder) Sweep(ctx context.Context) error {
	err := f.walk(ctx, func(key string, half bool, _ fs.DirEntry) error {
		if !half {
			return nil
		}
		return f.Delete(ctx, key)
	})
	return fileFault("sweep", "", err)
}

// apart refuses a folder store that shares files with a run directory: what the one sweeps would be the rows of the other.
func apart(s Store, dir string) error {
	f, ok := s.(*folder)
	if !ok {
		return nil
	}
	root, err := followed(f.root)
	if err != nil {
		return err
	}
	run, err := followed(dir)
	if err != nil {
		return err
	}
	if within(root, run) || within(run, root) {
		return fmt.Errorf("%s and %s: %w", s, dir, ErrOverlap)
	}
	return nil
}

// followed is the absolute path without symbolic links; of one that is not there yet, as much as is.
func followed(name string) (string, error) {
	name, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	rest := ""
	for at := name; ; at = filepath.Dir(at) {
		real, err := filepath.EvalSymlinks(at)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if at == filepath.Dir(at) {
			return name, nil
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// within tells whether a path is another one or lies under it. Names do not tell where a folder is mounted twice.
func within(name, outer string) bool {
	there, err := os.Stat(outer)
	for {
		if name == outer {
			return true
		}
		if info, ierr := os.Stat(name); err == nil && ierr == nil && os.SameFile(info, there) {
			return true
		}
		up := filepath.Dir(name)
		if up == name {
			return false
		}
		name = up
	}
}
