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

// FullError says that there is no room left in the sandbox for a file.
type FullError struct{ Path string }

func (e *FullError) Error() string {
	return fmt.Sprintf("there is no room left in the sandbox for %q", e.Path)
}

// PathError says that a file cannot be read or written there, for what the tree is at that place: a folder, no folder on the way,
// something that is no regular file, a name that is too long. It says nothing about the executor.
type PathError struct{ Path, Why string }

func (e *PathError) Error() string { return fmt.Sprintf("%q: %s", e.Path, e.Why) }
