//go:build linux && (amd64 || arm64)

package bwrap

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
	"tranche/action/sandbox/ns"
	"tranche/action/sandbox/seccomp"
)

// Config is how the back end works on this host. Zero fields take the defaults.
type Config struct {
	// Program is bubblewrap, 0.8 or later. Default: bwrap, looked up in PATH.
	Program string
	// Tier forces the tier of the limits. "" = the strongest that works.
	Tier sandbox.Tier
}

const backend = "bwrap"

// Find looks for bubblewrap.
func Find(program string) (string, error) {
	path, err := exec.LookPath(cmp.Or(program, "bwrap"))
	if err != nil {
		return "", fmt.Errorf("sandbox %s needs bubblewrap, which is not installed (its package is called bubblewrap): %w", backend, err)
	}
	return path, nil
}

// New makes the back end and finds out, by running a program, what this host can hold. The program that calls it must call ns.Init first
// thing in its main.
func New(c Config) (*ns.Executor, error) {
	program, err := Find(c.Program)
	if err != nil {
		return nil, err
	}
	return ns.New(ns.Config{Tier: c.Tier, Launch: &ns.Launch{Backend: backend, Command: func(o ns.LaunchOrder) ([]string, []*os.File, error) {
		l := line{args: []string{program}, first: o.FirstFile}
		err := l.build(o)
		return l.args, l.files, err
	}}})
}

// line is a command line of bubblewrap while it is put together. Its order is the order in which things are done.
type line struct {
	args  []string
	files []*os.File
	first int // number of the first file
}

func (l *line) add(args ...string) { l.args = append(l.args, args...) }

func (l *line) build(o ns.LaunchOrder) error {
	id := strconv.Itoa(sandbox.GuestID)
	l.add("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--disable-userns", "--uid", id, "--gid", id, "--hostname", sandbox.HostName,
		"--die-with-parent", "--as-pid-1", "--cap-drop", "ALL", "--chdir", "/")
	if !o.Spec.Net {
		l.add("--unshare-net")
	}
	for _, step := range []func(sandbox.Spec) error{l.root, l.devices, l.proc, l.writable, l.filter} {
		if err := step(o.Spec); err != nil {
			return err
		}
	}
	l.add("--remount-ro", "/", "--")
	l.add(o.Program...)
	return nil
}

// root shows what is declared of the host, or a rootfs.
func (l *line) root(spec sandbox.Spec) error {
	if spec.Rootfs != "" {
		return l.rootfs(spec)
	}
	for _, path := range sandbox.HostFolders() {
		if err := l.show(path, path); err != nil {
			return err
		}
	}
	for _, name := range sandbox.HostEtc(spec.Net) {
		l.add("--ro-bind-try", "/etc/"+name, "/etc/"+name)
	}
	return l.etc()
}

// show binds a folder or file of the host read-only; a symbolic link stays one, and what is not there is not shown.
func (l *line) show(path, at string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case st.Mode().Type() == fs.ModeSymlink:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		l.add("--symlink", target, at)
	case st.IsDir() || st.Mode().IsRegular():
		l.add("--ro-bind", path, at)
	}
	return nil
}

func (l *line) rootfs(spec sandbox.Spec) error {
	entries, err := os.ReadDir(spec.Rootfs)
	if err != nil {
		return fmt.Errorf("read the rootfs: %w", err)
	}
	for _, e := range entries {
		switch e.Name() {
		case "proc", "dev", "sys", "run", "w", "tmp":
			continue
		}
		if err := l.show(filepath.Join(spec.Rootfs, e.Name()), "/"+e.Name()); err != nil {
			return err
		}
	}
	const servers = "/etc/resolv.conf" // of the host in the place of the rootfs's, which is that of another machine or empty
	if own, err := os.Lstat(filepath.Join(spec.Rootfs, servers)); spec.Net && err == nil && own.Mode().IsRegular() {
		l.add("--ro-bind-try", servers, servers)
	}
	return nil
}

// etc writes the files that programs look for.
func (l *line) etc() error {
	files := sandbox.EtcFiles()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		n, err := l.file(name, []byte(files[name]))
		if err != nil {
			return err
		}
		l.add("--perms", "0644", "--file", n, "/etc/"+name)
	}
	return nil
}

// file makes a file in memory and returns its number in the program.
func (l *line) file(name string, data []byte) (string, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	l.files = append(l.files, f)
	if _, err := f.Write(data); err != nil {
		return "", err
	}
	_, err = f.Seek(0, io.SeekStart)
	return strconv.Itoa(l.first + len(l.files) - 1), err
}

// devices makes a /dev of the few that are harmless: that of --dev has terminals.
func (l *line) devices(sandbox.Spec) error {
	l.add("--perms", "0755", "--size", "65536", "--tmpfs", "/dev")
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		l.add("--dev-bind", "/dev/"+name, "/dev/"+name)
	}
	l.add("--symlink", "/proc/self/fd", "/dev/fd")
	for n, name := range []string{"stdin", "stdout", "stderr"} {
		l.add("--symlink", "/proc/self/fd/"+strconv.Itoa(n), "/dev/"+name)
	}
	return nil
}

// proc hides what of /proc tells of the host or acts on it.
func (l *line) proc(sandbox.Spec) error {
	l.add("--proc", "/proc")
	for _, name := range []string{"kcore", "keys", "key-users", "kmsg", "sysrq-trigger", "timer_list", "kallsyms", "modules", "config.gz", "sched_debug", "vmallocinfo"} {
		if _, err := os.Lstat("/proc/" + name); err == nil {
			l.add("--ro-bind", "/dev/null", "/proc/"+name)
		}
	}
	for _, name := range []string{"acpi", "scsi", "bus", "fs", "irq", "driver"} {
		if _, err := os.Lstat("/proc/" + name); err == nil {
			l.add("--perms", "0555", "--size", "4096", "--tmpfs", "/proc/"+name, "--remount-ro", "/proc/"+name)
		}
	}
	return nil
}

func (l *line) writable(spec sandbox.Spec) error {
	for _, f := range ns.WritableFolders(spec.Limits) {
		l.add("--perms", fmt.Sprintf("%04o", f.Mode), "--size", strconv.FormatInt(f.Size, 10), "--tmpfs", f.Path)
	}
	l.add("--remount-ro", "/dev")
	return nil
}

// filter is around the init too; programs are under a stricter one of the init's.
func (l *line) filter(sandbox.Spec) error {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, seccomp.Outer()); err != nil {
		return err
	}
	n, err := l.file("filter", b.Bytes())
	l.add("--seccomp", n)
	return err
}
