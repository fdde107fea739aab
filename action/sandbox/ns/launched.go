//go:build linux && (amd64 || arm64)

package ns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
	"tranche/action/sandbox/seccomp"
	"tranche/action/sandbox/tree"
)

// WritableFolders are those that programs of a sandbox with these limits may write to.
func WritableFolders(l sandbox.Limits) []WritableFolder {
	var list []WritableFolder
	for _, t := range writable(setup{Disk: l.Disk}) {
		list = append(list, WritableFolder{t.path, t.mode, t.bytes, mostFiles(t.bytes)})
	}
	return list
}

// startLaunched starts another program that builds the sandbox and starts the init in it.
func (s *slot) startLaunched(st *starter, l *Launch, program string, id identity, spec sandbox.Spec, std []*os.File) error {
	own, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("open our own program: %w", err)
	}
	defer own.Close()
	args, files, err := l.Command(LaunchOrder{Spec: spec, Program: []string{"/proc/self/fd/" + strconv.Itoa(ownFile), initName}, FirstFile: ownFile + 1})
	defer closeAll(files)
	if err != nil {
		return err
	}
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if id.own {
		a.Credential = &syscall.Credential{Uid: uint32(id.program), Gid: uint32(id.program)}
	}
	if err := s.begin(st, args[0], args, append(append(std, own), files...), a); err != nil {
		return fmt.Errorf("start %s: %w", args[0], err)
	}
	return nil
}

// engaged is an init that somebody else started, in the form of a process.
type engaged struct{ Launched }

func (e engaged) Kill() error                     { return e.Launched.Kill() }
func (e engaged) Wait() (*os.ProcessState, error) { return nil, e.Launched.Wait() }

// engage has somebody else start the init.
func (s *slot) engage(ctx context.Context, l *Launch, spec sandbox.Spec) error {
	started, err := l.Start(ctx, LaunchOrder{Spec: spec, Number: s.number})
	if err != nil {
		return err
	}
	s.process, s.sock = engaged{started}, started.Socket
	if s.raw, err = s.sock.SyscallConn(); err != nil {
		return err
	}
	go s.listen()
	return nil
}

// connect is the first thing that our program does where somebody else starts it as an init: it connects to the host, and is started anew with
// that connection in the place where an init has it.
func connect(socket string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return fmt.Errorf("%s: %w", socket, err)
	}
	if fd == socketFD {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
	} else {
		err = unix.Dup3(fd, socketFD, 0) // whatever of Go's has that number is not needed any more
	}
	if err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", []string{initName}, initEnv())
}

// prepareLaunched makes this process what a slot is to be whose root another program has built.
func (in *inside) prepareLaunched(s setup) error {
	in.setup, in.guest = s, os.Getuid()
	if err := in.openFolders(); err != nil {
		return err
	}
	for _, t := range writable(s) {
		if !t.clean() {
			return fmt.Errorf("%s is not as it has to be", t.path)
		}
	}
	var err error
	if in.null, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	in.filter = seccomp.Filter(seccomp.Refusals{SystemV: true, MemoryFiles: s.Memory > 0})
	in.startThreads()
	if err := passPids(); err != nil || s.IntoCgroup {
		return err
	}
	return seccomp.ConfineThread(in.filter)
}

// passPids is skipPids for an init that may not set the next process id: it makes processes that end at once until the ids are used up.
func passPids() error {
	for range 10 * seccomp.LowestPid { // each fork takes one
		text, err := os.ReadFile("/proc/sys/kernel/ns_last_pid")
		if err != nil {
			return err
		}
		last, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return err
		}
		if last >= seccomp.LowestPid-1 {
			return nil
		}
		if _, err := syscall.ForkExec("/nonexistent", nil, nil); !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("pass process ids: %w", err)
		}
	}
	return errors.New("the ids of processes do not rise")
}

// renewLaunched is renew for an init that may not mount: what programs left is removed name by name. An error says that this was not enough,
// and the slot is thrown away.
func renewLaunched(dirty []volatile) error {
	for _, t := range dirty {
		if err := t.empty(); err != nil {
			return fmt.Errorf("wipe %s: %w", t.path, err)
		}
		if !t.clean() {
			return fmt.Errorf("wipe %s: it is not as it was", t.path)
		}
	}
	return nil
}

func (t volatile) empty() error {
	f, err := openFolder(t.path)
	if errors.Is(err, unix.EACCES) { // its bits keep its owner out
		if err = unix.Chmod(t.path, 0o700); err == nil {
			f, err = openFolder(t.path)
		}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(tree.Wipe(f), unix.Fchmod(fileFD(f), t.mode))
}

// portsFree is an error where a connection of a program still holds a port for a while: an init that may set how long that takes sets it to
// nothing, this one leaves the slot to be thrown away.
func portsFree() error {
	for _, name := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile("/proc/net/" + name)
		if errors.Is(err, unix.ENOENT) { // a kernel without that version
			continue
		}
		if err != nil {
			return err
		}
		if lines := strings.Count(string(text), "\n"); lines > 1 { // the first is a heading
			return fmt.Errorf("%d connections still hold ports", lines-1)
		}
	}
	return nil
}
