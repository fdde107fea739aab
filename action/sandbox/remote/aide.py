# Runs on the far side: one request, one answer. Request and answer are files of JSON beside each other; bytes are in base64.
import base64, ctypes, errno, json, os, resource, select, signal, stat, sys, tarfile, tempfile, time

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Kept:
    """The beginning and the end of a stream, or all of it."""
    def __init__(self, keep):
        self.half, self.head, self.tail, self.total = keep // 2 if keep >= 0 else None, bytearray(), bytearray(), 0

    def add(self, data):
        self.total += len(data)
        if self.half is None:
            self.head += data
            return
        room = self.half - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        if len(self.tail) > 4 * self.half + 65536:
            del self.tail[:len(self.tail) - self.half]

    def said(self):
        tail = self.tail[max(0, len(self.tail) - (self.half or 0)):] if self.half is not None else b""
        return {"head": text(self.head), "tail": text(tail), "total": self.total}


def text(data):
    return base64.b64encode(bytes(data)).decode()


def children(pid):
    found = []
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread)) as f:
                found += [int(n) for n in f.read().split()]
    except OSError:
        pass
    return found


def state(pid):
    try:
        with open("/proc/%d/stat" % pid, "rb") as f:
            return f.read().rsplit(b")", 1)[1].split()[0]
    except OSError:
        return b"X"


def descendants():
    found, pending = [], [os.getpid()]
    while pending:
        for child in children(pending.pop()):
            pending.append(child)
            if state(child) not in (b"Z", b"X"):
                found.append(child)
    return found


def sweep(known):
    """Kills and reaps all that is left below this process. Says how many there were, and how the known one ended."""
    left, ended, deadline = 0, None, time.monotonic() + 10
    first = True
    while True:
        alive = descendants()
        if first:
            left, first = len([p for p in alive if p != known]), False
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == known:
                    ended = status
        except ChildProcessError:
            return left, ended
        if time.monotonic() > deadline:
            raise RuntimeError("processes cannot be killed")
        time.sleep(0.002)


def become(r, stdin, out, err, fault):
    try:
        os.setsid()
        for number, handle in enumerate((stdin, out, err)):
            os.dup2(handle, number)
        for number in [int(n) for n in os.listdir("/proc/self/fd")]:
            if number > 2 and number != fault:  # what whoever started this had open
                try:
                    os.close(number)
                except OSError:
                    pass
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o022)
        limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, r["open_files"]), (resource.RLIMIT_FSIZE, r["file_size"])]
        if r["cpu_s"]:
            limits.append((resource.RLIMIT_CPU, r["cpu_s"]))
        for what, most in limits:
            hard = resource.getrlimit(what)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(what, (most, most))
        os.chdir(os.path.join(r["work"], r["dir"]))
        args, env = r["args"], dict(v.split("=", 1) for v in r["env"])
        args = [a.encode("utf-8", "surrogateescape") for a in args]
        most = r["memory"]
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        os.execvpe(args[0], args, env)
    except OSError as e:
        os.write(fault, b"%d" % (e.errno or 0))
    except BaseException as e:
        os.write(fault, b"0 " + repr(e).encode())
    os._exit(127)


def run(r):
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans fall to this process
    stdin = tempfile.TemporaryFile()
    stdin.write(base64.b64decode(r["stdin"] or ""))
    stdin.seek(0)
    outs = [os.pipe(), os.pipe()]
    fault = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        become(r, stdin.fileno(), outs[0][1], outs[1][1], fault[1])
    for handle in (outs[0][1], outs[1][1], fault[1]):
        os.close(handle)
    why = os.read(fault[0], 4096)
    if why:
        os.waitpid(child, 0)
        number, _, said = why.partition(b" ")
        if said:
            raise RuntimeError(said.decode())
        return {"missing": int(number), "why": os.strerror(int(number))}
    kept = {outs[0][0]: Kept(r["keep"]), outs[1][0]: Kept(r["keep"])}
    poll = select.poll()
    for handle in kept:
        os.set_blocking(handle, False)
        poll.register(handle, select.POLLIN | select.POLLHUP)
    opened, stopped, status = set(kept), "", None
    while status is None and not stopped:
        for handle, _ in poll.poll(5):
            drain(handle, kept, opened, poll, 16)
        if r["output_limit"] and sum(k.total for k in kept.values()) > r["output_limit"]:
            stopped = "output_limit"
        elif r["wall_s"] and time.monotonic() - began >= r["wall_s"]:
            stopped = "wall_limit"
        pid, ended = os.waitpid(child, os.WNOHANG)
        if pid == child:
            status = ended
    wall = time.monotonic() - began
    left, ended = sweep(child)
    status = ended if status is None else status
    for handle in list(opened):
        drain(handle, kept, opened, poll, 1 << 30)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    out, err = [k.said() for k in kept.values()]
    return {"status": status, "stopped": stopped, "stdout": out, "stderr": err, "wall_s": wall, "cpu_s": used.ru_utime + used.ru_stime,
        "peak": used.ru_maxrss * 1024, "left": left}


def drain(handle, kept, opened, poll, times):
    """Reads what is there, and not for ever where more keeps coming."""
    for _ in range(times):
        try:
            data = os.read(handle, 65536)
        except BlockingIOError:
            return
        if not data:
            poll.unregister(handle)
            opened.discard(handle)
            return
        kept[handle].add(data)


class Fault(Exception):
    """What of a path is the cause: escape, path, large, missing."""


