//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// markVariable is set for every program of the suite, so that a process that lost its parents is still known as ours.
const markVariable = "SANDBOXTEST_MARK"

// footprint is what this process has on the machine at one moment.
type footprint struct {
	processes   map[int]process // all that descend from us, carry the mark or run as one of our sandboxes' users
	mounts      map[string]bool // lines of our mountinfo
	cgroups     map[string]bool // folders of all hierarchies, without those that are others'
	descriptors map[string]int  // how many of a kind: socket, pipe, file, ...
	files       map[string]bool // in the folder for temporary files
	goroutines  int
}

// process is what /proc says of one.
type process struct {
	pid, parent int
	inner       int // its number in the innermost pid namespace; pid itself where it is in ours
	uid         int // effective
	groups      []int
	name        string
	started     string // clock ticks since boot: pid and started name a process for good
	zombie      bool
}

func (p process) String() string {
	return fmt.Sprintf("process %d (%q, parent %d, user %d, %d in its namespace)", p.pid, p.name, p.parent, p.uid, p.inner)
}

// nested says that a process lives in a pid namespace below ours; its init has the number 1 there.
func (p process) nested() bool { return p.inner != p.pid }

// look takes the footprint of this process.
func look(mark string) (footprint, error) {
	var f footprint
	var errs [4]error
	f.processes, errs[0] = ours(mark)
	f.mounts, errs[1] = mounts()
	f.cgroups = cgroups(f.processes)
	f.descriptors, errs[2] = descriptors()
	f.files, errs[3] = tempFiles()
	f.goroutines = runtime.NumGoroutine()
	return f, errors.Join(errs[:]...)
}

// since lists what is there now and was not before: all of it, of a back end that was closed.
func (f footprint) since(before footprint) []string {
	var left []string
	for pid, p := range f.processes {
		if before.processes[pid].started != p.started {
			left = append(left, p.String())
		}
	}
	left = append(left, f.besidesProcesses(before)...)
	if f.goroutines > before.goroutines {
		left = append(left, fmt.Sprintf("%d goroutines, %d before", f.goroutines, before.goroutines))
	}
	slices.Sort(left)
	return left
}

// sinceIdle lists what a program left in a back end that is open and may keep warm slots: each of them has an init, a socket to it
// and a cgroup, and no more of them than before.
func (f footprint) sinceIdle(before footprint) []string {
	var left []string
	inits, were := 0, 0
	for _, p := range before.processes {
		if p.nested() && p.inner == 1 {
			were++
		}
	}
	for pid, p := range f.processes {
		known := before.processes[pid].started == p.started
		switch {
		case p.nested() && p.inner == 1:
			inits++
		case f.launches(pid): // belongs to an init, as its socket does
		case !known:
			left = append(left, p.String())
		}
	}
	if inits > were {
		left = append(left, fmt.Sprintf("%d namespaces, %d before", inits, were))
	}
	if len(f.cgroups) > len(before.cgroups) {
		left = append(left, fmt.Sprintf("%d cgroups, %d before: %v", len(f.cgroups), len(before.cgroups), added(f.cgroups, before.cgroups)))
	}
	f.cgroups = before.cgroups
	left = append(left, f.besidesProcesses(before)...)
	slices.Sort(left)
	return left
}

// launches says that a process is the parent of an init: another program that builds the sandbox.
func (f footprint) launches(pid int) bool {
	for _, p := range f.processes {
		if p.nested() && p.inner == 1 && p.parent == pid {
			return true
		}
	}
	return false
}

func (f footprint) besidesProcesses(before footprint) []string {
	var left []string
	for _, m := range added(f.mounts, before.mounts) {
		left = append(left, "mount "+m)
	}
	for _, c := range added(f.cgroups, before.cgroups) {
		left = append(left, "cgroup "+c)
	}
	for _, name := range added(f.files, before.files) {
		left = append(left, "file "+name)
	}
	for kind, n := range f.descriptors {
		if n > before.descriptors[kind] {
			left = append(left, fmt.Sprintf("%d descriptors of kind %s, %d before", n, kind, before.descriptors[kind]))
		}
	}
	return left
}

