//go:build linux && (amd64 || arm64)

package ns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/action/sandbox"
)

// tier2 is control groups of version 2. dir is a group that the user named for it, "" = look for one.
//
// A group below can only have controllers where the one above hands them down, and one that does may hold no process itself. Our
// own group holds this process; where it may not hand down, the group above it is tried: so it is with systemd's user sessions.
func tier2(dir string) (*tier, error) {
	name, err := ownedName()
	if err != nil {
		return nil, err
	}
	bases := []string{dir}
	if dir == "" {
		if bases, err = bases2(); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, base := range bases {
		top, err := top2(base, name)
		if err == nil {
			return newTier2(top), nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func newTier2(top string) *tier {
	return &tier{
		name: sandbox.TierCgroup2, into: true,
		remove: func() { _ = removeTree(top) }, // a later start removes what stays
		group: func(slot string, owner int, l sandbox.Limits) (group, error) {
			g, err := newGroup2(top, slot, owner)
			if err == nil {
				err = g.limit(l)
			}
			if err != nil {
				return nil, errors.Join(err, g.remove())
			}
			return g, nil
		},
	}
}

func bases2() ([]string, error) {
	list, err := mounted()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(h hierarchy) bool { return h.v2 })
	if i < 0 {
		return nil, errors.New("no cgroup v2 is mounted")
	}
	h := list[i]
	bases := []string{h.own}
	if h.own != h.mount {
		bases = append(bases, filepath.Dir(h.own))
	}
	return bases, nil
}

// top2 makes the group that holds those of all slots, and has the controllers handed down to them.
func top2(base, name string) (string, error) {
	has, err := readSmall(base, "cgroup.controllers")
	if err != nil {
		return "", err
	}
	for _, c := range []string{"memory", "pids"} {
		if !slices.Contains(strings.Fields(has), c) {
			return "", fmt.Errorf("%s has no controller %s (it has: %s)", base, c, strings.TrimSpace(has))
		}
	}
	if err := handDown(base); err != nil {
		return "", err
	}
	removeLeft(base)
	top := filepath.Join(base, name)
	if err := os.Mkdir(top, 0o755); err != nil {
		return "", err
	}
	if err := handDown(top); err != nil {
		return "", errors.Join(err, removeTree(top))
	}
	return top, nil
}

func handDown(dir string) error {
	has, err := readSmall(dir, "cgroup.subtree_control")
	if err != nil {
		return err
	}
	if f := strings.Fields(has); slices.Contains(f, "memory") && slices.Contains(f, "pids") {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.subtree_control"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("+memory +pids")
	return errors.Join(err, f.Close())
}

// group2 is the group of a slot. The init is in one below it, and its programs in lanes below another, which has the limits. Lanes have
// no controllers: the CPU time of a group is always counted. The init puts programs into lanes itself, so the files that say who may
// do that are its own, up to the group that it has in common with them.
type group2 struct {
	dir      string
	owner    int      // host id of the init; -1 = ours
	peakFile *os.File // of which a peak can be cleared: only through the descriptor that reads it
}

func newGroup2(top, name string, owner int) (*group2, error) {
	g := &group2{dir: filepath.Join(top, name), owner: owner}
	for _, dir := range []string{g.dir, g.init(), g.run()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return g, err
		}
	}
	return g, g.own(g.dir)
}

func (g *group2) init() string { return filepath.Join(g.dir, "init") }
func (g *group2) run() string  { return filepath.Join(g.dir, "run") }

// own lets the init move processes into a group, and out of it.
func (g *group2) own(dir string) error {
	if g.owner < 0 {
		return nil
	}
	return os.Chown(filepath.Join(dir, "cgroup.procs"), g.owner, g.owner)
}

func (g *group2) limit(l sandbox.Limits) error {
	if err := handDown(g.dir); err != nil {
		return err
	}
	if err := writeFile(g.run(), "memory.max", l.Memory); err != nil {
		return err
	}
	if err := writeFile(g.run(), "memory.swap.max", 0); err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without swap
		return err
	}
	if f, err := os.OpenFile(filepath.Join(g.run(), "memory.peak"), os.O_RDWR, 0); err == nil { // since Linux 6.12
		g.peakFile = f
	}
	return writeFile(g.run(), "pids.max", int64(l.Pids))
}

func (g *group2) home() (*os.File, error) { return os.Open(g.init()) }

func (g *group2) path(k int) string { return filepath.Join(g.run(), "lane-"+strconv.Itoa(k)) }

// lane: what the init sees of a lane's path begins at its own group.
func (g *group2) lane(k int) (string, []*os.File, error) {
	dir := g.path(k)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", nil, err
	}
	if err := g.own(dir); err != nil {
		return "", nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return "run/" + filepath.Base(dir), []*os.File{f}, nil
}

func (g *group2) cpu(k int) (time.Duration, error) {
	n, err := readKey(g.path(k), "cpu.stat", "usage_usec")
	return time.Duration(n) * time.Microsecond, err
}

func (g *group2) events() (events, error) {
	oom, err := readKey(g.run(), "memory.events", "oom_kill")
	if err != nil {
		return events{}, err
	}
	refused, err := readKey(g.run(), "pids.events", "max")
	return events{int(oom), int(refused)}, err
}

func (g *group2) clearPeak() {
	if g.peakFile == nil {
		return
	}
	if _, err := g.peakFile.WriteAt([]byte("reset"), 0); err != nil { // then it would be the highest of all runs
		g.peakFile.Close()
		g.peakFile = nil
	}
}

func (g *group2) peak() int64 {
	if g.peakFile == nil {
		return 0
	}
	buf := make([]byte, 32)
	n, _ := g.peakFile.ReadAt(buf, 0)
	v, err := strconv.ParseInt(strings.TrimSpace(string(buf[:n])), 10, 64)
	if err != nil {
		return 0
	}
	return v
}

func (g *group2) remove() error {
	if g.peakFile != nil {
		g.peakFile.Close()
	}
	return removeTree(g.dir)
}
