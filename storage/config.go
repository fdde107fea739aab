package storage

import (
	"errors"
	"fmt"
	"time"
)

// Config says where a run lives and when what it wrote becomes durable and visible. The zero value of every field but Dir
// is its default.
type Config struct {
	// Dir is the run directory. It is created with its parents when absent; a directory that holds something else is refused.
	Dir string

	// RunFile is the content of run.yaml; nil leaves what is there. It is written after Accept agreed.
	RunFile []byte
	// Accept is asked, under the lock and before anything changes, whether a run with this run.yaml may be continued; its
	// error refuses the directory. It is not asked for a new run. nil accepts every run.
	Accept func(runFile []byte) error

	// RetryFailed makes the failures that Open finds count as not done. Each may be written once more, and the new row,
	// good or failed, takes the place of the old one. Default false: a failure is final.
	RetryFailed bool

	// MarkEqual flags the rows of groups whose rewards are all the same (FlagZeroVariance) when they are published. Default false.
	MarkEqual bool

	// SyncInterval is the least time between two fsyncs of the journal. Larger: fewer fsyncs, longer waits in Write.
	// Default 5 ms.
	SyncInterval time.Duration
	// RowGroupBytes closes a row group, bytes of raw rows (before encoding). A group of samples larger than that makes a
	// larger row group. Default 8 MiB.
	RowGroupBytes int64
	// PartBytes publishes a part as soon as so much is ready, bytes of raw rows. Write waits while twice as much is ready
	// and not yet published. Default 64 MiB.
	PartBytes int64
	// MinPartAge publishes rows that have been ready for so long. It doubles with every part up to MaxPartAge, so that a
	// short run is readable soon and a long one has few files. Default 1 s.
	MinPartAge time.Duration
	// MaxPartAge is where MinPartAge stops doubling. Default 5 min.
	MaxPartAge time.Duration

	// SmallParts is how many neighbouring parts, or failure files, below half of PartBytes may pile up before they are made into one; Close makes
	// one of two and more. A row is written three times at most, on average. 2 or more; 0 = parts stay as they were published.
	SmallParts int

	// GroupVerdicts completes the verdicts of a group just before it is published: with Row.SetVerdict, and it may change nothing else
	// and keep no row: the memory of its tokens is used again. It is called by the goroutine that publishes, with the rows of a group that ended well, in sample order; whole says that no sample
	// is missing but failed and cut ones. After a crash it is called for the same rows again and must come to the same. Until then
	// rows are in the journal, and counted, with the verdict they came with. nil = verdicts are complete when they are written.
	GroupVerdicts func(rows []*Row, whole bool)
}

// The most that fields of a Config may be.
const (
	MostSyncInterval  = time.Minute
	MostRowGroupBytes = 1 << 30
	MostPartBytes     = 16 << 30
)

// Validate reports every fault at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("storage: "+format, args...)) }
	if c.Dir == "" {
		bad("Dir is empty: expected the path of the run directory")
	}
	if c.SyncInterval < 0 || c.SyncInterval > MostSyncInterval {
		bad("SyncInterval is %v: expected 0 (default) to 1m", c.SyncInterval)
	}
	if c.RowGroupBytes < 0 || c.RowGroupBytes > MostRowGroupBytes {
		bad("RowGroupBytes is %d: expected 0 (default) to 1 GiB", c.RowGroupBytes)
	}
	if c.PartBytes < 0 || c.PartBytes > MostPartBytes {
		bad("PartBytes is %d: expected 0 (default) to 16 GiB", c.PartBytes)
	}
	if c.MinPartAge < 0 || c.MaxPartAge < 0 {
		bad("MinPartAge is %v, MaxPartAge %v: expected no negative time", c.MinPartAge, c.MaxPartAge)
	}
	if c.SmallParts < 0 || c.SmallParts == 1 {
		bad("SmallParts is %d: expected 0 (never) or 2 and more", c.SmallParts)
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	set(&c.SyncInterval, 5*time.Millisecond)
	set(&c.RowGroupBytes, 8<<20)
	set(&c.PartBytes, 64<<20)
	set(&c.MinPartAge, time.Second)
	set(&c.MaxPartAge, 5*time.Minute)
	c.MaxPartAge = max(c.MaxPartAge, c.MinPartAge)
	return c
}

func set[T comparable](field *T, standard T) {
	var zero T
	if *field == zero {
		*field = standard
	}
}

// Errors that callers branch on.
var (
	// ErrLocked: another process writes this run.
	ErrLocked = errors.New("in use by another process")
	// ErrClosed: Write after Close.
	ErrClosed = errors.New("the writer is closed")
	// ErrDone: this key is in the dataset already.
	ErrDone = errors.New("the episode is in the dataset already")
	// ErrCancelled: cancelled episodes are never stored; they are done again on resume.
	ErrCancelled = errors.New("a cancelled episode is not stored")
	// ErrNotRun: the directory is no run directory.
	ErrNotRun = errors.New("not a run directory")
	// ErrDamaged: a file that the manifest lists is missing or is not the one that was published.
	ErrDamaged = errors.New("the dataset is damaged")
	// ErrNotFound: no episode has that id.
	ErrNotFound = errors.New("no such episode")
	// ErrAmbiguous: several episodes have ids with that prefix.
	ErrAmbiguous = errors.New("several episodes match")
)

// Names inside a run directory.
const (
	runFileName      = "run.yaml"
	manifestName     = "manifest.json"
	summaryName      = "summary.json"
	accountName      = "account.json"
	endpointsDir     = "endpoints"
	lockName         = ".lock"
	partsDir         = "parts"
	failuresDir      = "failures"
	journalDir       = "journal"
	tempPrefix       = ".tmp-"
	damagedSuffix    = ".damaged"
	segmentExtension = ".log"
)
