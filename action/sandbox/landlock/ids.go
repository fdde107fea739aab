//go:build linux && (amd64 || arm64)

package landlock

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// ids are the host ids that a root's sandboxes get, one each.
type ids struct {
	first, count uint32

	mu   sync.Mutex
	next uint32 // where to look first; guarded by mu
	used map[uint32]bool
}

// newIDs checks a range against the accounts of the host. Processes begin at different places of it, so that two on one host do not share
// ids before they have many sandboxes open.
func newIDs(first, count uint32) (*ids, error) {
	for _, path := range []string{"/etc/passwd", "/etc/group"} {
		f, err := os.Open(path)
		if err != nil {
			continue // a host without accounts
		}
		name := account(bufio.NewScanner(f), first, count)
		if err := f.Close(); err != nil {
			return nil, err
		}
		if name != "" {
			return nil, fmt.Errorf("%s of %s has an id between %d and %d, which are for sandboxes: give it another, or run as an ordinary user", name, path, first, first+count-1)
		}
	}
	const aProcess = 4096
	return &ids{first: first, count: count, next: uint32(uint64(os.Getpid()) * aProcess % uint64(count)), used: map[uint32]bool{}}, nil
}

// account names the account that has an id of the range; "" = none.
func account(lines *bufio.Scanner, first, count uint32) string {
	for lines.Scan() {
		f := strings.Split(lines.Text(), ":")
		if len(f) < 3 {
			continue
		}
		id, err := strconv.ParseUint(f[2], 10, 32)
		if err == nil && uint64(first) <= id && id < uint64(first)+uint64(count) {
			return f[0]
		}
	}
	return ""
}

// take returns an id that no open sandbox has. It goes round before it gives one again.
func (d *ids) take() (uint32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range d.count {
		id := d.first + d.next
		d.next = (d.next + 1) % d.count
		if !d.used[id] {
			d.used[id] = true
			return id, nil
		}
	}
	return 0, errors.New("all ids for sandboxes are in use")
}

func (d *ids) give(id uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.used, id)
}
