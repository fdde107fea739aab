package sandbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// DefaultKeep is how many bytes of a stream are kept where Cmd.Keep is 0.
const DefaultKeep = 128 << 10

// DefaultLimits are the limits of a sandbox where its Spec names none.
func DefaultLimits() Limits {
	return Limits{Memory: 512 << 20, Pids: 64, Disk: 256 << 20, FileSize: 128 << 20, OpenFiles: 256}
}

// Filled are the limits with the defaults in the place of zeros.
func (l Limits) Filled() Limits {
	d := DefaultLimits()
	for _, v := range []struct{ to, from *int64 }{{&l.Memory, &d.Memory}, {&l.Disk, &d.Disk}, {&l.FileSize, &d.FileSize}} {
		if *v.to == 0 {
			*v.to = *v.from
		}
	}
	for _, v := range []struct{ to, from *int }{{&l.Pids, &d.Pids}, {&l.OpenFiles, &d.OpenFiles}} {
		if *v.to == 0 {
			*v.to = *v.from
		}
	}
	return l
}

// What the kernel takes at most: ids of processes (PID_MAX_LIMIT), descriptors (what fs.nr_open begins with); and more bytes than any machine has.
const (
	maxBytes     = 1 << 60
	maxPids      = 1 << 22
	maxOpenFiles = 1 << 20
)

// Validate reports every limit that no program could run under. Zero is the default and fine.
func (l Limits) Validate() error {
	var errs []error
	for _, e := range l.Faults() {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// Faults are what Validate reports, one by one.
func (l Limits) Faults() []*LimitError {
	var list []*LimitError
	l = l.Filled()
	for _, v := range []struct {
		name               string
		value, least, most int64
	}{
		{"Memory", l.Memory, 1 << 20, maxBytes}, {"Pids", int64(l.Pids), 1, maxPids}, {"Disk", l.Disk, 1 << 12, maxBytes},
		{"FileSize", l.FileSize, 1, maxBytes}, {"OpenFiles", int64(l.OpenFiles), 4, maxOpenFiles},
	} {
		if v.value < v.least || v.value > v.most {
			list = append(list, &LimitError{v.name, v.value, v.least, v.most})
		}
	}
	return list
}

// Promises are all that there are, in the order they are told.
func Promises() []Promise {
	return []Promise{PromiseMemory, PromisePids, PromiseCPU, PromiseNet, PromiseFiles, PromiseDisk, PromiseSyscalls, PromiseKill, PromiseSnapshot}
}

// Hold checks what a spec requires: a promise that is only kept as well as can be is not enough. The error is a *RequireError.
func (c Capabilities) Hold(required []Promise) error {
	var missing []Promise
	for _, p := range required {
		if c.Promises[p] != Enforced {
			missing = append(missing, p)
		}
	}
	if missing == nil {
		return nil
	}
	return &RequireError{Backend: c.Backend, Missing: missing, Why: c.Why}
}

// Environment is what a program gets: a fixed few variables that make runs alike on every host, with the folders of its sandbox in them, and what a
// command sets on top; a name appears once. One malloc arena, because each reserves 64 MiB of address space, which is what is limited where
// there is no control group.
func Environment(home, tmp string, more []string) []string {
	all := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "TMPDIR=" + tmp, "USER=sandbox", "LOGNAME=sandbox", "SHELL=/bin/sh", "TERM=dumb",
		"LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TZ=UTC", "PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1",
		"MALLOC_ARENA_MAX=1", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1",
	}
	at := map[string]int{}
	for _, e := range append(all, more...) {
		name, _, _ := strings.Cut(e, "=")
		i, ok := at[name]
		if !ok {
			i = len(at)
			at[name] = i
		}
		if i == len(all) {
			all = append(all, e)
		}
		all[i] = e
	}
	return all
}

// HostName is what every sandbox is called.
const HostName = "sandbox"

// GuestID is the user and group that programs are in a sandbox with users of its own.
const GuestID = 1000

// EtcFiles are the files of /etc that programs look for, as they are where no rootfs brings its own. The work folder is /w there.
func EtcFiles() map[string]string {
	id := strconv.Itoa(GuestID)
	return map[string]string{
		"passwd":        "root:x:0:0:root:/root:/usr/sbin/nologin\nsandbox:x:" + id + ":" + id + ":sandbox:/w:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         "root:x:0:\nsandbox:x:" + id + ":\nnogroup:x:65534:\n",
		"hosts":         "127.0.0.1 localhost " + HostName + "\n::1 localhost\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	}
}

// HostFolders are the folders of this machine that a sandbox without a rootfs shows, read-only. Not all are there on every machine.
func HostFolders() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
}

// HostEtc are the names in /etc of this machine that it shows as they are, beside EtcFiles; with the network, also those by which names
// and certificates are found. Not all are there on every machine.
func HostEtc(net bool) []string {
	names := []string{"ld.so.cache", "alternatives"}
	if net {
		names = append(names, "resolv.conf", "ssl/certs")
	}
	java, _ := filepath.Glob("/etc/java-*") // the pattern is sound; a JVM's folder in /usr is links to there
	for _, path := range java {
		names = append(names, strings.TrimPrefix(path, "/etc/"))
	}
	return names
}

// LimitError is a limit that no program could run under.
type LimitError struct {
	Name               string // of the field of Limits
	Value, Least, Most int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the limit %s is %d, expected %d to %d", e.Name, e.Value, e.Least, e.Most)
}
