//go:build !linux

package rootfs

import (
	"context"
	"errors"
)

var errElsewhere = errors.New("a rootfs needs Linux")

// Prepare needs Linux.
func Prepare(context.Context, Config, string) (Tree, error) { return Tree{}, errElsewhere }

// HostBase stands for the part of this machine's files that a sandbox sees where no rootfs is declared.
const HostBase = "host"

// BuildTemp is a folder for what is only needed while programs install something.
const BuildTemp = "var/tmp"

// Build is a tree of one's own that programs may change.
type Build struct{ Dir string }

// NewBuild needs Linux.
func NewBuild(context.Context, Config, string) (*Build, error) { return nil, errElsewhere }

// Resolvable needs Linux.
func (*Build) Resolvable() error { return errElsewhere }

// Freeze needs Linux.
func (*Build) Freeze(context.Context, string) (digest string, err error) { return "", errElsewhere }

// Close does nothing.
func (*Build) Close() error { return nil }
