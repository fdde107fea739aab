# Attacks on what there is a limit of. The first argument names the one; each is bounded, so that a sandbox without the limit
# survives it too.
def bomb():
    """Children that stay, one after the other, until one is refused."""
    children = 0
    try:
        while children < 300:
            forks(lambda: time.sleep(30))
            children += 1
    except OSError as e:
        say("refused", errno.errorcode[e.errno])
    say("children", children)

def bomb_and_fail():
    bomb()
    sys.exit(1)

def bomb_exponential():
    """Every process forks for a second; all together at most 400 times."""
    import mmap
    shared, first, deadline = mmap.mmap(-1, 8), os.getpid(), time.monotonic() + 1
    refused = 0
    while time.monotonic() < deadline and shared[0] + shared[1] < 400:
        try:
            os.fork()
            shared[0 if shared[0] < 200 else 1] += 1
        except OSError:
            refused += 1
            time.sleep(0.001)
    if os.getpid() != first:
        time.sleep(30)
    say("refused", refused)

def threads():
    import threading
    count = 0
    try:
        while count < 300:
            threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
            count += 1
    except RuntimeError:
        pass
    say("threads", count)
    os._exit(0)

def allocate():
    """2 GiB, touched."""
    blocks = []
    try:
        for _ in range(64):
            blocks.append(bytearray(b"x") * (32 * MiB))
    except MemoryError:
        say("held", 32 * len(blocks))
        sys.exit(1)
    say("held", 32 * len(blocks))

def allocate_in_children():
    """8 children of 100 MiB each, at once."""
    def child():
        held = bytearray(b"x") * (100 * MiB)
        time.sleep(1)
    children = [forks(child) for _ in range(8)]
    killed = sum(os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) == -signal.SIGKILL for c in children)
    say("killed", killed)

