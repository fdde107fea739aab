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

// tier1 is control groups of version 1: memory, pids and cpuacct, each in a hierarchy of its own.
//
// Programs get there because the thread that forks them is there. Only this thread of the init moves, and only itself: moving a
// process takes a lock of the whole host, and the init must stay outside or be a candidate when memory runs out.
func tier1() (*tier, error) {
	list, err := mounted()
	if err != nil {
		return nil, err
	}
	name, err := ownedName()
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	t := &tier{name: sandbox.TierCgroup1, remove: func() {
		for _, dir := range dirs {
			_ = removeTree(dir) // a later start removes what stays
		}
	}}
	for _, c := range []string{"memory", "pids", "cpuacct"} {
		i := slices.IndexFunc(list, func(h hierarchy) bool { return slices.Contains(h.controllers, c) })
		if i < 0 {
			err = fmt.Errorf("no cgroup v1 hierarchy has the controller %s", c)
		} else {
			dirs[c], err = madeIn(name, []string{list[i].own, list[i].mount})
		}
		if err != nil {
			delete(dirs, c)
			t.remove()
			return nil, err
		}
	}
	t.group = func(slot string, _ int, l sandbox.Limits) (group, error) { return newGroup1(dirs, slot, l) }
	return t, nil
}

// group1 is the group of a slot: lane 0 is the group itself, the others are below it.
type group1 struct {
	name                  string
	memory, pids, cpuacct string
	lanes                 int // made below the group
	// read at every run: opening them would take longer than all else that is done for a program
	oom, refused, usage, most *os.File
}

func newGroup1(dirs map[string]string, name string, l sandbox.Limits) (group, error) {
	g := &group1{name: name, memory: filepath.Join(dirs["memory"], name), pids: filepath.Join(dirs["pids"], name), cpuacct: filepath.Join(dirs["cpuacct"], name)}
	err := g.make()
	if err == nil {
		err = g.limit(l)
	}
	if err == nil {
		err = g.openFiles()
	}
	if err != nil {
		_ = g.remove() // the first error says more
		return nil, err
	}
	return g, nil
}

// home: only a thread of the init is in the group.
func (g *group1) home() (*os.File, error) { return nil, nil }

func (g *group1) make() error {
	for _, dir := range []string{g.memory, g.pids, g.cpuacct} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (g *group1) openFiles() (err error) {
	for _, f := range []struct {
		file      **os.File
		dir, name string
		flags     int
	}{
		{&g.oom, g.memory, "memory.oom_control", os.O_RDONLY}, {&g.refused, g.pids, "pids.events", os.O_RDONLY},
		{&g.usage, g.cpuacct, "cpuacct.usage", os.O_RDONLY}, {&g.most, g.memory, "memory.max_usage_in_bytes", os.O_RDWR},
	} {
		if *f.file, err = os.OpenFile(filepath.Join(f.dir, f.name), f.flags, 0); err != nil {
			return err
		}
	}
	return nil
}

func (g *group1) limit(l sandbox.Limits) error {
	if err := writeFile(g.memory, "memory.limit_in_bytes", l.Memory); err != nil {
		return err
	}
	// Swap on top where the kernel counts it; the file is missing where it does not.
	if err := writeFile(g.memory, "memory.memsw.limit_in_bytes", l.Memory); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	const forking = 1 // the thread of the init that forks is in the group
	return writeFile(g.pids, "pids.max", int64(l.Pids+forking))
}

func (g *group1) lane(k int) (string, []*os.File, error) {
	if k == 0 {
		fds, err := openEach(g.memory+"/tasks", g.pids+"/tasks", g.cpuacct+"/tasks")
		return g.name, fds, err
	}
	below := "lane-" + strconv.Itoa(k)
	for _, dir := range []string{g.pids, g.cpuacct} {
		if err := os.Mkdir(filepath.Join(dir, below), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", nil, err
		}
	}
	g.lanes = max(g.lanes, k)
	fds, err := openEach(g.memory+"/tasks", filepath.Join(g.pids, below, "tasks"), filepath.Join(g.cpuacct, below, "tasks"))
	return g.name + "/" + below, fds, err
}

// cpu of lane 0 is what the whole group used without the lanes below.
func (g *group1) cpu(k int) (time.Duration, error) {
	if k > 0 {
		text, err := readSmall(g.cpuacct+"/lane-"+strconv.Itoa(k), "cpuacct.usage")
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		return time.Duration(n), err
	}
	n, err := numberIn(g.usage)
	sum := time.Duration(n)
	for lane := 1; lane <= g.lanes && err == nil; lane++ {
		var below time.Duration
		below, err = g.cpu(lane)
		sum -= below
	}
	return sum, err
}

func (g *group1) events() (events, error) {
	oom, err := keyIn(g.oom, "oom_kill")
	if err != nil {
		return events{}, err
	}
	refused, err := keyIn(g.refused, "max")
	for lane := 1; lane <= g.lanes && err == nil; lane++ {
		var n int64
		n, err = readKey(g.pids+"/lane-"+strconv.Itoa(lane), "pids.events", "max")
		refused += n
	}
	return events{int(oom), int(refused)}, err
}

func (g *group1) clearPeak() { _, _ = g.most.WriteAt([]byte("0"), 0) } // a peak that stays is too high, and only told

func (g *group1) peak() int64 {
	n, err := numberIn(g.most)
	if err != nil {
		return 0
	}
	return n
}

func (g *group1) remove() error {
	closeAll([]*os.File{g.oom, g.refused, g.usage, g.most})
	var errs []error
	for _, dir := range []string{g.memory, g.pids, g.cpuacct} {
		errs = append(errs, removeTree(dir))
	}
	return errors.Join(errs...)
}
