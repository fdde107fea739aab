//go:build linux && (amd64 || arm64)

package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
	"tranche/action/sandbox/ns"
)

// Config says which engine, and what containers are made of. Image must be set.
type Config struct {
	// Socket is the engine's. Default: /var/run/docker.sock.
	Socket string
	// Image is what containers are made of, as python:3.12-slim. It has to be there: nothing is pulled.
	Image string
	// Runtime is the engine's runtime, as runsc. Default: the engine's own.
	Runtime string
	// Dir holds the sockets over which containers take their work. The engine must see it under the same path. Default: the system's
	// folder for temporary files.
	Dir string
	// Program is the first process of each container: a program without an interpreter (CGO_ENABLED=0), since an image need not have one, whose
	// main calls ns.Init first. Default: this program itself.
	Program string
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	if c.Image == "" {
		return errors.New("the image is not set, expected the name of one such as python:3.12-slim")
	}
	return nil
}

const (
	backend = "docker"

	defaultSocket = "/var/run/docker.sock"
	folderPrefix  = "tranche-docker-"
	ownerLabel    = "tranche.owner"
	nativeRuntime = "runc"

	// inside a container
	ownFolder = "/.tranche"
	socket    = "socket"

	firstID = 0x73000000 // of users, one a slot; systemd's list of ids calls them unused
	idCount = 1 << 20

	// connectWithin is how long the first process of a container may take to call.
	connectWithin = time.Minute
)

// launcher starts containers.
type launcher struct {
	config Config
	engine *engine
	mapped bool // the engine maps users to others: there are few of them
	owner  owner
	image  string // its id: a name can become another image's
	native bool   // its processes are here who they are told to be
}

// New makes the back end and tries it by running a program in a container, until ctx is done. Config.Program says what the program that calls it must be.
func New(ctx context.Context, c Config) (*ns.Executor, error) {
	fault := func(err error) (*ns.Executor, error) { return nil, fmt.Errorf("sandbox %s: %w", backend, err) }
	if err := c.Validate(); err != nil {
		return fault(err)
	}
	c.Socket, c.Dir = cmp.Or(c.Socket, defaultSocket), cmp.Or(c.Dir, os.TempDir())
	if c.Program == "" {
		own, err := os.Executable()
		if err != nil {
			return fault(err)
		}
		c.Program = own
	}
	if err := static(c.Program); err != nil {
		return fault(err)
	}
	l := &launcher{config: c, engine: newEngine(c.Socket)}
	asking, stop := context.WithTimeout(ctx, apiTimeout)
	defer stop()
	about, err := l.engine.info(asking)
	if err != nil {
		return fault(fmt.Errorf("ask the engine: %w", err))
	}
	if l.image, err = l.engine.image(asking, c.Image); err != nil {
		return fault(err)
	}
	if l.owner, err = ownOwner(); err != nil {
		return fault(err)
	}
	sweepFolders(c.Dir, time.Now())
	if err := l.sweep(asking); err != nil {
		return fault(fmt.Errorf("ask the engine what was left: %w", err))
	}
	for _, option := range about.SecurityOptions {
		l.mapped = l.mapped || strings.HasPrefix(option, "name=userns") || strings.HasPrefix(option, "name=rootless")
	}
	l.native = !l.mapped && cmp.Or(c.Runtime, about.DefaultRuntime, nativeRuntime) == nativeRuntime // gVisor's and others have one process that opens sockets for all
	launch := &ns.Launch{Backend: backend, Start: l.start, Tier: sandbox.TierEngine}
	launch.Held, launch.Why = held(about)
	x, err := ns.NewWithin(ctx, ns.Config{Launch: launch})
	if err == nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), x.Close())
	}
	if err != nil {
		return fault(err)
	}
	return x, nil
}

// ImageID is the digest of the image that containers are made of.
func ImageID(ctx context.Context, c Config) (string, error) {
	if err := c.Validate(); err != nil {
		return "", fmt.Errorf("sandbox %s: %w", backend, err)
	}
	ctx, stop := context.WithTimeout(ctx, apiTimeout)
	defer stop()
	id, err := newEngine(cmp.Or(c.Socket, defaultSocket)).image(ctx, c.Image)
	if err != nil {
		return "", fmt.Errorf("sandbox %s: %w", backend, err)
	}
	return id, nil
}

// held says what the engine holds, as it says itself.
func held(i info) (map[sandbox.Promise]sandbox.Strength, map[sandbox.Promise]string) {
	can, why := map[sandbox.Promise]sandbox.Strength{}, map[sandbox.Promise]string{}
	if !i.MemoryLimit {
		can[sandbox.PromiseMemory], why[sandbox.PromiseMemory] = sandbox.BestEffort, "the engine says that it cannot limit memory; the limit is one of each process"
	} else if !i.SwapLimit {
		can[sandbox.PromiseMemory], why[sandbox.PromiseMemory] = sandbox.BestEffort, "the engine says that it cannot limit swap: what is over the limit goes there"
	}
	if !i.PidsLimit {
		can[sandbox.PromisePids], why[sandbox.PromisePids] = sandbox.BestEffort, "the engine says that it cannot limit processes; the limit is one of the user that programs are"
	}
	can[sandbox.PromiseCPU], why[sandbox.PromiseCPU] = sandbox.BestEffort, "the time of children that nobody waits for is seen only while they run"
	return can, why
}

