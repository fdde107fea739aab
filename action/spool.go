package action

import (
	"fmt"
	"io"
)

// spool takes all that is written and keeps the head and the tail of it, limit bytes together at most: a flood neither blocks the
// writer nor fills this process. One goroutine writes; it is read when that has ended.
type spool struct {
	limit int // bytes
	total int64
	head  []byte
	tail  []byte // a ring once it is full
	at    int    // where the ring's oldest byte is
}

var _ io.Writer = (*spool)(nil)

func (s *spool) Write(p []byte) (int, error) {
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

// cut reports whether bytes are missing.
func (s *spool) cut() bool { return s.total > int64(len(s.head)+len(s.tail)) }

// String is what is kept, with a line in the place of what is missing.
func (s *spool) String() string {
	text := string(s.head)
	if missing := s.total - int64(len(s.head)+len(s.tail)); missing > 0 {
		text += marker(int(missing))
	}
	return text + string(s.tail[s.at:]) + string(s.tail[:s.at])
}

// said is the text for the end of an error, "" when nothing was written.
func (s *spool) said() string {
	if s.total == 0 {
		return ""
	}
	return fmt.Sprintf("; it wrote to standard error:\n%s", valid(s.String()))
}
