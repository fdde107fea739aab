package feed

import (
	"errors"
	"fmt"
	"time"
)

// Config says what is served. The zero value of every field but Dir is its default.
type Config struct {
	// Dir is the run directory. Its folder feed/ keeps the order of publication and what consumers acknowledged.
	Dir string
	// Key must come as "Authorization: Bearer KEY". Default "": none is asked for.
	Key string
	// Poll is how often the run is looked at for new rows. Default 200 ms.
	Poll time.Duration
	// BatchBytes closes a record batch, bytes of raw rows. Larger: fewer batches, more memory a stream. Default 4 MiB.
	BatchBytes int64
	// Streams is how many answers are given at once; more are refused with 503. Default 64.
	Streams int
	// AckWait is how long End waits for consumers to acknowledge what they were sent, after the last stream has ended. Default 10 s.
	AckWait time.Duration
	// Writing says whether the run is still written. It is asked by each stream that follows and has nothing new, once a second and when something was
	// published, and by /v1/stats.
	// Default: whether a process holds the lock of Dir.
	Writing func() bool
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("feed: "+format, args...)) }
	if c.Dir == "" {
		bad("Dir is empty: expected a run directory")
	}
	if c.Poll < 0 || c.Poll > time.Minute {
		bad("Poll is %v: expected 0 (default) to 1m", c.Poll)
	}
	if c.BatchBytes < 0 || c.BatchBytes > 1<<30 {
		bad("BatchBytes is %d: expected 0 (default) to 1 GiB", c.BatchBytes)
	}
	if c.AckWait < 0 {
		bad("AckWait is %v: expected 0 (default) or more", c.AckWait)
	}
	if c.Streams < 0 {
		bad("Streams is %d: expected 0 (default) or more", c.Streams)
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults(writing func() bool) Config {
	if c.Poll == 0 {
		c.Poll = 200 * time.Millisecond
	}
	if c.BatchBytes == 0 {
		c.BatchBytes = 4 << 20
	}
	if c.Streams == 0 {
		c.Streams = 64
	}
	if c.AckWait == 0 {
		c.AckWait = 10 * time.Second
	}
	if c.Writing == nil {
		c.Writing = writing
	}
	return c
}
