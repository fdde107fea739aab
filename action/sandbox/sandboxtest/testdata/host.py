# What the tests that act from outside have running inside. The first argument names it.
def links():
    os.symlink("/etc/shadow", "/w/shadow")
    os.symlink("/etc", "/w/etc")
    os.symlink("/proc/1/environ", "/w/environ")
    os.symlink("../../etc/passwd", "/w/up")
    os.symlink("a", "/w/b")
    os.symlink("b", "/w/a")
    os.symlink("/w/plain", "/w/inside")
    os.symlink(".", "/w/here")
    os.symlink("/proc/self/fd/0", "/w/magic")
    os.symlink("/tmp/new", "/w/new")
    os.mkfifo("/w/fifo")
    os.mkdir("/w/folder")
    socket.socket(socket.AF_UNIX).bind("/w/socket")
    open("/w/plain", "w").write("plain")
    open("/w/secret", "w").write("secret")
    os.chmod("/w/secret", 0)
    os.truncate(os.open("/w/sparse", os.O_CREAT | os.O_WRONLY), 8 * MiB)
    open("/tmp/outside", "w").write("outside")
    os.symlink("/tmp/outside", "/w/outside")

def swap():
    """A folder that is a link out of the work folder every other moment."""
    for folder, word in [("/w/x", "mine"), ("/tmp/target", "theirs")]:
        os.mkdir(folder)
        with open(folder + "/passwd", "w") as f:
            f.write(word)
    os.symlink("/tmp/target", "/w/link")
    os.write(1, b"ready\n")
    end, swaps = time.monotonic() + float(sys.argv[2]), 0
    while time.monotonic() < end:
        call("renameat2", -100, b"/w/x\0", -100, b"/w/link\0", 2)  # exchange
        swaps += 1
    say("swaps", swaps)
    say("target", os.listdir("/tmp/target"))

def hide():
    """Leaves a secret in every place another sandbox might share, and stays."""
    secret = sys.argv[2]
    for folder in ["/w", "/tmp", "/dev/shm"]:
        open(f"{folder}/{secret}", "w").write(secret)
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(b"\0" + secret.encode())
    abstract.listen()
    server = socket.socket()
    server.bind(("127.0.0.1", int(sys.argv[3])))
    server.listen()
    attempt("shm", lambda: call("shmget", 0x5c, MiB, 0o1666))
    os.write(1, b"ready\n")
    time.sleep(30)

def seek():
    secret = sys.argv[2]
    def connect(family, address):
        s = socket.socket(family)
        s.settimeout(1)
        s.connect(address)
    attempt("abstract socket", lambda: connect(socket.AF_UNIX, b"\0" + secret.encode()))
    attempt("port", lambda: connect(socket.AF_INET, ("127.0.0.1", int(sys.argv[3]))))
    attempt("shm", lambda: call("shmget", 0x5c, 0, 0))
    names = []
    for at, folders, files in os.walk("/"):
        if at.startswith(("/usr", "/lib", "/proc/self", "/proc/thread-self")):
            folders[:] = []
        names += [at + "/" + n for n in files + folders if secret in n]
    say("files", " ".join(names))
    say("others", sum(n.isdigit() and secret.encode() in open(f"/proc/{n}/cmdline", "rb").read() for n in os.listdir("/proc") if n.isdigit() and int(n) not in (1, os.getpid())))

def wait():
    os.write(1, b"ready\n")
    time.sleep(30)

def interrupted():
    def handle(number, frame):
        os.write(1, b"interrupted\n")
        os._exit(5)
    signal.signal(signal.SIGINT, handle)
    wait()

def control():
    handle = socket.socket(fileno=3)
    say("type", handle.type == socket.SOCK_STREAM)
    handle.sendall(handle.recv(100).upper())
    say("descriptors", " ".join(n for n in sorted(os.listdir("/proc/self/fd")) if int(n) <= 3))

def background():
    if os.fork() == 0:
        os.setsid()
        end = time.monotonic() + 30
        while time.monotonic() < end:
            open("alive", "a").write("x")
            time.sleep(0.005)

def bytes_out():
    os.write(1, b"\xff\xfe\x00\xc3\x28 a\r\n")
    os.write(2, b"\x80")

def stdin_twice():
    data = sys.stdin.buffer.read()
    say("read", len(data))
    say("sum", sum(data))
    say("more", len(sys.stdin.buffer.read()))

def ignore_stdin():
    pass

globals()[sys.argv[1]]()
