//go:build linux && (amd64 || arm64)

package ns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// The folders of a slot. Home is the work folder.
const (
	workDir = "/w"
	tmpDir  = "/tmp"
	shmDir  = "/dev/shm"

	newRoot = "/tmp" // where the new root is put together: every Linux has this folder
)

// build makes the root file system of a slot and enters it. tree is the tree of a rootfs that the host opened, or -1.
func (r *root) build(s setup, tree int) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	r.files = accessOf(s.RootfsWritable)
	source, err := r.source(s.Rootfs, tree)
	if err != nil {
		return err
	}
	// The source is taken hold of first: the new root may hide it.
	if err := r.collect(s, source); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", newRoot, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,nr_inodes=4096,mode=755"); err != nil {
		return fmt.Errorf("mount the new root: %w", err)
	}
	if err := unix.Chdir(newRoot); err != nil {
		return err
	}
	for _, step := range []func(setup) error{r.place, r.devices, r.proc, r.tmpfs, r.etc, r.limit, r.mask, enter} {
		if err := step(s); err != nil {
			return err
		}
	}
	return nil
}

// root is a root file system while it is put together.
type root struct {
	files    access // to what is bound
	trees    []heldTree
	shmStays bool     // shared memory does not go with its last user: an ordinary user may not set that
	lastPid  *os.File // the process id that was given last: can be set once there is no way to write to /proc/sys any more
}

// heldTree is something to be seen at a path, or a symbolic link there.
type heldTree struct {
	at   string
	fd   int
	file bool
	over bool // there is a file at the path already
	link string
}

// source is the folder whose entries become the root's.
func (r *root) source(rootfs string, tree int) (string, error) {
	switch {
	case rootfs == "":
		return "", nil
	case tree < 0:
		return rootfs, nil
	}
	// A tree that the host opened has no path yet: it gets one in a mount that goes away with the old root.
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, newRoot, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return "", fmt.Errorf("mount the rootfs %s: %w", rootfs, err)
	}
	return newRoot, nil
}

