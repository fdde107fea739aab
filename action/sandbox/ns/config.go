package ns

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"tranche/action/sandbox"
)

// Config is how the back end works on this host. Zero fields take the defaults.
type Config struct {
	// MaxOpen is how many sandboxes may be open at once; Open waits for room. Each takes up to 12 descriptors: where this process may have
	// too few for so many, less are open. 0 = 2,000.
	MaxOpen int
	// MaxIdle is how many warm slots are kept for the next Open. 0 = 32; -1 = none.
	MaxIdle int
	// RunsPerSlot is after how many programs a slot is thrown away and built anew. 0 = 10,000.
	RunsPerSlot int
	// Patience is how long a slot may stay silent before it is taken for dead: its run is then an error of the executor. It has to be
	// longer than a busy host leaves a process waiting for a processor, which is many seconds at a load of 90. 0 = 30 s.
	Patience time.Duration
	// Tier forces the tier of the limits, to test with or because a cgroup is not wanted. "" = the strongest that works.
	Tier sandbox.Tier
	// Cgroup is a cgroup v2 folder to make groups in: writable, with the controllers memory and pids, without processes. "" = look for one.
	Cgroup string
	// FirstID is the first of IDCount host ids that programs run under where this process is root; no account may have one of
	// them. 0 = 0x70000000 and 2^24 of them, which systemd's list of ids calls unused, or the upper half of what this user namespace maps.
	FirstID, IDCount uint32
	// Launch has another program build the sandboxes that the inits run in. nil = they are built here.
	Launch *Launch
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fault(c.MaxOpen < 0, "MaxOpen is %d, expected 0 or more", c.MaxOpen)
	fault(c.MaxIdle < -1, "MaxIdle is %d, expected -1 or more", c.MaxIdle)
	fault(c.RunsPerSlot < 0, "RunsPerSlot is %d, expected 0 or more", c.RunsPerSlot)
	fault(c.Patience < 0, "Patience is %v, expected 0 or more", c.Patience)
	tiers := []sandbox.Tier{"", sandbox.TierCgroup2, sandbox.TierCgroup1, sandbox.TierRlimit}
	fault(!slices.Contains(tiers, c.Tier), "Tier is %q, expected one of %q", c.Tier, tiers[1:])
	fault(c.FirstID != 0 && c.IDCount < 2, "IDCount is %d, expected 2 or more beside FirstID", c.IDCount)
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.MaxOpen == 0 {
		c.MaxOpen = 2000
	}
	switch c.MaxIdle {
	case 0:
		c.MaxIdle = 32
	case -1:
		c.MaxIdle = 0
	}
	if c.RunsPerSlot == 0 {
		c.RunsPerSlot = 10_000
	}
	if c.Patience == 0 {
		c.Patience = 30 * time.Second
	}
	return c
}
