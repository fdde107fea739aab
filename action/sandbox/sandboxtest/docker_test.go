//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"tranche/action/sandbox"
	"tranche/action/sandbox/bwrap"
	"tranche/action/sandbox/docker"
)

// The back end on a container engine, against an engine of ours: no daemon is here. It answers as the API's reference says and builds its containers
// with bubblewrap, out of what the request names. What the real one does with the same request is not shown by this: TestDockerReal does that.
func TestDocker(t *testing.T) {
	program, err := bwrap.Find("")
	if err != nil {
		t.Skip("the engine of this test builds its containers with bubblewrap: ", err)
	}
	if help, _ := exec.Command(program, "--help").CombinedOutput(); !strings.Contains(string(help), "--ro-bind-fd") {
		t.Skip("the engine of this test needs a bubblewrap that binds descriptors (--ro-bind-fd)")
	}
	e, init := startEngine(t, program), staticInit(t)
	t.Run("suite", func(t *testing.T) {
		RunBrief(t, func() (sandbox.Executor, error) {
			return docker.New(context.Background(), docker.Config{Socket: e.socket, Image: "known", Program: init})
		}, Except{
			"many small files": "the engine of this test cannot bound how many there are",
		})
	})
	e.check(t)
	t.Run("faults", func(t *testing.T) {
		for name, c := range map[string]struct {
			config docker.Config
			want   string
		}{
			"no image named":    {docker.Config{Socket: e.socket, Program: init}, "the image is not set"},
			"no such image":     {docker.Config{Socket: e.socket, Image: "unknown", Program: init}, "docker pull unknown"},
			"no engine":         {docker.Config{Socket: "/nonexistent/docker.sock", Image: "known", Program: init}, "/nonexistent/docker.sock"},
			"a container fails": {docker.Config{Socket: e.socket, Image: "known", Runtime: "none", Program: init}, "unknown or invalid runtime"},
		} {
			x, err := docker.New(t.Context(), c.config)
			if err == nil {
				_, err = x.Open(t.Context(), sandbox.Spec{})
				if err := x.Close(); err != nil {
					t.Error(err)
				}
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The same against the engine that is there. scripts/docker-suite makes the image and runs it.
func TestDockerReal(t *testing.T) {
	image := os.Getenv("TRANCHE_DOCKER_IMAGE")
	if image == "" {
		t.Skip("needs a container engine and an image with /usr/bin/python3: scripts/docker-suite, or TRANCHE_DOCKER_IMAGE=…")
	}
	init := staticInit(t)
	Run(t, func() (sandbox.Executor, error) {
		return docker.New(context.Background(), docker.Config{Image: image, Runtime: os.Getenv("TRANCHE_DOCKER_RUNTIME"), Program: init})
	}, Except{"files: devices": "an engine gives a few more: console, terminals of its own", "files: folders it can write to": "likewise /dev/mqueue"})
}

// staticInit builds what runs first in a container: this test itself may be linked to libraries that an image lacks.
func staticInit(t *testing.T) string {
	folder, err := os.MkdirTemp("/tmp", "init")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	path := filepath.Join(folder, "init")
	build := exec.Command("go", "build", "-o", path, "./testdata/init")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the first process of a container: %v\n%s", err, out)
	}
	return path
}

// fakeEngine is a container engine with one image: the host's /usr.
type fakeEngine struct {
	socket, bwrap string

	mu         sync.Mutex
	made       int
	containers map[string]*fakeContainer // guarded by mu
	asked      []fakeContainer           // all that were created; guarded by mu
}

// fakeContainer is what the reference calls ContainerConfig, as far as it is used.
type fakeContainer struct {
	Image           string
	Entrypoint, Cmd []string
	User            string
	NetworkDisabled bool
	HostConfig      struct {
		Binds                         []string
		Tmpfs                         map[string]string
		NetworkMode, IpcMode, Runtime string
		ReadonlyRootfs, AutoRemove    bool
		Memory, MemorySwap, PidsLimit int64
		CapDrop, CapAdd, SecurityOpt  []string
		Privileged                    bool
	}

	process *exec.Cmd
	ended   chan struct{}
}

func startEngine(t *testing.T, program string) *fakeEngine {
	folder, err := os.MkdirTemp("/tmp", "engine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o711); err != nil {
		t.Fatal(err)
	}
	e := &fakeEngine{socket: filepath.Join(folder, "docker.sock"), bwrap: program, containers: map[string]*fakeContainer{}}
	listener, err := net.Listen("unix", e.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	refuse := func(w http.ResponseWriter, status int, format string, args ...any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"message": fmt.Sprintf(format, args...)})
	}
	mux.HandleFunc("GET /v1.41/info", func(w http.ResponseWriter, _ *http.Request) { // it bounds neither, and says so
		whose := "name=seccomp"
		if os.Geteuid() != 0 { // all that it starts is this user
			whose = "name=rootless"
		}
		fmt.Fprintf(w, `{"ID":"x","MemoryLimit":false,"SwapLimit":false,"PidsLimit":false,"CgroupVersion":"2","DefaultRuntime":"runc","SecurityOptions":[%q]}`, whose)
	})
	mux.HandleFunc("GET /v1.41/images/{name}/json", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("name") != "known" {
			refuse(w, 404, "No such image: %s", r.PathValue("name"))
			return
		}
		fmt.Fprint(w, `{"Id":"sha256:0"}`)
	})
	mux.HandleFunc("GET /v1.41/containers/json", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "[]") })
	mux.HandleFunc("POST /v1.41/containers/create", func(w http.ResponseWriter, r *http.Request) {
		c := &fakeContainer{ended: make(chan struct{})}
		if err := json.NewDecoder(r.Body).Decode(c); err != nil {
			refuse(w, 400, "%v", err)
			return
		}
		if c.HostConfig.Runtime != "" {
			refuse(w, 400, "unknown or invalid runtime name: %s", c.HostConfig.Runtime)
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.made++
		id := strconv.Itoa(e.made)
		e.containers[id], e.asked = c, append(e.asked, *c)
		w.WriteHeader(201)
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": id, "Warnings": []string{}})
	})
	mux.HandleFunc("POST /v1.41/containers/{id}/start", func(w http.ResponseWriter, r *http.Request) {
		c := e.container(r.PathValue("id"))
		if c == nil {
			refuse(w, 404, "No such container")
			return
		}
		if err := e.start(c, r.PathValue("id")); err != nil {
			refuse(w, 500, "%v", err)
			return
		}
		w.WriteHeader(204)
	})
	mux.HandleFunc("DELETE /v1.41/containers/{id}", func(w http.ResponseWriter, r *http.Request) {
		c := e.container(r.PathValue("id"))
		if c == nil || c.process == nil || r.URL.Query().Get("force") != "true" {
			refuse(w, 404, "No such container")
			return
		}
		_ = c.process.Process.Kill()
		<-c.ended
		w.WriteHeader(204)
	})
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	server.Start()
	t.Cleanup(server.Close)
	return e
}

func (e *fakeEngine) container(id string) *fakeContainer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.containers[id]
}

