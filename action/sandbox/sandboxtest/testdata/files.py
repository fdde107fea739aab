# Where the program can read and write. The tree is walked, so that nothing has to be guessed.
def read(path):
    """A file that is masked by an empty one says nothing: that counts as refused."""
    handle = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    if not os.read(handle, 64):
        raise OSError(errno.ENODATA, path)

def opens(path, flags):
    os.close(os.open(path, flags))

for path in ["/proc/1/environ", "/proc/1/maps", "/proc/1/mem", "/proc/1/smaps", "/proc/1/auxv", "/proc/1/stack", "/proc/1/syscall"]:
    attempt("read " + path, lambda: read(path))
for path in ["/proc/1/exe", "/proc/1/cwd", "/proc/1/root"]:
    attempt("follow " + path, lambda: (os.readlink(path), None)[1])
attempt("list /proc/1/fd", lambda: (os.listdir("/proc/1/fd"), None)[1])
attempt("list /proc/1/root", lambda: (os.listdir("/proc/1/root/"), None)[1])
attempt("list /proc/1/task/1/fd", lambda: (os.listdir("/proc/1/task/1/fd"), None)[1])

for path in ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches", "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/pid_max", "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/shmmax", "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/fs/binfmt_misc/register", "/proc/sysrq-trigger", "/proc/1/oom_score_adj",
        "/proc/irq/default_smp_affinity", "/proc/bus/pci/00/00.0", "/proc/mtrr", "/proc/acpi/wakeup", "/sys/kernel/uevent_helper"]:
    attempt("write " + path, lambda: opens(path, os.O_WRONLY))
for path in ["/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/timer_list", "/proc/sysrq-trigger", "/proc/slabinfo", "/proc/kpageflags",
        "/proc/vmallocinfo", "/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/vsock", "/dev/vda", "/dev/tty", "/dev/ptmx",
        "/dev/net/tun", "/dev/loop-control", "/sys/kernel/notes", "/sys/fs/cgroup/cgroup.procs"]:
    attempt("read " + path, lambda: read(path))
attempt("protect itself from the OOM killer", lambda: write("/proc/self/oom_score_adj", b"-1000"))
attempt("write /proc/self/setgroups", lambda: write("/proc/self/setgroups", b"allow"))
attempt("write /proc/self/gid_map", lambda: write("/proc/self/gid_map", b"0 0 1"))

for path in ["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/ssh_host_rsa_key", "/etc/machine-id", "/etc/fstab", "/root", "/root/.ssh", "/root/.bashrc",
        "/home", "/var/lib", "/var/log", "/var/run/docker.sock", "/run/docker.sock", "/run/containerd", "/boot", "/srv", "/opt", "/mnt", "/media", "/work",
        "/sys/class", "/lost+found", "/.dockerenv"] + os.environ.get("SANDBOXTEST_HOST", "").split(":"):
    if path:
        attempt("see " + path, lambda: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)))

writable, devices, found = [], [], []
for folder, folders, files in os.walk("/", onerror=lambda e: None):
    if folder.startswith(("/proc", "/usr/", "/lib", "/sys")):
        folders[:] = []
        continue
    try:
        handle = os.open(folder + "/sandboxtest", os.O_CREAT | os.O_WRONLY | os.O_EXCL)
        os.close(handle)
        os.unlink(folder + "/sandboxtest")
        writable.append(folder)
    except OSError:
        pass
    for name in files:
        path = os.path.join(folder, name)
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                devices.append(path)
            if stat.S_ISREG(mode):
                os.close(os.open(path, os.O_WRONLY))
                found.append(path)
        except OSError:
            pass
say("folders it can write to", " ".join(sorted(writable)))
say("files it found and can write to", " ".join(sorted(found)))
say("devices", " ".join(sorted(devices)))
for path in ["/usr/bin/sandboxtest", "/usr/lib/sandboxtest", "/lib/sandboxtest", "/bin/sandboxtest", "/proc/sandboxtest", "/dev/sandboxtest", "/sandboxtest"]:
    attempt("create " + path, lambda: opens(path, os.O_CREAT | os.O_WRONLY))
attempt("overwrite /usr/bin/env", lambda: opens("/usr/bin/env", os.O_WRONLY))
attempt("remove /usr/bin/env", lambda: os.unlink("/usr/bin/env"))
attempt("rename /usr/bin/env", lambda: os.rename("/usr/bin/env", "/usr/bin/env2"))
attempt("chmod /usr/bin/env", lambda: os.chmod("/usr/bin/env", 0o777))
attempt("touch /usr/bin/env", lambda: os.utime("/usr/bin/env"))
attempt("xattr on /usr/bin/env", lambda: os.setxattr("/usr/bin/env", "user.x", b"x"))
attempt("immutable file", lambda: __import__("fcntl").ioctl(os.open("/w/still", os.O_CREAT | os.O_RDWR), 0x40086602, struct.pack("l", 0x10)) and None)
attempt("append-only file", lambda: __import__("fcntl").ioctl(os.open("/w/append", os.O_CREAT | os.O_RDWR), 0x40086602, struct.pack("l", 0x20)) and None)
