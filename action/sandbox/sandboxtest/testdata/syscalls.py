# Everything a program could use to get more than it was given. Arguments are such that the call would work where it is allowed.
def clone(flags):
    child = call("clone", flags | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)

def clone3(flags):
    arguments = struct.pack("8Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    child = call("clone3", arguments, len(arguments))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)

def setns(kind):
    call("setns", os.open(f"/proc/self/ns/{kind}", os.O_RDONLY), 0)

def ptrace_traceme():
    call("ptrace", 0, 0, 0, 0)

def read_init():
    buffer = ctypes.create_string_buffer(64)
    local = struct.pack("PQ", ctypes.addressof(buffer), 64)
    remote = struct.pack("PQ", 0x400000, 64)
    call("process_vm_readv", 1, local, 1, remote, 1, 0)

def write_init():
    buffer = ctypes.create_string_buffer(64)
    local = struct.pack("PQ", ctypes.addressof(buffer), 8)
    remote = struct.pack("PQ", 0x400000, 8)
    call("process_vm_writev", 1, local, 1, remote, 1, 0)

def perf():
    call("perf_event_open", struct.pack("IIQQQQQ", 1, 112, 0, 0, 0, 0, 0x60) + bytes(64), 0, -1, -1, 0)

def clock():
    now = time.clock_gettime_ns(time.CLOCK_REALTIME)
    call("clock_settime", 0, struct.pack("qq", now // 10**9, now % 10**9))

def bpf_map():
    call("bpf", 0, struct.pack("IIIII", 2, 4, 8, 1, 0) + bytes(100), 120)

def handle():
    call("open_by_handle_at", os.open("/w", os.O_RDONLY), struct.pack("Ii", 8, 1) + bytes(8), 0)

def init_pidfd():
    call("pidfd_getfd", os.pidfd_open(1), 0, 0)

for name, flag in CLONE_NEW.items():
    attempt(f"unshare {name}", lambda: call("unshare", flag) and None)
    attempt(f"clone {name}", lambda: clone(flag) if name != "time" else call("unshare", flag) and None)
    attempt(f"clone3 {name}", lambda: clone3(flag))
for kind in ["user", "uts", "mnt", "net"]:
    attempt(f"setns {kind}", lambda: setns(kind))
attempt("mount tmpfs", lambda: call("mount", b"none\0", b"/w\0", b"tmpfs\0", 0, 0) and None)
attempt("mount proc", lambda: call("mount", b"proc\0", b"/w\0", b"proc\0", 0, 0) and None)
attempt("bind /", lambda: call("mount", b"/\0", b"/w\0", 0, 4096, 0) and None)
attempt("remount /usr for writing", lambda: call("mount", b"none\0", b"/usr\0", 0, 32 | 4096, 0) and None)
attempt("umount /proc", lambda: call("umount2", b"/proc\0", 2) and None)
attempt("umount /usr", lambda: call("umount2", b"/usr\0", 2) and None)
attempt("pivot_root", lambda: call("pivot_root", b"/w\0", b"/w\0") and None)
attempt("chroot", lambda: call("chroot", b"/w\0") and None)
attempt("fsopen", lambda: call("fsopen", b"tmpfs\0", 0))
attempt("fspick", lambda: call("fspick", -100, b"/w\0", 0))
attempt("open_tree clone", lambda: call("open_tree", -100, b"/\0", 1))
attempt("mount_setattr", lambda: call("mount_setattr", -100, b"/usr\0", 0, struct.pack("4Q", 0, 1, 0, 0), 32) and None)
attempt("ptrace traceme", ptrace_traceme)
attempt("ptrace attach to init", lambda: call("ptrace", 16, 1, 0, 0) and None)
attempt("ptrace seize init", lambda: call("ptrace", 0x4206, 1, 0, 0) and None)
attempt("read init's memory", read_init)
attempt("write init's memory", write_init)
attempt("kcmp with init", lambda: call("kcmp", 1, os.getpid(), 0, 0, 0))
attempt("descriptor of init", init_pidfd)
attempt("limits of init", lambda: call("prlimit64", 1, 7, struct.pack("QQ", 16, 16), 0))
attempt("keyctl", lambda: call("keyctl", 0, -3, 1))
attempt("add_key", lambda: call("add_key", b"user\0", b"sandboxtest\0", b"x", 1, -2))
attempt("request_key", lambda: call("request_key", b"user\0", b"sandboxtest\0", 0, -2))
attempt("bpf", bpf_map)
attempt("io_uring", lambda: call("io_uring_setup", 4, ctypes.create_string_buffer(120)))
attempt("userfaultfd", lambda: call("userfaultfd", os.O_CLOEXEC | 1))
attempt("perf_event_open", perf)
attempt("open_by_handle_at", handle)
attempt("fanotify", lambda: call("fanotify_init", 0x200, 0))
attempt("kexec_load", lambda: call("kexec_load", 0, 0, 0, 0))
attempt("init_module", lambda: call("init_module", b"", 0, b"\0"))
attempt("delete_module", lambda: call("delete_module", b"sandboxtest_no_such\0", os.O_NONBLOCK))
attempt("reboot", lambda: call("reboot", 0xfee1dead, 672274793, 0, 0))
attempt("swapon", lambda: call("swapon", b"/w/none\0", 0))
attempt("acct", lambda: call("acct", b"/w/none\0"))
attempt("kernel log", lambda: call("syslog", 3, ctypes.create_string_buffer(64), 64))
attempt("set the clock", clock)
attempt("sethostname", lambda: call("sethostname", b"x", 1))
attempt("setdomainname", lambda: call("setdomainname", b"x", 1))
attempt("make a device", lambda: call("mknodat", -100, b"/w/null\0", stat.S_IFCHR | 0o666, os.makedev(1, 3)))
attempt("make a disk", lambda: call("mknodat", -100, b"/w/disk\0", stat.S_IFBLK | 0o666, os.makedev(254, 0)))
attempt("vhangup", lambda: call("vhangup"))
if "iopl" in NUMBERS:
    attempt("iopl", lambda: call("iopl", 3))
    attempt("ioperm", lambda: call("ioperm", 0x80, 1, 1))