// start builds what the request names.
func (e *fakeEngine) start(c *fakeContainer, id string) error {
	user, _, _ := strings.Cut(c.User, ":")
	number, err := strconv.Atoi(user)
	if err != nil || number == 0 {
		return fmt.Errorf("user %q", c.User)
	}
	args := []string{"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--uid", user, "--gid", user, "--hostname", "sandbox", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL",
		"--ro-bind", "/usr", "/usr", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--ro-bind-try", "/etc/alternatives", "/etc/alternatives", "--proc", "/proc", "--tmpfs", "/dev"}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		args = append(args, "--symlink", "usr/"+name, "/"+name)
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		args = append(args, "--dev-bind", "/dev/"+name, "/dev/"+name)
	}
	args = append(args, "--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/proc/self/fd/0", "/dev/stdin", "--symlink", "/proc/self/fd/1", "/dev/stdout")
	for _, name := range []string{"kcore", "keys", "kmsg", "timer_list", "sysrq-trigger", "vmallocinfo", "kallsyms", "slabinfo", "kpageflags"} {
		if exists("/proc/" + name) {
			args = append(args, "--ro-bind", "/dev/null", "/proc/"+name)
		}
	}
	for _, name := range []string{"acpi", "irq", "bus", "scsi"} {
		if exists("/proc/" + name) {
			args = append(args, "--tmpfs", "/proc/"+name, "--remount-ro", "/proc/"+name)
		}
	}
	if c.HostConfig.NetworkMode == "none" {
		args = append(args, "--unshare-net")
	}
	for path, options := range c.HostConfig.Tmpfs {
		size, mode := option(options, "size"), option(options, "mode")
		args = append(args, "--perms", mode, "--size", size, "--tmpfs", path)
	}
	cmd := &exec.Cmd{Path: e.bwrap, Env: []string{}, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	for _, b := range c.HostConfig.Binds {
		parts := strings.Split(b, ":")
		source, err := e.reachable(parts[0])
		if err != nil {
			return err
		}
		f, err := os.Open(source)
		if err != nil {
			return err
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		args = append(args, "--ro-bind-fd", strconv.Itoa(2+len(cmd.ExtraFiles)), parts[1])
	}
	args = append(args, "--remount-ro", "/dev", "--remount-ro", "/", "--")
	cmd.Args = slices.Concat([]string{e.bwrap}, args, c.Entrypoint, c.Cmd)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(number), Gid: uint32(number)}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.process = cmd
	go func() { // ends with the container
		_ = cmd.Wait()
		e.mu.Lock()
		delete(e.containers, id) // AutoRemove
		e.mu.Unlock()
		close(c.ended)
	}()
	return nil
}

// reachable is a file or folder under a name of the engine's own: a daemon mounts what others may not pass to, bubblewrap does not.
func (e *fakeEngine) reachable(path string) (string, error) {
	place, err := os.MkdirTemp(filepath.Dir(e.socket), "bound")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(place, 0o711); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, syscall.ENOTDIR) {
		place = filepath.Join(place, "file")
		return place, copyFile(place, path)
	}
	for _, entry := range entries {
		err = errors.Join(err, os.Link(filepath.Join(path, entry.Name()), filepath.Join(place, entry.Name())))
	}
	return place, err
}