def fill():
    """Files of 4 MiB until there is no room, at most 512 MiB."""
    written, block = 0, b"x" * MiB
    try:
        for i in range(128):
            handle = os.open(f"{sys.argv[2]}/{i}", os.O_CREAT | os.O_WRONLY)
            for _ in range(4):
                written += os.write(handle, block)
            os.close(handle)
    except OSError as e:
        say("refused", errno.errorcode[e.errno])
    say("MiB", written // MiB)

def memory_files():
    """Memory files of 8 MiB, 1 GiB together."""
    written, block = 0, b"x" * MiB
    try:
        for i in range(128):
            handle = os.memfd_create(str(i))
            for _ in range(8):
                written += os.write(handle, block)
    except OSError as e:
        say("refused", errno.errorcode[e.errno])
    say("MiB", written // MiB)

def large_file():
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    handle, block = os.open("/w/large", os.O_CREAT | os.O_WRONLY), b"x" * MiB
    for _ in range(1024):
        os.write(handle, block)

def large_memory_file():
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        handle, block = os.memfd_create("large"), b"x" * MiB
    except OSError as e:
        say("refused", errno.errorcode[e.errno])
        sys.exit(1)
    for _ in range(1024):
        os.write(handle, block)

def sparse_file():
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.truncate(os.open("/w/sparse", os.O_CREAT | os.O_WRONLY), 1 << 40)

def inodes():
    count = 0
    try:
        for d in range(100):
            os.mkdir(f"/w/{d}")
            for i in range(1000):
                os.close(os.open(f"/w/{d}/{i}", os.O_CREAT | os.O_WRONLY))
                count += 1
    except OSError as e:
        say("refused", errno.errorcode[e.errno])
    say("files", count)

def open_files():
    handles = []
    try:
        while len(handles) < 5000:
            handles.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as e:
        say("refused", errno.errorcode[e.errno])
    say("open", len(handles))

def flood():
    """As many MiB to stdout as the second argument says, and a tenth to stderr."""
    block = bytes(range(256)) * 4096
    for i in range(int(sys.argv[2])):
        view = memoryview(block)
        while view:
            view = view[os.write(1, view):]

def hold_stdout():
    """A grandchild in a session of its own keeps stdout and stderr open."""
    def child():
        os.setsid()
        forks(lambda: time.sleep(30))
    os.waitpid(forks(child), 0)
    os.write(1, b"hi\n")

def daemons():
    """Five that left their parents, their session and their folder, one of them with another name."""
    def child():
        os.setsid()
        def daemon():
            os.chdir("/")
            libc.prctl(15, b"\n) R 1 1\0", 0, 0, 0)
            for handle in range(3):
                os.close(handle)
            time.sleep(30)
        forks(daemon)
    for _ in range(5):
        os.waitpid(forks(child), 0)
    time.sleep(0.05)

def deaf():
    """Ignores every signal that can be ignored, in two processes."""
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    os.write(1, b"deaf\n")
    os.fork()
    while True:
        time.sleep(30)

def sleep():
    time.sleep(30)

def stop():
    """Stops itself, and all there is, by every signal that stops, and undoes that: what is just being started must not stand still for ever, and what is held must not go on."""
    import threading
    alone()
    for who in (os.getpid(), -1):
        for number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT):
            try:
                os.kill(who, number)
                say(f"{number} to {who}", "ok")
            except OSError:
                pass
    try:
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        say("thread", "ok")
    except OSError as e:
        say("refused", errno.errorcode[e.errno])

def burn_in_children():
    for _ in range(8):
        forks(lambda: burn(60))
    time.sleep(60)

def burn_in_turn():
    """No child lives for long: only who adds up the dead sees it."""
    for _ in range(1000):
        os.waitpid(forks(lambda: burn(0.05)), 0)

def burn_unseen():
    """Orphans, ignored children and names that look like the fields of /proc/PID/stat."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    def orphan():
        libc.prctl(15, b") R 0 0 0 0 0\0", 0, 0, 0)
        forks(lambda: burn(60))
    for _ in range(4):
        forks(orphan)
    time.sleep(60)

def burn_deaf():
    """SIGXCPU is ignored."""
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    burn(60)

def kill_itself():
    signal.signal(int(sys.argv[2]), signal.SIG_DFL) if int(sys.argv[2]) not in (9, 19) else None
    os.kill(os.getpid(), int(sys.argv[2]))
    time.sleep(30)

def crash():
    ctypes.string_at(0)

def alone():
    """Guards what would hurt others where there is no namespace."""
    if sum(name.isdigit() for name in os.listdir("/proc")) > 16:
        say("alone", False)
        sys.exit(3)

def signal_init():
    alone()
    for number in range(1, 65):
        if number in (32, 33):
            continue
        try:
            os.kill(1, number)
        except OSError:
            pass
    time.sleep(0.1)
    say("done", True)

def kill_all():
    alone()
    for _ in range(3):
        forks(lambda: time.sleep(30))
    os.kill(-1, signal.SIGKILL)
    say("done", True)

def adopted():
    """A child that the init gets as its own (CLONE_PARENT) ends with 7 before the program ends with 0."""
    if call("clone", 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(7)
    time.sleep(0.2)
    say("done", True)

def deep():
    """A path much longer than any call takes."""
    for _ in range(2000):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    say("done", True)

def forbidden_tree():
    for folder in ["/w", "/tmp", "/dev/shm"]:
        os.makedirs(folder + "/a/b/c")
        open(folder + "/a/b/c/f", "w").close()
        for path in ["/a/b/c/f", "/a/b/c", "/a/b", "/a"]:
            os.chmod(folder + path, 0)
        os.mkdir(folder + "/sticky")
        os.chmod(folder + "/sticky", 0o1000)
    os.chmod("/w", 0)
    os.chmod("/tmp", 0)
    say("done", True)

def odd_names():
    for folder in [b"/w", b"/tmp", b"/dev/shm"]:
        for name in [b"\n", b"a\nb", b"-rf", b"\xff\xfe", b" ", b"*", b"n" * 255, b"...", b"..\n"]:
            os.close(os.open(folder + b"/" + name, os.O_CREAT | os.O_WRONLY))
        os.symlink(b"/", folder + b"/root")
        os.symlink(b"loop", folder + b"/loop")
        os.mkfifo(folder + b"/fifo")
        os.link(folder + b"/-rf", folder + b"/hard")
        s = socket.socket(socket.AF_UNIX)
        s.bind(folder.decode() + "/socket")
        try:
            os.setxattr(folder + b"/-rf", "user.a", b"b" * 1000)
        except OSError:
            pass
    libc.prctl(15, b"a\nb) R\0", 0, 0, 0)
    say("done", True)

def ipc():
    """Memory, semaphores and queues that outlive their makers."""
    attempt("shm", lambda: call("shmget", 0x5b, MiB, 0o1666))
    attempt("sem", lambda: call("semget", 0x5b, 4, 0o1666))
    attempt("msg", lambda: call("msgget", 0x5b, 0o1666))
    attempt("mq", lambda: call("mq_open", b"sandboxtest\0", os.O_CREAT | os.O_RDWR, 0o666, 0) and None)

def ipc_memory():
    """Segments of 16 MiB, 320 MiB together, touched and let go of. Those that stay are counted."""
    libc.shmat.restype = ctypes.c_void_p
    made = 0
    try:
        for i in range(20):
            number = call("shmget", 0x100 + i, 16 * MiB, 0o1666)
            at = libc.shmat(number, None, 0)
            if at in (None, ctypes.c_void_p(-1).value):
                raise OSError(ctypes.get_errno(), "shmat")
            ctypes.memset(at, 1, 16 * MiB)
            libc.shmdt(ctypes.c_void_p(at))
            made += 16
    except OSError as e:
        say("refused", errno.errorcode.get(e.errno, e.errno))
    say("made", made)
    say("MiB", sum(int(l.split()[3]) for l in open("/proc/sysvipc/shm").read().splitlines()[1:]) // MiB)

def port():
    """A server that closes first leaves its port in TIME_WAIT."""
    server, client = socket.socket(), socket.socket()
    server.bind(("127.0.0.1", 8642))
    server.listen()
    client.connect(("127.0.0.1", 8642))
    server.accept()[0].close()
    client.recv(1)
    client.close()
    say("done", True)

def raise_limits():
    for name in sorted(n for n in dir(resource) if n.startswith("RLIMIT_")):
        number = getattr(resource, name)
        soft, hard = resource.getrlimit(number)
        if hard != resource.RLIM_INFINITY:
            attempt(name, lambda: resource.setrlimit(number, (soft, hard + 1)))
    attempt("nice", lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))
    attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
    attempt("memory lock", lambda: 0 if libc.mlockall(3) == 0 and resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == -1 else 1)
    say("cores", resource.getrlimit(resource.RLIMIT_CORE)[1])

def leave_state():
    """Everything of a process that its children inherit, changed, in one that stays."""
    os.umask(0)
    os.nice(5)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    libc.prctl(4, 0, 0, 0, 0)
    libc.prctl(36, 1, 0, 0, 0)
    libc.personality(0x0040000)
    os.chdir("/tmp")
    if os.fork():
        os._exit(0)
    time.sleep(30)

globals()[sys.argv[1]]()
