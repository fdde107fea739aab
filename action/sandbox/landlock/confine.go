//go:build linux && (amd64 || arm64)

package landlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"unsafe"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
	"tranche/action/sandbox/seccomp"
)

// cage is what the last step before a program is told.
type cage struct {
	ABI       int
	Work, Tmp string
	Net       bool
	User      int    // to become; 0 = stay who this is
	Pids      uint64 // processes of that user; 0 = they are not its alone
	Memory    uint64 // bytes of address space of one process
}

// confine gives up what the program is not to have, for this thread, which becomes it. The order matters: folders are opened while they can
// be, and the filter denies some of what comes before it.
func confine(told []byte) (addressSpace uint64, err error) {
	var c cage
	if err := json.Unmarshal(told, &c); err != nil {
		return 0, err
	}
	rules, err := c.rules()
	if err != nil {
		return 0, err
	}
	defer unix.Close(rules)
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"become another user", c.become},
		{"set limits", c.limit},
		{"give up new privileges", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		{"restrict files", func() error { return failure(unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0)) }},
		{"filter system calls", func() error {
			return seccomp.ConfineThread(seccomp.Filter(seccomp.Refusals{SystemV: true, MemoryFiles: true, Others: true, Sockets: !c.Net}))
		}},
	} {
		if err := step.do(); err != nil {
			return 0, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return c.Memory, nil
}

func failure(_, _ uintptr, errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// become drops groups, user and capabilities of this thread alone: what it becomes has no other.
func (c cage) become() error {
	unix.Umask(0o022)
	if c.User != 0 {
		id := uintptr(c.User)
		for _, err := range []error{
			failure(unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)), failure(unix.RawSyscall(unix.SYS_SETRESGID, id, id, id)),
			dropBounding(), failure(unix.RawSyscall(unix.SYS_SETRESUID, id, id, id)),
		} {
			if err != nil {
				return err
			}
		}
	}
	header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	return errors.Join(unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), unix.Capset(&header, &none[0]))
}

func dropBounding() error {
	for n := uintptr(0); n <= unix.CAP_LAST_CAP; n++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: an older kernel
			return err
		}
	}
	return nil
}

// limit sets the limits of every process. Those of files are set already.
func (c cage) limit() error {
	const stack, locked = 8 << 20, 8 << 20
	limits := map[int]uint64{
		unix.RLIMIT_STACK: stack, unix.RLIMIT_MEMLOCK: locked, unix.RLIMIT_MSGQUEUE: 0, unix.RLIMIT_NICE: 0, unix.RLIMIT_RTPRIO: 0,
	}
	if c.Pids > 0 {
		limits[unix.RLIMIT_NPROC] = c.Pids
	}
	for resource, most := range limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(resource, &now); err != nil {
			return err
		}
		most = min(most, now.Max)
		if err := unix.Prlimit(0, resource, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
			return err
		}
	}
	return nil
}

// the rights of Landlock, as they are used here.
const (
	read    = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	execute = unix.LANDLOCK_ACCESS_FS_EXECUTE
	write   = unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	// change is all that makes, moves and removes files; devices cannot be made.
	change = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	device = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK

	onFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | write | unix.LANDLOCK_ACCESS_FS_TRUNCATE // what a rule of one file may name

	ioctlABI = 5 // the first that knows ioctl on devices
	netABI   = 4 // the first that knows TCP ports
)

// handled is all that the rules forbid where they do not allow it.
func (c cage) handled() unix.LandlockRulesetAttr {
	a := unix.LandlockRulesetAttr{Handled_access_fs: read | execute | write | change | device}
	if c.ABI >= ioctlABI {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if c.ABI >= netABI && !c.Net { // a second wall behind the filter
		a.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if c.ABI >= scopeABI {
		a.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return a
}

// size is how much of the attributes a version knows.
func (c cage) size() uintptr {
	switch {
	case c.ABI >= scopeABI:
		return 24
	case c.ABI >= netABI:
		return 16
	}
	return 8
}

// rule allows something below one path.
type rule struct {
	path   string
	access uint64
}

// allowed is all of the host that a program may open.
func (c cage) allowed() []rule {
	list := []rule{
		{c.Work, read | execute | write | change}, {c.Tmp, read | execute | write | change},
		{"/proc", read}, // what of it belongs to others is closed by the kernel: Landlock lets nobody look into processes outside
		{"/dev/null", read | write}, {"/dev/zero", read | write}, {"/dev/full", read | write}, {"/dev/random", read}, {"/dev/urandom", read},
	}
	for _, path := range sandbox.HostFolders() {
		list = append(list, rule{path, read | execute})
	}
	names := append(sandbox.HostEtc(c.Net), "passwd", "group", "hosts", "nsswitch.conf", "localtime") // the host's own: there is no other place for EtcFiles
	if c.Net {
		names = append(names, "services")
	}
	for _, name := range names {
		list = append(list, rule{"/etc/" + name, read})
	}
	return list
}

// rules makes the rule set and returns its descriptor.
func (c cage) rules() (int, error) {
	attr := c.handled()
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), c.size(), 0)
	if errno != 0 {
		return -1, fmt.Errorf("make a Landlock rule set: %w", errno)
	}
	set := int(n)
	for _, r := range c.allowed() {
		if err := r.add(set); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return -1, errors.Join(fmt.Errorf("allow %s: %w", r.path, err), unix.Close(set))
		}
	}
	return set, nil
}

func (r rule) add(set int) error {
	fd, err := unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: r.access, Parent_fd: int32(fd)}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		attr.Allowed_access &= onFiles
	}
	return failure(unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0))
}