func option(list, name string) string {
	for o := range strings.SplitSeq(list, ",") {
		if value, ok := strings.CutPrefix(o, name+"="); ok {
			return value
		}
	}
	return ""
}

// check holds every container that was asked for to what makes it a sandbox, and the engine to having none left.
func (e *fakeEngine) check(t *testing.T) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.containers) > 0 || len(e.asked) == 0 {
		t.Errorf("%d containers were asked for and %d are left", len(e.asked), len(e.containers))
	}
	for _, c := range e.asked {
		h := c.HostConfig
		switch {
		case c.Image != "sha256:0", !c.NetworkDisabled, h.NetworkMode != "none", h.IpcMode != "private", !h.ReadonlyRootfs, !h.AutoRemove, h.Privileged, len(h.CapAdd) > 0,
			!slices.Equal(h.CapDrop, []string{"ALL"}), !slices.Contains(h.SecurityOpt, "no-new-privileges"), h.Memory < 1<<20, h.MemorySwap != h.Memory, h.PidsLimit < 1, len(h.Tmpfs) != 3:
			t.Errorf("not a sandbox: %+v", c)
		}
		for _, b := range h.Binds {
			if !strings.HasSuffix(b, ":ro") {
				t.Errorf("bound for writing: %s", b)
			}
		}
		for path, o := range h.Tmpfs {
			for _, want := range []string{"nosuid", "nodev"} {
				if !slices.Contains(strings.Split(o, ","), want) || option(o, "size") == "" || option(o, "nr_inodes") == "" {
					t.Errorf("%s is %s", path, o)
				}
			}
		}
	}
}
