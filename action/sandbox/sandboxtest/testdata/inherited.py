# What came along that nobody meant to give.
names = sorted(int(n) for n in os.listdir("/proc/self/fd"))
own = []
for number in names:
    try:
        target = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        continue  # the one that listed the folder
    if not target.startswith("/proc/"):
        own.append(number)
say("descriptors", " ".join(map(str, own)))
say("kinds", " ".join(os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in own))
say("environment", " ".join(sorted(os.environ)))
say("secret in the environment", any("planted" in v for v in os.environ.values()))
say("secret in /proc/self/environ", b"planted" in open("/proc/self/environ", "rb").read())
say("folder", os.getcwd())
say("controlling terminal", (lambda f: f[4] if f[4] != "0" else "none")(open("/proc/self/stat").read().rsplit(")", 1)[1].split()))
