package action

import (
	"fmt"
	"io"
	"sync"

	"tranche/internal/ends"
)

// Spool takes all that a program writes and keeps the head and the tail of it: a flood neither blocks the writer nor fills this process. It
// may be read while it is written.
type Spool struct {
	mu   sync.Mutex
	kept ends.Ends // guarded by mu
}

var _ io.Writer = (*Spool)(nil)

// NewSpool keeps so many bytes at most.
func NewSpool(limit int) *Spool { return &Spool{kept: ends.Keep(limit)} }

// Write takes all of p and fails never.
func (s *Spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Add(p)
	return len(p), nil
}

// Total is how many bytes were written.
func (s *Spool) Total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept.Total()
}

// Cut reports whether bytes are missing.
func (s *Spool) Cut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept.Missing() > 0
}

// Text is what is kept, without the secrets, with a line in the place of what is missing.
func (s *Spool) Text(secrets Secrets) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	head, tail, missing := string(s.kept.Head()), string(s.kept.Tail()), s.kept.Missing()
	if missing == 0 {
		return secrets.Redact(head + tail)
	}
	return secrets.redactPart(head, false, true) + marker(int(missing)) + secrets.redactPart(tail, true, false)
}

// said is the text for the end of an error, "" when nothing was written.
func (s *Spool) said(secrets Secrets) string {
	if s.Total() == 0 {
		return ""
	}
	return fmt.Sprintf("; it wrote to standard error:\n%s", valid(s.Text(secrets)))
}
