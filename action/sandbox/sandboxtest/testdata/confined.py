# What a program tries that lives among the processes and folders of the host. Arguments: a file of the host that all may write, the folder of
# another sandbox, the number of the process that tests.
host, other, tester = sys.argv[1:4]
work, scratch = os.environ["HOME"], os.environ["TMPDIR"]

def read(path):
    handle = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    if not os.read(handle, 64):
        raise OSError(errno.ENODATA, path)

def create(path):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))

def escape(path):
    """By way of a link of its own."""
    link = f"{work}/link{len(os.listdir(work))}"
    os.symlink(path, link)
    read(link)

for path in [host, "/etc/shadow", "/etc/fstab", "/etc/machine-id", other + "/secret"]:
    attempt("read " + path, lambda: read(path))
    attempt("read by a link " + path, lambda: escape(path))
for path in ["/", "/etc", "/root", "/home", "/tmp", "/var", "/sys", "/dev", "/dev/shm", "/run", os.path.dirname(host), os.path.dirname(work), other]:
    attempt("list " + path, lambda: os.listdir(path) and None)
for path in ["/tmp", "/dev/shm", "/usr", "/usr/bin", "/etc", "/var/tmp", "/run", os.path.dirname(host), os.path.dirname(work), other, "/proc/self"]:
    attempt("create in " + path, lambda: create(path + "/sandboxtest"))
attempt("write", lambda: os.close(os.open(host, os.O_WRONLY)))
attempt("append", lambda: os.close(os.open(host, os.O_WRONLY | os.O_APPEND)))
attempt("truncate", lambda: os.truncate(host, 0))
attempt("remove", lambda: os.unlink(host))
attempt("rename away", lambda: os.rename(host, host + "2"))
attempt("rename into its folder", lambda: os.rename(host, work + "/stolen"))
attempt("link into its folder", lambda: os.link(host, work + "/linked"))
attempt("execute", lambda: os.execv(host, [host]))
attempt("exchange for its own", lambda: (create(work + "/mine"), call("renameat2", -100, (work + "/mine\0").encode(), -100, (host + "\0").encode(), 2))[0])
attempt("device", lambda: call("mknodat", -100, (work + "/null\0").encode(), stat.S_IFCHR | 0o666, os.makedev(1, 3)))
attempt("another terminal", lambda: os.close(os.open("/dev/ptmx", os.O_RDWR)))

for pid, name in [(os.getppid(), "the keeper"), (int(tester), "the tester")]:
    for what in ["environ", "maps", "mem", "auxv", "stack", "syscall"]:
        attempt(f"read {what} of {name}", lambda: read(f"/proc/{pid}/{what}"))
    attempt(f"list descriptors of {name}", lambda: os.listdir(f"/proc/{pid}/fd") and None)
    attempt(f"root of {name}", lambda: os.listdir(f"/proc/{pid}/root/tmp") and None)
    attempt(f"working folder of {name}", lambda: os.listdir(f"/proc/{pid}/cwd/") and None)
    for number in [0, signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP, signal.SIGURG]:
        attempt(f"signal {number} to {name}", lambda: os.kill(pid, number))
    attempt(f"limits of {name}", lambda: call("prlimit64", pid, 7, struct.pack("QQ", 16, 16), 0))
    attempt(f"priority of {name}", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt(f"processor of {name}", lambda: os.sched_setaffinity(pid, {0}))
attempt("stop itself", lambda: os.kill(os.getpid(), signal.SIGSTOP))
attempt("memory file", lambda: os.close(os.memfd_create("x")))
attempt("shared memory", lambda: call("shmget", 0x5c, MiB, 0o1666) * 0)
for family in [socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16, 40]:
    attempt(f"socket of family {int(family)}", lambda: socket.socket(family, socket.SOCK_STREAM).close())
for kind in [socket.SOCK_DGRAM, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, socket.SOCK_RAW, socket.SOCK_RDM]:
    # a pair of datagrams can be connected anew
    attempt(f"pair of type {int(kind)}", lambda: [s.close() for s in socket.socketpair(socket.AF_UNIX, kind)] and None)
for number in [0, 1, 1000, 65534]:
    if os.getuid() != number:
        attempt(f"become user {number}", lambda: os.setresuid(number, number, number))
attempt("another's groups", lambda: os.setgroups([0]))

def own():
    """What a program may do in its folders."""
    for folder in [work, scratch]:
        os.makedirs(folder + "/a/b")
        create(folder + "/a/b/c")
        os.rename(folder + "/a/b/c", folder + "/a/d")
        os.link(folder + "/a/d", folder + "/a/e")
        os.symlink("e", folder + "/a/f")
        os.chmod(folder + "/a/f", 0o755)
        os.utime(folder + "/a/f")
        os.truncate(folder + "/a/f", 10)
        os.mkfifo(folder + "/a/g")
        assert len(open(folder + "/a/f", "rb").read()) == 10
    os.rename(scratch + "/a/d", work + "/a/moved")
    import shutil, subprocess
    shutil.copy("/usr/bin/env", work + "/env")
    assert b"HOME=" in subprocess.run([work + "/env"], stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["/bin/sh", "-c", "echo x > /dev/null"], check=True)
    for kind in [socket.SOCK_STREAM, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC]:
        a, b = socket.socketpair(socket.AF_UNIX, kind)
        a.send(b"x")
        assert b.recv(1) == b"x"

attempt("own folders", own)
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
for key in ["CapInh", "CapPrm", "CapEff", "CapAmb"]:
    say(key, status[key].strip() == "0" * 16)
say("NoNewPrivs", status["NoNewPrivs"].strip())
say("Seccomp", status["Seccomp"].strip())
say("groups", " ".join(g for g in status["Groups"].split() if int(g) != os.getgid()))
say("user", os.getuid())
