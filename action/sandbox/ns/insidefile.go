//go:build linux && (amd64 || arm64)

package ns

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox/tree"
)

// openFolders takes hold of the folders that files are put into.
func (in *inside) openFolders() (err error) {
	if in.work, err = openFolder(workDir); err != nil {
		return err
	}
	in.tmp, err = openFolder(tmpDir)
	return err
}

func openFolder(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

func (in *inside) roots() []tree.Root {
	return []tree.Root{{Name: "w", Dir: in.work}, {Name: "tmp", Dir: in.tmp}}
}

// file does one request about files, on the thread that has a program's rights. The descriptor is a file in memory.
func (in *inside) file(req *request, fd int) {
	f := os.NewFile(uintptr(fd), "request")
	defer f.Close()
	switch req.Op {
	case opPut:
		in.done(req.ID, in.put(f))
	case opGet:
		in.get(req, f)
	case opSnapshot:
		in.done(req.ID, in.snapshot(req, f))
	case opRestore:
		in.done(req.ID, tree.Untar(bufio.NewReaderSize(f, 64<<10), req.Limit, in.roots()...))
	}
}

func (in *inside) put(f *os.File) error {
	m, err := mapped(f)
	if err != nil {
		return err
	}
	defer unix.Munmap(m)
	var files fileSet
	if err := decode(m, &files); err != nil {
		return err
	}
	return tree.Write(in.work, files...)
}

// mapped is what a file in memory holds, without a copy in the init.
func mapped(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
}

func (in *inside) get(req *request, f *os.File) {
	file, err := tree.Read(in.work, req.Path, req.Limit)
	if err == nil {
		_, err = f.Write(file.Data)
	}
	if err != nil {
		in.reply(failure(req.ID, err))
		return
	}
	in.reply(reply{ID: req.ID, What: saidDone, Mode: uint64(file.Mode)})
}

func (in *inside) snapshot(req *request, f *os.File) error {
	w := bufio.NewWriterSize(f, 64<<10)
	_, err := tree.Tar(w, req.Limit, in.roots()...)
	return errors.Join(err, w.Flush())
}

func (in *inside) digest(req *request) {
	sum, bytes, err := tree.Digest(req.Limit, in.roots()...)
	if err != nil {
		in.done(req.ID, err)
		return
	}
	in.reply(reply{ID: req.ID, What: saidDone, Text: sum, Size: bytes})
}

// wipe makes the folders that programs write to as they were. What is not empty is thrown away as a whole, whatever is in it.
func (in *inside) wipe() error {
	var dirty []volatile
	for _, t := range writable(in.setup) {
		if !t.clean() {
			dirty = append(dirty, t)
		}
	}
	if dirty == nil {
		return nil
	}
	if err := in.renew(dirty); err != nil {
		return err
	}
	in.work.Close()
	in.tmp.Close()
	return in.openFolders()
}

func (in *inside) renew(dirty []volatile) error {
	if in.setup.Launched {
		return renewLaunched(dirty)
	}
	return in.asRootDo(func() error { return renew(dirty) })
}

func renew(dirty []volatile) error {
	for _, t := range dirty {
		if err := unix.Unmount(t.path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("wipe %s: %w", t.path, err)
		}
		if err := t.mount(t.path); err != nil {
			return err
		}
	}
	return nil
}

// clean reports that a folder is as it was made: nothing in it or of it left, bits and attributes untouched.
func (t volatile) clean() bool {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Statfs(t.path, &fs) != nil || unix.Lstat(t.path, &st) != nil {
		return false
	}
	names, err := unix.Listxattr(t.path, nil)
	return err == nil && names == 0 && fs.Files-fs.Ffree == 1 && fs.Blocks == fs.Bfree && st.Mode&0o7777 == t.mode
}