def walk(work, path, make):
    """The open folder that a path's last name is in; no link is followed."""
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise Fault("escape", "")
    names = [n for n in path.split("/") if n not in ("", ".")]
    if not names:
        raise Fault("path", "is no file")
    at = os.open(work, READ | os.O_DIRECTORY)
    for name in names[:-1]:
        try:
            if make:
                try:
                    os.mkdir(name, 0o755, dir_fd=at)
                except FileExistsError:
                    pass
            if stat.S_ISLNK(os.lstat(name, dir_fd=at).st_mode):
                raise Fault("escape", "")
            below = os.open(name, READ | os.O_DIRECTORY, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at, names[-1]


def guarded(do):
    try:
        return do()
    except Fault as e:
        return {"fault": e.args[0], "why": e.args[1], "size": e.args[2] if len(e.args) > 2 else 0}
    except OSError as e:
        kinds = {errno.ENOENT: "missing", errno.ELOOP: "escape", errno.ENOSPC: "full", errno.EDQUOT: "full"}
        if e.errno in kinds or e.errno in (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ENXIO, errno.EEXIST, errno.ENOTEMPTY):
            return {"fault": kinds.get(e.errno, "path"), "why": os.strerror(e.errno)}
        raise


def put(r):
    at, name = walk(r["work"], r.get("path") or "", True)
    temporary = ".tranche-%d" % os.getpid()
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=at)
        try:
            view = memoryview(base64.b64decode(r["data"] or ""))
            while view:
                view = view[os.write(handle, view):]
            os.fchmod(handle, r["mode"])
            os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            os.unlink(temporary, dir_fd=at)
            raise
        finally:
            os.close(handle)
    finally:
        os.close(at)
    return {}


def get(r):
    at, name = walk(r["work"], r.get("path") or "", False)
    try:
        handle = os.open(name, READ | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)
    with os.fdopen(handle, "rb") as f:
        mode = os.fstat(handle)
        if not stat.S_ISREG(mode.st_mode):
            raise Fault("path", "is no regular file")
        data = b"" if mode.st_size > r["limit"] else f.read(r["limit"] + 1)
        if mode.st_size > r["limit"] or len(data) > r["limit"]:
            raise Fault("large", "", max(mode.st_size, len(data)))
    return {"data": text(data), "mode": stat.S_IMODE(mode.st_mode) & 0o777}


def remove(folder):
    for at, folders, files in os.walk(folder):
        os.chmod(at, 0o700)
        for name in folders:
            path = os.path.join(at, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    for at, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(os.path.join(at, name))
        for name in folders:
            path = os.path.join(at, name)
            (os.unlink if os.path.islink(path) else os.rmdir)(path)
    os.rmdir(folder)


def unmake(r):
    if os.path.isdir(r["work"]):
        remove(r["work"])
    return {}


class Full(Exception):
    """More than can be kept."""


def keep(r, answer):
    """Keeps the work folder. Where a program left too much in it, its end is a limit's and not a failure of ours."""
    try:
        pack(r["work"], "tranche-tree.tar", r["most"])
    except Full as e:
        if not os.path.exists("tranche-tree.tar"):
            tarfile.open("tranche-tree.tar", "w").close()
        if r["op"] == "run":
            answer["stopped"] = answer.get("stopped") or "file_limit"
        else:
            answer = {"fault": "full", "why": str(e)}
    return answer


def pack(work, path, most):
    """The work folder as a tar file, for a far side that keeps nothing. What was kept before stays where that is too much."""
    size = 0
    os.chmod(work, 0o700)
    with tarfile.open(path + ".new", "w") as tar:
        for at, folders, files in os.walk(work):
            folders.sort()
            for name in sorted(folders + files):
                full = os.path.join(at, name)
                mode = os.lstat(full)
                if not (stat.S_ISREG(mode.st_mode) or stat.S_ISDIR(mode.st_mode) or stat.S_ISLNK(mode.st_mode)):
                    continue
                size += 512 + mode.st_size  # with its heading
                if size > most:
                    raise Full("the work folder holds more than %d bytes, which cannot be kept" % most)
                info = tar.gettarinfo(full, os.path.relpath(full, work))
                if not stat.S_ISLNK(mode.st_mode) and not os.access(full, os.R_OK | (os.X_OK if info.isdir() else 0)):
                    os.chmod(full, 0o700)  # closed to its owner
                if info.isreg():
                    with open(full, "rb") as f:
                        tar.addfile(info, f)
                else:
                    tar.addfile(info)
    os.replace(path + ".new", path)


def unpack(work, path):
    os.mkdir(work, 0o755)
    if os.path.exists(path):
        with tarfile.open(path) as tar:
            tar.extractall(work)


def main():
    kept = len(sys.argv) == 1  # the far side keeps nothing: the tree comes and goes with each request
    with open(sys.argv[1] if not kept else "tranche-request.json") as f:
        r = json.load(f)
    try:
        if kept:
            r["work"] = os.path.abspath("w")
            unpack(r["work"], "tranche-tree.tar")
        if r["op"] == "run":
            r["env"] = [v.replace("\0work", r["work"]) for v in r["env"]]
            answer = run(r)
        else:
            answer = guarded(lambda: {"put": put, "get": get, "unmake": unmake}[r["op"]](r))
        if kept:
            answer = keep(r, answer)
    except Exception as e:
        answer = {"error": "%s: %s" % (type(e).__name__, e)}
    answer = json.dumps(answer)
    if kept:
        with open("tranche-answer.json", "w") as f:
            f.write(answer)
    else:
        sys.stdout.write(answer)


main()
