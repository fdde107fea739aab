package codetools

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/session"
)

// Config says what sandboxes are and how many. The zero value is valid.
type Config struct {
	// Spec is every episode's sandbox. Default: the host's /usr, no network, sandbox.DefaultLimits, not trusted.
	Spec sandbox.Spec
	// Wall is how long one call may take. What goes on longer is interrupted, and killed after Grace. Default 30s.
	Wall time.Duration
	// CPU is how much CPU time one call may use, all processes together. Default none.
	CPU time.Duration
	// Grace is how long an interrupted call has to end. Default session.DefaultGrace.
	Grace time.Duration
	// Runs is how many calls run at once, over all episodes. Default the cores.
	Runs int
	// Memory bounds the sandboxes that are open at once, bytes: the sum of what each may use (Spec.Limits.Memory). Default: three quarters of
	// the machine's memory, but never less than one sandbox.
	Memory int64
	// Keep is how many bytes of a call's output are kept, its beginning and its end. Default sandbox.DefaultKeep.
	Keep int
	// Modules are imported before the first python call of an episode. Default none.
	Modules []string
	// Once makes each python call a program of its own: of earlier calls only the files are there. It is forked off a process that has the modules.
	Once bool
	// MostFile is the largest file that read_file reads, bytes. Default 10 MiB.
	MostFile int64
	// Home is the work folder's path as programs see it, where that is the same in every sandbox: file paths may then begin with it.
	Home string
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var errs []error
	for _, v := range []struct {
		name  string
		value int64
	}{
		{"Wall", int64(c.Wall)}, {"CPU", int64(c.CPU)}, {"Grace", int64(c.Grace)}, {"Runs", int64(c.Runs)}, {"Memory", c.Memory},
		{"Keep", int64(c.Keep)}, {"MostFile", c.MostFile},
	} {
		if v.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %d, expected 0 or more", v.name, v.value))
		}
	}
	if one := c.withDefaults(); len(errs) == 0 && one.share() > one.Memory {
		errs = append(errs, fmt.Errorf("memory: one sandbox may use %d bytes, all that are open together only %d", one.share(), one.Memory))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Wall == 0 {
		c.Wall = 30 * time.Second
	}
	if c.Grace == 0 {
		c.Grace = session.DefaultGrace
	}
	if c.Runs == 0 {
		c.Runs = runtime.NumCPU()
	}
	if c.Memory == 0 {
		c.Memory = max(machineMemory()/4*3, c.share()) // one sandbox, however small the machine
	}
	if c.MostFile == 0 {
		c.MostFile = 10 << 20
	}
	return c
}

// share is what one open sandbox counts in the memory budget, bytes.
func (c Config) share() int64 {
	if c.Spec.Limits.Memory > 0 {
		return c.Spec.Limits.Memory
	}
	return sandbox.DefaultLimits().Memory
}
