package action

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Config says which tools every episode is offered and what bounds their runs. The zero value is valid: no tools but those
// that a task names itself, and the defaults below.
type Config struct {
	// Tools names the tools offered to every episode, in this order, besides those its task names. Default none.
	Tools []string `yaml:"tools"`
	// Workers is how many tool runs go on at once, over all episodes. Default 2 x cores.
	Workers int `yaml:"workers"`
	// Queue is how many runs may wait for a worker before an episode waits outside the queue. Default 16 x Workers.
	Queue int `yaml:"queue"`
	// Timeout is how long one run may take once it has started; waiting for a worker does not count. A run that goes on
	// longer is told to stop, then abandoned. Default 30s.
	Timeout time.Duration `yaml:"timeout"`
	// MaxObservationBytes caps what a model sees of one run, in bytes of UTF-8; the middle is cut out. Default 16384, at
	// least 256.
	MaxObservationBytes int `yaml:"max_observation_bytes"`
	// Calls is how models that have no tool calls write them into their text. Default: they have.
	Calls CallFormat `yaml:"calls"`
}

// MinObservationBytes is the least that Config.MaxObservationBytes may be, bytes: less tells a model nothing.
const MinObservationBytes = 256

// Validate reports every fault of the configuration at once. It cannot know which tools exist: New checks the names.
func (c Config) Validate() error {
	var errs []error
	seen := make(map[string]bool, len(c.Tools))
	for i, name := range c.Tools {
		switch {
		case name == "":
			errs = append(errs, fmt.Errorf("tools[%d]: empty, expected the name of a tool", i))
		case seen[name]:
			errs = append(errs, fmt.Errorf("tools[%d]: %q is named twice", i, name))
		}
		seen[name] = true
	}
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("workers: %d, expected 1 or more, or 0 for the default", c.Workers))
	}
	if c.Queue < 0 {
		errs = append(errs, fmt.Errorf("queue: %d, expected 1 or more, or 0 for the default", c.Queue))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout: %s, expected more than 0s, or 0s for the default", c.Timeout))
	}
	if c.MaxObservationBytes != 0 && c.MaxObservationBytes < MinObservationBytes {
		errs = append(errs, fmt.Errorf("max_observation_bytes: %d, expected at least %d bytes, or 0 for the default",
			c.MaxObservationBytes, MinObservationBytes))
	}
	return errors.Join(append(errs, c.Calls.Validate())...)
}

func (c Config) withDefaults() Config {
	if c.Workers == 0 {
		c.Workers = 2 * runtime.NumCPU()
	}
	if c.Queue == 0 {
		c.Queue = 16 * c.Workers
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.MaxObservationBytes == 0 {
		c.MaxObservationBytes = 16 << 10
	}
	c.Calls = c.Calls.withDefaults()
	return c
}
