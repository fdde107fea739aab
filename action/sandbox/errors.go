package sandbox

import (
	"fmt"
	"strings"
)

// RequireError says which required promises this host cannot hold.
type RequireError struct {
	Backend string
	Missing []Promise
	Why     map[Promise]string
}

func (e *RequireError) Error() string {
	words := make([]string, len(e.Missing))
	for i, p := range e.Missing {
		words[i] = fmt.Sprintf("%s (%s)", p, e.Why[p])
	}
	return fmt.Sprintf("sandbox %s cannot enforce what is required here: %s", e.Backend, strings.Join(words, "; "))
}

// EscapeError says that a path leads out of the work folder.
type EscapeError struct{ Path string }

func (e *EscapeError) Error() string {
	return fmt.Sprintf("%q leads out of the sandbox's work folder", e.Path)
}

// TooLargeError says that a file is larger than the reader allows.
type TooLargeError struct {
	Path        string
	Size, Limit int64 // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%q has %d bytes, more than the %d that may be read", e.Path, e.Size, e.Limit)
}
