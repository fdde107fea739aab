//go:build linux

package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// descriptors of the last step before a program, besides those of the program.
const (
	toldFD  = sandbox.ControlFD + 1 + iota // what it is to do
	faultFD                                // where it says why it could not; closed by the exec
)

// lastOrder is what the last step is told.
type lastOrder struct {
	Args    []string
	Control bool
	Confine []byte
}

// confined starts the step that confines itself and becomes the program, and waits until it has or says why not.
func (k *keeper) confined() (pid int, r report) {
	failed := func(err error) (int, report) { return 0, report{Kind: "failed", Why: err.Error()} }
	text, err := json.Marshal(lastOrder{k.Args, k.Control, k.Confine})
	if err != nil {
		return failed(err)
	}
	told, err := input(text)
	if err != nil {
		return failed(err)
	}
	defer told.Close()
	faults, theirs, err := os.Pipe()
	if err != nil {
		return failed(err)
	}
	defer faults.Close()
	pid, err = syscall.ForkExec("/proc/self/exe", []string{k.Last}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2, sandbox.ControlFD, told.Fd(), theirs.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err := errors.Join(err, theirs.Close()); err != nil {
		return failed(fmt.Errorf("start the step that confines: %w", err))
	}
	text, err = io.ReadAll(faults)
	if err == nil && len(text) == 0 {
		return pid, report{Kind: "started"}
	}
	if err == nil {
		r, err = faultOf(text)
	}
	var status unix.WaitStatus
	if _, waited := unix.Wait4(pid, &status, 0, nil); err != nil || waited != nil {
		return failed(errors.Join(err, waited))
	}
	return 0, r
}

// Become is the last step before a program, for back ends that confine: where this process was started as the step of that name it
// calls confine with what the step was told (Confinement.Told), on the thread that becomes the program, and does that. Then it never
// returns. The bytes of address space that confine returns bound the program (0 = nothing does): Go itself may want more until it is over.
func Become(name string, confine func(told []byte) (addressSpace uint64, err error)) {
	if os.Args[0] != name {
		return
	}
	runtime.LockOSThread()
	absent, err := become(confine)
	r := report{Kind: "failed", Why: fmt.Sprint(err)}
	if absent {
		r.Kind = "absent"
	}
	_ = json.NewEncoder(os.NewFile(faultFD, "faults")).Encode(r)
	os.Exit(127)
}

// become returns only where it could not; absent says that the program is the cause.
func become(confine func([]byte) (uint64, error)) (absent bool, err error) {
	var order lastOrder
	text, err := io.ReadAll(os.NewFile(toldFD, "told"))
	if err == nil {
		err = json.Unmarshal(text, &order)
	}
	if err != nil {
		return false, fmt.Errorf("read what to do: %w", err)
	}
	first := uint(sandbox.ControlFD)
	if order.Control {
		first++
	}
	if err := unix.CloseRange(first, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return false, err
	}
	env := os.Environ()
	space, err := confine(order.Confine)
	if err != nil {
		return false, err
	}
	path, err := exec.LookPath(order.Args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return true, err
	}
	return false, jump(path, order.Args, env, space)
}

// jump bounds the address space and executes, without taking memory between the two. Where it cannot execute, it says so by the number of the
// error alone, and ends.
func jump(path string, args, env []string, space uint64) error {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	argv, err := syscall.SlicePtrFromStrings(args)
	if err != nil {
		return err
	}
	envp, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return err
	}
	var fault [1]byte
	limit := unix.Rlimit{Cur: space, Max: space}
	if space > 0 {
		_, _, errno := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_AS, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
		if fault[0] = byte(errno); errno != 0 {
			return errno
		}
	}
	_, _, errno := unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envp[0])))
	fault[0] = byte(errno) // all numbers fit
	unix.RawSyscall(unix.SYS_WRITE, faultFD, uintptr(unsafe.Pointer(&fault[0])), 1)
	for {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 127, 0, 0)
	}
}

// faultOf reads what a step said that did not become a program.
func faultOf(text []byte) (r report, err error) {
	if len(text) > 1 {
		return r, json.Unmarshal(text, &r)
	}
	errno := unix.Errno(text[0])
	if isAbsent(errno) {
		return report{Kind: "absent", Why: errno.Error()}, nil
	}
	return report{Kind: "failed", Why: "execute it: " + errno.Error()}, nil
}
