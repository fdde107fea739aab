//go:build linux && (amd64 || arm64)

package ns

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// group is the control group of one slot. Every program that runs in the slot at one time has a lane in it, so that its CPU time can
// be told from another's and what it leaves behind can be found.
type group interface {
	// home is the group that the init starts in; nil = ours. The caller closes it.
	home() (*os.File, error)
	// lane returns a lane's name, and the descriptors that the init needs to put programs into it. The caller closes them.
	lane(k int) (name string, fds []*os.File, err error)
	// cpu is the time that was used in a lane so far.
	cpu(k int) (time.Duration, error)
	// events are the processes killed for memory and the forks refused so far.
	events() (events, error)
	// clearPeak begins to measure the peak of memory anew, as far as the kernel can.
	clearPeak()
	// peak is the most memory in use at once since then, 0 where it is not known.
	peak() int64
	// remove removes the group; all processes in it have ended.
	remove() error
}

type events struct{ oomKills, refusedForks int }

// tier makes groups. A nil group means that per-process limits are all there is.
type tier struct {
	name   sandbox.Tier
	into   bool                                                          // programs are cloned into a lane, else the init's thread moves there
	group  func(name string, owner int, l sandbox.Limits) (group, error) // owner: host id of the init, -1 = ours; nil in the tier without control groups
	remove func()                                                        // removes what all groups are in
}

// ownedPrefix begins the names of the groups that this process makes: whose they are is in the name, so that a later process can
// remove what one that was killed has left. A pid means something only in its pid namespace.
func ownedPrefix() (ours string, err error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("tranche-%d-", st.Ino), nil
}

// ownedName is a new name for what this process owns.
func ownedName() (string, error) {
	prefix, err := ownedPrefix()
	if err != nil {
		return "", err
	}
	started, err := startTime(os.Getpid())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%d-%s-%s", prefix, os.Getpid(), started, rand.Text()[:8]), nil
}

// startTime is when a process started, in the kernel's ticks since boot: with it a pid is never mistaken for an older one.
func startTime(pid int) (string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	f := statFields(string(text))
	const startField = 19
	if len(f) <= startField {
		return "", fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	return f[startField], nil
}

// removeLeft removes the groups below a folder whose owner is gone.
func removeLeft(base string) {
	prefix, err := ownedPrefix()
	if err != nil {
		return
	}
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), prefix)
		if !ours {
			continue
		}
		f := strings.Split(rest, "-")
		pid, err := strconv.Atoi(f[0])
		if err != nil || len(f) < 2 {
			continue
		}
		if now, err := startTime(pid); err == nil && now == f[1] {
			continue
		}
		_ = removeTree(filepath.Join(base, e.Name())) // what still has processes cannot be removed: they are ending
	}
}

// removeTree removes a group with those below it. It waits a little for processes that are just ending.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	const attempts = 50
	for range attempts {
		if err = unix.Rmdir(dir); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the control group %s: %w", dir, err)
	}
	return nil
}

// hierarchy is one mounted tree of control groups, and where this process is in it.
type hierarchy struct {
	v2          bool
	controllers []string // of version 1
	mount       string
	own         string // the folder of our own group; the mount itself where that is not below it
}

// hierarchies reads what is mounted.
func hierarchies(mountinfo, cgroup string) []hierarchy {
	own := ownGroups(cgroup)
	var all []hierarchy
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		const root, point = 3, 4
		if !ok || len(f) <= point || len(g) < 3 {
			continue
		}
		h := hierarchy{mount: unescape(f[point])}
		var path string
		switch g[0] {
		case "cgroup2":
			h.v2, path = true, own[""]
		case "cgroup":
			h.controllers = strings.Split(g[2], ",")
			for _, c := range h.controllers {
				if p, ok := own[c]; ok {
					path = p
				}
			}
		default:
			continue
		}
		h.own = h.mount
		if rel, err := filepath.Rel(unescape(f[root]), path); err == nil && filepath.IsLocal(rel) {
			h.own = filepath.Join(h.mount, rel)
		}
		all = append(all, h)
	}
	return all
}

// ownGroups reads /proc/self/cgroup: by controller, "" for version 2.
func ownGroups(text string) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			own[c] = f[2]
		}
	}
	return own
}

// unescape undoes what mountinfo does to blanks.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// mounted are the hierarchies of this process.
func mounted() ([]hierarchy, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	cgroup, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	return hierarchies(string(mountinfo), string(cgroup)), nil
}

// writeFile writes a value into a file of a control group, which takes it in one write.
func writeFile(dir, name string, value int64) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.FormatInt(value, 10))
	return errors.Join(err, f.Close())
}

// readSmall reads a file of a control group.
func readSmall(dir, name string) (string, error) {
	fd, err := unix.Open(dir+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open %s/%s: %w", dir, name, err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return "", fmt.Errorf("read %s/%s: %w", dir, name, err)
	}
	return string(buf[:n]), nil
}

// readKey reads one value of a file of "key value" lines; 0 where the key is missing.
func readKey(dir, name, key string) (int64, error) {
	text, err := readSmall(dir, name)
	if err != nil {
		return 0, err
	}
	return valueOf(text, key)
}

func valueOf(text, key string) (int64, error) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			return strconv.ParseInt(f[1], 10, 64)
		}
	}
	return 0, nil
}

// again reads an open file of a control group from its start.
func again(f *os.File) (string, error) {
	var buf [4096]byte
	n, err := unix.Pread(fileFD(f), buf[:], 0) // ReadAt would read once more, to see the end
	if err != nil {
		return "", &fs.PathError{Op: "read", Path: f.Name(), Err: err}
	}
	return string(buf[:n]), nil
}

func numberIn(f *os.File) (int64, error) {
	text, err := again(f)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(text), 10, 64)
}

func keyIn(f *os.File, key string) (int64, error) {
	text, err := again(f)
	if err != nil {
		return 0, err
	}
	return valueOf(text, key)
}

// madeIn makes a folder of a name in the first of some folders that takes it.
func madeIn(name string, bases []string) (string, error) {
	var errs []error
	for _, base := range slices.Compact(bases) {
		dir := filepath.Join(base, name)
		err := os.Mkdir(dir, 0o755)
		if err == nil || errors.Is(err, fs.ErrExist) { // two controllers may share one hierarchy
			removeLeft(base)
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func openEach(paths ...string) (all []*os.File, err error) {
	for _, p := range paths {
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
