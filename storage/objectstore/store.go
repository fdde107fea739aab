package objectstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Store is one place in an object store: the objects under a URL, by keys such as parts/part-00000.parquet. Its methods may be
// called from many goroutines at once, try again what may pass, and return an *Error when the service said no.
type Store interface {
	// Put makes an object of size bytes, whole or not at all: nobody sees a part of it, and an upload that fails leaves nothing.
	// sum is the SHA-256 of the bytes in hex; the store keeps it beside them. ErrConflict: the condition did not hold. An object
	// that has these very bytes already is no conflict.
	Put(ctx context.Context, key string, body io.ReaderAt, size int64, sum string, when Condition) (Object, error)
	// Get opens an object; the caller closes it. ErrNotFound.
	Get(ctx context.Context, key string) (io.ReadCloser, Object, error)
	// Stat tells what Get would give. ErrNotFound.
	Stat(ctx context.Context, key string) (Object, error)
	// List is every object, by key; SHA256 and Version are not filled in.
	List(ctx context.Context) ([]Object, error)
	// Delete removes an object; one that is not there is no error.
	Delete(ctx context.Context, key string) error
	// Sweep removes what uploads that were killed left behind.
	Sweep(ctx context.Context) error
	// String is the URL.
	String() string
}

// Object is one object of a store.
type Object struct {
	Key     string
	Bytes   int64
	SHA256  string // hex, as its writer stated it; "" where none is known
	Version string // of these bytes; what Condition compares
}

// Condition says when Put may put. The zero value is always.
type Condition struct {
	Absent  bool   // only where there is no such object
	Version string // only where the object still has this version
}

// Errors that callers branch on.
var (
	// ErrURL: the text names no place in an object store.
	ErrURL = errors.New("no URL of an object store")
	// ErrNotFound: there is no such object.
	ErrNotFound = errors.New("no such object")
	// ErrNoBucket: there is no such bucket or container.
	ErrNoBucket = errors.New("no such bucket")
	// ErrDenied: the credentials do not allow it, or there are none.
	ErrDenied = errors.New("not allowed")
	// ErrConflict: the object is not the one that the condition wants.
	ErrConflict = errors.New("changed by somebody else")
)

// Config says where a store is and how patient its requests are. The zero value of every field but URL is its default.
type Config struct {
	// URL is s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///PATH.
	URL string
	// PartBytes is the size above which an object is sent in several parts, and that of the parts, bytes. Larger: fewer requests,
	// more to be sent again when one fails. Default 16 MiB.
	PartBytes int64
	// Attempts is how often one request is made, the first included. Default 6, over about 6 s.
	Attempts int
	// Pause is the wait after the first attempt; each later one is twice as long, and up to half is left out by chance. Default 200 ms.
	Pause time.Duration
	// Idle ends a connection on which no byte moved for so long. Default 2 min.
	Idle time.Duration
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var errs []error
	if _, err := parseURL(c.URL); err != nil {
		errs = append(errs, err)
	}
	if c.PartBytes != 0 && c.PartBytes < leastPartBytes || c.PartBytes > 1<<30 {
		errs = append(errs, fmt.Errorf("objectstore: PartBytes is %d: expected 0 (default), or 5 MiB to 1 GiB", c.PartBytes))
	}
	if c.Attempts < 0 || c.Pause < 0 || c.Idle < 0 {
		errs = append(errs, fmt.Errorf("objectstore: Attempts is %d, Pause %v, Idle %v: expected none below 0", c.Attempts, c.Pause, c.Idle))
	}
	return errors.Join(errs...)
}

// leastPartBytes is what S3 takes as a part that is not the last.
const leastPartBytes = 5 << 20

func (c Config) withDefaults() Config {
	c.PartBytes, c.Attempts = cmp.Or(c.PartBytes, 16<<20), cmp.Or(c.Attempts, 6)
	c.Pause, c.Idle = cmp.Or(c.Pause, 200*time.Millisecond), cmp.Or(c.Idle, 2*time.Minute)
	return c
}

// Open finds the credentials and makes the store. It sends no request to it: a bucket that is not there is found by the first use.
func Open(ctx context.Context, cfg Config) (Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	at, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	switch at.scheme {
	case "s3":
		return openS3(ctx, cfg, at)
	case "gs":
		return openGS(ctx, cfg, at)
	case "az":
		return openAZ(cfg, at)
	}
	return &folder{root: at.path, tries: triesOf(cfg)}, nil
}

// settled makes a conflict with the very bytes that were to be put a success: an answer that was lost on its way back is asked for
// again, and then the condition does not hold any more.
func settled(ctx context.Context, s Store, key string, size int64, sum string, err error) (Object, error) {
	if o, serr := s.Stat(ctx, key); serr == nil && o.Bytes == size && o.SHA256 == sum {
		return o, nil
	}
	return Object{}, err
}
