package action

import (
	"fmt"
	"io"
	"sync"
)

// Spool takes all that a program writes and keeps the head and the tail of it: a flood neither blocks the writer nor fills this process. It
// may be read while it is written.
type Spool struct {
	limit int // bytes that are kept

	mu    sync.Mutex // guards what follows
	total int64
	head  []byte
	tail  []byte // a ring once it is full
	at    int    // where the ring's oldest byte is
}

var _ io.Writer = (*Spool)(nil)

// NewSpool keeps so many bytes at most.
func NewSpool(limit int) *Spool { return &Spool{limit: limit} }

// Write takes all of p and fails never.
func (s *Spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	s.total += int64(n)
	half := s.limit / 2
	take := min(half-len(s.head), len(p))
	s.head, p = append(s.head, p[:take]...), p[take:]
	if len(p) > s.limit-half {
		p = p[len(p)-(s.limit-half):]
	}
	grow := min(s.limit-half-len(s.tail), len(p))
	s.tail, p = append(s.tail, p[:grow]...), p[grow:]
	for len(p) > 0 {
		k := copy(s.tail[s.at:], p)
		s.at, p = (s.at+k)%len(s.tail), p[k:]
	}
	return n, nil
}

// Total is how many bytes were written.
func (s *Spool) Total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Cut reports whether bytes are missing.
func (s *Spool) Cut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missing() > 0
}

func (s *Spool) missing() int64 { return s.total - int64(len(s.head)+len(s.tail)) }

// Text is what is kept, without the secrets, with a line in the place of what is missing.
func (s *Spool) Text(secrets Secrets) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	head, tail := string(s.head), string(s.tail[s.at:])+string(s.tail[:s.at])
	if s.missing() == 0 {
		return secrets.Redact(head + tail)
	}
	return secrets.redactPart(head, false, true) + marker(int(s.missing())) + secrets.redactPart(tail, true, false)
}

// said is the text for the end of an error, "" when nothing was written.
func (s *Spool) said(secrets Secrets) string {
	if s.Total() == 0 {
		return ""
	}
	return fmt.Sprintf("; it wrote to standard error:\n%s", valid(s.Text(secrets)))
}
