# What a program finds. In a clean slot it is the same, byte for byte, as in a new one.
def table(path):
    try:
        return len(open(path).read().splitlines()) - 1
    except OSError as e:
        return errno.errorcode[e.errno]

def tree(folder):
    found = []
    for at, folders, files in os.walk(folder):
        found += [os.path.join(at, name) for name in sorted(folders) + files]
    mode = os.stat(folder)
    return f"{oct(mode.st_mode)} {mode.st_uid == os.getuid()} {found[:10]} {len(found)}"

alone = len(sys.argv) == 1  # in a tree of its own

for folder in ["/w", "/tmp", "/dev/shm"] if alone else ["."]:
    say(folder, tree(folder))
    if alone:
        space = os.statvfs(folder)
        say(folder + " room", f"{space.f_blocks * space.f_bsize} {space.f_bavail == space.f_blocks} inodes {space.f_files} {space.f_files - space.f_ffree}")
say("/", sorted(os.listdir("/")) if alone else "")
if alone:
    say("processes", sum(name.isdigit() for name in os.listdir("/proc")))
    say("mounts", sorted(l.split(" - ")[0].split()[3 + ("/.tranche/" in l):6] for l in open("/proc/self/mountinfo").read().splitlines()))
    for name in ["shm", "sem", "msg"]:
        say("sysvipc " + name, table("/proc/sysvipc/" + name))
    for name in ["tcp", "udp", "tcp6"]:
        say("net " + name, [l for l in open("/proc/net/" + name).read().splitlines()[1:] if l.split()[3] != "06"])
say("environment", sorted(os.environ.items()) if alone else sorted(os.environ))
say("folder", os.getcwd() if alone else "")
say("umask", oct(os.umask(0)))
say("limits", [resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith("RLIMIT_") and n != "RLIMIT_CPU"])
say("nice", os.nice(0))
say("cores", len(os.sched_getaffinity(0)))
say("policy", os.sched_getscheduler(0))
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
for key in ["SigBlk", "SigIgn", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Groups", "Uid", "Gid", "CoreDumping", "Cpus_allowed", "TracerPid"]:
    value = status[key].strip()
    say(key, value if key not in ("Uid", "Gid") else len(set(value.split())) == 1 and "0" not in value.split())  # each may have one of its own
for name in ["personality", "oom_score_adj", "oom_adj", "timerslack_ns"]:
    try:
        say(name, open("/proc/self/" + name).read().strip())
    except OSError as e:
        say(name, errno.errorcode[e.errno])
say("host", os.uname().nodename)
say("descriptors", len(os.listdir("/proc/self/fd")))
say("session of its own", os.getpgrp() == os.getpid())
