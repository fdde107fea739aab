package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// portHolder says who listens on a TCP port of this machine, as far as the kernel tells us: "process 12 (name)", or only whose process it
// is; "" when nothing is known.
func portHolder(port int) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		if inode, uid, ok := listener(string(text), port); ok {
			if holder := socketHolder(inode); holder != "" {
				return holder
			}
			return "a process of user " + uid + " that is not shown to us"
		}
	}
	return ""
}

// listener finds who listens on a port in the kernel's table of sockets: columns local_address (1, hex), st (3, 0A = listening), uid (7)
// and inode (9).
func listener(table string, port int) (inode, uid string, ok bool) {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != "0A" {
			continue
		}
		_, local, _ := strings.Cut(f[1], ":")
		if n, err := strconv.ParseUint(local, 16, 16); err == nil && int(n) == port {
			return f[9], f[7], true
		}
	}
	return "", "", false
}

// socketHolder looks for a process that has the socket open; "" when none of those we may look into has.
func socketHolder(inode string) string {
	open, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range open {
		if to, err := os.Readlink(fd); err != nil || to != "socket:["+inode+"]" {
			continue
		}
		process := filepath.Dir(filepath.Dir(fd))
		name, _ := os.ReadFile(filepath.Join(process, "comm"))
		return fmt.Sprintf("process %s (%s)", filepath.Base(process), strings.TrimSpace(string(name)))
	}
	return ""
}