// start has the engine start a container, and waits for its first process to call.
func (l *launcher) start(ctx context.Context, o ns.LaunchOrder) (ns.Launched, error) {
	if o.Spec.Rootfs != "" {
		return ns.Launched{}, errors.New("the image is the root file system: rootfs cannot be set beside it")
	}
	if want := o.Spec.RootfsDigest; want != "" && want != l.image {
		return ns.Launched{}, fmt.Errorf("the image %s is %s, expected %s", l.config.Image, l.image, want)
	}
	dir, err := os.MkdirTemp(l.config.Dir, folderPrefix)
	if err != nil {
		return ns.Launched{}, err
	}
	defer os.RemoveAll(dir)          // once it has called, nobody needs the socket; whoever connects later finds none
	shown := filepath.Join(dir, "s") // the folder above it is closed: nobody of this machine passes through it, and the container sees this one
	if err := os.Mkdir(shown, 0o711); err != nil {
		return ns.Launched{}, err
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(shown, socket), Net: "unixpacket"})
	if err != nil {
		return ns.Launched{}, err
	}
	defer listener.Close()
	if err := errors.Join(os.Chmod(shown, 0o711), os.Chmod(filepath.Join(shown, socket), 0o666)); err != nil { // the container's user is another
		return ns.Launched{}, err
	}
	asking, stop := context.WithTimeout(ctx, apiTimeout)
	defer stop()
	id, err := l.engine.run(asking, l.container(o, shown))
	if err != nil {
		return ns.Launched{}, fmt.Errorf("start a container: %w", err)
	}
	conn, err := l.accept(ctx, listener, l.user(o.Number))
	if err != nil {
		return ns.Launched{}, errors.Join(fmt.Errorf("the first process of the container did not call (does the engine see %s and %s?): %w", l.config.Program, dir, err), l.engine.removeSoon(ctx, id))
	}
	removed := make(chan error, 1)
	kill := sync.OnceFunc(func() {
		go func() { // ends within apiTimeout; Wait waits for it
			ending, stop := context.WithTimeout(context.WithoutCancel(ctx), apiTimeout)
			defer stop()
			removed <- l.engine.remove(ending, id)
		}()
	})
	return ns.Launched{
		Socket: conn,
		Kill: func() error {
			kill()
			return nil
		},
		Wait: func() error { return <-removed },
	}, nil
}

// accept waits for the container to call. Whoever else does is sent away, where it is known whom the engine's processes are here.
func (l *launcher) accept(ctx context.Context, listener *net.UnixListener, user int) (*os.File, error) {
	ctx, stop := context.WithTimeout(ctx, connectWithin)
	defer stop()
	defer context.AfterFunc(ctx, func() { _ = listener.SetDeadline(time.Unix(1, 0)) })() // an error: it is closed
	var others error
	for {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return nil, errors.Join(context.Cause(ctx), err, others)
		}
		f, caller, err := taken(conn)
		if err != nil {
			return nil, err
		}
		if l.native && caller != user {
			others = errors.Join(fmt.Errorf("a process of user %d called, expected one of user %d", caller, user), f.Close())
			continue
		}
		return f, nil
	}
}

// taken is a connection as a file, and whose process is at its other end.
func taken(conn *net.UnixConn) (f *os.File, caller int, err error) {
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, -1, err
	}
	fd, failed := -1, error(nil)
	err = raw.Control(func(n uintptr) {
		var who *unix.Ucred
		if who, failed = unix.GetsockoptUcred(int(n), unix.SOL_SOCKET, unix.SO_PEERCRED); failed == nil {
			caller = int(who.Uid)
			fd, failed = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 0)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, -1, err
	}
	return os.NewFile(uintptr(fd), "sandbox"), caller, nil // like its twin it does not block
}

// container is what one sandbox is.
func (l *launcher) container(o ns.LaunchOrder, dir string) container {
	const initThreads = 24 // that the engine counts with the programs' processes
	id := strconv.Itoa(l.user(o.Number))
	limits := o.Spec.Limits
	network := "none"
	if o.Spec.Net {
		network = "bridge"
	}
	c := container{
		Image: l.image, Entrypoint: []string{ownFolder + "/tranche"}, Cmd: ns.InitArgs(ownFolder + "/s/" + socket), User: id + ":" + id, WorkingDir: "/", Hostname: sandbox.HostName,
		NetworkDisabled: !o.Spec.Net, Labels: map[string]string{ownerLabel: l.owner.String()},
		HostConfig: hostConfig{
			Binds: []string{l.config.Program + ":" + ownFolder + "/tranche:ro", dir + ":" + ownFolder + "/s:ro"}, Tmpfs: map[string]string{},
			NetworkMode: network, IpcMode: "private", CgroupnsMode: "private", ReadonlyRootfs: true, AutoRemove: true,
			Memory: limits.Memory, MemorySwap: limits.Memory, PidsLimit: int64(limits.Pids) + initThreads,
			CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, Runtime: l.config.Runtime, LogConfig: logConfig{Type: "none"},
		},
	}
	for _, f := range ns.WritableFolders(limits) {
		c.HostConfig.Tmpfs[f.Path] = fmt.Sprintf("rw,exec,nosuid,nodev,size=%d,nr_inodes=%d,mode=%04o,uid=%s,gid=%s", f.Size, f.Files, f.Mode, id, id)
	}
	return c
}

// user is whom the programs of a slot are: one of their own, but where the engine maps users to others and has few of them.
func (l *launcher) user(slot int) int {
	if l.mapped {
		return sandbox.GuestID
	}
	const aProcess = 4096
	return firstID + (os.Getpid()*aProcess+slot)%idCount
}
