//go:build linux && (amd64 || arm64)

package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// owner is a process of this machine, as the label of its containers names it.
type owner struct {
	boot    string // of the machine
	space   uint64 // of process ids, which mean nothing in another
	pid     int
	started string // since boot: ids are used again
}

func ownOwner() (o owner, err error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return o, err
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return o, fmt.Errorf("/proc/self/ns/pid: %w", err)
	}
	o = owner{boot: strings.TrimSpace(string(boot)), space: st.Ino, pid: os.Getpid()}
	if o.started = startOf(o.pid); o.started == "" {
		return o, fmt.Errorf("/proc/%d/stat does not say when this process began", o.pid)
	}
	return o, nil
}

// startOf is when a process began; "" = there is none.
func startOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	const place = 19 // behind the name
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= place {
		return ""
	}
	return string(fields[place])
}

func (o owner) String() string {
	return fmt.Sprintf("%s %d %d %s", o.boot, o.space, o.pid, o.started)
}

func readOwner(label string) (o owner, ok bool) {
	n, err := fmt.Sscanf(label, "%s %d %d %s", &o.boot, &o.space, &o.pid, &o.started)
	return o, err == nil && n == 4
}

// left is a container of somebody, as the engine lists it.
type left struct {
	ID      string `json:"Id"`
	Labels  map[string]string
	State   string // created, running, exited, ...
	Created int64  // Unix time
}

// longestStart is how long a container may be created and not started: creating and starting one take less.
const longestStart = 10 * time.Minute

// abandoned tells whether the process that made a container can be known to be gone; me is this one.
func (l left) abandoned(me owner, now time.Time, startOf func(pid int) string) bool {
	o, ok := readOwner(l.Labels[ownerLabel])
	if ok && o.boot == me.boot && o.space == me.space {
		return startOf(o.pid) != o.started
	}
	return l.State == "created" && now.Sub(time.Unix(l.Created, 0)) > longestStart
}

// sweep removes the containers of processes that are gone: one that was killed between creating and starting a container leaves it for ever. What
// cannot be removed stays for the next.
func (l *launcher) sweep(ctx context.Context) error {
	all, err := l.engine.labelled(ctx, ownerLabel)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.abandoned(l.owner, time.Now(), startOf) {
			_ = l.engine.removeSoon(ctx, c.ID)
		}
	}
	return nil
}

// sweepFolders removes what such a process left of its sockets: they are needed only while a container starts.
func sweepFolders(dir string, now time.Time) {
	all, _ := os.ReadDir(dir)
	for _, e := range all {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), folderPrefix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil && int(st.Uid) == os.Geteuid() && now.Sub(time.Unix(st.Mtim.Unix())) > longestStart {
			_ = os.RemoveAll(path)
		}
	}
}

// filters are in the form that the engine reads.
func filters(label string) string {
	text, _ := json.Marshal(map[string][]string{"label": {label}}) // strings can always be encoded
	return string(text)
}
