//go:build linux && (amd64 || arm64)

package ns

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

func TestMessagesComeThrough(t *testing.T) {
	want := request{
		ID: 1 << 40, Op: opSetup, Target: 3, Args: []string{"a", "", "\xff\x00"}, Env: []string{"K=V"}, Dir: "d", CPUSeconds: 2, CPULimit: 3e8, Stdin: true, Control: true, Background: true, Lane: "slot-0",
		LaneFDs: 3, Path: "p", Limit: -1, Setup: setup{Rootfs: "/r", RootfsTree: true, RootfsWritable: true, Net: true, Memory: 1, Pids: 2, Processes: 3, Disk: 4, FileSize: 5, OpenFiles: 6, IntoCgroup: true, OwnIdentity: true},
	}
	var got request
	if err := decode(encode(&want), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	back := reply{ID: 1, What: 2, Errno: 3, Text: "t", At: -4, Wait: 5, CPU: 6, Peak: 7, Left: 8, Over: true, Fault: 9, Path: "p", Size: 10, Limit: 11, Mode: 12}
	var gotBack reply
	if err := decode(encode(&back), &gotBack); err != nil || gotBack != back {
		t.Errorf("%+v, %v", gotBack, err)
	}
}

// FuzzMessages: whatever a socket brings, decoding ends, and what it makes of it is encoded as something that means the same.
func FuzzMessages(f *testing.F) {
	f.Add(encode(&request{Op: opSetup, Args: []string{"a"}}))
	f.Add([]byte{1, 2, 3, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r request
		if decode(b, &r) == nil {
			var again request
			if err := decode(encode(&r), &again); err != nil || !reflect.DeepEqual(again, r) {
				t.Errorf("%+v, %v, was %+v", again, err, r)
			}
		}
		var files fileSet
		_ = decode(b, &files) // must only end
		var p reply
		_ = decode(b, &p)
	})
}

func TestFaultsKeepTheirType(t *testing.T) {
	for _, err := range []error{&sandbox.EscapeError{Path: "a"}, &sandbox.TooLargeError{Path: "b", Size: 2, Limit: 1}, &sandbox.PathError{Path: "c", Why: "w"}, &sandbox.FullError{Path: "d"}} {
		r := failure(1, err)
		if got := r.err(); !reflect.DeepEqual(got, err) {
			t.Errorf("%v came as %v", err, got)
		}
	}
	r := failure(1, &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist})
	if !errors.Is(r.err(), fs.ErrNotExist) {
		t.Errorf("%v", r.err())
	}
	r = failure(1, syscall.EIO)
	if !errors.Is(r.err(), syscall.EIO) {
		t.Errorf("%v", r.err())
	}
	long := strings.Repeat("x", 100_000) // the path of a folder that is deeper than any path may be long
	r = failure(1, &sandbox.PathError{Path: long, Why: long})
	r.clip()
	var path *sandbox.PathError
	if n := len(encode(&r)); n > replyBytes || !errors.As(r.err(), &path) {
		t.Errorf("a reply of %d bytes: %T", n, r.err())
	}
}

func TestHierarchies(t *testing.T) {
	const mountinfo = `31 23 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 23 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 23 0:28 / /sys/fs/cgroup/uni\040fied rw shared:9 - cgroup2 cgroup2 rw,nsdelegate
34 23 0:29 / /proc rw - proc proc rw
`
	const own = "4:memory:/jobs/7\n3:cpu,cpuacct:/docker/abc/sub\n1:name=systemd:/x:y\n0::/user.slice\n"
	got := hierarchies(mountinfo, own)
	want := []struct {
		v2         bool
		controller string
		own        string
	}{{false, "memory", "/sys/fs/cgroup/memory/jobs/7"}, {false, "cpuacct", "/sys/fs/cgroup/cpu,cpuacct/sub"}, {true, "", "/sys/fs/cgroup/uni fied/user.slice"}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		if h := got[i]; h.v2 != w.v2 || h.own != w.own || w.controller != "" && !strings.Contains(strings.Join(h.controllers, ","), w.controller) {
			t.Errorf("%+v, want %+v", h, w)
		}
	}
	if outside := hierarchies(mountinfo, "3:cpu,cpuacct:/elsewhere\n"); outside[1].own != "/sys/fs/cgroup/cpu,cpuacct" {
		t.Errorf("a group outside the mount: %+v", outside[1])
	}
}