func added(now, before map[string]bool) []string {
	var list []string
	for name := range now {
		if !before[name] {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// settled looks until nothing is left or the time is over: the kernel takes a moment to take a namespace or a cgroup apart.
func settled(mark string, wait time.Duration, left func(footprint) []string) ([]string, error) {
	for deadline := time.Now().Add(wait); ; time.Sleep(5 * time.Millisecond) {
		now, err := look(mark)
		if err != nil {
			return nil, err
		}
		found := left(now)
		if len(found) == 0 || time.Now().After(deadline) {
			return found, nil
		}
	}
}

// ours finds our processes by three signs, because each alone can be got rid of: the line of parents, the mark in the environment
// and the user that our sandboxes run as.
func ours(mark string) (map[int]process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	mine := map[int]process{}
	for pid, p := range all {
		if pid != os.Getpid() && (descends(all, p) || marked(pid, mark)) {
			mine[pid] = p
		}
	}
	users := map[int]bool{}
	for _, p := range mine {
		if p.nested() && p.uid != os.Geteuid() {
			users[p.uid] = true
		}
	}
	for pid, p := range all {
		if users[p.uid] && orphaned(all, p, users) {
			mine[pid] = p
		}
	}
	maps.DeleteFunc(mine, func(_ int, p process) bool { return p.zombie && p.parent != os.Getpid() })
	return mine, nil
}

// orphaned says that a process of a sandbox's user hangs below the first process of the machine: it got away. Sandboxes of another
// program may have the same users, and hang below that.
func orphaned(all map[int]process, p process, users map[int]bool) bool {
	for users[p.uid] {
		if p.parent <= 1 {
			return true
		}
		p = all[p.parent]
	}
	return false
}

func descends(all map[int]process, p process) bool {
	for range len(all) {
		if p.parent == os.Getpid() {
			return true
		}
		next, ok := all[p.parent]
		if !ok {
			return false
		}
		p = next
	}
	return false
}

// marked reads the environment a process was started with. Of other people's processes it cannot be read, and they are not ours.
func marked(pid int, mark string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(env, []byte(markVariable+"="+mark))
}

func processes() (map[int]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := map[int]process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all[pid] = p
		}
	}
	return all, nil
}

// readProcess returns false for a process that has gone meanwhile.
func readProcess(pid int) (process, bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return process{}, false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	p := process{pid: pid, inner: pid}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch {
		case key == "Name":
			p.name = strings.TrimSpace(value)
		case key == "State":
			p.zombie = strings.HasPrefix(strings.TrimSpace(value), "Z")
		case key == "PPid":
			p.parent = number(fields, 0)
		case key == "Uid":
			p.uid = number(fields, 1)
		case key == "NSpid" && len(fields) > 0:
			p.inner = number(fields, len(fields)-1)
			if len(fields) > 1 && p.inner == pid { // the same number by chance
				p.inner = -pid
			}
		case key == "Groups":
			for i := range fields {
				p.groups = append(p.groups, number(fields, i))
			}
		}
	}
	// A name may hold brackets and blanks: what counts stands behind the last bracket.
	if rest := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(rest) > 19 {
		p.started = rest[19]
	}
	return p, p.started != ""
}

func number(fields []string, i int) int {
	if i >= len(fields) {
		return -1
	}
	n, err := strconv.Atoi(fields[i])
	if err != nil {
		return -1
	}
	return n
}

func mounts() (map[string]bool, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	set := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		set[strings.TrimSpace(line)] = true
	}
	return set, nil
}

// cgroups lists the folders of every hierarchy, without those of programs that run beside: a folder that does not name us belongs to the live
// process that it names, or to the processes in it, where none of them is ours.
func cgroups(mine map[int]process) map[string]bool {
	set := map[string]bool{}
	for _, root := range cgroupRoots() {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && !belongsToOthers(path, mine) { // gone meanwhile: not there
				set[path] = true
			}
			return nil
		})
	}
	return set
}

func cgroupRoots() []string {
	file, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil
	}
	defer file.Close()
	var roots []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 2 && (fields[2] == "cgroup" || fields[2] == "cgroup2") {
			roots = append(roots, fields[1])
		}
	}
	return roots
}

var digits = regexp.MustCompile(`\b[0-9]+\b`)

func belongsToOthers(path string, mine map[int]process) bool {
	numbers := digits.FindAllString(path, -1)
	if slices.Contains(numbers, strconv.Itoa(os.Getpid())) {
		return false
	}
	return slices.ContainsFunc(numbers, func(n string) bool { return exists("/proc/" + n) }) || holdsOthers(path, mine)
}

// holdsOthers says that there are processes in a group, and none of them is ours.
func holdsOthers(group string, mine map[int]process) bool {
	text, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil || len(text) == 0 {
		return false
	}
	for line := range strings.Lines(string(text)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if _, ours := mine[pid]; ours || err != nil || pid == os.Getpid() || pid == 0 { // 0: one that this namespace does not see
			return false
		}
	}
	return true
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// descriptors counts ours by kind: numbers and targets change with every slot that is built again.
func descriptors() (map[string]int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("list descriptors: %w", err)
	}
	count := map[string]int{}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil {
			continue // the one that read the folder
		}
		kind, _, isKind := strings.Cut(target, ":")
		if !isKind || strings.HasPrefix(target, "/") {
			kind = "file"
		}
		count[kind]++
	}
	return count, nil
}

func tempFiles() (map[string]bool, error) {
	set := map[string]bool{}
	err := filepath.WalkDir(os.TempDir(), func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			set[path] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list temporary files: %w", err)
	}
	return set, nil
}
