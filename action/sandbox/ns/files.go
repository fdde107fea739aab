package ns

import (
	"errors"
	"io/fs"

	"tranche/action/sandbox"
)

// fileSet is the form in which files go to a slot.
type fileSet []sandbox.File

func (s *fileSet) fields(c *codec) {
	n := uint64(len(*s))
	c.num(&n)
	if c.reading {
		if n > uint64(len(c.b)) {
			c.fail()
			return
		}
		*s = make(fileSet, n)
	}
	for i := range *s {
		f := &(*s)[i]
		mode := uint64(f.Mode)
		c.str(&f.Path)
		c.num(&mode)
		c.bytes(&f.Data)
		f.Mode = fs.FileMode(mode)
	}
}

// faults of files that keep their type on the way to the host.
const (
	faultEscape = iota + 1
	faultTooLarge
	faultNotExist
	faultPath
	faultFull
)

// packFault puts an error of package sandbox into a reply.
func packFault(r *reply, err error) {
	var escape *sandbox.EscapeError
	var large *sandbox.TooLargeError
	var path *sandbox.PathError
	var full *sandbox.FullError
	switch {
	case errors.As(err, &escape):
		r.What, r.Fault, r.Path = saidFile, faultEscape, escape.Path
	case errors.As(err, &large):
		r.What, r.Fault, r.Path, r.Size, r.Limit = saidFile, faultTooLarge, large.Path, large.Size, large.Limit
	case errors.As(err, &path):
		r.What, r.Fault, r.Path, r.Text = saidFile, faultPath, path.Path, path.Why
	case errors.As(err, &full):
		r.What, r.Fault, r.Path = saidFile, faultFull, full.Path
	case errors.Is(err, fs.ErrNotExist):
		r.What, r.Fault = saidFile, faultNotExist
	}
}

// fault is the error of a reply that says that a file or path is the cause.
func (r *reply) fault() error {
	switch r.Fault {
	case faultEscape:
		return &sandbox.EscapeError{Path: r.Path}
	case faultTooLarge:
		return &sandbox.TooLargeError{Path: r.Path, Size: r.Size, Limit: r.Limit}
	case faultPath:
		return &sandbox.PathError{Path: r.Path, Why: r.Text}
	case faultFull:
		return &sandbox.FullError{Path: r.Path}
	}
	return &fs.PathError{Op: "open", Path: r.Path, Err: fs.ErrNotExist}
}
