# Reads code from a private descriptor and runs it, as a session (one namespace for all calls) or as a zygote (a process a run).
# A frame is 16 bytes, a letter and the length of what follows, then that. A call's number comes behind its frame and is not read
# before the call has ended: code that runs cannot have seen it.
import sys


def driver():
    here = sys.path.pop(0)  # files of the work folder must not stand in for the modules used here
    import _ast, builtins, fcntl, io, linecache, os, select, signal, traceback, types
    sys.path.insert(0, here)

    link = fcntl.fcntl(3, fcntl.F_DUPFD_CLOEXEC, 100)
    os.close(3)
    os.dup2(1, 2)  # one stream: what is printed stays in order
    spare = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 101)
    for f in (sys.stdout, sys.stderr):
        f.reconfigure(encoding="utf-8", errors="backslashreplace")
    me = os.getpid()
    own = globals()
    running = False
    calls = 0

    def interrupted(*_):
        if running:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)

    def read(n):
        parts = []
        while n > 0:
            part = os.read(link, min(n, 1 << 20))
            if not part:
                os._exit(0)  # the host is done with this session
            parts.append(part)
            n -= len(part)
        return b"".join(parts)

    def frame():
        head = read(16)
        return head[:1], read(int(head[1:]))

    def number():
        return read(33)[:-1]

    def answer(nonce, *words):
        text = b"\n" + nonce + b" " + " ".join(map(str, words)).encode("ascii", "replace") + b"\n"
        while text:
            text = text[os.write(link, text):]

    def fresh():
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        return main.__dict__

    def show(e):
        tb = e.__traceback__
        while tb and tb.tb_frame.f_globals is own:
            tb = tb.tb_next
        try:
            text = "".join(traceback.TracebackException(type(e), e, tb).format())
        except BaseException:
            text = type(e).__name__ + "\n"
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except BaseException:
            os.write(spare, text.encode("utf-8", "backslashreplace"))

    def execute(source, name, space, echo):
        tree = compile(source, name, "exec", 0x400, True)
        last = None
        if echo and tree.body and isinstance(tree.body[-1], _ast.Expr):
            last = tree.body.pop()
        exec(compile(tree, name, "exec", 0, True), space)
        if last:  # shown as at a prompt
            exec(compile(_ast.Interactive([last]), name, "single", 0, True), space)

    def code_of(e):
        if e.code is None or isinstance(e.code, int):
            return (e.code or 0) & 255
        try:
            sys.stderr.write(str(e.code) + "\n")
        except BaseException:
            pass
        return 1

    def run(source, space, echo):
        nonlocal running, calls
        calls += 1
        name = "<call %d>" % calls if echo else "<code>"
        try:
            try:
                running = True
                source = source.decode("utf-8")
                linecache.cache[name] = (len(source), None, source.splitlines(True), name)
                execute(source, name, space, echo)
            finally:
                running = False
            return "ok", 0, "-"
        except SystemExit as e:
            return "exit", code_of(e), "-"
        except BaseException as e:
            running = False
            show(e)
            return ("interrupted" if isinstance(e, KeyboardInterrupt) else "error"), 1, type(e).__name__[:200]

    def mend():  # streams that the code closed
        for fd in (1, 2):
            try:
                os.fstat(fd)
            except OSError:
                os.dup2(spare, fd)
        for name, fd in (("stdout", 1), ("stderr", 2)):
            f = getattr(sys, name, None)
            try:
                f.flush()
            except BaseException:
                f = io.TextIOWrapper(io.FileIO(fd, "w", closefd=False), encoding="utf-8", errors="backslashreplace", write_through=True)
                setattr(sys, name, f)

    def load(names):
        for name in names.decode().split():
            __import__(name)

    def session():
        space = fresh()
        while True:
            kind, source = frame()
            how, code, name = run(source, space, True)
            if os.getpid() != me:  # a child that the code made came back here
                try:
                    sys.stdout.flush()
                finally:
                    os._exit(code)
            mend()
            answer(number(), how, code, name)
            if how == "exit":
                sys.exit(code)

    def child(source, data):
        os.setpgid(0, 0)
        os.close(link)
        try:
            f = os.memfd_create("stdin")
        except OSError:  # where no control group counts its memory there is none
            f = os.open(os.environ.get("TMPDIR") or "/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
        os.write(f, data) if len(data) < 1 << 16 else io.FileIO(f, "w", closefd=False).write(data)
        os.lseek(f, 0, 0)
        os.dup2(f, 0)
        os.close(f)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        numpy = sys.modules.get("numpy.random")
        if numpy:
            numpy.seed()  # random does this itself
        code = run(source, fresh(), False)[1]
        try:
            if "threading" in sys.modules:
                sys.modules["threading"]._shutdown()
            import atexit
            atexit._run_exitfuncs()
        except BaseException:
            pass
        mend()
        os._exit(code)

    def end(pid):  # and what it left in its group; it may have left that itself, for ours
        for kill in (os.killpg, os.kill):
            try:
                kill(pid, signal.SIGKILL)
            except OSError:
                pass

    def wait(pid):  # until it ends; the host may want it to end sooner
        try:
            ended = os.pidfd_open(pid)
        except (AttributeError, OSError):
            ended = -1
        ready = select.poll()
        ready.register(link, select.POLLIN)
        if ended >= 0:
            ready.register(ended, select.POLLIN)
        while True:
            events = ready.poll(-1 if ended >= 0 else 20)
            if any(fd == link for fd, _ in events):
                frame()
                end(pid)
            done, status, used = os.wait4(pid, os.WNOHANG)
            if done:
                break
        if ended >= 0:
            os.close(ended)
        try:
            os.killpg(pid, signal.SIGKILL)  # what it left in its group
        except OSError:
            pass
        return status, used

    def zygote():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            kind, source = frame()
            if kind == b"k":
                continue  # of a run that has just ended
            size, _, rest = source.partition(b"\n")
            data, source = rest[:int(size)], rest[int(size):]
            pid = os.fork()
            if pid == 0:
                child(source, data)
            try:
                os.setpgid(pid, pid)
            except OSError:
                pass  # it did so itself, or has ended
            nonce = number()  # read when the child can no longer know it
            status, used = wait(pid)
            signaled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            code = -1 if signaled else os.WEXITSTATUS(status)
            answer(nonce, "ran", code, signaled, int((used.ru_utime + used.ru_stime) * 1e6), used.ru_maxrss)

    def alone():  # a fork has none of the other threads, and may wait for ever for what they hold
        if len(os.listdir("/proc/self/task")) > 1:
            raise RuntimeError("the modules have started threads: a process with threads cannot be forked; import them in the code")

    kind, names = frame()
    try:
        load(names)
        if kind == b"z":
            alone()
    except BaseException as e:
        show(e)
        answer(number(), "error", 1, type(e).__name__[:200])
        return
    answer(number(), "ok", 0, "-")
    zygote() if kind == b"z" else session()


driver()
