# Ways to anyone outside. The test listens on a port of the host, on an abstract socket and on a socket file.
port = int(os.environ["SANDBOXTEST_PORT"])
addresses = os.environ["SANDBOXTEST_ADDRESSES"].split()

def connect(family, address, kind=socket.SOCK_STREAM):
    s = socket.socket(family, kind)
    s.settimeout(2)
    s.connect(address)
    s.send(b"sandboxtest")

for address in ["127.0.0.1", *addresses]:
    attempt(f"TCP {address}", lambda: connect(socket.AF_INET6 if ":" in address else socket.AF_INET, (address, port)))
    if not address.startswith("127."):
        attempt(f"UDP {address}", lambda: connect(socket.AF_INET6 if ":" in address else socket.AF_INET, (address, port), socket.SOCK_DGRAM))
attempt("TCP abroad", lambda: connect(socket.AF_INET, ("192.0.2.1", 80)))
attempt("TCP metadata service", lambda: connect(socket.AF_INET, ("169.254.169.254", 80)))
attempt("abstract socket", lambda: connect(socket.AF_UNIX, b"\0" + os.environ["SANDBOXTEST_ABSTRACT"].encode()))
attempt("socket file", lambda: connect(socket.AF_UNIX, os.environ["SANDBOXTEST_SOCKET"]))
FAMILIES = dict(AX25=3, IPX=4, APPLETALK=5, NETROM=6, X25=9, KEY=15, NETLINK=16, PACKET=17, RDS=21, LLC=26, CAN=29, TIPC=30, BLUETOOTH=31,
    ALG=38, NFC=39, VSOCK=40, KCM=41, QIPCRTR=42, SMC=43, XDP=44, MCTP=45)
for name, number in FAMILIES.items():
    for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET]:
        attempt(f"socket AF_{name} {kind}", lambda: socket.socket(number, kind).fileno() * 0)
attempt("raw IP socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).fileno() * 0)
attempt("socketpair AF_NETLINK", lambda: socket.socketpair(16, socket.SOCK_DGRAM) and None)

def own_server():
    """What a program may do: serve and ask itself."""
    for family, address in [(socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, "/tmp/s"), (socket.AF_UNIX, b"\0own")]:
        with socket.socket(family) as server, socket.socket(family) as client:
            server.bind(address)
            server.listen()
            client.connect(server.getsockname())
            server.accept()[0].send(b"x")
            assert client.recv(1) == b"x"

attempt("own server", own_server)
say("interfaces", " ".join(name for _, name in socket.if_nameindex()) if False else " ".join(l.split(":")[0].strip() for l in open("/proc/net/dev").read().splitlines()[2:]))
