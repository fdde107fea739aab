package objectstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// Error is a request that did not do what it was to do.
type Error struct {
	Op     string // put, get, …
	Key    string // "" for a list
	Status int    // of HTTP; 0: no answer came; -1: of the file system
	Code   string // the service's own word
	Kind   error  // ErrNotFound, ErrNoBucket, ErrDenied, ErrConflict, or nil
	Err    error
}

func (e *Error) Error() string {
	text := e.Op
	if e.Key != "" {
		text += " " + e.Key
	}
	if e.Kind != nil {
		text += ": " + e.Kind.Error()
	}
	if e.Status > 0 {
		text += fmt.Sprintf(": HTTP %d", e.Status)
	}
	if e.Code != "" {
		text += " " + e.Code
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives both what it is and what caused it.
func (e *Error) Unwrap() []error {
	var list []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			list = append(list, err)
		}
	}
	return list
}

// kindOf sorts an answer by its status and the service's own word.
func kindOf(status int, code string) error {
	switch {
	case slices.Contains([]string{"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "InvalidBucketName"}, code):
		return ErrNoBucket
	case mayPass(status, code):
		return nil
	case status == http.StatusNotFound:
		return ErrNotFound
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return ErrDenied
	case status == http.StatusPreconditionFailed, status == http.StatusConflict && slices.Contains([]string{"BlobAlreadyExists", "UnauthorizedBlobOverwrite"}, code):
		return ErrConflict
	}
	return nil
}

// mayPass tells whether the same request may go well later.
func mayPass(status int, code string) bool {
	switch code {
	case "RequestTimeout", "SlowDown", "ConditionalRequestConflict", "OperationAborted", "NoSuchUpload": // a swept upload is begun anew
		return true
	}
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout, 499, 520:
		return true
	}
	return false
}

// MayPass tells whether what failed may go well when it is tried again later: the service was not reached, or had a moment's trouble.
func MayPass(err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.Kind != nil || errors.Is(err, context.Canceled) {
		return false
	}
	var cert *tls.CertificateVerificationError
	if errors.As(err, &cert) {
		return false
	}
	return e.Status == 0 || mayPass(e.Status, e.Code)
}

// noAnswer is the error of a request that brought no answer. The URL in it goes: it may hold a token.
func noAnswer(op, key string, err error) *Error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	return &Error{Op: op, Key: key, Err: err}
}

// tries is how often one request is made.
type tries struct {
	attempts int
	pause    time.Duration
}

func triesOf(c Config) tries { return tries{c.Attempts, c.Pause} }

// longestPause between two attempts.
const longestPause = 10 * time.Second

// do makes a request until it goes well, cannot pass, or was made often enough; ctx ends the waiting.
func (t tries) do(ctx context.Context, request func() error) error {
	pause := t.pause
	for n := 1; ; n++ {
		err := request()
		if err == nil || n >= t.attempts || !MayPass(err) {
			return err
		}
		if sleep(ctx, pause-rand.N(pause/2+1)) != nil {
			return err
		}
		pause = min(2*pause, longestPause)
	}
}

// sleep waits, or returns why ctx ended first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