// collect opens what is to be seen in the root.
func (r *root) collect(s setup, source string) error {
	if source != "" {
		if err := r.collectRootfs(s.Rootfs, source); err != nil || !s.Net {
			return err
		}
		return r.holdServers(source)
	}
	for _, path := range sandbox.HostFolders() {
		if err := r.hold(path, path[1:]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	held := sandbox.HostEtc(s.Net)
	if s.Net {
		held = append(held, "nsswitch.conf")
	}
	for _, name := range held {
		if err := r.holdTarget("/etc/"+name, "etc/"+name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (r *root) collectRootfs(named, source string) error {
	entries, err := os.ReadDir(source)
	if err != nil {
		return fmt.Errorf("read the rootfs %s: %w", named, err)
	}
	for _, e := range entries {
		switch e.Name() {
		case "proc", "dev", "sys", "run", "w", "tmp":
			continue
		}
		if err := r.hold(filepath.Join(source, e.Name()), e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// holdServers has the host's list of name servers seen in the place of the rootfs's, which is that of another machine or empty.
func (r *root) holdServers(source string) error {
	const servers = "etc/resolv.conf"
	if own, err := os.Lstat(filepath.Join(source, servers)); err != nil || !own.Mode().IsRegular() {
		return nil // nothing to put it over
	}
	fd, err := openTree("/"+servers, reading)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bind /%s: %w", servers, err)
	}
	r.trees = append(r.trees, heldTree{at: servers, fd: fd, over: true})
	return nil
}

// hold takes hold of one path; a symbolic link stays one.
func (r *root) hold(path, at string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	switch {
	case st.Mode().Type() == fs.ModeSymlink:
		link, err := os.Readlink(path)
		if err != nil {
			return err
		}
		r.trees = append(r.trees, heldTree{at: at, fd: -1, link: link})
		return nil
	case st.IsDir() || st.Mode().IsRegular():
		return r.holdTree(path, at, !st.IsDir())
	}
	return nil
}

// holdTarget is hold, but of what a link leads to.
func (r *root) holdTarget(path, at string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	return r.holdTree(path, at, !st.IsDir())
}

func (r *root) holdTree(path, at string, file bool) error {
	fd, err := openTree(path, r.files)
	if err != nil {
		return fmt.Errorf("bind %s: %w", path, err)
	}
	r.trees = append(r.trees, heldTree{at: at, fd: fd, file: file})
	return nil
}

// access is what may be done to a mount, beside what nothing of a sandbox may do (MOUNT_ATTR_NOSUID).
type access uint64

const (
	asDevice access = 0
	writing  access = unix.MOUNT_ATTR_NODEV
	reading  access = unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY
)

func accessOf(writable bool) access {
	if writable {
		return writing
	}
	return reading
}

// openTree returns a copy of a mount from a path on, with all below it, apart from what happens to the original.
func openTree(path string, as access) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, err
	}
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE, Attr_set: unix.MOUNT_ATTR_NOSUID | uint64(as)}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// place puts what was collected into the new root, which is the working directory.
func (r *root) place(setup) error {
	for _, t := range r.trees {
		if err := t.place(); err != nil {
			return fmt.Errorf("place %s: %w", t.at, err)
		}
	}
	return nil
}

func (t heldTree) place() error {
	if t.over {
		defer unix.Close(t.fd)
		return unix.MoveMount(t.fd, "", unix.AT_FDCWD, t.at, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err := os.MkdirAll(filepath.Dir(t.at), 0o755); err != nil {
		return err
	}
	if t.fd < 0 {
		return os.Symlink(t.link, t.at)
	}
	defer unix.Close(t.fd)
	if t.file {
		if err := os.WriteFile(t.at, nil, 0o644); err != nil {
			return err
		}
	} else if err := os.MkdirAll(t.at, 0o755); err != nil {
		return err
	}
	return unix.MoveMount(t.fd, "", unix.AT_FDCWD, t.at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

func (r *root) devices(setup) error {
	if err := os.Mkdir("dev", 0o755); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		fd, err := openTree("/dev/"+name, asDevice)
		if err != nil {
			return fmt.Errorf("bind /dev/%s: %w", name, err)
		}
		if err := (heldTree{at: "dev/" + name, fd: fd, file: true}).place(); err != nil {
			return fmt.Errorf("place /dev/%s: %w", name, err)
		}
	}
	for name, link := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(link, "dev/"+name); err != nil {
			return err
		}
	}
	return nil
}

func (r *root) proc(setup) error {
	if err := os.Mkdir("proc", 0o555); err != nil {
		return err
	}
	if err := unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc (a container must let its /proc be seen in full for that): %w", err)
	}
	return nil
}

// tmpfs makes the folders that programs write to.
func (r *root) tmpfs(s setup) error {
	for _, t := range writable(s) {
		if err := os.MkdirAll("."+t.path, 0o755); err != nil {
			return err
		}
		if err := t.mount("." + t.path); err != nil {
			return err
		}
	}
	return nil
}

// volatile is one tmpfs of a slot.
type volatile struct {
	path  string
	mode  uint32
	bytes int64
}

// writable are the folders that programs may write to, each bounded in bytes and files.
func writable(s setup) []volatile {
	return []volatile{{workDir, 0o755, s.Disk}, {tmpDir, 0o1777, s.Disk}, {shmDir, 0o1777, s.Disk}}
}

// mostFiles is how many files a folder of so many bytes may have.
func mostFiles(bytes int64) int64 {
	const least, most, bytesAFile = 1024, 1 << 17, 4096
	return min(max(bytes/bytesAFile, least), most)
}

// mount mounts the tmpfs. Files are bounded too, since each costs the kernel memory that no limit in bytes counts.
func (t volatile) mount(at string) error {
	data := fmt.Sprintf("size=%d,nr_inodes=%d,mode=%o,uid=%d,gid=%d", t.bytes, mostFiles(t.bytes), t.mode, guest, guest)
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", t.path, err)
	}
	return nil
}

// etc writes the files that programs look for, where no rootfs brings them.
func (r *root) etc(s setup) error {
	if s.Rootfs != "" {
		return nil
	}
	for name, text := range sandbox.EtcFiles() {
		if err := os.MkdirAll("etc", 0o755); err != nil {
			return err
		}
		f, err := os.OpenFile("etc/"+name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) { // bound from the host
			continue
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

const shmForced = "kernel/shm_rmid_forced"

// limit sets what is bounded by namespace. It is done by way of /proc, before that becomes read-only.
func (r *root) limit(s setup) (err error) {
	if err := unix.Sethostname([]byte(sandbox.HostName)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	const reserved = 300 // once ids have gone round, the kernel gives none below
	pids := reserved + 4*s.Pids
	for _, v := range []struct {
		name  string
		value int64
		must  bool
	}{
		{"kernel/pid_max", pids, false}, // one for the host before Linux 6.14
		{"user/max_user_namespaces", 0, true},
		{shmForced, 1, false},                     // shared memory goes with its last user
		{"net/ipv4/tcp_max_tw_buckets", 0, false}, // no port stays taken after a run
	} {
		if s.Net && strings.HasPrefix(v.name, "net/") {
			continue
		}
		err := os.WriteFile("proc/sys/"+v.name, strconv.AppendInt(nil, v.value, 10), 0)
		if err != nil && v.must {
			return fmt.Errorf("set %s: %w", v.name, err)
		}
		r.shmStays = r.shmStays || err != nil && v.name == shmForced
	}
	r.lastPid, err = os.OpenFile("proc/sys/kernel/ns_last_pid", os.O_WRONLY, 0)
	return err
}

// mask hides what of /proc tells of the host or acts on it. Most of it is closed to the slot's user anyway.
func (r *root) mask(setup) error {
	if err := bindSelf("proc/sys"); err != nil {
		return err
	}
	for _, name := range []string{"kcore", "keys", "key-users", "kmsg", "sysrq-trigger", "timer_list", "kallsyms", "modules", "config.gz", "sched_debug", "vmallocinfo"} {
		if err := cover("proc/"+name, "/dev/null"); err != nil {
			return err
		}
	}
	for _, name := range []string{"acpi", "scsi", "bus", "fs", "irq", "driver"} {
		at := "proc/" + name
		if _, err := os.Lstat(at); err != nil {
			continue
		}
		if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,nr_inodes=1,mode=555"); err != nil {
			return fmt.Errorf("hide /%s: %w", at, err)
		}
	}
	return nil
}

func bindSelf(at string) error {
	fd, err := openTree(at, reading)
	if err == nil {
		defer unix.Close(fd)
		err = unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err != nil {
		return fmt.Errorf("make /%s read-only: %w", at, err)
	}
	return nil
}

func cover(at, by string) error {
	if _, err := os.Lstat(at); err != nil {
		return nil // this kernel has none
	}
	fd, err := openTree(by, asDevice)
	if err == nil {
		defer unix.Close(fd)
		err = unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err != nil {
		return fmt.Errorf("hide /%s: %w", at, err)
	}
	return nil
}

// enter makes the new root the root, and the old one unreachable.
func enter(setup) error {
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attr); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	return nil
}
