//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/action/sandbox"
)

// probe is a program that tries many things and says how each went. What is not in wants must have been refused.
type probe struct {
	name    string
	needs   []sandbox.Promise
	program string
	host    func(*testing.T) (env []string, after func()) // the part that the host has in it
	wants   map[string]string                             // what the program says of the rest; "*" = anything
	least   int                                           // outcomes there must be, so that a program that stopped half-way is no success
}

// refusals are the outcomes of a thing that could not be done for want of permission or because it is not there. EINVAL and EFAULT
// are none of them: they say that the arguments were bad, and better ones might do.
func refusals() []string {
	return []string{"EPERM", "EACCES", "ENOSYS", "ENOENT", "ENODEV", "ENXIO", "EROFS", "ESRCH", "SIGSYS", "EAFNOSUPPORT", "ESOCKTNOSUPPORT",
		"EPROTONOSUPPORT", "EOPNOTSUPP", "ENOTTY", "ENOTDIR", "ENODATA"}
}

func probes() []probe {
	syscalls, files, network := sandbox.PromiseSyscalls, sandbox.PromiseFiles, sandbox.PromiseNet
	none := "0000000000000000"
	return []probe{
		{name: "system calls", needs: []sandbox.Promise{syscalls}, program: "syscalls", least: 70},
		{name: "identity", needs: []sandbox.Promise{syscalls, files}, program: "identity", least: 16, wants: map[string]string{
			"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2",
			"pid 1 is the parent": "True", "own setuid program": "ok same", "setuid programs of the host": "ok none",
			// An id that the namespace does not know is an invalid one.
			"setuid 0": "EINVAL|EPERM", "setuid 1": "EINVAL|EPERM", "setuid 1000": "EINVAL|EPERM", "setuid 65534": "EINVAL|EPERM",
			"setgid 0": "EINVAL|EPERM", "setgid 1": "EINVAL|EPERM", "setgid 1000": "EINVAL|EPERM", "setgid 65534": "EINVAL|EPERM",
			"chown to another": "EINVAL|EPERM",
		}},
		{name: "files", needs: []sandbox.Promise{files}, program: "files", least: 80, host: hostPaths, wants: map[string]string{
			"folders it can write to": "/dev/shm /tmp /w", "files it found and can write to": "", "devices": "/dev/full /dev/null /dev/random /dev/urandom /dev/zero",
		}},
		{name: "inherited", program: "inherited", least: 7, wants: map[string]string{
			"descriptors": "0 1 2", "kinds": "*", "environment": "*", "secret in the environment": "False", "secret in /proc/self/environ": "False",
			"folder": "*", "controlling terminal": "none",
		}},
		{name: "network", needs: []sandbox.Promise{network}, program: "network", least: 80, host: listen, wants: map[string]string{
			"own server": "ok", "interfaces": "lo",
		}},
	}
}

// probe plays one and makes every outcome a subtest.
func (s *stage) probe(t *testing.T, p probe) {
	s.need(t, p.name, p.needs...)
	box := s.open(t)
	cmd := s.command(p.program)
	after := func() {}
	if p.host != nil {
		var env []string
		env, after = p.host(t)
		cmd.Env = append(cmd.Env, env...)
	}
	r := run(t, box, cmd)
	after()
	got := outcomes(text(r.Stdout))
	if r.Status != sandbox.StatusOK || len(got) < p.least {
		t.Errorf("%d outcomes, want %d at least: %s", len(got), p.least, summary(r))
	}
	for _, what := range slices.Sorted(maps.Keys(got)) {
		t.Run(what, func(t *testing.T) {
			if why := s.except[p.name+": "+what]; why != "" {
				t.Skip(why)
			}
			if fault := p.fault(what, got[what]); fault != "" {
				t.Error(fault)
			}
		})
	}
	if strings.Contains(text(r.Stdout), planted) {
		t.Error("the program found what was planted")
	}
	s.checkClean(t, box)
}

// fault says what is wrong with one outcome.
func (p probe) fault(what, got string) string {
	want, listed := p.wants[what]
	switch {
	case want == "*", listed && (got == want || want != "" && slices.Contains(strings.Split(want, "|"), got)):
		return ""
	case listed:
		return fmt.Sprintf("%s: %q, want %q", what, got, want)
	case slices.Contains(refusals(), got), p.program == "network" && unreachable(got), p.program == "syscalls" && got == "ENOSPC" && strings.Contains(what, "user"):
		return "" // ENOSPC: no user namespace more is allowed
	}
	return fmt.Sprintf("%s: %s, want a refusal", what, got)
}

// unreachable are refusals of an address.
func unreachable(outcome string) bool {
	return slices.Contains([]string{"ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL"}, outcome)
}

// hostPaths are files of this test that exist on the host: that they are not seen is worth more than the absence of guessed ones.
func hostPaths(t *testing.T) ([]string, func()) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"SANDBOXTEST_HOST=" + strings.Join([]string{program, folder, filepath.Join(folder, "testdata"), os.TempDir()}, ":")}, func() {}
}

// listen is a host to talk to: a port on every address, an abstract socket and a socket file. Whoever comes is a fault.
func listen(t *testing.T) ([]string, func()) {
	tcp, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := tcp.Addr().(*net.TCPAddr).Port
	udp, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	if err != nil {
		t.Fatal(err)
	}
	name := "sandboxtest-" + rand.Text()
	abstract, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(os.TempDir(), "s")
	file, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{fmt.Sprintf("SANDBOXTEST_PORT=%d", port), "SANDBOXTEST_ADDRESSES=" + strings.Join(ownAddresses(t), " "),
		"SANDBOXTEST_ABSTRACT=" + name, "SANDBOXTEST_SOCKET=" + path}
	return env, func() {
		for _, l := range []net.Listener{tcp, abstract, file} {
			nobodyCame(t, l)
		}
		_ = udp.SetReadDeadline(time.Now())
		if n, from, err := udp.ReadFrom(make([]byte, 64)); err == nil {
			t.Errorf("%d bytes came from %v", n, from)
		}
		_ = udp.Close()
	}
}

func nobodyCame(t *testing.T, l net.Listener) {
	type timed interface{ SetDeadline(time.Time) error }
	_ = l.(timed).SetDeadline(time.Now().Add(10 * time.Millisecond))
	if c, err := l.Accept(); err == nil {
		t.Errorf("somebody came to %v", l.Addr())
		_ = c.Close()
	}
	_ = l.Close()
}

// ownAddresses are those of this machine that others could reach.
func ownAddresses(t *testing.T) []string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			list = append(list, n.IP.String())
		}
	}
	return list
}
