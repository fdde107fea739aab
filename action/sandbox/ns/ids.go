package ns

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// idRange are the host ids that a root's slots run under: two a slot, one of its init and one of its programs.
type idRange struct{ first, count uint32 }

// defaultIDs is the range that systemd's "Users, Groups, UIDs and GIDs" calls unused.
func defaultIDs() idRange { return idRange{0x70000000, 1 << 24} }

const idsASlot = 2

// pair returns the ids of the slot with a number. Processes begin at different places of the range, so that two on one host do not
// share ids unless the range is small.
func (r idRange) pair(process, slot int) (init, program uint32) {
	const slotsAProcess = 4096
	pairs := uint64(r.count / idsASlot)
	at := (uint64(process)*slotsAProcess + uint64(slot)) % pairs
	init = r.first + uint32(at)*idsASlot
	return init, init + 1
}

// chooseIDs finds the range for this process: the one given, the default, or where this user namespace maps less, the upper half of
// the largest part that it maps.
func chooseIDs(c Config, uidMap string) (idRange, error) {
	want := defaultIDs()
	if c.FirstID != 0 {
		want = idRange{c.FirstID, c.IDCount}
	}
	var largest idRange
	for line := range strings.Lines(uidMap) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(f[0], 10, 32)
		count, err2 := strconv.ParseUint(f[2], 10, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		if uint64(want.first) >= first && uint64(want.first)+uint64(want.count) <= first+count {
			return want, nil
		}
		if uint32(count) > largest.count {
			largest = idRange{uint32(first), uint32(count)}
		}
	}
	if c.FirstID != 0 {
		return idRange{}, fmt.Errorf("ids %d to %d are not mapped in this user namespace", want.first, uint64(want.first)+uint64(want.count)-1)
	}
	half := largest.count / 2 &^ 1
	if half < idsASlot {
		return idRange{}, fmt.Errorf("this user namespace maps %d ids: too few to give programs one of their own", largest.count)
	}
	return idRange{largest.first + largest.count - half, half}, nil
}

// taken says which account has an id of the range; "" = none.
func (r idRange) taken(passwd *bufio.Scanner) string {
	for passwd.Scan() {
		f := strings.Split(passwd.Text(), ":")
		if len(f) < 3 {
			continue
		}
		id, err := strconv.ParseUint(f[2], 10, 32)
		if err == nil && uint64(r.first) <= id && id < uint64(r.first)+uint64(r.count) {
			return f[0]
		}
	}
	return ""
}

// identities is the range for this process, checked against the accounts of the host.
func identities(c Config) (idRange, error) {
	uidMap, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return idRange{}, err
	}
	r, err := chooseIDs(c, string(uidMap))
	if err != nil {
		return idRange{}, err
	}
	for _, path := range []string{"/etc/passwd", "/etc/group"} {
		f, err := os.Open(path)
		if err != nil {
			continue // a host without accounts
		}
		name := r.taken(bufio.NewScanner(f))
		f.Close()
		if name != "" && name != "nobody" && name != "nogroup" {
			return idRange{}, fmt.Errorf("%s of %s has an id between %d and %d, which are for sandboxes: give it another, or run as an ordinary user", name, path, r.first, uint64(r.first)+uint64(r.count)-1)
		}
	}
	return r, nil
}