func TestParseStat(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       listed
		ok         bool
	}{
		{"usual", "7 (sh) S 3 7 7 0 -1 4194304 1 2 3 4 10 20 30 40 20 0", listed{7, 3, true, 100}, true},
		{"name that looks like an end", "7 (a) R 0\n) Z 3 7 7 0 -1 4194304 1 2 3 4 1 2 3 4 20 0", listed{7, 3, false, 10}, true},
		{"cut", "7 (sh) S 3 7", listed{}, false},
		{"empty", "", listed{}, false},
	} {
		if got, ok := parseStat(7, c.text); ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, ok)
		}
	}
}

func TestIdentities(t *testing.T) {
	for _, c := range []struct {
		name, uidMap string
		config       Config
		want         idRange
		fault        bool
	}{
		{"the whole host", "0 0 4294967295", Config{}, idRange{0x70000000, 1 << 24}, false},
		{"a container of 65536 ids", "0 100000 65536", Config{}, idRange{32768, 32768}, false},
		{"one id", "0 1000 1", Config{}, idRange{}, true},
		{"given", "0 0 4294967295", Config{FirstID: 900000, IDCount: 10}, idRange{900000, 10}, false},
		{"given, and not mapped", "0 100000 65536", Config{FirstID: 900000, IDCount: 10}, idRange{}, true},
	} {
		got, err := chooseIDs(c.config, c.uidMap)
		if (err != nil) != c.fault || got != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	r := idRange{1000, 100}
	if got := r.taken(bufio.NewScanner(strings.NewReader("root:x:0:0::/:\nbob:x:1099:1::/:\n"))); got != "bob" {
		t.Errorf("taken by %q", got)
	}
	if got := r.taken(bufio.NewScanner(strings.NewReader("bob:x:1100:1::/:\n"))); got != "" {
		t.Errorf("taken by %q", got)
	}
	seen := map[uint32]bool{}
	for slot := range 4096 {
		init, program := defaultIDs().pair(4_000_000, slot)
		if seen[init] || seen[program] || init == program || init < 0x70000000 || program >= 0x70000000+1<<24 {
			t.Fatalf("slot %d: %d and %d", slot, init, program)
		}
		seen[init], seen[program] = true, true
	}
}

func TestConfigReportsEveryFaultAtOnce(t *testing.T) {
	err := Config{MaxOpen: -1, MaxIdle: -2, RunsPerSlot: -1, Patience: -1, Tier: "x", FirstID: 1}.Validate()
	for _, field := range []string{"MaxOpen", "MaxIdle", "RunsPerSlot", "Patience", "Tier", "IDCount"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v says nothing of %s", err, field)
		}
	}
	if err := (Config{}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestRoomFor(t *testing.T) {
	for _, c := range []struct {
		wanted      int
		descriptors uint64
		want        int
	}{{2000, 1 << 20, 2000}, {2000, 1024, 64}, {10, 1024, 10}, {2000, 256, 1}, {2000, 0, 1}, {2000, ^uint64(0), 2000}} {
		if got := roomFor(c.wanted, c.descriptors); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestStatusFollowsTheOrder: of several causes, the first of the documented order is told.
func TestStatusFollowsTheOrder(t *testing.T) {
	all := facts{stopped: map[sandbox.Status]bool{sandbox.StatusCanceled: true, sandbox.StatusWallLimit: true, sandbox.StatusOutputLimit: true},
		oomKills: 1, refusedForks: 1, cpu: 2, cpuLimit: 1, wait: unix.WaitStatus(unix.SIGXFSZ)}
	steps := []struct {
		want sandbox.Status
		then func(*facts)
	}{
		{sandbox.StatusCanceled, func(f *facts) { delete(f.stopped, sandbox.StatusCanceled) }},
		{sandbox.StatusMemoryLimit, func(f *facts) { f.oomKills = 0 }},
		{sandbox.StatusCPULimit, func(f *facts) { f.cpu = 0 }},
		{sandbox.StatusWallLimit, func(f *facts) { delete(f.stopped, sandbox.StatusWallLimit) }},
		{sandbox.StatusOutputLimit, func(f *facts) { delete(f.stopped, sandbox.StatusOutputLimit) }},
		{sandbox.StatusFileLimit, func(f *facts) { f.wait = unix.WaitStatus(unix.SIGSYS) }},
		{sandbox.StatusDenied, func(f *facts) { f.wait = unix.WaitStatus(unix.SIGKILL) }},
		{sandbox.StatusPidsLimit, func(f *facts) { f.refusedForks = 0 }},
		{sandbox.StatusSignaled, func(f *facts) { f.wait = 3 << 8 }},
		{sandbox.StatusNonzero, func(f *facts) { f.wait = 0 }},
		{sandbox.StatusOK, func(f *facts) { f.refusedForks = 1 }},
		{sandbox.StatusOK, func(f *facts) { f.missing, f.refusedForks = true, 0 }},
		{sandbox.StatusNotFound, func(*facts) {}},
	}
	for _, s := range steps {
		if got := all.status(); got != s.want {
			t.Errorf("%+v is %s, want %s", all, got, s.want)
		}
		s.then(&all)
	}
}

// TestGroupsOfDeadOwnersAreRemoved plants groups of owners that are gone, that live, and that are not ours to judge.
func TestGroupsOfDeadOwnersAreRemoved(t *testing.T) {
	base := t.TempDir() // removal is by rmdir alone: folders do for groups
	prefix, err := ownedPrefix()
	if err != nil {
		t.Fatal(err)
	}
	mine, err := ownedName()
	if err != nil {
		t.Fatal(err)
	}
	gone := []string{prefix + "999999999-1-AAAA", prefix + "1-1-AAAA"} // no such process; one that started at another time
	stays := []string{mine, "tranche-1-999999999-1-AAAA", prefix + "x", "other"}
	for _, name := range append(gone, stays...) {
		if err := os.MkdirAll(filepath.Join(base, name, "slot-0", "lane-1"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	removeLeft(base)
	for i, name := range append(gone, stays...) {
		_, err := os.Stat(filepath.Join(base, name))
		if there := err == nil; there != (i >= len(gone)) {
			t.Errorf("%s: there = %v", name, there)
		}
	}
}

// uncounted is a group of version 2 on a machine whose version 2 has no controllers: it has lanes and CPU time, and no limits.
type uncounted struct{ *group2 }

func (uncounted) events() (events, error) { return events{}, nil }

// TestCloneIntoCgroup2 runs programs in lanes of version 2, which works without controllers too.
func TestCloneIntoCgroup2(t *testing.T) {
	if !privileged() {
		t.Skip("needs root")
	}
	bases, err := bases2()
	if err != nil {
		t.Skip(err)
	}
	name, err := ownedName()
	if err != nil {
		t.Fatal(err)
	}
	top := filepath.Join(bases[0], name)
	if err := os.Mkdir(top, 0o755); err != nil {
		t.Skip(err)
	}
	e := newExecutor(t, Config{MaxIdle: -1})
	e.tier.remove()
	e.tier = newTier2(top)
	e.tier.group = func(slot string, owner int, _ sandbox.Limits) (group, error) {
		g, err := newGroup2(top, slot, owner)
		return uncounted{g}, err
	}
	b := open(t, e, spec())
	session, err := b.Start(t.Context(), sandbox.Cmd{Args: sh("sleep 50 & cat /proc/self/cgroup <&3; cat <&3; kill $!"), Control: true})
	if err != nil {
		t.Fatal(err)
	}
	res := run(t, b, sandbox.Cmd{Args: sh("cat /proc/self/cgroup; setsid sleep 60 & i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")})
	if !bytes.Contains(res.Stdout.Head, []byte("/lane-1\n")) || res.LeftBehind != 1 || res.Usage.CPU < 10*time.Millisecond {
		t.Errorf("%+v\n%s", res, res.Stdout.Head)
	}
	session.Control().Close()
	res, err = session.Wait(t.Context())
	if err != nil || res.Status != sandbox.StatusOK || !bytes.Contains(res.Stdout.Head, []byte("/lane-0\n")) {
		t.Errorf("%+v, %v", res, err)
	}
}
